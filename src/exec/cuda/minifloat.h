/* Floats of a few bits on the GPU, times a step that is fitted to a chunk (quantize/minifloat.c): moments of leaves, the fit, rounding.
 * quantize_minifloat.cu has the kernels for values that are listed, round.cu those for whole tensors. */
#ifndef TG_EXEC_CUDA_MINIFLOAT_H
#define TG_EXEC_CUDA_MINIFLOAT_H

#include "exec/cuda/quantize.h"
#include "exec/cuda/values.h"

extern "C" {
#include "quantize/shapes.h"
}

enum { TG_FIT_LEAVES = 256, TG_MINIFLOATS = 247 }; /* leaves of a chunk; symbols of a format, at most */

/* The table of shapes, as it goes to kernels. */
typedef struct tg_shape_table {
    double rho[TG_SHAPE_N], reach[TG_SHAPE_FORMAT_N][TG_SHAPE_N];
} tg_shape_table;

static inline tg_shape_table tg_shapes_for_kernels(void)
{
    tg_shape_table shapes;
    for (int i = 0; i < TG_SHAPE_N; i++) {
        shapes.rho[i] = tg_shapes[i].rho;
        for (int f = 0; f < TG_SHAPE_FORMAT_N; f++) {
            shapes.reach[f][i] = tg_shapes[i].format[f].reach;
        }
    }
    return shapes;
}

/* Whether a chunk is quantized by this. */
TG_DEVICE bool tg_is_minifloat(const tg_gpu_unit &u, bool is_sparse)
{
    return tg_quantize_kind(u) == TG_KIND_MINIFLOAT && tg_unit_sends(u, is_sparse);
}

/* ---- moments ------------------------------------------------------------------------------------------------------------- */

/* The moments of a leaf, by a warp. Lane 0 has them. */
TG_DEVICE tg_gpu_moments tg_sum_leaf(const tg_gpu_pass &p, const tg_gpu_bucket &b, unsigned leaf)
{
    float v[TG_LANE_N];
    tg_gpu_moments m = {0, 0, 0};
    uint32_t count = 0;
    (void)tg_load_leaf(v, p, b, leaf);
    TG_UNROLL
    for (unsigned k = 0; k < TG_LANE_N; k++) {
        m.magnitudes += fabs((double)v[k]);
        m.squares += (double)v[k] * (double)v[k];
        count += v[k] != 0 ? 1 : 0;
    }
    m.magnitudes = tg_fold(m.magnitudes);
    m.squares = tg_fold(m.squares);
    m.count = __reduce_add_sync(TG_ALL_LANES, count);
    return m;
}

/* ---- the fit ------------------------------------------------------------------------------------------------------------- */

/* In shared memory. The table of shapes of a format. */
typedef struct tg_fit_shapes {
    double rho[TG_SHAPE_N], reach[TG_SHAPE_N];
} tg_fit_shapes;

typedef struct tg_fit_space {
    double magnitudes[TG_FIT_LEAVES], squares[TG_FIT_LEAVES];
    tg_fit_shapes shapes;
    uint32_t count;
} tg_fit_space;

/* By threads `first`, first + stride, ... */
TG_DEVICE void tg_fit_load_shapes(tg_fit_shapes &to, const tg_shape_table &from, const tg_gpu_minifloat &f,
                                  uint32_t first, uint32_t stride)
{
    for (uint32_t i = first; i < TG_SHAPE_N; i += stride) {
        to.rho[i] = from.rho[i];
        to.reach[i] = from.reach[f.in_shapes][i];
    }
}

/* As fit_step in minifloat.c. All lanes of a warp. */
TG_DEVICE float tg_fit_step(uint8_t *shape, double mean, double square, const tg_gpu_minifloat &f,
                            const tg_fit_shapes &t)
{
    const unsigned last = TG_SHAPE_N - 1;
    *shape = 0;
    if (mean == 0) {
        return 0.0f;
    }
    double rho = mean * mean / square, reach = 0;
    if (rho <= t.rho[0]) {
        reach = t.reach[0] * rho / t.rho[0];
    } else if (rho >= t.rho[last]) {
        uint32_t m = 0;
        *shape = (uint8_t)last;
        while ((double)tg_minifloat_magnitude(f, m) < t.reach[last]) {
            m++;
        }
        double share = fmin((rho - t.rho[last]) / (1 - t.rho[last]), 1.0);
        reach = t.reach[last];
        reach += share * ((double)tg_minifloat_magnitude(f, m) - reach);
    } else {
        uint32_t reached = 0; /* rows, of which the first is one */
        for (uint32_t i = threadIdx.x % TG_WARP; i < TG_SHAPE_N; i += TG_WARP) {
            reached += t.rho[i] <= rho ? 1 : 0;
        }
        uint32_t row = __reduce_add_sync(TG_ALL_LANES, reached) - 1;
        double share = (rho - t.rho[row]) / (t.rho[row + 1] - t.rho[row]);
        *shape = (uint8_t)(row + (share > 0.5 ? 1 : 0));
        reach = t.reach[row];
        reach += share * (t.reach[row + 1] - reach);
    }
    return (float)fmin(mean / reach, (double)TG_FLOAT_MAX);
}

