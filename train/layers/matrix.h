/* Products of row-major matrices. */
#ifndef TR_MATRIX_H
#define TR_MATRIX_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tr_matrix {
    const float *at;
    size_t row;      /* floats from one row in memory to the next */
    bool transposed; /* use the transpose */
} tr_matrix;

static inline tr_matrix tr_as_is(const float *at, size_t row)
{
    return (tr_matrix){at, row, false};
}

static inline tr_matrix tr_transposed(const float *at, size_t row)
{
    return (tr_matrix){at, row, true};
}

/* out = left * right, or with `add`: out += left * right. `out` is rows x columns, contiguous. */
void tr_multiply(float *out, size_t rows, size_t columns, size_t inner, tr_matrix left, tr_matrix right, bool add);

/* out[j] = the sum of column j. */
void tr_column_sums(float *out, const float *matrix, size_t rows, size_t columns);

/* Makes OpenBLAS use one thread: the workers are threads already. */
void tr_matrix_one_thread(void);

#endif
