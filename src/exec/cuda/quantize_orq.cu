/* ORQ with the greedy rule on the GPU; see quantize/levels.c.
 *
 * Values are not sorted: a level is a value of a known rank, which is found by counting the values up to a few thresholds. */
#include "exec/cuda/levels.h"

enum { GRID_BITS = 40 };

struct greedy : tg_levels {
    static constexpr unsigned KIND = TG_KIND_GREEDY;

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
        team.each([&](float x, uint32_t) { key = x > at ? max(key, ~tg_order_of(x)) : key; });
        return tg_from_order(~team.most(key));
    }
    template <class Team> static __device__ __forceinline__ float most_to(Team &team, float at)
    {
        uint32_t key = 0;
        team.each([&](float x, uint32_t) { key = x <= at ? max(key, tg_order_of(x)) : key; });
        return tg_from_order(team.most(key));
    }

    /* The value of a rank, from 0, that is above `low` and not above `high`; up to these there are low_n and high_n values. The
     * range is narrowed by interpolation, and by halves in every third turn, so that no distribution is a bad case. */
    template <class Team>
    static __device__ __forceinline__ float find_rank(Team &team, uint32_t rank, float low, uint32_t low_n, float high,
                                                      uint32_t high_n)
    {
        for (unsigned turn = 0; rank != low_n && rank + 1 != high_n; turn++) {
            uint32_t low_key = tg_order_of(low), high_key = tg_order_of(high);
            if (high_key - low_key < 2) {
                return high;
            }
            float share = ((float)(rank - low_n) + 0.5f) / (float)(high_n - low_n);
            float at = (float)((double)low + ((double)high - (double)low) * (double)share);
            if (turn % 3 == 2 || !(at > low && at < high)) {
                at = tg_from_order(low_key + (high_key - low_key) / 2);
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
    static __device__ __forceinline__ uint32_t find_middle(Team &team, float *level, uint32_t k, uint32_t j, float from,
                                                           float to)
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
        sum += (uint64_t)(up_to - k - 1) *
               (uint64_t)((high - low) * scale); /* values on the lower level, from rank k + 1 on */
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
        __shared__ uint32_t ranks[TG_ORQ_MAX];
        __shared__ float chosen[TG_ORQ_MAX], scaled[TG_ORQ_MAX];
        team.clip_to(u.quantize_params[TG_ORQ_CLIP]);
        uint32_t high = 0, low = 0; /* low: of the complement */
        team.each([&](float x, uint32_t) {
            high = max(high, tg_order_of(x));
            low = max(low, ~tg_order_of(x));
        });
        high = team.most(high);
        low = ~team.most(low);
        __syncthreads();
        if (threadIdx.x == 0) {
            chosen[0] = tg_from_order(low);
            chosen[u.base - 1] = tg_from_order(high);
            ranks[0] = 0;
            ranks[u.base - 1] = team.b.n - 1;
        }
        __syncthreads();
        choose(team, chosen, ranks, u.base);
        take(chosen, scaled, u);
    }
};

void tg_launch_greedy(const tg_gpu_pass *p, bool is_sparse)
{
    tg_quantize_launch<greedy>(p, is_sparse);
}
