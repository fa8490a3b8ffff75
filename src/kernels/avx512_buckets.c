/* Kernels for AVX-512 of quantizers in buckets that compilers do not find by themselves; see avx512.h. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TG_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,popcnt")))
#define INLINED static inline __attribute__((always_inline)) TG_TARGET

/* ---- Philox ---------------------------------------------------------------------------------------------------------- */

/* Eight blocks: word w of each is the lower half of a lane of word[w]; what is above it means nothing. */
typedef struct blocks {
    __m512i word[4];
} blocks;

/* The upper halves of all lanes moved down. */
INLINED __m512i high(__m512i x)
{
    return _mm512_shuffle_epi32(x, _MM_PERM_DDBB);
}

INLINED blocks next_round(blocks b, __m512i key0, __m512i key1)
{
    __m512i p0 = _mm512_mul_epu32(b.word[0], _mm512_set1_epi64(0xD2511F53));
    __m512i p1 = _mm512_mul_epu32(b.word[2], _mm512_set1_epi64(0xCD9E8D57));
    enum { ALL_THREE = 0x96 }; /* exclusive or */
    return (blocks){{_mm512_ternarylogic_epi64(high(p1), b.word[1], key0, ALL_THREE), p1,
                     _mm512_ternarylogic_epi64(high(p0), b.word[3], key1, ALL_THREE), p0}};
}

INLINED void put_blocks(uint32_t *words, blocks b)
{
    const __mmask16 upper = 0xaaaa;
    const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                  second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    __m512i low = _mm512_mask_blend_epi32(upper, b.word[0], _mm512_shuffle_epi32(b.word[1], _MM_PERM_CCAA));
    __m512i rest = _mm512_mask_blend_epi32(upper, b.word[2], _mm512_shuffle_epi32(b.word[3], _MM_PERM_CCAA));
    _mm512_storeu_si512(words, _mm512_permutex2var_epi64(low, first, rest));
    _mm512_storeu_si512(words + 16, _mm512_permutex2var_epi64(low, second, rest));
}

/* Four times eight blocks at once, because a product takes longer than the next can wait. */
TG_TARGET void tg_avx512_draw(uint32_t *words, uint64_t key, uint64_t block, uint32_t other, size_t block_n,
                              const void *ahead)
{
    enum { SETS = 4, EACH = 8 };
    const __m512i places = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    size_t done = 0;
    for (; block_n - done >= SETS * EACH; done += SETS * EACH) {
        blocks b[SETS];
        for (int s = 0; s < SETS; s++) {
            __m512i counter =
                _mm512_add_epi64(_mm512_set1_epi64((long long)(block + done + (uint64_t)s * EACH)), places);
            b[s] = (blocks){{counter, high(counter), _mm512_set1_epi64(1), _mm512_set1_epi64(other)}};
        }
        uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
        for (int round = 0; round < 10; round++) {
            for (int s = 0; s < SETS; s++) {
                b[s] = next_round(b[s], _mm512_set1_epi64(key0), _mm512_set1_epi64(key1));
            }
            key0 += UINT32_C(0x9E3779B9);
            key1 += UINT32_C(0xBB67AE85);
        }
        for (size_t line = done / 4; line < done / 4 + SETS * EACH / 4; line++) { /* of the four quarters in turn */
            _mm_prefetch((const char *)ahead + line % 4 * (4 * block_n) + line / 4 * 64, _MM_HINT_T0);
        }
        for (int s = 0; s < SETS; s++) {
            put_blocks(words + 4 * (done + (size_t)s * EACH), b[s]);
        }
    }
    tg_kernels_scalar.draw(words + 4 * done, key, block + done, other, block_n - done, ahead);
}

/* ---- tables in registers --------------------------------------------------------------------------------------------- */

/* Up to 64 floats. */
typedef struct table {
    __m512 part[4];
} table;

INLINED table load_table(const float *floats, uint32_t n)
{
    table t;
    for (uint32_t p = 0; p < 4; p++) {
        uint32_t left = n > 16 * p ? n - 16 * p : 0;
        __mmask16 there = (__mmask16)(left >= 16 ? 0xffffu : (1u << left) - 1);
        t.part[p] = _mm512_maskz_loadu_ps(there, left > 0 ? floats + 16 * p : floats);
    }
    return t;
}

INLINED __m512 find(const table *t, __m512i at, uint32_t n)
{
    if (n <= 16) {
        return _mm512_permutexvar_ps(at, t->part[0]);
    }
    __m512 low = _mm512_permutex2var_ps(t->part[0], at, t->part[1]);
    if (n <= 32) {
        return low;
    }
    __mmask16 beyond = _mm512_test_epi32_mask(at, _mm512_set1_epi32(32));
    return _mm512_mask_mov_ps(low, beyond, _mm512_permutex2var_ps(t->part[2], at, t->part[3]));
}

INLINED __m512i load_symbols(const uint16_t *symbols)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)symbols));
}

/* With room for `most` in the registers that are looked into. Quarters of all side by side, as in avx512_passes.c: sums are far
 * away. */
