/* Quantizers for NEON: values of a bucket to symbols, and back through tables in registers. What is less than a vector is left to
 * the scalar kernels. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "kernels/digits.h"
#include "kernels/scalar.h"

#include <string.h>

/* The lower halves of eight lanes of 32 bits. */
TG_NEON_INLINE uint16x8_t lower_halves(uint32x4_t low, uint32x4_t high)
{
    return vuzp1q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
}

/* Bytes of a table in `vector_n`, a constant, vectors. Compilers keep such registers together only as variables of their own, not as
 * part of a structure. */
TG_NEON_INLINE uint8x16_t bytes_at(const uint8x16x4_t *table, uint8x16_t at, int vector_n)
{
    return vector_n == 1   ? vqtbl1q_u8(table->val[0], at)
           : vector_n == 2 ? vqtbl2q_u8((uint8x16x2_t){{table->val[0], table->val[1]}}, at)
                           : vqtbl4q_u8(*table, at);
}

/* ---- thresholds ---------------------------------------------------------------------------------------------------------- */

void tg_neon_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n)
{
    const float32x4_t limit = vdupq_n_f32(threshold);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = 0; k < 16; k += 8) {
            uint32x4_t low = vcgtq_f32(vld1q_f32(values + i + k), limit);
            uint32x4_t high = vcgtq_f32(vld1q_f32(values + i + k + 4), limit);
            vst1q_u16(symbols + i + k, vshrq_n_u16(lower_halves(low, high), 15));
        }
    }
    tg_scalar_mark_above(symbols + i, values + i, threshold, n - i);
}

void tg_neon_signs(uint16_t *symbols, const float *values, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = 0; k < 16; k += 8) {
            uint16x8_t low = vreinterpretq_u16_f32(vld1q_f32(values + i + k));
            uint16x8_t high = vreinterpretq_u16_f32(vld1q_f32(values + i + k + 4));
            vst1q_u16(symbols + i + k, vshrq_n_u16(vuzp2q_u16(low, high), 15));
        }
    }
    tg_scalar_signs(symbols + i, values + i, n - i);
}

/* `vector_n`, a constant, vectors of four values, to hide the latency of the subtractions. A comparison gives -1 where it holds. */
TG_NEON_INLINE void count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n,
                                size_t vector_n)
{
    float32x4_t value[8];
    uint32x4_t counts[8];
    for (size_t v = 0; v < vector_n; v++) {
        value[v] = vld1q_f32(values + 4 * v);
        counts[v] = vdupq_n_u32(0);
    }
    for (uint32_t l = 0; l < limit_n; l++) {
        const float32x4_t limit = vld1q_dup_f32(limits + l);
        for (size_t v = 0; v < vector_n; v++) {
            counts[v] = vsubq_u32(counts[v], vcgtq_f32(value[v], limit));
        }
    }
    for (size_t v = 0; v < vector_n; v += 2) {
        vst1q_u16(symbols + 4 * v, lower_halves(counts[v], counts[v + 1]));
    }
}

void tg_neon_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n, size_t n)
{
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        count_above(symbols + i, values + i, limits, limit_n, 8);
    }
    for (; n - i >= 8; i += 8) {
        count_above(symbols + i, values + i, limits, limit_n, 2);
    }
    tg_scalar_count_above(symbols + i, values + i, limits, limit_n, n - i);
}

/* ---- random rounding ----------------------------------------------------------------------------------------------------- */

/* Whether r x < y (draws.h) is decided in units of 2^-16 of x. Let q be y / x in these units, rounded down, and d the draw. In
 * binary32, by a reciprocal, q may be wrong by one where y / x is close to an integer. So if d is above q + 1, r x is not below y;
 * if d is below q - 1, r x is below y by nearly 2^-16 x or more, which no rounding of r x takes away. Otherwise the draw may not
 * decide, once in some thousand vectors, and the scalar kernel does. This takes for granted that x and 1 / x are normal. */
static bool has_reciprocal(float x)
{
    return x > 0x1p-100f && x < 0x1p100f;
}

#define UNLIKELY(condition) __builtin_expect((condition), 0)

/* Eight quotients. Those that are too large for 16 bits become the largest: no draw is above that. NaN becomes 0. */
TG_NEON_INLINE uint16x8_t quotients(float32x4_t front, float32x4_t back)
{
    return vqmovn_high_u32(vqmovn_u32(vcvtq_u32_f32(front)), vcvtq_u32_f32(back));
}

