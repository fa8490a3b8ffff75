/* Bins in which values of a bucket are counted, to find the value of a rank among few of them. */
#ifndef TG_EXEC_CUDA_LEVEL_BINS_H
#define TG_EXEC_CUDA_LEVEL_BINS_H

#include "exec/cuda/quantize_buckets.h"

enum { TG_LEVEL_BINS = 512 };

/* The bin of a value, which ascends with it. */
typedef struct tg_binning {
    float scale, shift;
} tg_binning;

/* A float from 2^23 on, with the number of the bin in its lowest bits. */
TG_DEVICE float tg_bin_float(const tg_binning &by, float value)
{
    return fmaf(__saturatef(fmaf(value, by.scale, by.shift)), (float)(TG_LEVEL_BINS - 1), 0x1p23f);
}

TG_DEVICE uint32_t tg_bin_of(const tg_binning &by, float value)
{
    return __float_as_uint(tg_bin_float(by, value)) - TG_PLACE;
}

/* Adds 1 to the number of values in the bin of one, in shared memory. A compiler would compute the address in two steps. */
TG_DEVICE void tg_count_in_bin(uint32_t *bins, const tg_binning &by, float value)
{
#if defined(__CUDA_ARCH__)
    const uint32_t origin = (uint32_t)__cvta_generic_to_shared(bins) - 4 * TG_PLACE;
    asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(origin + 4 * __float_as_uint(tg_bin_float(by, value))) : "memory");
#else
    (void)atomicAdd(&bins[tg_bin_of(by, value)], 1u);
#endif
}

/* The number that the bin of a value has, in shared memory; it becomes 1 more. */
TG_DEVICE uint32_t tg_take_in_bin(uint32_t *bins, const tg_binning &by, float value)
{
#if defined(__CUDA_ARCH__)
    const uint32_t origin = (uint32_t)__cvta_generic_to_shared(bins) - 4 * TG_PLACE;
    uint32_t number;
    asm volatile("atom.shared.add.u32 %0, [%1], 1;"
                 : "=r"(number)
                 : "r"(origin + 4 * __float_as_uint(tg_bin_float(by, value)))
                 : "memory");
    return number;
#else
    return atomicAdd(&bins[tg_bin_of(by, value)], 1u);
#endif
}

/* Bins of equal width from end to end, or where most values are if the ends are outside `far` times the mean magnitude; values beyond are in
 * the outer bins. */
TG_DEVICE tg_binning tg_bins_between(float low, float high, float mean, float far)
{
    float from = fmaxf(low, -far * mean), width = fminf(high, far * mean) - from, scale = 1 / width;
    scale = width > 0 && tg_is_finite(width) && tg_is_finite(scale) ? scale : 0.0f;
    return {scale, -from * scale};
}

#endif
