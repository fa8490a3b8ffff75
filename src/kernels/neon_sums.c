/* Sums over leaves and buckets for NEON. A leaf has 32 partial sums, of which sixteen are in registers at a time where there are two
 * kinds of them. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "kernels/scalar.h"

#include <string.h>

enum { PARTS = TG_SUM_PARTS, HALF = PARTS / 2 };

/* Half of the partial sums of a leaf, in binary64. */
typedef struct parts {
    float64x2_t of[HALF / 2];
} parts;

TG_NEON_INLINE parts no_parts(void)
{
    const float64x2_t zero = vdupq_n_f64(0);
    return (parts){{zero, zero, zero, zero, zero, zero, zero, zero}};
}

/* By halves: 32 to 2 as whole vectors, then inside one. */
TG_NEON_INLINE double fold(parts lower, parts upper)
{
    for (int v = 0; v < 8; v++) {
        lower.of[v] = vaddq_f64(lower.of[v], upper.of[v]);
    }
    for (int half = 4; half > 0; half /= 2) {
        for (int v = 0; v < half; v++) {
            lower.of[v] = vaddq_f64(lower.of[v], lower.of[v + half]);
        }
    }
    return vaddvq_f64(lower.of[0]);
}

TG_NEON_INLINE void add(parts *p, const float *values)
{
    for (int v = 0; v < 4; v++) {
        float32x4_t some = vabsq_f32(vld1q_f32(values + 4 * v));
        p->of[2 * v] = vaddq_f64(p->of[2 * v], vcvt_f64_f32(vget_low_f32(some)));
        p->of[2 * v + 1] = vaddq_f64(p->of[2 * v + 1], vcvt_high_f64_f32(some));
    }
}

/* The square of a float is exact in binary64, so a fused operation rounds as two operations do. */
TG_NEON_INLINE void add_squares(parts *p, const float *values)
{
    for (int v = 0; v < 4; v++) {
        float32x4_t some = vld1q_f32(values + 4 * v);
        float64x2_t front = vcvt_f64_f32(vget_low_f32(some)), back = vcvt_high_f64_f32(some);
        p->of[2 * v] = vfmaq_f64(p->of[2 * v], front, front);
        p->of[2 * v + 1] = vfmaq_f64(p->of[2 * v + 1], back, back);
    }
}

/* The values after the last whole PARTS, with zeros up to there: these change no sum. */
TG_NEON_INLINE void load_rest(float rest[PARTS], const float *values, size_t n)
{
    memset(rest, 0, PARTS * sizeof *rest);
    memcpy(rest, values, n * sizeof *rest);
}

double tg_neon_magnitudes(const float *values, size_t n)
{
    parts lower = no_parts(), upper = no_parts();
    size_t i = 0;
    for (; n - i >= PARTS; i += PARTS) {
        add(&lower, values + i);
        add(&upper, values + i + HALF);
    }
    if (i < n) {
        float rest[PARTS];
        load_rest(rest, values + i, n - i);
        add(&lower, rest);
        add(&upper, rest + HALF);
    }
    return fold(lower, upper);
}

double tg_neon_squares(const float *values, size_t n)
{
    parts lower = no_parts(), upper = no_parts();
    size_t i = 0;
    for (; n - i >= PARTS; i += PARTS) {
        add_squares(&lower, values + i);
        add_squares(&upper, values + i + HALF);
    }
    if (i < n) {
        float rest[PARTS];
        load_rest(rest, values + i, n - i);
        add_squares(&lower, rest);
        add_squares(&upper, rest + HALF);
    }
    return fold(lower, upper);
}

/* Sixteen values of every 32, to half of the partial sums. Returns how many are 0. */
TG_NEON_INLINE size_t add_moments(parts *magnitudes, parts *squares, const float *values, size_t n, const float *rest)
{
    uint32x4_t zeros = vdupq_n_u32(0);
    for (size_t i = 0; i <= n; i += PARTS) {
        const float *here = i < n ? values + i : rest;
        for (int v = 0; v < 4; v++) {
            float32x4_t some = vabsq_f32(vld1q_f32(here + 4 * v));
            float64x2_t front = vcvt_f64_f32(vget_low_f32(some)), back = vcvt_high_f64_f32(some);
            magnitudes->of[2 * v] = vaddq_f64(magnitudes->of[2 * v], front);
            magnitudes->of[2 * v + 1] = vaddq_f64(magnitudes->of[2 * v + 1], back);
            squares->of[2 * v] = vfmaq_f64(squares->of[2 * v], front, front);
            squares->of[2 * v + 1] = vfmaq_f64(squares->of[2 * v + 1], back, back);
            zeros = vsubq_u32(zeros, vceqzq_f32(some));
        }
    }
    return vaddvq_u32(zeros);
}

