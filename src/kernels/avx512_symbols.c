/* Quantizers for AVX-512: values of a bucket to symbols, and back through tables in registers. Inlined functions process one vector,
 * whole or in part. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include "kernels/scalar.h"

/* The draws of sixteen values, over 2^16. */
TG_AVX512_INLINE __m512 load_draws(const uint16_t *upper, __mmask16 here)
{
    __m512i draws = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, upper));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(draws), _mm512_set1_ps(0x1p-16f));
}

/* Where r x < y, judging by the draw, and where that does not decide (draws.h). */
typedef struct judged {
    __mmask16 below, unsure;
} judged;

TG_AVX512_INLINE judged judge(__m512 draw, __m512 x, __m512 y)
{
    __m512 next = _mm512_add_ps(draw, _mm512_set1_ps(0x1p-16f));
    __mmask16 certain = _mm512_cmp_ps_mask(_mm512_mul_ps(next, x), y, _CMP_LT_OQ);
    __mmask16 possible = _mm512_cmp_ps_mask(_mm512_mul_ps(draw, x), y, _CMP_LT_OQ);
    return (judged){certain, (__mmask16)(possible ^ certain)};
}

/* Kernels process vectors by a function that returns whether all lanes are decided; the scalar kernel does the others, once in
 * four thousand vectors. */
#define UNLIKELY(condition) __builtin_expect((condition), 0)

/* ---- rounding ---------------------------------------------------------------------------------------------------------- */

TG_AVX512 void tg_avx512_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n)
{
    const __m512 limit = _mm512_set1_ps(threshold);
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        __mmask32 above = _mm512_cmp_ps_mask(_mm512_loadu_ps(values + i + 16), limit, _CMP_GT_OQ);
        above = above << 16 | _mm512_cmp_ps_mask(_mm512_loadu_ps(values + i), limit, _CMP_GT_OQ);
        _mm512_storeu_si512(symbols + i, _mm512_maskz_set1_epi16(above, 1));
    }
    for (; i < n; i += 16) {
        __mmask16 here = lanes_of(n - i);
        __mmask16 above = _mm512_cmp_ps_mask(_mm512_maskz_loadu_ps(here, values + i), limit, _CMP_GT_OQ);
        _mm256_mask_storeu_epi16(symbols + i, here, _mm256_maskz_set1_epi16(above, 1));
    }
}

TG_AVX512 void tg_avx512_signs(uint16_t *symbols, const float *values, size_t n)
{
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        __mmask32 negative = _mm512_movepi32_mask(_mm512_loadu_si512(values + i + 16));
        negative = negative << 16 | _mm512_movepi32_mask(_mm512_loadu_si512(values + i));
        _mm512_storeu_si512(symbols + i, _mm512_maskz_set1_epi16(negative, 1));
    }
    for (; i < n; i += 16) {
        __mmask16 here = lanes_of(n - i), negative = _mm512_movepi32_mask(_mm512_maskz_loadu_epi32(here, values + i));
        _mm256_mask_storeu_epi16(symbols + i, here, _mm256_maskz_set1_epi16(negative, 1));
    }
}

TG_AVX512_INLINE bool ternary(uint16_t *symbols, const float *values, const uint16_t *upper, __m512 largest,
                              __mmask16 here)
{
    __m512 value = _mm512_maskz_loadu_ps(here, values);
    judged sent = judge(load_draws(upper, here), largest, _mm512_abs_ps(value)); /* if it is sent it is not 0 */
    __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(value));
    __m256i symbol = _mm256_mask_mov_epi16(_mm256_set1_epi16(1), sent.below, _mm256_set1_epi16(2));
    symbol = _mm256_mask_mov_epi16(symbol, sent.below & negative, _mm256_setzero_si256());
    _mm256_mask_storeu_epi16(symbols, here, symbol);
    return (sent.unsure & here) == 0;
}

TG_AVX512 void tg_avx512_ternary(uint16_t *symbols, const float *values, const tg_draws *draws, float largest, size_t n)
{
    const __m512 all = _mm512_set1_ps(largest);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        if (UNLIKELY(!ternary(symbols + i, values + i, draws->upper + i, all, ALL))) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_ternary(symbols + i, values + i, &here, largest, 16);
        }
    }
    if (i < n && UNLIKELY(!ternary(symbols + i, values + i, draws->upper + i, all, lanes_of(n - i)))) {
        tg_draws rest = tg_draws_from(draws, i);
        tg_scalar_ternary(symbols + i, values + i, &rest, largest, n - i);
    }
}

