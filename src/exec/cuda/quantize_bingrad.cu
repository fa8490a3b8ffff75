/* BinGrad on the GPU: two means, and one magnitude with a random sign; see quantize/bingrad.c. */
#include "exec/cuda/quantize_warps.h"

enum { FORM, BUCKET, ITERS, CLIP };
enum { FORM_B = 0 };

TG_DEVICE float next_below(float x)
{
    uint32_t bits = __float_as_uint(x);
    return __uint_as_float(x > 0 ? bits - 1 : x < 0 ? bits + 1 : 0x80000001u);
}

/* ---- b and zero ------------------------------------------------------------------------------------------------------ */

struct two_means {
    static constexpr unsigned KIND = TG_KIND_TWO_MEANS;
    static constexpr bool DRAWS = false, CHECKS = true, IS_WIDE = false;
    static constexpr unsigned BLOCKS = 16;
    float limit, level[2];
    unsigned turn;

    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &)
    {
        return 4;
    }

    /* What this lane adds of both groups of a leaf, in binary32. Returns how many of its values are above. Values after the end of the
     * bucket are 0. */
    template <bool IS_PLAIN, class Team>
    static __device__ __forceinline__ uint32_t add_leaf(float sums[2], Team &team, unsigned leaf, float limit, float scale)
    {
        float low = 0, high = 0;
        uint32_t above = 0, from = leaf * TG_LEAF_N + team.lane;
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            float value = IS_PLAIN ? team.v[k] : team.clipped(team.v[k]), scaled = IS_PLAIN ? value : value * scale;
            if (value > limit) {
                high += scaled;
                above += IS_PLAIN || from + 32 * k < team.b.n ? 1 : 0;
            } else {
                low += scaled;
            }
        }
        sums[0] = low;
        sums[1] = high;
        return above;
    }

    /* The same, if no value is above. */
    template <class Team> static __device__ __forceinline__ uint32_t add_all(float sums[2], Team &team)
    {
        sums[0] = sums[1] = 0;
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            sums[0] += team.v[k];
        }
        return 0;
    }

    /* As means_around in bingrad.c. Half of the lanes compute one mean, half the other. */
    template <class Team>
    __device__ __forceinline__ void split(Team &team, double means[2], double threshold, float scale)
    {
        limit = (float)threshold;
        limit = (double)limit > threshold ? next_below(limit) : limit;
        unsigned group = team.lane / 16, leaves = team.leaves();
        turn ^= 1; /* of a short bucket, what the last call has written may still be read */
        double *sums = team.space.sums[group] + (Team::FITS ? turn * Team::WARP_N : 0);
        uint32_t *counts = team.space.keys + turn * Team::WARP_N, count = 0;
        if constexpr (!Team::FITS) {
            __syncthreads();
        }
        team.each_leaf([&](unsigned leaf) {
            float of_lane[2];
            bool is_plain = scale == 1 && team.is_whole(leaf); /* neither short nor clipped nor scaled */
            count += !is_plain           ? add_leaf<false>(of_lane, team, leaf, limit, scale)
                     : limit == INFINITY ? add_all(of_lane, team)
                                         : add_leaf<true>(of_lane, team, leaf, limit, scale);
            double of_leaf = tg_fold_both((double)of_lane[0], (double)of_lane[1]);
            if (team.lane % 16 == 0) {
                sums[leaf] = of_leaf;
            }
        });
        count = __reduce_add_sync(TG_ALL_LANES, count);
        if (team.lane == 0) {
            counts[team.warp] = count;
        }
        __syncthreads();
        uint32_t above = 0, n = team.b.n;
        TG_UNROLL
        for (unsigned w = 0; w < Team::WARP_N; w++) {
            above += counts[w];
        }
        double sum;
        if constexpr (Team::FITS) {
            sum = leaves == 1 ? sums[0] : sums[0] + sums[1];
        } else {
            double low = tg_tree_of(team.space.sums[0], leaves), high = tg_tree_of(team.space.sums[1], leaves);
            sum = group == 0 ? low : high;
        }
        sum = scale != 1 ? sum / (double)scale : sum;
        double mean = sum / (double)(group == 0 ? n - above : above), other = __shfl_xor_sync(TG_ALL_LANES, mean, 16);
        means[0] = group == 0 ? mean : other;
        means[1] = group == 0 ? other : mean;
        means[0] = above == n ? means[1] : means[0];
        means[1] = above == 0 ? means[0] : means[1];
    }

    template <class Team> __device__ __forceinline__ void fit(Team &team, const tg_gpu_unit &u)
    {
        double threshold = 0, means[2];
        turn = 0;
        bool is_free = (int)u.quantize_params[FORM] == FORM_B;
        team.clip_to(u.quantize_params[CLIP]);
        __syncthreads(); /* what clipping has summed is read */
        float scale = team.largest() < 0x1p100f ? 1.0f : 0x1p-30f;
        if (is_free) {
            split(team, means, INFINITY, scale); /* the mean of all values */
            threshold = means[0];
        }
        split(team, means, threshold, scale);
        for (int i = 0; is_free && i < (int)u.quantize_params[ITERS]; i++) {
            double before = threshold;
            threshold = 0.5 * (means[0] + means[1]);
            if (i > 0 && threshold == before) {
                break; /* so would be all that follow */
            }
            split(team, means, threshold, scale);
        }
        level[0] = (float)means[0];
        level[1] = (float)means[1];
    }
    __device__ __forceinline__ void write(uint8_t *side, uint32_t i) const
    {
        if (i < 2) {
            tg_store_float(side + 4 * i, i == 0 ? level[0] : level[1]);
        }
    }
    static __device__ __forceinline__ bool guesses()
    {
        return true;
    }
    __device__ __forceinline__ tg_guess guess(float value) const
    {
        return {value > limit ? TG_PLACE + 2 : TG_PLACE - 1, 0, 1}; /* certain by any draw, for 0 is given */
    }
    __device__ __forceinline__ bool settle(float value, uint32_t) const
    {
        return value > limit;
    }
    __device__ __forceinline__ float value(unsigned symbol) const
    {
        return symbol != 0 ? level[1] : level[0];
    }
};

