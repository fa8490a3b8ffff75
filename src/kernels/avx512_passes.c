/* Passes over long buffers of fp32 for AVX-512. They visit four quarters of a buffer side by side, because a core reads several
 * pages at once faster than one after the other. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include <string.h>

enum { NOT_FINITE = 0x99 }; /* classes of _mm512_fpclass_ps_mask: quiet and signalling NaN, both infinities */

TG_AVX512 bool tg_avx512_all_finite(const float *values, size_t n)
{
    __mmask16 bad = 0;
    size_t quarter = n / 64 * 16;
    for (size_t i = 0; i < quarter; i += 16) {
        for (size_t at = i; at < 4 * quarter; at += quarter) {
            bad |= _mm512_fpclass_ps_mask(_mm512_loadu_ps(values + at), NOT_FINITE);
        }
    }
    for (size_t at = 4 * quarter; at < n; at += 16) {
        bad |= _mm512_fpclass_ps_mask(_mm512_maskz_loadu_ps(lanes_of(n - at), values + at), NOT_FINITE);
    }
    return bad == 0;
}

/* Elements before the first cache line, where non-temporal stores can begin; at most n. */
TG_AVX512_INLINE size_t before_line(const float *out, size_t n)
{
    size_t head = (0 - (uintptr_t)out / sizeof *out) % 16;
    return head < n ? head : n;
}

/* One vector of a sum, to `out` and, if `twice`, to `also`. Returns the lanes that are not finite. */
TG_AVX512_INLINE __mmask16 accumulate_vector(float *out, float *also, const float *a, const float *b, __m512 share,
                                             bool twice, bool non_temporal)
{
    __m512 sum = _mm512_add_ps(_mm512_loadu_ps(a), _mm512_mul_ps(share, _mm512_loadu_ps(b)));
    float *last = twice ? also : out;
    if (twice) {
        _mm512_storeu_ps(out, sum);
    }
    if (non_temporal) {
        _mm512_stream_ps(last, sum);
    } else {
        _mm512_storeu_ps(last, sum);
    }
    return _mm512_fpclass_ps_mask(sum, NOT_FINITE);
}

/* All vectors of a sum that starts at a cache line, if `non_temporal`; returns how many elements they are. Both conditions are
 * constants where this is inlined. */
TG_AVX512_INLINE size_t accumulate(__mmask16 *bad, float *out, float *also, const float *a, const float *b, float share,
                                   size_t n, bool twice, bool non_temporal)
{
    const __m512 factor = _mm512_set1_ps(share);
    size_t quarter = n / 64 * 16, at = 0;
    __mmask16 found = 0;
    for (size_t i = 0; i < quarter; i += 16) {
        for (size_t k = 0; k < 4; k++) {
            at = i + k * quarter;
            found |= accumulate_vector(out + at, also + at, a + at, b + at, factor, twice, non_temporal);
        }
    }
    for (at = 4 * quarter; n - at >= 16; at += 16) {
        found |= accumulate_vector(out + at, also + at, a + at, b + at, factor, twice, non_temporal);
    }
    *bad |= found;
    return at;
}

TG_AVX512 bool tg_avx512_accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                                    bool non_temporal)
{
    bool twice = also != NULL, finite = true;
    float *last = twice ? also : out;
    size_t at = non_temporal ? before_line(last, n) : 0;
    __mmask16 bad = 0;
    if (at > 0) { /* by scalar code: a masked store into a line of non-temporal ones is slower */
        finite = tg_kernels_scalar.passes.accumulate(out, also, a, b, share, at, false);
    }
    if (non_temporal) {
        at += twice ? accumulate(&bad, out + at, last + at, a + at, b + at, share, n - at, true, true)
                    : accumulate(&bad, out + at, last + at, a + at, b + at, share, n - at, false, true);
    } else {
        at += twice ? accumulate(&bad, out + at, last + at, a + at, b + at, share, n - at, true, false)
                    : accumulate(&bad, out + at, last + at, a + at, b + at, share, n - at, false, false);
    }
    if (at < n) {
        float *rest = twice ? also + at : NULL;
        finite = tg_kernels_scalar.passes.accumulate(out + at, rest, a + at, b + at, share, n - at, false) && finite;
    }
    return finite && bad == 0;
}

