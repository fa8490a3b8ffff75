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

/* `twice`, a constant, says that there is an `also`. Returns how many elements are done. */
TG_NEON_INLINE size_t accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                                 bool twice, uint32x4_t *most)
{
    uint32x4_t seen[2] = {vdupq_n_u32(0), vdupq_n_u32(0)};
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = 0; k < 4; k++) {
            float32x4_t product = vmulq_n_f32(vld1q_f32(b + i + 4 * k), share);
            float32x4_t sum = vaddq_f32(vld1q_f32(a + i + 4 * k), product);
            vst1q_f32(out + i + 4 * k, sum);
            if (twice) {
                vst1q_f32(also + i + 4 * k, sum);
            }
            seen[k % 2] = larger(seen[k % 2], sum);
        }
    }
    *most = vmaxq_u32(seen[0], seen[1]);
    return i;
}

bool tg_neon_accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                        bool non_temporal)
{
    uint32x4_t most;
    size_t i = also != NULL ? accumulate(out, also, a, b, share, n, true, &most)
                            : accumulate(out, NULL, a, b, share, n, false, &most);
    float *rest = also != NULL ? also + i : NULL;
    bool finite = tg_kernels_scalar.passes.accumulate(out + i, rest, a + i, b + i, share, n - i, non_temporal);
    return is_finite(most) && finite;
}

bool tg_neon_subtract(float *out, const float *a, const float *b, size_t n, bool non_temporal)
{
    uint32x4_t most[2] = {vdupq_n_u32(0), vdupq_n_u32(0)};
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = 0; k < 4; k++) {
            float32x4_t difference = vsubq_f32(vld1q_f32(a + i + 4 * k), vld1q_f32(b + i + 4 * k));
            vst1q_f32(out + i + 4 * k, difference);
            most[k % 2] = larger(most[k % 2], difference);
        }
    }
    bool finite = tg_kernels_scalar.passes.subtract(out + i, a + i, b + i, n - i, non_temporal);
    return is_finite(vmaxq_u32(most[0], most[1])) && finite;
}

bool tg_neon_divide(float *out, const float *values, float divisor, size_t n, bool non_temporal)
{
    uint32x4_t most[2] = {vdupq_n_u32(0), vdupq_n_u32(0)};
    const float32x4_t divisors = vdupq_n_f32(divisor);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = 0; k < 4; k++) {
            float32x4_t quotient = vdivq_f32(vld1q_f32(values + i + 4 * k), divisors);
            vst1q_f32(out + i + 4 * k, quotient);
            most[k % 2] = larger(most[k % 2], quotient);
        }
    }
    bool finite = tg_kernels_scalar.passes.divide(out + i, values + i, divisor, n - i, non_temporal);
    return is_finite(vmaxq_u32(most[0], most[1])) && finite;
}

void tg_neon_add(float *sums, const float *values, float weight, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = 0; k < 16; k += 4) {
            float32x4_t product = vmulq_n_f32(vld1q_f32(values + i + k), weight);
            vst1q_f32(sums + i + k, vaddq_f32(vld1q_f32(sums + i + k), product));
        }
    }
    tg_kernels_scalar.passes.add(sums + i, values + i, weight, n - i);
}
#endif