INLINED void look_up_in(float *out, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n, bool adds,
                        uint32_t most)
{
    const table t = load_table(floats, float_n);
    size_t quarter = n / 64 * 16, done = 4 * quarter;
    for (size_t i = 0; i < quarter; i += 16) {
        for (size_t at = i; at < done; at += quarter) {
            __m512 found = find(&t, load_symbols(symbols + at), most);
            _mm512_storeu_ps(out + at, adds ? _mm512_add_ps(_mm512_loadu_ps(out + at), found) : found);
        }
    }
    (adds ? tg_kernels_scalar.look_up_add : tg_kernels_scalar.look_up)(out + done, symbols + done, floats, float_n,
                                                                       n - done);
}

INLINED void look_up_by_size(float *out, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n,
                             bool adds)
{
    if (float_n <= 16) {
        look_up_in(out, symbols, floats, float_n, n, adds, 16);
    } else if (float_n <= 32) {
        look_up_in(out, symbols, floats, float_n, n, adds, 32);
    } else if (float_n <= 64) {
        look_up_in(out, symbols, floats, float_n, n, adds, 64);
    } else {
        (adds ? tg_kernels_scalar.look_up_add : tg_kernels_scalar.look_up)(out, symbols, floats, float_n, n);
    }
}

TG_TARGET void tg_avx512_look_up(float *values, const uint16_t *symbols, const float *floats, uint32_t float_n,
                                 size_t n)
{
    look_up_by_size(values, symbols, floats, float_n, n, false);
}

TG_TARGET void tg_avx512_look_up_add(float *sums, const uint16_t *symbols, const float *floats, uint32_t float_n,
                                     size_t n)
{
    look_up_by_size(sums, symbols, floats, float_n, n, true);
}

/* ---- rounding between bounds, and sums --------------------------------------------------------------------------------- */

enum { FEW = 16, MANY = 32 }; /* bounds */

INLINED void round_between_in(uint16_t *symbols, const float *values, const uint32_t *draws, const float *bounds,
                              uint32_t bound_n, float scale, size_t n, uint32_t most)
{
    float widths[MANY];
    for (uint32_t b = 0; b + 1 < bound_n; b++) {
        widths[b] = bounds[b + 1] - bounds[b];
    }
    const table lows = load_table(bounds, bound_n), ways = load_table(widths, bound_n - 1);
    const __m512 unit = _mm512_set1_ps(0x1p-24f), factor = _mm512_set1_ps(scale);
    const __m512i one = _mm512_set1_epi32(1);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m512 value = _mm512_mul_ps(_mm512_loadu_ps(values + i), factor);
        __m512i below = _mm512_setzero_si512();
        for (uint32_t b = 1; b + 1 < bound_n; b++) {
            __mmask16 reached = _mm512_cmp_ps_mask(_mm512_set1_ps(bounds[b]), value, _CMP_LE_OQ);
            below = _mm512_mask_add_epi32(below, reached, below, one);
        }
        __m512i draw = _mm512_srli_epi32(_mm512_loadu_si512(draws + i), 8);
        __m512 share = _mm512_mul_ps(_mm512_cvtepi32_ps(draw), unit);
        __m512 way = _mm512_mul_ps(share, find(&ways, below, most));
        __mmask16 up = _mm512_cmp_ps_mask(way, _mm512_sub_ps(value, find(&lows, below, most)), _CMP_LT_OQ);
        below = _mm512_mask_add_epi32(below, up, below, one);
        _mm256_storeu_si256((__m256i *)(void *)(symbols + i), _mm512_cvtepi32_epi16(below));
    }
    tg_kernels_scalar.round_between(symbols + i, values + i, draws + i, bounds, bound_n, scale, n - i);
}

TG_TARGET void tg_avx512_round_between(uint16_t *symbols, const float *values, const uint32_t *draws,
                                       const float *bounds, uint32_t bound_n, float scale, size_t n)
{
    if (bound_n <= FEW) {
        round_between_in(symbols, values, draws, bounds, bound_n, scale, n, FEW);
    } else if (bound_n <= MANY) {
        round_between_in(symbols, values, draws, bounds, bound_n, scale, n, MANY);
    } else {
        tg_kernels_scalar.round_between(symbols, values, draws, bounds, bound_n, scale, n);
    }
}

TG_TARGET void tg_avx512_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n,
                                     size_t n)
{
    const __m512i one = _mm512_set1_epi32(1);
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        __m512 first = _mm512_loadu_ps(values + i), second = _mm512_loadu_ps(values + i + 16);
        __m512i counts[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        for (uint32_t l = 0; l < limit_n; l++) {
            __m512 limit = _mm512_set1_ps(limits[l]);
            __mmask16 above[2] = {_mm512_cmp_ps_mask(first, limit, _CMP_GT_OQ),
                                  _mm512_cmp_ps_mask(second, limit, _CMP_GT_OQ)};
            counts[0] = _mm512_mask_add_epi32(counts[0], above[0], counts[0], one);
            counts[1] = _mm512_mask_add_epi32(counts[1], above[1], counts[1], one);
        }
        _mm256_storeu_si256((__m256i *)(void *)(symbols + i), _mm512_cvtepi32_epi16(counts[0]));
        _mm256_storeu_si256((__m256i *)(void *)(symbols + i + 16), _mm512_cvtepi32_epi16(counts[1]));
    }
    tg_kernels_scalar.count_above(symbols + i, values + i, limits, limit_n, n - i);
}

