/* BinGrad on the GPU: two means, and one magnitude with a random sign; see quantize/bingrad.c. */
#include "exec/cuda/quantize_buckets.h"

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
    __device__ __forceinline__ void write(uint8_t *side) const
    {
        tg_store_float(side, level[0]);
        tg_store_float(side + 4, level[1]);
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

void tg_launch_two_means(const tg_gpu_pass *p, bool is_sparse)
{
    tg_quantize_launch<two_means>(p, is_sparse);
}

/* ---- pb -------------------------------------------------------------------------------------------------------------- */

struct two_sided {
    static constexpr unsigned KIND = TG_KIND_TWO_SIDED;
    static constexpr bool DRAWS = true, CHECKS = true, IS_WIDE = false;
    static constexpr unsigned BLOCKS = 16;
    float level, places, zero; /* `zero` is the place of 0 */

    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &)
    {
        return 4;
    }

    /* The sum of all magnitudes above a threshold, in multiples of 1 / per_unit: these are exact, in any order. `round` rounds to
     * them, see docs/format.md, section 8. */
    template <class Team>
    static __device__ __forceinline__ double sum_above(Team &team, float at, double round, double per_unit)
    {
        uint64_t sum = 0;
        team.each([&](float x, uint32_t) {
            double magnitude = fabs((double)x) + round - round;
            sum += magnitude > (double)at ? (uint64_t)(magnitude * per_unit) : 0;
        });
        return (double)team.total(sum) / per_unit;
    }

    /* The best level, by bisection of the floats: the sum of magnitudes above b falls with b, and n b grows. */
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
        double round = ldexp(1.5, 52 + exponent - 1 - 36), per_unit = ldexp(1.0, 36 + 1 - exponent),
               n = (double)team.b.n;
        uint32_t low = 0, high = tg_key(largest); /* the sum above low is more than n low; above high it is not */
        double above = sum_above(team, 0.0f, round, per_unit);
        while (high - low > 1) {
            uint32_t middle = low + (high - low) / 2;
            double at = (double)__uint_as_float(middle),
                   sum = sum_above(team, __uint_as_float(middle), round, per_unit);
            if (sum > n * at) {
                low = middle;
                above = sum;
            } else {
                high = middle;
            }
        }
        level = (float)fmin(above / n, (double)__uint_as_float(high));
        places = 0.5f * tg_places_over(level);
        zero = 0x1p23f + 32768.0f;
    }
    __device__ __forceinline__ void write(uint8_t *side) const
    {
        tg_store_float(side, level);
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
