/* XXH3 of a leaf for AVX2: the eight sums in two registers. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/xxh3.h"

TG_AVX2_INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

TG_AVX2_INLINE __m256i add_half(__m256i sums, const uint8_t *stripe, const uint8_t *secret)
{
    __m256i data = load(stripe), keyed = _mm256_xor_si256(data, load(secret));
    __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
    return _mm256_add_epi64(sums, _mm256_add_epi64(product, _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2))));
}

/* Times the prime, in two halves. */
TG_AVX2_INLINE __m256i scramble(__m256i sums, const uint8_t *secret)
{
    const __m256i prime = _mm256_set1_epi32((int)XXH3_PRIME);
    sums = _mm256_xor_si256(sums, _mm256_srli_epi64(sums, 47));
    sums = _mm256_xor_si256(sums, load(secret));
    __m256i upper = _mm256_mul_epu32(_mm256_srli_epi64(sums, 32), prime);
    return _mm256_add_epi64(_mm256_mul_epu32(sums, prime), _mm256_slli_epi64(upper, 32));
}

TG_AVX2 uint64_t tg_avx2_hash_leaf(const uint8_t *bytes, const tg_prefetch *next)
{
    enum { BLOCKS = 4, HALF = XXH3_STRIPE / 2 };
    __m256i first = load(xxh3_start), second = load(xxh3_start + 4);
    size_t line = next->first;
    for (size_t block = 0; block < BLOCKS; block++) {
        size_t stripes = block + 1 < BLOCKS ? XXH3_BLOCK : XXH3_BLOCK - 1;
        for (size_t i = 0; i < stripes; i++, bytes += XXH3_STRIPE) {
            for (size_t end = line + next->each; line < end; line++) {
                _mm_prefetch(next->from + line % 4 * next->quarter + line / 4 * 64, _MM_HINT_T1);
            }
            first = add_half(first, bytes, xxh3_secret(8 * i));
            second = add_half(second, bytes + HALF, xxh3_secret(8 * i + HALF));
        }
        if (block + 1 < BLOCKS) {
            first = scramble(first, xxh3_secret(XXH3_SCRAMBLE));
            second = scramble(second, xxh3_secret(XXH3_SCRAMBLE + HALF));
        }
    }
    uint64_t end[8];
    _mm256_storeu_si256((__m256i *)(void *)end, add_half(first, bytes, xxh3_secret(XXH3_LAST)));
    _mm256_storeu_si256((__m256i *)(void *)(end + 4), add_half(second, bytes + HALF, xxh3_secret(XXH3_LAST + HALF)));
    return xxh3_end(end);
}
#endif
