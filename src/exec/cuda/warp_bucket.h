/* A bucket that a warp holds in shared memory: loads it, and computes what its values share. */
#ifndef TG_EXEC_CUDA_WARP_BUCKET_H
#define TG_EXEC_CUDA_WARP_BUCKET_H

#include "exec/cuda/philox.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/team.h"

enum {
    TG_EIGHT = TG_DRAWS_EACH, /* values that a lane rounds at a time */
    TG_HELD_FLOATS = TG_SHORT_BUCKET + TG_EIGHT
};

/* The values of a bucket, in shared memory. */
struct tg_warp_values {
    float *values;
    uint32_t n;
    unsigned lane;

    /* Sets of values from which a lane takes four times four neighbours, if they are aligned; others are taken one by one. */
    static constexpr uint32_t SET = 16 * TG_WARP;
    __device__ __forceinline__ uint32_t set_n() const
    {
        return (uintptr_t)values % 16 == 0 ? n / SET : 0;
    }
    __device__ __forceinline__ void load_set(float v[16], uint32_t set) const
    {
        const float4 *const fours = (const float4 *)(const void *)values + set * (SET / 4) + lane;
        TG_UNROLL
        for (unsigned k = 0; k < 4; k++) {
            const float4 four = fours[TG_WARP * k];
            v[4 * k] = four.x, v[4 * k + 1] = four.y, v[4 * k + 2] = four.z, v[4 * k + 3] = four.w;
        }
    }

    /* The number in the bucket of v[k]. */
    __device__ __forceinline__ uint32_t number_in(uint32_t set, uint32_t k) const
    {
        return set * SET + k / 4 * (4 * TG_WARP) + 4 * lane + k % 4;
    }

    /* use(value) for all values of this lane. */
    template <class Use> __device__ __forceinline__ void each(Use use) const
    {
        const uint32_t sets = set_n();
        TG_ROLL
        for (uint32_t set = 0; set < sets; set++) {
            float v[16];
            load_set(v, set);
            TG_UNROLL
            for (unsigned k = 0; k < 16; k++) {
                use(v[k]);
            }
        }
        each_beyond(sets, use);
    }

    /* The same of those after some sets. */
    template <class Use> __device__ __forceinline__ void each_beyond(uint32_t sets, Use use) const
    {
        TG_ROLL
        for (uint32_t i = SET * sets + lane; i < n; i += TG_WARP) {
            use(values[i]);
        }
    }

    /* Changes values in place: no residual is made of them. */
    template <class To> __device__ __forceinline__ void change(To to) const
    {
        __syncwarp();
        TG_ROLL
        for (uint32_t i = lane; i < n; i += TG_WARP) {
            values[i] = to(values[i]);
        }
        __syncwarp();
    }
};

/* What lanes compute of a bucket together. */
struct tg_warp_team : tg_warp_values {
    static constexpr bool KEEPS = false;
    const tg_gpu_bucket &b;
    float limit;          /* magnitudes are clipped to it */
    uint32_t largest_key; /* of all values, before they are clipped */
    void *space;          /* of a quantizer that needs some */
    const double *params; /* of the quantizer */

    __device__ __forceinline__ double param(unsigned i) const
    {
        return params[i];
    }
    static __device__ __forceinline__ float clipped(float value)
    {
        return value; /* clip_to has clipped it */
    }
    __device__ __forceinline__ float largest() const
    {
        return fminf(__uint_as_float(largest_key), limit);
    }

    static __device__ __forceinline__ unsigned thread()
    {
        return threadIdx.x % TG_WARP;
    }
    static __device__ __forceinline__ void sync()
    {
        __syncwarp();
    }
    static __device__ __forceinline__ bool any(bool is)
    {
        return __any_sync(TG_ALL_LANES, is ? 1 : 0) != 0;
    }

    /* The sum by leaves of term(value), which is 0 of 0. */
    template <class Term> __device__ __forceinline__ double sum(Term term) const
    {
        double parts[2] = {0, 0};
        if (b.n == TG_SHORT_BUCKET) {
            TG_UNROLL_BY(8)
            for (uint32_t i = 0; i < TG_LEAF_N; i += TG_WARP) {
                parts[0] += term(values[i + lane]);
                parts[1] += term(values[i + lane + TG_LEAF_N]);
            }
        } else {
            TG_ROLL
            for (uint32_t i = lane; i < b.n; i += TG_WARP) {
                double number = term(values[i]);
                parts[0] += i < TG_LEAF_N ? number : 0.0;
                parts[1] += i < TG_LEAF_N ? 0.0 : number;
            }
        }
        double all = tg_fold(parts[0]);
        all = b.n > TG_LEAF_N ? all + tg_fold(parts[1]) : all;
        return __shfl_sync(TG_ALL_LANES, all, 0);
    }

