/* Sums over leaves and buckets for AVX-512. */
#include "kernels/avx512.h"

#if defined(__x86_64__)

enum { EIGHT = 8, VECTORS = TG_SUM_PARTS / EIGHT };

/* The partial sums of a leaf, in binary64. */
typedef struct parts {
    __m512d of[VECTORS];
} parts;

TG_AVX512_INLINE parts no_parts(void)
{
    const __m512d zero = _mm512_setzero_pd();
    return (parts){{zero, zero, zero, zero}};
}

/* By halves: 32 to 16 to 8 as whole vectors, then inside one. */
TG_AVX512_INLINE double fold(parts p)
{
    __m512d eight = _mm512_add_pd(_mm512_add_pd(p.of[0], p.of[2]), _mm512_add_pd(p.of[1], p.of[3]));
    __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

TG_AVX512_INLINE __m512d first_of(__m512 values)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(values));
}

TG_AVX512_INLINE __m512d last_of(__m512 values)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(values, 1));
}

/* Sixteen values to the partial sums from number 16 * half on. */
TG_AVX512_INLINE void add(parts *p, int half, __m512 values)
{
    p->of[2 * half] = _mm512_add_pd(p->of[2 * half], first_of(values));
    p->of[2 * half + 1] = _mm512_add_pd(p->of[2 * half + 1], last_of(values));
}

/* The square of a float is exact in binary64, so a fused operation rounds as two operations do. */
TG_AVX512_INLINE void add_squares(parts *p, int half, __m512 values)
{
    __m512d first = first_of(values), last = last_of(values);
    p->of[2 * half] = _mm512_fmadd_pd(first, first, p->of[2 * half]);
    p->of[2 * half + 1] = _mm512_fmadd_pd(last, last, p->of[2 * half + 1]);
}

/* Values i to i + 15 of n, zeros after the end. */
TG_AVX512_INLINE __m512 load(const float *values, size_t i, size_t n)
{
    return n - i >= 16 && i < n ? _mm512_loadu_ps(values + i)
           : i < n              ? _mm512_maskz_loadu_ps(lanes_of(n - i), values + i)
                                : _mm512_setzero_ps();
}

/* Each function below adds the 32 values from number i on, of which n is the end; for whole steps the compiler sees that loads
 * are whole. */
TG_AVX512_INLINE void add_all(parts *p, const float *values, size_t i, size_t n)
{
    add(p, 0, _mm512_abs_ps(load(values, i, n)));
    add(p, 1, _mm512_abs_ps(load(values, i + 16, n)));
}

TG_AVX512 double tg_avx512_magnitudes(const float *values, size_t n)
{
    parts p = no_parts();
    size_t i = 0;
    for (; n - i >= TG_SUM_PARTS; i += TG_SUM_PARTS) {
        add_all(&p, values, i, i + TG_SUM_PARTS);
    }
    add_all(&p, values, i, n);
    return fold(p);
}

TG_AVX512_INLINE void add_all_squares(parts *p, const float *values, size_t i, size_t n)
{
    add_squares(p, 0, load(values, i, n));
    add_squares(p, 1, load(values, i + 16, n));
}

TG_AVX512 double tg_avx512_squares(const float *values, size_t n)
{
    parts p = no_parts();
    size_t i = 0;
    for (; n - i >= TG_SUM_PARTS; i += TG_SUM_PARTS) {
        add_all_squares(&p, values, i, i + TG_SUM_PARTS);
    }
    add_all_squares(&p, values, i, n);
    return fold(p);
}

TG_AVX512_INLINE size_t add_moments(parts *magnitudes, parts *squares, const float *values, size_t i, size_t n)
{
    size_t count = 0;
    for (int half = 0; half < 2; half++) {
        __m512 value = load(values, i + (size_t)half * 16, n);
        add(magnitudes, half, _mm512_abs_ps(value));
        add_squares(squares, half, value);
        count += (size_t)_mm_popcnt_u32(_mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_NEQ_UQ));
    }
    return count;
}

TG_AVX512 size_t tg_avx512_moments(double of[2], const float *values, size_t n)
{
    parts magnitudes = no_parts(), squares = no_parts();
    size_t count = 0, i = 0;
    for (; n - i >= TG_SUM_PARTS; i += TG_SUM_PARTS) {
        count += add_moments(&magnitudes, &squares, values, i, i + TG_SUM_PARTS);
    }
    count += add_moments(&magnitudes, &squares, values, i, n);
    of[0] = fold(magnitudes);
    of[1] = fold(squares);
    return count;
}

/* Sixteen partial sums of each group, in binary32. */
typedef struct around {
    __m512 below, above;
} around;

/* Adds the values of the lanes `here`; returns how many are above the limit. */
TG_AVX512_INLINE size_t add_around(around *s, __mmask16 here, const float *values, __m512 limit, __m512 scale)
{
    __m512 value = _mm512_maskz_loadu_ps(here, values);
    __mmask16 is_above = _mm512_mask_cmp_ps_mask(here, value, limit, _CMP_GT_OQ);
    __m512 scaled = _mm512_mul_ps(value, scale);
    s->above = _mm512_mask_add_ps(s->above, is_above, s->above, scaled);
    s->below = _mm512_mask_add_ps(s->below, (__mmask16)(here & ~is_above), s->below, scaled);
    return (size_t)_mm_popcnt_u32(is_above);
}

TG_AVX512_INLINE double fold_halves(__m512 lower, __m512 upper)
{
    return fold((parts){{first_of(lower), last_of(lower), first_of(upper), last_of(upper)}});
}

TG_AVX512 size_t tg_avx512_sums_around(double sums[2], const float *values, float threshold, float scale, size_t n)
{
    const __m512 limit = _mm512_set1_ps(threshold), factor = _mm512_set1_ps(scale), zero = _mm512_setzero_ps();
    around s[2] = {{zero, zero}, {zero, zero}};
    size_t count = 0, i = 0;
    for (; n - i >= TG_SUM_PARTS; i += TG_SUM_PARTS) {
        count += add_around(&s[0], ALL, values + i, limit, factor);
        count += add_around(&s[1], ALL, values + i + 16, limit, factor);
    }
    if (i < n) {
        count += add_around(&s[0], lanes_of(n - i), values + i, limit, factor);
    }
    if (n - i > 16) {
        count += add_around(&s[1], lanes_of(n - i - 16), values + i + 16, limit, factor);
    }
    sums[0] = fold_halves(s[0].below, s[1].below);
    sums[1] = fold_halves(s[0].above, s[1].above);
    return count;
}

TG_AVX512_INLINE size_t add_above(parts *p, const float *values, __m512 limit, size_t i, size_t n)
{
    size_t count = 0;
    for (int half = 0; half < 2; half++) {
        __m512 magnitude = _mm512_abs_ps(load(values, i + (size_t)half * 16, n));
        __mmask16 above = _mm512_cmp_ps_mask(magnitude, limit, _CMP_GT_OQ);
        add(p, half, _mm512_maskz_mov_ps(above, magnitude));
        count += (size_t)_mm_popcnt_u32(above);
    }
    return count;
}

TG_AVX512 size_t tg_avx512_sum_above(double *sum, const float *values, float threshold, size_t n)
{
    const __m512 limit = _mm512_set1_ps(threshold);
    parts p = no_parts();
    size_t count = 0, i = 0;
    for (; n - i >= TG_SUM_PARTS; i += TG_SUM_PARTS) {
        count += add_above(&p, values, limit, i, i + TG_SUM_PARTS);
    }
    count += add_above(&p, values, limit, i, n);
    *sum += fold(p);
    return count;
}
#endif
