/* Hot loops in plain C that compilers turn into vector instructions by themselves. Files of instruction sets define TG_TARGET,
 * what to compile for, and include this; their tables take TG_LOOPS. */
#ifndef TG_KERNELS_LOOPS_H
#define TG_KERNELS_LOOPS_H

#include "base/half.h"
#include "kernels/kernels.h"

#include <string.h>

#ifndef TG_LOOP
#define TG_LOOP TG_TARGET static
#endif

TG_LOOP uint32_t largest_key(const float *values, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t key = tg_float_bits(values[i]) & 0x7fffffffu;
        largest = key > largest ? key : largest;
    }
    return largest;
}

/* Sets the low bits of `bits` in a mask, from bit `at` on; those above are 0. */
TG_LOOP void set_bits(uint64_t *mask, size_t at, uint64_t bits)
{
    uint64_t beyond = at % 64 > 0 ? bits >> (64 - at % 64) : 0;
    mask[at / 64] |= bits << at % 64;
    mask[at / 64 + (beyond != 0 ? 1 : 0)] |= beyond; /* there may be no other word */
}

TG_LOOP void bf16_widen(float *out, const void *halves, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = tg_bf16_to_float(((const tg_any_half *)halves)[i]);
    }
}

TG_LOOP bool halves_finite(const void *halves, uint16_t exponent, size_t n)
{
    uint16_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t half = ((const tg_any_half *)halves)[i];
        bad |= (uint16_t)((half & exponent) == exponent ? 1 : 0);
    }
    return bad == 0;
}

#ifndef TG_HAS_PASSES /* Files that have their own of these define it. */
TG_LOOP bool all_finite(const float *values, size_t n)
{
    uint32_t bad = 0; /* no early exit, so that the loop vectorizes; the bad case is rare */
    for (size_t i = 0; i < n; i++) {
        uint32_t exponent = tg_float_bits(values[i]) & 0x7f800000u;
        bad |= exponent == 0x7f800000u ? 1u : 0u;
    }
    return bad == 0;
}

TG_LOOP void add(float *sums, const float *values, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += weight * values[i];
    }
}

/* As tg_float_to_bf16, without a branch. */
TG_LOOP bool bf16_narrow(void *halves, const float *values, size_t n)
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

TG_LOOP void bf16_add(float *sums, const void *halves, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += weight * tg_bf16_to_float(((const tg_any_half *)halves)[i]);
    }
}

#define TG_PASS_LOOPS .all_finite = all_finite, .add = add, .bf16_narrow = bf16_narrow, .bf16_add = bf16_add
#endif

#ifndef TG_STREAMS /* Files whose processor can write around its caches define it, and have their own of these. */
TG_LOOP bool accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n, bool streams)
{
    (void)streams;
    for (size_t i = 0; i < n; i++) {
        out[i] = a[i] + share * b[i];
    }
    if (also != NULL) {
        memcpy(also, out, n * sizeof *also);
    }
    return all_finite(out, n);
}

TG_LOOP bool subtract(float *out, const float *a, const float *b, size_t n, bool streams)
{
    (void)streams;
    for (size_t i = 0; i < n; i++) {
        out[i] = a[i] - b[i];
    }
    return all_finite(out, n);
}

TG_LOOP void copy(float *out, const float *values, size_t n, bool streams)
{
    (void)streams;
    memcpy(out, values, n * sizeof *out);
}
#define TG_PLAIN_LOOPS .accumulate = accumulate, .subtract = subtract, .copy = copy
#endif

/* Them, in a table of kernels. */
#define TG_LOOPS .halves_finite = halves_finite, .bf16_widen = bf16_widen, .largest_key = largest_key

#endif
