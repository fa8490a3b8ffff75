/* ORQ with the greedy rule on the GPU; see quantize/levels.c. Three levels of a bucket that a warp holds are in levels_warp.h.
 *
 * Values of a short bucket are put in order in shared memory, up to bins of a few, which are counted and then filled. A level is a value
 * of a known rank: one of the few in the bin that has this rank. The values between two levels lie side by side, for the sum that the
 * rank of the next level follows from. Both warps find the level in the middle; then each halves its half. Long buckets are not ordered: a rank is found by counting the values up to a few thresholds. */
#include "exec/cuda/levels_warp.h"
#include "exec/cuda/scan.h"

/* The rank of the best level between those of ranks k and j, from the sum of ways up on the grid. */
TG_DEVICE uint32_t middle_rank(uint64_t sum, uint32_t k, uint32_t j)
{
    uint64_t m = (sum + (1ull << TG_GRID_BITS) - 1) >> TG_GRID_BITS;
    return m < j - k ? k + (uint32_t)m : j;
}

/* ---- short buckets ------------------------------------------------------------------------------------------------------- */

enum { SHORT_WARPS = TG_SHORT_BUCKET / TG_LEAF_N };

/* What a warp knows of its values. */
typedef struct leaf_facts {
    float low, high, magnitudes;
    uint32_t lower_bins; /* the values in its part of the bins */
    uint64_t ways;       /* the sum of ways up from values to the largest one */
} leaf_facts;

/* In shared memory, where draws come later. */
typedef struct level_bins {
    alignas(16) uint32_t ends[TG_LEVEL_BINS]; /* of each bin: where the next one begins */
    tg_binning by;
    leaf_facts facts[SHORT_WARPS];
} level_bins;
static_assert(sizeof(level_bins) <= SHORT_WARPS * TG_DRAW_BLOCKS * sizeof(uint4), "bins have the place of draws");

/* The values of a bucket, in order but for those of a bin. In shared memory. */
typedef struct ordering {
    float *values;
    level_bins &bins;
} ordering;

TG_DEVICE uint32_t start_of(const ordering &o, uint32_t bin)
{
    return bin == 0 ? 0 : o.bins.ends[bin - 1];
}

/* The least and the largest clipped value, either sign of 0, and bins between them; these are cleared. */
template <class Team> TG_DEVICE tg_binning find_bins(const ordering &o, Team &team, float *least, float *most)
{
    constexpr float FAR = 6; /* times the mean magnitude: beyond it, a bin has some values of a long tail */
    constexpr unsigned THREADS = SHORT_WARPS * TG_WARP;
    float low = INFINITY, high = -INFINITY, magnitudes = 0;
    team.each([&](float x, uint32_t) {
        low = fminf(low, x);
        high = fmaxf(high, x);
        magnitudes += fabsf(x) * (1.0f / TG_SHORT_BUCKET); /* no sum overflows */
    });
    low = tg_warp_least(low);
    high = tg_warp_most(high);
    TG_UNROLL
    for (unsigned half = 16; half > 0; half /= 2) {
        magnitudes += __shfl_xor_sync(TG_ALL_LANES, magnitudes, (int)half);
    }
    if (team.lane == 0) {
        o.bins.facts[team.warp] = {low, high, magnitudes, 0, 0};
    }
    TG_UNROLL
    for (unsigned i = 0; i < TG_LEVEL_BINS / 4; i += THREADS) {
        ((uint4 *)(void *)o.bins.ends)[i + team.thread()] = make_uint4(0, 0, 0, 0);
    }
    team.sync();
    magnitudes = 0;
    TG_UNROLL
    for (unsigned w = 0; w < SHORT_WARPS; w++) {
        low = fminf(low, o.bins.facts[w].low);
        high = fmaxf(high, o.bins.facts[w].high);
        magnitudes += o.bins.facts[w].magnitudes;
    }
    *least = low;
    *most = high;
    return tg_bins_between(low, high, magnitudes * ((float)TG_SHORT_BUCKET / (float)team.b.n), FAR);
}

/* Puts the values of a leaf into their bins. The places of some are found before any is put there, so that none waits for another. With
 * IS_WHOLE, the leaf has all values, and they are not clipped. */
