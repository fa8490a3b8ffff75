/* fp16 and bf16 for AVX2 with F16C. */
#include "kernels/avx2.h"

#if defined(__x86_64__)

TG_AVX2 bool tg_avx2_halves_all_finite(const void *halves, uint16_t exponent, size_t n)
{
    const __m256i ones = _mm256_set1_epi16((short)exponent);
    const char *from = halves;
    __m256i bad = _mm256_setzero_si256();
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(from + 2 * i));
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi16(_mm256_and_si256(bits, ones), ones));
    }
    return _mm256_testz_si256(bad, bad) != 0 && tg_kernels_scalar.halves.all_finite(from + 2 * i, exponent, n - i);
}

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

/* Eight values, as tg_float_to_bf16 rounds, in the low halves. Sets bits of `special` where one is not finite. */
TG_AVX2_INLINE __m256i bf16_of(const float *values, __m256i *special)
{
    const __m256i rest = _mm256_set1_epi32(0x7fffffff), infinity = _mm256_set1_epi32(0x7f800000);
    const __m256i largest = _mm256_set1_epi32(0x7f7f0000), below = _mm256_set1_epi32(0x7f7fffff);
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)values), magnitude = _mm256_and_si256(bits, rest);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i clipped = _mm256_or_si256(_mm256_andnot_si256(rest, bits), largest);
    __m256i is_special = _mm256_cmpgt_epi32(magnitude, below), nan = _mm256_cmpgt_epi32(magnitude, infinity);
    __m256i quiet = _mm256_or_si256(bits, _mm256_and_si256(nan, _mm256_set1_epi32(0x400000)));
    rounded = _mm256_blendv_epi8(rounded, clipped, _mm256_cmpgt_epi32(magnitude, largest));
    rounded = _mm256_blendv_epi8(rounded, quiet, is_special);
    *special = _mm256_or_si256(*special, is_special);
    return _mm256_srli_epi32(rounded, 16);
}

TG_AVX2 bool tg_avx2_bf16_narrow(void *halves, const float *values, size_t n)
{
    char *out = halves;
    __m256i special = _mm256_setzero_si256();
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m256i both = _mm256_packus_epi32(bf16_of(values + i, &special), bf16_of(values + i + 8, &special));
        _mm_prefetch((const char *)(values + i) + PREFETCH_DISTANCE * sizeof *values, _MM_HINT_T0);
        _mm256_storeu_si256((__m256i *)(void *)(out + 2 * i), _mm256_permute4x64_epi64(both, _MM_SHUFFLE(3, 1, 2, 0)));
    }
    bool tail = tg_kernels_scalar.halves.bf16_narrow(out + 2 * i, values + i, n - i);
    return tail && _mm256_testz_si256(special, special) != 0;
}

TG_AVX2_INLINE __m256 load_bf16(const char *halves)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)halves));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

TG_AVX2 void tg_avx2_bf16_widen(float *out, const void *halves, size_t n)
{
    const char *from = halves;
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        _mm256_storeu_ps(out + i, load_bf16(from + 2 * i));
    }
    tg_kernels_scalar.halves.bf16_widen(out + i, from + 2 * i, n - i);
}

TG_AVX2 void tg_avx2_bf16_add(float *sums, const void *halves, float weight, size_t n)
{
    const __m256 factor = _mm256_set1_ps(weight);
    const char *from = halves;
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        __m256 product = _mm256_mul_ps(factor, load_bf16(from + 2 * i));
        _mm256_storeu_ps(sums + i, _mm256_add_ps(_mm256_loadu_ps(sums + i), product));
    }
    tg_kernels_scalar.halves.bf16_add(sums + i, from + 2 * i, weight, n - i);
}
#endif
