/* Kernels for AVX-512 (F, BW, VL, DQ); each mirrors the scalar one of its name. Whoever calls them has looked whether the
 * processor can. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#define TG_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,popcnt")))
#define TG_HAS_TABLES
#define TG_STREAMS
#define TG_HAS_PASSES
#include "kernels/bucket_loops.h"
#include "kernels/loops.h"

#include <immintrin.h>

#define INLINED static inline __attribute__((always_inline)) TG_TARGET

/* Where 16 states stand: in which symbol, how frequent it is, and how far into it. */
typedef struct places {
    __m512i symbol, frequency, offset;
} places;

INLINED places look_up(__m512i low, const uint32_t *slots)
{
    const __m512i low12 = _mm512_set1_epi32(4095);
    __m512i slot = _mm512_i32gather_epi32(low, slots, 4);
    __m512i frequency = _mm512_and_si512(_mm512_srli_epi32(slot, 8), low12);
    return (places){.symbol = _mm512_and_si512(slot, _mm512_set1_epi32(255)),
                    .frequency = _mm512_add_epi32(frequency, _mm512_set1_epi32(1)),
                    .offset = _mm512_srli_epi32(slot, 20)};
}

/* Without memory: few symbols are found by halving, their starts being in a register. */
INLINED places search(__m512i low, __m512i starts, __m512i frequencies)
{
    __m512i symbol = _mm512_setzero_si512();
    for (int step = 8; step > 0; step /= 2) {
        __m512i further = _mm512_add_epi32(symbol, _mm512_set1_epi32(step));
        __mmask16 beyond = _mm512_cmpge_epu32_mask(low, _mm512_permutexvar_epi32(further, starts));
        symbol = _mm512_mask_mov_epi32(symbol, beyond, further);
    }
    return (places){.symbol = symbol,
                    .frequency = _mm512_permutexvar_epi32(symbol, frequencies),
                    .offset = _mm512_sub_epi32(low, _mm512_permutexvar_epi32(symbol, starts))};
}

INLINED size_t rounds(uint16_t *symbols, uint32_t states[32], const uint8_t **words, const uint8_t *end, size_t count,
                      const tg_rans_slots *slots, bool are_few)
{
    const __m512i low12 = _mm512_set1_epi32(4095), start = _mm512_set1_epi32(1 << 15);
    uint32_t sums[16] = {0};
    for (int s = 1; s < 16; s++) {
        sums[s] = sums[s - 1] + slots->few[s - 1];
    }
    const __m512i starts = _mm512_loadu_si512(sums), frequencies = _mm512_loadu_si512(slots->few);
    __m512i x[2] = {_mm512_loadu_si512(states), _mm512_loadu_si512(states + 16)};
    const uint8_t *at = *words;
    size_t i = 0;
    for (; count - i >= 32 && end - at >= 64; i += 32) {
        for (int half = 0; half < 2; half++) {
            __m512i low = _mm512_and_si512(x[half], low12);
            places p = are_few ? search(low, starts, frequencies) : look_up(low, slots->slots);
            __m512i next = _mm512_mullo_epi32(p.frequency, _mm512_srli_epi32(x[half], 12));
            next = _mm512_add_epi32(next, p.offset);
            __mmask16 is_low = _mm512_cmplt_epu32_mask(next, start);
            __m512i here = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)at));
            __m512i longer = _mm512_or_si512(_mm512_slli_epi32(next, 16), _mm512_maskz_expand_epi32(is_low, here));
            _mm256_storeu_si256((__m256i *)(void *)(symbols + i + 16 * half), _mm512_cvtepi32_epi16(p.symbol));
            x[half] = _mm512_mask_mov_epi32(next, is_low, longer);
            at += 2 * (size_t)_mm_popcnt_u32(is_low);
        }
    }
    _mm512_storeu_si512(states, x[0]);
    _mm512_storeu_si512(states + 16, x[1]);
    *words = at;
    return i;
}

TG_TARGET static size_t rans_rounds(uint16_t *symbols, uint32_t states[32], const uint8_t **words, const uint8_t *end,
                                    size_t count, const tg_rans_slots *slots)
{
    return slots->are_few ? rounds(symbols, states, words, end, count, slots, true)
                          : rounds(symbols, states, words, end, count, slots, false);
}

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

TG_TARGET static void mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least,
                               size_t n)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff), bound = _mm512_set1_epi32((int)least);
    const __m512i infinity = _mm512_set1_epi32(0x7f800000);
    const __m512 factor = _mm512_set1_ps(more);
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 here = (__mmask16)(n - i >= 16 ? 0xffffu : (1u << (n - i)) - 1);
        __m512 value = _mm512_maskz_loadu_ps(here, u + i);
        __m512 sum = _mm512_add_ps(value, _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(here, g + i)));
        __m512i reach = _mm512_and_si512(_mm512_castps_si512(sum), rest);
        __mmask16 is_in = _mm512_mask_cmpge_epu32_mask(here, reach, bound);
        is_in |= _mm512_mask_cmpgt_epu32_mask(here, reach, infinity);
        is_in = _mm512_mask_test_epi32_mask(is_in, _mm512_castps_si512(value), rest);
        set_bits(mask, at + i, is_in);
    }
}

const tg_kernels tg_kernels_avx512 = {
    TG_LOOPS,
    .all_finite = tg_avx512_all_finite,
    .accumulate = tg_avx512_accumulate,
    .subtract = tg_avx512_subtract,
    .copy = tg_avx512_copy,
    .add = tg_avx512_add,
    .fp16_narrow = tg_avx512_fp16_narrow,
    .fp16_widen = fp16_widen,
    .fp16_add = tg_avx512_fp16_add,
    .bf16_narrow = tg_avx512_bf16_narrow,
    .bf16_add = tg_avx512_bf16_add,
    .mark_keys = mark_keys,
    .mark_bin = mark_bin,
    .rans_rounds = rans_rounds,
    .ends = tg_avx512_ends,
    .nth = tg_avx512_nth,
    .split = tg_avx512_split,
    .ways_up = tg_avx512_ways_up,
    .bits_write = tg_avx512_bits_write,
    .bits_read = tg_avx512_bits_read,
    TG_BUCKET_LOOPS,
    .draw = tg_avx512_draw,
    .look_up = tg_avx512_look_up,
    .round_between = tg_avx512_round_between,
    .sums_around = tg_avx512_sums_around,
    .moments = tg_avx512_moments,
    .squares = tg_avx512_squares,
};
#endif
