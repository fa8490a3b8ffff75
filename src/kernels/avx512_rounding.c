/* Kernels for AVX-512 that turn the values of a bucket into symbols by rounding them, at random or not; see avx512.h. Symbols are
 * of 16 bits, so two vectors of values make one of symbols. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TG_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,popcnt")))
#define INLINED static inline __attribute__((always_inline)) TG_TARGET

enum { AT_ONCE = 32 };

/* Draws as whole numbers below 2^24. */
INLINED __m512 load_draws(const uint32_t *draws)
{
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_loadu_si512(draws), 8));
}

INLINED __mmask32 both(__mmask16 first, __mmask16 second)
{
    return (__mmask32)second << 16 | first;
}

INLINED void put_symbols(uint16_t *symbols, __m512i of_sixteen)
{
    _mm256_storeu_si256((__m256i *)(void *)symbols, _mm512_cvtepi32_epi16(of_sixteen));
}

TG_TARGET void tg_avx512_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n)
{
    const __m512 limit = _mm512_set1_ps(threshold);
    size_t i = 0;
    for (; n - i >= AT_ONCE; i += AT_ONCE) {
        __mmask16 first = _mm512_cmp_ps_mask(_mm512_loadu_ps(values + i), limit, _CMP_GT_OQ);
        __mmask16 second = _mm512_cmp_ps_mask(_mm512_loadu_ps(values + i + 16), limit, _CMP_GT_OQ);
        _mm512_storeu_si512(symbols + i, _mm512_maskz_set1_epi16(both(first, second), 1));
    }
    tg_kernels_scalar.mark_above(symbols + i, values + i, threshold, n - i);
}

TG_TARGET void tg_avx512_signs(uint16_t *symbols, const float *values, size_t n)
{
    size_t i = 0;
    for (; n - i >= AT_ONCE; i += AT_ONCE) {
        __mmask16 first = _mm512_movepi32_mask(_mm512_loadu_si512(values + i));
        __mmask16 second = _mm512_movepi32_mask(_mm512_loadu_si512(values + i + 16));
        _mm512_storeu_si512(symbols + i, _mm512_maskz_set1_epi16(both(first, second), 1));
    }
    tg_kernels_scalar.signs(symbols + i, values + i, n - i);
}

/* A draw times 2^-24 and times the largest is the same as times both at once, if nothing is too small to be normal. */
TG_TARGET void tg_avx512_ternary(uint16_t *symbols, const float *values, const uint32_t *draws, float largest, size_t n)
{
    const __m512 factor = _mm512_set1_ps(largest * 0x1p-24f);
    const __m512i one = _mm512_set1_epi16(1), two = _mm512_set1_epi16(2);
    size_t i = 0;
    for (; largest >= 0x1p-100f && n - i >= AT_ONCE; i += AT_ONCE) {
        __mmask16 sent[2], negative[2];
        for (int k = 0; k < 2; k++) {
            __m512 value = _mm512_loadu_ps(values + i + 16 * k);
            __m512 bound = _mm512_mul_ps(load_draws(draws + i + 16 * k), factor);
            sent[k] = _mm512_cmp_ps_mask(bound, _mm512_abs_ps(value), _CMP_LT_OQ);
            negative[k] = _mm512_movepi32_mask(_mm512_castps_si512(value)); /* of what is sent, which is not 0 */
        }
        __mmask32 are_sent = both(sent[0], sent[1]), are_negative = both(negative[0], negative[1]);
        __m512i of_all = _mm512_mask_mov_epi16(one, are_sent, two);
        of_all = _mm512_mask_mov_epi16(of_all, are_sent & are_negative, _mm512_setzero_si512());
        _mm512_storeu_si512(symbols + i, of_all);
    }
    tg_kernels_scalar.ternary(symbols + i, values + i, draws + i, largest, n - i);
}

INLINED void levels_in(uint16_t *symbols, const float *values, const uint32_t *draws, float shift, float factor,
                       uint32_t most, size_t n, bool shifts)
{
    const __m512 moved = _mm512_set1_ps(shift), times = _mm512_set1_ps(factor), unit = _mm512_set1_ps(0x1p-24f);
    const __m512 highest = _mm512_set1_ps((float)(int32_t)most);
    const __m512i middle = _mm512_set1_epi32((int)most), one = _mm512_set1_epi32(1);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m512 value = _mm512_loadu_ps(values + i), at = _mm512_abs_ps(value);
        at = _mm512_mul_ps(shifts ? _mm512_mul_ps(at, moved) : at, times);
        at = _mm512_min_ps(at, highest);
        __m512i level = _mm512_cvttps_epi32(at);
        __m512 rest = _mm512_sub_ps(at, _mm512_cvtepi32_ps(level));
        __mmask16 up = _mm512_cmp_ps_mask(_mm512_mul_ps(load_draws(draws + i), unit), rest, _CMP_LT_OQ);
        level = _mm512_mask_add_epi32(level, up, level, one);
        __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(value)); /* of 0 the level is 0 */
        __m512i symbol = _mm512_add_epi32(middle, level);
        put_symbols(symbols + i, _mm512_mask_sub_epi32(symbol, negative, middle, level));
    }
    tg_kernels_scalar.levels(symbols + i, values + i, draws + i, shift, factor, most, n - i);
}

TG_TARGET void tg_avx512_levels(uint16_t *symbols, const float *values, const uint32_t *draws, float shift,
                                float factor, uint32_t most, size_t n)
{
    if (shift == 1.0f) { /* nearly always */
        levels_in(symbols, values, draws, 1.0f, factor, most, n, false);
    } else {
        levels_in(symbols, values, draws, shift, factor, most, n, true);
    }
}

TG_TARGET void tg_avx512_natural(uint16_t *symbols, const float *values, const uint32_t *draws, size_t n)
{
    const __m512i fraction = _mm512_set1_epi32(0x7fffff), rest = _mm512_set1_epi32(0x7fffffff);
    const __m512i last = _mm512_set1_epi32(254 << 23), one = _mm512_set1_epi32(1);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m512i bits = _mm512_loadu_si512(values + i);
        __m512i draw = _mm512_srli_epi32(_mm512_loadu_si512(draws + i), 9);
        __mmask16 may = _mm512_cmplt_epi32_mask(_mm512_and_si512(bits, rest), last);
        __mmask16 up = _mm512_mask_cmplt_epi32_mask(may, draw, _mm512_and_si512(bits, fraction));
        __m512i symbol = _mm512_srli_epi32(bits, 23);
        put_symbols(symbols + i, _mm512_mask_add_epi32(symbol, up, symbol, one));
    }
    tg_kernels_scalar.natural(symbols + i, values + i, draws + i, n - i);
}

TG_TARGET void tg_avx512_powers(float *values, const uint16_t *symbols, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m512i symbol = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(symbols + i)));
        _mm512_storeu_si512(values + i, _mm512_slli_epi32(symbol, 23));
    }
    tg_kernels_scalar.powers(values + i, symbols + i, n - i);
}
#endif
