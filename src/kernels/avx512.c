/* Kernels for AVX-512 (F, BW, VL, DQ); each mirrors the scalar one of its name. Whoever calls them has looked whether the
 * processor can. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#define TG_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi2,f16c,popcnt")))
#define TG_STREAMS
#define TG_HAS_PASSES
#include "kernels/loops.h"

#include <immintrin.h>

/* The instruction makes NaNs quiet, where they are wanted as they are. */
TG_TARGET static void fp16_widen(float *out, const void *halves, size_t n)
{
    const __m256i rest = _mm256_set1_epi16(0x7fff), infinity = _mm256_set1_epi16(0x7c00);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)halves + i));
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(bits));
        if (_mm256_cmpgt_epi16_mask(_mm256_and_si256(bits, rest), infinity) != 0) {
            tg_kernels_scalar.fp16_widen(out + i, (const uint16_t *)halves + i, 16);
        }
    }
    tg_kernels_scalar.fp16_widen(out + i, (const uint16_t *)halves + i, n - i);
}

TG_TARGET static void mark_keys(uint64_t *mask, const float *values, uint32_t least, size_t n)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff), bound = _mm512_set1_epi32((int)least);
    size_t i = 0;
    for (; n - i >= 64; i += 64) {
        uint64_t word = 0;
        for (unsigned k = 0; k < 64; k += 16) {
            __m512i bits = _mm512_loadu_si512(values + i + k);
            word |= (uint64_t)_mm512_cmpge_epu32_mask(_mm512_and_si512(bits, rest), bound) << k;
        }
        mask[i / 64] = word;
    }
    if (i < n) {
        tg_kernels_scalar.mark_keys(mask + i / 64, values + i, least, n - i);
    }
}

/* Of up to sixteen elements: whether they are in. */
TG_TARGET static inline __mmask16 reaching(__mmask16 here, const float *u, const float *g, __m512 more, __m512i least)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff);
    __m512 value = _mm512_maskz_loadu_ps(here, u);
    __m512 sum = _mm512_add_ps(value, _mm512_mul_ps(more, _mm512_maskz_loadu_ps(here, g)));
    __mmask16 reached = _mm512_cmpge_epu32_mask(_mm512_and_si512(_mm512_castps_si512(sum), rest), least);
    return _mm512_mask_test_epi32_mask(reached, _mm512_castps_si512(value), rest);
}

TG_TARGET static void mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least,
                               size_t n)
{
    const uint32_t nan = 0x7f800001; /* the least, and all of them are in */
    const __m512i bound = _mm512_set1_epi32((int)(least < nan ? least : nan));
    const __m512 factor = _mm512_set1_ps(more);
    for (size_t i = 0; i < n; i += 64) {
        uint64_t word = 0;
        if (n - i >= 64) {
            for (unsigned k = 0; k < 64; k += 16) {
                word |= (uint64_t)reaching(0xffff, u + i + k, g + i + k, factor, bound) << k;
            }
        } else {
            for (size_t k = 0; k < n - i; k += 16) {
                __mmask16 here = (__mmask16)(n - i - k >= 16 ? 0xffffu : (1u << (n - i - k)) - 1);
                word |= (uint64_t)reaching(here, u + i + k, g + i + k, factor, bound) << k;
            }
        }
        set_bits(mask, at + i, word);
    }
}

/* Where the three lower bytes of four words stand in front, and where they come from. */
#define LOWERS _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1)
#define APART _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1)

TG_TARGET static size_t split_halves(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, size_t n)
{
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        __m512i word = _mm512_loadu_si512(words + 2 * i);
        __m512i turned = _mm512_or_si512(_mm512_slli_epi16(word, 1), _mm512_srli_epi16(word, 15));
        _mm256_storeu_si256((__m256i *)(void *)(lowers + i), _mm512_cvtepi16_epi8(turned));
        _mm512_storeu_si512(uppers + i, _mm512_srli_epi16(turned, 8));
    }
    return i;
}

