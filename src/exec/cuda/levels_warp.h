/* ORQ by a warp, of a bucket that it holds in shared memory: three levels by the greedy rule, and rounding between them.
 *
 * Values stay where they are. They are counted into bins; the value of a rank is then found among those of a bin, which are copied, and
 * which are few. The rank of the level in the middle follows from a sum over all values. */
#ifndef TG_EXEC_CUDA_LEVELS_WARP_H
#define TG_EXEC_CUDA_LEVELS_WARP_H

#include "exec/cuda/level_bins.h"
#include "exec/cuda/levels.h"

enum { TG_FEW = 2 * TG_WARP }; /* values of a bin that a warp compares with each other */

/* What a bucket needs in shared memory beside its values: first for choosing levels, then for rounding. */
typedef union tg_greedy_space {
    struct {
        alignas(16) uint32_t ends[TG_LEVEL_BINS]; /* how many values are in a bin or before it */
        float few[TG_FEW];                        /* the values of a bin */
        uint32_t few_n;
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

/* Copies the values of a bin, given by tg_bin_float, to `few`, in any order. */
TG_DEVICE void tg_gather_bin(tg_greedy_space &space, const tg_warp_values &held, const tg_binning &by, float wanted)
{
    const uint32_t sets = held.set_n();
    auto take = [&](float value) { space.choice.few[atomicAdd(&space.choice.few_n, 1u)] = value; };
    TG_ROLL
    for (uint32_t set = 0; set < sets; set++) {
        float v[16];
        uint32_t found = 0;
        held.load_set(v, set);
        TG_UNROLL
        for (unsigned k = 0; k < 16; k++) {
            found |= tg_bin_float(by, v[k]) == wanted ? 1u << k : 0u;
        }
        TG_ROLL
        for (; found != 0; found &= found - 1) {
            take(held.values[held.number_in(set, (uint32_t)__ffs((int)found) - 1)]);
        }
    }
    held.each_beyond(sets, [&](float x) {
        if (tg_bin_float(by, x) == wanted) {
            take(x);
        }
    });
}

/* The value of a rank among few, at most TG_FEW, `first` of all values being in earlier bins. */
TG_DEVICE float tg_value_of_few(const float *few, uint32_t n, uint32_t first, uint32_t rank)
{
    enum { AT_ONCE = 4 };
    const uint32_t lane = threadIdx.x % TG_WARP;
    const float low = lane < n ? few[lane] : INFINITY, high = lane + TG_WARP < n ? few[lane + TG_WARP] : INFINITY;
    uint32_t below_low = first, below_high = first; /* values below those of this lane */
    TG_ROLL
    for (uint32_t i = 0; i < n; i += AT_ONCE) {
        const float from = i < TG_WARP ? low : high;
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            const float other = __shfl_sync(TG_ALL_LANES, from, (int)(i + k));
            below_low += other < low ? 1 : 0;
            below_high += other < high ? 1 : 0;
        }
    }
    /* the largest one with so many below it */
    const uint32_t best_low = below_low <= rank ? below_low * TG_FEW + lane : 0,
                   best_high = below_high <= rank ? below_high * TG_FEW + TG_WARP + lane : 0,
                   best = __reduce_max_sync(TG_ALL_LANES, max(best_low, best_high));
    return __shfl_sync(TG_ALL_LANES, best % TG_FEW < TG_WARP ? low : high, (int)(best % TG_WARP));
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

/* The value of a rank. */
TG_DEVICE float tg_value_of_rank(tg_greedy_space &space, const tg_warp_values &held, const tg_binning &by,
                                 uint32_t rank)
{
    const uint32_t bin = tg_bin_of_rank(space, rank), first = bin == 0 ? 0 : space.choice.ends[bin - 1];
    const uint32_t n = space.choice.ends[bin] - first;
    const float wanted = __uint_as_float(TG_PLACE + bin);
    if (n > TG_FEW) {
        return tg_value_of_many(held, by, wanted, rank);
    }
    if (held.lane == 0) {
        space.choice.few_n = 0;
    }
    __syncwarp();
    tg_gather_bin(space, held, by, wanted);
    __syncwarp();
    return tg_value_of_few(space.choice.few, n, first, rank);
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

    /* That of all lanes. Sums of lanes are below 2^47. */
    __device__ __forceinline__ uint64_t total() const
    {
        const uint64_t of_lane = (uint64_t)__double_as_longlong(sum) & ((1ull << 52) - 1);
        return ((uint64_t)__reduce_add_sync(TG_ALL_LANES, (uint32_t)(of_lane >> 24)) << 24) +
               __reduce_add_sync(TG_ALL_LANES, (uint32_t)of_lane & 0xffffffu);
    }

    /* The way from the lower level to the upper one. */
    __device__ __forceinline__ uint64_t whole(float from) const
    {
        return (uint64_t)((high - (double)from) * scale);
    }

    /* The rank of the best level between both, the least and the largest of n values. Ways of all values were added. */
    __device__ __forceinline__ uint32_t rank(float from, uint32_t n) const
    {
        const uint64_t all = total() - whole(from); /* only values from rank 1 on count */
        return min((uint32_t)((all + (1ull << TG_GRID_BITS) - 1) >> TG_GRID_BITS), n - 1);
    }
};

/* Chooses three levels: the least value, the best one between, and the largest. */
TG_DEVICE void tg_choose_three(tg_greedy_space &space, const tg_warp_values &held)
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
    const tg_binning by = tg_bins_between(low, high, magnitudes / (float)held.n, 5);
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
    float middle = high;
    if (low < high) {
        const uint32_t rank = up.rank(low, held.n);
        middle = rank < held.n - 1 ? tg_value_of_rank(space, held, by, rank) : high;
    }
    __syncwarp();
    if (held.lane < 3) {
        space.chosen.chosen[held.lane] = held.lane == 0 ? low : held.lane == 1 ? middle : high;
    }
}

/* ---- rounding ---------------------------------------------------------------------------------------------------------------- */

/* Levels in registers, which find the step of a value without loads that wait for each other. */
struct tg_three_levels {
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
TG_DEVICE uint32_t tg_symbols_of(const uint32_t falls[4])
{
    const uint32_t steps =
        __byte_perm(__byte_perm(falls[0], falls[1], 0x0062), __byte_perm(falls[2], falls[3], 0x0062), 0x5410);
    /* no byte borrows from the next one, though values before and after the bucket have any depth */
    return (0x01010101u * 0x82u - (steps & 0x7f7f7f7fu)) & 0x7f7f7f7fu;
}

/* The symbols of eight values as bytes. */
TG_DEVICE uint2 tg_round_eight_between(const tg_three_levels &levels, const float *values, const tg_warp_draws &by,
                                       uint64_t at)
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
    uint2 symbols = make_uint2(tg_symbols_of(falls), tg_symbols_of(falls + 4));
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

#endif
