/* Words of floats split into symbols and lower bytes for AVX2 (pack/lossless.c). */
#include "kernels/avx2.h"

#if defined(__x86_64__)

TG_AVX2_INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

TG_AVX2_INLINE void store(void *at, __m256i values)
{
    _mm256_storeu_si256((__m256i *)at, values);
}

/* Moves the quarters of both, which pack instructions interleave, to their places. */
TG_AVX2_INLINE __m256i in_order(__m256i packed)
{
    return _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0));
}

TG_AVX2_INLINE __m256i rotate_half(__m256i word)
{
    return _mm256_or_si256(_mm256_slli_epi16(word, 1), _mm256_srli_epi16(word, 15));
}

TG_AVX2 static size_t split_halves(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, size_t n)
{
    const __m256i low = _mm256_set1_epi16(255);
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        __m256i first = rotate_half(load(words + 2 * i)), last = rotate_half(load(words + 2 * i + 32));
        __m256i both = _mm256_packus_epi16(_mm256_and_si256(first, low), _mm256_and_si256(last, low));
        store(lowers + i, in_order(both));
        store(uppers + i, _mm256_srli_epi16(first, 8));
        store(uppers + i + 16, _mm256_srli_epi16(last, 8));
    }
    return i;
}

TG_AVX2_INLINE __m256i rotate_single(__m256i word)
{
    return _mm256_or_si256(_mm256_slli_epi32(word, 1), _mm256_srli_epi32(word, 31));
}

/* The lower three bytes of eight words; stores 8 bytes more. */
TG_AVX2_INLINE void put_lowers(uint8_t *lowers, __m256i words)
{
    const __m256i front = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4, 5, 6, 8,
                                           9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i together = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7);
    store(lowers, _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(words, front), together));
}

TG_AVX2 static size_t split_singles(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, size_t n)
{
    enum { MORE = 3 }; /* words of which stores overwrite the lower bytes */
    size_t i = 0;
    for (; n - i >= 16 + MORE; i += 16) {
        __m256i first = rotate_single(load(words + 4 * i)), last = rotate_single(load(words + 4 * i + 32));
        put_lowers(lowers + 3 * i, first);
        put_lowers(lowers + 3 * i + 24, last);
        store(uppers + i, in_order(_mm256_packus_epi32(_mm256_srli_epi32(first, 24), _mm256_srli_epi32(last, 24))));
    }
    return i;
}

TG_AVX2 void tg_avx2_split_words(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, uint32_t word_len, size_t n)
{
    size_t i = (word_len == 2 ? split_halves : split_singles)(uppers, lowers, words, n);
    tg_kernels_scalar.coders.split_words(uppers + i, lowers + (word_len - 1) * i, words + word_len * i, word_len,
                                         n - i);
}

TG_AVX2 static size_t join_halves(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m256i upper = _mm256_slli_epi16(load(uppers + i), 8);
        __m256i lower = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(lowers + i)));
        __m256i rotated = _mm256_or_si256(upper, lower);
        store(words + 2 * i, _mm256_or_si256(_mm256_srli_epi16(rotated, 1), _mm256_slli_epi16(rotated, 15)));
    }
    return i;
}

TG_AVX2 static size_t join_singles(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, size_t n)
{
    enum { MORE = 3 }; /* words of which the lower bytes are loaded, too */
    const __m256i spread = _mm256_setr_epi32(0, 1, 2, 3, 3, 4, 5, 6);
    const __m256i apart = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, 0, 1, 2, -1, 3, 4, 5,
                                           -1, 6, 7, 8, -1, 9, 10, 11, -1);
    size_t i = 0;
    for (; n - i >= 8 + MORE; i += 8) {
        __m256i upper = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(uppers + i)));
        __m256i lower = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(load(lowers + 3 * i), spread), apart);
        __m256i rotated = _mm256_or_si256(_mm256_slli_epi32(upper, 24), lower);
        store(words + 4 * i, _mm256_or_si256(_mm256_srli_epi32(rotated, 1), _mm256_slli_epi32(rotated, 31)));
    }
    return i;
}

TG_AVX2 void tg_avx2_join_words(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, uint32_t word_len,
                                size_t n)
{
    size_t i = (word_len == 2 ? join_halves : join_singles)(words, uppers, lowers, n);
    tg_kernels_scalar.coders.join_words(words + word_len * i, uppers + i, lowers + (word_len - 1) * i, word_len, n - i);
}
#endif
