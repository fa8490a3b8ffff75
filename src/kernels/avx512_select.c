/* Kernels for AVX-512 of order among the values of a bucket; see avx512.h. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>

#define TG_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi,f16c,popcnt")))
#define INLINED static inline __attribute__((always_inline)) TG_TARGET

INLINED __mmask16 those(size_t n)
{
    return (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1);
}

TG_TARGET void tg_avx512_ends(float ends[2], const float *values, size_t n)
{
    enum { SIDE_BY_SIDE = 4 }; /* as each waits for the one before it */
    const __m512 first = _mm512_set1_ps(values[0]);
    __m512 low[SIDE_BY_SIDE] = {first, first, first, first}, high[SIDE_BY_SIDE] = {first, first, first, first};
    size_t i = 0;
    for (; n - i >= 16 * SIDE_BY_SIDE; i += 16 * SIDE_BY_SIDE) {
        for (size_t k = 0; k < SIDE_BY_SIDE; k++) {
            __m512 some = _mm512_loadu_ps(values + i + 16 * k);
            low[k] = _mm512_min_ps(low[k], some);
            high[k] = _mm512_max_ps(high[k], some);
        }
    }
    for (; i < n; i += 16) {
        __m512 some = _mm512_mask_loadu_ps(first, those(n - i), values + i);
        low[0] = _mm512_min_ps(low[0], some);
        high[0] = _mm512_max_ps(high[0], some);
    }
    __m512 least = _mm512_min_ps(_mm512_min_ps(low[0], low[1]), _mm512_min_ps(low[2], low[3]));
    __m512 most = _mm512_max_ps(_mm512_max_ps(high[0], high[1]), _mm512_max_ps(high[2], high[3]));
    ends[0] = _mm512_reduce_min_ps(least);
    ends[1] = _mm512_reduce_max_ps(most);
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

/* Marks are hard to foretell, so up to four of a word are listed whether they are there or not, and many all at once; what is
 * stored behind the last of a word is stored over. */
TG_TARGET size_t tg_avx512_list_marks(uint32_t *list, const uint64_t *mask, size_t n)
{
    enum { FEW = 4 };
    const __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t count = 0;
    for (size_t w = 0; w < (n + 63) / 64; w++) {
        uint64_t word = mask[w];
        size_t marks_n = (size_t)_mm_popcnt_u64(word);
        if (marks_n <= FEW) {
            for (int i = 0; i < FEW; i++) {
                list[count + (size_t)i] = (uint32_t)(w * 64 + _tzcnt_u64(word));
                word = _blsr_u64(word);
            }
            count += marks_n;
            continue;
        }
        for (unsigned part = 0; part < 64; part += 16) {
            __mmask16 marks = (__mmask16)(word >> part);
            __m512i indices = _mm512_add_epi32(_mm512_set1_epi32((int)(w * 64 + part)), places);
            _mm512_storeu_si512(list + count, _mm512_maskz_compress_epi32(marks, indices));
            count += (size_t)_mm_popcnt_u32(marks);
        }
    }
    return count;
}

/* ---- the m-th ---------------------------------------------------------------------------------------------------------- */

/* Up to sixteen values in order: ranks by comparing each with all, ties by their places. */
INLINED void sort_few(float sorted[16], const float *few, unsigned n)
{
    const __m512 all = _mm512_maskz_loadu_ps(those(n), few);
    for (unsigned i = 0; i < n; i++) {
        __m512 one = _mm512_set1_ps(few[i]);
        uint32_t less = _mm512_mask_cmp_ps_mask(those(n), all, one, _CMP_LT_OQ);
        uint32_t before = _mm512_cmp_ps_mask(all, one, _CMP_EQ_OQ) & ((1u << i) - 1);
        sorted[_mm_popcnt_u32(less | before)] = few[i];
    }
}