TG_AVX512_INLINE bool two_sided(uint16_t *symbols, const float *values, const uint16_t *upper, __m512 level,
                                __mmask16 here)
{
    const __m512 half = _mm512_set1_ps(0.5f);
    __m512 above = _mm512_add_ps(_mm512_mul_ps(_mm512_maskz_loadu_ps(here, values), half), _mm512_mul_ps(level, half));
    judged up = judge(load_draws(upper, here), level, above);
    _mm256_mask_storeu_epi16(symbols, here, _mm256_maskz_set1_epi16(up.below, 1));
    return (up.unsure & here) == 0;
}

TG_AVX512 void tg_avx512_two_sided(uint16_t *symbols, const float *values, const tg_draws *draws, float level, size_t n)
{
    const __m512 all = _mm512_set1_ps(level);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        if (UNLIKELY(!two_sided(symbols + i, values + i, draws->upper + i, all, ALL))) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_two_sided(symbols + i, values + i, &here, level, 16);
        }
    }
    if (i < n && UNLIKELY(!two_sided(symbols + i, values + i, draws->upper + i, all, lanes_of(n - i)))) {
        tg_draws rest = tg_draws_from(draws, i);
        tg_scalar_two_sided(symbols + i, values + i, &rest, level, n - i);
    }
}

/* `shift` is 1 nearly always, and then NULL. */
TG_AVX512_INLINE bool levels(uint16_t *symbols, const float *values, const uint16_t *upper, const __m512 *shift,
                             __m512 factor, uint32_t most, __mmask16 here)
{
    const __m512 highest = _mm512_set1_ps((float)(int32_t)most), one = _mm512_set1_ps(1.0f);
    const __m512i middle = _mm512_set1_epi32((int)most);
    __m512 value = _mm512_maskz_loadu_ps(here, values), at = _mm512_abs_ps(value);
    at = _mm512_mul_ps(shift != NULL ? _mm512_mul_ps(at, *shift) : at, factor);
    at = _mm512_min_ps(at, highest);
    __m512i level = _mm512_cvttps_epi32(at);
    judged up = judge(load_draws(upper, here), one, _mm512_sub_ps(at, _mm512_cvtepi32_ps(level)));
    level = _mm512_mask_add_epi32(level, up.below, level, _mm512_set1_epi32(1));
    __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(value)); /* -0 has level 0 */
    __m512i symbol = _mm512_mask_sub_epi32(_mm512_add_epi32(middle, level), negative, middle, level);
    _mm256_mask_storeu_epi16(symbols, here, _mm512_cvtepi32_epi16(symbol));
    return (up.unsure & here) == 0;
}

TG_AVX512 void tg_avx512_levels(uint16_t *symbols, const float *values, const tg_draws *draws, float shift,
                                float factor, uint32_t most, size_t n)
{
    const __m512 moved = _mm512_set1_ps(shift), times = _mm512_set1_ps(factor);
    bool is_moved = shift != 1.0f;
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        bool done = is_moved ? levels(symbols + i, values + i, draws->upper + i, &moved, times, most, ALL)
                             : levels(symbols + i, values + i, draws->upper + i, NULL, times, most, ALL);
        if (UNLIKELY(!done)) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_levels(symbols + i, values + i, &here, shift, factor, most, 16);
        }
    }
    if (i < n && UNLIKELY(!levels(symbols + i, values + i, draws->upper + i, &moved, times, most, lanes_of(n - i)))) {
        tg_draws rest = tg_draws_from(draws, i);
        tg_scalar_levels(symbols + i, values + i, &rest, shift, factor, most, n - i);
    }
}

/* The draw decides unless it equals the upper 16 bits of the fraction and the lower 7 are not 0. */
TG_AVX512_INLINE bool natural(uint16_t *symbols, const float *values, const uint16_t *upper, __mmask16 here)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff), last = _mm512_set1_epi32(254 << 23), one = _mm512_set1_epi32(1);
    __m512i bits = _mm512_maskz_loadu_epi32(here, values);
    __m512i draw = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, upper));
    __m512i most = _mm512_and_si512(_mm512_srli_epi32(bits, 7), _mm512_set1_epi32(0xffff));
    __mmask16 may = _mm512_cmplt_epi32_mask(_mm512_and_si512(bits, rest), last);
    __mmask16 up = _mm512_mask_cmplt_epi32_mask(may, draw, most);
    __mmask16 unsure = _mm512_mask_cmpeq_epi32_mask(_mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x7f)), draw, most);
    __m512i symbol = _mm512_srli_epi32(bits, 23);
    symbol = _mm512_mask_add_epi32(symbol, up, symbol, one);
    _mm256_mask_storeu_epi16(symbols, here, _mm512_cvtepi32_epi16(symbol));
    return (unsure & here) == 0;
}

