/* Vectors of TG_LANES floats for products with the factors of a low-rank exchange; see factor_loops.h. */
#ifndef TG_KERNELS_FACTOR_VECTORS_H
#define TG_KERNELS_FACTOR_VECTORS_H

#include "base/half.h"
#include "kernels/factors.h"

#include <string.h>

#define TG_FACTOR_INLINE static inline __attribute__((always_inline)) TG_TARGET

/* Vectors that hold the partial sums of a leaf, and those that one sweep over its columns computes: as many as have registers for
 * two rows of M times four rows of a factor. TALL rows and one vector fill them, too, with fewer loads; a high rank is worth another
 * sweep. STRIP: vectors of a row that have registers for four sums each. */
enum {
    VECTORS = TG_SUMS / TG_LANES,
    SWEEP = TG_LANES == 8 ? 1 : 2,
    TALL = TG_LANES == 8 ? 2 : 4,
    STRIP = TG_LANES == 8 ? 2 : 4,
    DOT_SWEEP = TG_LANES == 8 ? 2 : 4,
    HIGH_RANK = 9
};

typedef float vector __attribute__((vector_size(4 * TG_LANES), aligned(4), may_alias));
typedef int32_t integers __attribute__((vector_size(4 * TG_LANES), aligned(4), may_alias));
typedef float half_vector __attribute__((vector_size(2 * TG_LANES), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(4 * TG_LANES), aligned(8), may_alias));

/* Prefetches a page later than `at`, which may be past the end. The arithmetic fills the queues of a core, so that loads by
 * themselves do not run far ahead of it. */
TG_FACTOR_INLINE void prefetch(const float *at)
{
    __builtin_prefetch((const void *)((uintptr_t)at + 4096));
}

/* UNROLL: in front of loops whose sums stay in registers only if no index is left. */
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define UNROLL _Pragma("unroll")
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (integers){__VA_ARGS__})
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Two vectors of partial sums in blocks of 2 * half lanes, each folded once: the blocks of a, then those of b. */
TG_FACTOR_INLINE vector fold_pair(vector a, vector b, size_t half)
{
#if TG_LANES == 16
    if (half == 8) {
        return SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               SHUFFLE(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
    if (half == 4) {
        return SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
               SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
    if (half == 2) {
        return SHUFFLE(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
               SHUFFLE(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
    }
    return SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
           SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif TG_LANES == 8
    if (half == 4) {
        return SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    }
    if (half == 2) {
        return SHUFFLE(a, b, 0, 1, 4, 5, 8, 9, 12, 13) + SHUFFLE(a, b, 2, 3, 6, 7, 10, 11, 14, 15);
    }
    return SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14) + SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
    if (half == 2) {
        return SHUFFLE(a, b, 0, 1, 4, 5) + SHUFFLE(a, b, 2, 3, 6, 7);
    }
    return SHUFFLE(a, b, 0, 2, 4, 6) + SHUFFLE(a, b, 1, 3, 5, 7);
#endif
}

/* The sums of `count` times TG_SUMS partial sums, folded by halves. `count` is a power of two and at most 16. */
TG_FACTOR_INLINE void fold(float out[16], vector parts[16][VECTORS], size_t count)
{
    vector sums[16];
    for (size_t i = 0; i < count; i++) {
        for (size_t half = VECTORS / 2; half > 0; half /= 2) {
            for (size_t v = 0; v < half; v++) {
                parts[i][v] += parts[i][v + half];
            }
        }
        sums[i] = parts[i][0];
    }
    size_t n = count; /* vectors that are left */
    for (size_t half = TG_LANES / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < n; i += 2) {
            sums[i / 2] = fold_pair(sums[i], sums[i + 1 < n ? i + 1 : i], half);
        }
        n = (n + 1) / 2;
    }
    for (size_t i = 0; i < (count + TG_LANES - 1) / TG_LANES; i++) {
        *(vector *)(out + i * TG_LANES) = sums[i];
    }
}

#endif
