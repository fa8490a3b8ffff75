/* Elements of M for PowerSGD's kernels, with the policies for NaN, Inf and overflow: what load_row and load_extreme_row of
 * exec/factorization.c give. */
#ifndef TG_EXEC_CUDA_FACTOR_LOAD_H
#define TG_EXEC_CUDA_FACTOR_LOAD_H

#include "exec/cuda/factors.h"
#include "exec/cuda/load.h"

#define TG_CANONICAL_NAN 0x7fc00000u

TG_DEVICE float tg_unify_nan(float x)
{
    return x != x ? __uint_as_float(TG_CANONICAL_NAN) : x;
}

TG_DEVICE void tg_get_four(float (&out)[4], const float *from)
{
    const float4 v = *(const float4 *)from;
    out[0] = v.x;
    out[1] = v.y;
    out[2] = v.z;
    out[3] = v.w;
}

/* A matrix whose elements are read. WIDE: its gradient is in fp32, else in a half precision. */
template <bool WIDE> struct tg_factor_source {
    const void *grad;
    const float *residual;
    float decay, limit;
    uint32_t dtype, nonfinite;

    __device__ __forceinline__ tg_factor_source(const tg_gpu_factors &f, const tg_gpu_matrix &m)
        : grad(f.grads[m.tensor]), residual(m.residual), decay(m.decay), limit(m.limit), dtype(m.dtype),
          nonfinite(f.nonfinite)
    {
    }

    __device__ __forceinline__ float gradient(uint64_t at) const
    {
        if (WIDE) {
            return ((const float *)grad)[at];
        }
        uint16_t half = ((const uint16_t *)grad)[at];
        return dtype == 1 ? tg_fp16_to_float(half) : tg_bf16_to_float(half);
    }

    __device__ __forceinline__ float kept(uint64_t at) const
    {
        return residual != nullptr ? residual[at] : 0.0f;
    }

    /* Four elements of the row that begins at `row`. */
    template <class Columns>
    __device__ __forceinline__ void four(float (&g)[4], float (&r)[4], uint64_t row, const Columns &columns) const
    {
        if constexpr (!Columns::BESIDE) {
            TG_UNROLL
            for (unsigned c = 0; c < 4; c++) {
                g[c] = gradient(row + columns.at[c]);
                r[c] = kept(row + columns.at[c]);
            }
        } else {
            uint64_t at = row + columns.at[0];
            if constexpr (WIDE) {
                tg_get_four(g, (const float *)grad + at);
            } else {
                const uint2 halves = *(const uint2 *)((const uint16_t *)grad + at);
                const uint32_t words[2] = {halves.x, halves.y};
                TG_UNROLL
                for (unsigned c = 0; c < 4; c++) {
                    uint16_t half = (uint16_t)(words[c / 2] >> c % 2 * 16);
                    g[c] = dtype == 1 ? tg_fp16_to_float(half) : tg_bf16_to_float(half);
                }
            }
            if (residual != nullptr) {
                tg_get_four(r, residual + at);
            }
        }
    }

    /* gradient + residual, as it comes. */
    __device__ __forceinline__ float sum(float g, float r) const
    {
        return residual != nullptr ? g + decay * r : g;
    }

    /* Whether the policies apply to an element. */
    __device__ __forceinline__ bool is_beyond(float value) const
    {
        return (__float_as_uint(value) & 0x7fffffffu) > __float_as_uint(limit);
    }

    /* Such an element by the policies. */
    __device__ __forceinline__ float bounded(float g, float r) const
    {
        g = nonfinite == TG_GPU_ZERO && !tg_is_finite(g) ? 0.0f : g;
        float value = sum(g, r);
        return tg_is_finite(g) ? fmaxf(fminf(value, limit), -limit) : value;
    }

    __device__ __forceinline__ float value(float g, float r) const
    {
        float v = sum(g, r);
        return is_beyond(v) ? bounded(g, r) : v;
    }
};

/* The columns of a tile, four a lane: side by side, so that one access takes them, or 32 apart. Columns past the end are read as the last
 * ones, and not used. */
template <bool SIDE_BY_SIDE> struct tg_factor_columns {
    static constexpr bool BESIDE = SIDE_BY_SIDE;
    uint64_t at[4]; /* to read from; if they are side by side, the first counts */
    bool is_in[4];

    __device__ __forceinline__ tg_factor_columns(const tg_gpu_matrix &m, uint64_t column)
    {
        TG_UNROLL
        for (unsigned c = 0; c < 4; c++) {
            uint64_t own = column + place(c), last = m.columns - (BESIDE ? 4 : 1);
            is_in[c] = own < m.columns;
            at[c] = own < last ? own : last;
        }
    }

    /* The place of column c in the tile. */
    static __device__ __forceinline__ unsigned place(unsigned c)
    {
        unsigned lane = threadIdx.x % TG_WARP;
        return BESIDE ? lane * 4 + c : lane + c * TG_WARP;
    }

    /* Four elements of an array of columns. */
    __device__ __forceinline__ void get(float (&out)[4], const float *from) const
    {
        if constexpr (BESIDE) {
            tg_get_four(out, from + at[0]);
        } else {
            TG_UNROLL
            for (unsigned c = 0; c < 4; c++) {
                out[c] = from[at[c]];
            }
        }
    }
};

/* Whether four columns can be accessed at once: all rows begin at multiples of 16 bytes, or of 8 of a half precision. */
TG_DEVICE bool tg_columns_are_beside(const tg_gpu_factors &f, const tg_gpu_matrix &m)
{
    uintptr_t grad = (uintptr_t)f.grads[m.tensor];
    return m.columns % 4 == 0 && grad % (m.dtype == 0 ? 16 : 8) == 0 && (uintptr_t)m.residual % 16 == 0 &&
           (uintptr_t)m.q_next % 16 == 0;
}

/* use(source, columns) with the source of a matrix, and columns of a tile. */
template <class Use>
TG_DEVICE void tg_with_columns(const tg_gpu_factors &f, const tg_gpu_matrix &m, uint64_t column, Use use)
{
    bool beside = tg_columns_are_beside(f, m);
    if (m.dtype == 0 && beside) {
        use(tg_factor_source<true>(f, m), tg_factor_columns<true>(m, column));
    } else if (m.dtype == 0) {
        use(tg_factor_source<true>(f, m), tg_factor_columns<false>(m, column));
    } else if (beside) {
        use(tg_factor_source<false>(f, m), tg_factor_columns<true>(m, column));
    } else {
        use(tg_factor_source<false>(f, m), tg_factor_columns<false>(m, column));
    }
}

/* use(source) with the source of a matrix. */
template <class Use> TG_DEVICE void tg_with_source(const tg_gpu_factors &f, const tg_gpu_matrix &m, Use use)
{
    if (m.dtype == 0) {
        use(tg_factor_source<true>(f, m));
    } else {
        use(tg_factor_source<false>(f, m));
    }
}

/* Columns k of a factor, four at a time, then two, then one: use(k, number of columns as a constant). */
template <unsigned N> struct tg_factor_width {
    static constexpr unsigned value = N;
};

template <class Use> TG_DEVICE void tg_each_columns(uint32_t rank, Use use)
{
    uint32_t k = 0;
    for (; rank - k >= 4; k += 4) {
        use(k, tg_factor_width<4>());
    }
    if (rank - k >= 2) {
        use(k, tg_factor_width<2>());
        k += 2;
    }
    if (rank > k) {
        use(k, tg_factor_width<1>());
    }
}

#endif
