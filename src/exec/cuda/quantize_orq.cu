/* ORQ with the greedy rule on the GPU; see quantize/levels.c. Three levels of a bucket that a warp holds are in levels_warp.h.
 *
 * Values of a short bucket are put in order in shared memory, up to bins of a few, which are counted and then filled. A level is a value
 * of a known rank: one of the few in the bin that has this rank. The values between two levels lie side by side, for the sum that the
 * rank of the next level follows from. Long buckets are not ordered: a rank is found by counting the values up to a few thresholds. */
#include "exec/cuda/levels_warp.h"
#include "exec/cuda/scan.h"

/* The rank of the best level between those of ranks k and j, from the sum of ways up on the grid. */
TG_DEVICE uint32_t middle_rank(uint64_t sum, uint32_t k, uint32_t j)
{
    uint64_t m = (sum + (1ull << TG_GRID_BITS) - 1) >> TG_GRID_BITS;
    return m < j - k ? k + (uint32_t)m : j;
}

/* ---- short buckets ------------------------------------------------------------------------------------------------------- */

/* The values of a bucket, in order but for those of a bin. In shared memory. */
typedef struct ordering {
    float values[TG_SHORT_BUCKET];
    alignas(16) uint32_t ends[TG_LEVEL_BINS]; /* of each bin: where the next one begins */
    tg_binning by;
} ordering;

TG_DEVICE uint32_t start_of(const ordering &o, uint32_t bin)
{
    return bin == 0 ? 0 : o.ends[bin - 1];
}

template <class Team> TG_DEVICE void put_in_order(ordering &o, Team &team, const tg_binning &by)
{
    constexpr unsigned THREADS = Team::WARP_N * TG_WARP, VECTORS = TG_LEVEL_BINS / THREADS / 4; /* of a thread */
    uint4 *ends = (uint4 *)(void *)o.ends + team.thread() * VECTORS, counts[VECTORS];
    TG_UNROLL
    for (unsigned i = 0; i < VECTORS; i++) {
        ends[i] = make_uint4(0, 0, 0, 0);
    }
    if (team.thread() == 0) {
        o.by = by;
    }
    team.sync();
    team.each([&](float x, uint32_t) { tg_count_in_bin(o.ends, by, x); });
    team.sync();
    uint32_t sum = 0;
    TG_UNROLL
    for (unsigned i = 0; i < VECTORS; i++) {
        counts[i] = ends[i];
        sum += counts[i].x + counts[i].y + counts[i].z + counts[i].w;
    }
    uint32_t before = team.scan(sum);
    TG_UNROLL
    for (unsigned i = 0; i < VECTORS; i++) { /* a bin begins there, and ends there when it is filled */
        const uint4 n = counts[i];
        ends[i] = make_uint4(before, before + n.x, before + n.x + n.y, before + n.x + n.y + n.z);
        before += n.x + n.y + n.z + n.w;
    }
    team.sync();
    team.each([&](float x, uint32_t) { o.values[atomicAdd(&o.ends[tg_bin_of(by, x)], 1u)] = x; });
    team.sync();
}

/* The following are by a warp. */

/* How many of values [first, end) are not above a threshold. */
TG_DEVICE uint32_t count_between(const ordering &o, uint32_t first, uint32_t end, float at)
{
    uint32_t count = 0;
    for (uint32_t i = first + threadIdx.x % TG_WARP; i < end; i += TG_WARP) {
        count += o.values[i] <= at ? 1 : 0;
    }
    return __reduce_add_sync(TG_ALL_LANES, count);
}

/* The value of a rank among many values [first, end) of one bin, by halving the range of their keys. */
TG_DEVICE float value_among(const ordering &o, uint32_t first, uint32_t end, uint32_t rank)
{
    uint32_t high = 0, low = 0; /* low: of the complement */
    for (uint32_t i = first + threadIdx.x % TG_WARP; i < end; i += TG_WARP) {
        uint32_t key = tg_order_of(o.values[i]);
        high = max(high, key);
        low = max(low, ~key);
    }
    high = __reduce_max_sync(TG_ALL_LANES, high);
    low = ~__reduce_max_sync(TG_ALL_LANES, low);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (count_between(o, first, end, tg_from_order(middle)) > rank) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return tg_from_order(low);
}

/* The value of a rank. */
TG_DEVICE float value_of_rank(const ordering &o, uint32_t rank)
{
    constexpr uint32_t PART = TG_LEVEL_BINS / TG_WARP;
    uint32_t lane = threadIdx.x % TG_WARP;
    uint32_t part = (uint32_t)__ffs((int)__ballot_sync(TG_ALL_LANES, o.ends[lane * PART + PART - 1] > rank)) - 1;
    uint32_t bin = part * PART + (uint32_t)__ffs((int)__ballot_sync(TG_ALL_LANES, o.ends[part * PART + lane % PART] > rank)) - 1;
    uint32_t first = start_of(o, bin), count = o.ends[bin] - first;
    rank -= first;
    if (count > TG_WARP) {
        return value_among(o, first, first + count, rank);
    }
    float value = lane < count ? o.values[first + lane] : 0.0f;
    uint32_t lower = 0; /* values that come before this lane's */
    for (uint32_t i = 0; i < count; i++) {
        float other = o.values[first + i];
        lower += other < value || (other == value && i < lane) ? 1 : 0;
    }
    unsigned has = __ballot_sync(TG_ALL_LANES, lane < count && lower == rank);
    return __shfl_sync(TG_ALL_LANES, value, __ffs((int)has) - 1);
}