TG_AVX512 void tg_avx512_natural(uint16_t *symbols, const float *values, const tg_draws *draws, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        if (UNLIKELY(!natural(symbols + i, values + i, draws->upper + i, ALL))) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_natural(symbols + i, values + i, &here, 16);
        }
    }
    if (i < n && UNLIKELY(!natural(symbols + i, values + i, draws->upper + i, lanes_of(n - i)))) {
        tg_draws rest = tg_draws_from(draws, i);
        tg_scalar_natural(symbols + i, values + i, &rest, n - i);
    }
}

/* Two vectors, to hide the latency of the additions. */
TG_AVX512_INLINE void count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n,
                                  __mmask16 first, __mmask16 second)
{
    const __m512i one = _mm512_set1_epi32(1);
    __m512 value[2] = {_mm512_maskz_loadu_ps(first, values), _mm512_maskz_loadu_ps(second, values + 16)};
    __m512i counts[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (uint32_t l = 0; l < limit_n; l++) {
        __m512 limit = _mm512_set1_ps(limits[l]);
        __mmask16 above[2] = {_mm512_cmp_ps_mask(value[0], limit, _CMP_GT_OQ),
                              _mm512_cmp_ps_mask(value[1], limit, _CMP_GT_OQ)};
        counts[0] = _mm512_mask_add_epi32(counts[0], above[0], counts[0], one);
        counts[1] = _mm512_mask_add_epi32(counts[1], above[1], counts[1], one);
    }
    _mm256_mask_storeu_epi16(symbols, first, _mm512_cvtepi32_epi16(counts[0]));
    _mm256_mask_storeu_epi16(symbols + 16, second, _mm512_cvtepi32_epi16(counts[1]));
}

TG_AVX512 void tg_avx512_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n,
                                     size_t n)
{
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        count_above(symbols + i, values + i, limits, limit_n, ALL, ALL);
    }
    __mmask16 second = n - i > 16 ? lanes_of(n - i - 16) : 0;
    count_above(symbols + i, values + i, limits, limit_n, lanes_of(n - i), second);
}

/* Bounds and the distances to the next ones, up to 32 in two registers each. */
typedef struct intervals {
    __m512 low[2], width[2];
} intervals;

TG_AVX512_INLINE bool round_between(uint16_t *symbols, const float *values, const uint16_t *upper, const float *bounds,
                                    uint32_t bound_n, const intervals *at, __m512 scale, __mmask16 here)
{
    const __m512i one = _mm512_set1_epi32(1);
    __m512 value = _mm512_mul_ps(_mm512_maskz_loadu_ps(here, values), scale);
    __m512i below = _mm512_setzero_si512();
    for (uint32_t b = 1; b + 1 < bound_n; b++) {
        __mmask16 reached = _mm512_cmp_ps_mask(_mm512_set1_ps(bounds[b]), value, _CMP_LE_OQ);
        below = _mm512_mask_add_epi32(below, reached, below, one);
    }
    __m512 distance = _mm512_sub_ps(value, _mm512_permutex2var_ps(at->low[0], below, at->low[1]));
    judged up = judge(load_draws(upper, here), _mm512_permutex2var_ps(at->width[0], below, at->width[1]), distance);
    below = _mm512_mask_add_epi32(below, up.below, below, one);
    _mm256_mask_storeu_epi16(symbols, here, _mm512_cvtepi32_epi16(below));
    return (up.unsure & here) == 0;
}

TG_AVX512 void tg_avx512_round_between(uint16_t *symbols, const float *values, const tg_draws *draws,
                                       const float *bounds, uint32_t bound_n, float scale, size_t n)
{
    enum { MOST = 32 };
    float lows[MOST] = {0}, widths[MOST] = {0};
    if (bound_n > MOST) {
        tg_scalar_round_between(symbols, values, draws, bounds, bound_n, scale, n);
        return;
    }
    for (uint32_t b = 0; b + 1 < bound_n; b++) {
        lows[b] = bounds[b];
        widths[b] = bounds[b + 1] - bounds[b];
    }
    const intervals at = {{_mm512_loadu_ps(lows), _mm512_loadu_ps(lows + 16)},
                          {_mm512_loadu_ps(widths), _mm512_loadu_ps(widths + 16)}};
    const __m512 factor = _mm512_set1_ps(scale);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        if (UNLIKELY(!round_between(symbols + i, values + i, draws->upper + i, bounds, bound_n, &at, factor, ALL))) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_round_between(symbols + i, values + i, &here, bounds, bound_n, scale, 16);
        }
    }
    if (i < n && UNLIKELY(!round_between(symbols + i, values + i, draws->upper + i, bounds, bound_n, &at, factor,
                                         lanes_of(n - i)))) {
        tg_draws rest = tg_draws_from(draws, i);
        tg_scalar_round_between(symbols + i, values + i, &rest, bounds, bound_n, scale, n - i);
    }
}

