/* ORQ by a warp, of a bucket that it holds in shared memory: three or nine levels by the greedy rule, and rounding between them.
 *
 * Values stay where they are. They are counted into bins; the value of a rank is then found among those of a bin, which are copied, and
 * which are few. The rank of a level follows from sums over all values. */
#ifndef TG_EXEC_CUDA_LEVELS_WARP_H
#define TG_EXEC_CUDA_LEVELS_WARP_H

#include "exec/cuda/level_bins.h"
#include "exec/cuda/levels.h"

#define TG_RANKS_UNKNOWN 0xffffffffu
enum { TG_HALVED_MAX = 4 }; /* intervals that are halved at a time */

/* What a bucket needs in shared memory beside its values: first for choosing levels, then for rounding. */
typedef union tg_greedy_space {
    struct {
        alignas(16) uint32_t ends[TG_LEVEL_BINS]; /* how many values are in a bin or before it */
        float few[TG_HALVED_MAX][TG_WARP];        /* the values of some bins */
        uint32_t few_n[TG_HALVED_MAX];
        double sums[9]; /* of all values, those above a level counting as the level */
        float levels[9];
        uint32_t ranks[9];
        tg_binning by;
    } choice;
    tg_level_space chosen;
} tg_greedy_space;

/* ---- the value of a rank ----------------------------------------------------------------------------------------------------- */

/* Makes `ends` of the numbers of values in bins. */
TG_DEVICE void tg_add_up_bins(tg_greedy_space &space)
{
    constexpr unsigned VECTORS = TG_LEVEL_BINS / TG_WARP / 4; /* of a lane */
    uint4 *ends = (uint4 *)(void *)space.choice.ends + threadIdx.x % TG_WARP * VECTORS, counts[VECTORS];
    uint32_t sum = 0, total;
    TG_UNROLL
    for (unsigned i = 0; i < VECTORS; i++) {
        counts[i] = ends[i];
        sum += counts[i].x + counts[i].y + counts[i].z + counts[i].w;
    }
    sum = tg_warp_scan(sum, &total);
    TG_UNROLL
    for (unsigned i = 0; i < VECTORS; i++) {
        const uint4 n = counts[i];
        ends[i] = make_uint4(sum + n.x, sum + n.x + n.y, sum + n.x + n.y + n.z, sum + n.x + n.y + n.z + n.w);
        sum = ends[i].w;
    }
    __syncwarp();
}

/* The bin that has the value of a rank. By a lane. */
TG_DEVICE uint32_t tg_bin_of_rank(const tg_greedy_space &space, uint32_t rank)
{
    uint32_t bin = 0;
    TG_UNROLL
    for (uint32_t step = TG_LEVEL_BINS / 2; step > 0; step /= 2) {
        bin += space.choice.ends[bin + step - 1] <= rank ? step : 0;
    }
    return bin;
}

/* Copies the values of N bins, given by tg_bin_float, to `few`, in any order. */
template <unsigned N>
TG_DEVICE void tg_gather_bins(tg_greedy_space &space, const tg_warp_values &held, const float wanted[N])
{
    const tg_binning by = space.choice.by;
    const uint32_t sets = held.set_n();
    auto take = [&](uint32_t s, float value) { space.choice.few[s][atomicAdd(&space.choice.few_n[s], 1u)] = value; };
    TG_ROLL
    for (uint32_t set = 0; set < sets; set++) {
        float v[16];
        uint32_t found[(N + 1) / 2] = {0}; /* 16 bits for each bin */
        held.load_set(v, set);
        TG_UNROLL
        for (unsigned k = 0; k < 16; k++) {
            const float bin = tg_bin_float(by, v[k]);
            TG_UNROLL
            for (unsigned s = 0; s < N; s++) {
                found[s / 2] |= bin == wanted[s] ? 1u << (16 * (s % 2) + k) : 0u;
            }
        }
        TG_UNROLL
        for (unsigned i = 0; i < (N + 1) / 2; i++) {
            TG_ROLL
            for (; found[i] != 0; found[i] &= found[i] - 1) {
                const uint32_t k = (uint32_t)__ffs((int)found[i]) - 1;
                take(2 * i + k / 16, held.values[held.number_in(set, k % 16)]);
            }
        }
    }
    held.each_beyond(sets, [&](float x) {
        const float bin = tg_bin_float(by, x);
        TG_UNROLL
        for (unsigned s = 0; s < N; s++) {
            if (bin == wanted[s]) {
                take(s, x);
            }
        }
    });
}