/* The m-th of up to 32 values. */
INLINED tg_ordered nth_of_few(const float *few, unsigned n, size_t m)
{
    const __mmask16 here[2] = {those(n), those(n > 16 ? n - 16 : 0)};
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

/* Puts the marked ones of sixteen values to `out`, and whatever behind them up to sixteen if there is room. */
INLINED size_t put_marked(float *out, const float *end, __mmask16 marked, __m512 values)
{
    size_t n = (size_t)_mm_popcnt_u32(marked);
    __m512 together = _mm512_maskz_compress_ps(marked, values);
    if (end - out >= 16) {
        _mm512_storeu_ps(out, together);
    } else {
        _mm512_mask_storeu_ps(out, those(n), together);
    }
    return n;
}

/* Keeps those from low to high, in their order, and counts what is below. */
INLINED size_t keep_between(float *out, size_t *below, const float *values, size_t n, float low, float high)
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
    __m512 some = _mm512_maskz_loadu_ps(those(n - i), values + i);
    __mmask16 reached = _mm512_mask_cmp_ps_mask(those(n - i), some, least, _CMP_GE_OQ);
    under += (size_t)_mm_popcnt_u32(reached);
    to += put_marked(to, end, _mm512_mask_cmp_ps_mask(reached, some, most, _CMP_LE_OQ), some);
    *below = n - under;
    return (size_t)(to - out);
}

/* What is around the place of the m-th of some values in a sample of them, so far that it is most likely between. */
typedef struct range {
    float low, high;
} range;

INLINED range around(const float *values, size_t n, size_t m)
{
    enum { SAMPLE = 16, MARGIN = 3 };
    float sample[SAMPLE], sorted[SAMPLE];
    for (size_t i = 0; i < SAMPLE; i++) {
        sample[i] = values[n * (2 * i + 1) / (2 * SAMPLE)];
    }
    sort_few(sorted, sample, SAMPLE);
    size_t place = m * SAMPLE / n;
    return (range){place < MARGIN ? -INFINITY : sorted[place - MARGIN],
                   place + MARGIN >= SAMPLE ? INFINITY : sorted[place + MARGIN]};
}

/* The same of n values that are all between two, as if they were spread evenly; wider by some standard deviations. */
INLINED range inside(range r, size_t n, size_t m)
{
    float width = r.high - r.low, margin = 2.0f / sqrtf((float)n);
    float share = ((float)m + 0.5f) / (float)n;
    return (range){fmaxf(r.low, r.low + width * (share - margin)), fminf(r.high, r.low + width * (share + margin))};
}

/* Those in a range around the m-th, again and again, until few are left. */
TG_TARGET tg_ordered tg_avx512_nth(float *room, const float *values, size_t n, size_t m)
{
    float *rooms[2] = {room, room + n};
    const float *among = values;
    size_t among_n = n, less = 0; /* values that are less than those among which the m-th is */
    range r = {-INFINITY, INFINITY};
    for (int turn = 0; among_n > 32; turn ^= 1) {
        bool bounded = isfinite(r.high - r.low);
        r = bounded ? inside(r, among_n, m - less) : around(among, among_n, m - less);
        size_t below = 0, kept = keep_between(rooms[turn], &below, among, among_n, r.low, r.high);
        if (m - less < below) { /* the sample was misleading: it is on this side, */
            r = (range){-INFINITY, nextafterf(r.low, -INFINITY)};
            kept = keep_between(rooms[turn], &below, among, among_n, r.low, r.high);
        } else if (m - less >= below + kept) { /* or on that */
            r = (range){nextafterf(r.high, INFINITY), INFINITY};
            kept = keep_between(rooms[turn], &below, among, among_n, r.low, r.high);
        }
        less += below;
        if (r.low == r.high) {
            return (tg_ordered){.value = r.low, .less = less, .equal = kept};
        }
        if (kept == among_n) { /* few that are different */
            return tg_kernels_scalar.nth(room, values, n, m);
        }
        among = rooms[turn];
        among_n = kept;
    }
    tg_ordered found = nth_of_few(among, (unsigned)among_n, m - less);
    found.less += less;
    return found;
}

TG_TARGET void tg_avx512_split(float *out, const float *values, size_t n, const tg_ordered *at)
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
    __m512 some = _mm512_maskz_loadu_ps(those(n - i), values + i);
    (void)put_marked(less, middle, _mm512_mask_cmp_ps_mask(those(n - i), some, pivot, _CMP_LT_OQ), some);
    (void)put_marked(more, end, _mm512_mask_cmp_ps_mask(those(n - i), some, pivot, _CMP_GT_OQ), some);
    for (size_t e = 0; e < at->equal; e++) {
        out[at->less + e] = at->value;
    }
}
#endif
