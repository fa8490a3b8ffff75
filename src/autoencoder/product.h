/* Products of matrices whose bits do not depend on the machine, which those of a BLAS do.
 *
 * Every element of a result is its old value, to which the products of a row and a column are added one after the other,
 * each rounded: c = (((c + a0 b0) + a1 b1) + a2 b2) + ... A processor may do many elements at once, but never a part of
 * one, so all instruction sets agree. */
#ifndef TG_AUTOENCODER_PRODUCT_H
#define TG_AUTOENCODER_PRODUCT_H

#include <stddef.h>

/* Element (i, j) of a matrix is at[i * row + j * column]. */
typedef struct tg_matrix {
    const float *at;
    size_t row, column;
} tg_matrix;

/* One whose rows lie at a distance of `stride`, and the same one transposed. */
static inline tg_matrix tg_rows(const float *at, size_t stride)
{
    return (tg_matrix){at, stride, 1};
}

static inline tg_matrix tg_transposed(tg_matrix m)
{
    return (tg_matrix){m.at, m.column, m.row};
}

/* c += a b, where c has `rows` x `columns` elements, its rows `stride` apart, and a has `inner` columns.
 * c overlaps neither a nor b. */
void tg_product(float *c, size_t stride, tg_matrix a, tg_matrix b, size_t rows, size_t columns, size_t inner);

/* The same by one of several ways, 0 ... tg_product_way_n() - 1, of which the last is the fastest here; 0 is plain C. */
size_t tg_product_way_n(void);
void tg_product_by(size_t way, float *c, size_t stride, tg_matrix a, tg_matrix b, size_t rows, size_t columns,
                   size_t inner);

#endif
