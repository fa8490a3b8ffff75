/* Order statistics of buckets for AVX-512. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include "kernels/scalar.h"

TG_AVX512 void tg_avx512_ends(float ends[2], const float *values, size_t n)
{
    enum { INTERLEAVED = 4 }; /* hides the latency of the comparisons */
    const __m512 first = _mm512_set1_ps(values[0]);
    __m512 low[INTERLEAVED] = {first, first, first, first}, high[INTERLEAVED] = {first, first, first, first};
    size_t i = 0;
    for (; n - i >= 16 * INTERLEAVED; i += 16 * INTERLEAVED) {
        for (size_t k = 0; k < INTERLEAVED; k++) {
            __m512 some = _mm512_loadu_ps(values + i + 16 * k);
            low[k] = _mm512_min_ps(low[k], some);
            high[k] = _mm512_max_ps(high[k], some);
        }
    }
    for (; i < n; i += 16) {
        __m512 some = _mm512_mask_loadu_ps(first, lanes_of(n - i), values + i);
        low[0] = _mm512_min_ps(low[0], some);
        high[0] = _mm512_max_ps(high[0], some);
    }
    __m512 least = _mm512_min_ps(_mm512_min_ps(low[0], low[1]), _mm512_min_ps(low[2], low[3]));
    __m512 most = _mm512_max_ps(_mm512_max_ps(high[0], high[1]), _mm512_max_ps(high[2], high[3]));
    ends[0] = _mm512_reduce_min_ps(least);
    ends[1] = _mm512_reduce_max_ps(most);
}

TG_AVX512 uint64_t tg_avx512_ways_up(const float *values, double high, double scale, size_t n)
{
    const __m512d top = _mm512_set1_pd(high), factor = _mm512_set1_pd(scale);
    __m512i sums[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (int k = 0; k < 2; k++) {
            __m512d way = _mm512_sub_pd(top, _mm512_cvtps_pd(_mm256_loadu_ps(values + i + 8 * k)));
            sums[k] = _mm512_add_epi64(sums[k], _mm512_cvttpd_epi64(_mm512_mul_pd(way, factor)));
        }
    }
    for (; i < n; i += 8) {
        __mmask8 here = (__mmask8)lanes_of(n - i);
        __m512d way = _mm512_sub_pd(top, _mm512_cvtps_pd(_mm256_maskz_loadu_ps(here, values + i)));
        sums[0] = _mm512_mask_add_epi64(sums[0], here, sums[0], _mm512_cvttpd_epi64(_mm512_mul_pd(way, factor)));
    }
    return (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(sums[0], sums[1]));
}

/* ---- order statistics -------------------------------------------------------------------------------------------------- */

/* Sorts sixteen values. The rank of each is found by comparing it with all; ties keep their order. */
TG_AVX512_INLINE void sort_sixteen(float sorted[16], const float *few)
{
    const __m512 all = _mm512_loadu_ps(few);
    for (unsigned i = 0; i < 16; i++) {
        __m512 one = _mm512_set1_ps(few[i]);
        uint32_t less = _mm512_cmp_ps_mask(all, one, _CMP_LT_OQ);
        uint32_t before = _mm512_cmp_ps_mask(all, one, _CMP_EQ_OQ) & ((1u << i) - 1);
        sorted[_mm_popcnt_u32(less | before)] = few[i];
    }
}

/* The m-th of up to 32 values. */
TG_AVX512_INLINE tg_ordered nth_of_few(const float *few, size_t n, size_t m)
{
    const __mmask16 here[2] = {lanes_of(n), lanes_of(n > 16 ? n - 16 : 0)};
    const __m512 all[2] = {_mm512_maskz_loadu_ps(here[0], few), _mm512_maskz_loadu_ps(here[1], few + 16)};
    for (unsigned i = 0;; i++) {
        __m512 one = _mm512_set1_ps(few[i]);
        size_t less = 0, equal = 0;
        for (int k = 0; k < 2; k++) {
            less += (size_t)_mm_popcnt_u32(_mm512_mask_cmp_ps_mask(here[k], all[k], one, _CMP_LT_OQ));
            equal += (size_t)_mm_popcnt_u32(_mm512_mask_cmp_ps_mask(here[k], all[k], one, _CMP_EQ_OQ));
        }
        if (m - less < equal) {
            return (tg_ordered){few[i], less, equal};
        }
    }
}

/* Stores the marked ones of sixteen values at `out`. Overwrites up to sixteen elements if `end` allows it. */
TG_AVX512_INLINE size_t put_marked(float *out, const float *end, __mmask16 marked, __m512 values)
{
    size_t n = (size_t)_mm_popcnt_u32(marked);
    __m512 together = _mm512_maskz_compress_ps(marked, values);
    if (end - out >= 16) {
        _mm512_storeu_ps(out, together);
    } else {
        _mm512_mask_storeu_ps(out, lanes_of(n), together);
    }
    return n;
}

/* Copies the values in [low, high] in their order, and counts those below; returns the number copied. */
TG_AVX512_INLINE size_t keep_between(float *out, size_t *below, const float *values, size_t n, float low, float high)
{
    const __m512 least = _mm512_set1_ps(low), most = _mm512_set1_ps(high);
    const float *end = out + n;
    float *to = out;
    size_t under = 0, i = 0;
    for (; n - i >= 16; i += 16) {
        __m512 some = _mm512_loadu_ps(values + i);
        __mmask16 reached = _mm512_cmp_ps_mask(some, least, _CMP_GE_OQ);
        under += (size_t)_mm_popcnt_u32(reached);
        to += put_marked(to, end, _mm512_mask_cmp_ps_mask(reached, some, most, _CMP_LE_OQ), some);
    }
    __m512 some = _mm512_maskz_loadu_ps(lanes_of(n - i), values + i);
    __mmask16 reached = _mm512_mask_cmp_ps_mask(lanes_of(n - i), some, least, _CMP_GE_OQ);
    under += (size_t)_mm_popcnt_u32(reached);
    to += put_marked(to, end, _mm512_mask_cmp_ps_mask(reached, some, most, _CMP_LE_OQ), some);
    *below = n - under;
    return (size_t)(to - out);
}

#define TG_TARGET TG_AVX512
#include "kernels/order_loops.h"

TG_AVX512 tg_ordered tg_avx512_nth(float *scratch, const float *values, size_t n, size_t m)
{
    return nth(scratch, values, n, m);
}

TG_AVX512 void tg_avx512_split(float *out, const float *values, size_t n, const tg_ordered *at)
{
    const __m512 pivot = _mm512_set1_ps(at->value);
    float *less = out, *more = out + at->less + at->equal;
    const float *end = out + n, *middle = more;
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m512 some = _mm512_loadu_ps(values + i);
        less += put_marked(less, middle, _mm512_cmp_ps_mask(some, pivot, _CMP_LT_OQ), some);
        more += put_marked(more, end, _mm512_cmp_ps_mask(some, pivot, _CMP_GT_OQ), some);
    }
    __m512 some = _mm512_maskz_loadu_ps(lanes_of(n - i), values + i);
    (void)put_marked(less, middle, _mm512_mask_cmp_ps_mask(lanes_of(n - i), some, pivot, _CMP_LT_OQ), some);
    (void)put_marked(more, end, _mm512_mask_cmp_ps_mask(lanes_of(n - i), some, pivot, _CMP_GT_OQ), some);
    for (size_t e = 0; e < at->equal; e++) {
        out[at->less + e] = at->value;
    }
}
#endif
