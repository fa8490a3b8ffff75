/* Quantizers for AVX-512: values of a bucket to symbols, and back through tables in registers. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include "kernels/scalar.h"

/* Draws as integers below 2^24. */
TG_AVX512_INLINE __m512 load_draws(__mmask16 here, const uint32_t *draws)
{
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_maskz_loadu_epi32(here, draws), 8));
}

/* ---- rounding ---------------------------------------------------------------------------------------------------------- */

TG_AVX512 void tg_avx512_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n)
{
    const __m512 limit = _mm512_set1_ps(threshold);
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_of(n - i);
        __mmask16 above = _mm512_cmp_ps_mask(_mm512_maskz_loadu_ps(here, values + i), limit, _CMP_GT_OQ);
        _mm256_mask_storeu_epi16(symbols + i, here, _mm256_maskz_set1_epi16(above, 1));
    }
}

TG_AVX512 void tg_avx512_signs(uint16_t *symbols, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_of(n - i), negative = _mm512_movepi32_mask(_mm512_maskz_loadu_epi32(here, values + i));
        _mm256_mask_storeu_epi16(symbols + i, here, _mm256_maskz_set1_epi16(negative, 1));
    }
}

/* The scalar kernel multiplies by 2^-24 first, then by the largest; one multiplication by both gives the same bits unless a
 * product is subnormal. */
TG_AVX512 void tg_avx512_ternary(uint16_t *symbols, const float *values, const uint32_t *draws, float largest, size_t n)
{
    const __m512 factor = _mm512_set1_ps(largest * 0x1p-24f);
    const __m256i one = _mm256_set1_epi16(1), two = _mm256_set1_epi16(2);
    if (largest < 0x1p-100f) {
        tg_scalar_ternary(symbols, values, draws, largest, n);
        return;
    }
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_of(n - i);
        __m512 value = _mm512_maskz_loadu_ps(here, values + i);
        __m512 bound = _mm512_mul_ps(load_draws(here, draws + i), factor);
        __mmask16 sent = _mm512_cmp_ps_mask(bound, _mm512_abs_ps(value), _CMP_LT_OQ); /* so the value is not 0 */
        __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(value));
        __m256i symbol = _mm256_mask_mov_epi16(one, sent, two);
        symbol = _mm256_mask_mov_epi16(symbol, sent & negative, _mm256_setzero_si256());
        _mm256_mask_storeu_epi16(symbols + i, here, symbol);
    }
}

TG_AVX512 void tg_avx512_levels(uint16_t *symbols, const float *values, const uint32_t *draws, float shift,
                                float factor, uint32_t most, size_t n)
{
    const __m512 moved = _mm512_set1_ps(shift), times = _mm512_set1_ps(factor), unit = _mm512_set1_ps(0x1p-24f);
    const __m512 highest = _mm512_set1_ps((float)(int32_t)most);
    const __m512i middle = _mm512_set1_epi32((int)most), one = _mm512_set1_epi32(1);
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_of(n - i);
        __m512 value = _mm512_maskz_loadu_ps(here, values + i);
        __m512 at = _mm512_mul_ps(_mm512_mul_ps(_mm512_abs_ps(value), moved), times);
        at = _mm512_min_ps(at, highest);
        __m512i level = _mm512_cvttps_epi32(at);
        __m512 rest = _mm512_sub_ps(at, _mm512_cvtepi32_ps(level));
        __mmask16 up = _mm512_cmp_ps_mask(_mm512_mul_ps(load_draws(here, draws + i), unit), rest, _CMP_LT_OQ);
        level = _mm512_mask_add_epi32(level, up, level, one);
        __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(value)); /* -0 has level 0 */
        __m512i symbol = _mm512_mask_sub_epi32(_mm512_add_epi32(middle, level), negative, middle, level);
        _mm256_mask_storeu_epi16(symbols + i, here, _mm512_cvtepi32_epi16(symbol));
    }
}

TG_AVX512 void tg_avx512_natural(uint16_t *symbols, const float *values, const uint32_t *draws, size_t n)
{
    const __m512i fraction = _mm512_set1_epi32(0x7fffff), rest = _mm512_set1_epi32(0x7fffffff);
    const __m512i last = _mm512_set1_epi32(254 << 23), one = _mm512_set1_epi32(1);
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_of(n - i);
        __m512i bits = _mm512_maskz_loadu_epi32(here, values + i);
        __m512i draw = _mm512_srli_epi32(_mm512_maskz_loadu_epi32(here, draws + i), 9);
        __mmask16 may = _mm512_cmplt_epi32_mask(_mm512_and_si512(bits, rest), last);
        __mmask16 up = _mm512_mask_cmplt_epi32_mask(may, draw, _mm512_and_si512(bits, fraction));
        __m512i symbol = _mm512_srli_epi32(bits, 23);
        _mm256_mask_storeu_epi16(symbols + i, here,
                                 _mm512_cvtepi32_epi16(_mm512_mask_add_epi32(symbol, up, symbol, one)));
    }
}

