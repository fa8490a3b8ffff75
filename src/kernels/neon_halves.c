/* Conversion to and from fp16 for NEON. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)

/* The instruction makes infinities of values beyond the range; these are replaced by the largest value before. */
static uint16x4_t narrow(const float *values)
{
    const uint32x4_t rest = vdupq_n_u32(0x7fffffff), largest = vdupq_n_u32(0x477fe000);
    const uint32x4_t infinity = vdupq_n_u32(0x7f800000);
    uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(values));
    uint32x4_t magnitude = vandq_u32(bits, rest);
    uint32x4_t beyond = vandq_u32(vcgtq_u32(magnitude, largest), vcltq_u32(magnitude, infinity));
    uint32x4_t clipped = vbslq_u32(rest, largest, bits);
    float32x4_t value = vreinterpretq_f32_u32(vbslq_u32(beyond, clipped, bits));
    return vreinterpret_u16_f16(vcvt_f16_f32(value));
}

/* Eight halves at any address; vectors of bytes need no alignment. */
static void put_halves(void *halves, size_t i, uint16x8_t eight)
{
    vst1q_u8((uint8_t *)halves + 2 * i, vreinterpretq_u8_u16(eight));
}

static uint16x8_t get_halves(const void *halves, size_t i)
{
    return vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)halves + 2 * i));
}

bool tg_neon_fp16_narrow(void *halves, const float *values, size_t n)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        put_halves(halves, i, vcombine_u16(narrow(values + i), narrow(values + i + 4)));
    }
    (void)tg_kernels_scalar.halves.fp16_narrow((uint8_t *)halves + 2 * i, values + i, n - i);
    return tg_neon_all_finite(values, n);
}

/* The instruction makes NaNs quiet; vectors with NaNs are left to the scalar kernel, which keeps them. */
void tg_neon_fp16_widen(float *out, const void *halves, size_t n)
{
    const uint16x8_t rest = vdupq_n_u16(0x7fff);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint16x8_t bits = get_halves(halves, i);
        vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(bits))));
        vst1q_f32(out + i + 4, vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(bits))));
        if (vmaxvq_u16(vandq_u16(bits, rest)) > 0x7c00) {
            tg_kernels_scalar.halves.fp16_widen(out + i, (const uint8_t *)halves + 2 * i, 8);
        }
    }
    tg_kernels_scalar.halves.fp16_widen(out + i, (const uint8_t *)halves + 2 * i, n - i);
}

void tg_neon_fp16_add(float *sums, const void *halves, float weight, size_t n)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint16x8_t bits = get_halves(halves, i);
        float32x4_t low = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(bits)));
        float32x4_t high = vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(bits)));
        vst1q_f32(sums + i, vaddq_f32(vld1q_f32(sums + i), vmulq_n_f32(low, weight)));
        vst1q_f32(sums + i + 4, vaddq_f32(vld1q_f32(sums + i + 4), vmulq_n_f32(high, weight)));
    }
    tg_kernels_scalar.halves.fp16_add(sums + i, (const uint8_t *)halves + 2 * i, weight, n - i);
}
#endif
