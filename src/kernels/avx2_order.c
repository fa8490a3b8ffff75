/* Order statistics of buckets for AVX2. As avx512_order.c, with eight lanes. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/scalar.h"

TG_AVX2 void tg_avx2_ends(float ends[2], const float *values, size_t n)
{
    enum { INTERLEAVED = 4 }; /* hides the latency of the comparisons */
    if (n < 8) {
        tg_scalar_ends(ends, values, n);
        return;
    }
    const __m256 last = _mm256_loadu_ps(values + n - 8); /* instead of the values after the last whole vector */
    __m256 low[INTERLEAVED] = {last, last, last, last}, high[INTERLEAVED] = {last, last, last, last};
    size_t i = 0;
    for (; n - i >= 8 * INTERLEAVED; i += 8 * INTERLEAVED) {
        for (size_t k = 0; k < INTERLEAVED; k++) {
            __m256 some = _mm256_loadu_ps(values + i + 8 * k);
            low[k] = _mm256_min_ps(low[k], some);
            high[k] = _mm256_max_ps(high[k], some);
        }
    }
    for (; n - i >= 8; i += 8) {
        __m256 some = _mm256_loadu_ps(values + i);
        low[0] = _mm256_min_ps(low[0], some);
        high[0] = _mm256_max_ps(high[0], some);
    }
    float all[2][8], of_least[2], of_most[2];
    _mm256_storeu_ps(all[0], _mm256_min_ps(_mm256_min_ps(low[0], low[1]), _mm256_min_ps(low[2], low[3])));
    _mm256_storeu_ps(all[1], _mm256_max_ps(_mm256_max_ps(high[0], high[1]), _mm256_max_ps(high[2], high[3])));
    tg_scalar_ends(of_least, all[0], 8);
    tg_scalar_ends(of_most, all[1], 8);
    ends[0] = of_least[0];
    ends[1] = of_most[1];
}

/* The terms are below 2^51: their integers are then the low bits of the term plus 2^52. */
TG_AVX2 uint64_t tg_avx2_ways_up(const float *values, double high, double scale, size_t n)
{
    const __m256d top = _mm256_set1_pd(high), factor = _mm256_set1_pd(scale), large = _mm256_set1_pd(0x1p52);
    __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    uint64_t all[4];
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        for (size_t k = 0; k < 2; k++) {
            __m256d way = _mm256_sub_pd(top, _mm256_cvtps_pd(_mm_loadu_ps(values + i + 4 * k)));
            way = _mm256_round_pd(_mm256_mul_pd(way, factor), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
            __m256i term = _mm256_castpd_si256(_mm256_xor_pd(_mm256_add_pd(way, large), large));
            sums[k] = _mm256_add_epi64(sums[k], term);
        }
    }
    _mm256_storeu_si256((__m256i *)(void *)all, _mm256_add_epi64(sums[0], sums[1]));
    return all[0] + all[1] + all[2] + all[3] + tg_scalar_ways_up(values + i, high, scale, n - i);
}

/* ---- order statistics -------------------------------------------------------------------------------------------------- */

/* Masks of the eight lanes of a vector that begins `left` elements before the end. */
TG_AVX2_INLINE __m256i lanes_of(size_t left)
{
    static const int32_t masks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(masks + 8 - (left < 8 ? left : 8)));
}

TG_AVX2_INLINE uint32_t marks_of(size_t left)
{
    return left < 8 ? (1u << left) - 1 : 255;
}

TG_AVX2_INLINE uint32_t marks_below(__m256 values, __m256 bound)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(values, bound, _CMP_LT_OQ));
}

TG_AVX2_INLINE uint32_t marks_equal(__m256 values, __m256 bound)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(values, bound, _CMP_EQ_OQ));
}

TG_AVX2_INLINE size_t ones(uint32_t marks)
{
    return (size_t)_mm_popcnt_u32(marks);
}

