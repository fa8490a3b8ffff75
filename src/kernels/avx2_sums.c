/* Sums over leaves and buckets for AVX2. Loops add whole steps of 32 values to the partial sums in registers; the last values are
 * added one by one. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/scalar.h"

#include <math.h>

enum { FOUR = 4, VECTORS = TG_SUM_PARTS / FOUR, HALF = TG_SUM_PARTS / 2 };

/* Four values in binary64. */
TG_AVX2_INLINE __m256d load(const float *values)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(values));
}

TG_AVX2_INLINE __m256d magnitude(__m256d values)
{
    return _mm256_andnot_pd(_mm256_set1_pd(-0.0), values);
}

TG_AVX2_INLINE size_t ones(__m256 mask)
{
    return (size_t)_mm_popcnt_u32((uint32_t)_mm256_movemask_ps(mask));
}

TG_AVX2 double tg_avx2_magnitudes(const float *values, size_t n)
{
    __m256d sums[VECTORS];
    double parts[TG_SUM_PARTS];
    size_t i = 0;
    for (int v = 0; v < VECTORS; v++) {
        sums[v] = _mm256_setzero_pd();
    }
    for (; n - i >= TG_SUM_PARTS; i += TG_SUM_PARTS) {
        for (size_t v = 0; v < VECTORS; v++) {
            sums[v] = _mm256_add_pd(sums[v], magnitude(load(values + i + FOUR * v)));
        }
    }
    for (int v = 0; v < VECTORS; v++) {
        _mm256_storeu_pd(parts + FOUR * v, sums[v]);
    }
    for (size_t l = 0; i < n; i++, l++) {
        parts[l] += fabs((double)values[i]);
    }
    return tg_fold(parts);
}

TG_AVX2 double tg_avx2_squares(const float *values, size_t n)
{
    __m256d sums[VECTORS];
    double parts[TG_SUM_PARTS];
    size_t i = 0;
    for (int v = 0; v < VECTORS; v++) {
        sums[v] = _mm256_setzero_pd();
    }
    for (; n - i >= TG_SUM_PARTS; i += TG_SUM_PARTS) {
        for (size_t v = 0; v < VECTORS; v++) {
            __m256d some = load(values + i + FOUR * v);
            sums[v] = _mm256_add_pd(sums[v], _mm256_mul_pd(some, some));
        }
    }
    for (int v = 0; v < VECTORS; v++) {
        _mm256_storeu_pd(parts + FOUR * v, sums[v]);
    }
    for (size_t l = 0; i < n; i++, l++) {
        parts[l] += (double)values[i] * (double)values[i];
    }
    return tg_fold(parts);
}

/* Half of the partial sums of both kinds, since registers do not hold all. Returns how many of the values are not 0. */
TG_AVX2_INLINE size_t moments_of_half(double magnitudes[HALF], double squares[HALF], const float *values, size_t whole)
{
    __m256d first[VECTORS / 2], second[VECTORS / 2];
    size_t count = 0;
    for (int v = 0; v < VECTORS / 2; v++) {
        first[v] = second[v] = _mm256_setzero_pd();
    }
    for (size_t i = 0; i < whole; i += TG_SUM_PARTS) {
        for (size_t v = 0; v < VECTORS / 2; v++) {
            __m256d some = load(values + i + FOUR * v);
            first[v] = _mm256_add_pd(first[v], magnitude(some));
            second[v] = _mm256_add_pd(second[v], _mm256_mul_pd(some, some));
        }
        for (size_t k = 0; k < HALF; k += 8) {
            count += ones(_mm256_cmp_ps(_mm256_loadu_ps(values + i + k), _mm256_setzero_ps(), _CMP_NEQ_UQ));
        }
    }
    for (int v = 0; v < VECTORS / 2; v++) {
        _mm256_storeu_pd(magnitudes + FOUR * v, first[v]);
        _mm256_storeu_pd(squares + FOUR * v, second[v]);
    }
    return count;
}