typedef struct tg_gpu_fit {
    float step;
    uint8_t shape;
} tg_gpu_fit;

/* The fit of a chunk whose sums are known. All lanes of a warp. */
TG_DEVICE tg_gpu_fit tg_fit_sums(const tg_gpu_minifloat &f, double magnitudes, double squares, uint32_t count,
                                 const tg_fit_shapes &shapes)
{
    tg_gpu_fit fit = {__uint_as_float(0x7fc00000u), 0};
    if (squares < (double)INFINITY) { /* so it is, of finite values */
        double n = (double)count;
        fit.step = tg_fit_step(&fit.shape, n > 0 ? magnitudes / n : 0, n > 0 ? squares / n : 0, f, shapes);
    }
    return fit;
}

/* The fit of a chunk, by a block of at least 128 threads; the first warp has it. */
TG_DEVICE tg_gpu_fit tg_fit_chunk(const tg_gpu_unit &u, const tg_gpu_moments *moments, uint32_t leaves,
                                  const tg_shape_table &shapes, tg_fit_space &space)
{
    const tg_gpu_minifloat f = tg_minifloat_of(u);
    if (threadIdx.x == 0) {
        space.count = 0;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < leaves; i += blockDim.x) {
        space.magnitudes[i] = __ldcg(&moments[i].magnitudes);
        space.squares[i] = __ldcg(&moments[i].squares);
        atomicAdd(&space.count, __ldcg(&moments[i].count));
    }
    tg_fit_load_shapes(space.shapes, shapes, f, threadIdx.x, blockDim.x);
    double sums[2] = {tg_tree_of(space.magnitudes, leaves), tg_tree_of(space.squares, leaves)};
    tg_gpu_fit fit = {0, 0};
    if (threadIdx.x < TG_WARP) {
        fit = tg_fit_sums(f, sums[0], sums[1], space.count, space.shapes);
    }
    return fit;
}

/* ---- fits that are kept for several steps (refit=N) ---------------------------------------------------------------------- */

/* The fit of an earlier step that this one has to use; a step of 0: there is none. By one thread. */
TG_DEVICE tg_gpu_fit tg_fit_kept(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_chunk &chunk)
{
    tg_gpu_fit kept = {0, 0};
    if (u.refit > 0 && tg_step_of(p) % u.refit != 0) {
        kept.step = p.now[chunk.fit_at];
        kept.shape = (uint8_t)p.now[chunk.fit_at + 1];
    }
    return kept;
}

/* The fit that a chunk is encoded with, given the one to its own values: a chunk with NaN or Inf has that one. */
TG_DEVICE tg_gpu_fit tg_fit_chosen(tg_gpu_fit own, tg_gpu_fit kept)
{
    return kept.step > 0 && own.step == own.step ? kept : own;
}

/* Keeps a fit for the next steps, unless it is none: of zeros, NaN or Inf. By one thread. */
TG_DEVICE void tg_fit_keep(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_chunk &chunk, tg_gpu_fit fit)
{
    if (u.refit > 0) {
        const float *now = p.now + chunk.fit_at;
        const float step = fit.step > 0 ? fit.step : now[0], shape = fit.step > 0 ? (float)fit.shape : now[1];
        p.next[chunk.fit_at] = step;
        p.next[chunk.fit_at + 1] = shape;
    }
}

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

/* As minifloats in kernels/minifloat_loops.h. */
TG_DEVICE unsigned tg_round_value(float given, const tg_gpu_minifloat &f, float step, double inverse)
{
    const int normal = 1 << f.fraction_bits, largest = (int)f.zero;
    const uint32_t shift = 23 - f.fraction_bits, first = (127 - f.bias) << 23; /* bits of number 0, if it were normal */
    const float unit = tg_power(1 - (int)f.bias - (int)f.fraction_bits), per_unit = 1 / unit;
    double value = (double)given;
    uint32_t sign = __float_as_uint(given) & 0x80000000u;
    float quotient = (float)(fabs(value) * inverse), units = quotient * per_unit;
    units = units < 16 ? units : 16;
    int number = (int)(__float_as_uint(quotient) >> shift) - (int)(first >> shift);
    bool is_normal = number >= normal;
    number = !is_normal ? (int)units : number < largest ? number : largest - 1;
    uint32_t middle = is_normal ? ((uint32_t)number << shift) + first + (1u << (shift - 1))
                                : __float_as_uint(((float)number + 0.5f) * unit);
    double limit = (double)__uint_as_float(middle | sign) * (double)step;
    int lower = sign != 0 ? ~number : number;
    return (unsigned)(largest + lower + (value > limit ? 1 : 0));
}

