/* QSGD on the GPU; see quantize/qsgd.c. */
#include "exec/cuda/quantize_buckets.h"

enum { SYMBOLS_MAX = 511 };

struct qsgd {
    static constexpr unsigned KIND = TG_KIND_QSGD;
    static constexpr bool DRAWS = true, CHECKS = true, IS_WIDE = false;
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
        __shared__ float values[SYMBOLS_MAX];
        double levels = u.quantize_params[S];
        team.clip_to(u.quantize_params[CLIP]);
        if (u.quantize_params[NORM] == 0) {
            double squares = team.sum([&](float x) { return (double)team.clipped(x) * (double)team.clipped(x); });
            norm = (float)fmin(sqrt(squares), (double)TG_FLOAT_MAX);
        } else {
            norm = team.largest();
        }
        shift = norm < 0x1p-60f ? 0x1p80f : norm > 0x1p60f ? 0x1p-80f : 1.0f;
        factor = norm > 0 ? (float)(levels / ((double)norm * (double)shift)) : 0.0f;
        most = (float)levels;
        table = values;
        if (team.b.next != nullptr) {
            __syncthreads();
            for (unsigned s = threadIdx.x; s < u.base; s += blockDim.x) {
                values[s] = (float)((double)norm * (((int)s - levels) / levels));
            }
            __syncthreads();
        }
    }
    __device__ __forceinline__ void write(uint8_t *side) const
    {
        tg_store_float(side, norm);
    }
    static __device__ __forceinline__ bool guesses()
    {
        return true;
    }

    /* A magnitude in levels: as a whole number and the rest. The integer near it is found faster than by conversion. */
    __device__ __forceinline__ unsigned split(float *rest, float value) const
    {
        float at = fminf(fabsf(value) * shift * factor, most), near = at + 0x1p23f, whole = near - 0x1p23f;
        bool is_above = whole > at;
        *rest = at - (is_above ? whole - 1.0f : whole);
        return (__float_as_uint(near) & 0x7fffffu) - (is_above ? 1 : 0);
    }
    __device__ __forceinline__ tg_guess guess(float value) const
    {
        float rest;
        unsigned below = split(&rest, value), zero = (unsigned)most;
        uint32_t place = __float_as_uint(fmaf(rest, 65536.0f, 0x1p23f));
        return value < 0 ? tg_guess{place, zero - below, zero - below - 1}
                         : tg_guess{place, zero + below, zero + below + 1};
    }
    __device__ __forceinline__ bool settle(float value, uint32_t bits) const
    {
        float rest;
        (void)split(&rest, value);
        return tg_draws_below(bits, 1.0f, rest);
    }
    __device__ __forceinline__ float value(unsigned symbol) const
    {
        return table[symbol];
    }
};

void tg_launch_qsgd(const tg_gpu_pass *p, bool is_sparse)
{
    tg_quantize_launch<qsgd>(p, is_sparse);
}