TG_AVX2 size_t tg_avx2_moments(double of[2], const float *values, size_t n)
{
    double magnitudes[TG_SUM_PARTS], squares[TG_SUM_PARTS];
    size_t whole = n - n % TG_SUM_PARTS;
    size_t count = moments_of_half(magnitudes, squares, values, whole);
    count += moments_of_half(magnitudes + HALF, squares + HALF, values + HALF, whole);
    for (size_t i = whole, l = 0; i < n; i++, l++) {
        magnitudes[l] += fabs((double)values[i]);
        squares[l] += (double)values[i] * (double)values[i];
        count += values[i] != 0 ? 1 : 0;
    }
    of[0] = tg_fold(magnitudes);
    of[1] = tg_fold(squares);
    return count;
}

TG_AVX2_INLINE double fold_floats(const float parts[TG_SUM_PARTS])
{
    double wide[TG_SUM_PARTS];
    for (size_t l = 0; l < TG_SUM_PARTS; l++) {
        wide[l] = (double)parts[l];
    }
    return tg_fold(wide);
}

/* A value is added to the partial sum of the other side as 0, which changes nothing: no partial sum is -0. */
TG_AVX2 size_t tg_avx2_sums_around(double around[2], const float *values, float threshold, float scale, size_t n)
{
    enum { EIGHTS = TG_SUM_PARTS / 8 };
    const __m256 limit = _mm256_set1_ps(threshold), factor = _mm256_set1_ps(scale);
    __m256 below[EIGHTS], above[EIGHTS];
    float parts[2][TG_SUM_PARTS];
    size_t i = 0, count = 0;
    for (int v = 0; v < EIGHTS; v++) {
        below[v] = above[v] = _mm256_setzero_ps();
    }
    for (; n - i >= TG_SUM_PARTS; i += TG_SUM_PARTS) {
        for (size_t v = 0; v < EIGHTS; v++) {
            __m256 some = _mm256_loadu_ps(values + i + 8 * v), scaled = _mm256_mul_ps(some, factor);
            __m256 is_above = _mm256_cmp_ps(some, limit, _CMP_GT_OQ);
            above[v] = _mm256_add_ps(above[v], _mm256_and_ps(is_above, scaled));
            below[v] = _mm256_add_ps(below[v], _mm256_andnot_ps(is_above, scaled));
            count += ones(is_above);
        }
    }
    for (int v = 0; v < EIGHTS; v++) {
        _mm256_storeu_ps(parts[0] + 8 * v, below[v]);
        _mm256_storeu_ps(parts[1] + 8 * v, above[v]);
    }
    for (size_t l = 0; i < n; i++, l++) {
        bool is_above = values[i] > threshold;
        parts[is_above][l] += values[i] * scale;
        count += is_above ? 1 : 0;
    }
    around[0] = fold_floats(parts[0]);
    around[1] = fold_floats(parts[1]);
    return count;
}

TG_AVX2 size_t tg_avx2_sum_above(double *sum, const float *values, float threshold, size_t n)
{
    const __m256 limit = _mm256_set1_ps(threshold), sign = _mm256_set1_ps(-0.0f);
    __m256d sums[4];
    double parts[FOUR];
    size_t i = 0, count = 0;
    for (int v = 0; v < 4; v++) {
        sums[v] = _mm256_setzero_pd();
    }
    for (; n - i >= 16; i += 16) {
        for (size_t h = 0; h < 2; h++) {
            __m256 some = _mm256_andnot_ps(sign, _mm256_loadu_ps(values + i + 8 * h));
            __m256 is_above = _mm256_cmp_ps(some, limit, _CMP_GT_OQ), added = _mm256_and_ps(is_above, some);
            sums[2 * h] = _mm256_add_pd(sums[2 * h], _mm256_cvtps_pd(_mm256_castps256_ps128(added)));
            sums[2 * h + 1] = _mm256_add_pd(sums[2 * h + 1], _mm256_cvtps_pd(_mm256_extractf128_ps(added, 1)));
            count += ones(is_above);
        }
    }
    _mm256_storeu_pd(parts, _mm256_add_pd(_mm256_add_pd(sums[0], sums[1]), _mm256_add_pd(sums[2], sums[3])));
    *sum += parts[0] + parts[1] + parts[2] + parts[3];
    return count + tg_scalar_sum_above(sum, values + i, threshold, n - i);
}
#endif
