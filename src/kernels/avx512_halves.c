/* fp16 and bf16 for AVX-512. Narrowing and adding visit four quarters of a buffer side by side, as in avx512_passes.c. */
#include "kernels/avx512.h"

#if defined(__x86_64__)

TG_AVX512 bool tg_avx512_halves_all_finite(const void *halves, uint16_t exponent, size_t n)
{
    const __m512i ones = _mm512_set1_epi16((short)exponent);
    __mmask32 bad = 0;
    for (size_t i = 0; i < n; i += 32) {
        __mmask32 here = n - i >= 32 ? UINT32_MAX : (1u << (n - i)) - 1;
        __m512i bits = _mm512_maskz_loadu_epi16(here, (const char *)halves + 2 * i);
        bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(bits, ones), ones);
    }
    return bad == 0;
}

/* Narrow one vector. They return the lanes that are not finite. Values beyond the range, NaN and Inf are rare, and have a branch of
 * their own. */

/* The instruction makes infinities of values beyond the range; these are replaced by the largest value before. */
TG_AVX512_INLINE __mmask16 fp16_narrow(char *halves, const float *values, __mmask16 here)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff), largest = _mm512_set1_epi32(0x477fe000);
    const __m512i infinity = _mm512_set1_epi32(0x7f800000);
    __m512i bits = _mm512_maskz_loadu_epi32(here, values), magnitude = _mm512_and_si512(bits, rest);
    __mmask16 beyond = _mm512_cmpgt_epi32_mask(magnitude, largest), special = 0;
    if (__builtin_expect(beyond != 0, 0)) {
        special = _mm512_cmpge_epi32_mask(magnitude, infinity);
        __m512i clipped = _mm512_or_si512(_mm512_andnot_si512(rest, bits), largest);
        bits = _mm512_mask_mov_epi32(bits, (__mmask16)(beyond & ~special), clipped);
    }
    /* The masked form: without optimisation gcc's _mm512_cvtps_ph is a macro that converts -1 to a mask, and warns. */
    __m256i rounded = _mm512_maskz_cvtps_ph(0xffff, _mm512_castsi512_ps(bits), _MM_FROUND_TO_NEAREST_INT);
    _mm256_mask_storeu_epi16(halves, here, rounded);
    return special;
}

/* As tg_float_to_bf16 rounds. */
TG_AVX512_INLINE __mmask16 bf16_narrow(char *halves, const float *values, __mmask16 here)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff), infinity = _mm512_set1_epi32(0x7f800000);
    const __m512i largest = _mm512_set1_epi32(0x7f7f0000), one = _mm512_set1_epi32(1);
    __m512i bits = _mm512_maskz_loadu_epi32(here, values), magnitude = _mm512_and_si512(bits, rest);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 beyond = _mm512_cmpgt_epi32_mask(magnitude, largest), special = 0;
    if (__builtin_expect(beyond != 0, 0)) {
        __m512i clipped = _mm512_or_si512(_mm512_andnot_si512(rest, bits), largest);
        __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
        special = _mm512_cmpge_epi32_mask(magnitude, infinity);
        rounded = _mm512_mask_mov_epi32(rounded, beyond, clipped);
        rounded = _mm512_mask_mov_epi32(rounded, special, bits);
        rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmpgt_epi32_mask(magnitude, infinity), quiet);
    }
    _mm256_mask_storeu_epi16(halves, here, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
    return special;
}

TG_AVX512 bool tg_avx512_fp16_narrow(void *halves, const float *values, size_t n)
{
    char *out = halves;
    __mmask16 bad = 0;
    size_t quarter = n / 64 * 16;
    for (size_t i = 0; i < quarter; i += 16) {
        for (size_t at = i; at < 4 * quarter; at += quarter) {
            bad |= fp16_narrow(out + 2 * at, values + at, ALL);
        }
    }
    for (size_t at = 4 * quarter; at < n; at += 16) {
        bad |= fp16_narrow(out + 2 * at, values + at, lanes_of(n - at));
    }
    return bad == 0;
}

