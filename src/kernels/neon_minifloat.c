/* Rounding to small floats for NEON, as minifloat_loops.h does it. A fused multiplication and subtraction rounds once, so its sign is
 * that of the exact difference: no binary64 is needed. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "kernels/minifloat.h"

#include <math.h>

typedef struct rounding {
    float up, inverse, step; /* `step` and values are scaled by `up`, a power of two, so that no difference becomes 0 */
    float unit, per_unit;    /* the distance of subnormal values */
    int32x4_t first, half, normal, last, right, left;
} rounding;

/* Four symbols, less the number of zero. */
TG_NEON_INLINE int32x4_t round_four(const float *values, const rounding *r)
{
    float32x4_t value = vmulq_n_f32(vld1q_f32(values), r->up), quotient = vmulq_n_f32(vabsq_f32(value), r->inverse);
    uint32x4_t upper = vshlq_u32(vreinterpretq_u32_f32(quotient), r->right);
    int32x4_t number = vsubq_s32(vreinterpretq_s32_u32(upper), r->first);
    uint32x4_t is_small = vcltq_s32(number, r->normal);
    number = vbslq_s32(is_small, vcvtq_s32_f32(vmulq_n_f32(quotient, r->per_unit)), number);
    number = vminq_s32(number, r->last);
    float32x4_t middle = vreinterpretq_f32_s32(vaddq_s32(vshlq_s32(number, r->left), r->half));
    float32x4_t small = vmulq_n_f32(vaddq_f32(vcvtq_f32_s32(number), vdupq_n_f32(0.5f)), r->unit);
    middle = vbslq_f32(vdupq_n_u32(0x7fffffff), vbslq_f32(is_small, small, middle), value); /* with the value's sign */
    uint32x4_t is_above = vcgtzq_f32(vfmsq_n_f32(value, middle, r->step));
    number = veorq_s32(number, vshrq_n_s32(vreinterpretq_s32_f32(value), 31));
    return vsubq_s32(number, vreinterpretq_s32_u32(is_above));
}

void tg_neon_minifloats(uint16_t *symbols, const float *values, float step, tg_float_format f, size_t n)
{
    const float unit = ldexpf(1, 1 - (int)f.bias - (int)f.fraction_bits), up = step < 0x1p-64f ? 0x1p96f : 1;
    const int32_t shift = 23 - (int32_t)f.fraction_bits, first = (127 - (int32_t)f.bias) << f.fraction_bits;
    const rounding r = {.up = up,
                        .inverse = 1 / (step * up),
                        .step = step * up,
                        .unit = unit,
                        .per_unit = 1 / unit,
                        .first = vdupq_n_s32(first),
                        .half = vdupq_n_s32((first << shift) + (1 << (shift - 1))),
                        .normal = vdupq_n_s32(1 << f.fraction_bits),
                        .last = vdupq_n_s32((int32_t)f.largest - 1),
                        .right = vdupq_n_s32(-shift),
                        .left = vdupq_n_s32(shift)};
    const int16x8_t zero = vdupq_n_s16((int16_t)f.largest);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        int16x8_t eight = vuzp1q_s16(vreinterpretq_s16_s32(round_four(values + i, &r)),
                                     vreinterpretq_s16_s32(round_four(values + i + 4, &r)));
        vst1q_u16(symbols + i, vreinterpretq_u16_s16(vaddq_s16(eight, zero)));
    }
    tg_kernels_scalar.symbols.minifloats(symbols + i, values + i, step, f, n - i);
}
#endif