TG_AVX512 void tg_avx512_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n,
                                     size_t n)
{
    const __m512i one = _mm512_set1_epi32(1);
    for (size_t i = 0; i < n; i += 32) { /* two vectors, to hide the latency of the additions */
        __mmask16 here[2] = {lanes_of(n - i), n - i > 16 ? lanes_of(n - i - 16) : 0};
        __m512 first = _mm512_maskz_loadu_ps(here[0], values + i);
        __m512 second = _mm512_maskz_loadu_ps(here[1], values + i + 16);
        __m512i counts[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        for (uint32_t l = 0; l < limit_n; l++) {
            __m512 limit = _mm512_set1_ps(limits[l]);
            __mmask16 above[2] = {_mm512_cmp_ps_mask(first, limit, _CMP_GT_OQ),
                                  _mm512_cmp_ps_mask(second, limit, _CMP_GT_OQ)};
            counts[0] = _mm512_mask_add_epi32(counts[0], above[0], counts[0], one);
            counts[1] = _mm512_mask_add_epi32(counts[1], above[1], counts[1], one);
        }
        _mm256_mask_storeu_epi16(symbols + i, here[0], _mm512_cvtepi32_epi16(counts[0]));
        _mm256_mask_storeu_epi16(symbols + i + 16, here[1], _mm512_cvtepi32_epi16(counts[1]));
    }
}

TG_AVX512 void tg_avx512_round_between(uint16_t *symbols, const float *values, const uint32_t *draws,
                                       const float *bounds, uint32_t bound_n, float scale, size_t n)
{
    enum { MOST = 32 }; /* bounds and their distances, in two registers each */
    float lows[MOST] = {0}, widths[MOST] = {0};
    if (bound_n > MOST) {
        tg_scalar_round_between(symbols, values, draws, bounds, bound_n, scale, n);
        return;
    }
    for (uint32_t b = 0; b + 1 < bound_n; b++) {
        lows[b] = bounds[b];
        widths[b] = bounds[b + 1] - bounds[b];
    }
    const __m512 low[2] = {_mm512_loadu_ps(lows), _mm512_loadu_ps(lows + 16)};
    const __m512 width[2] = {_mm512_loadu_ps(widths), _mm512_loadu_ps(widths + 16)};
    const __m512 unit = _mm512_set1_ps(0x1p-24f), factor = _mm512_set1_ps(scale);
    const __m512i one = _mm512_set1_epi32(1);
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_of(n - i);
        __m512 value = _mm512_mul_ps(_mm512_maskz_loadu_ps(here, values + i), factor);
        __m512i below = _mm512_setzero_si512();
        for (uint32_t b = 1; b + 1 < bound_n; b++) {
            __mmask16 reached = _mm512_cmp_ps_mask(_mm512_set1_ps(bounds[b]), value, _CMP_LE_OQ);
            below = _mm512_mask_add_epi32(below, reached, below, one);
        }
        __m512 share = _mm512_mul_ps(load_draws(here, draws + i), unit);
        __m512 way = _mm512_mul_ps(share, _mm512_permutex2var_ps(width[0], below, width[1]));
        __m512 distance = _mm512_sub_ps(value, _mm512_permutex2var_ps(low[0], below, low[1]));
        __mmask16 up = _mm512_cmp_ps_mask(way, distance, _CMP_LT_OQ);
        _mm256_mask_storeu_epi16(symbols + i, here,
                                 _mm512_cvtepi32_epi16(_mm512_mask_add_epi32(below, up, below, one)));
    }
}

/* ---- decoding ---------------------------------------------------------------------------------------------------------- */

TG_AVX512 void tg_avx512_powers(float *values, const uint16_t *symbols, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_of(n - i);
        __m512i symbol = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, symbols + i));
        _mm512_mask_storeu_epi32(values + i, here, _mm512_slli_epi32(symbol, 23));
    }
}

/* Up to 64 floats are in four registers, of which two are looked into at a time. `adds` and `is_large`, which says that there
 * are more than 32, are constants. */
TG_AVX512_INLINE void look_up(float *out, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n,
                              bool adds, bool is_large)
{
    float floats[64] = {0};
    for (uint32_t f = 0; f < table_n; f++) {
        floats[f] = table[f];
    }
    const __m512 part[4] = {_mm512_loadu_ps(floats), _mm512_loadu_ps(floats + 16), _mm512_loadu_ps(floats + 32),
                            _mm512_loadu_ps(floats + 48)};
    for (size_t i = 0; i < (n + 15) / 16; i++) {
        position p = position_of(i, n);
        __m512i symbol = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(p.here, symbols + p.at));
        __m512 found = _mm512_permutex2var_ps(part[0], symbol, part[1]);
        if (is_large) {
            __mmask16 upper = _mm512_test_epi32_mask(symbol, _mm512_set1_epi32(32));
            found = _mm512_mask_mov_ps(found, upper, _mm512_permutex2var_ps(part[2], symbol, part[3]));
        }
        found = adds ? _mm512_add_ps(_mm512_maskz_loadu_ps(p.here, out + p.at), found) : found;
        _mm512_mask_storeu_ps(out + p.at, p.here, found);
    }
}

TG_AVX512 void tg_avx512_look_up(float *values, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n)
{
    if (table_n <= 32) {
        look_up(values, symbols, table, table_n, n, false, false);
    } else if (table_n <= 64) {
        look_up(values, symbols, table, table_n, n, false, true);
    } else {
        tg_scalar_look_up(values, symbols, table, table_n, n);
    }
}

TG_AVX512 void tg_avx512_look_up_add(float *sums, const uint16_t *symbols, const float *table, uint32_t table_n,
                                     size_t n)
{
    if (table_n <= 32) {
        look_up(sums, symbols, table, table_n, n, true, false);
    } else if (table_n <= 64) {
        look_up(sums, symbols, table, table_n, n, true, true);
    } else {
        tg_scalar_look_up_add(sums, symbols, table, table_n, n);
    }
}
#endif
