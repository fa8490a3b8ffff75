/* Sums of a low-rank exchange. Their order is part of the format (docs/format.md, section 8), because factors must have the same
 * bits whatever computes them: any number of threads, vectors of any width, blocks of a GPU.
 *
 *     along rows (M Q, dot products of columns of P)
 *         A leaf is TG_LEAF numbers. It has TG_SUMS partial sums, which begin as 0: partial sum l adds the products j = l
 *         (mod TG_SUMS) in ascending order. They are folded by halves: l gets l + 16 added, then l + 8, 4, 2, 1.
 *     along columns (M' P)
 *         A leaf is TG_LEAF_ROWS rows. Its sum begins as 0, and adds the products in ascending order.
 *     leaves
 *         form a binary tree of neighbours: 0 with 1, 2 with 3, ...; a last one without neighbour moves up as it is.
 *     P Q'
 *         one sum over the rank, in ascending order, which begins as the first product.
 *
 * All of it is in binary32, but dot products of columns of P are in binary64. There is no fused multiply-add. */
#ifndef TG_KERNELS_FACTORS_H
#define TG_KERNELS_FACTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TG_LEAF = 1024, TG_SUMS = 32, TG_LEAF_ROWS = 32 };

/* Rows of a matrix M: values + decay * residual, or the values alone if `residual` is NULL. */
typedef struct tg_matrix {
    const float *values, *residual;
    float decay;
    size_t stride; /* from row to row */
} tg_matrix;

#endif
