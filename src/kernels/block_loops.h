/* Formats with a scale for every few values, in plain C that compilers vectorise; see loops.h.
 *
 * Rounding to nearest adds 2^23 times the distance q of neighbouring values, so that the sum of a float loses what is less than q:
 * its last bits are the magnitude over q. Where the draws of random rounding do not decide a value of a block, the block is done
 * again with all random bits. */
#ifndef TG_KERNELS_BLOCK_LOOPS_H
#define TG_KERNELS_BLOCK_LOOPS_H

#include "base/half.h"
#include "kernels/blocks.h"
#include "kernels/kernels.h"

#include <float.h>
#include <math.h>

#define TG_BLOCK_INLINE TG_TARGET static inline __attribute__((always_inline))

enum { NAN_BITS = 0x7fc00000, KEY_INF = 0x7f800000 };

/* ---- elements ------------------------------------------------------------------------------------------------------------ */

TG_BLOCK_INLINE uint32_t largest_in(const float *values, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t key = tg_float_bits(values[i]) & 0x7fffffffu;
        largest = key > largest ? key : largest;
    }
    return largest;
}

/* The exponent of a magnitude's binade, biased by 127, or that of subnormal values. */
TG_BLOCK_INLINE uint32_t binade_of(float magnitude, uint32_t least)
{
    uint32_t exponent = tg_float_bits(magnitude) >> 23;
    return exponent > least ? exponent : least;
}

/* The symbol of the value nearest to a magnitude of at most f->largest; ties to even. */
TG_BLOCK_INLINE uint32_t nearest_to(float magnitude, const tg_block_format *f)
{
    uint32_t least = 128 - f->bias, binade = binade_of(magnitude, least);
    uint32_t more = (binade + 23 - f->fraction_bits) << 23;
    uint32_t sum = tg_float_bits(magnitude + tg_bits_float(more));
    return sum - more + ((binade - least) << f->fraction_bits);
}

/* A magnitude over the distance of the values around it. */
TG_BLOCK_INLINE float in_steps(float magnitude, uint32_t binade, const tg_block_format *f)
{
    return magnitude * tg_bits_float((254 + f->fraction_bits - binade) << 23);
}

/* All bits where a condition holds: masks choose, since compilers do not vectorise branches. */
TG_BLOCK_INLINE uint32_t where(bool condition)
{
    return 0u - (condition ? 1u : 0u);
}

TG_BLOCK_INLINE float value_of(uint32_t symbol, const tg_block_format *f)
{
    uint32_t m = symbol & (f->sign - 1), shift = 23 - f->fraction_bits;
    float unit = tg_bits_float((128 - f->bias - f->fraction_bits) << 23);
    uint32_t normal = (m << shift) + ((127 - f->bias) << 23), small = tg_float_bits((float)(int32_t)m * unit);
    uint32_t is_small = where(m >> f->fraction_bits == 0), is_special = where(m > f->most);
    uint32_t bits = (small & is_small) | (normal & ~is_small);
    uint32_t special = (uint32_t)NAN_BITS ^ (((uint32_t)NAN_BITS ^ (uint32_t)KEY_INF) & where(m == f->infinity));
    bits = (special & is_special) | (bits & ~is_special);
    return tg_bits_float(bits | (symbol & f->sign) * (0x80000000u / f->sign));
}

/* The result of a decoder: NaNs are alike. */
TG_BLOCK_INLINE float settled(float value)
{
    uint32_t bits = tg_float_bits(value), is_nan = where((bits & 0x7fffffffu) > (uint32_t)KEY_INF);
    return tg_bits_float((bits & ~is_nan) | ((uint32_t)NAN_BITS & is_nan));
}

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

TG_BLOCK_INLINE void round_nearest(uint16_t *symbols, const float *values, const float *magnitudes,
                                   const tg_block_format *f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t sign = tg_float_bits(values[i]) >> 31 ? f->sign : 0;
        symbols[i] = (uint16_t)(nearest_to(magnitudes[i], f) | sign);
    }
}

/* By draws alone; returns whether they did not decide some value. */
TG_BLOCK_INLINE bool round_drawn(uint16_t *symbols, const float *values, const float *magnitudes, const uint16_t *upper,
                                 const tg_block_format *f, size_t n)
{
    uint32_t least = 128 - f->bias, open = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t binade = binade_of(magnitudes[i], least), sign = tg_float_bits(values[i]) >> 31 ? f->sign : 0;
        float steps = in_steps(magnitudes[i], binade, f);
        int32_t below = (int32_t)steps;
        float rest = steps - (float)below, low = (float)(int32_t)upper[i] * 0x1p-16f, high = low + 0x1p-16f;
        uint32_t is_certain = high < rest ? 1 : 0, is_possible = low < rest ? 1 : 0;
        open |= is_certain ^ is_possible;
        symbols[i] = (uint16_t)(((uint32_t)below + is_certain + ((binade - least) << f->fraction_bits)) | sign);
    }
    return open != 0;
}

