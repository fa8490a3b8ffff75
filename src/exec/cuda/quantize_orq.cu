/* ORQ with the greedy rule on the GPU; see quantize/orq.c and quantize/levels.c.
 *
 * Values are not sorted: a level is a value of a known rank, which is found by counting the values up to a few thresholds. */
#include "exec/cuda/quantize_buckets.h"

enum { S, BUCKET, LEVELS, HALF, CLIP, S_MAX = 17, GRID_BITS = 40 };

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

struct greedy : tg_rounding {
    static constexpr unsigned KIND = TG_KIND_GREEDY;
    static constexpr bool DRAWS = true, CHECKS = true, IS_WIDE = false;
    const float *levels; /* as the decoder sees them, times scale */
    const float *sent;   /* as the decoder sees them */
    uint32_t level_n;
    float scale;
    bool is_half;

    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &u)
    {
        return u.quantize_params[HALF] != 0 ? 2 : 4;
    }

    /* How many values are not above a threshold. */
    template <class Team> static __device__ __forceinline__ uint32_t count_to(Team &team, float at)
    {
        uint32_t count = 0;
        team.each([&](float x, uint32_t) { count += x <= at ? 1 : 0; });
        return team.total32(count);
    }

    /* The least value above a threshold, and the largest that is not. */
    template <class Team> static __device__ __forceinline__ float least_above(Team &team, float at)
    {
        uint32_t key = 0;
        team.each([&](float x, uint32_t) { key = x > at ? max(key, ~order_of(x)) : key; });
        return from_order(~team.most(key));
    }
    template <class Team> static __device__ __forceinline__ float most_to(Team &team, float at)
    {
        uint32_t key = 0;
        team.each([&](float x, uint32_t) { key = x <= at ? max(key, order_of(x)) : key; });
        return from_order(team.most(key));
    }

    /* The value of a rank, from 0, that is above `low` and not above `high`; up to these there are low_n and high_n values. The
     * range is narrowed by interpolation, and by halves in every third turn, so that no distribution is a bad case. */
    template <class Team>
    static __device__ __forceinline__ float find_rank(Team &team, uint32_t rank, float low, uint32_t low_n, float high,
                                                      uint32_t high_n)
    {
        for (unsigned turn = 0; rank != low_n && rank + 1 != high_n; turn++) {
            uint32_t low_key = order_of(low), high_key = order_of(high);
            if (high_key - low_key < 2) {
                return high;
            }
            float share = ((float)(rank - low_n) + 0.5f) / (float)(high_n - low_n);
            float at = (float)((double)low + ((double)high - (double)low) * (double)share);
            if (turn % 3 == 2 || !(at > low && at < high)) {
                at = from_order(low_key + (high_key - low_key) / 2);
            }
            uint32_t count = count_to(team, at);
            if (count > rank) {
                high = at;
                high_n = count;
            } else {
                low = at;
                low_n = count;
            }
        }
        return rank == low_n ? least_above(team, low) : most_to(team, high);
    }

    /* The best level between two others on ranks k and j: its rank, and its value. */
    template <class Team>
    static __device__ __forceinline__ uint32_t find_middle(Team &team, float *level, uint32_t k, uint32_t j, float from, float to)
    {
        double high = (double)to, low = (double)from, scale = 0x1p40 / (high - low);
        uint64_t sum = 0;
        uint32_t up_to = 0;
        team.each([&](float x, uint32_t) {
            if (x > from && x < to) {
                sum += (uint64_t)((high - (double)x) * scale);
            }
            up_to += x <= from ? 1 : 0;
        });
        sum = team.total(sum);
        up_to = team.total32(up_to);
        sum += (uint64_t)(up_to - k - 1) * (uint64_t)((high - low) * scale); /* values on the lower level, from rank k + 1 on */
        uint64_t m = (sum + (1ull << GRID_BITS) - 1) >> GRID_BITS;
        uint32_t rank = m < j - k ? k + (uint32_t)m : j;
        *level = rank < up_to ? from : rank == j ? to : find_rank(team, rank, from, up_to, to, j + 1);
        return rank;
    }

    /* Levels 0 and n - 1 are known: the ends. Halves intervals between levels, widest first. */
    template <class Team>
    static __device__ __forceinline__ void choose(Team &team, float *chosen, uint32_t *ranks, uint32_t n)
    {
        for (uint32_t width = n - 1; width > 1; width /= 2) {
            for (uint32_t lo = 0; lo + 1 < n; lo += width) {
                uint32_t rank = ranks[lo], k = rank, j = ranks[lo + width];
                float level = chosen[lo], to = chosen[lo + width];
                if (to > level) {
                    rank = find_middle(team, &level, k, j, level, to);
                }
                __syncthreads();
                if (threadIdx.x == 0) {
                    ranks[lo + width / 2] = rank;
                    chosen[lo + width / 2] = level;
                }
                __syncthreads();
            }
        }
    }

    template <class Team> __device__ __forceinline__ void fit(Team &team, const tg_gpu_unit &u)
    {
        __shared__ uint32_t ranks[S_MAX];
        __shared__ float chosen[S_MAX], scaled[S_MAX];
        level_n = u.base;
        is_half = u.quantize_params[HALF] != 0;
        team.clip_to(u.quantize_params[CLIP]);
        uint32_t high = 0, low = 0; /* low: of the complement */
        team.each([&](float x, uint32_t) {
            high = max(high, order_of(x));
            low = max(low, ~order_of(x));
        });
        high = team.most(high);
        low = ~team.most(low);
        __syncthreads();
        if (threadIdx.x == 0) {
            chosen[0] = from_order(low);
            chosen[level_n - 1] = from_order(high);
            ranks[0] = 0;
            ranks[level_n - 1] = team.b.n - 1;
        }
        __syncthreads();
        choose(team, chosen, ranks, level_n);
        if (threadIdx.x < level_n) {
            float level = chosen[threadIdx.x] + 0.0f; /* no level is -0 */
            if (is_half) {
                uint16_t half = tg_float_to_fp16(level);
                level = tg_fp16_to_float(half == 0x8000 ? (uint16_t)0 : half);
            }
            chosen[threadIdx.x] = level;
        }
        __syncthreads();
        scale = tg_is_finite(chosen[level_n - 1] - chosen[0]) ? 1.0f : 0.5f;
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
        unsigned below = 0;
        for (uint32_t l = 1; l + 1 < level_n; l++) {
            below += levels[l] <= value ? 1 : 0;
        }
        return {levels[below + 1] - levels[below], value - levels[below], below, below + 1};
    }
    __device__ __forceinline__ float value(unsigned symbol) const
    {
        return sent[symbol];
    }
};

void tg_launch_greedy(const tg_gpu_pass *p, bool is_sparse)
{
    tg_quantize_launch<greedy>(p, is_sparse);
}
