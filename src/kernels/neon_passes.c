/* Passes over long buffers of fp32 for NEON: results are checked as they are stored. Stores are ordinary ones, since non-temporal
 * pairs are a mere hint here. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)

/* The largest magnitude seen, as a key; NaN and Inf have the largest keys. */
TG_NEON_INLINE uint32x4_t larger(uint32x4_t most, float32x4_t values)
{
    return vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(values)));
}

TG_NEON_INLINE bool is_finite(uint32x4_t most)
{
    return vmaxvq_u32(most) < 0x7f800000u;
}

bool tg_neon_all_finite(const float *values, size_t n)
{
    uint32x4_t most[2] = {vdupq_n_u32(0), vdupq_n_u32(0)};
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        most[0] = larger(most[0], vld1q_f32(values + i));
        most[1] = larger(most[1], vld1q_f32(values + i + 4));
        most[0] = larger(most[0], vld1q_f32(values + i + 8));
        most[1] = larger(most[1], vld1q_f32(values + i + 12));
    }
    return is_finite(vmaxq_u32(most[0], most[1])) && tg_kernels_scalar.passes.all_finite(values + i, n - i);
}

bool tg_neon_accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                        bool non_temporal)
{
    uint32x4_t most[2] = {vdupq_n_u32(0), vdupq_n_u32(0)};
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        float32x4_t low = vaddq_f32(vld1q_f32(a + i), vmulq_n_f32(vld1q_f32(b + i), share));
        float32x4_t high = vaddq_f32(vld1q_f32(a + i + 4), vmulq_n_f32(vld1q_f32(b + i + 4), share));
        vst1q_f32(out + i, low);
        vst1q_f32(out + i + 4, high);
        if (also != NULL) {
            vst1q_f32(also + i, low);
            vst1q_f32(also + i + 4, high);
        }
        most[0] = larger(most[0], low);
        most[1] = larger(most[1], high);
    }
    bool finite = tg_kernels_scalar.passes.accumulate(out + i, also != NULL ? also + i : NULL, a + i, b + i, share,
                                                      n - i, non_temporal);
    return is_finite(vmaxq_u32(most[0], most[1])) && finite;
}

bool tg_neon_subtract(float *out, const float *a, const float *b, size_t n, bool non_temporal)
{
    uint32x4_t most[2] = {vdupq_n_u32(0), vdupq_n_u32(0)};
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        float32x4_t low = vsubq_f32(vld1q_f32(a + i), vld1q_f32(b + i));
        float32x4_t high = vsubq_f32(vld1q_f32(a + i + 4), vld1q_f32(b + i + 4));
        vst1q_f32(out + i, low);
        vst1q_f32(out + i + 4, high);
        most[0] = larger(most[0], low);
        most[1] = larger(most[1], high);
    }
    bool finite = tg_kernels_scalar.passes.subtract(out + i, a + i, b + i, n - i, non_temporal);
    return is_finite(vmaxq_u32(most[0], most[1])) && finite;
}
#endif