TG_TARGET static size_t split_singles(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, size_t n)
{
    const __m512i front = _mm512_broadcast_i32x4(LOWERS);
    const __m512i together = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m512i turned = _mm512_rol_epi32(_mm512_loadu_si512(words + 4 * i), 1);
        __m512i lower = _mm512_permutexvar_epi32(together, _mm512_shuffle_epi8(turned, front));
        _mm512_mask_storeu_epi32(lowers + 3 * i, 0x0fff, lower);
        __m256i upper = _mm512_cvtepi32_epi16(_mm512_srli_epi32(turned, 24));
        _mm256_storeu_si256((__m256i *)(void *)(uppers + i), upper);
    }
    return i;
}

TG_TARGET static void split_words(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, uint32_t word_len, size_t n)
{
    size_t i = (word_len == 2 ? split_halves : split_singles)(uppers, lowers, words, n);
    tg_kernels_scalar.split_words(uppers + i, lowers + (word_len - 1) * i, words + word_len * i, word_len, n - i);
}

TG_TARGET static size_t join_halves(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, size_t n)
{
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        __m512i upper = _mm512_slli_epi16(_mm512_loadu_si512(uppers + i), 8);
        __m512i lower = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(lowers + i)));
        __m512i turned = _mm512_or_si512(upper, lower);
        __m512i word = _mm512_or_si512(_mm512_srli_epi16(turned, 1), _mm512_slli_epi16(turned, 15));
        _mm512_storeu_si512(words + 2 * i, word);
    }
    return i;
}

TG_TARGET static size_t join_singles(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, size_t n)
{
    const __m512i apart = _mm512_broadcast_i32x4(APART);
    const __m512i spread = _mm512_setr_epi32(0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m512i upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(uppers + i)));
        __m512i lower = _mm512_permutexvar_epi32(spread, _mm512_maskz_loadu_epi32(0x0fff, lowers + 3 * i));
        lower = _mm512_shuffle_epi8(lower, apart);
        _mm512_storeu_si512(words + 4 * i, _mm512_ror_epi32(_mm512_or_si512(_mm512_slli_epi32(upper, 24), lower), 1));
    }
    return i;
}

TG_TARGET static void join_words(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, uint32_t word_len,
                                 size_t n)
{
    size_t i = (word_len == 2 ? join_halves : join_singles)(words, uppers, lowers, n);
    tg_kernels_scalar.join_words(words + word_len * i, uppers + i, lowers + (word_len - 1) * i, word_len, n - i);
}

const tg_kernels tg_kernels_avx512 = {
    TG_LOOPS,
    .all_finite = tg_avx512_all_finite,
    .accumulate = tg_avx512_accumulate,
    .subtract = tg_avx512_subtract,
    .copy = tg_avx512_copy,
    .stream_bytes = tg_avx512_stream_bytes,
    .add = tg_avx512_add,
    .fp16_narrow = tg_avx512_fp16_narrow,
    .fp16_widen = fp16_widen,
    .fp16_add = tg_avx512_fp16_add,
    .bf16_narrow = tg_avx512_bf16_narrow,
    .bf16_add = tg_avx512_bf16_add,
    .mark_keys = mark_keys,
    .list_marks = tg_avx512_list_marks,
    .mark_bin = mark_bin,
    .ends = tg_avx512_ends,
    .nth = tg_avx512_nth,
    .split = tg_avx512_split,
    .ways_up = tg_avx512_ways_up,
    .bits_write = tg_avx512_bits_write,
    .bits_read = tg_avx512_bits_read,
    .numbers_below = tg_avx512_numbers_below,
    .count_few = tg_avx512_count_few,
    .ternary = tg_avx512_ternary,
    .levels = tg_avx512_levels,
    .natural = tg_avx512_natural,
    .signs = tg_avx512_signs,
    .powers = tg_avx512_powers,
    .mark_above = tg_avx512_mark_above,
    .draw = tg_avx512_draw,
    .look_up = tg_avx512_look_up,
    .look_up_add = tg_avx512_look_up_add,
    .round_between = tg_avx512_round_between,
    .count_above = tg_avx512_count_above,
    .sums_around = tg_avx512_sums_around,
    .moments = tg_avx512_moments,
    .squares = tg_avx512_squares,
    .split_words = split_words,
    .join_words = join_words,
    .rans_push = tg_rans_push_avx512,
    .rans_pull = tg_rans_pull_avx512,
    .prefix_write = tg_prefix_write_bmi2,
    .prefix_read = tg_prefix_read_bmi2,
    .rice_read = tg_rice_read_bmi2,
};
#endif