/* Sixteen sums: of the first and of the last eight of sixteen values. */
typedef struct sums {
    __m512d first, last;
} sums;

INLINED double in_order(sums s)
{
    double all[16], sum = 0;
    _mm512_storeu_pd(all, s.first);
    _mm512_storeu_pd(all + 8, s.last);
    for (int l = 0; l < 16; l++) {
        sum += all[l];
    }
    return sum;
}

INLINED __m512d first_of(__m512 values)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(values));
}

INLINED __m512d last_of(__m512 values)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(values, 1));
}

INLINED sums plus(sums s, __m512 values)
{
    return (sums){_mm512_add_pd(s.first, first_of(values)), _mm512_add_pd(s.last, last_of(values))};
}

INLINED sums plus_squares(sums s, __m512 values)
{
    __m512d first = first_of(values), last = last_of(values);
    /* In binary64 the square of a float is exact, so that to round once is the same. */
    return (sums){_mm512_fmadd_pd(first, first, s.first), _mm512_fmadd_pd(last, last, s.last)};
}

/* The sixteen values from i on, zeros behind the last. */
INLINED __m512 load_some(const float *values, size_t i, size_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)(n - i >= 16 ? 0xffffu : (1u << (n - i)) - 1), values + i);
}

/* Sums of a stretch, in binary32. */
typedef struct stretch {
    __m512 below, above;
} stretch;

/* Adds sixteen values, or those that are here; returns how many are above. */
INLINED size_t add_around(stretch *s, __mmask16 here, const float *values, __m512 limit, __m512 scale)
{
    __m512 value = _mm512_maskz_loadu_ps(here, values);
    __mmask16 is_above = _mm512_mask_cmp_ps_mask(here, value, limit, _CMP_GT_OQ);
    __m512 scaled = _mm512_mul_ps(value, scale);
    s->above = _mm512_mask_add_ps(s->above, is_above, s->above, scaled);
    s->below = _mm512_mask_add_ps(s->below, (__mmask16)(here & ~is_above), s->below, scaled);
    return (size_t)_mm_popcnt_u32(is_above);
}

/* Four stretches side by side, because a sum waits for the one before it. */
TG_TARGET size_t tg_avx512_sums_around(double around[2], const float *values, float threshold, float scale, size_t n)
{
    enum { SIDE_BY_SIDE = 4 };
    const __m512 limit = _mm512_set1_ps(threshold), factor = _mm512_set1_ps(scale), zero = _mm512_setzero_ps();
    sums below = {_mm512_setzero_pd(), _mm512_setzero_pd()}, above = below;
    size_t count = 0, at = 0;
    for (; n - at >= SIDE_BY_SIDE * TG_STRETCH; at += SIDE_BY_SIDE * TG_STRETCH) {
        stretch s[SIDE_BY_SIDE] = {{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};
        for (size_t i = at; i < at + TG_STRETCH; i += 16) {
            for (size_t k = 0; k < SIDE_BY_SIDE; k++) {
                count += add_around(&s[k], 0xffff, values + i + k * TG_STRETCH, limit, factor);
            }
        }
        for (size_t k = 0; k < SIDE_BY_SIDE; k++) {
            below = plus(below, s[k].below);
            above = plus(above, s[k].above);
        }
    }
    for (; at < n; at += TG_STRETCH) {
        size_t end = n - at < TG_STRETCH ? n : at + TG_STRETCH;
        stretch s = {zero, zero};
        for (size_t i = at; i < end; i += 16) {
            __mmask16 here = (__mmask16)(end - i >= 16 ? 0xffffu : (1u << (end - i)) - 1);
            count += add_around(&s, here, values + i, limit, factor);
        }
        below = plus(below, s.below);
        above = plus(above, s.above);
    }
    around[0] = in_order(below);
    around[1] = in_order(above);
    return count;
}

TG_TARGET size_t tg_avx512_moments(double of[2], const float *values, size_t n)
{
    sums magnitudes = {_mm512_setzero_pd(), _mm512_setzero_pd()}, squares = magnitudes;
    size_t count = 0;
    for (size_t i = 0; i < n; i += 16) {
        __m512 value = load_some(values, i, n), magnitude = _mm512_abs_ps(value);
        magnitudes = plus(magnitudes, magnitude);
        squares = plus_squares(squares, magnitude);
        count += (size_t)_mm_popcnt_u32(_mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_NEQ_UQ));
    }
    of[0] = in_order(magnitudes);
    of[1] = in_order(squares);
    return count;
}

TG_TARGET double tg_avx512_squares(const float *values, size_t n)
{
    sums squares = {_mm512_setzero_pd(), _mm512_setzero_pd()};
    for (size_t i = 0; i < n; i += 16) {
        squares = plus_squares(squares, load_some(values, i, n));
    }
    return in_order(squares);
}
#endif
