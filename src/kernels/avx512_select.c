/* Kernels for AVX-512 of order among the values of a bucket; see avx512.h. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>

#define TG_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,popcnt")))
#define INLINED static inline __attribute__((always_inline)) TG_TARGET

INLINED __mmask16 those(size_t n)
{
    return (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1);
}

TG_TARGET void tg_avx512_ends(float ends[2], const float *values, size_t n)
{
    __m512 low = _mm512_set1_ps(values[0]), high = low;
    for (size_t i = 0; i < n; i += 16) {
        __m512 some = _mm512_mask_loadu_ps(low, those(n - i), values + i);
        low = _mm512_min_ps(low, some);
        high = _mm512_max_ps(high, _mm512_mask_mov_ps(high, those(n - i), some));
    }
    ends[0] = _mm512_reduce_min_ps(low);
    ends[1] = _mm512_reduce_max_ps(high);
}

TG_TARGET uint64_t tg_avx512_ways_up(const float *values, double high, double scale, size_t n)
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
    uint64_t rest = tg_kernels_scalar.ways_up(values + i, high, scale, n - i);
    return rest + (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(sums[0], sums[1]));
}

/* ---- the m-th ---------------------------------------------------------------------------------------------------------- */

/* Sixteen of the values in order: ranks by comparing each with all, ties by their places. */
INLINED void sort_sample(float sorted[16], const float *values, size_t n)
{
    float sample[16];
    for (size_t i = 0; i < 16; i++) {
        sample[i] = values[n * (2 * i + 1) / 32];
    }
    const __m512 all = _mm512_loadu_ps(sample);
    for (unsigned i = 0; i < 16; i++) {
        __m512 one = _mm512_set1_ps(sample[i]);
        uint32_t less = _mm512_cmp_ps_mask(all, one, _CMP_LT_OQ);
        uint32_t before = _mm512_cmp_ps_mask(all, one, _CMP_EQ_OQ) & ((1u << i) - 1);
        sorted[_mm_popcnt_u32(less | before)] = sample[i];
    }
}

/* Keeps those from low to high, in their order, and counts what is below; out may be where they are. */
INLINED size_t keep_between(float *out, size_t *below, const float *values, size_t n, float low, float high)
{
    const __m512 least = _mm512_set1_ps(low), most = _mm512_set1_ps(high);
    size_t kept = 0;
    *below = 0;
    for (size_t i = 0; i < n; i += 16) {
        __m512 some = _mm512_maskz_loadu_ps(those(n - i), values + i);
        __mmask16 under = _mm512_mask_cmp_ps_mask(those(n - i), some, least, _CMP_LT_OQ);
        __mmask16 in = _mm512_mask_cmp_ps_mask((__mmask16)(those(n - i) & ~under), some, most, _CMP_LE_OQ);
        _mm512_mask_storeu_ps(out + kept, those((size_t)_mm_popcnt_u32(in)), _mm512_maskz_compress_ps(in, some));
        *below += (size_t)_mm_popcnt_u32(under);
        kept += (size_t)_mm_popcnt_u32(in);
    }
    return kept;
}

/* Again and again those around the place of the m-th in a sample, so far that it is most likely between, until few are left. */
TG_TARGET tg_ordered tg_avx512_nth(float *room, const float *values, size_t n, size_t m)
{
    enum { FEW = 48, MARGIN = 2 };
    const float *among = values;
    size_t among_n = n, before = 0; /* values that are less than those among which the m-th is */
    while (among_n > FEW) {
        float sorted[16];
        sort_sample(sorted, among, among_n);
        long place = (long)((m - before) * 16 / among_n);
        float low = place < MARGIN ? -INFINITY : sorted[place - MARGIN];
        float high = place + MARGIN > 15 ? INFINITY : sorted[place + MARGIN];
        size_t below = 0, kept = keep_between(room, &below, among, among_n, low, high);
        if (m - before < below || m - before >= below + kept) { /* the sample was misleading */
            return tg_kernels_scalar.nth(room, values, n, m);
        }
        before += below;
        among = room;
        if (kept == among_n) { /* many are alike */
            break;
        }
        among_n = kept;
    }
    for (size_t i = 0; among != room && i < n; i++) {
        room[i] = values[i];
    }
    tg_ordered found = {.value = tg_partition(room, among_n, m - before), .less = before};
    for (size_t i = 0; i < among_n; i++) {
        found.less += room[i] < found.value ? 1 : 0;
        found.equal += room[i] == found.value ? 1 : 0;
    }
    return found;
}

TG_TARGET void tg_avx512_split(float *out, const float *values, size_t n, const tg_ordered *at)
{
    const __m512 pivot = _mm512_set1_ps(at->value);
    float *less = out, *more = out + at->less + at->equal;
    for (size_t i = 0; i < n; i += 16) {
        __m512 some = _mm512_maskz_loadu_ps(those(n - i), values + i);
        __mmask16 under = _mm512_mask_cmp_ps_mask(those(n - i), some, pivot, _CMP_LT_OQ);
        __mmask16 over = _mm512_mask_cmp_ps_mask(those(n - i), some, pivot, _CMP_GT_OQ);
        size_t under_n = (size_t)_mm_popcnt_u32(under), over_n = (size_t)_mm_popcnt_u32(over);
        _mm512_mask_storeu_ps(less, those(under_n), _mm512_maskz_compress_ps(under, some));
        _mm512_mask_storeu_ps(more, those(over_n), _mm512_maskz_compress_ps(over, some));
        less += under_n;
        more += over_n;
    }
    for (size_t i = 0; i < at->equal; i++) {
        out[at->less + i] = at->value;
    }
}
#endif
