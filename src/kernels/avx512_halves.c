/* fp16 and bf16 for AVX-512. */
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

/* The instruction makes infinities of values beyond the range; these are replaced by the largest value before. */
TG_AVX512 bool tg_avx512_fp16_narrow(void *halves, const float *values, size_t n)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff), largest = _mm512_set1_epi32(0x477fe000);
    const __m512i infinity = _mm512_set1_epi32(0x7f800000);
    __mmask16 bad = 0;
    for (size_t i = 0; i < (n + 15) / 16; i++) {
        position p = position_of(i, n);
        __m512i bits = _mm512_maskz_loadu_epi32(p.here, values + p.at), magnitude = _mm512_and_si512(bits, rest);
        __mmask16 finite = _mm512_cmplt_epi32_mask(magnitude, infinity);
        __mmask16 beyond = _mm512_mask_cmpgt_epi32_mask(finite, magnitude, largest);
        __m512i clipped = _mm512_or_si512(_mm512_andnot_si512(rest, bits), largest);
        __m512 value = _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, beyond, clipped));
        /* The masked form: without optimisation gcc's _mm512_cvtps_ph is a macro that converts -1 to a mask, and warns. */
        __m256i half = _mm512_maskz_cvtps_ph(0xffff, value, _MM_FROUND_TO_NEAREST_INT);
        _mm256_mask_storeu_epi16((char *)halves + 2 * p.at, p.here, half);
        bad |= (__mmask16)~finite;
    }
    return bad == 0;
}

/* The instruction makes NaNs quiet; they are widened by shifts. */
TG_AVX512 void tg_avx512_fp16_widen(float *out, const void *halves, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_of(n - i);
        __m256i half = _mm256_maskz_loadu_epi16(here, (const char *)halves + 2 * i);
        __m512i wide = _mm512_castps_si512(_mm512_cvtph_ps(half));
        __mmask16 nan = _mm512_fpclass_ps_mask(_mm512_castsi512_ps(wide), 0x81);
        if (nan != 0) {
            __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 13);
            __m512i sign = _mm512_and_si512(_mm512_slli_epi32(bits, 3), _mm512_set1_epi32(INT32_MIN));
            __m512i fraction = _mm512_and_si512(bits, _mm512_set1_epi32(0x3ff << 13));
            bits = _mm512_or_si512(_mm512_or_si512(sign, _mm512_set1_epi32(0x7f800000)), fraction);
            wide = _mm512_mask_mov_epi32(wide, nan, bits);
        }
        _mm512_mask_storeu_epi32(out + i, here, wide);
    }
}

TG_AVX512 void tg_avx512_fp16_add(float *sums, const void *halves, float weight, size_t n)
{
    const __m512 factor = _mm512_set1_ps(weight);
    for (size_t i = 0; i < (n + 15) / 16; i++) {
        position p = position_of(i, n);
        __m512 values = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(p.here, (const char *)halves + 2 * p.at));
        __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(p.here, sums + p.at), _mm512_mul_ps(factor, values));
        _mm512_mask_storeu_ps(sums + p.at, p.here, sum);
    }
}

/* As tg_float_to_bf16. */
TG_AVX512 bool tg_avx512_bf16_narrow(void *halves, const float *values, size_t n)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff), infinity = _mm512_set1_epi32(0x7f800000);
    const __m512i largest = _mm512_set1_epi32(0x7f7f0000), one = _mm512_set1_epi32(1);
    __mmask16 bad = 0;
    for (size_t i = 0; i < (n + 15) / 16; i++) {
        position p = position_of(i, n);
        __m512i bits = _mm512_maskz_loadu_epi32(p.here, values + p.at), magnitude = _mm512_and_si512(bits, rest);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
        __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        __m512i clipped = _mm512_or_si512(_mm512_andnot_si512(rest, bits), largest);
        __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
        __mmask16 special = _mm512_cmpge_epi32_mask(magnitude, infinity);
        rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmpgt_epi32_mask(magnitude, largest), clipped);
        rounded = _mm512_mask_mov_epi32(rounded, special, bits);
        rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmpgt_epi32_mask(magnitude, infinity), quiet);
        __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
        _mm256_mask_storeu_epi16((char *)halves + 2 * p.at, p.here, half);
        bad |= special;
    }
    return bad == 0;
}

TG_AVX512 void tg_avx512_bf16_widen(float *out, const void *halves, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_of(n - i);
        __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, (const char *)halves + 2 * i));
        _mm512_mask_storeu_epi32(out + i, here, _mm512_slli_epi32(wide, 16));
    }
}

TG_AVX512 void tg_avx512_bf16_add(float *sums, const void *halves, float weight, size_t n)
{
    const __m512 factor = _mm512_set1_ps(weight);
    for (size_t i = 0; i < (n + 15) / 16; i++) {
        position p = position_of(i, n);
        __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(p.here, (const char *)halves + 2 * p.at));
        __m512 values = _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
        __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(p.here, sums + p.at), _mm512_mul_ps(factor, values));
        _mm512_mask_storeu_ps(sums + p.at, p.here, sum);
    }
}
#endif
