/* Sums by leaves on the GPU (docs/format.md): a leaf of 1,024 numbers is a warp's, and lane l adds those whose place is l modulo
 * 32. Leaves form a tree of neighbours. */
#ifndef TG_EXEC_CUDA_SUMS_H
#define TG_EXEC_CUDA_SUMS_H

#include "exec/cuda/kernel.h"

#define TG_LEAF_N 1024u             /* numbers of a leaf */
#define TG_LANE_N (TG_LEAF_N / 32u) /* of a lane */

/* Folds the partial sums of a leaf by halves. Lane 0 has the sum. */
TG_DEVICE double tg_fold(double part)
{
    TG_UNROLL
    for (unsigned half = 16; half > 0; half /= 2) {
        part += __shfl_down_sync(TG_ALL_LANES, part, half);
    }
    return part;
}

/* The same of two leaves at once: lane 0 has the sum of `one`, lane 16 that of `other`. */
TG_DEVICE double tg_fold_both(double one, double other)
{
    bool is_other = threadIdx.x % TG_WARP >= 16;
    double part = (is_other ? other : one) + __shfl_xor_sync(TG_ALL_LANES, is_other ? one : other, 16);
    TG_UNROLL
    for (unsigned half = 8; half > 0; half /= 2) {
        part += __shfl_down_sync(TG_ALL_LANES, part, half);
    }
    return part;
}

/* The sum of a tree of n leaves in shared memory, which is used up. n <= blockDim.x * 2. All threads of the block take part and
 * get the sum. Begins and ends with a barrier, but for the end if n <= 2. */
TG_DEVICE double tg_tree_of(double *leaves, unsigned n)
{
    __syncthreads();
    for (; n > 2; n = (n + 1) / 2) {
        unsigned t = threadIdx.x, half = n / 2;
        double sum = t < half ? leaves[2 * t] + leaves[2 * t + 1] : t == half && n % 2 == 1 ? leaves[n - 1] : 0;
        __syncthreads();
        if (t < (n + 1) / 2) {
            leaves[t] = sum;
        }
        __syncthreads();
    }
    return n == 0 ? 0 : n == 1 ? leaves[0] : leaves[0] + leaves[1];
}

/* Leaves that are added in order by one thread, as a binary counter; level l holds the sum of 2^l leaves if bit l of n is set. */
typedef struct tg_leaf_tree {
    uint64_t n;
    double level[48];
} tg_leaf_tree;

TG_DEVICE void tg_leaf_add(tg_leaf_tree *t, double number)
{
    unsigned l = 0;
    for (uint64_t n = t->n++; (n & 1) != 0; n >>= 1) {
        number = t->level[l++] + number;
    }
    t->level[l] = number;
}

TG_DEVICE double tg_leaf_sum(const tg_leaf_tree *t)
{
    double sum = 0;
    bool is_first = true;
    unsigned l = 0;
    for (uint64_t n = t->n; n != 0; n >>= 1, l++) {
        if ((n & 1) != 0) {
            sum = is_first ? t->level[l] : t->level[l] + sum;
            is_first = false;
        }
    }
    return sum;
}

#endif
