/* Equally spaced levels on the GPU; see quantize/linear.c. */
#include "exec/cuda/quantize_buckets.h"

enum { SYMBOLS_MAX = 256 };

struct linear {
    static constexpr unsigned KIND = TG_KIND_LINEAR;
    static constexpr bool DRAWS = true, CHECKS = true, IS_WIDE = false;
    static constexpr unsigned BLOCKS = 16;
    enum { S, BUCKET, CLIP };
    float least, largest;
    double range, steps, per_unit;
    const float *table;

    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &)
    {
        return 4;
    }

    /* The host takes the first of values that compare equal, which matters for zeros: the sign of the first one. */
    template <class Team> static __device__ __forceinline__ float sign_zero(Team &team)
    {
        uint32_t first = 0; /* less is later; 0: there is none */
        team.each([&](float x, uint32_t i) {
            if (x == 0) {
                first = max(first, (0x7fffffffu - i) * 2 + (__float_as_uint(x) >> 31));
            }
        });
        return __uint_as_float(team.most(first) << 31);
    }

    template <class Team> __device__ __forceinline__ void fit(Team &team, const tg_gpu_unit &u)
    {
        __shared__ float values[SYMBOLS_MAX];
        team.clip_to(u.quantize_params[CLIP]);
        team.find_ends(&least, &largest);
        if (least == 0 || largest == 0) {
            float zero = sign_zero(team);
            least = least == 0 ? zero : least;
            largest = largest == 0 ? zero : largest;
        }
        range = (double)largest - (double)least;
        steps = u.quantize_params[S] - 1;
        per_unit = range > 0 ? steps / range : 0;
        table = values;
        if (team.b.next != nullptr) {
            __syncthreads();
            for (unsigned s = threadIdx.x; s < u.base; s += blockDim.x) {
                values[s] = (float)((double)least + range * (s / steps));
            }
            __syncthreads();
        }
    }
    __device__ __forceinline__ void write(uint8_t *side, uint32_t i) const
    {
        if (i < 2) {
            tg_store_float(side + 4 * i, i == 0 ? least : largest);
        }
    }
    static __device__ __forceinline__ bool guesses()
    {
        return true;
    }

    /* A value in steps, rounded as on the host. */
    __device__ __forceinline__ double exactly(float value) const
    {
        return range > 0 ? ((double)value - (double)least) / range * steps : 0;
    }
    __device__ __forceinline__ tg_guess guess(float value) const
    {
        double at = ((double)value - (double)least) * per_unit, below = floor(at);
        if (at - below < 0x1p-20 || at - below > 1 - 0x1p-20) { /* then a product may be on the other side of a step */
            at = exactly(value);
            below = floor(at);
        }
        uint32_t place = __float_as_uint(fmaf((float)(at - below), 65536.0f, 0x1p23f));
        return {place, (unsigned)below, (unsigned)below + 1};
    }
    __device__ __forceinline__ bool settle(float value, uint32_t bits) const
    {
        double at = exactly(value);
        return (double)tg_draw_unit(bits) < at - floor(at);
    }
    __device__ __forceinline__ float value(unsigned symbol) const
    {
        return table[symbol];
    }
};

void tg_launch_linear(const tg_gpu_pass *p, bool is_sparse)
{
    tg_quantize_launch<linear>(p, is_sparse);
}
