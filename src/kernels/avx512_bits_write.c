/* Symbols at their plain width for AVX-512: writing. pack/bits.c defines groups, docs/format.md the bytes. Eight groups fill whole
 * bytes; they are processed together, one in each 64-bit lane. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include "kernels/avx2.h"
#include "kernels/digits.h"
#include "kernels/scalar.h"

#include <string.h>

enum { GROUPS = 8 };

/* ---- groups of several symbols ----------------------------------------------------------------------------------------- */

/* Byte shuffle that moves 2 k bytes to two groups of k, each at the start of a 64-bit lane. */
TG_AVX512_INLINE __m512i apart(uint32_t k)
{
    uint8_t at[16];
    for (uint32_t i = 0; i < 16; i++) {
        at[i] = (uint8_t)(i % 8 < k ? i / 8 * k + i % 8 : 0x80);
    }
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)at));
}

/* The first n lanes of 16 or 32 words. */
TG_AVX512_INLINE __mmask32 words_of(size_t n)
{
    return n >= 32 ? UINT32_MAX : ((uint32_t)1 << n) - 1;
}

/* The symbols of eight groups as bytes, from the lowest byte of each lane on; zeros after the first `count`. */
TG_AVX512_INLINE __m512i load_groups(const uint16_t *symbols, size_t count, uint32_t k, __m512i spread)
{
    if (k == 8) {
        __m256i halves[2];
        for (uint32_t h = 0; h < 2; h++) {
            __mmask32 here = words_of(count > 32 * h ? count - 32 * h : 0);
            halves[h] = _mm512_cvtepi16_epi8(_mm512_maskz_loadu_epi16(here, symbols + 32 * h));
        }
        return _mm512_inserti64x4(_mm512_castsi256_si512(halves[0]), halves[1], 1);
    }
    __m128i pairs[4];
    for (uint32_t p = 0; p < 4; p++) {
        size_t left = count > 2 * k * p ? count - 2 * k * p : 0;
        __mmask16 here = (__mmask16)words_of(left < 2 * k ? left : 2 * k);
        pairs[p] = _mm256_cvtepi16_epi8(_mm256_maskz_loadu_epi16(here, symbols + 2 * k * p));
    }
    __m512i bytes = _mm512_castsi128_si512(pairs[0]);
    bytes = _mm512_inserti32x4(bytes, pairs[1], 1);
    bytes = _mm512_inserti32x4(bytes, pairs[2], 2);
    bytes = _mm512_inserti32x4(bytes, pairs[3], 3);
    return _mm512_shuffle_epi8(bytes, spread);
}

/* How eight numbers, each in a lane, are put together. A number of 32 bits or more is shifted to its position in a 16-bit word;
 * then no word is shared by two numbers at even places, nor by two at odd ones. */
typedef struct joints {
    __m512i shifts, words[2];
    __mmask32 are_there[2];
    __mmask64 bytes;
} joints;

TG_AVX512_INLINE joints joints_of(uint32_t bits)
{
    uint16_t words[2][32] = {{0}};
    joints j = {.bytes = ((__mmask64)1 << bits) - 1};
    for (uint32_t g = 0; bits >= 32 && g < GROUPS; g++) {
        uint32_t first = g * bits / 16;
        for (uint32_t w = 0; w < 4 && first + w < 32; w++) {
            words[g % 2][first + w] = (uint16_t)(4 * g + w);
            j.are_there[g % 2] |= (__mmask32)1 << (first + w);
        }
    }
    __m512i at = _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(bits));
    j.shifts = _mm512_and_si512(at, _mm512_set1_epi64(15));
    j.words[0] = _mm512_loadu_si512(words[0]);
    j.words[1] = _mm512_loadu_si512(words[1]);
    return j;
}

/* Writes the first `len` bytes of eight numbers of so many bits; with `has_more`, up to 7 bytes after them may be overwritten. */
TG_AVX512_INLINE void put_numbers(uint8_t *out, __m512i numbers, uint32_t bits, size_t len, bool has_more,
                                  const joints *j)
{
    __mmask64 here = ((__mmask64)1 << len) - 1; /* of at most 48 */
    if (bits >= 32) {
        __m512i turned = _mm512_sllv_epi64(numbers, j->shifts);
        __m512i even = _mm512_maskz_permutexvar_epi16(j->are_there[0], j->words[0], turned);
        __m512i odd = _mm512_maskz_permutexvar_epi16(j->are_there[1], j->words[1], turned);
        _mm512_mask_storeu_epi8(out, here, _mm512_or_si512(even, odd));
        return;
    }
    if (bits == 8) {
        _mm_mask_storeu_epi8(out, (__mmask16)here, _mm512_cvtepi64_epi8(numbers));
        return;
    }
    if (bits == 16) {
        _mm_mask_storeu_epi8(out, (__mmask16)here, _mm512_cvtepi64_epi16(numbers));
        return;
    }
    uint64_t all[GROUPS], held = 0;
    uint8_t bytes[64], *at = has_more ? out : bytes;
    uint32_t held_n = 0;
    _mm512_storeu_si512(all, numbers);
    for (int g = 0; g < GROUPS; g++) {
        held |= all[g] << held_n;
        held_n += bits;
        memcpy(at, &held, sizeof held);
        at += held_n / 8;
        held >>= held_n & ~7u; /* at most 48 + 7 bits */
        held_n &= 7;
    }
    if (!has_more) {
        _mm512_mask_storeu_epi8(out, here, _mm512_loadu_si512(bytes));
    }
}

