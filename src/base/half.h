/* fp16 and bf16, as bit patterns in integers, to and from fp32; rounding to nearest, ties to even.
 * Narrowing keeps a NaN a NaN (quiet, with its upper payload bits) and a finite value finite: values beyond the range become the
 * largest value of their sign, since an infinity would end a training run and a clipped gradient does not. */
#ifndef TG_BASE_HALF_H
#define TG_BASE_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t tg_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float tg_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A half at any address. Compilers vectorise loops over this type, but not loops over memcpy. */
typedef uint16_t tg_any_half __attribute__((aligned(1), may_alias));

static inline float tg_bf16_to_float(uint16_t half)
{
    return tg_bits_float((uint32_t)half << 16);
}

static inline uint16_t tg_float_to_bf16(float value)
{
    uint32_t bits = tg_float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    if ((bits & 0x7fffffffu) > 0x7f7f0000u && (bits & 0x7fffffffu) < 0x7f800000u) {
        return (uint16_t)((bits >> 16 & 0x8000u) | 0x7f7fu);
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float tg_fp16_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t rest = half & 0x7fffu;
    if (rest >= 0x7c00u) { /* infinity, NaN */
        return tg_bits_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    }
    if (rest >= 0x400u) { /* normal: move the bias from 15 to 127 */
        return tg_bits_float(sign | ((rest << 13) + (112u << 23)));
    }
    /* subnormal: a multiple of 2^-24, exact in fp32 */
    float magnitude = (float)rest * 0x1p-24f;
    return tg_bits_float(sign | tg_float_bits(magnitude));
}

static inline uint16_t tg_float_to_fp16(float value)
{
    uint32_t bits = tg_float_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) { /* NaN */
        return (uint16_t)(sign | 0x7e00u | ((rest >> 13) & 0x3ffu));
    }
    if (rest >= 0x477fe000u) { /* 65504 and beyond */
        return (uint16_t)(sign | (rest == 0x7f800000u ? 0x7c00u : 0x7bffu));
    }
    if (rest >= 0x38800000u) { /* normal; a carry out of the mantissa correctly increments the exponent */
        uint32_t rebased = rest - (112u << 23);
        return (uint16_t)(sign | (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13);
    }
    /* subnormal: the sum with 0.5 has multiples of 2^-24 in its low mantissa bits, rounded by the addition */
    float shifted = tg_bits_float(rest) + 0.5f;
    return (uint16_t)(sign | (tg_float_bits(shifted) - 0x3f000000u));
}

#endif
