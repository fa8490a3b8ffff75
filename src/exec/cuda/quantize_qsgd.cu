/* QSGD on the GPU; see quantize/qsgd.c. */
#include "exec/cuda/quantize_buckets.h"

enum { SYMBOLS_MAX = 511 };

struct qsgd : tg_rounding {
    static constexpr unsigned KIND = TG_KIND_QSGD;
    static constexpr bool DRAWS = true, CHECKS = true, IS_WIDE = false;
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
    __device__ __forceinline__ tg_choice of(float value) const
    {
        float at = fminf(fabsf(value) * shift * factor, most);
        float near = at + 0x1p23f, whole = near - 0x1p23f; /* the integer near it, then the one below, faster than by conversion */
        bool is_above = whole > at;
        unsigned below = (__float_as_uint(near) & 0x7fffffu) - (is_above ? 1 : 0), zero = (unsigned)most;
        float rest = at - (is_above ? whole - 1.0f : whole);
        return value < 0 ? tg_choice{1.0f, rest, zero - below, zero - below - 1}
                         : tg_choice{1.0f, rest, zero + below, zero + below + 1};
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
