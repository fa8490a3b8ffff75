/* Conversion to and from half floats for NEON. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)

/* Eight halves at any address; vectors of bytes need no alignment. */
TG_NEON_INLINE void put_halves(void *halves, size_t i, uint16x8_t eight)
{
    vst1q_u8((uint8_t *)halves + 2 * i, vreinterpretq_u8_u16(eight));
}

TG_NEON_INLINE uint16x8_t get_halves(const void *halves, size_t i)
{
    return vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)halves + 2 * i));
}

/* Halves of finite values. Rounding makes infinity of values beyond the range, which is one above the largest value. */
TG_NEON_INLINE uint16x8_t clip(uint16x8_t eight, uint16_t infinity)
{
    uint16x8_t magnitude = vandq_u16(eight, vdupq_n_u16(0x7fff));
    return vaddq_u16(eight, vceqq_u16(magnitude, vdupq_n_u16(infinity)));
}

/* The largest magnitudes so far. */
TG_NEON_INLINE uint16x8_t larger(uint16x8_t most, uint16x8_t eight)
{
    return vmaxq_u16(most, vandq_u16(eight, vdupq_n_u16(0x7fff)));
}

/* A half that is not finite comes from a value that is not, or is too large. In the first case the scalar kernel does all again. */
bool tg_neon_fp16_narrow(void *halves, const float *values, size_t n)
{
    enum { INFINITE = 0x7c00 };
    uint16x8_t most = vdupq_n_u16(0);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = 0; k < 16; k += 8) {
            float32x4_t low = vld1q_f32(values + i + k), high = vld1q_f32(values + i + k + 4);
            uint16x8_t eight = vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high));
            most = larger(most, eight);
            put_halves(halves, i + k, clip(eight, INFINITE));
        }
    }
    size_t done = vmaxvq_u16(most) < INFINITE || tg_neon_all_finite(values, i) ? i : 0;
    return tg_kernels_scalar.halves.fp16_narrow((uint8_t *)halves + 2 * done, values + done, n - done);
}

/* To nearest: shifts with rounding go up from the middle between two halves; from there an odd one is one too large. */
TG_NEON_INLINE uint16x8_t bf16_of(uint32x4_t low, uint32x4_t high)
{
    uint16x8_t rounded = vrshrn_high_n_u32(vrshrn_n_u32(low, 16), high, 16);
    uint16x8_t rest = vuzp1q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
    uint16x8_t is_middle = vceqq_u16(rest, vdupq_n_u16(0x8000));
    return vbicq_u16(rounded, vandq_u16(is_middle, vdupq_n_u16(1)));
}

/* Values are finite if their upper halves are. */
bool tg_neon_bf16_narrow(void *halves, const float *values, size_t n)
{
    enum { INFINITE = 0x7f80 };
    uint16x8_t most = vdupq_n_u16(0);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = 0; k < 16; k += 8) {
            uint32x4_t low = vreinterpretq_u32_f32(vld1q_f32(values + i + k));
            uint32x4_t high = vreinterpretq_u32_f32(vld1q_f32(values + i + k + 4));
            most = larger(most, vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high)));
            put_halves(halves, i + k, clip(bf16_of(low, high), INFINITE));
        }
    }
    size_t done = vmaxvq_u16(most) < INFINITE ? i : 0;
    return tg_kernels_scalar.halves.bf16_narrow((uint8_t *)halves + 2 * done, values + done, n - done);
}

/* The instruction makes NaNs quiet. If there are any, all is done again by the scalar kernel, which keeps them. */
void tg_neon_fp16_widen(float *out, const void *halves, size_t n)
{
    uint16x8_t most = vdupq_n_u16(0);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = 0; k < 16; k += 8) {
            uint16x8_t bits = get_halves(halves, i + k);
            most = larger(most, bits);
            vst1q_f32(out + i + k, vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(bits))));
            vst1q_f32(out + i + k + 4, vcvt_high_f32_f16(vreinterpretq_f16_u16(bits)));
        }
    }
    size_t done = vmaxvq_u16(most) <= 0x7c00 ? i : 0;
    tg_kernels_scalar.halves.fp16_widen(out + done, (const uint8_t *)halves + 2 * done, n - done);
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