/* Symbols below 128: digits are combined by twos, fours and eights. `k` and `bits` are d's, as constants. */
TG_AVX512_INLINE void write_groups_of(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d, uint32_t k,
                                      uint32_t bits)
{
    const __m512i spread = apart(k);
    const __m512i twos = _mm512_set1_epi16((short)(d.base << 8 | 1));
    const __m512i fours = _mm512_set1_epi32((int)(d.base * d.base << 16 | 1));
    const __m512i eights = _mm512_set1_epi64((long long)d.base * d.base * d.base * d.base);
    const __m512i lower = _mm512_set1_epi64(0xffffffff);
    const joints j = joints_of(bits);
    const size_t step = GROUPS * (size_t)k;
    for (size_t done = 0; done < count; done += step, out += bits) {
        bool is_whole = count - done >= step;
        size_t n = is_whole ? step : count - done, len = is_whole ? bits : ((n + k - 1) / k * bits + 7) / 8;
        __m512i bytes = load_groups(symbols + done, n, k, spread);
        __m512i pairs = _mm512_madd_epi16(_mm512_maddubs_epi16(bytes, twos), fours);
        __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(pairs, 32), eights);
        put_numbers(out, _mm512_add_epi64(high, _mm512_and_si512(pairs, lower)), bits, len, count - done >= 2 * step,
                    &j);
    }
}

TG_AVX512 static void write_groups(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d)
{
    if (d.symbols == 5 && d.bits == 8) {
        write_groups_of(out, symbols, count, d, 5, 8);
    } else if (d.symbols == 5 && d.bits == 16) {
        write_groups_of(out, symbols, count, d, 5, 16);
    } else if (d.symbols == 8 && d.bits == 41) {
        write_groups_of(out, symbols, count, d, 8, 41);
    } else {
        write_groups_of(out, symbols, count, d, d.symbols, d.bits);
    }
}

/* ---- symbols of one bit, of eight and of nine --------------------------------------------------------------------------- */

TG_AVX512 static void write_signs(uint8_t *out, const uint16_t *symbols, size_t count)
{
    size_t i = 0;
    for (; count - i >= 32; i += 32) {
        __m512i words = _mm512_loadu_si512(symbols + i);
        uint32_t bits = _mm512_test_epi16_mask(words, words);
        memcpy(out + i / 8, &bits, sizeof bits);
    }
    __m512i words = _mm512_maskz_loadu_epi16((1u << (count - i)) - 1, symbols + i);
    uint32_t bits = _mm512_test_epi16_mask(words, words);
    memcpy(out + i / 8, &bits, (count - i + 7) / 8);
}

TG_AVX512 static void write_bytes(uint8_t *out, const uint16_t *symbols, size_t count)
{
    size_t i = 0;
    for (; count - i >= 32; i += 32) {
        __m256i bytes = _mm512_cvtepi16_epi8(_mm512_loadu_si512(symbols + i));
        _mm256_storeu_si256((__m256i *)(void *)(out + i), bytes);
    }
    __mmask32 here = (1u << (count - i)) - 1;
    _mm256_mask_storeu_epi8(out + i, here, _mm512_cvtepi16_epi8(_mm512_maskz_loadu_epi16(here, symbols + i)));
}

/* Leaves the last symbols to its caller: stores reach up to 7 bytes past what is written. */
TG_AVX512 static size_t write_nines(uint8_t *out, const uint16_t *symbols, size_t count)
{
    enum { SPARE = 64 };
    /* Symbol i of eight begins at bit i of byte i. */
    const __m512i shifts = _mm512_broadcast_i32x4(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7));
    const __m512i even =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1));
    const __m512i odd =
        _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 2, 3, 6, 7, 10, 11, 14, 15, -1, -1, -1, -1, -1, -1, -1));
    size_t done = 0;
    for (; count - done >= 32 + SPARE; done += 32, out += 36) {
        __m512i words = _mm512_sllv_epi16(_mm512_loadu_si512(symbols + done), shifts);
        words = _mm512_or_si512(_mm512_shuffle_epi8(words, even), _mm512_shuffle_epi8(words, odd));
        _mm_storeu_si128((__m128i *)(void *)out, _mm512_castsi512_si128(words));
        _mm_storeu_si128((__m128i *)(void *)(out + 9), _mm512_extracti32x4_epi32(words, 1));
        _mm_storeu_si128((__m128i *)(void *)(out + 18), _mm512_extracti32x4_epi32(words, 2));
        _mm_storeu_si128((__m128i *)(void *)(out + 27), _mm512_extracti32x4_epi32(words, 3));
    }
    return done;
}

/* ---- all --------------------------------------------------------------------------------------------------------------- */

TG_AVX512 void tg_avx512_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d)
{
    if (d.base == 2) {
        write_signs(out, symbols, count);
    } else if (d.symbols == 1 && d.bits == 8) {
        write_bytes(out, symbols, count);
    } else if (d.symbols <= 3 && d.bits <= 9 && d.base != 512) { /* small numbers suit 16-bit lanes of any width */
        tg_avx2_bits_write(out, symbols, count, d);
    } else if (d.symbols > 1 && d.base < 128) {
        write_groups(out, symbols, count, d);
    } else {
        size_t done = d.base == 512 ? write_nines(out, symbols, count) : 0;
        tg_scalar_bits_write(out + done / d.symbols * d.bits / 8, symbols + done, count - done, d);
    }
}
#endif
