/* Values with a scale for every few of them, and their rotation, on the GPU: as kernels/block_loops.h, with the same bits.
 *
 * A warp takes a span of 128 values, whole blocks and rotations: lane l has values l, l + 32, l + 64 and l + 96 of it. */
#ifndef TG_EXEC_CUDA_BLOCKS_H
#define TG_EXEC_CUDA_BLOCKS_H

#include "exec/cuda/bucket.h"
#include "exec/cuda/layout.h"

enum { TG_SPAN = 128, TG_SPAN_LANE = 4, TG_BLOCK_NAN = 255 };
#define TG_ONE_NAN 0x7fc00000u

typedef struct tg_gpu_small {
    uint32_t fraction_bits, bias, sign, most, infinity, exponent, fraction;
    float largest;
} tg_gpu_small;

TG_DEVICE tg_gpu_small tg_small_e4m3(void)
{
    return {3, 7, 0x80, 0x7e, 0xffffffffu, 8, 0x600000, 448.0f};
}

TG_DEVICE tg_gpu_small tg_small_of(const tg_gpu_unit &u)
{
    if (u.quantize != TG_GPU_MXFP8) {
        return {1, 1, 0x08, 0x07, 0xffffffffu, 2, 0x400000, 6.0f};
    }
    return u.quantize_params[0] == 0 ? tg_small_e4m3() : tg_gpu_small{2, 15, 0x80, 0x7b, 0x7c, 15, 0x600000, 57344.0f};
}

TG_DEVICE bool tg_is_scaled(const tg_gpu_unit &u)
{
    return u.plain_len == 0 && (u.quantize == TG_GPU_MXFP8 || u.quantize == TG_GPU_MXFP4 || u.quantize == TG_GPU_NVFP4);
}

/* ---- elements -------------------------------------------------------------------------------------------------------------- */

TG_DEVICE uint32_t tg_small_binade(float magnitude, const tg_gpu_small &f)
{
    return max(__float_as_uint(magnitude) >> 23, 128 - f.bias);
}

TG_DEVICE uint32_t tg_small_nearest(float magnitude, const tg_gpu_small &f)
{
    uint32_t binade = tg_small_binade(magnitude, f), more = (binade + 23 - f.fraction_bits) << 23;
    return __float_as_uint(magnitude + __uint_as_float(more)) - more + ((binade - (128 - f.bias)) << f.fraction_bits);
}

TG_DEVICE float tg_small_value(uint32_t symbol, const tg_gpu_small &f)
{
    uint32_t m = symbol & (f.sign - 1);
    float unit = __uint_as_float((128 - f.bias - f.fraction_bits) << 23);
    uint32_t bits = m >> f.fraction_bits == 0 ? __float_as_uint((float)m * unit)
                                              : (m << (23 - f.fraction_bits)) + ((127 - f.bias) << 23);
    bits = m <= f.most ? bits : m == f.infinity ? TG_KEY_INF : TG_ONE_NAN;
    return __uint_as_float(bits | ((symbol & f.sign) != 0 ? 0x80000000u : 0u));
}

TG_DEVICE float tg_one_nan(float value)
{
    return tg_key(value) > TG_KEY_INF ? __uint_as_float(TG_ONE_NAN) : value;
}

/* What value number i of a chunk, whose side is at `side`, decodes to, before it is turned back. */
TG_DEVICE float tg_scaled_value(const tg_gpu_unit &u, const tg_gpu_small &f, const uint8_t *side, uint32_t i,
                                uint32_t symbol)
{
    uint32_t scale = side[u.head_len + i / u.bucket_n];
    if (u.quantize == TG_GPU_NVFP4) {
        return tg_one_nan(tg_small_value(symbol, f) * tg_small_value(scale, tg_small_e4m3()) * tg_read_float(side));
    }
    uint32_t bits = scale == TG_BLOCK_NAN ? TG_ONE_NAN : scale == 0 ? 0x00400000u : scale << 23;
    return tg_one_nan(tg_small_value(symbol, f) * __uint_as_float(bits));
}

/* ---- rotation -------------------------------------------------------------------------------------------------------------- */

TG_DEVICE float tg_rotation_sign(const tg_gpu_unit &u, uint32_t place)
{
    return (u.signs[place / 32] >> place % 32 & 1) != 0 ? -1.0f : 1.0f;
}

/* Sums and differences of a span, by a warp: all rotations in it at once. */
TG_DEVICE void tg_transform(float x[TG_SPAN_LANE], uint32_t rotation)
{
    unsigned lane = threadIdx.x % TG_WARP;
    for (unsigned half = 1; half < TG_WARP; half *= 2) {
        TG_UNROLL
        for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
            float other = __shfl_xor_sync(TG_ALL_LANES, x[k], (int)half);
            x[k] = (lane & half) == 0 ? x[k] + other : other - x[k];
        }
    }
    for (unsigned half = 1; half * TG_WARP < rotation; half *= 2) {
        for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
            if ((k & half) == 0) {
                float a = x[k], b = x[k + half];
                x[k] = a + b;
                x[k + half] = a - b;
            }
        }
    }
}

/* The values of a span that begins at value number `at` of `count`; those at the end that do not fill a rotation stay as they are. */
TG_DEVICE void tg_rotate(float x[TG_SPAN_LANE], const tg_gpu_unit &u, uint32_t at, uint32_t count)
{
    float turned[TG_SPAN_LANE], share = 1 / (float)u.rotation;
    uint32_t whole = count / u.rotation * u.rotation, from = threadIdx.x % TG_WARP;
    for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
        turned[k] = x[k] * share * tg_rotation_sign(u, (from + 32 * k) % u.rotation);
    }
    tg_transform(turned, u.rotation);
    for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
        x[k] = at + from + 32 * k < whole ? turned[k] : x[k];
    }
}

TG_DEVICE void tg_turn_back(float x[TG_SPAN_LANE], const tg_gpu_unit &u, uint32_t at, uint32_t count)
{
    float turned[TG_SPAN_LANE], times = (float)u.rotation, share = 1 / times;
    uint32_t whole = count / u.rotation * u.rotation, from = threadIdx.x % TG_WARP;
    for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
        turned[k] = x[k] * share;
    }
    tg_transform(turned, u.rotation);
    for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
        float value = turned[k] * times * tg_rotation_sign(u, (from + 32 * k) % u.rotation);
        value = value > TG_FLOAT_MAX ? TG_FLOAT_MAX : value;
        value = tg_one_nan(value < -TG_FLOAT_MAX ? -TG_FLOAT_MAX : value);
        x[k] = at + from + 32 * k < whole ? value : x[k];
    }
}

/* ---- spans ------------------------------------------------------------------------------------------------------------------ */

/* The span of a warp: of a dense chunk one after the other in a tile, of a sparse one every so manieth. */
typedef struct tg_gpu_spans {
    uint32_t chunk, from, to, stride;
} tg_gpu_spans;

TG_DEVICE tg_gpu_spans tg_spans_of_warp(const tg_gpu_pass &p, uint32_t blocks_each, bool is_sparse)
{
    uint32_t warp = threadIdx.x / TG_WARP, warps = blockDim.x / TG_WARP;
    tg_gpu_tiles t = tg_tiles_of_block(p, blocks_each, is_sparse);
    if (is_sparse) {
        return {t.chunk, (blockIdx.x % blocks_each * warps + warp) * TG_SPAN, 0xffffffffu,
                blocks_each * warps * TG_SPAN};
    }
    return {t.chunk, t.from + warp * TG_SPAN, t.to, warps * TG_SPAN};
}

#endif