/* Where r x < y, all ones; *distance is the least distance of a draw from its quotient so far. */
TG_NEON_INLINE uint16x8_t are_below(const uint16_t *upper, uint16x8_t quotient, uint16x8_t *distance)
{
    uint16x8_t draws = vld1q_u16(upper);
    *distance = vminq_u16(*distance, vabdq_u16(draws, quotient));
    return vcltq_u16(draws, quotient);
}

TG_NEON_INLINE bool all_decided(uint16x8_t distance)
{
    return vminvq_u16(distance) > 1;
}

/* The signs of eight values: all ones where negative. */
TG_NEON_INLINE uint16x8_t negative(float32x4_t front, float32x4_t back)
{
    uint16x8_t upper = vuzp2q_u16(vreinterpretq_u16_f32(front), vreinterpretq_u16_f32(back));
    return vcltzq_s16(vreinterpretq_s16_u16(upper));
}

void tg_neon_ternary(uint16_t *symbols, const float *values, const tg_draws *draws, float largest, size_t n)
{
    const float per_unit = 0x1p16f / largest;
    const uint16x8_t one = vdupq_n_u16(1), two = vdupq_n_u16(2);
    const uint16_t *upper = draws->upper;
    size_t i = 0;
    for (; has_reciprocal(largest) && n - i >= 16; i += 16) {
        uint16x8_t distance = vdupq_n_u16(UINT16_MAX);
        for (size_t k = 0; k < 16; k += 8) {
            float32x4_t front = vld1q_f32(values + i + k), back = vld1q_f32(values + i + k + 4);
            uint16x8_t quotient =
                quotients(vmulq_n_f32(vabsq_f32(front), per_unit), vmulq_n_f32(vabsq_f32(back), per_unit));
            uint16x8_t sent = are_below(upper + i + k, quotient, &distance); /* then the value is not 0 */
            vst1q_u16(symbols + i + k, vbslq_u16(sent, vbicq_u16(two, negative(front, back)), one));
        }
        if (UNLIKELY(!all_decided(distance))) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_ternary(symbols + i, values + i, &here, largest, 16);
        }
    }
    tg_draws rest = tg_draws_from(draws, i);
    tg_scalar_ternary(symbols + i, values + i, &rest, largest, n - i);
}

/* Half the value and half the level are added in units of the level: half of it is 2^15. */
void tg_neon_two_sided(uint16_t *symbols, const float *values, const tg_draws *draws, float level, size_t n)
{
    const float per_unit = 0x1p15f / level;
    const float32x4_t half = vdupq_n_f32(0x1p15f);
    const uint16_t *upper = draws->upper;
    size_t i = 0;
    for (; has_reciprocal(level) && n - i >= 16; i += 16) {
        uint16x8_t distance = vdupq_n_u16(UINT16_MAX);
        for (size_t k = 0; k < 16; k += 8) {
            float32x4_t front = vaddq_f32(vmulq_n_f32(vld1q_f32(values + i + k), per_unit), half);
            float32x4_t back = vaddq_f32(vmulq_n_f32(vld1q_f32(values + i + k + 4), per_unit), half);
            uint16x8_t up = are_below(upper + i + k, quotients(front, back), &distance);
            vst1q_u16(symbols + i + k, vshrq_n_u16(up, 15));
        }
        if (UNLIKELY(!all_decided(distance))) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_two_sided(symbols + i, values + i, &here, level, 16);
        }
    }
    tg_draws rest = tg_draws_from(draws, i);
    tg_scalar_two_sided(symbols + i, values + i, &rest, level, n - i);
}

/* The level of four values in units of 2^-16. */
TG_NEON_INLINE uint16x8_t fixed_levels(float32x4_t values, float shift, float factor, float most, bool is_shifted)
{
    float32x4_t at = vabsq_f32(values);
    at = vmulq_n_f32(is_shifted ? vmulq_n_f32(at, shift) : at, factor);
    return vreinterpretq_u16_u32(vcvtq_n_u32_f32(vminnmq_f32(at, vdupq_n_f32(most)), 16));
}