size_t tg_neon_moments(double of[2], const float *values, size_t n)
{
    parts magnitudes[2] = {no_parts(), no_parts()}, squares[2] = {no_parts(), no_parts()};
    size_t whole = n - n % PARTS;
    const float *second = whole > 0 ? values + HALF : values;
    float rest[PARTS];
    load_rest(rest, values + whole, n - whole);
    size_t zeros = add_moments(&magnitudes[0], &squares[0], values, whole, rest);
    zeros += add_moments(&magnitudes[1], &squares[1], second, whole, rest + HALF);
    of[0] = fold(magnitudes[0], magnitudes[1]);
    of[1] = fold(squares[0], squares[1]);
    return whole + PARTS - zeros;
}

/* Half of the partial sums of the values above a threshold, and of the others, in binary32. */
typedef struct sides {
    float32x4_t below[HALF / 4], above[HALF / 4];
} sides;

TG_NEON_INLINE parts widen(const float32x4_t of[HALF / 4])
{
    parts p;
    for (int v = 0; v < HALF / 4; v++) {
        p.of[2 * v] = vcvt_f64_f32(vget_low_f32(of[v]));
        p.of[2 * v + 1] = vcvt_high_f64_f32(of[v]);
    }
    return p;
}

/* Adds up to sixteen values that are left, one by one. */
static size_t add_few(sides *s, const float *values, float threshold, float scale, size_t n)
{
    float of[2][HALF];
    size_t count = 0;
    memcpy(of[0], s->below, sizeof of[0]);
    memcpy(of[1], s->above, sizeof of[1]);
    for (size_t i = 0; i < n && i < HALF; i++) {
        bool is_above = values[i] > threshold;
        of[is_above][i] += values[i] * scale;
        count += is_above ? 1 : 0;
    }
    memcpy(s->below, of[0], sizeof of[0]);
    memcpy(s->above, of[1], sizeof of[1]);
    return count;
}

/* Sixteen values of every 32. Zeros are added to the sums of the other side, which is exact. Returns how many values are above. */
TG_NEON_INLINE size_t add_around(sides *s, const float *values, float threshold, float scale, size_t n)
{
    const float32x4_t limit = vdupq_n_f32(threshold), zero = vdupq_n_f32(0);
    float32x4_t below[4] = {zero, zero, zero, zero}, above[4] = {zero, zero, zero, zero};
    uint32x4_t counts = vdupq_n_u32(0);
    for (size_t i = 0; i < n; i += PARTS) {
        for (int v = 0; v < 4; v++) {
            float32x4_t some = vld1q_f32(values + i + 4 * v);
            uint32x4_t scaled = vreinterpretq_u32_f32(vmulq_n_f32(some, scale)), is_above = vcgtq_f32(some, limit);
            above[v] = vaddq_f32(above[v], vreinterpretq_f32_u32(vandq_u32(scaled, is_above)));
            below[v] = vaddq_f32(below[v], vreinterpretq_f32_u32(vbicq_u32(scaled, is_above)));
            counts = vsubq_u32(counts, is_above);
        }
    }
    for (int v = 0; v < 4; v++) {
        s->below[v] = below[v];
        s->above[v] = above[v];
    }
    return vaddvq_u32(counts);
}

size_t tg_neon_sums_around(double around[2], const float *values, float threshold, float scale, size_t n)
{
    sides lower, upper;
    size_t whole = n - n % PARTS, left = n - whole;
    const float *second = whole > 0 ? values + HALF : values;
    size_t count = add_around(&lower, values, threshold, scale, whole);
    count += add_around(&upper, second, threshold, scale, whole);
    if (left > 0) {
        count += add_few(&lower, values + whole, threshold, scale, left);
    }
    if (left > HALF) {
        count += add_few(&upper, values + whole + HALF, threshold, scale, left - HALF);
    }
    around[0] = fold(widen(lower.below), widen(upper.below));
    around[1] = fold(widen(lower.above), widen(upper.above));
    return count;
}

size_t tg_neon_sum_above(double *sum, const float *values, float threshold, size_t n)
{
    const float32x4_t limit = vdupq_n_f32(threshold);
    parts p = no_parts();
    uint32x4_t counts = vdupq_n_u32(0); /* of fewer than 2^32 values, as a bucket has */
    size_t i = 0;
    for (; n - i >= HALF; i += HALF) {
        for (int v = 0; v < 4; v++) {
            float32x4_t magnitude = vabsq_f32(vld1q_f32(values + i + 4 * v));
            uint32x4_t above = vcgtq_f32(magnitude, limit);
            float32x4_t some = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(magnitude), above));
            p.of[2 * v] = vaddq_f64(p.of[2 * v], vcvt_f64_f32(vget_low_f32(some)));
            p.of[2 * v + 1] = vaddq_f64(p.of[2 * v + 1], vcvt_high_f64_f32(some));
            counts = vsubq_u32(counts, above);
        }
    }
    *sum += fold(p, no_parts());
    return vaddlvq_u32(counts) + tg_scalar_sum_above(sum, values + i, threshold, n - i);
}
#endif
