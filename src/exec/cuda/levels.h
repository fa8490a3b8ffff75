/* What ORQ with greedy and with exact levels share: levels as the decoder sees them, and rounding between them; see quantize/orq.c.
 * The struct that is derived chooses the levels. */
#ifndef TG_EXEC_CUDA_LEVELS_H
#define TG_EXEC_CUDA_LEVELS_H

#include "exec/cuda/quantize_buckets.h"

enum { TG_ORQ_S, TG_ORQ_BUCKET, TG_ORQ_LEVELS, TG_ORQ_HALF, TG_ORQ_CLIP, TG_ORQ_MAX = 17 };

/* A key that orders as values do; 0 and -0 have the same. */
TG_DEVICE uint32_t tg_order_of(float value)
{
    uint32_t bits = __float_as_uint(value + 0.0f);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

TG_DEVICE float tg_from_order(uint32_t key)
{
    return __uint_as_float(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

struct tg_levels : tg_rounding {
    static constexpr bool DRAWS = true, CHECKS = true, IS_WIDE = false;
    static constexpr unsigned BLOCKS = 6;
    const float *levels; /* as the decoder sees them, times scale */
    const float *sent;   /* as the decoder sees them */
    uint32_t level_n;
    uint32_t widest; /* the power of two that a search begins with */
    float scale;
    bool is_half;

    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &u)
    {
        return u.quantize_params[TG_ORQ_HALF] != 0 ? 2 : 4;
    }

    /* Takes the levels, which all threads have written to shared memory. Two arrays of TG_ORQ_MAX are there, too. */
    __device__ __forceinline__ void take(float *chosen, float *scaled, const tg_gpu_unit &u)
    {
        level_n = u.base;
        widest = level_n > 9 ? 8 : level_n > 5 ? 4 : level_n > 3 ? 2 : level_n > 2 ? 1 : 0;
        is_half = u.quantize_params[TG_ORQ_HALF] != 0;
        if (threadIdx.x < level_n) {
            float level = chosen[threadIdx.x] + 0.0f; /* no level is -0 */
            if (is_half) {
                uint16_t half = tg_float_to_fp16(level);
                level = tg_fp16_to_float(half == 0x8000 ? (uint16_t)0 : half);
            }
            chosen[threadIdx.x] = level;
        }
        __syncthreads();
        scale = tg_is_finite(chosen[level_n - 1] - chosen[0]) ? 1.0f : 0.5f; /* halves, if the range overflows */
        if (threadIdx.x < level_n) {
            scaled[threadIdx.x] = chosen[threadIdx.x] * scale;
        }
        __syncthreads();
        levels = scaled;
        sent = chosen;
    }
    __device__ __forceinline__ void write(uint8_t *side) const
    {
        for (uint32_t i = 0; i < level_n; i++) {
            if (is_half) {
                tg_store_bytes(side + 2 * i, tg_float_to_fp16(sent[i]), 2);
            } else {
                tg_store_float(side + 4 * i, sent[i]);
            }
        }
    }
    __device__ __forceinline__ tg_choice of(float given) const
    {
        float value = given * scale;
        uint32_t below = 0; /* the last level but one at most */
        for (uint32_t step = widest; step > 0; step /= 2) {
            uint32_t next = below + step;
            below = next + 1 < level_n && levels[next] <= value ? next : below;
        }
        return {levels[below + 1] - levels[below], value - levels[below], below, below + 1};
    }
    __device__ __forceinline__ float value(unsigned symbol) const
    {
        return sent[symbol];
    }
};

#endif
