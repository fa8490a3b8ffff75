/* Kernels for AVX-512 that go through long stretches of memory; see avx512.h.
 *
 * They walk four quarters of a stretch side by side: a core reads several pages at once faster than one after the other. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TG_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,popcnt")))
#define INLINED static inline __attribute__((always_inline)) TG_TARGET

enum { LANES = 16, QUARTERS = 4 };

/* How n elements are walked: vectors in all, and elements of a quarter, in whole vectors. */
typedef struct walk {
    size_t vectors, quarter;
} walk;

INLINED walk walk_of(size_t n)
{
    return (walk){n / LANES, n / LANES / QUARTERS * LANES};
}

/* Where the vector begins that is number `step` on the way; those that no quarter has come last. */
INLINED size_t place(walk w, size_t step)
{
    bool in_quarters = step < w.quarter / LANES * QUARTERS;
    return in_quarters ? step % QUARTERS * w.quarter + step / QUARTERS * LANES : step * LANES;
}

INLINED __mmask16 not_finite(__m512 values)
{
    const __m512i infinity = _mm512_set1_epi32(0x7f800000);
    return _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(values), infinity), infinity);
}

TG_TARGET bool tg_avx512_all_finite(const float *values, size_t n)
{
    __mmask16 bad = 0;
    walk w = walk_of(n);
    for (size_t step = 0; step < w.vectors; step++) {
        size_t i = place(w, step);
        bad |= not_finite(_mm512_loadu_ps(values + i));
    }
    size_t done = w.vectors * LANES;
    return bad == 0 && tg_kernels_scalar.all_finite(values + done, n - done);
}

/* ---- sums and differences ---------------------------------------------------------------------------------------------- */

INLINED void put(float *out, __m512 values, bool streams)
{
    if (streams) {
        _mm512_stream_ps(out, values);
    } else {
        _mm512_storeu_ps(out, values);
    }
}

/* Elements before the first whose place a streaming store can begin at, at most n. */
INLINED size_t before_line(const float *out, size_t n)
{
    size_t head = (0 - (uintptr_t)out / sizeof *out) % LANES;
    return head < n ? head : n;
}

/* Twice: the sum goes to a second place, and to `out` by ordinary stores. */
INLINED bool accumulate_all(float *out, float *also, const float *a, const float *b, float share, size_t n,
                            bool streams, bool twice)
{
    const __m512 factor = _mm512_set1_ps(share);
    __mmask16 bad = 0;
    float *last = twice ? also : out;
    size_t done = streams ? before_line(last, n) : 0;
    bool head = tg_kernels_scalar.accumulate(out, also, a, b, share, done, false);
    walk w = walk_of(n - done);
    for (size_t step = 0; step < w.vectors; step++) {
        size_t i = done + place(w, step);
        __m512 sum = _mm512_add_ps(_mm512_loadu_ps(a + i), _mm512_mul_ps(factor, _mm512_loadu_ps(b + i)));
        bad |= not_finite(sum);
        if (twice) {
            _mm512_storeu_ps(out + i, sum);
        }
        put(last + i, sum, streams);
    }
    done += w.vectors * LANES;
    bool tail = tg_kernels_scalar.accumulate(out + done, twice ? also + done : NULL, a + done, b + done, share,
                                             n - done, false);
    return head && tail && bad == 0;
}

TG_TARGET bool tg_avx512_accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                                    bool streams)
{
    if (also != NULL) {
        return streams ? accumulate_all(out, also, a, b, share, n, true, true)
                       : accumulate_all(out, also, a, b, share, n, false, true);
    }
    return streams ? accumulate_all(out, NULL, a, b, share, n, true, false)
                   : accumulate_all(out, NULL, a, b, share, n, false, false);
}

INLINED bool subtract_all(float *out, const float *a, const float *b, size_t n, bool streams)
{
    __mmask16 bad = 0;
    size_t i = streams ? before_line(out, n) : 0;
    bool head = tg_kernels_scalar.subtract(out, a, b, i, false);
    for (; n - i >= LANES; i += LANES) {
        __m512 difference = _mm512_sub_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i));
        bad |= not_finite(difference);
        put(out + i, difference, streams);
    }
    bool tail = tg_kernels_scalar.subtract(out + i, a + i, b + i, n - i, false);
    return head && tail && bad == 0;
}

TG_TARGET bool tg_avx512_subtract(float *out, const float *a, const float *b, size_t n, bool streams)
{
    return streams ? subtract_all(out, a, b, n, true) : subtract_all(out, a, b, n, false);
}

TG_TARGET void tg_avx512_copy(float *out, const float *values, size_t n, bool streams)
{
    size_t done = before_line(out, n);
    if (!streams) {
        memcpy(out, values, n * sizeof *out);
        return;
    }
    memcpy(out, values, done * sizeof *out);
    walk w = walk_of(n - done);
    for (size_t step = 0; step < w.vectors; step++) {
        size_t i = done + place(w, step);
        _mm512_stream_ps(out + i, _mm512_loadu_ps(values + i));
    }
    done += w.vectors * LANES;
    memcpy(out + done, values + done, (n - done) * sizeof *out);
}

TG_TARGET void tg_avx512_stream_bytes(uint8_t *out, const uint8_t *bytes, size_t len)
{
    size_t i = (0 - (uintptr_t)out) % 64;
    i = i < len ? i : len;
    memcpy(out, bytes, i);
    for (; len - i >= 64; i += 64) {
        _mm512_stream_si512((__m512i *)(void *)(out + i), _mm512_loadu_si512(bytes + i));
    }
    memcpy(out + i, bytes + i, len - i);
}

