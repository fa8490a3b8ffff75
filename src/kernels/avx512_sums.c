/* Sums over buckets for AVX-512. */
#include "kernels/avx512.h"

#if defined(__x86_64__)

/* Sixteen partial sums in binary64: of the first and of the last eight lanes. */
typedef struct sums {
    __m512d first, last;
} sums;

TG_AVX512_INLINE double in_order(sums s)
{
    double all[16], sum = 0;
    _mm512_storeu_pd(all, s.first);
    _mm512_storeu_pd(all + 8, s.last);
    for (int l = 0; l < 16; l++) {
        sum += all[l];
    }
    return sum;
}

TG_AVX512_INLINE __m512d first_of(__m512 values)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(values));
}

TG_AVX512_INLINE __m512d last_of(__m512 values)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(values, 1));
}

TG_AVX512_INLINE sums plus(sums s, __m512 values)
{
    return (sums){_mm512_add_pd(s.first, first_of(values)), _mm512_add_pd(s.last, last_of(values))};
}

TG_AVX512_INLINE sums plus_squares(sums s, __m512 values)
{
    __m512d first = first_of(values), last = last_of(values);
    /* The square of a float is exact in binary64, so a fused operation rounds as two operations do. */
    return (sums){_mm512_fmadd_pd(first, first, s.first), _mm512_fmadd_pd(last, last, s.last)};
}

/* Partial sums of a stretch in binary32. */
typedef struct stretch {
    __m512 below, above;
} stretch;

/* Adds the values of the lanes `here`; returns how many are above the limit. */
TG_AVX512_INLINE size_t add_around(stretch *s, __mmask16 here, const float *values, __m512 limit, __m512 scale)
{
    __m512 value = _mm512_maskz_loadu_ps(here, values);
    __mmask16 is_above = _mm512_mask_cmp_ps_mask(here, value, limit, _CMP_GT_OQ);
    __m512 scaled = _mm512_mul_ps(value, scale);
    s->above = _mm512_mask_add_ps(s->above, is_above, s->above, scaled);
    s->below = _mm512_mask_add_ps(s->below, (__mmask16)(here & ~is_above), s->below, scaled);
    return (size_t)_mm_popcnt_u32(is_above);
}

/* Four stretches are interleaved to hide the latency of the additions. */
TG_AVX512 size_t tg_avx512_sums_around(double around[2], const float *values, float threshold, float scale, size_t n)
{
    enum { INTERLEAVED = 4 };
    const __m512 limit = _mm512_set1_ps(threshold), factor = _mm512_set1_ps(scale), zero = _mm512_setzero_ps();
    sums below = {_mm512_setzero_pd(), _mm512_setzero_pd()}, above = below;
    size_t count = 0, at = 0;
    for (; n - at >= INTERLEAVED * TG_STRETCH; at += INTERLEAVED * TG_STRETCH) {
        stretch s[INTERLEAVED] = {{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};
        for (size_t i = at; i < at + TG_STRETCH; i += 16) {
            for (size_t k = 0; k < INTERLEAVED; k++) {
                count += add_around(&s[k], 0xffff, values + i + k * TG_STRETCH, limit, factor);
            }
        }
        for (size_t k = 0; k < INTERLEAVED; k++) {
            below = plus(below, s[k].below);
            above = plus(above, s[k].above);
        }
    }
    for (; at < n; at += TG_STRETCH) {
        size_t end = n - at < TG_STRETCH ? n : at + TG_STRETCH;
        stretch s = {zero, zero};
        for (size_t i = at; i < end; i += 16) {
            count += add_around(&s, lanes_of(end - i), values + i, limit, factor);
        }
        below = plus(below, s.below);
        above = plus(above, s.above);
    }
    around[0] = in_order(below);
    around[1] = in_order(above);
    return count;
}

TG_AVX512 size_t tg_avx512_moments(double of[2], const float *values, size_t n)
{
    sums magnitudes = {_mm512_setzero_pd(), _mm512_setzero_pd()}, squares = magnitudes;
    size_t count = 0;
    for (size_t i = 0; i < n; i += 16) {
        __m512 value = _mm512_maskz_loadu_ps(lanes_of(n - i), values + i), magnitude = _mm512_abs_ps(value);
        magnitudes = plus(magnitudes, magnitude);
        squares = plus_squares(squares, magnitude);
        count += (size_t)_mm_popcnt_u32(_mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_NEQ_UQ));
    }
    of[0] = in_order(magnitudes);
    of[1] = in_order(squares);
    return count;
}

TG_AVX512 double tg_avx512_squares(const float *values, size_t n)
{
    sums squares = {_mm512_setzero_pd(), _mm512_setzero_pd()};
    for (size_t i = 0; i < n; i += 16) {
        squares = plus_squares(squares, _mm512_maskz_loadu_ps(lanes_of(n - i), values + i));
    }
    return in_order(squares);
}
#endif