template <bool IS_WHOLE, class Team>
TG_DEVICE void put_leaf(const ordering &o, const Team &team, const tg_binning &by, unsigned leaf)
{
    enum { AT_ONCE = IS_WHOLE ? 8 : 1 };
    const uint32_t from = leaf * TG_LEAF_N + team.lane, n = team.b.n;
    TG_UNROLL
    for (unsigned first = 0; first < TG_LANE_N; first += AT_ONCE) {
        uint32_t at[AT_ONCE];
        TG_UNROLL
        for (unsigned k = first; k < first + AT_ONCE; k++) {
            if (IS_WHOLE || from + 32 * k < n) {
                at[k - first] = tg_take_in_bin(o.bins.ends, by, IS_WHOLE ? team.v[k] : team.clipped(team.v[k]));
            }
        }
        TG_UNROLL
        for (unsigned k = first; k < first + AT_ONCE; k++) {
            if (IS_WHOLE || from + 32 * k < n) {
                o.values[at[k - first]] = IS_WHOLE ? team.v[k] : team.clipped(team.v[k]);
            }
        }
    }
}

/* Puts values in order, `low` to `high`. Returns the sum of ways up from all of them to the largest one. */
template <class Team>
TG_DEVICE uint64_t put_in_order(const ordering &o, Team &team, const tg_binning &by, float low, float high)
{
    constexpr unsigned VECTORS = TG_LEVEL_BINS / (SHORT_WARPS * TG_WARP) / 4; /* of a thread */
    uint4 *ends = (uint4 *)(void *)o.bins.ends + team.thread() * VECTORS, counts[VECTORS];
    if (team.thread() == 0) {
        o.bins.by = by;
    }
    tg_ways up(low, high);
    team.each([&](float x, uint32_t) {
        tg_count_in_bin(o.bins.ends, by, x);
        up.add(x);
    });
    const uint64_t own = up.total();
    team.sync();
    uint32_t sum = 0, all;
    TG_UNROLL
    for (unsigned i = 0; i < VECTORS; i++) {
        counts[i] = ends[i];
        sum += counts[i].x + counts[i].y + counts[i].z + counts[i].w;
    }
    uint32_t before = tg_warp_scan(sum, &all);
    if (team.lane == 0) {
        o.bins.facts[team.warp].lower_bins = all;
        o.bins.facts[team.warp].ways = own;
    }
    team.sync();
    uint64_t ways = 0;
    TG_UNROLL
    for (unsigned w = 0; w < SHORT_WARPS; w++) {
        before += w < team.warp ? o.bins.facts[w].lower_bins : 0;
        ways += o.bins.facts[w].ways;
    }
    TG_UNROLL
    for (unsigned i = 0; i < VECTORS; i++) { /* a bin begins there, and ends there when it is filled */
        const uint4 n = counts[i];
        ends[i] = make_uint4(before, before + n.x, before + n.x + n.y, before + n.x + n.y + n.z);
        before += n.x + n.y + n.z + n.w;
    }
    team.sync();
    team.each_leaf([&](unsigned leaf) {
        if (team.is_whole(leaf)) {
            put_leaf<true>(o, team, by, leaf);
        } else {
            put_leaf<false>(o, team, by, leaf);
        }
    });
    team.sync();
    return ways;
}

/* The following are by a warp. */

/* How many of values [first, end) are not above a threshold. */
TG_DEVICE uint32_t count_between(const float *values, uint32_t first, uint32_t end, float at)
{
    uint32_t count = 0;
    for (uint32_t i = first + threadIdx.x % TG_WARP; i < end; i += TG_WARP) {
        count += values[i] <= at ? 1 : 0;
    }
    return __reduce_add_sync(TG_ALL_LANES, count);
}