/* The same by a warp. A lane has the values of both leaves that sums by leaves need: numbers lane, lane + 32, ... */
struct two_means_of_warp {
    static constexpr unsigned KIND = TG_KIND_TWO_MEANS, WARPS = 4, BLOCKS = 4, SPACE = 0;
    static constexpr unsigned LEAVES = TG_SHORT_BUCKET / TG_LEAF_N;
    static constexpr bool DRAWS = false;

    struct lane_values {
        float v[LEAVES][TG_LANE_N]; /* clipped; 0 after the end of the bucket */
        uint32_t n;                 /* of the bucket, from this lane's first value on */
        float scale;
    };

    /* What this lane adds of both groups, and how many of its values are above. */
    struct parts {
        float low[LEAVES], high[LEAVES];
        float above[LEAVES]; /* a float is added under a condition by one instruction, an integer by two */
    };

    template <bool IS_PLAIN> static __device__ __forceinline__ parts add(const lane_values &x, float limit)
    {
        parts s = {};
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            TG_UNROLL
            for (unsigned leaf = 0; leaf < LEAVES; leaf++) {
                float value = x.v[leaf][k], scaled = IS_PLAIN ? value : value * x.scale;
                if (value > limit) {
                    s.high[leaf] += scaled;
                    s.above[leaf] += IS_PLAIN || leaf * TG_LEAF_N + 32 * k < x.n ? 1.0f : 0.0f;
                } else {
                    s.low[leaf] += scaled;
                }
            }
        }
        return s;
    }

    static __device__ __forceinline__ parts add_all(const lane_values &x)
    {
        parts s = {};
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            TG_UNROLL
            for (unsigned leaf = 0; leaf < LEAVES; leaf++) {
                s.low[leaf] += x.v[leaf][k];
            }
        }
        return s;
    }

    /* Both means from what lanes add, for a bucket of n values. Half of the lanes compute one, half the other. */
    static __device__ __forceinline__ void take(double means[2], const parts &s, uint32_t n, float scale)
    {
        double sum = tg_fold_both((double)s.low[0], (double)s.high[0]);
        double second = tg_fold_both((double)s.low[1], (double)s.high[1]);
        uint32_t above = __reduce_add_sync(TG_ALL_LANES, (uint32_t)(s.above[0] + s.above[1]));
        sum = n > TG_LEAF_N ? sum + second : sum;
        sum = scale != 1 ? sum / (double)scale : sum;
        bool is_low = threadIdx.x % TG_WARP < 16;
        double mean = sum / (double)(is_low ? n - above : above);
        means[0] = __shfl_sync(TG_ALL_LANES, mean, above == n ? 16 : 0);
        means[1] = __shfl_sync(TG_ALL_LANES, mean, above == 0 ? 0 : 16);
    }

    /* The largest float that is not above a threshold. */
    static __device__ __forceinline__ float limit_of(double threshold)
    {
        float limit = (float)threshold;
        return (double)limit > threshold ? next_below(limit) : limit;
    }

    /* The threshold; as two_means::fit. */
    static __device__ __forceinline__ float fit(double means[2], const lane_values &x, const double *params, uint32_t n)
    {
        const bool is_free = (int)params[FORM] == FORM_B, is_plain = x.scale == 1 && n == TG_SHORT_BUCKET;
        const int turns = is_free ? 1 + (int)params[ITERS] : 1;
        double threshold = 0;
        float limit = 0;
        if (is_free) {
            take(means, is_plain ? add_all(x) : add<false>(x, INFINITY), n, x.scale);
            threshold = means[0];
        }
        TG_ROLL
        for (int turn = 0; turn < turns; turn++) {
            double before = threshold;
            threshold = turn == 0 ? threshold : 0.5 * (means[0] + means[1]);
            if (turn > 1 && threshold == before) {
                break; /* so would be all that follow */
            }
            limit = limit_of(threshold);
            take(means, is_plain ? add<true>(x, limit) : add<false>(x, limit), n, x.scale);
        }
        return limit;
    }

    static __device__ __forceinline__ void load(lane_values &x, const tg_held_bucket &h)
    {
        const uint32_t lane = threadIdx.x % TG_WARP, n = h.b.n;
        tg_warp_team team = {{h.held, n, lane}, h.b, INFINITY, h.largest_key, nullptr, h.params};
        team.clip_to(team.param(CLIP));
        x.n = n > lane ? n - lane : 0;
        x.scale = team.largest() < 0x1p100f ? 1.0f : 0x1p-30f;
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            TG_UNROLL
            for (unsigned leaf = 0; leaf < LEAVES; leaf++) {
                uint32_t i = leaf * TG_LEAF_N + 32 * k;
                x.v[leaf][k] = i < x.n ? h.held[i + lane] : 0.0f;
            }
        }
    }

    static __device__ __forceinline__ void encode(const tg_held_bucket &h)
    {
        const uint32_t lane = threadIdx.x % TG_WARP, len = (h.b.n + 7) / 8;
        const bool is_nan = h.largest_key >= TG_KEY_INF;
        double means[2] = {0, 0};
        lane_values x = {};
        float limit = INFINITY;
        if (!is_nan) {
            load(x, h);
            limit = fit(means, x, h.params, h.b.n);
        }
        if (lane < 2) {
            float level = (float)(lane == 0 ? means[0] : means[1]);
            tg_store_bytes(h.b.side + 4 * lane, is_nan ? 0x7fc00000u : __float_as_uint(level), 4);
        }
        uint32_t *words = (uint32_t *)(void *)h.held;
        __syncwarp(); /* values were read */
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            TG_UNROLL
            for (unsigned leaf = 0; leaf < LEAVES; leaf++) {
                uint32_t i = leaf * TG_LEAF_N + 32 * k;
                uint32_t word = __ballot_sync(TG_ALL_LANES, x.v[leaf][k] > limit && i < x.n);
                if (lane == 0) {
                    words[i / 32] = word;
                }
            }
        }
        __syncwarp();
        tg_copy_by(h.out + h.chunk.side_len + h.first / 8, (const uint8_t *)(const void *)words, len, lane, TG_WARP);
    }
};

