/* Passes over buffers of fp32 for AVX2. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include <string.h>

enum { LANES = 8 };

/* All bits of an element are set where it is NaN or Inf. */
TG_AVX2_INLINE __m256i not_finite(__m256 values)
{
    const __m256i infinity = _mm256_set1_epi32(0x7f800000);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(values), infinity), infinity);
}

/* Four vectors, so that the tests are not waited for. */
TG_AVX2 bool tg_avx2_all_finite(const float *values, size_t n)
{
    __m256i bad = _mm256_setzero_si256();
    size_t i = 0;
    for (; n - i >= 4 * LANES; i += 4 * LANES) {
        __m256i first = not_finite(_mm256_loadu_ps(values + i)),
                second = not_finite(_mm256_loadu_ps(values + i + LANES));
        __m256i third = not_finite(_mm256_loadu_ps(values + i + 2 * LANES));
        __m256i fourth = not_finite(_mm256_loadu_ps(values + i + 3 * LANES));
        bad = _mm256_or_si256(bad, _mm256_or_si256(_mm256_or_si256(first, second), _mm256_or_si256(third, fourth)));
    }
    return _mm256_testz_si256(bad, bad) != 0 && tg_kernels_scalar.passes.all_finite(values + i, n - i);
}

TG_AVX2_INLINE void put(float *out, __m256 values, bool non_temporal)
{
    if (non_temporal) {
        _mm256_stream_ps(out, values);
    } else {
        _mm256_storeu_ps(out, values);
    }
}

/* Elements before the first vector that is aligned, where non-temporal stores can begin; at most n. */
TG_AVX2_INLINE size_t before_aligned(const float *out, size_t n)
{
    size_t head = (0 - (uintptr_t)out / sizeof *out) % LANES;
    return head < n ? head : n;
}

TG_AVX2 void tg_avx2_stream_bytes(uint8_t *out, const uint8_t *bytes, size_t len)
{
    enum { LINE = 64 };
    size_t i = (0 - (uintptr_t)out) % LINE;
    i = i < len ? i : len;
    memcpy(out, bytes, i);
    for (; len - i >= LINE; i += LINE) {
        for (size_t half = i; half < i + LINE; half += LINE / 2) {
            __m256i some = _mm256_loadu_si256((const __m256i *)(const void *)(bytes + half));
            _mm256_stream_si256((__m256i *)(void *)(out + half), some);
        }
    }
    memcpy(out + i, bytes + i, len - i);
}

TG_AVX2 void tg_avx2_copy(float *out, const float *values, size_t n, bool non_temporal)
{
    size_t i = before_aligned(out, n);
    if (!non_temporal) {
        memcpy(out, values, n * sizeof *out);
        return;
    }
    memcpy(out, values, i * sizeof *out);
    for (; n - i >= LANES; i += LANES) {
        _mm256_stream_ps(out + i, _mm256_loadu_ps(values + i));
    }
    memcpy(out + i, values + i, (n - i) * sizeof *out);
}

TG_AVX2_INLINE bool accumulate_all(float *out, const float *a, const float *b, float share, size_t n, bool non_temporal)
{
    __m256i bad = _mm256_setzero_si256();
    const __m256 factor = _mm256_set1_ps(share);
    size_t i = non_temporal ? before_aligned(out, n) : 0;
    bool head = tg_kernels_scalar.passes.accumulate(out, NULL, a, b, share, i, false);
    for (; n - i >= LANES; i += LANES) {
        __m256 value = _mm256_loadu_ps(a + i);
        _mm_prefetch((const char *)(a + i) + PREFETCH_DISTANCE * sizeof *a, _MM_HINT_T0);
        _mm_prefetch((const char *)(b + i) + PREFETCH_DISTANCE * sizeof *b, _MM_HINT_T0);
        __m256 sum = _mm256_add_ps(value, _mm256_mul_ps(factor, _mm256_loadu_ps(b + i)));
        bad = _mm256_or_si256(bad, not_finite(sum));
        put(out + i, sum, non_temporal);
    }
    bool tail = tg_kernels_scalar.passes.accumulate(out + i, NULL, a + i, b + i, share, n - i, false);
    return head && tail && _mm256_testz_si256(bad, bad) != 0;
}

TG_AVX2 bool tg_avx2_accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                                bool non_temporal)
{
    bool finite = non_temporal && also == NULL ? accumulate_all(out, a, b, share, n, true)
                                               : accumulate_all(out, a, b, share, n, false);
    if (also != NULL) {
        tg_avx2_copy(also, out, n, non_temporal);
    }
    return finite;
}

TG_AVX2_INLINE bool subtract_all(float *out, const float *a, const float *b, size_t n, bool non_temporal)
{
    __m256i bad = _mm256_setzero_si256();
    size_t i = non_temporal ? before_aligned(out, n) : 0;
    bool head = tg_kernels_scalar.passes.subtract(out, a, b, i, false);
    for (; n - i >= LANES; i += LANES) {
        __m256 difference = _mm256_sub_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i));
        bad = _mm256_or_si256(bad, not_finite(difference));
        put(out + i, difference, non_temporal);
    }
    bool tail = tg_kernels_scalar.passes.subtract(out + i, a + i, b + i, n - i, false);
    return head && tail && _mm256_testz_si256(bad, bad) != 0;
}

TG_AVX2 bool tg_avx2_subtract(float *out, const float *a, const float *b, size_t n, bool non_temporal)
{
    return non_temporal ? subtract_all(out, a, b, n, true) : subtract_all(out, a, b, n, false);
}

TG_AVX2_INLINE bool divide_all(float *out, const float *values, float factor, size_t n, bool multiplies,
                               bool non_temporal)
{
    __m256i bad = _mm256_setzero_si256();
    const __m256 factors = _mm256_set1_ps(factor);
    float divisor = multiplies ? 1.0f / factor : factor;
    size_t i = non_temporal ? before_aligned(out, n) : 0;
    bool head = tg_kernels_scalar.passes.divide(out, values, divisor, i, false);
    for (; n - i >= LANES; i += LANES) {
        __m256 value = _mm256_loadu_ps(values + i);
        __m256 quotient = multiplies ? _mm256_mul_ps(value, factors) : _mm256_div_ps(value, factors);
        bad = _mm256_or_si256(bad, not_finite(quotient));
        put(out + i, quotient, non_temporal);
    }
    bool tail = tg_kernels_scalar.passes.divide(out + i, values + i, divisor, n - i, false);
    return head && tail && _mm256_testz_si256(bad, bad) != 0;
}

TG_AVX2 bool tg_avx2_divide(float *out, const float *values, float divisor, size_t n, bool non_temporal)
{
    if (tg_is_power_of_two(divisor)) { /* the reciprocal is exact, and so the product is the quotient */
        return non_temporal ? divide_all(out, values, 1.0f / divisor, n, true, true)
                            : divide_all(out, values, 1.0f / divisor, n, true, false);
    }
    return non_temporal ? divide_all(out, values, divisor, n, false, true)
                        : divide_all(out, values, divisor, n, false, false);
}

TG_AVX2 void tg_avx2_add(float *sums, const float *values, float weight, size_t n)
{
    const __m256 factor = _mm256_set1_ps(weight);
    size_t i = 0;
    for (; n - i >= LANES; i += LANES) {
        __m256 product = _mm256_mul_ps(factor, _mm256_loadu_ps(values + i));
        _mm256_storeu_ps(sums + i, _mm256_add_ps(_mm256_loadu_ps(sums + i), product));
    }
    tg_kernels_scalar.passes.add(sums + i, values + i, weight, n - i);
}
#endif