/* The best level between two others on ranks k and j: its rank, and its value. */
TG_DEVICE uint32_t middle_of(float *level, const ordering &o, uint32_t k, uint32_t j, float from, float to)
{
    double high = (double)to, low = (double)from, scale = 0x1p40 / (high - low);
    uint32_t first = start_of(o, tg_bin_of(o.by, from)), end = o.ends[tg_bin_of(o.by, to)];
    uint64_t sum = 0;
    TG_UNROLL_BY(4)
    for (uint32_t i = first + threadIdx.x % TG_WARP; i < end; i += TG_WARP) {
        double x = (double)fminf(fmaxf(o.values[i], from), to); /* others of these bins count as if they were on a level */
        sum += (uint64_t)((high - x) * scale);
    }
    TG_UNROLL
    for (unsigned half = 16; half > 0; half /= 2) {
        sum += __shfl_xor_sync(TG_ALL_LANES, sum, (int)half);
    }
    sum -= (uint64_t)(k + 1 - first) * (uint64_t)((high - low) * scale); /* only values from rank k + 1 on count */
    uint32_t rank = middle_rank(sum, k, j);
    *level = rank == j ? to : value_of_rank(o, rank);
    return rank;
}

/* ---- long buckets, and both ---------------------------------------------------------------------------------------------- */

struct greedy : tg_levels {
    static constexpr unsigned KIND = TG_KIND_GREEDY;
    static constexpr bool HAS_VARIANTS = true;

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
        /* and values on the lower level, from rank k + 1 on */
        uint32_t rank = middle_rank(sum + (uint64_t)(up_to - k - 1) * (uint64_t)((high - low) * scale), k, j);
        *level = rank < up_to ? from : rank == j ? to : find_rank(team, rank, from, up_to, to, j + 1);
        return rank;
    }

    /* Levels 0 and n - 1 are known: the ends. Halves intervals between levels, widest first: each by a warp, ... */
    template <class Team>
    static __device__ __forceinline__ void choose_in_order(Team &team, const ordering &o, float *chosen, uint32_t *ranks,
                                                           uint32_t n)
    {
        for (uint32_t width = n - 1; width > 1; width /= 2) {
            for (uint32_t lo = team.warp * width; lo + 1 < n; lo += Team::WARP_N * width) {
                uint32_t rank = ranks[lo];
                float level = chosen[lo], to = chosen[lo + width];
                if (to > level) {
                    rank = middle_of(&level, o, rank, ranks[lo + width], level, to);
                }
                if (team.lane == 0) {
                    ranks[lo + width / 2] = rank;
                    chosen[lo + width / 2] = level;
                }
            }
            team.sync();
        }
    }

    /* ... or one after the other, by all threads. */
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
        if constexpr (Team::KEEPS) {
            fit_team(team, u);
        } else {
            fit_warp(team, u);
        }
    }

    template <class Team> __device__ __forceinline__ void fit_team(Team &team, const tg_gpu_unit &u)
    {
        __shared__ uint32_t ranks[TG_ORQ_MAX];
        __shared__ tg_level_space space;
        team.clip_to(u.quantize_params[TG_ORQ_CLIP]);
        float low, high;
        team.find_ends(&low, &high);
        __syncthreads();
        if (threadIdx.x == 0) {
            space.chosen[0] = low;
            space.chosen[u.base - 1] = high;
            ranks[0] = 0;
            ranks[u.base - 1] = team.b.n - 1;
        }
        __syncthreads();
        if constexpr (Team::FITS) {
            __shared__ ordering o;
            float magnitudes = 0, share = 1 / (float)team.b.n;
            team.each([&](float x, uint32_t) { magnitudes += fabsf(x) * share; });
            put_in_order(o, team, tg_bins_between(low, high, team.about(magnitudes)));
            choose_in_order(team, o, space.chosen, ranks, u.base);
        } else {
            choose(team, space.chosen, ranks, u.base);
        }
        take(team, space, u);
    }

    __device__ __forceinline__ void fit_warp(tg_warp_team &team, const tg_gpu_unit &u)
    {
        tg_greedy_space &space = *(tg_greedy_space *)team.space;
        team.clip_to(team.param(TG_ORQ_CLIP));
        tg_choose_three(space, team);
        take(team, space.chosen, u);
        if (is_half && is_far) { /* values beyond the ends, which were rounded, become these */
            const float least = space.chosen.chosen[0], most = space.chosen.chosen[2];
            team.change([&](float x) { return fminf(fmaxf(x, least), most); });
        }
    }

    template <class Use> __device__ __forceinline__ void round_by(const tg_warp_draws &by, Use use) const
    {
        const tg_three_levels three(*this);
        use([&](const float *values, uint64_t at) { return tg_round_eight_between(three, values, by, at); });
    }
};

void tg_launch_greedy(const tg_gpu_pass *p, bool is_sparse)
{
    constexpr unsigned SPACE = (sizeof(tg_greedy_space) + 15) / 16 * 16;
    if (!is_sparse) {
        tg_quantize_launch_warps<tg_by_eights<greedy, 2, 10, SPACE>>(p);
    }
    tg_quantize_launch<greedy>(p, is_sparse);
}