/* Sixteen symbols. A level has at most 16 bits before the point, so its integer and the first 16 bits of its fraction are the halves
 * of one word; the draw decides unless it equals these bits. Returns whether all draws do. */
TG_NEON_INLINE bool levels(uint16_t *symbols, const float *values, const uint16_t *upper, float shift, float factor,
                           uint32_t most, bool is_shifted)
{
    const uint16x8_t middle = vdupq_n_u16((uint16_t)most);
    uint16x8_t unsure = vdupq_n_u16(0);
    for (size_t k = 0; k < 16; k += 8) {
        float32x4_t front = vld1q_f32(values + k), back = vld1q_f32(values + k + 4);
        uint16x8_t low = fixed_levels(front, shift, factor, (float)most, is_shifted);
        uint16x8_t high = fixed_levels(back, shift, factor, (float)most, is_shifted);
        uint16x8_t fraction = vuzp1q_u16(low, high), level = vuzp2q_u16(low, high), draws = vld1q_u16(upper + k);
        level = vsubq_u16(level, vcltq_u16(draws, fraction));
        unsure = vorrq_u16(unsure, vceqq_u16(draws, fraction));
        uint16x8_t plus = vaddq_u16(middle, level), minus = vsubq_u16(middle, level); /* -0 has level 0 */
        vst1q_u16(symbols + k, vbslq_u16(negative(front, back), minus, plus));
    }
    return vmaxvq_u16(unsure) == 0;
}

void tg_neon_levels(uint16_t *symbols, const float *values, const tg_draws *draws, float shift, float factor,
                    uint32_t most, size_t n)
{
    bool is_shifted = shift != 1.0f;
    const uint16_t *upper = draws->upper;
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        bool done = is_shifted ? levels(symbols + i, values + i, upper + i, shift, factor, most, true)
                               : levels(symbols + i, values + i, upper + i, shift, factor, most, false);
        if (UNLIKELY(!done)) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_levels(symbols + i, values + i, &here, shift, factor, most, 16);
        }
    }
    tg_draws rest = tg_draws_from(draws, i);
    tg_scalar_levels(symbols + i, values + i, &rest, shift, factor, most, n - i);
}

/* The draw decides unless it equals the upper 16 bits of the fraction. */
void tg_neon_natural(uint16_t *symbols, const float *values, const tg_draws *draws, size_t n)
{
    const uint16x8_t magnitude = vdupq_n_u16(0x7fff), last = vdupq_n_u16(254 << 7);
    const uint16_t *upper = draws->upper;
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        uint16x8_t unsure = vdupq_n_u16(0);
        for (size_t k = 0; k < 16; k += 8) {
            uint32x4_t front = vreinterpretq_u32_f32(vld1q_f32(values + i + k));
            uint32x4_t back = vreinterpretq_u32_f32(vld1q_f32(values + i + k + 4));
            uint16x8_t fraction = vshrn_high_n_u32(vshrn_n_u32(front, 7), back, 7);
            uint16x8_t top = vuzp2q_u16(vreinterpretq_u16_u32(front), vreinterpretq_u16_u32(back));
            uint16x8_t some = vld1q_u16(upper + i + k);
            uint16x8_t up = vandq_u16(vcltq_u16(some, fraction), vcltq_u16(vandq_u16(top, magnitude), last));
            unsure = vorrq_u16(unsure, vceqq_u16(some, fraction));
            vst1q_u16(symbols + i + k, vsubq_u16(vshrq_n_u16(top, 7), up));
        }
        if (UNLIKELY(vmaxvq_u16(unsure) != 0)) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_natural(symbols + i, values + i, &here, 16);
        }
    }
    tg_draws rest = tg_draws_from(draws, i);
    tg_scalar_natural(symbols + i, values + i, &rest, n - i);
}

enum { INTERVALS = TG_BASE_MAX, FEW = 16 };

/* Intervals between bounds: where they begin, and 2^16 over their widths. False if a width has no reciprocal. Of a width of 0 that is
 * infinity, which gives the right answer: all or nothing. */
static bool intervals_of(float low[INTERVALS], float per_unit[INTERVALS], const float *bounds, uint32_t bound_n)
{
    bool sound = bound_n <= INTERVALS;
    memset(low, 0, FEW * sizeof *low);
    memset(per_unit, 0, FEW * sizeof *per_unit);
    for (uint32_t b = 0; sound && b + 1 < bound_n; b++) {
        float width = bounds[b + 1] - bounds[b];
        low[b] = bounds[b];
        per_unit[b] = 0x1p16f / width;
        sound = has_reciprocal(width) || width == 0;
    }
    return sound;
}

