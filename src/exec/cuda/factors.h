/* PowerSGD's kernels: all matrices of a group in a few launches, by tables of tiles. kernels/factors.h gives the order of sums, which
 * is the host's; M, gradient plus residual, is computed where it is read and never stored. C and CUDA C include this.
 *
 *     tg_gpu_factors_begin      q_next = q, scaled                               a block a matrix
 *     tg_gpu_factors_multiply   P = M q_next                                     a block 32 rows and a leaf of columns
 *     tg_gpu_factors_orthonormalise                                              a block a matrix
 *     tg_gpu_factors_back       q_next = M' P                                    a block 8 leaves of rows and 128 columns
 *     tg_gpu_factors_average    P q_next', to `out`                              a block 64 rows and 128 columns
 *     tg_gpu_factors_end        q = q_next, if that is finite                    a block a matrix
 *     tg_gpu_factors_settle     P q_next' to the gradients, M - P q_next' to the residuals
 */
#ifndef TG_EXEC_CUDA_FACTORS_H
#define TG_EXEC_CUDA_FACTORS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TG_GPU_FACTOR_LEAF = 1024,   /* columns of a leaf of M Q */
    TG_GPU_FACTOR_ROWS = 32,     /* rows that a block of M Q takes; also rows of a leaf of M' P */
    TG_GPU_FACTOR_LEAVES = 8,    /* leaves of M' P that a block takes */
    TG_GPU_FACTOR_COLUMNS = 128, /* columns that a block takes of M' P and of P Q' */
    TG_GPU_FACTOR_SETTLE = 64,   /* rows that a block takes of P Q' */
    TG_GPU_FACTOR_THREADS = 256,
    TG_GPU_FACTOR_RANK_MAX = 64
};

/* A matrix; exec/factorization.h explains its numbers. Pointers are to device memory. */
typedef struct tg_gpu_matrix {
    uint64_t rows, columns;
    float *residual; /* NULL without feedback */
    float *q, *p, *q_next;
    float *sums;  /* scratch: of leaves of M Q, [leaf][k][row], or of tiles of leaves of M' P, [tile][k][column] */
    double *dots; /* scratch: of leaves of dot products, [k][leaf] */
    float decay, limit;
    uint32_t rank, tensor, dtype;
    uint32_t number; /* in the order of groups */
} tg_gpu_matrix;

/* What a block does. */
typedef struct tg_gpu_factor_tile {
    uint64_t row, column;
    uint32_t matrix, zero;
} tg_gpu_factor_tile;

/* Bytes of a tensor that is sent as it is. */
typedef struct tg_gpu_factor_copy {
    uint8_t *to; /* its buffer */
    uint64_t at; /* of these bytes in the tensor */
    uint32_t tensor, len;
} tg_gpu_factor_copy;

enum { TG_GPU_FACTOR_COPY = 16384 }; /* bytes that a block copies */

/* What all launches are given. Tables are of all groups; a launch covers some entries of one, `tiles` or `copies`. */
typedef struct tg_gpu_factors {
    const tg_gpu_matrix *matrices;
    const tg_gpu_factor_tile *tiles;
    const tg_gpu_factor_copy *copies;
    uint32_t n;         /* blocks */
    void *const *grads; /* by tensor */
    uint64_t
        *beyond; /* the first element that is refused: see tg_gpu_factor_key; written by atomicMin. NULL: none is */
    uint64_t seed, step;
    uint8_t nonfinite; /* tg_nonfinite */
    void *stream;
} tg_gpu_factors;

/* Which matrix, then which row, then whether its gradient is finite: the least of all is what is refused. */
#define TG_GPU_FACTOR_KEY_ROW_BITS 39
static inline uint32_t tg_gpu_factor_key_matrix(uint64_t key)
{
    return (uint32_t)(key >> (TG_GPU_FACTOR_KEY_ROW_BITS + 1));
}

/* Tiles have `matrix` set. */
void tg_gpu_factors_begin(const tg_gpu_factors *f);
void tg_gpu_factors_orthonormalise(const tg_gpu_factors *f);
void tg_gpu_factors_end(const tg_gpu_factors *f);

/* Tiles of rows: `column` is the start of a leaf. Where there are several leaves, their sums are then added: tiles of
 * TG_GPU_FACTOR_THREADS elements of P, from `row` on. */
void tg_gpu_factors_multiply(const tg_gpu_factors *f);
void tg_gpu_factors_add_leaves(const tg_gpu_factors *f);

/* Tiles of rows and columns; likewise, tiles of elements of Q, from `column` on. */
void tg_gpu_factors_back(const tg_gpu_factors *f);
void tg_gpu_factors_add_back(const tg_gpu_factors *f);

void tg_gpu_factors_average(const tg_gpu_factors *f);
void tg_gpu_factors_settle(const tg_gpu_factors *f);

/* From gradients to the buffers of tensors that are sent as they are, or back. */
void tg_gpu_factors_copy(const tg_gpu_factors *f, int back);

#ifdef __cplusplus
}
#endif
#endif
