/* Words of floats split into symbols and lower bytes for AVX-512 (pack/lossless.c). */
#include "kernels/avx512.h"

#if defined(__x86_64__)

/* Byte shuffles of four words: their lower three bytes to the front, and back. */
#define LOWERS _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1)
#define APART _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1)

TG_AVX512 static size_t split_halves(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, size_t n)
{
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        __m512i word = _mm512_loadu_si512(words + 2 * i);
        __m512i rotated = _mm512_or_si512(_mm512_slli_epi16(word, 1), _mm512_srli_epi16(word, 15));
        _mm256_storeu_si256((__m256i *)(void *)(lowers + i), _mm512_cvtepi16_epi8(rotated));
        _mm512_storeu_si512(uppers + i, _mm512_srli_epi16(rotated, 8));
    }
    return i;
}

TG_AVX512 static size_t split_singles(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, size_t n)
{
    const __m512i front = _mm512_broadcast_i32x4(LOWERS);
    const __m512i together = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m512i rotated = _mm512_rol_epi32(_mm512_loadu_si512(words + 4 * i), 1);
        __m512i lower = _mm512_permutexvar_epi32(together, _mm512_shuffle_epi8(rotated, front));
        _mm512_mask_storeu_epi32(lowers + 3 * i, 0x0fff, lower);
        __m256i upper = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rotated, 24));
        _mm256_storeu_si256((__m256i *)(void *)(uppers + i), upper);
    }
    return i;
}

TG_AVX512 void tg_avx512_split_words(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, uint32_t word_len,
                                     size_t n)
{
    size_t i = (word_len == 2 ? split_halves : split_singles)(uppers, lowers, words, n);
    tg_kernels_scalar.coders.split_words(uppers + i, lowers + (word_len - 1) * i, words + word_len * i, word_len,
                                         n - i);
}

TG_AVX512 static size_t join_halves(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, size_t n)
{
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        __m512i upper = _mm512_slli_epi16(_mm512_loadu_si512(uppers + i), 8);
        __m512i lower = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(lowers + i)));
        __m512i rotated = _mm512_or_si512(upper, lower);
        __m512i word = _mm512_or_si512(_mm512_srli_epi16(rotated, 1), _mm512_slli_epi16(rotated, 15));
        _mm512_storeu_si512(words + 2 * i, word);
    }
    return i;
}

TG_AVX512 static size_t join_singles(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, size_t n)
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

TG_AVX512 void tg_avx512_join_words(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, uint32_t word_len,
                                    size_t n)
{
    size_t i = (word_len == 2 ? join_halves : join_singles)(words, uppers, lowers, n);
    tg_kernels_scalar.coders.join_words(words + word_len * i, uppers + i, lowers + (word_len - 1) * i, word_len, n - i);
}
#endif