/* Floats of up to FEW intervals are looked up in `vector_n`, a constant, vectors, by bytes. */
TG_NEON_INLINE float32x4_t floats_at(const uint8x16x4_t *table, uint32x4_t at, int vector_n)
{
    uint32x4_t bytes = vmlaq_n_u32(vdupq_n_u32(0x03020100), at, 0x04040404);
    return vreinterpretq_f32_u8(bytes_at(table, vreinterpretq_u8_u32(bytes), vector_n));
}

/* Of more intervals one by one. */
TG_NEON_INLINE float32x4_t load_floats(const float *table, uint32x4_t at)
{
    float32x4_t four = vld1q_dup_f32(table + vgetq_lane_u32(at, 0));
    four = vld1q_lane_f32(table + vgetq_lane_u32(at, 1), four, 1);
    four = vld1q_lane_f32(table + vgetq_lane_u32(at, 2), four, 2);
    return vld1q_lane_f32(table + vgetq_lane_u32(at, 3), four, 3);
}

/* Returns how many values are done. `vector_n` 0: more than FEW intervals. */
TG_NEON_INLINE size_t round_all(uint16_t *symbols, const float *values, const tg_draws *draws, const float *bounds,
                                uint32_t bound_n, float scale, size_t n, const float lows[INTERVALS],
                                const float per_units[INTERVALS], int vector_n)
{
    const uint8x16x4_t low = vld1q_u8_x4((const uint8_t *)lows), per_unit = vld1q_u8_x4((const uint8_t *)per_units);
    const uint16_t *upper = draws->upper;
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        float32x4_t value[4];
        uint32x4_t below[4];
        for (size_t v = 0; v < 4; v++) {
            value[v] = vmulq_n_f32(vld1q_f32(values + i + 4 * v), scale);
            below[v] = vdupq_n_u32(0);
        }
        for (uint32_t b = 1; b + 1 < bound_n; b++) {
            const float32x4_t bound = vld1q_dup_f32(bounds + b);
            for (size_t v = 0; v < 4; v++) {
                below[v] = vsubq_u32(below[v], vcgeq_f32(value[v], bound));
            }
        }
        for (size_t v = 0; v < 4; v++) {
            float32x4_t from = vector_n > 0 ? floats_at(&low, below[v], vector_n) : load_floats(lows, below[v]);
            float32x4_t by = vector_n > 0 ? floats_at(&per_unit, below[v], vector_n) : load_floats(per_units, below[v]);
            value[v] = vmulq_f32(vsubq_f32(value[v], from), by);
        }
        uint16x8_t distance = vdupq_n_u16(UINT16_MAX);
        for (size_t v = 0; v < 4; v += 2) {
            uint16x8_t up = are_below(upper + i + 4 * v, quotients(value[v], value[v + 1]), &distance);
            vst1q_u16(symbols + i + 4 * v, vsubq_u16(lower_halves(below[v], below[v + 1]), up));
        }
        if (UNLIKELY(!all_decided(distance))) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_round_between(symbols + i, values + i, &here, bounds, bound_n, scale, 16);
        }
    }
    return i;
}

void tg_neon_round_between(uint16_t *symbols, const float *values, const tg_draws *draws, const float *bounds,
                           uint32_t bound_n, float scale, size_t n)
{
    float low[INTERVALS], per_unit[INTERVALS];
    size_t i = 0;
    if (intervals_of(low, per_unit, bounds, bound_n)) {
        i = bound_n <= 5         ? round_all(symbols, values, draws, bounds, bound_n, scale, n, low, per_unit, 1)
            : bound_n <= 9       ? round_all(symbols, values, draws, bounds, bound_n, scale, n, low, per_unit, 2)
            : bound_n <= FEW + 1 ? round_all(symbols, values, draws, bounds, bound_n, scale, n, low, per_unit, 4)
                                 : round_all(symbols, values, draws, bounds, bound_n, scale, n, low, per_unit, 0);
    }
    tg_draws rest = tg_draws_from(draws, i);
    tg_scalar_round_between(symbols + i, values + i, &rest, bounds, bound_n, scale, n - i);
}

