/* XXH3 of a leaf for AVX-512: all eight sums in one register. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include "kernels/xxh3.h"

TG_AVX512_INLINE __m512i add_stripe(__m512i sums, const uint8_t *stripe, const uint8_t *secret)
{
    __m512i data = _mm512_loadu_si512(stripe), keyed = _mm512_xor_si512(data, _mm512_loadu_si512(secret));
    __m512i product = _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32));
    return _mm512_add_epi64(sums, _mm512_add_epi64(product, _mm512_shuffle_epi32(data, _MM_PERM_BADC)));
}

TG_AVX512_INLINE __m512i scramble(__m512i sums)
{
    sums = _mm512_xor_si512(sums, _mm512_srli_epi64(sums, 47));
    sums = _mm512_xor_si512(sums, _mm512_loadu_si512(xxh3_secret(XXH3_SCRAMBLE)));
    return _mm512_mullo_epi64(sums, _mm512_set1_epi64(XXH3_PRIME));
}

TG_AVX512 uint64_t tg_avx512_hash_leaf(const uint8_t *bytes, const tg_prefetch *next)
{
    enum { BLOCKS = 4 };
    __m512i sums = _mm512_loadu_si512(xxh3_start);
    size_t line = next->first;
    for (size_t block = 0; block < BLOCKS; block++) {
        size_t stripes = block + 1 < BLOCKS ? XXH3_BLOCK : XXH3_BLOCK - 1;
        for (size_t i = 0; i < stripes; i++, bytes += XXH3_STRIPE) {
            for (size_t end = line + next->each; line < end; line++) {
                _mm_prefetch(next->from + line % 4 * next->quarter + line / 4 * 64, _MM_HINT_T1);
            }
            sums = add_stripe(sums, bytes, xxh3_secret(8 * i));
        }
        sums = block + 1 < BLOCKS ? scramble(sums) : sums;
    }
    uint64_t end[8];
    _mm512_storeu_si512(end, add_stripe(sums, bytes, xxh3_secret(XXH3_LAST)));
    return xxh3_end(end);
}
#endif
