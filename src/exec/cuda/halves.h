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

#endif