/* The value of a rank among few, `first` of all values being in earlier bins. */
TG_DEVICE float tg_value_of_few(const float *few, uint32_t n, uint32_t first, uint32_t rank)
{
    const uint32_t lane = threadIdx.x % TG_WARP;
    const float value = lane < n ? few[lane] : INFINITY;
    uint32_t lower = first; /* values below this lane's */
    TG_ROLL
    for (uint32_t i = 0; i < n; i += 4) {
        TG_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            lower += __shfl_sync(TG_ALL_LANES, value, (int)(i + k)) < value ? 1 : 0;
        }
    }
    const uint32_t best =
        __reduce_max_sync(TG_ALL_LANES, lower <= rank ? lower * TG_WARP + lane : 0); /* the largest one */
    return __shfl_sync(TG_ALL_LANES, value, (int)(best % TG_WARP));
}

TG_DEVICE float tg_warp_least(float value)
{
    return tg_from_order(~__reduce_max_sync(TG_ALL_LANES, ~tg_order_of(value)));
}

TG_DEVICE float tg_warp_most(float value)
{
    return tg_from_order(__reduce_max_sync(TG_ALL_LANES, tg_order_of(value)));
}

/* The value of a rank among many, those of a bin, by halving their range. Thresholds become the values next to them, so that few turns do
 * where many values are equal. */
TG_CALLED float tg_value_of_many(tg_warp_values held, tg_binning by, float wanted, uint32_t rank)
{
    float low = INFINITY, high = -INFINITY;
    held.each([&](float x) {
        const bool is_in = tg_bin_float(by, x) == wanted;
        low = fminf(low, is_in ? x : INFINITY);
        high = fmaxf(high, is_in ? x : -INFINITY);
    });
    low = tg_warp_least(low);
    high = tg_warp_most(high);
    for (bool by_keys = false; low < high; by_keys = !by_keys) {
        const uint32_t key = tg_order_of(low), apart = tg_order_of(high) - key;
        float at = by_keys ? tg_from_order(key + apart / 2) : fmaxf(0.5f * low + 0.5f * high, low);
        at = at < high ? at : low;
        float up_to = -INFINITY, above = INFINITY;
        uint32_t n = 0;
        held.each([&](float x) {
            n += x <= at ? 1 : 0;
            up_to = fmaxf(up_to, x <= at ? x : -INFINITY);
            above = fminf(above, x <= at ? INFINITY : x);
        });
        if (__reduce_add_sync(TG_ALL_LANES, n) > rank) {
            high = tg_warp_most(up_to);
        } else {
            low = tg_warp_least(above);
        }
    }
    return low;
}

/* The values of N ranks, a lane's each, if it wants that. */
template <unsigned N>
TG_DEVICE float tg_values_of_ranks(tg_greedy_space &space, const tg_warp_values &held, bool wants, uint32_t rank)
{
    const uint32_t bin = tg_bin_of_rank(space, wants ? rank : 0), first = bin == 0 ? 0 : space.choice.ends[bin - 1];
    const uint32_t n = space.choice.ends[bin] - first;
    const float number = __uint_as_float(TG_PLACE + bin);
    float wanted[N], value = 0;
    if (held.lane < N) {
        space.choice.few_n[held.lane] = 0;
    }
    TG_UNROLL
    for (unsigned s = 0; s < N; s++) {
        wanted[s] = __shfl_sync(TG_ALL_LANES, wants && n <= TG_WARP ? number : INFINITY, (int)s);
    }
    __syncwarp();
    tg_gather_bins<N>(space, held, wanted);
    __syncwarp();
    TG_ROLL
    for (unsigned left = __ballot_sync(TG_ALL_LANES, wants); left != 0; left &= left - 1) {
        const int s = __ffs((int)left) - 1;
        const uint32_t of_bin = __shfl_sync(TG_ALL_LANES, n, s), before = __shfl_sync(TG_ALL_LANES, first, s),
                       of_all = __shfl_sync(TG_ALL_LANES, rank, s);
        const float found = of_bin <= TG_WARP
                                ? tg_value_of_few(space.choice.few[s], of_bin, before, of_all)
                                : tg_value_of_many(held, space.choice.by, __shfl_sync(TG_ALL_LANES, number, s), of_all);
        value = (int)held.lane == s ? found : value;
    }
    return value;
}

