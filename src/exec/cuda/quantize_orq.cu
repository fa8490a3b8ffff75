/* ORQ with the greedy rule on the GPU; see quantize/orq.c and quantize/levels.c.
 *
 * Values are not sorted: a level is a value of a known rank, which bisection of the floats finds by counting. */
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
    static constexpr bool DRAWS = true, CHECKS = true;
    const float *levels; /* as the decoder sees them, times scale */
    const float *sent;   /* as the decoder sees them */
    uint32_t level_n;
    float scale;
    bool is_half;

    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &u)
    {
        return u.quantize_params[HALF] != 0 ? 2 : 4;
    }

    /* How many values are not above a key. */
    template <class Team> static __device__ __forceinline__ uint32_t count_to(Team &team, uint32_t key)
    {
        uint32_t count = 0;
        team.each([&](float x, uint32_t) { count += order_of(x) <= key ? 1 : 0; });
        return team.total32(count);
    }

    /* The key of the value of a rank, from 0, between those of two others. */
    template <class Team>
    static __device__ __forceinline__ uint32_t find_rank(Team &team, uint32_t rank, uint32_t low, uint32_t high)
    {
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (count_to(team, middle) > rank) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return low;
    }

    /* The rank of the best level between those on ranks k and j, with these keys. */
    template <class Team>
    static __device__ __forceinline__ uint32_t middle_of(Team &team, uint32_t k, uint32_t j, uint32_t low_key,
                                                         uint32_t high_key)
    {
        double low = (double)from_order(low_key), high = (double)from_order(high_key), scale = 0x1p40 / (high - low);
        uint64_t sum = 0, equal = 0;
        team.each([&](float x, uint32_t) {
            uint32_t key = order_of(x);
            sum += key > low_key && key < high_key ? (uint64_t)((high - (double)x) * scale) : 0;
            equal += key <= low_key ? 1 : 0;
        });
        sum = team.total(sum);
        equal = team.total(equal) - k - 1; /* values from rank k + 1 on that are on the lower level */
        sum += equal * (uint64_t)((high - low) * scale);
        uint64_t m = (sum + (1ull << GRID_BITS) - 1) >> GRID_BITS;
        return m < j - k ? k + (uint32_t)m : j;
    }

    /* keys[0] and keys[n - 1] are known: the ends. Halves intervals level by level. */
    template <class Team>
    static __device__ __forceinline__ void choose(Team &team, uint32_t *keys, uint32_t *ranks, uint32_t n)
    {
        for (uint32_t width = n - 1; width > 1; width /= 2) {
            for (uint32_t lo = 0; lo + 1 < n; lo += width) {
                uint32_t middle = lo + width / 2, rank = ranks[lo], key = keys[lo];
                if (keys[lo + width] > keys[lo]) {
                    rank = middle_of(team, ranks[lo], ranks[lo + width], keys[lo], keys[lo + width]);
                    key = find_rank(team, rank, keys[lo], keys[lo + width]);
                }
                __syncthreads();
                if (threadIdx.x == 0) {
                    ranks[middle] = rank;
                    keys[middle] = key;
                }
                __syncthreads();
            }
        }
    }

    template <class Team> __device__ __forceinline__ void fit(Team &team, const tg_gpu_unit &u)
    {
        __shared__ uint32_t keys[S_MAX], ranks[S_MAX];
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
            keys[0] = low;
            keys[level_n - 1] = high;
            ranks[0] = 0;
            ranks[level_n - 1] = team.b.n - 1;
        }
        __syncthreads();
        choose(team, keys, ranks, level_n);
        if (threadIdx.x < level_n) {
            float level = from_order(keys[threadIdx.x]) + 0.0f;
            if (is_half) {
                uint16_t half = tg_float_to_fp16(level);
                level = tg_fp16_to_float(half == 0x8000 ? (uint16_t)0 : half); /* no level is -0 */
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