void tg_launch_two_means(const tg_gpu_pass *p, bool is_sparse)
{
    if (!is_sparse) {
        tg_quantize_launch_warps<two_means_of_warp>(p);
    }
    tg_quantize_launch<two_means>(p, is_sparse);
}

/* ---- pb -------------------------------------------------------------------------------------------------------------- */

struct two_sided {
    static constexpr unsigned KIND = TG_KIND_TWO_SIDED;
    static constexpr bool DRAWS = true, CHECKS = true, IS_WIDE = false;
    static constexpr unsigned BLOCKS = 12;
    float level, places, zero; /* `zero` is the place of 0 */

    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &)
    {
        return 4;
    }

    /* Magnitudes are multiples of 1 / per_unit, to which adding and subtracting `round` rounds them (docs/format.md, section 8), so that
     * sums are exact in any order. */
    struct grid {
        double round, per_unit;
        __device__ __forceinline__ double of(float x) const
        {
            return fabs((double)x) + round - round;
        }
    };

    /* The magnitudes above a threshold: their sum and their number. */
    struct heap {
        float at;
        double sum;
        uint32_t n;
    };
    template <class Team> static __device__ __forceinline__ heap above(Team &team, const grid &g, float at)
    {
        uint64_t sum = 0;
        uint32_t count = 0;
        team.each([&](float x, uint32_t) {
            double magnitude = g.of(x);
            bool is_above = magnitude > (double)at;
            sum += is_above ? (uint64_t)(magnitude * g.per_unit) : 0;
            count += is_above ? 1 : 0;
        });
        return {at, (double)team.total(sum) / g.per_unit, team.total32(count)};
    }

    enum { FEW = 64, GUESSES = 12 }; /* magnitudes that are compared with each other; thresholds that are guessed */

    /* A threshold between two others, where n b = S(b) is by a straight line, or on either side of it in turn, some magnitudes off; as in
     * bingrad.c. Later, and where that is none, halfway between the floats. */
    static __device__ __forceinline__ float between(const heap &low, const heap &high, double n, unsigned turn)
    {
        uint32_t least = tg_key(low.at), most = tg_key(high.at);
        double from = (double)low.at, to = (double)high.at, over = low.sum - n * from, under = n * to - high.sum;
        double guess = from + (to - from) * over / (over + under);
        double apart = FEW / 3.0 * (to - from) / (double)(low.n - high.n);
        float at = turn == 0       ? (float)(0.81 * (low.sum / n)) /* of a Gaussian and of a Laplace distribution, nearly */
                   : turn % 2 == 0 ? (float)(guess - apart)
                                   : (float)(guess + apart);
        return turn < GUESSES && at > low.at && at < high.at ? at : __uint_as_float(least + (most - least) / 2);
    }

    /* The best level, between two thresholds with few magnitudes between them. */
    template <class Team>
    static __device__ __forceinline__ float among_few(Team &team, const grid &g, const heap &low, const heap &high, double n)
    {
        __shared__ float few[FEW];
        __shared__ uint32_t few_n;
        __syncthreads();
        if (threadIdx.x == 0) {
            few_n = 0;
        }
        __syncthreads();
        team.each([&](float x, uint32_t) {
            double magnitude = g.of(x);
            if (magnitude > (double)low.at && !(magnitude > (double)high.at)) {
                few[atomicAdd(&few_n, 1u)] = (float)magnitude;
            }
        });
        __syncthreads();
        uint32_t count = few_n, least = tg_key(INFINITY); /* of those that are not below the level */
        for (uint32_t i = team.lane; i < count; i += TG_WARP) {
            double larger = high.sum;
            for (uint32_t j = 0; j < count; j++) {
                larger += few[j] > few[i] ? (double)few[j] : 0;
            }
            least = larger <= n * (double)few[i] ? min(least, tg_key(few[i])) : least;
        }
        float from = __uint_as_float(__reduce_min_sync(TG_ALL_LANES, least));
        double sum = high.sum; /* of those above the largest that is below it */
        for (uint32_t j = 0; j < count; j++) {
            sum += few[j] >= from ? (double)few[j] : 0;
        }
        return (float)fmin(sum / n, (double)from);
    }

    /* The best level is the smallest b for which S(b), the sum of all magnitudes above it, is at most n b: S falls with b. */
    template <class Team> __device__ __forceinline__ void fit(Team &team, const tg_gpu_unit &u)
    {
        team.clip_to(u.quantize_params[CLIP]);
        float largest = team.largest();
        level = places = 0;
        zero = 0x1p23f - 4.0f; /* all values are 0, and never round up */
        if (largest == 0) {
            return;
        }
        int exponent = 0;
        (void)frexpf(largest, &exponent);
        const grid g = {ldexp(1.5, 52 + exponent - 1 - 36), ldexp(1.0, 36 + 1 - exponent)};
        double n = (double)team.b.n;
        heap low = above(team, g, 0.0f), high = {largest, 0, 0}; /* S(low) > n low, S(high) <= n high */
        for (unsigned turn = 0; low.n - high.n > FEW && tg_key(high.at) - tg_key(low.at) > 1; turn++) {
            heap next = above(team, g, between(low, high, n, turn));
            if (next.sum > n * (double)next.at) {
                low = next;
            } else {
                high = next;
            }
        }
        level = low.n - high.n > FEW ? (float)fmin(low.sum / n, (double)high.at) : among_few(team, g, low, high, n);
        places = 0.5f * tg_places_over(level);
        zero = 0x1p23f + 32768.0f;
    }
    __device__ __forceinline__ void write(uint8_t *side, uint32_t i) const
    {
        if (i == 0) {
            tg_store_float(side, level);
        }
    }
    __device__ __forceinline__ bool guesses() const
    {
        return places > 0 || level == 0;
    }
    __device__ __forceinline__ tg_guess guess(float value) const
    {
        return {tg_place_at(fmaf(value, places, zero)), 0, 1};
    }
    __device__ __forceinline__ bool settle(float value, uint32_t bits) const
    {
        return tg_draws_below(bits, level, value * 0.5f + level * 0.5f);
    }
    __device__ __forceinline__ float value(unsigned symbol) const
    {
        return symbol != 0 ? level : -level;
    }
};

void tg_launch_two_sided(const tg_gpu_pass *p, bool is_sparse)
{
    tg_quantize_launch<two_sided>(p, is_sparse);
}