/* ---- levels ------------------------------------------------------------------------------------------------------------------ */

/* The sum of ways up from values to a level, on the grid. A lane's stays below 2^52, so that adding towards 0 to 2^52 cuts each way to the
 * grid. */
struct tg_ways {
    double high, scale, sum;

    __device__ __forceinline__ tg_ways(float from, float to)
        : high((double)to), scale(0x1p40 / ((double)to - (double)from)), sum(0x1p52)
    {
    }
    __device__ __forceinline__ void add(float x)
    {
        sum = __dadd_rz(sum, (high - (double)x) * scale);
    }

    /* How many ranks after k, that of `from`, the best level between both is. Ways of all values were added, those beyond the interval
     * counting as its ends. */
    __device__ __forceinline__ uint32_t ranks_after(uint32_t k, float from) const
    {
        const uint64_t of_lane = (uint64_t)__double_as_longlong(sum) & ((1ull << 52) - 1); /* below 2^47 */
        uint64_t all = (uint64_t)__reduce_add_sync(TG_ALL_LANES, (uint32_t)(of_lane >> 24)) << 24;
        all += __reduce_add_sync(TG_ALL_LANES, (uint32_t)of_lane & 0xffffffu);
        all -= (uint64_t)(k + 1) * (uint64_t)((high - (double)from) * scale); /* only values from rank k + 1 on count */
        return (uint32_t)((all + (1ull << TG_GRID_BITS) - 1) >> TG_GRID_BITS);
    }
};

/* An interval between levels that is halved. */
struct tg_halving {
    uint32_t k, j; /* ranks of its ends */
    float from, to;

    __device__ __forceinline__ tg_halving(const tg_greedy_space &space, uint32_t low, uint32_t high)
        : k(space.choice.ranks[low]), j(space.choice.ranks[high]), from(space.choice.levels[low]),
          to(space.choice.levels[high])
    {
    }
    __device__ __forceinline__ bool has_middle() const
    {
        return to > from;
    }
};

/* How many ranks after k, that of `from`, the best level between two others is. */
TG_CALLED uint32_t tg_ranks_by_ways(tg_warp_values held, float from, float to, uint32_t k)
{
    tg_ways up(from, to);
    held.each([&](float x) { up.add(fminf(fmaxf(x, from), to)); });
    return up.ranks_after(k, from);
}

/* The same from `between`, the difference of the sums for both levels, if that tells with certainty. Sums of up to 2^11 numbers of up to
 * `most` are off by less than 2^-31 of it, and cutting ways to the grid changes them by less than 2^-28 of a rank. */
TG_DEVICE uint32_t tg_ranks_by_sums(const tg_halving &h, double between, uint32_t n, float most)
{
    const double share = 1 / ((double)h.to - (double)h.from), ranks = n - 1 - h.k - between * share, up = ceil(ranks);
    const double margin = 0x1p-26 * (1 + (double)most * share);
    return up - ranks > margin && ranks - (up - 1) > margin ? (uint32_t)up : TG_RANKS_UNKNOWN;
}

/* Chooses the levels in the middle of N intervals, a lane's each. `ranks`: how many ranks after k they are, if that is known. */
template <unsigned N>
TG_DEVICE void tg_halve(tg_greedy_space &space, const tg_warp_values &held, const tg_halving &h, uint32_t middle,
                        uint32_t ranks)
{
    const bool is_mine = held.lane < N, is_open = h.has_middle() && ranks == TG_RANKS_UNKNOWN;
    TG_ROLL
    for (unsigned left = __ballot_sync(TG_ALL_LANES, is_mine && is_open); left != 0; left &= left - 1) {
        const int s = __ffs((int)left) - 1;
        const uint32_t found = tg_ranks_by_ways(held, __shfl_sync(TG_ALL_LANES, h.from, s),
                                                __shfl_sync(TG_ALL_LANES, h.to, s), __shfl_sync(TG_ALL_LANES, h.k, s));
        ranks = (int)held.lane == s ? found : ranks;
    }
    const uint32_t rank = h.has_middle() ? min(h.k + ranks, h.j) : h.k;
    const bool is_new = h.has_middle() && rank < h.j;
    const float value = tg_values_of_ranks<N>(space, held, is_mine && is_new, rank);
    if (is_mine) {
        space.choice.ranks[middle] = rank;
        space.choice.levels[middle] = is_new ? value : h.has_middle() ? h.to : h.from;
    }
    __syncwarp();
}