static inline void round_settled(uint16_t *symbols, const float *values, const float *magnitudes, const tg_draws *draws,
                                 const tg_block_format *f, size_t n)
{
    uint32_t least = 128 - f->bias;
    for (size_t i = 0; i < n; i++) {
        uint32_t binade = tg_float_bits(magnitudes[i]) >> 23, sign = tg_float_bits(values[i]) >> 31 ? f->sign : 0;
        binade = binade > least ? binade : least;
        float steps = magnitudes[i] * tg_bits_float((254 + f->fraction_bits - binade) << 23);
        uint32_t below = (uint32_t)steps, up = tg_draw_below(draws, i, 1, steps - (float)below) ? 1 : 0;
        symbols[i] = (uint16_t)((below + up + ((binade - least) << f->fraction_bits)) | sign);
    }
}

/* Values whose magnitudes over the scale are `magnitudes`. */
TG_BLOCK_INLINE void round_block(uint16_t *symbols, const float *values, const float *magnitudes, const tg_draws *draws,
                                 const tg_block_format *f, size_t n)
{
    if (draws == NULL) {
        round_nearest(symbols, values, magnitudes, f, n);
    } else if (round_drawn(symbols, values, magnitudes, draws->upper, f, n)) {
        round_settled(symbols, values, magnitudes, draws, f, n);
    }
}

/* ---- OCP MX -------------------------------------------------------------------------------------------------------------- */

/* A power of two for values whose largest has this key, biased by 127. Random rounding is only without bias if no value is beyond
 * the largest of the format; nearest rounding lets it saturate. */
TG_BLOCK_INLINE uint32_t mx_scale(uint32_t key, bool is_random, const tg_block_format *f)
{
    uint32_t exponent = (key >> 23) + (is_random && (key & 0x7fffffu) > f->fraction ? 1 : 0);
    exponent = exponent > f->exponent ? exponent - f->exponent : 0;
    return exponent < 254 - f->exponent ? exponent : 254 - f->exponent;
}

TG_BLOCK_INLINE void mx_block(uint16_t *symbols, uint8_t *scale, const float *values, const tg_draws *draws,
                              const tg_block_format *f, size_t n)
{
    uint32_t key = largest_in(values, n), exponent = mx_scale(key, draws != NULL, f);
    float magnitudes[TG_MX_BLOCK_MAX], inverse = tg_bits_float((254 - exponent) << 23);
    *scale = (uint8_t)(key >= (uint32_t)KEY_INF ? TG_MX_NAN : exponent);
    if (key >= (uint32_t)KEY_INF) {
        for (size_t i = 0; i < n; i++) {
            symbols[i] = 0;
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float magnitude = fabsf(values[i]) * inverse;
        magnitudes[i] = magnitude < f->largest ? magnitude : f->largest;
    }
    round_block(symbols, values, magnitudes, draws, f, n);
}

TG_TARGET static void mx_encode(uint16_t *symbols, uint8_t *scales, const float *values, const tg_draws *draws,
                                const tg_block_format *f, uint32_t block, size_t n)
{
    const tg_block_format own = *f;
    tg_draws drawn = {0};
    for (size_t i = 0, m = 0; i < n; i += m, scales++) {
        const tg_draws *of_block = draws == NULL ? NULL : &drawn;
        m = n - i < block ? n - i : block;
        if (draws != NULL) {
            drawn = tg_draws_from(draws, i);
        }
        if (m == TG_MX_BLOCK) { /* a number that the compiler knows */
            mx_block(symbols + i, scales, values + i, of_block, &own, TG_MX_BLOCK);
        } else {
            mx_block(symbols + i, scales, values + i, of_block, &own, m);
        }
    }
}

TG_BLOCK_INLINE void scale_values(float *values, const uint16_t *symbols, float scale, const tg_block_format *f,
                                  size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = settled(value_of(symbols[i], f) * scale);
    }
}

TG_TARGET static void mx_decode(float *values, const uint16_t *symbols, const uint8_t *scales, const tg_block_format *f,
                                uint32_t block, size_t n)
{
    const tg_block_format own = *f;
    for (size_t i = 0, m = 0; i < n; i += m, scales++) {
        uint32_t exponent = *scales;
        m = n - i < block ? n - i : block;
        uint32_t bits = exponent == TG_MX_NAN ? (uint32_t)NAN_BITS : exponent == 0 ? 0x00400000u : exponent << 23;
        if (m == TG_MX_BLOCK) {
            scale_values(values + i, symbols + i, tg_bits_float(bits), &own, TG_MX_BLOCK);
        } else {
            scale_values(values + i, symbols + i, tg_bits_float(bits), &own, m);
        }
    }
}

/* ---- NVFP4 --------------------------------------------------------------------------------------------------------------- */

/* The e4m3 that a quotient becomes: nearest, or the next that is not below it. */
TG_BLOCK_INLINE uint32_t nv_scale(float quotient, bool is_random)
{
    float limited = quotient < tg_e4m3.largest ? quotient : tg_e4m3.largest;
    uint32_t symbol = nearest_to(limited, &tg_e4m3);
    return symbol + (is_random && value_of(symbol, &tg_e4m3) < limited ? 1 : 0);
}

