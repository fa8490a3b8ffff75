/* What ORQ with greedy and with exact levels share: levels as the decoder sees them, and rounding between them; see quantize/orq.c.
 * The struct that is derived chooses the levels. */
#ifndef TG_EXEC_CUDA_LEVELS_H
#define TG_EXEC_CUDA_LEVELS_H

#include "exec/cuda/quantize_warps.h"

enum { TG_ORQ_S, TG_ORQ_BUCKET, TG_ORQ_LEVELS, TG_ORQ_HALF, TG_ORQ_CLIP, TG_ORQ_MAX = 17, TG_GRID_BITS = 40 };

/* The step from a level to the next one, all times scale. The depth of a value is how far it is below the last level: 65,536 for each step,
 * and the share of its own with an error of less than 1. */
struct tg_step {
    float from, slope, start; /* slope: -tg_places_over(the distance); start: 2^23 + 1 + the depth of the level */

    /* 2^23 + 1 + the depth of a value. */
    __device__ __forceinline__ float depth(float value) const
    {
        return fmaf(value - from, slope, start);
    }
};

/* In shared memory. */
typedef struct tg_level_space {
    float4 steps[TG_ORQ_MAX];
    float chosen[TG_ORQ_MAX];  /* levels; then as the decoder sees them */
    float borders[TG_ORQ_MAX]; /* these times scale, but for the last one; infinity after them */

    __device__ __forceinline__ tg_step step(uint32_t i) const
    {
        const float4 step = steps[i];
        return {step.x, step.y, step.z};
    }
} tg_level_space;

struct tg_levels {
    static constexpr bool DRAWS = true, CHECKS = true, IS_WIDE = false;
    static constexpr unsigned BLOCKS = 12;
    const tg_level_space *levels;
    uint32_t level_n;
    float scale;
    bool is_half, is_far; /* is_far: levels are far enough apart for guesses */

    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &u)
    {
        return u.quantize_params[TG_ORQ_HALF] != 0 ? 2 : 4;
    }

    /* Takes the levels, which are in shared memory. All threads. */
    template <class Team> __device__ __forceinline__ void take(Team &team, tg_level_space &space, const tg_gpu_unit &u)
    {
        unsigned i = team.thread();
        level_n = u.base;
        is_half = team.param(TG_ORQ_HALF) != 0;
        if (i < level_n) {
            float level = space.chosen[i] + 0.0f; /* no level is -0 */
            if (is_half) {
                uint16_t half = tg_float_to_fp16(level);
                level = tg_fp16_to_float(half == 0x8000 ? (uint16_t)0 : half);
            }
            space.chosen[i] = level;
        }
        team.sync();
        scale = tg_is_finite(space.chosen[level_n - 1] - space.chosen[0]) ? 1.0f
                                                                          : 0.5f; /* halves, if the range overflows */
        bool is_near = false;
        if (i < TG_ORQ_MAX) {
            float level = i < level_n ? space.chosen[i] * scale : 0.0f;
            float distance = i + 1 < level_n ? space.chosen[i + 1] * scale - level : 0.0f,
                  places = tg_places_over(distance);
            space.steps[i] = make_float4(level, -places, 0x1p23f + 1 + 65536 * (float)((int)level_n - 1 - (int)i), 0);
            space.borders[i] = i + 1 < level_n ? level : INFINITY;
            /* values that are on a level which the next one is equal to stay there, but rounding of levels moves them */
            is_near = i + 1 < level_n && places == 0 && (distance > 0 || is_half);
        }
        is_far = !team.any(is_near);
        team.sync();
        levels = &space;
    }
    __device__ __forceinline__ void write(uint8_t *side, uint32_t i) const
    {
        if (i < level_n && is_half) {
            tg_store_bytes(side + 2 * i, tg_float_to_fp16(levels->chosen[i]), 2);
        } else if (i < level_n) {
            tg_store_float(side + 4 * i, levels->chosen[i]);
        }
    }
    __device__ __forceinline__ bool guesses() const
    {
        return is_far;
    }

    /* The last level that is not above a value, but for the last of all. */
    __device__ __forceinline__ uint32_t below(float value) const
    {
        uint32_t last = level_n > 9 && levels->borders[8] <= value ? 8 : 0;
        last = levels->borders[last + 4] <= value ? last + 4 : last;
        last = levels->borders[last + 2] <= value ? last + 2 : last;
        return levels->borders[last + 1] <= value ? last + 1 : last;
    }
    __device__ __forceinline__ uint32_t place_above(uint32_t last, float value) const
    {
        const tg_step step = levels->step(last);
        return tg_place_at(fmaf(value - step.from, -step.slope, 0x1p23f));
    }
    __device__ __forceinline__ tg_guess guess(float given) const
    {
        float value = given * scale;
        uint32_t last = below(value);
        return {place_above(last, value), last, last + 1};
    }
    __device__ __forceinline__ bool settle_scaled(float value, uint32_t bits) const
    {
        uint32_t last = below(value);
        const float from = levels->step(last).from;
        return tg_draws_below(bits, levels->step(last + 1).from - from, value - from);
    }
    __device__ __forceinline__ bool settle(float given, uint32_t bits) const
    {
        return settle_scaled(given * scale, bits);
    }
    __device__ __forceinline__ float scaled_by() const
    {
        return scale;
    }
    __device__ __forceinline__ float value(unsigned symbol) const
    {
        return levels->chosen[symbol];
    }
};

#endif