INLINED void add_some(float *sums, __m512 values, __m512 weight)
{
    _mm512_storeu_ps(sums, _mm512_add_ps(_mm512_loadu_ps(sums), _mm512_mul_ps(weight, values)));
}

TG_TARGET void tg_avx512_add(float *sums, const float *values, float weight, size_t n)
{
    const __m512 factor = _mm512_set1_ps(weight);
    walk w = walk_of(n);
    for (size_t step = 0; step < w.vectors; step++) {
        size_t i = place(w, step);
        add_some(sums + i, _mm512_loadu_ps(values + i), factor);
    }
    size_t done = w.vectors * LANES;
    tg_kernels_scalar.add(sums + done, values + done, weight, n - done);
}

/* ---- halves ------------------------------------------------------------------------------------------------------------ */

INLINED __m256i load_halves(const void *halves, size_t i)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)((const char *)halves + 2 * i));
}

INLINED void store_halves(void *halves, size_t i, __m256i some)
{
    _mm256_storeu_si256((__m256i *)(void *)((char *)halves + 2 * i), some);
}

/* The instruction makes infinities of what is beyond the range, where the largest value is wanted. */
INLINED __mmask16 fp16_narrow_some(void *halves, size_t i, const float *values)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff), largest = _mm512_set1_epi32(0x477fe000);
    const __m512i infinity = _mm512_set1_epi32(0x7f800000);
    __m512i bits = _mm512_loadu_si512(values + i), magnitude = _mm512_and_si512(bits, rest);
    __mmask16 finite = _mm512_cmplt_epi32_mask(magnitude, infinity);
    __mmask16 beyond = _mm512_mask_cmpgt_epi32_mask(finite, magnitude, largest);
    __m512i clipped = _mm512_or_si512(_mm512_andnot_si512(rest, bits), largest);
    __m512 value = _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, beyond, clipped));
    /* The masked form: without optimisation gcc's _mm512_cvtps_ph is a macro that converts -1 to a mask, and warns. */
    store_halves(halves, i, _mm512_maskz_cvtps_ph(0xffff, value, _MM_FROUND_TO_NEAREST_INT));
    return (__mmask16)~finite;
}

/* As tg_float_to_bf16. */
INLINED __mmask16 bf16_narrow_some(void *halves, size_t i, const float *values)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff), infinity = _mm512_set1_epi32(0x7f800000);
    __m512i bits = _mm512_loadu_si512(values + i), magnitude = _mm512_and_si512(bits, rest);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __m512i largest = _mm512_or_si512(_mm512_andnot_si512(rest, bits), _mm512_set1_epi32(0x7f7f0000));
    __m512i nan = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    __mmask16 bad = _mm512_cmpge_epi32_mask(magnitude, infinity);
    rounded =
        _mm512_mask_mov_epi32(rounded, _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f7f0000)), largest);
    rounded = _mm512_mask_mov_epi32(rounded, bad, bits);
    rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmpgt_epi32_mask(magnitude, infinity), nan);
    store_halves(halves, i, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
    return bad;
}

/* What is done with sixteen halves; it is in sight of the compiler where it is called. */
typedef __mmask16 (*narrow_some)(void *halves, size_t i, const float *values);
typedef __m512 (*widen_some)(__m256i halves);

INLINED bool narrow_all(void *halves, const float *values, size_t n, narrow_some some,
                        bool (*rest)(void *, const float *, size_t))
{
    __mmask16 bad = 0;
    walk w = walk_of(n);
    for (size_t step = 0; step < w.vectors; step++) {
        bad |= some(halves, place(w, step), values);
    }
    size_t done = w.vectors * LANES;
    bool tail = rest((char *)halves + 2 * done, values + done, n - done);
    return tail && bad == 0;
}

TG_TARGET bool tg_avx512_fp16_narrow(void *halves, const float *values, size_t n)
{
    return narrow_all(halves, values, n, fp16_narrow_some, tg_kernels_scalar.fp16_narrow);
}

TG_TARGET bool tg_avx512_bf16_narrow(void *halves, const float *values, size_t n)
{
    return narrow_all(halves, values, n, bf16_narrow_some, tg_kernels_scalar.bf16_narrow);
}

INLINED __m512 fp16_widen_some(__m256i halves)
{
    return _mm512_cvtph_ps(halves);
}

INLINED __m512 bf16_widen_some(__m256i halves)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

INLINED void add_all(float *sums, const void *halves, float weight, size_t n, widen_some some,
                     void (*rest)(float *, const void *, float, size_t))
{
    const __m512 factor = _mm512_set1_ps(weight);
    walk w = walk_of(n);
    for (size_t step = 0; step < w.vectors; step++) {
        size_t i = place(w, step);
        add_some(sums + i, some(load_halves(halves, i)), factor);
    }
    size_t done = w.vectors * LANES;
    rest(sums + done, (const char *)halves + 2 * done, weight, n - done);
}

TG_TARGET void tg_avx512_fp16_add(float *sums, const void *halves, float weight, size_t n)
{
    add_all(sums, halves, weight, n, fp16_widen_some, tg_kernels_scalar.fp16_add);
}

TG_TARGET void tg_avx512_bf16_add(float *sums, const void *halves, float weight, size_t n)
{
    add_all(sums, halves, weight, n, bf16_widen_some, tg_kernels_scalar.bf16_add);
}
#endif
