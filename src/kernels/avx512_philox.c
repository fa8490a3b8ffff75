/* Random draws for AVX-512: Philox4x32-7 (base/philox.h). */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include "base/philox.h"

/* Eight blocks, one per 64-bit lane: the lower half of a lane of word[w] is word w of its block, the upper half is garbage. */
typedef struct blocks {
    __m512i word[4];
} blocks;

/* Moves the upper half of every lane down. */
TG_AVX512_INLINE __m512i high(__m512i x)
{
    return _mm512_shuffle_epi32(x, _MM_PERM_DDBB);
}

TG_AVX512_INLINE blocks next_round(blocks b, __m512i key0, __m512i key1)
{
    __m512i p0 = _mm512_mul_epu32(b.word[0], _mm512_set1_epi64(0xD2511F53));
    __m512i p1 = _mm512_mul_epu32(b.word[2], _mm512_set1_epi64(0xCD9E8D57));
    enum { ALL_THREE = 0x96 }; /* exclusive or */
    return (blocks){{_mm512_ternarylogic_epi64(high(p1), b.word[1], key0, ALL_THREE), p1,
                     _mm512_ternarylogic_epi64(high(p0), b.word[3], key1, ALL_THREE), p0}};
}

/* The draws of eight blocks, four in each vector. */
typedef struct halves {
    __m512i first, last;
} halves;

TG_AVX512_INLINE halves halves_of(blocks b)
{
    const __mmask16 odd = 0xaaaa;
    const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                  second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    __m512i low = _mm512_mask_blend_epi32(odd, b.word[0], _mm512_shuffle_epi32(b.word[1], _MM_PERM_CCAA));
    __m512i rest = _mm512_mask_blend_epi32(odd, b.word[2], _mm512_shuffle_epi32(b.word[3], _MM_PERM_CCAA));
    return (halves){_mm512_permutex2var_epi64(low, first, rest), _mm512_permutex2var_epi64(low, second, rest)};
}

TG_AVX512_INLINE void put_blocks(uint16_t *upper, blocks b)
{
    halves h = halves_of(b);
    _mm512_storeu_si512(upper, h.first);
    _mm512_storeu_si512(upper + 32, h.last);
}

/* The first block_n of them. */
TG_AVX512_INLINE void put_few_blocks(uint16_t *upper, blocks b, size_t block_n)
{
    halves h = halves_of(b);
    uint32_t here = (1u << 2 * (block_n < 8 ? block_n : 8)) - 1; /* two lanes of 64 bits a block */
    _mm512_mask_storeu_epi64(upper, (__mmask8)here, h.first);
    _mm512_mask_storeu_epi64(upper + 32, (__mmask8)(here >> 8), h.last);
}

enum { EACH = 8 };

/* Draws the first SETS times eight blocks from number `block` on; sets are interleaved to hide the latency of multiplications.
 * `sets` is a constant. */
TG_AVX512_INLINE void draw_sets(blocks *b, int sets, uint64_t key, uint64_t block, uint32_t other)
{
    const __m512i places = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    for (int s = 0; s < sets; s++) {
        __m512i counter = _mm512_add_epi64(_mm512_set1_epi64((long long)(block + (uint64_t)s * EACH)), places);
        b[s] = (blocks){{counter, high(counter), _mm512_set1_epi64(TG_HALF_UPPER), _mm512_set1_epi64(other)}};
    }
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    for (int round = 0; round < TG_PHILOX_ROUNDS; round++) {
        for (int s = 0; s < sets; s++) {
            b[s] = next_round(b[s], _mm512_set1_epi64(key0), _mm512_set1_epi64(key1));
        }
        key0 += UINT32_C(0x9E3779B9);
        key1 += UINT32_C(0xBB67AE85);
    }
}

TG_AVX512 void tg_avx512_draw(uint16_t *upper, uint64_t key, uint64_t block, uint32_t other, size_t block_n,
                              const void *prefetch)
{
    enum { SETS = 4, LAST = 2, LINES = SETS * EACH * TG_HALVES * sizeof(float) / 64 };
    size_t done = 0;
    for (; block_n - done >= SETS * EACH; done += SETS * EACH) {
        blocks b[SETS];
        draw_sets(b, SETS, key, block + done, other);
        /* Lines of four quarters in turn, in the order in which passes read them. */
        for (size_t line = done / 2; line < done / 2 + LINES; line++) {
            _mm_prefetch((const char *)prefetch + line % 4 * (8 * block_n) + line / 4 * 64, _MM_HINT_T1);
        }
        for (int s = 0; s < SETS; s++) {
            put_blocks(upper + TG_HALVES * (done + (size_t)s * EACH), b[s]);
        }
    }
    for (; done < block_n; done += LAST * EACH) {
        blocks b[LAST];
        size_t left = block_n - done;
        draw_sets(b, LAST, key, block + done, other);
        put_few_blocks(upper + TG_HALVES * done, b[0], left);
        put_few_blocks(upper + TG_HALVES * (done + EACH), b[1], left > EACH ? left - EACH : 0);
    }
}
#endif
