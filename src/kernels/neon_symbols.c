/* Quantizers for NEON: values of a bucket to symbols, and back through tables in registers. What is less than a vector is left to
 * the scalar kernels. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "kernels/scalar.h"

/* The lower halves of eight lanes of 32 bits. */
TG_NEON_INLINE uint16x8_t lower_halves(uint32x4_t low, uint32x4_t high)
{
    return vuzp1q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
}

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

void tg_neon_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n)
{
    const float32x4_t limit = vdupq_n_f32(threshold);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = i; k < i + 16; k += 8) {
            uint32x4_t low = vcgtq_f32(vld1q_f32(values + k), limit);
            uint32x4_t high = vcgtq_f32(vld1q_f32(values + k + 4), limit);
            vst1q_u16(symbols + k, vshrq_n_u16(lower_halves(low, high), 15));
        }
    }
    tg_scalar_mark_above(symbols + i, values + i, threshold, n - i);
}

void tg_neon_signs(uint16_t *symbols, const float *values, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = i; k < i + 16; k += 8) {
            uint16x8_t low = vreinterpretq_u16_f32(vld1q_f32(values + k));
            uint16x8_t high = vreinterpretq_u16_f32(vld1q_f32(values + k + 4));
            vst1q_u16(symbols + k, vshrq_n_u16(vuzp2q_u16(low, high), 15));
        }
    }
    tg_scalar_signs(symbols + i, values + i, n - i);
}

/* Sixteen values, to hide the latency of the subtractions. A comparison gives -1 where it holds. */
void tg_neon_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        const float32x4_t a = vld1q_f32(values + i), b = vld1q_f32(values + i + 4), c = vld1q_f32(values + i + 8),
                          d = vld1q_f32(values + i + 12);
        uint32x4_t in_a = vdupq_n_u32(0), in_b = in_a, in_c = in_a, in_d = in_a;
        for (uint32_t l = 0; l < limit_n; l++) {
            const float32x4_t limit = vld1q_dup_f32(limits + l);
            in_a = vsubq_u32(in_a, vcgtq_f32(a, limit));
            in_b = vsubq_u32(in_b, vcgtq_f32(b, limit));
            in_c = vsubq_u32(in_c, vcgtq_f32(c, limit));
            in_d = vsubq_u32(in_d, vcgtq_f32(d, limit));
        }
        vst1q_u16(symbols + i, lower_halves(in_a, in_b));
        vst1q_u16(symbols + i + 8, lower_halves(in_c, in_d));
    }
    tg_scalar_count_above(symbols + i, values + i, limits, limit_n, n - i);
}

/* ---- decoding ------------------------------------------------------------------------------------------------------------ */

void tg_neon_powers(float *values, const uint16_t *symbols, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = i; k < i + 16; k += 8) {
            uint16x8_t some = vld1q_u16(symbols + k);
            vst1q_f32(values + k, vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_low_u16(some)), 23)));
            vst1q_f32(values + k + 4, vreinterpretq_f32_u32(vshlq_n_u32(vmovl_high_u16(some), 23)));
        }
    }
    tg_scalar_powers(values + i, symbols + i, n - i);
}

/* Up to 64 floats, taken apart: byte b of float f is byte f of plane b, so that sixteen symbols are looked up at once. */
typedef struct table {
    uint8x16x4_t plane[4];
} table;

TG_NEON_INLINE table table_of(const float *floats, uint32_t float_n)
{
    uint8_t planes[4][64] = {{0}};
    for (uint32_t f = 0; f < float_n; f++) {
        uint8x8_t bytes = vreinterpret_u8_f32(vdup_n_f32(floats[f]));
        planes[0][f] = vget_lane_u8(bytes, 0);
        planes[1][f] = vget_lane_u8(bytes, 1);
        planes[2][f] = vget_lane_u8(bytes, 2);
        planes[3][f] = vget_lane_u8(bytes, 3);
    }
    table t;
    for (int b = 0; b < 4; b++) {
        t.plane[b] = vld1q_u8_x4(planes[b]);
    }
    return t;
}

/* `vector_n`, a constant, is how many vectors hold all bytes of a plane. */
TG_NEON_INLINE uint8x16_t bytes_at(const uint8x16x4_t *plane, uint8x16_t at, int vector_n)
{
    return vector_n == 1   ? vqtbl1q_u8(plane->val[0], at)
           : vector_n == 2 ? vqtbl2q_u8((uint8x16x2_t){{plane->val[0], plane->val[1]}}, at)
                           : vqtbl4q_u8(*plane, at);
}

TG_NEON_INLINE void add_four(float *sums, uint16x8_t four)
{
    vst1q_f32(sums, vaddq_f32(vld1q_f32(sums), vreinterpretq_f32_u16(four)));
}

/* Sixteen symbols. `adds` is a constant. */
TG_NEON_INLINE void look_up(float *out, const uint16_t *symbols, const table *t, int vector_n, bool adds)
{
    uint8x16_t at = vuzp1q_u8(vreinterpretq_u8_u16(vld1q_u16(symbols)), vreinterpretq_u8_u16(vld1q_u16(symbols + 8)));
    const uint8x16x4_t found = {{bytes_at(&t->plane[0], at, vector_n), bytes_at(&t->plane[1], at, vector_n),
                                 bytes_at(&t->plane[2], at, vector_n), bytes_at(&t->plane[3], at, vector_n)}};
    if (!adds) {
        vst4q_u8((uint8_t *)out, found);
        return;
    }
    uint8x16x2_t lower = vzipq_u8(found.val[0], found.val[1]), upper = vzipq_u8(found.val[2], found.val[3]);
    uint16x8x2_t front = vzipq_u16(vreinterpretq_u16_u8(lower.val[0]), vreinterpretq_u16_u8(upper.val[0]));
    uint16x8x2_t back = vzipq_u16(vreinterpretq_u16_u8(lower.val[1]), vreinterpretq_u16_u8(upper.val[1]));
    add_four(out, front.val[0]);
    add_four(out + 4, front.val[1]);
    add_four(out + 8, back.val[0]);
    add_four(out + 12, back.val[1]);
}

/* Returns how many symbols it has looked up. */
TG_NEON_INLINE size_t look_up_all(float *out, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n,
                                  int vector_n, bool adds)
{
    const table t = table_of(floats, float_n);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        look_up(out + i, symbols + i, &t, vector_n, adds);
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