/* ---- decoding ---------------------------------------------------------------------------------------------------------- */

TG_AVX512_INLINE void powers(float *values, const uint16_t *symbols, __mmask16 here)
{
    __m512i symbol = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, symbols));
    _mm512_mask_storeu_epi32(values, here, _mm512_slli_epi32(symbol, 23));
}

TG_AVX512 void tg_avx512_powers(float *values, const uint16_t *symbols, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        powers(values + i, symbols + i, ALL);
    }
    powers(values + i, symbols + i, lanes_of(n - i));
}

/* Up to 256 floats. */
enum { PARTS_MAX = 16 };

typedef struct table {
    __m512 part[PARTS_MAX];
} table;

/* The floats of symbols in a table of 32, 64, 128 or 256 that begins at part p. */
TG_AVX512_INLINE __m512 of_32(__m512i symbol, const table *t, uint32_t p)
{
    return _mm512_permutex2var_ps(t->part[p], symbol, t->part[p + 1]);
}

TG_AVX512_INLINE __m512 of_64(__m512i symbol, const table *t, uint32_t p)
{
    __mmask16 is_upper = _mm512_test_epi32_mask(symbol, _mm512_set1_epi32(32));
    return _mm512_mask_mov_ps(of_32(symbol, t, p), is_upper, of_32(symbol, t, p + 2));
}

TG_AVX512_INLINE __m512 of_128(__m512i symbol, const table *t, uint32_t p)
{
    __mmask16 is_upper = _mm512_test_epi32_mask(symbol, _mm512_set1_epi32(64));
    return _mm512_mask_mov_ps(of_64(symbol, t, p), is_upper, of_64(symbol, t, p + 4));
}

TG_AVX512_INLINE __m512 of_256(__m512i symbol, const table *t)
{
    __mmask16 is_upper = _mm512_test_epi32_mask(symbol, _mm512_set1_epi32(128));
    return _mm512_mask_mov_ps(of_128(symbol, t, 0), is_upper, of_128(symbol, t, 8));
}

/* One vector. `adds` and the number of parts, 2, 4 or 16, are constants. */
TG_AVX512_INLINE void look_up(float *out, const uint16_t *symbols, const table *t, bool adds, uint32_t part_n,
                              __mmask16 here)
{
    __m512i symbol = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, symbols));
    __m512 found = part_n == 2 ? of_32(symbol, t, 0) : part_n == 4 ? of_64(symbol, t, 0) : of_256(symbol, t);
    found = adds ? _mm512_add_ps(_mm512_maskz_loadu_ps(here, out), found) : found;
    _mm512_mask_storeu_ps(out, here, found);
}

/* Four quarters side by side, as in avx512_passes.c. */
TG_AVX512_INLINE void look_up_all(float *out, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n,
                                  bool adds, uint32_t part_n)
{
    table t;
    for (uint32_t p = 0; p < part_n; p++) {
        uint32_t left = float_n > 16 * p ? float_n - 16 * p : 0;
        t.part[p] = _mm512_maskz_loadu_ps(lanes_of(left), left > 0 ? floats + 16 * p : floats);
    }
    size_t quarter = n / 64 * 16;
    for (size_t i = 0; i < quarter; i += 16) {
        for (size_t at = i; at < 4 * quarter; at += quarter) {
            look_up(out + at, symbols + at, &t, adds, part_n, ALL);
        }
    }
    for (size_t at = 4 * quarter; at < n; at += 16) {
        look_up(out + at, symbols + at, &t, adds, part_n, lanes_of(n - at));
    }
}

TG_AVX512 void tg_avx512_look_up(float *values, const uint16_t *symbols, const float *floats, uint32_t float_n,
                                 size_t n)
{
    if (float_n <= 32) {
        look_up_all(values, symbols, floats, float_n, n, false, 2);
    } else if (float_n <= 64) {
        look_up_all(values, symbols, floats, float_n, n, false, 4);
    } else if (float_n <= 256) {
        look_up_all(values, symbols, floats, float_n, n, false, 16);
    } else {
        tg_scalar_look_up(values, symbols, floats, float_n, n);
    }
}

TG_AVX512 void tg_avx512_look_up_add(float *sums, const uint16_t *symbols, const float *floats, uint32_t float_n,
                                     size_t n)
{
    if (float_n <= 32) {
        look_up_all(sums, symbols, floats, float_n, n, true, 2);
    } else if (float_n <= 64) {
        look_up_all(sums, symbols, floats, float_n, n, true, 4);
    } else if (float_n <= 256) {
        look_up_all(sums, symbols, floats, float_n, n, true, 16);
    } else {
        tg_scalar_look_up_add(sums, symbols, floats, float_n, n);
    }
}
#endif
