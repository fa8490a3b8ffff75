/* Kernels for AVX-512 (F, BW, VL); each mirrors the scalar one of its name. Whoever calls them has looked whether the
 * processor can. */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define USES_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,popcnt")))
#define INLINED static inline __attribute__((always_inline)) USES_AVX512

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

USES_AVX512 size_t tg_rans_rounds_avx512(uint16_t *symbols, uint32_t states[32], const uint8_t **words,
                                         const uint8_t *end, size_t count, const tg_rans_slots *slots)
{
    return slots->are_few ? rounds(symbols, states, words, end, count, slots, true)
                          : rounds(symbols, states, words, end, count, slots, false);
}
#endif
