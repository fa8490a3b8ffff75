/* Passes and conversions in plain C that compilers vectorise, for the instruction sets that have no version of their own. A file
 * defines TG_TARGET, the target attribute, and includes this. */
#ifndef TG_KERNELS_LOOPS_H
#define TG_KERNELS_LOOPS_H

#include "base/half.h"
#include "kernels/kernels.h"

TG_TARGET static uint32_t largest_key(const float *values, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t key = tg_float_bits(values[i]) & 0x7fffffffu;
        largest = key > largest ? key : largest;
    }
    return largest;
}

TG_TARGET static void bf16_widen(float *out, const void *halves, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = tg_bf16_to_float(((const tg_any_half *)halves)[i]);
    }
}

TG_TARGET static bool halves_all_finite(const void *halves, uint16_t exponent, size_t n)
{
    uint16_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t half = ((const tg_any_half *)halves)[i];
        bad |= (uint16_t)((half & exponent) == exponent ? 1 : 0);
    }
    return bad == 0;
}

TG_TARGET static bool all_finite(const float *values, size_t n)
{
    uint32_t bad = 0; /* no early exit, so that the loop vectorizes; the bad case is rare */
    for (size_t i = 0; i < n; i++) {
        uint32_t exponent = tg_float_bits(values[i]) & 0x7f800000u;
        bad |= exponent == 0x7f800000u ? 1u : 0u;
    }
    return bad == 0;
}

TG_TARGET static void add(float *sums, const float *values, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += weight * values[i];
    }
}

/* As tg_float_to_bf16, without a branch. */
TG_TARGET static bool bf16_narrow(void *halves, const float *values, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = tg_float_bits(values[i]), rest = bits & 0x7fffffffu;
        uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        uint32_t largest = (bits >> 16 & 0x8000u) | 0x7f7fu, nan = bits >> 16 | 0x40u;
        uint32_t finite = rest > 0x7f7f0000u ? largest : rounded;
        uint32_t special = rest > 0x7f800000u ? nan : bits >> 16;
        ((tg_any_half *)halves)[i] = (uint16_t)(rest >= 0x7f800000u ? special : finite);
        most = rest > most ? rest : most;
    }
    return most < 0x7f800000u;
}

TG_TARGET static void bf16_add(float *sums, const void *halves, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += weight * tg_bf16_to_float(((const tg_any_half *)halves)[i]);
    }
}

#endif
