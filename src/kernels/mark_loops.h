/* Values at marked elements, mark by mark; see loops.h. */
#ifndef TG_KERNELS_MARK_LOOPS_H
#define TG_KERNELS_MARK_LOOPS_H

#include "kernels/kernels.h"

TG_TARGET static size_t compress(float *out, const float *values, const uint64_t *mask, size_t n)
{
    size_t count = 0;
    for (size_t w = 0; w < (n + 63) / 64; w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
            out[count++] = values[w * 64 + (unsigned)__builtin_ctzll(word)];
        }
    }
    return count;
}

TG_TARGET static void expand_add(float *out, const uint64_t *mask, const float *values, float weight, size_t n)
{
    for (size_t w = 0; w < (n + 63) / 64; w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
            out[w * 64 + (unsigned)__builtin_ctzll(word)] += weight * *values++;
        }
    }
}

TG_TARGET static void expand_set(float *out, const uint64_t *mask, const float *values, size_t n)
{
    for (size_t w = 0; w < (n + 63) / 64; w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
            out[w * 64 + (unsigned)__builtin_ctzll(word)] = *values++;
        }
    }
}

#endif
