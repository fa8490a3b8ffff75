/* Conversions between fp32 and fp16 for AVX2 with F16C. */
#include "kernels/avx2.h"

#if defined(__x86_64__)

/* The instruction makes infinities of values beyond the range; these are replaced by the largest value before. */
TG_AVX2 bool tg_avx2_fp16_narrow(void *halves, const float *values, size_t n)
{
    const __m256i rest = _mm256_set1_epi32(0x7fffffff), largest = _mm256_set1_epi32(0x477fe000);
    const __m256i infinity = _mm256_set1_epi32(0x7f800000);
    __m256i finite = _mm256_set1_epi32(-1);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(values + i));
        __m256i magnitude = _mm256_and_si256(bits, rest), below = _mm256_cmpgt_epi32(infinity, magnitude);
        _mm_prefetch((const char *)(values + i) + PREFETCH_DISTANCE * sizeof *values, _MM_HINT_T0);
        __m256i beyond = _mm256_and_si256(_mm256_cmpgt_epi32(magnitude, largest), below);
        finite = _mm256_and_si256(finite, below);
        __m256i clipped = _mm256_or_si256(_mm256_andnot_si256(rest, bits), largest);
        __m256 value = _mm256_castsi256_ps(_mm256_blendv_epi8(bits, clipped, beyond));
        _mm_storeu_si128((__m128i *)(void *)((uint16_t *)halves + i),
                         _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    }
    bool tail = tg_kernels_scalar.halves.fp16_narrow((uint16_t *)halves + i, values + i, n - i);
    return tail && _mm256_movemask_epi8(finite) == -1;
}

/* The instruction makes NaNs quiet; vectors with NaNs are left to the scalar kernel, which keeps them. */
TG_AVX2 void tg_avx2_fp16_widen(float *out, const void *halves, size_t n)
{
    const __m128i rest = _mm_set1_epi16(0x7fff), infinity = _mm_set1_epi16(0x7c00);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)halves + i));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(bits));
        if (_mm_movemask_epi8(_mm_cmpgt_epi16(_mm_and_si128(bits, rest), infinity)) != 0) {
            tg_kernels_scalar.halves.fp16_widen(out + i, (const uint16_t *)halves + i, 8);
        }
    }
    tg_kernels_scalar.halves.fp16_widen(out + i, (const uint16_t *)halves + i, n - i);
}

TG_AVX2 void tg_avx2_fp16_add(float *sums, const void *halves, float weight, size_t n)
{
    const __m256 factor = _mm256_set1_ps(weight);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        __m256 values = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)halves + i)));
        _mm256_storeu_ps(sums + i, _mm256_add_ps(_mm256_loadu_ps(sums + i), _mm256_mul_ps(factor, values)));
    }
    tg_kernels_scalar.halves.fp16_add(sums + i, (const uint16_t *)halves + i, weight, n - i);
}
#endif