/* Adds up all values, those above a level counting as the level. */
TG_DEVICE void tg_sum_up_to(tg_greedy_space &space, const tg_warp_values &held, uint32_t level)
{
    const float most = space.choice.levels[level];
    double sum = 0;
    held.each([&](float x) { sum += (double)fminf(x, most); });
    TG_UNROLL
    for (unsigned half = 16; half > 0; half /= 2) {
        sum += __shfl_xor_sync(TG_ALL_LANES, sum, (int)half);
    }
    if (held.lane == 0) {
        space.choice.sums[level] = sum;
    }
    __syncwarp();
}

/* Halves N intervals between nine levels, after sums for the levels that were chosen last. */
template <unsigned N> TG_DEVICE void tg_halve_by_sums(tg_greedy_space &space, const tg_warp_values &held, float most)
{
    constexpr uint32_t WIDTH = 8 / N;
    TG_ROLL
    for (uint32_t level = WIDTH; level < 8; level += 2 * WIDTH) {
        tg_sum_up_to(space, held, level);
    }
    const uint32_t low = held.lane % N * WIDTH, high = low + WIDTH;
    const tg_halving h(space, low, high);
    const double between = space.choice.sums[high] - space.choice.sums[low];
    tg_halve<N>(space, held, h, low + WIDTH / 2, tg_ranks_by_sums(h, between, held.n, most));
}

/* Chooses n levels, three or nine, from the least value to the largest. */
TG_DEVICE void tg_choose_levels(tg_greedy_space &space, const tg_warp_values &held, uint32_t n)
{
    float low = INFINITY, high = -INFINITY, magnitudes = 0;
    held.each([&](float x) {
        low = fminf(low, x);
        high = fmaxf(high, x);
        magnitudes += fabsf(x);
    });
    low = tg_warp_least(low);
    high = tg_warp_most(high);
    TG_UNROLL
    for (unsigned half = 16; half > 0; half /= 2) {
        magnitudes += __shfl_xor_sync(TG_ALL_LANES, magnitudes, (int)half);
    }
    const tg_binning by = tg_bins_between(low, high, magnitudes / (float)held.n);
    if (held.lane == 0) {
        space.choice.by = by;
        space.choice.levels[0] = low;
        space.choice.levels[n - 1] = high;
        space.choice.ranks[0] = 0;
        space.choice.ranks[n - 1] = held.n - 1;
    }
    TG_UNROLL
    for (unsigned i = 0; i < TG_LEVEL_BINS / 4; i += TG_WARP) {
        ((uint4 *)(void *)space.choice.ends)[i + held.lane] = make_uint4(0, 0, 0, 0);
    }
    __syncwarp();
    tg_ways up(low, high);
    held.each([&](float x) {
        tg_count_in_bin(space.choice.ends, by, x);
        up.add(x);
    });
    __syncwarp();
    tg_add_up_bins(space);
    tg_halve<1>(space, held, tg_halving(space, 0, n - 1), n / 2, up.ranks_after(0, low));
    if (n == 9) {
        if (held.lane == 0) {
            space.choice.sums[0] = held.n * (double)low;
        }
        tg_sum_up_to(space, held, 8);
        tg_halve_by_sums<2>(space, held, fmaxf(fabsf(low), fabsf(high)));
        tg_halve_by_sums<4>(space, held, fmaxf(fabsf(low), fabsf(high)));
    }
    const float level = held.lane < n ? space.choice.levels[held.lane] : 0.0f;
    __syncwarp();
    if (held.lane < n) {
        space.chosen.chosen[held.lane] = level;
    }
}

/* ---- rounding ---------------------------------------------------------------------------------------------------------------- */

/* Levels in registers, which find the step of a value without loads that wait for each other. */
struct tg_three_levels {
    static constexpr uint32_t LAST = 2;
    const tg_levels &q;
    tg_step low, high;