    __device__ __forceinline__ void clip_to(double deviations)
    {
        limit = tg_limit_of(*this, deviations);
        if (limit < INFINITY) {
            change([&](float x) { return copysignf(fminf(fabsf(x), limit), x); });
        }
    }
};

/* ---- loading --------------------------------------------------------------------------------------------------------------- */

/* The larger one of a magnitude and that of a value; NaN if one of them is. */
TG_DEVICE float tg_larger(float magnitude, float value)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(magnitude), "f"(fabsf(value)));
    return larger;
#else
    return __uint_as_float(max(tg_key(magnitude), tg_key(value)));
#endif
}

TG_DEVICE float tg_larger_of_four(float magnitude, float4 v)
{
    return tg_larger(tg_larger(tg_larger(tg_larger(magnitude, v.x), v.y), v.z), v.w);
}

/* The largest key of `fours` times four floats, in shared memory. */
TG_DEVICE uint32_t tg_largest_of(const float4 *held, uint32_t fours)
{
    float most = 0, other = 0;
    held += threadIdx.x % TG_WARP;
    if (fours == TG_SHORT_BUCKET / 4) {
        TG_UNROLL
        for (uint32_t i = 0; i < TG_SHORT_BUCKET / 4; i += 2 * TG_WARP) {
            most = tg_larger_of_four(most, held[i]);
            other = tg_larger_of_four(other, held[i + TG_WARP]);
        }
    } else {
        TG_ROLL
        for (uint32_t i = threadIdx.x % TG_WARP; i < fours; i += TG_WARP, held += TG_WARP) {
            most = tg_larger_of_four(most, *held);
        }
    }
    return __reduce_max_sync(TG_ALL_LANES, tg_key(tg_larger(most, other)));
}

/* Copies the values of a bucket that lie in place as floats: whole vectors if they are aligned in both memories. */
TG_DEVICE void tg_copy_floats(float *to, const float *from, uint32_t n)
{
    uint32_t lane = threadIdx.x % TG_WARP, done = 0;
    bool is_aligned = (uintptr_t)from % 16 == 0 && (uintptr_t)to % 16 == 0;
    if (is_aligned && n == TG_SHORT_BUCKET) {
        TG_UNROLL
        for (uint32_t i = 0; i < TG_SHORT_BUCKET; i += 4 * TG_WARP) {
            TG_COPY_ASYNC(to + 4 * lane + i, from + 4 * lane + i, 16);
        }
        done = n;
    }
    TG_ROLL
    for (uint32_t i = 4 * lane; is_aligned && done == 0 && i < n / 4 * 4; i += 4 * TG_WARP) {
        TG_COPY_ASYNC(to + i, from + i, 16);
    }
    done = is_aligned ? n / 4 * 4 : 0;
    TG_ROLL
    for (uint32_t i = done + lane; i < n; i += TG_WARP) {
        TG_COPY_ASYNC(to + i, from + i, 4);
    }
    TG_COMMIT_COPIES();
}

/* The values of a bucket, to `held` from number `shift` on, with zeros up to whole eights. Returns their largest key. */
TG_DEVICE uint32_t tg_hold_bucket(float *held, const tg_gpu_pass &p, const tg_gpu_bucket &b, uint32_t shift)
{
    uint32_t lane = threadIdx.x % TG_WARP, eights = (shift + b.n + TG_EIGHT - 1) / TG_EIGHT, most = TG_KEY_INF;
    float *values = held + shift;
    if (lane < shift) {
        held[lane] = 0;
    }
    if (b.n + lane < TG_EIGHT * eights - shift) {
        values[b.n + lane] = 0;
    }
    if (b.halves != nullptr) {
        TG_UNROLL_BY(8)
        for (uint32_t i = lane; i < b.n; i += TG_WARP) {
            values[i] = b.is_bf16 ? tg_bf16_to_float(b.halves[i]) : tg_fp16_to_float(b.halves[i]);
        }
    }
    if (b.floats != nullptr) {
        TG_WAIT_COPIES(0); /* tg_copy_floats */
    }
    __syncwarp();
    if (b.floats != nullptr || b.halves != nullptr) {
        most = tg_largest_of((const float4 *)(const void *)held, 2 * eights);
    }
    if (most >= TG_KEY_INF) { /* or not in place */
        TG_ROLL
        for (uint32_t i = lane; i < b.n; i += TG_WARP) {
            values[i] = tg_bucket_element(p, b, i);
        }
        __syncwarp();
        most = tg_largest_of((const float4 *)(const void *)held, 2 * eights);
    }
    return most;
}

#endif
