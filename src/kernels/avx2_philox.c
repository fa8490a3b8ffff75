/* Random draws for AVX2: Philox4x32-7 (base/philox.h). */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "base/philox.h"
#include "kernels/scalar.h"

/* Four blocks, one per 64-bit lane: the lower half of a lane of word[w] is word w of its block, the upper half is garbage. */
typedef struct blocks {
    __m256i word[4];
} blocks;

/* The keys of a round. */
typedef struct keys {
    __m256i of[2];
} keys;

/* Moves the upper half of every lane down. */
TG_AVX2_INLINE __m256i high(__m256i x)
{
    return _mm256_srli_epi64(x, 32);
}

TG_AVX2_INLINE blocks next_round(blocks b, const keys *k)
{
    __m256i p0 = _mm256_mul_epu32(b.word[0], _mm256_set1_epi64x(0xD2511F53));
    __m256i p1 = _mm256_mul_epu32(b.word[2], _mm256_set1_epi64x(0xCD9E8D57));
    return (blocks){{_mm256_xor_si256(high(p1), _mm256_xor_si256(b.word[1], k->of[0])), p1,
                     _mm256_xor_si256(high(p0), _mm256_xor_si256(b.word[3], k->of[1])), p0}};
}

/* The blocks of lanes 0, 2, 1 and 3 in sequence. */
TG_AVX2_INLINE void put_blocks(uint16_t *upper, blocks b)
{
    __m256i low = _mm256_blend_epi32(b.word[0], _mm256_slli_epi64(b.word[1], 32), 0xaa);
    __m256i rest = _mm256_blend_epi32(b.word[2], _mm256_slli_epi64(b.word[3], 32), 0xaa);
    _mm256_storeu_si256((__m256i *)(void *)upper, _mm256_unpacklo_epi64(low, rest));
    _mm256_storeu_si256((__m256i *)(void *)(upper + 16), _mm256_unpackhi_epi64(low, rest));
}

/* Sets of four blocks are interleaved to hide the latency of the multiplications. */
TG_AVX2 void tg_avx2_draw(uint16_t *upper, uint64_t key, uint64_t block, uint32_t other, size_t block_n,
                          const void *prefetch)
{
    enum { SETS = 2, EACH = 4, VALUES_LEN = TG_HALVES * sizeof(float) };
    const __m256i places = _mm256_setr_epi64x(0, 2, 1, 3);
    keys k[TG_PHILOX_ROUNDS];
    for (uint32_t round = 0; round < TG_PHILOX_ROUNDS; round++) {
        k[round].of[0] = _mm256_set1_epi64x((uint32_t)key + round * UINT32_C(0x9E3779B9));
        k[round].of[1] = _mm256_set1_epi64x((uint32_t)(key >> 32) + round * UINT32_C(0xBB67AE85));
    }
    size_t done = 0;
    for (; block_n - done >= SETS * EACH; done += SETS * EACH) {
        blocks b[SETS];
        for (int s = 0; s < SETS; s++) {
            __m256i counter =
                _mm256_add_epi64(_mm256_set1_epi64x((long long)(block + done + (uint64_t)s * EACH)), places);
            b[s] = (blocks){{counter, high(counter), _mm256_set1_epi64x(TG_HALF_UPPER), _mm256_set1_epi64x(other)}};
        }
        for (int round = 0; round < TG_PHILOX_ROUNDS; round++) {
            for (int s = 0; s < SETS; s++) {
                b[s] = next_round(b[s], &k[round]);
            }
        }
        for (size_t len = 0; len < SETS * EACH * VALUES_LEN; len += 64) {
            _mm_prefetch((const char *)prefetch + VALUES_LEN * done + len, _MM_HINT_T1);
        }
        for (int s = 0; s < SETS; s++) {
            put_blocks(upper + TG_HALVES * (done + (size_t)s * EACH), b[s]);
        }
    }
    tg_scalar_draw(upper + TG_HALVES * done, key, block + done, other, block_n - done, prefetch);
}
#endif
