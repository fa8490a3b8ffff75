/* QSGD on the GPU; see quantize/qsgd.c. */
#include "exec/cuda/quantize_warps.h"

enum { SYMBOLS_MAX = 511 };

struct qsgd {
    static constexpr unsigned KIND = TG_KIND_QSGD;
    static constexpr bool DRAWS = true, CHECKS = true, IS_WIDE = false, HAS_VARIANTS = false;
    static constexpr unsigned BLOCKS = 16;
    enum { S, BUCKET, NORM, CLIP };
    float norm, shift, factor, most;
    const float *table; /* the value of each symbol, if there is feedback */

    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &)
    {
        return 4;
    }
    template <class Team> __device__ __forceinline__ void fit(Team &team, const tg_gpu_unit &u)
    {
        const double levels = team.param(S);
        team.clip_to(team.param(CLIP));
        if (team.param(NORM) == 0) {
            double squares = team.sum([&](float x) { return (double)team.clipped(x) * (double)team.clipped(x); });
            norm = (float)fmin(sqrt(squares), (double)TG_FLOAT_MAX);
        } else {
            norm = team.largest();
        }
        shift = norm < 0x1p-60f ? 0x1p80f : norm > 0x1p60f ? 0x1p-80f : 1.0f;
        factor = norm > 0 ? (float)(levels / ((double)norm * (double)shift)) : 0.0f;
        most = (float)levels;
        if constexpr (Team::KEEPS) {
            make_table(team, u, levels);
        }
    }
    template <class Team> __device__ __forceinline__ void make_table(Team &team, const tg_gpu_unit &u, double levels)
    {
        __shared__ float values[SYMBOLS_MAX];
        table = values;
        if (team.b.next != nullptr) {
            __syncthreads();
            for (unsigned s = threadIdx.x; s < u.base; s += blockDim.x) {
                values[s] = (float)((double)norm * (((int)s - levels) / levels));
            }
            __syncthreads();
        }
    }
    __device__ __forceinline__ void write(uint8_t *side, uint32_t i) const
    {
        if (i == 0) {
            tg_store_float(side, norm);
        }
    }
    static __device__ __forceinline__ bool guesses()
    {
        return true;
    }

    /* A magnitude times `shift` in levels: the whole number below it, plus 2^23, and the rest. */
    __device__ __forceinline__ float split(float *rest, float scaled) const
    {
        float at = fminf(scaled * factor, most), near = __fadd_rd(at, 0x1p23f);
        *rest = at - (near - 0x1p23f);
        return near;
    }
    static __device__ __forceinline__ uint32_t place_of(float rest)
    {
        return __float_as_uint(fmaf(rest, 65536.0f, 0x1p23f));
    }
    __device__ __forceinline__ tg_guess guess(float value) const
    {
        float rest;
        unsigned below = __float_as_uint(split(&rest, fabsf(value) * shift)) - TG_PLACE, middle = (unsigned)most;
        return value < 0 ? tg_guess{place_of(rest), middle - below, middle - below - 1}
                         : tg_guess{place_of(rest), middle + below, middle + below + 1};
    }
    __device__ __forceinline__ bool settle_scaled(float value, uint32_t bits) const
    {
        float rest;
        (void)split(&rest, fabsf(value));
        return tg_draws_below(bits, 1.0f, rest);
    }
    __device__ __forceinline__ bool settle(float value, uint32_t bits) const
    {
        return settle_scaled(value * shift, bits);
    }
    __device__ __forceinline__ float scaled_by() const
    {
        return shift;
    }
    __device__ __forceinline__ uint32_t look(float *whole, float value) const
    {
        float rest;
        *whole = split(&rest, fabsf(value)) - 0x1p23f;
        return place_of(rest);
    }
    __device__ __forceinline__ uint32_t symbol(float value, float number) const
    {
        return __float_as_uint(copysignf(number, value) + (0x1p23f + most));
    }
    __device__ __forceinline__ float value(unsigned symbol) const
    {
        return table[symbol];
    }
};

void tg_launch_qsgd(const tg_gpu_pass *p, bool is_sparse)
{
    if (!is_sparse) {
        tg_quantize_launch_warps<tg_by_eights<qsgd>>(p);
    }
    tg_quantize_launch<qsgd>(p, is_sparse);
}
