/* Natural compression on the GPU; see quantize/natural.c and tg_scalar_natural. */
#include "exec/cuda/quantize_buckets.h"

struct natural {
    static constexpr unsigned KIND = TG_KIND_NATURAL;
    static constexpr bool DRAWS = true, CHECKS = false, IS_WIDE = true;
    static constexpr unsigned BLOCKS = 16;
    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &)
    {
        return 4;
    }
    template <class Team> __device__ __forceinline__ void fit(Team &, const tg_gpu_unit &)
    {
    }
    __device__ __forceinline__ void write(uint8_t *) const
    {
    }
    static __device__ __forceinline__ bool guesses()
    {
        return true;
    }
    static __device__ __forceinline__ tg_guess guess(float value)
    {
        uint32_t bits = __float_as_uint(value), exponent = bits >> 23;
        return {TG_PLACE + 1 + ((bits & 0x7fffffu) >> 7), exponent, exponent + ((exponent & 255u) < 254 ? 1 : 0)};
    }
    static __device__ __forceinline__ bool settle(float value, uint32_t bits)
    {
        return bits >> 9 < (__float_as_uint(value) & 0x7fffffu);
    }
    __device__ __forceinline__ float value(unsigned symbol) const
    {
        return __uint_as_float(symbol << 23);
    }
};

void tg_launch_natural(const tg_gpu_pass *p, bool is_sparse)
{
    tg_quantize_launch<natural>(p, is_sparse);
}
