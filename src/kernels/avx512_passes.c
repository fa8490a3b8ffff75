/* Passes over long buffers of fp32 for AVX-512. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include <string.h>

enum { NOT_FINITE = 0x99 }; /* classes of _mm512_fpclass_ps_mask: quiet and signalling NaN, both infinities */

/* Elements before the first cache line, where non-temporal stores can begin; at most n. */
TG_AVX512_INLINE size_t before_line(const float *out, size_t n)
{
    size_t head = (0 - (uintptr_t)out / sizeof *out) % 16;
    return head < n ? head : n;
}

TG_AVX512 bool tg_avx512_all_finite(const float *values, size_t n)
{
    __mmask16 bad = 0;
    for (size_t i = 0; i < (n + 15) / 16; i++) {
        position p = position_of(i, n);
        bad |= _mm512_fpclass_ps_mask(_mm512_maskz_loadu_ps(p.here, values + p.at), NOT_FINITE);
    }
    return bad == 0;
}

/* The elements before the first cache line make a partial vector, then come the rest. Partial vectors are stored with a mask. */
TG_AVX512 bool tg_avx512_accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                                    bool non_temporal)
{
    const __m512 factor = _mm512_set1_ps(share);
    float *last = also != NULL ? also : out;
    __mmask16 bad = 0;
    for (size_t from = 0, end = non_temporal ? before_line(last, n) : 0; from < n; from = end, end = n) {
        for (size_t i = 0; i < (end - from + 15) / 16; i++) {
            position p = position_of(i, end - from);
            size_t at = from + p.at;
            __m512 product = _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(p.here, b + at));
            __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(p.here, a + at), product);
            bad |= _mm512_mask_fpclass_ps_mask(p.here, sum, NOT_FINITE);
            if (also != NULL) {
                _mm512_mask_storeu_ps(out + at, p.here, sum);
            }
            if (non_temporal && p.here == 0xffff) {
                _mm512_stream_ps(last + at, sum);
            } else {
                _mm512_mask_storeu_ps(last + at, p.here, sum);
            }
        }
    }
    return bad == 0;
}

TG_AVX512 bool tg_avx512_subtract(float *out, const float *a, const float *b, size_t n, bool non_temporal)
{
    __mmask16 bad = 0;
    for (size_t from = 0, end = non_temporal ? before_line(out, n) : 0; from < n; from = end, end = n) {
        for (size_t at = from; at < end; at += 16) {
            __mmask16 here = lanes_of(end - at);
            __m512 value = _mm512_maskz_loadu_ps(here, a + at);
            __m512 difference = _mm512_sub_ps(value, _mm512_maskz_loadu_ps(here, b + at));
            bad |= _mm512_fpclass_ps_mask(difference, NOT_FINITE);
            if (non_temporal && here == 0xffff) {
                _mm512_stream_ps(out + at, difference);
            } else {
                _mm512_mask_storeu_ps(out + at, here, difference);
            }
        }
    }
    return bad == 0;
}

TG_AVX512 void tg_avx512_copy(float *out, const float *values, size_t n, bool non_temporal)
{
    if (!non_temporal) {
        memcpy(out, values, n * sizeof *out);
        return;
    }
    size_t head = before_line(out, n), rest = n - head;
    memcpy(out, values, head * sizeof *out);
    for (size_t i = 0; i < rest / 16; i++) {
        size_t at = head + position_of(i, rest).at;
        _mm512_stream_ps(out + at, _mm512_loadu_ps(values + at));
    }
    memcpy(out + n - rest % 16, values + n - rest % 16, rest % 16 * sizeof *out);
}

TG_AVX512 void tg_avx512_stream_bytes(uint8_t *out, const uint8_t *bytes, size_t len)
{
    size_t i = (0 - (uintptr_t)out) % 64;
    i = i < len ? i : len;
    memcpy(out, bytes, i);
    for (; len - i >= 64; i += 64) {
        _mm512_stream_si512((__m512i *)(void *)(out + i), _mm512_loadu_si512(bytes + i));
    }
    memcpy(out + i, bytes + i, len - i);
}

TG_AVX512 void tg_avx512_add(float *sums, const float *values, float weight, size_t n)
{
    const __m512 factor = _mm512_set1_ps(weight);
    for (size_t i = 0; i < (n + 15) / 16; i++) {
        position p = position_of(i, n);
        __m512 sum = _mm512_maskz_loadu_ps(p.here, sums + p.at);
        sum = _mm512_add_ps(sum, _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(p.here, values + p.at)));
        _mm512_mask_storeu_ps(sums + p.at, p.here, sum);
    }
}
#endif