TG_BLOCK_INLINE void nv_block(uint16_t *symbols, uint8_t *scale, const float *values, const tg_draws *draws,
                              float whole, size_t n)
{
    const tg_block_format f = tg_e2m1;
    float largest = tg_bits_float(largest_in(values, n)), magnitudes[TG_NV_BLOCK];
    uint32_t symbol = whole > 0 ? nv_scale(largest / (6 * whole), draws != NULL) : 0;
    float step = whole > 0 ? value_of(symbol, &tg_e4m3) * whole : 0;
    *scale = (uint8_t)symbol;
    for (size_t i = 0; i < n; i++) {
        float magnitude = fabsf(values[i]) / (step > 0 ? step : 1);
        magnitude = magnitude < f.largest ? magnitude : f.largest;
        magnitudes[i] = step > 0 ? magnitude : 0;
    }
    round_block(symbols, values, magnitudes, draws, &f, n);
}

TG_TARGET static void nv_encode(uint16_t *symbols, uint8_t *scales, const float *values, const tg_draws *draws,
                                float whole, size_t n)
{
    tg_draws of_block = {0};
    for (size_t i = 0; i < n; i += TG_NV_BLOCK) {
        if (isnan(whole)) {
            scales[i / TG_NV_BLOCK] = 0;
            for (size_t j = i; j < n && j < i + TG_NV_BLOCK; j++) {
                symbols[j] = 0;
            }
            continue;
        }
        if (draws != NULL) {
            of_block = tg_draws_from(draws, i);
        }
        if (n - i >= TG_NV_BLOCK) {
            nv_block(symbols + i, scales + i / TG_NV_BLOCK, values + i, draws == NULL ? NULL : &of_block, whole,
                     TG_NV_BLOCK);
        } else {
            nv_block(symbols + i, scales + i / TG_NV_BLOCK, values + i, draws == NULL ? NULL : &of_block, whole, n - i);
        }
    }
}

TG_TARGET static void nv_decode(float *values, const uint16_t *symbols, const uint8_t *scales, float whole, size_t n)
{
    const tg_block_format f = tg_e2m1;
    for (size_t i = 0; i < n; i += TG_NV_BLOCK) {
        float scale = value_of(scales[i / TG_NV_BLOCK], &tg_e4m3);
        size_t m = n - i < TG_NV_BLOCK ? n - i : TG_NV_BLOCK;
        for (size_t j = i; j < i + m; j++) {
            values[j] = settled(value_of(symbols[j], &f) * scale * whole); /* the first product is exact */
        }
    }
}

/* ---- rotation ------------------------------------------------------------------------------------------------------------ */

/* Sums and differences of values `half` apart, which the compiler knows. */
TG_BLOCK_INLINE void butterflies(float *x, uint32_t half, uint32_t rotation)
{
    for (uint32_t from = 0; from < rotation; from += 2 * half) {
        for (uint32_t i = from; i < from + half; i++) {
            float a = x[i], b = x[i + half];
            x[i] = a + b;
            x[i + half] = a - b;
        }
    }
}

/* A Hadamard transform of one block in place, without a factor. */
TG_BLOCK_INLINE void transform(float *x, uint32_t rotation)
{
    butterflies(x, 1, rotation);
    butterflies(x, 2, rotation);
    butterflies(x, 4, rotation);
    butterflies(x, 8, rotation);
    butterflies(x, 16, rotation);
    if (rotation > 32) {
        butterflies(x, 32, rotation);
    }
    if (rotation > 64) {
        butterflies(x, 64, rotation);
    }
}

TG_TARGET static void rotate(float *out, const float *values, const float *signs, uint32_t rotation, size_t n)
{
    const float share = 1 / (float)(int32_t)rotation;
    for (size_t at = 0; at < n; at += rotation) {
        for (uint32_t i = 0; i < rotation; i++) {
            out[at + i] = values[at + i] * share * signs[i];
        }
        transform(out + at, rotation);
    }
}

TG_TARGET static void turn_back(float *values, const float *signs, uint32_t rotation, size_t n)
{
    const float times = (float)(int32_t)rotation, share = 1 / times;
    for (size_t at = 0; at < n; at += rotation) {
        for (uint32_t i = 0; i < rotation; i++) {
            values[at + i] *= share;
        }
        transform(values + at, rotation);
        for (uint32_t i = 0; i < rotation; i++) {
            float value = values[at + i] * times * signs[i];
            value = value > FLT_MAX ? FLT_MAX : value;
            values[at + i] = settled(value < -FLT_MAX ? -FLT_MAX : value);
        }
    }
}

#define TG_BLOCK_KERNELS                                                                                \
    {                                                                                                   \
        .mx_encode = mx_encode, .mx_decode = mx_decode, .nv_encode = nv_encode, .nv_decode = nv_decode, \
        .rotate = rotate, .turn_back = turn_back                                                        \
    }

#endif