/* The value of a rank among many values [first, end) of one bin, by halving the range of their keys. */
TG_CALLED float value_among(const float *values, uint32_t first, uint32_t end, uint32_t rank)
{
    uint32_t high = 0, low = 0; /* low: of the complement */
    for (uint32_t i = first + threadIdx.x % TG_WARP; i < end; i += TG_WARP) {
        uint32_t key = tg_order_of(values[i]);
        high = max(high, key);
        low = max(low, ~key);
    }
    high = __reduce_max_sync(TG_ALL_LANES, high);
    low = ~__reduce_max_sync(TG_ALL_LANES, low);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (count_between(values, first, end, tg_from_order(middle)) > rank) {
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
    uint32_t part = (uint32_t)__ffs((int)__ballot_sync(TG_ALL_LANES, o.bins.ends[lane * PART + PART - 1] > rank)) - 1;
    uint32_t bin = part * PART + (uint32_t)__ffs((int)__ballot_sync(TG_ALL_LANES, o.bins.ends[part * PART + lane % PART] > rank)) - 1;
    uint32_t first = start_of(o, bin), count = o.bins.ends[bin] - first;
    return count > TG_FEW ? value_among(o.values, first, first + count, rank - first)
                          : tg_value_of_few(o.values + first, count, first, rank);
}

/* The best level between two others on ranks k and j: its rank, and its value. */
TG_DEVICE uint32_t middle_of(float *level, const ordering &o, uint32_t k, uint32_t j, float from, float to)
{
    enum { AT_ONCE = 4 };
    tg_ways up(from, to);
    const uint32_t first = start_of(o, tg_bin_of(o.bins.by, from)), end = o.bins.ends[tg_bin_of(o.bins.by, to)];
    TG_ROLL
    for (uint32_t i = first + threadIdx.x % TG_WARP; i < end; i += AT_ONCE * TG_WARP) {
        float x[AT_ONCE];
        TG_UNROLL
        for (uint32_t c = 0; c < AT_ONCE; c++) { /* others of these bins count as if they were on a level */
            x[c] = i + c * TG_WARP < end ? fminf(fmaxf(o.values[i + c * TG_WARP], from), to) : to;
        }
        TG_UNROLL
        for (uint32_t c = 0; c < AT_ONCE; c++) {
            up.add(x[c]);
        }
    }
    /* only values from rank k + 1 on count */
    const uint32_t rank = middle_rank(up.total() - (uint64_t)(k + 1 - first) * up.whole(from), k, j);
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

    /* Levels 0 and n - 1 are known: the ends, and the sum of ways up from all values to the last one. Halves intervals between levels, widest
     * first. All warps find the level in the middle, and then each has its half, without waiting for others; ... */
    template <class Team>
    static __device__ __forceinline__ void choose_in_order(Team &team, const ordering &o, float *chosen, uint32_t *ranks,
                                                           uint32_t n, uint64_t ways, float low, float high)
    {
        static_assert((unsigned)Team::WARP_N == 2, "each warp has a half");
        const uint32_t half = (n - 1) / 2, lowest = team.warp * half, last = team.b.n - 1;
        uint32_t middle = 0;
        float level = low;
        if (high > low) {
            middle = middle_rank(ways - tg_ways(low, high).whole(low), 0, last);
            level = middle == last ? high : value_of_rank(o, middle);
        }
        if (team.lane == 0) { /* of this warp alone: the ends of its half */
            uint32_t *own = ranks + team.warp * TG_ORQ_MAX;
            own[lowest] = team.warp == 0 ? 0 : middle;
            own[lowest + half] = team.warp == 0 ? middle : last;
        }
        halve(team, o, chosen, ranks + team.warp * TG_ORQ_MAX, lowest, half, level);
        if (team.thread() == 0) {
            chosen[half] = level;
        }
        team.sync();
    }

    /* The levels of a warp's half, whose end in the middle of all levels is `middle`. */
    template <class Team>
    static __device__ __forceinline__ void halve(Team &team, const ordering &o, float *chosen, uint32_t *ranks,
                                                 uint32_t lowest, uint32_t half, float middle)
    {
        for (uint32_t width = half; width > 1; width /= 2) {
            __syncwarp();
            for (uint32_t lo = lowest; lo < lowest + half; lo += width) {
                uint32_t rank = ranks[lo];
                float level = lo == half ? middle : chosen[lo], to = lo + width == half ? middle : chosen[lo + width];
                if (to > level) {
                    rank = middle_of(&level, o, rank, ranks[lo + width], level, to);
                }
                if (team.lane == 0) {
                    ranks[lo + width / 2] = rank;
                    chosen[lo + width / 2] = level;
                }
            }
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
        __shared__ uint32_t ranks[Team::FITS ? SHORT_WARPS * TG_ORQ_MAX : TG_ORQ_MAX];
        __shared__ tg_level_space space;
        team.clip_to(u.quantize_params[TG_ORQ_CLIP]);
        float low, high;
        if constexpr (Team::FITS) {
            __shared__ float values[TG_SHORT_BUCKET];
            const ordering o = {values, *(level_bins *)(void *)team.scratch};
            const tg_binning by = find_bins(o, team, &low, &high);
            if (team.thread() == 0) {
                space.chosen[0] = low;
                space.chosen[u.base - 1] = high;
            }
            const uint64_t ways = put_in_order(o, team, by, low, high);
            choose_in_order(team, o, space.chosen, ranks, u.base, ways, low, high);
        } else {
            team.find_ends(&low, &high);
            __syncthreads();
            if (threadIdx.x == 0) {
                space.chosen[0] = low;
                space.chosen[u.base - 1] = high;
                ranks[0] = 0;
                ranks[u.base - 1] = team.b.n - 1;
            }
            __syncthreads();
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
