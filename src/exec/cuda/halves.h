/* fp16 and bf16 on the GPU, with the results of base/half.h: finite values stay finite, NaNs keep their upper bits. */
#ifndef TG_EXEC_CUDA_HALVES_H
#define TG_EXEC_CUDA_HALVES_H

#include "exec/cuda/kernel.h"

TG_DEVICE float tg_bf16_to_float(uint16_t half)
{
    return __uint_as_float((uint32_t)half << 16);
}

TG_DEVICE uint16_t tg_float_to_bf16(float value)
{
    uint32_t bits = __float_as_uint(value), rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    if (rest > 0x7f7f0000u && rest < 0x7f800000u) {
        return (uint16_t)((bits >> 16 & 0x8000u) | 0x7f7fu);
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

TG_DEVICE float tg_fp16_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u) { /* infinity, NaN */
        return __uint_as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    }
    if (rest >= 0x400u) {
        return __uint_as_float(sign | ((rest << 13) + (112u << 23)));
    }
    return __uint_as_float(sign | __float_as_uint((float)rest * 0x1p-24f));
}

TG_DEVICE uint16_t tg_float_to_fp16(float value)
{
    uint32_t bits = __float_as_uint(value), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) { /* NaN */
        return (uint16_t)(sign | 0x7e00u | ((rest >> 13) & 0x3ffu));
    }
    if (rest >= 0x477fe000u) { /* 65504 and beyond */
        return (uint16_t)(sign | (rest == 0x7f800000u ? 0x7c00u : 0x7bffu));
    }
    if (rest >= 0x38800000u) {
        uint32_t rebased = rest - (112u << 23);
        return (uint16_t)(sign | (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13);
    }
    float shifted = __uint_as_float(rest) + 0.5f;
    return (uint16_t)(sign | (__float_as_uint(shifted) - 0x3f000000u));
}

/* ---- two at a time, by the GPU's own instructions: for finite values that are finite in half precision ----------------------- */

#define TG_FP16_FROM 0x477fe000u /* bits of the least magnitude that tg_fp16_pair is not for: 65504 */
#define TG_BF16_FROM 0x7f7f0001u /* likewise of tg_bf16_pair */

TG_DEVICE uint32_t tg_fp16_pair(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return tg_float_to_fp16(low) | (uint32_t)tg_float_to_fp16(high) << 16;
#endif
}

TG_DEVICE uint32_t tg_bf16_pair(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return tg_float_to_bf16(low) | (uint32_t)tg_float_to_bf16(high) << 16;
#endif
}

/* A half of either format; a NaN may become another. */
TG_DEVICE float tg_any_half(uint32_t half, bool is_bf16)
{
    if (is_bf16) {
        return __uint_as_float(half << 16);
    }
#if defined(__CUDA_ARCH__)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((uint16_t)half));
    return value;
#else
    return tg_fp16_to_float((uint16_t)half);
#endif
}

#endif
