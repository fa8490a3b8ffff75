/* The threads of a block that share a bucket, and what they compute of it together: a leaf of values a warp, either kept in
 * registers, or loaded again for every pass if the bucket has more leaves than the block has warps. */
#ifndef TG_EXEC_CUDA_TEAM_H
#define TG_EXEC_CUDA_TEAM_H

#include "exec/cuda/bucket.h"
#include "exec/cuda/scan.h"

enum { TG_LEAVES_MAX = 64 }; /* of a bucket of 65,536 values */

/* In shared memory. */
typedef struct tg_team_space {
    double sums[2][TG_LEAVES_MAX];
    uint64_t counts[32];
    uint32_t keys[32];
} tg_team_space;

/* What magnitudes are clipped to: so many standard deviations; infinity if that is 0. */
template <class Team> TG_DEVICE float tg_limit_of(Team &team, double deviations)
{
    if (deviations == 0) {
        return INFINITY;
    }
    double n = (double)team.b.n;
    double mean = team.sum([](float x) { return (double)x; }) / n;
    double variance = team.sum([=](float x) { return ((double)x - mean) * ((double)x - mean); }) / n;
    return (float)fmin(deviations * sqrt(variance), (double)TG_FLOAT_MAX);
}

template <unsigned WARPS, bool IS_RESIDENT> struct tg_team {
    static constexpr unsigned WARP_N = WARPS;
    static constexpr bool KEEPS = true;       /* residuals, of some units */
    static constexpr bool FITS = IS_RESIDENT; /* all values are in registers */
    const tg_gpu_pass &p;
    const tg_gpu_bucket &b;
    tg_team_space &space;
    float (&v)[TG_LANE_N]; /* the leaf that was loaded last */
    float limit;           /* magnitudes are clipped to it */
    unsigned warp, lane;
    uint32_t largest_key; /* of all values, before they are clipped */
    uint8_t *scratch;     /* of a quantizer that needs some */

    __device__ __forceinline__ tg_team(const tg_gpu_pass &pass, const tg_gpu_bucket &bucket, tg_team_space &shared,
                                       float (&values)[TG_LANE_N])
        : p(pass), b(bucket), space(shared), v(values), limit(INFINITY), warp(threadIdx.x / TG_WARP),
          lane(threadIdx.x % TG_WARP), largest_key(0), scratch(nullptr)
    {
    }

    __device__ __forceinline__ double param(unsigned i) const
    {
        return b.u->quantize_params[i];
    }

    __device__ __forceinline__ unsigned leaves() const
    {
        return (b.n + TG_LEAF_N - 1) / TG_LEAF_N;
    }

    __device__ __forceinline__ float clipped(float value) const
    {
        return value > limit ? limit : value < -limit ? -limit : value;
    }

    /* Whether a leaf has all its values, and they are not clipped. */
    __device__ __forceinline__ bool is_whole(unsigned leaf) const
    {
        return (leaf + 1) * TG_LEAF_N <= b.n && limit == INFINITY;
    }

    /* use(leaf), once this warp has the leaf in v. */
    template <class Use> __device__ __forceinline__ void each_leaf(Use use)
    {
        if constexpr (IS_RESIDENT) {
            if (warp < leaves()) {
                use(warp);
            }
        } else {
            for (unsigned leaf = warp; leaf < leaves(); leaf += WARPS) {
                (void)tg_load_leaf(v, p, b, leaf);
                use(leaf);
            }
        }
    }

    /* use(clipped value, i) for all values of this lane. */
    template <class Use> __device__ __forceinline__ void each(Use use)
    {
        each_leaf([&](unsigned leaf) {
            uint32_t from = leaf * TG_LEAF_N + lane;
            if (FITS && is_whole(leaf)) {
                TG_UNROLL
                for (unsigned k = 0; k < TG_LANE_N; k++) {
                    use(v[k], from + 32 * k);
                }
                return;
            }
            TG_UNROLL
            for (unsigned k = 0; k < TG_LANE_N; k++) {
                if (from + 32 * k < b.n) {
                    use(clipped(v[k]), from + 32 * k);
                }
            }
        });
    }

    /* The least and the largest clipped value; either sign of 0. */
    __device__ __forceinline__ void find_ends(float *least, float *most_of_all)
    {
        float low = INFINITY, high = -INFINITY;
        each([&](float x, uint32_t) {
            low = fminf(low, x);
            high = fmaxf(high, x);
        });
        *least = tg_from_order(~most(~tg_order_of(low)));
        *most_of_all = tg_from_order(most(tg_order_of(high)));
    }

    /* ---- over all threads ---- */

    static __device__ __forceinline__ unsigned thread()
    {
        return threadIdx.x;
    }
    static __device__ __forceinline__ void sync()
    {
        __syncthreads();
    }
    static __device__ __forceinline__ bool any(bool is)
    {
        return __syncthreads_or(is ? 1 : 0) != 0;
    }
    static __device__ __forceinline__ uint32_t scan(uint32_t value)
    {
        uint32_t total;
        return tg_block_scan(value, &total);
    }

    __device__ __forceinline__ uint32_t most(uint32_t key)
    {
        key = __reduce_max_sync(TG_ALL_LANES, key);
        __syncthreads();
        if (lane == 0) {
            space.keys[warp] = key;
        }
        __syncthreads();
        TG_UNROLL
        for (unsigned w = 0; w < WARPS; w++) {
            key = max(key, space.keys[w]);
        }
        return key;
    }

    __device__ __forceinline__ uint64_t total(uint64_t count)
    {
        TG_UNROLL
        for (unsigned half = 16; half > 0; half /= 2) {
            count += __shfl_xor_sync(TG_ALL_LANES, count, (int)half);
        }
        __syncthreads();
        if (lane == 0) {
            space.counts[warp] = count;
        }
        __syncthreads();
        count = 0;
        TG_UNROLL
        for (unsigned w = 0; w < WARPS; w++) {
            count += space.counts[w];
        }
        return count;
    }

    /* A count below 2^32. */
    __device__ __forceinline__ uint32_t total32(uint32_t count)
    {
        count = __reduce_add_sync(TG_ALL_LANES, count);
        __syncthreads();
        if (lane == 0) {
            space.keys[warp] = count;
        }
        __syncthreads();
        count = 0;
        TG_UNROLL
        for (unsigned w = 0; w < WARPS; w++) {
            count += space.keys[w];
        }
        return count;
    }

    /* The sum of numbers, in no certain order. */
    __device__ __forceinline__ float about(float number)
    {
        TG_UNROLL
        for (unsigned half = 16; half > 0; half /= 2) {
            number += __shfl_xor_sync(TG_ALL_LANES, number, (int)half);
        }
        __syncthreads();
        if (lane == 0) {
            space.keys[warp] = __float_as_uint(number);
        }
        __syncthreads();
        number = 0;
        TG_UNROLL
        for (unsigned w = 0; w < WARPS; w++) {
            number += __uint_as_float(space.keys[w]);
        }
        return number;
    }

    /* Loads all values, and finds the largest key of them. */
    __device__ __forceinline__ void load()
    {
        uint32_t key = 0;
        for (unsigned leaf = warp; leaf < leaves(); leaf += WARPS) {
            key = max(key, tg_load_leaf(v, p, b, leaf));
        }
        largest_key = most(key);
    }

    /* The largest magnitude of clipped values, which are finite. */
    __device__ __forceinline__ float largest() const
    {
        return fminf(__uint_as_float(largest_key), limit);
    }

    /* The sum by leaves of term(value), which is 0 of 0. */
    template <class Term> __device__ __forceinline__ double sum(Term term)
    {
        __syncthreads();
        each_leaf([&](unsigned leaf) {
            uint32_t from = leaf * TG_LEAF_N + lane;
            double part = 0;
            TG_UNROLL
            for (unsigned k = 0; k < TG_LANE_N; k++) {
                part += from + 32 * k < b.n ? term(v[k]) : 0.0;
            }
            part = tg_fold(part);
            if (lane == 0) {
                space.sums[0][leaf] = part;
            }
        });
        return tg_tree_of(space.sums[0], leaves());
    }

    __device__ __forceinline__ void clip_to(double deviations)
    {
        limit = tg_limit_of(*this, deviations);
    }
};

#endif