/* ---- decoding ------------------------------------------------------------------------------------------------------------ */

void tg_neon_powers(float *values, const uint16_t *symbols, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = 0; k < 16; k += 8) {
            uint16x8_t some = vld1q_u16(symbols + i + k);
            vst1q_f32(values + i + k, vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_low_u16(some)), 23)));
            vst1q_f32(values + i + k + 4, vreinterpretq_f32_u32(vshlq_n_u32(vmovl_high_u16(some), 23)));
        }
    }
    tg_scalar_powers(values + i, symbols + i, n - i);
}

/* Up to 64 floats, taken apart: byte b of float f is byte f of plane b, so that sixteen symbols are looked up at once. */
static void take_apart(uint8_t planes[4][64], const float *floats, uint32_t float_n)
{
    for (uint32_t f = 0; f < float_n; f++) {
        uint8_t bytes[sizeof *floats];
        memcpy(bytes, floats + f, sizeof bytes);
        for (int b = 0; b < 4; b++) {
            planes[b][f] = bytes[b];
        }
    }
}

TG_NEON_INLINE void add_four(float *sums, uint16x8_t four)
{
    vst1q_f32(sums, vaddq_f32(vld1q_f32(sums), vreinterpretq_f32_u16(four)));
}

/* Adds sixteen floats, given as the bytes of each plane. */
TG_NEON_INLINE void add_sixteen(float *sums, uint8x16x4_t bytes)
{
    uint8x16x2_t lower = vzipq_u8(bytes.val[0], bytes.val[1]), upper = vzipq_u8(bytes.val[2], bytes.val[3]);
    uint16x8x2_t front = vzipq_u16(vreinterpretq_u16_u8(lower.val[0]), vreinterpretq_u16_u8(upper.val[0]));
    uint16x8x2_t back = vzipq_u16(vreinterpretq_u16_u8(lower.val[1]), vreinterpretq_u16_u8(upper.val[1]));
    add_four(sums, front.val[0]);
    add_four(sums + 4, front.val[1]);
    add_four(sums + 8, back.val[0]);
    add_four(sums + 12, back.val[1]);
}

/* Returns how many symbols it has looked up. `adds` is a constant. */
TG_NEON_INLINE size_t look_up_all(float *out, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n,
                                  int vector_n, bool adds)
{
    uint8_t planes[4][64] = {{0}};
    take_apart(planes, floats, float_n);
    const uint8x16x4_t first = vld1q_u8_x4(planes[0]), second = vld1q_u8_x4(planes[1]), third = vld1q_u8_x4(planes[2]),
                       fourth = vld1q_u8_x4(planes[3]);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        uint8x16_t low = vreinterpretq_u8_u16(vld1q_u16(symbols + i));
        uint8x16_t at = vuzp1q_u8(low, vreinterpretq_u8_u16(vld1q_u16(symbols + i + 8)));
        const uint8x16x4_t found = {{bytes_at(&first, at, vector_n), bytes_at(&second, at, vector_n),
                                     bytes_at(&third, at, vector_n), bytes_at(&fourth, at, vector_n)}};
        if (adds) {
            add_sixteen(out + i, found);
        } else {
            vst4q_u8((uint8_t *)(out + i), found);
        }
    }
    return i;
}

void tg_neon_look_up(float *values, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n)
{
    size_t i = float_n <= 16   ? look_up_all(values, symbols, floats, float_n, n, 1, false)
               : float_n <= 32 ? look_up_all(values, symbols, floats, float_n, n, 2, false)
               : float_n <= 64 ? look_up_all(values, symbols, floats, float_n, n, 4, false)
                               : 0;
    tg_scalar_look_up(values + i, symbols + i, floats, float_n, n - i);
}

void tg_neon_look_up_add(float *sums, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n)
{
    size_t i = float_n <= 16   ? look_up_all(sums, symbols, floats, float_n, n, 1, true)
               : float_n <= 32 ? look_up_all(sums, symbols, floats, float_n, n, 2, true)
               : float_n <= 64 ? look_up_all(sums, symbols, floats, float_n, n, 4, true)
                               : 0;
    tg_scalar_look_up_add(sums + i, symbols + i, floats, float_n, n - i);
}
#endif
