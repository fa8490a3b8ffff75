/* TernGrad on the GPU; see quantize/ternary.c. */
#include "exec/cuda/quantize_warps.h"

struct ternary {
    static constexpr unsigned KIND = TG_KIND_TERNARY;
    static constexpr bool DRAWS = true, CHECKS = true, IS_WIDE = false, HAS_VARIANTS = false;
    static constexpr unsigned MINUS = 0, ZERO = 1, PLUS = 2;
    static constexpr unsigned BLOCKS = 16;
    float largest, places;

    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &)
    {
        return 4;
    }
    template <class Team> __device__ __forceinline__ void fit(Team &team, const tg_gpu_unit &)
    {
        enum { CLIP = 1 };
        team.clip_to(team.param(CLIP));
        largest = team.largest();
        places = tg_places_over(largest);
    }
    __device__ __forceinline__ void write(uint8_t *side, uint32_t i) const
    {
        if (i == 0) {
            tg_store_float(side, largest);
        }
    }
    __device__ __forceinline__ bool guesses() const
    {
        return places > 0 || largest == 0;
    }
    __device__ __forceinline__ tg_guess guess(float value) const
    {
        return {__float_as_uint(fmaf(fabsf(value), places, 0x1p23f)), ZERO, value < 0 ? MINUS : PLUS};
    }
    __device__ __forceinline__ uint32_t look(float *whole, float value) const
    {
        *whole = 0;
        return __float_as_uint(fmaf(fabsf(value), places, 0x1p23f));
    }
    __device__ __forceinline__ bool settle_scaled(float value, uint32_t bits) const
    {
        return settle(value, bits);
    }
    static __device__ __forceinline__ float scaled_by()
    {
        return 1;
    }
    __device__ __forceinline__ uint32_t symbol(float value, float number) const
    {
        return __float_as_uint(copysignf(number, value) + (0x1p23f + ZERO));
    }
    __device__ __forceinline__ bool settle(float value, uint32_t bits) const
    {
        return tg_draws_below(bits, largest, fabsf(value));
    }
    __device__ __forceinline__ float value(unsigned symbol) const
    {
        return symbol == ZERO ? 0.0f : symbol == PLUS ? largest : -largest;
    }
};

void tg_launch_ternary(const tg_gpu_pass *p, bool is_sparse)
{
    if (!is_sparse) {
        tg_quantize_launch_warps<tg_by_eights<ternary>>(p);
    }
    tg_quantize_launch<ternary>(p, is_sparse);
}