/* One vector of a difference. Returns the lanes that are not finite. */
TG_AVX512_INLINE __mmask16 subtract(float *out, const float *a, const float *b, __mmask16 here, bool non_temporal)
{
    __m512 difference = _mm512_sub_ps(_mm512_maskz_loadu_ps(here, a), _mm512_maskz_loadu_ps(here, b));
    if (non_temporal) {
        _mm512_stream_ps(out, difference);
    } else {
        _mm512_mask_storeu_ps(out, here, difference);
    }
    return _mm512_fpclass_ps_mask(difference, NOT_FINITE);
}

TG_AVX512 bool tg_avx512_subtract(float *out, const float *a, const float *b, size_t n, bool non_temporal)
{
    size_t i = non_temporal ? before_line(out, n) : 0;
    __mmask16 bad = subtract(out, a, b, lanes_of(i), false);
    for (; n - i >= 16; i += 16) {
        bad |= subtract(out + i, a + i, b + i, ALL, non_temporal);
    }
    bad |= subtract(out + i, a + i, b + i, lanes_of(n - i), false);
    return bad == 0;
}

/* One vector of quotients, or of products where `factor` is the reciprocal. Returns the lanes that are not finite. */
TG_AVX512_INLINE __mmask16 divide(float *out, const float *values, __m512 factor, __mmask16 here, bool multiplies,
                                  bool non_temporal)
{
    __m512 value = _mm512_maskz_loadu_ps(here, values);
    __m512 quotient = multiplies ? _mm512_mul_ps(value, factor) : _mm512_maskz_div_ps(here, value, factor);
    if (non_temporal) {
        _mm512_stream_ps(out, quotient);
    } else {
        _mm512_mask_storeu_ps(out, here, quotient);
    }
    return _mm512_fpclass_ps_mask(quotient, NOT_FINITE);
}

TG_AVX512_INLINE bool divide_all(float *out, const float *values, float factor, size_t n, bool multiplies,
                                 bool non_temporal)
{
    const __m512 factors = _mm512_set1_ps(factor);
    size_t i = non_temporal ? before_line(out, n) : 0;
    __mmask16 bad = divide(out, values, factors, lanes_of(i), multiplies, false);
    for (; n - i >= 16; i += 16) {
        bad |= divide(out + i, values + i, factors, ALL, multiplies, non_temporal);
    }
    bad |= divide(out + i, values + i, factors, lanes_of(n - i), multiplies, false);
    return bad == 0;
}

TG_AVX512 bool tg_avx512_divide(float *out, const float *values, float divisor, size_t n, bool non_temporal)
{
    if (tg_is_power_of_two(divisor)) { /* the reciprocal is exact, and so the product is the quotient */
        return non_temporal ? divide_all(out, values, 1.0f / divisor, n, true, true)
                            : divide_all(out, values, 1.0f / divisor, n, true, false);
    }
    return non_temporal ? divide_all(out, values, divisor, n, false, true)
                        : divide_all(out, values, divisor, n, false, false);
}

TG_AVX512 void tg_avx512_copy(float *out, const float *values, size_t n, bool non_temporal)
{
    if (!non_temporal) {
        memcpy(out, values, n * sizeof *out);
        return;
    }
    size_t head = before_line(out, n), quarter = (n - head) / 64 * 16, end = head + 4 * quarter;
    memcpy(out, values, head * sizeof *out);
    for (size_t i = head; i < head + quarter; i += 16) {
        for (size_t at = i; at < end; at += quarter) {
            _mm512_stream_ps(out + at, _mm512_loadu_ps(values + at));
        }
    }
    memcpy(out + end, values + end, (n - end) * sizeof *out);
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

TG_AVX512_INLINE void add(float *sums, const float *values, __m512 weight, __mmask16 here)
{
    __m512 product = _mm512_mul_ps(weight, _mm512_maskz_loadu_ps(here, values));
    _mm512_mask_storeu_ps(sums, here, _mm512_add_ps(_mm512_maskz_loadu_ps(here, sums), product));
}

TG_AVX512 void tg_avx512_add(float *sums, const float *values, float weight, size_t n)
{
    const __m512 factor = _mm512_set1_ps(weight);
    size_t quarter = n / 64 * 16;
    for (size_t i = 0; i < quarter; i += 16) {
        for (size_t at = i; at < 4 * quarter; at += quarter) {
            add(sums + at, values + at, factor, ALL);
        }
    }
    for (size_t at = 4 * quarter; at < n; at += 16) {
        add(sums + at, values + at, factor, lanes_of(n - at));
    }
}
#endif
