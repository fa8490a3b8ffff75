/* Matrix products whose bits do not depend on the machine. Those of a BLAS do.
 *
 * Each element of the result is computed in one fixed order, rounding after every operation:
 * c = (((c + a0 b0) + a1 b1) + a2 b2) + ... Vector instructions compute many elements at once but never split the sum of one
 * element, so all instruction sets give the same bits. */
#ifndef TG_AUTOENCODER_PRODUCT_H
#define TG_AUTOENCODER_PRODUCT_H

#include <stddef.h>

/* Element (i, j) of a matrix is at[i * row + j * column]. */
typedef struct tg_matrix {
    const float *at;
    size_t row, column;
} tg_matrix;

/* A matrix whose rows are `stride` floats apart; and the transpose of a matrix. */
static inline tg_matrix tg_rows(const float *at, size_t stride)
{
    return (tg_matrix){at, stride, 1};
}

static inline tg_matrix tg_transposed(tg_matrix m)
{
    return (tg_matrix){m.at, m.column, m.row};
}

/* c += a b. c has `rows` x `columns` elements, with rows `stride` floats apart; a has `inner` columns. c must not overlap a or
 * b. */
void tg_product(float *c, size_t stride, tg_matrix a, tg_matrix b, size_t rows, size_t columns, size_t inner);

/* The same by one variant of the code, 0 to tg_product_variant_n() - 1. Variant 0 is plain C; the last is the fastest that this CPU
 * supports. */
size_t tg_product_variant_n(void);
void tg_product_by(size_t variant, float *c, size_t stride, tg_matrix a, tg_matrix b, size_t rows, size_t columns,
                   size_t inner);

#endif