/* Sorts sixteen values. The rank of each is found by comparing it with all; ties keep their order. */
TG_AVX2_INLINE void sort_sixteen(float sorted[16], const float *few)
{
    const __m256 first = _mm256_loadu_ps(few), last = _mm256_loadu_ps(few + 8);
    for (unsigned i = 0; i < 16; i++) {
        __m256 one = _mm256_set1_ps(few[i]);
        uint32_t less = marks_below(first, one) | marks_below(last, one) << 8;
        uint32_t equal = marks_equal(first, one) | marks_equal(last, one) << 8;
        sorted[ones(less | (equal & ((1u << i) - 1)))] = few[i];
    }
}

/* The m-th of up to 32 values. */
TG_AVX2_INLINE tg_ordered nth_of_few(const float *few, size_t n, size_t m)
{
    uint32_t here[4];
    __m256 all[4];
    for (size_t k = 0; k < 4; k++) {
        size_t left = n > 8 * k ? n - 8 * k : 0;
        here[k] = marks_of(left);
        all[k] = left > 0 ? _mm256_maskload_ps(few + 8 * k, lanes_of(left)) : _mm256_setzero_ps();
    }
    for (size_t i = 0;; i++) {
        __m256 one = _mm256_set1_ps(few[i]);
        size_t less = 0, equal = 0;
        for (int k = 0; k < 4; k++) {
            less += ones(here[k] & marks_below(all[k], one));
            equal += ones(here[k] & marks_equal(all[k], one));
        }
        if (m - less < equal) {
            return (tg_ordered){few[i], less, equal};
        }
    }
}

/* Stores the marked ones of eight values at `out`. Overwrites up to eight elements if `end` allows it. */
TG_AVX2_INLINE size_t put_marked(float *out, const float *end, uint32_t marked, __m256 values)
{
    size_t n = ones(marked);
    __m256 together = _mm256_permutevar8x32_ps(values, lanes_in(&tg_avx2_marked[marked]));
    if (end - out >= 8) {
        _mm256_storeu_ps(out, together);
    } else {
        _mm256_maskstore_ps(out, lanes_of(n), together);
    }
    return n;
}

/* Copies the values in [low, high] in their order, and counts those below; returns the number copied. */
TG_AVX2_INLINE size_t keep_between(float *out, size_t *below, const float *values, size_t n, float low, float high)
{
    const __m256 least = _mm256_set1_ps(low), most = _mm256_set1_ps(high);
    const float *end = out + n;
    float *to = out;
    size_t under = 0;
    for (size_t i = 0; i < n; i += 8) {
        uint32_t here = marks_of(n - i);
        __m256 some = here == 255 ? _mm256_loadu_ps(values + i) : _mm256_maskload_ps(values + i, lanes_of(n - i));
        uint32_t is_under = marks_below(some, least);
        uint32_t is_over = (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(some, most, _CMP_GT_OQ));
        under += ones(is_under & here);
        to += put_marked(to, end, here & ~(is_under | is_over), some);
    }
    *below = under;
    return (size_t)(to - out);
}

#define TG_TARGET TG_AVX2
#include "kernels/order_loops.h"

TG_AVX2 tg_ordered tg_avx2_nth(float *scratch, const float *values, size_t n, size_t m)
{
    return nth(scratch, values, n, m);
}

TG_AVX2 void tg_avx2_split(float *out, const float *values, size_t n, const tg_ordered *at)
{
    const __m256 pivot = _mm256_set1_ps(at->value);
    float *less = out, *more = out + at->less + at->equal;
    const float *end = out + n, *middle = more;
    for (size_t i = 0; i < n; i += 8) {
        uint32_t here = marks_of(n - i);
        __m256 some = here == 255 ? _mm256_loadu_ps(values + i) : _mm256_maskload_ps(values + i, lanes_of(n - i));
        uint32_t is_less = here & marks_below(some, pivot);
        uint32_t is_more = here & ~(marks_below(some, pivot) | marks_equal(some, pivot));
        less += put_marked(less, middle, is_less, some);
        more += put_marked(more, end, is_more, some);
    }
    for (size_t e = 0; e < at->equal; e++) {
        out[at->less + e] = at->value;
    }
}
#endif