    __device__ __forceinline__ explicit tg_three_levels(const tg_levels &levels)
        : q(levels), low(levels.levels->step(0)), high(levels.levels->step(1))
    {
    }
    __device__ __forceinline__ float depth(float value) const
    {
        const bool is_high = high.from <= value;
        const tg_step step = {is_high ? high.from : low.from, is_high ? high.slope : low.slope,
                              is_high ? high.start : low.start};
        return step.depth(value);
    }
};

struct tg_nine_levels {
    static constexpr uint32_t LAST = 8;
    const tg_levels &q;
    float borders[LAST]; /* the first one is not used */

    __device__ __forceinline__ explicit tg_nine_levels(const tg_levels &levels) : q(levels)
    {
        TG_UNROLL
        for (unsigned i = 0; i < LAST; i++) {
            borders[i] = levels.levels->borders[i];
        }
    }
    __device__ __forceinline__ float depth(float value) const
    {
        const bool is_far = borders[4] <= value, is_high = (is_far ? borders[6] : borders[2]) <= value;
        const float border = is_far ? is_high ? borders[7] : borders[5] : is_high ? borders[3] : borders[1];
        const uint32_t last = (is_far ? 4 : 0) + (is_high ? 2 : 0) + (border <= value ? 1 : 0);
        return q.levels->step(last).depth(value);
    }
};

/* A value falls by its depth and its draw: as many whole steps as the level that it becomes is below the last one. Where the sum is at the
 * end of a step, all bits decide. */
TG_DEVICE uint32_t tg_fall(float depth, uint4 draws, unsigned i)
{
    return __float_as_uint(depth) + tg_draw_of(draws, i);
}

TG_DEVICE uint32_t tg_opening(uint32_t fall)
{
    return fall & 0xffffu; /* below 2: all bits decide */
}

/* The symbols of four values from their falls. */
template <class Levels> TG_DEVICE uint32_t tg_symbols_of(const uint32_t falls[4])
{
    const uint32_t steps =
        __byte_perm(__byte_perm(falls[0], falls[1], 0x0062), __byte_perm(falls[2], falls[3], 0x0062), 0x5410);
    /* no byte borrows from the next one, though values before and after the bucket have any depth */
    return (0x01010101u * (0x80u + Levels::LAST) - (steps & 0x7f7f7f7fu)) & 0x7f7f7f7fu;
}

/* The symbols of eight values as bytes. */
template <class Levels>
TG_DEVICE uint2 tg_round_eight_between(const Levels &levels, const float *values, const tg_warp_draws &by, uint64_t at)
{
    const uint4 draws = tg_draw_block(by.key, at / TG_EIGHT, TG_DRAWS_UPPER, by.other);
    const float4 low = ((const float4 *)(const void *)values)[0], high = ((const float4 *)(const void *)values)[1];
    const float v[TG_EIGHT] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    uint32_t open = levels.q.guesses() ? 2 : 0, falls[TG_EIGHT];
    TG_UNROLL
    for (unsigned i = 0; i < TG_EIGHT; i++) {
        falls[i] = tg_fall(levels.depth(v[i]), draws, i);
        open = min(open, tg_opening(falls[i]));
    }
    uint2 symbols = make_uint2(tg_symbols_of<Levels>(falls), tg_symbols_of<Levels>(falls + 4));
    TG_ROLL
    for (unsigned i = 0; i < TG_EIGHT && open < 2; i++) { /* about two of 65,536 values */
        const bool is_open = !levels.q.guesses() || tg_opening(tg_fall(levels.depth(values[i]), draws, i)) < 2;
        if (is_open) {
            const bool is_up = levels.q.settle_scaled(values[i], tg_draw_bits(by.key, at + i, by.other));
            symbols = tg_put_byte(symbols, i, levels.q.below(values[i]) + (is_up ? 1 : 0));
        }
    }
    return symbols;
}

/* Calls use(how eight values are rounded), between three levels or nine. */
template <class Use> TG_DEVICE void tg_round_between(const tg_levels &levels, const tg_warp_draws &by, Use use)
{
    if (levels.level_n == 3) {
        const tg_three_levels three(levels);
        use([&](const float *values, uint64_t at) { return tg_round_eight_between(three, values, by, at); });
    } else {
        const tg_nine_levels nine(levels);
        use([&](const float *values, uint64_t at) { return tg_round_eight_between(nine, values, by, at); });
    }
}

#endif