TG_AVX512 bool tg_avx512_bf16_narrow(void *halves, const float *values, size_t n)
{
    char *out = halves;
    __mmask16 bad = 0;
    size_t quarter = n / 64 * 16;
    for (size_t i = 0; i < quarter; i += 16) {
        for (size_t at = i; at < 4 * quarter; at += quarter) {
            bad |= bf16_narrow(out + 2 * at, values + at, ALL);
        }
    }
    for (size_t at = 4 * quarter; at < n; at += 16) {
        bad |= bf16_narrow(out + 2 * at, values + at, lanes_of(n - at));
    }
    return bad == 0;
}

/* Widens one vector. The instruction makes NaNs quiet; these are widened by shifts. */
TG_AVX512_INLINE void fp16_widen(float *out, const char *halves, __mmask16 here)
{
    __m256i half = _mm256_maskz_loadu_epi16(here, halves);
    __m512 wide = _mm512_cvtph_ps(half);
    __mmask16 nan = _mm512_fpclass_ps_mask(wide, 0x81);
    if (nan != 0) {
        __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 13);
        __m512i sign = _mm512_and_si512(_mm512_slli_epi32(bits, 3), _mm512_set1_epi32(INT32_MIN));
        __m512i fraction = _mm512_and_si512(bits, _mm512_set1_epi32(0x3ff << 13));
        bits = _mm512_or_si512(_mm512_or_si512(sign, _mm512_set1_epi32(0x7f800000)), fraction);
        wide = _mm512_mask_mov_ps(wide, nan, _mm512_castsi512_ps(bits));
    }
    _mm512_mask_storeu_ps(out, here, wide);
}

TG_AVX512 void tg_avx512_fp16_widen(float *out, const void *halves, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        fp16_widen(out + i, (const char *)halves + 2 * i, ALL);
    }
    fp16_widen(out + i, (const char *)halves + 2 * i, lanes_of(n - i));
}

TG_AVX512_INLINE void bf16_widen(float *out, const char *halves, __mmask16 here)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, halves));
    _mm512_mask_storeu_epi32(out, here, _mm512_slli_epi32(wide, 16));
}

TG_AVX512 void tg_avx512_bf16_widen(float *out, const void *halves, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        bf16_widen(out + i, (const char *)halves + 2 * i, ALL);
    }
    bf16_widen(out + i, (const char *)halves + 2 * i, lanes_of(n - i));
}

TG_AVX512_INLINE void fp16_add(float *sums, const char *halves, __m512 weight, __mmask16 here)
{
    __m512 values = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(here, halves));
    __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(here, sums), _mm512_mul_ps(weight, values));
    _mm512_mask_storeu_ps(sums, here, sum);
}

TG_AVX512_INLINE void bf16_add(float *sums, const char *halves, __m512 weight, __mmask16 here)
{
    __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, halves)), 16);
    __m512 product = _mm512_mul_ps(weight, _mm512_castsi512_ps(wide));
    _mm512_mask_storeu_ps(sums, here, _mm512_add_ps(_mm512_maskz_loadu_ps(here, sums), product));
}

TG_AVX512 void tg_avx512_fp16_add(float *sums, const void *halves, float weight, size_t n)
{
    const __m512 factor = _mm512_set1_ps(weight);
    const char *from = halves;
    size_t quarter = n / 64 * 16;
    for (size_t i = 0; i < quarter; i += 16) {
        for (size_t at = i; at < 4 * quarter; at += quarter) {
            fp16_add(sums + at, from + 2 * at, factor, ALL);
        }
    }
    for (size_t at = 4 * quarter; at < n; at += 16) {
        fp16_add(sums + at, from + 2 * at, factor, lanes_of(n - at));
    }
}

TG_AVX512 void tg_avx512_bf16_add(float *sums, const void *halves, float weight, size_t n)
{
    const __m512 factor = _mm512_set1_ps(weight);
    const char *from = halves;
    size_t quarter = n / 64 * 16;
    for (size_t i = 0; i < quarter; i += 16) {
        for (size_t at = i; at < 4 * quarter; at += quarter) {
            bf16_add(sums + at, from + 2 * at, factor, ALL);
        }
    }
    for (size_t at = 4 * quarter; at < n; at += 16) {
        bf16_add(sums + at, from + 2 * at, factor, lanes_of(n - at));
    }
}
#endif