#define TG_ROUND_NEAR (8u << 12) /* twice 4 bits, of formats whose fractions have three; of others it is more */

/* Each byte of the result is 255 if the number is negative, else 0. */
TG_DEVICE uint32_t tg_signs_of_four(const float v[4])
{
#if defined(__CUDA_ARCH__)
    const uint32_t low = __byte_perm(__float_as_uint(v[0]), __float_as_uint(v[1]), 0x0073),
                   high = __byte_perm(__float_as_uint(v[2]), __float_as_uint(v[3]), 0x0073);
    uint32_t signs; /* of four bytes at once: ptxas of CUDA 13.0 loses the lowest one if only two of them are used */
    asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(signs) : "r"(__byte_perm(low, high, 0x5410)));
    return signs;
#else
    uint32_t signs = 0;
    for (uint32_t k = 0; k < 4; k++) {
        signs |= (__float_as_uint(v[k]) >> 31) * 0xffu << 8 * k;
    }
    return signs;
#endif
}

/* Rounding to a format times a step. The symbol is that of the nearest magnitude, the one with the lower symbol of two, so any way to
 * come within one magnitude of it will do, as long as the last comparison is exact: by binary32 and one fused multiply-add, where no
 * product can underflow, else as above. Of four values at once nothing is compared: the bits of a quotient are off by less than 2.5, so
 * unless they are within 4 of the middle of two magnitudes, the nearest one is that of the quotient. */
struct tg_rounding {
    tg_gpu_minifloat f;
    float step, factor;
    float most, largest; /* the last but one of all magnitudes, and the last */
    float down,
        up; /* powers of 2 to where the bits of magnitude number m are m << shift, below the least normal one too; and back */
    uint32_t beyond,
        zeros; /* bits from a magnitude to the middle of it and the next one, and 4; four times the symbol of 0 */
    bool is_fast;

    __device__ __forceinline__ unsigned round_fast(float given) const
    {
        const uint32_t shift = 23 - f.fraction_bits, half = 1u << (shift - 1), kept = ~0u << shift;
        uint32_t bits = __float_as_uint(given), place = __float_as_uint(fminf(fabsf(given * factor), most) * down);
        float middle = __uint_as_float((place & kept) | half) * up; /* of the two magnitudes around the quotient */
        middle = __uint_as_float(__float_as_uint(middle) | (bits & 0x80000000u));
        float limit = fmaf(middle, step, -given); /* its sign is exact, and it is not -0 */
        uint32_t lower =
            (place >> shift) ^ (uint32_t)((int)bits >> 31); /* of negative numbers, the one further from 0 */
        return f.zero + lower + (__float_as_uint(limit) >> 31);
    }

    /* The symbols of four values, the first in the lowest byte. */
    __device__ __forceinline__ uint32_t round_four(const float v[4]) const
    {
        const uint32_t shift = 23 - f.fraction_bits;
        uint32_t numbers[4], is_near = 0;
        TG_UNROLL
        for (int k = 0; k < 4; k++) {
            uint32_t place = __float_as_uint(fminf(fabsf(v[k] * factor), largest) * down) + beyond;
            numbers[k] = place >> shift;
            is_near |= place << (32 - shift) < TG_ROUND_NEAR ? 1 : 0;
        }
        uint32_t all = (((numbers[3] << 8) + numbers[2]) << 16) + ((numbers[1] << 8) + numbers[0]);
        uint32_t signs = tg_signs_of_four(v), symbols = zeros + (all & ~signs) - (all & signs);
        if (is_near != 0) { /* seldom */
            TG_ROLL
            for (int k = 0; k < 4; k++) {
                float given = k == 0 ? v[0] : k == 1 ? v[1] : k == 2 ? v[2] : v[3];
                symbols = (symbols & ~(0xffu << 8 * k)) | round_fast(given) << 8 * k;
            }
        }
        return symbols;
    }
    __device__ __forceinline__ unsigned round(float given) const
    {
        if (is_fast) {
            return round_fast(given);
        }
        return step != step ? 0 : step == 0 ? f.zero : tg_round_value(given, f, step, 1 / (double)step);
    }
};

TG_DEVICE tg_rounding tg_rounding_of(const tg_gpu_minifloat &f, float step)
{
    return {f,
            step,
            1.0f / step,
            tg_minifloat_magnitude(f, f.zero - 1),
            tg_minifloat_magnitude(f, f.zero),
            tg_power((int)f.bias - 127),
            tg_power(127 - (int)f.bias),
            (1u << (22 - f.fraction_bits)) + 4,
            f.zero * 0x01010101u,
            step >= 0x1p-60f && step <= 0x1p60f};
}

#endif
