/* Equally spaced levels on the GPU; see quantize/linear.c. */
#include "exec/cuda/quantize_buckets.h"

enum { SYMBOLS_MAX = 256 };

/* A key that orders as values do; 0 and -0 have the same. */
TG_DEVICE uint32_t order_of(float value)
{
    uint32_t bits = __float_as_uint(value + 0.0f);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

TG_DEVICE float from_order(uint32_t key)
{
    return __uint_as_float(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

struct linear {
    static constexpr unsigned KIND = TG_KIND_LINEAR;
    static constexpr bool DRAWS = true, CHECKS = true, IS_WIDE = false;
    static constexpr unsigned BLOCKS = 8;
    enum { S, BUCKET, CLIP };
    struct choice {
        double fraction;
        unsigned lower, upper;
    };
    float least, largest;
    double range, steps;
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
        uint32_t high = 0, low = 0; /* low: of the complement */
        team.each([&](float x, uint32_t) {
            high = max(high, order_of(x));
            low = max(low, ~order_of(x));
        });
        largest = from_order(team.most(high));
        least = from_order(~team.most(low));
        if (least == 0 || largest == 0) {
            float zero = sign_zero(team);
            least = least == 0 ? zero : least;
            largest = largest == 0 ? zero : largest;
        }
        range = (double)largest - (double)least;
        steps = u.quantize_params[S] - 1;
        table = values;
        if (team.b.next != nullptr) {
            __syncthreads();
            for (unsigned s = threadIdx.x; s < u.base; s += blockDim.x) {
                values[s] = (float)((double)least + range * (s / steps));
            }
            __syncthreads();
        }
    }
    __device__ __forceinline__ void write(uint8_t *side) const
    {
        tg_store_float(side, least);
        tg_store_float(side + 4, largest);
    }
    __device__ __forceinline__ choice of(float value) const
    {
        double at = range > 0 ? ((double)value - (double)least) / range * steps : 0, below = floor(at);
        return {at - below, (unsigned)below, (unsigned)below + 1};
    }
    static __device__ __forceinline__ tg_decision decide(const choice &c, uint32_t draw)
    {
        double low = (double)draw * 0x1p-16;
        return {low + 0x1p-16 <= c.fraction, low < c.fraction};
    }
    static __device__ __forceinline__ bool settle(const choice &c, uint32_t bits)
    {
        return (double)tg_draw_unit(bits) < c.fraction;
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
