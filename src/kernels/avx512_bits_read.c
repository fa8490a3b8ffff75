/* Symbols at their plain width for AVX-512: reading and checking. As avx512_bits_write.c. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include "kernels/avx2.h"
#include "kernels/digits.h"
#include "kernels/scalar.h"

#include <string.h>

enum { GROUPS = 8 };

/* ---- groups of several symbols ----------------------------------------------------------------------------------------- */

/* Where eight numbers of so many bits, which fill as many bytes, are: the four 16-bit words that hold each number, the bit of the
 * first word at which it begins, and the mask of its bits. */
typedef struct places {
    __m512i words, shifts, mask;
    __mmask64 bytes;
} places;

TG_AVX512_INLINE places places_of(uint32_t bits)
{
    const __m512i next = _mm512_set1_epi64(0x0003000200010000);
    __m512i at = _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(bits));
    __m512i first = _mm512_mullo_epi64(_mm512_srli_epi64(at, 4), _mm512_set1_epi64(0x0001000100010001));
    return (places){_mm512_add_epi16(first, next), _mm512_and_si512(at, _mm512_set1_epi64(15)),
                    _mm512_set1_epi64((long long)((UINT64_C(1) << bits) - 1)), ((__mmask64)1 << bits) - 1};
}

TG_AVX512_INLINE __m512i load_numbers(const uint8_t *bytes, const places *at)
{
    __m512i words = _mm512_permutexvar_epi16(at->words, _mm512_maskz_loadu_epi8(at->bytes, bytes));
    return _mm512_and_si512(_mm512_srlv_epi64(words, at->shifts), at->mask);
}

TG_AVX512 bool tg_avx512_numbers_below(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit)
{
    const places at = places_of(bits);
    const __m512i bound = _mm512_set1_epi64((long long)limit);
    __mmask8 bad = 0;
    for (size_t i = 0; i < n; i += GROUPS, bytes += bits) {
        bad |= _mm512_cmpge_epu64_mask(load_numbers(bytes, &at), bound);
    }
    return bad == 0;
}

/* Byte shuffle that moves two groups of k bytes, each at the start of a 64-bit lane, together. */
TG_AVX512_INLINE __m512i together(uint32_t k)
{
    const __m128i lanes = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __mmask16 first = _mm_cmplt_epi8_mask(lanes, _mm_set1_epi8((char)k));
    __mmask16 both = _mm_cmplt_epi8_mask(lanes, _mm_set1_epi8((char)(2 * k)));
    __m128i at = _mm_mask_add_epi8(_mm_set1_epi8((char)0x80), both, lanes, _mm_set1_epi8((char)(8 - k)));
    return _mm512_broadcast_i32x4(_mm_mask_mov_epi8(at, first, lanes));
}

/* x / divisor, rounded down, of integers below 2^48 in binary64: the integer nearest to (x + 0.5) / divisor - 0.5. Adding a number
 * above 2^52 rounds to an integer. */
TG_AVX512_INLINE __m512d divide(__m512d x, double divisor)
{
    const __m512d large = _mm512_set1_pd(0x1.8p52);
    __m512d quotient = _mm512_mul_pd(x, _mm512_set1_pd(1 / divisor));
    quotient = _mm512_add_pd(quotient, _mm512_set1_pd(0.5 / divisor - 0.5));
    return _mm512_sub_pd(_mm512_add_pd(quotient, large), large);
}

/* The integer as 64 bits. */
TG_AVX512_INLINE __m512i whole(__m512d x)
{
    return _mm512_castpd_si512(_mm512_xor_pd(_mm512_add_pd(x, _mm512_set1_pd(0x1p52)), _mm512_set1_pd(0x1p52)));
}

/* Numbers of up to eight digits to the digits, the first in the lowest byte of a lane: split into halves of four, two and one
 * digits. Numbers of four digits below 128 are below 2^28, so a quotient by two digits, estimated in binary32, is wrong by one at
 * most, which the remainder shows; likewise for two digits in 16 bits. */
TG_AVX512_INLINE __m512i digits_of(__m512i numbers, uint32_t base)
{
    double square = (double)base * base, fourth = square * square;
    __m512d x = _mm512_cvtepu64_pd(numbers), high = divide(x, fourth);
    __m512d low = _mm512_sub_pd(x, _mm512_mul_pd(high, _mm512_set1_pd(fourth)));
    __m512i fours = _mm512_or_si512(whole(low), _mm512_slli_epi64(whole(high), 32));

    const __m512i two = _mm512_set1_epi32((int)(base * base));
    __m512 estimate = _mm512_mul_ps(_mm512_cvtepi32_ps(fours), _mm512_set1_ps((float)(1 / square)));
    __m512i quotients = _mm512_cvttps_epi32(estimate);
    __m512i rests = _mm512_sub_epi32(fours, _mm512_mullo_epi32(quotients, two));
    __mmask16 above = _mm512_cmpge_epi32_mask(rests, two), below = _mm512_movepi32_mask(rests);
    quotients = _mm512_mask_add_epi32(quotients, above, quotients, _mm512_set1_epi32(1));
    rests = _mm512_mask_sub_epi32(rests, above, rests, two);
    quotients = _mm512_mask_sub_epi32(quotients, below, quotients, _mm512_set1_epi32(1));
    rests = _mm512_mask_add_epi32(rests, below, rests, two);
    __m512i pairs = _mm512_or_si512(rests, _mm512_slli_epi32(quotients, 16));

    const __m512i one = _mm512_set1_epi16((short)base);
    __m512i upper = _mm512_mulhi_epu16(pairs, _mm512_set1_epi16((short)(65536 / base)));
    __m512i lower = _mm512_sub_epi16(pairs, _mm512_mullo_epi16(upper, one));
    __mmask32 short_by = _mm512_cmpge_epu16_mask(lower, one);
    upper = _mm512_mask_add_epi16(upper, short_by, upper, _mm512_set1_epi16(1));
    lower = _mm512_mask_sub_epi16(lower, short_by, lower, one);
    return _mm512_or_si512(lower, _mm512_slli_epi16(upper, 8));
}

TG_AVX512_INLINE void store_groups(uint16_t *symbols, __m512i bytes, uint32_t k)
{
    if (k == 8) {
        _mm512_storeu_si512(symbols, _mm512_cvtepu8_epi16(_mm512_castsi512_si256(bytes)));
        _mm512_storeu_si512(symbols + 32, _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(bytes, 1)));
        return;
    }
    const __m128i pairs[4] = {_mm512_castsi512_si128(bytes), _mm512_extracti32x4_epi32(bytes, 1),
                              _mm512_extracti32x4_epi32(bytes, 2), _mm512_extracti32x4_epi32(bytes, 3)};
    for (uint32_t p = 0; p < 4; p++) {
        _mm256_storeu_si256((__m256i *)(void *)(symbols + 2 * k * p), _mm256_cvtepu8_epi16(pairs[p]));
    }
}

/* `k` is d.symbols, as a constant. */
TG_AVX512_INLINE size_t read_groups_of(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d, uint32_t k,
                                       bool *sound)
{
    enum { BEYOND = 16 }; /* symbols that stores may overwrite after the last */
    if (count < GROUPS * k + (k == 8 ? 0 : BEYOND)) {
        *sound = true;
        return 0;
    }
    const places at = places_of(d.bits);
    const __m512i gathered = together(k);
    uint64_t numbers_n = 1;
    for (uint32_t i = 0; i < k; i++) {
        numbers_n *= d.base;
    }
    const __m512i limit = _mm512_set1_epi64((long long)numbers_n);
    __mmask8 bad = 0;
    size_t done = 0;
    for (; count - done >= GROUPS * k + (k == 8 ? 0 : BEYOND); done += GROUPS * k) {
        __m512i numbers = load_numbers(bytes, &at);
        bad |= _mm512_cmpge_epu64_mask(numbers, limit);
        __m512i digits = digits_of(numbers, d.base);
        store_groups(symbols + done, k == 8 ? digits : _mm512_shuffle_epi8(digits, gathered), k);
        bytes += d.bits;
    }
    *sound = bad == 0;
    return done;
}

/* The last groups, fewer than eight or too near the end for whole stores, in buffers of their own. What follows the last symbol is
 * zeros, so every symbol after it must be 0. */
TG_AVX512 static bool read_last_groups(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d)
{
    uint8_t held[GROUPS * 2 * 48 / 8] = {0};
    uint16_t read[(GROUPS * 2 + 2) * 8 + 16];
    size_t rounded = (count + GROUPS * d.symbols - 1) / (GROUPS * d.symbols) * (GROUPS * d.symbols);
    bool sound = true;
    memcpy(held, bytes, ((count + d.symbols - 1) / d.symbols * d.bits + 7) / 8);
    (void)(d.symbols == 8 ? read_groups_of(read, held, rounded, d, 8, &sound)
                          : read_groups_of(read, held, rounded + 16, d, d.symbols, &sound));
    memcpy(symbols, read, count * sizeof *symbols);
    uint32_t more = 0;
    for (size_t i = count; i < rounded; i++) {
        more |= read[i];
    }
    return sound && more == 0;
}

TG_AVX512 static size_t read_groups(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d, bool *sound)
{
    return d.symbols == 8 ? read_groups_of(symbols, bytes, count, d, 8, sound)
                          : read_groups_of(symbols, bytes, count, d, d.symbols, sound);
}

/* ---- five digits of base 3 in a byte, or of base 9 in two -------------------------------------------------------------- */

/* For each symbol: which of 32 words holds its number, and a factor after which the low 16 bits are the fraction of
 * number / base^(digit + 1), slightly too large. The fraction times the base is the digit. A number of base 9 is in two words:
 * three digits in one, two in the other. */
typedef struct fives {
    uint16_t words[160], factors[160];
} fives;

#define FACTOR(divisor) ((65536 + (divisor)-1) / (divisor))
#define FOUR(row, g) row(g), row((g) + 1), row((g) + 2), row((g) + 3)
#define SIXTEEN(row, g) FOUR(row, g), FOUR(row, (g) + 4), FOUR(row, (g) + 8), FOUR(row, (g) + 12)

#define WORDS_3(g) (g), (g), (g), (g), (g)
#define FACTORS_3(g) FACTOR(3), FACTOR(9), FACTOR(27), FACTOR(81), FACTOR(243)
static const fives fives_3 = {{SIXTEEN(WORDS_3, 0), SIXTEEN(WORDS_3, 16)},
                              {SIXTEEN(FACTORS_3, 0), SIXTEEN(FACTORS_3, 16)}};

#define WORDS_9(g) 2 * (g), 2 * (g), 2 * (g), 2 * (g) + 1, 2 * (g) + 1
#define FACTORS_9(g) FACTOR(9), FACTOR(81), FACTOR(729), FACTOR(9), FACTOR(81)
static const fives fives_9 = {{SIXTEEN(WORDS_9, 0)}, {SIXTEEN(FACTORS_9, 0)}}; /* of 80 symbols */

/* Digits of the symbols from number `first` on. */
TG_AVX512_INLINE __m512i digits_by(const fives *f, uint32_t first, __m512i numbers, uint32_t base)
{
    __m512i words = _mm512_loadu_si512(f->words + first), factors = _mm512_loadu_si512(f->factors + first);
    __m512i fractions = _mm512_mullo_epi16(_mm512_permutexvar_epi16(words, numbers), factors);
    return _mm512_mulhi_epu16(fractions, _mm512_set1_epi16((short)base));
}

TG_AVX512 static size_t read_base_3(uint16_t *symbols, const uint8_t *bytes, size_t count, bool *sound)
{
    enum { BYTES = 32, SYMBOLS = 5 * BYTES, VECTORS = SYMBOLS / 32 };
    __m512i most = _mm512_setzero_si512();
    size_t done = 0;
    for (; count - done >= SYMBOLS; done += SYMBOLS, bytes += BYTES) {
        __m512i numbers = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)bytes));
        most = _mm512_max_epu16(most, numbers);
        for (uint32_t v = 0; v < VECTORS; v++) {
            _mm512_storeu_si512(symbols + done + 32 * v, digits_by(&fives_3, 32 * v, numbers, 3));
        }
    }
    *sound = _mm512_cmpge_epu16_mask(most, _mm512_set1_epi16(243)) == 0;
    return done;
}

TG_AVX512 static size_t read_base_9(uint16_t *symbols, const uint8_t *bytes, size_t count, bool *sound)
{
    enum { NUMBERS = 16, SYMBOLS = 5 * NUMBERS };
    const __m512i limit = _mm512_set1_epi32(59049), one = _mm512_set1_epi32(1);
    __mmask16 bad = 0;
    size_t done = 0;
    for (; count - done >= SYMBOLS; done += SYMBOLS, bytes += 2 * NUMBERS) {
        __m512i numbers = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)bytes));
        bad |= _mm512_cmpge_epu32_mask(numbers, limit);
        /* number / 729 is (number + 1) * 46028 / 2^25, rounded down, because 46028 * 729 is 2^25 - 20. */
        __m512i upper = _mm512_mulhi_epu16(_mm512_add_epi32(numbers, one), _mm512_set1_epi32(46028));
        upper = _mm512_srli_epi32(upper, 9);
        __m512i lower = _mm512_sub_epi32(numbers, _mm512_mullo_epi16(upper, _mm512_set1_epi32(729)));
        __m512i words = _mm512_or_si512(lower, _mm512_slli_epi32(upper, 16));
        _mm512_storeu_si512(symbols + done, digits_by(&fives_9, 0, words, 9));
        _mm512_storeu_si512(symbols + done + 32, digits_by(&fives_9, 32, words, 9));
        _mm256_storeu_si256((__m256i *)(void *)(symbols + done + 64),
                            _mm512_castsi512_si256(digits_by(&fives_9, 64, words, 9)));
    }
    *sound = bad == 0;
    return done;
}

/* ---- symbols of one bit and of nine ------------------------------------------------------------------------------------ */

TG_AVX512 static bool read_signs(uint16_t *symbols, const uint8_t *bytes, size_t count)
{
    size_t i = 0;
    uint32_t bits = 0;
    for (; count - i >= 32; i += 32) {
        memcpy(&bits, bytes + i / 8, sizeof bits);
        _mm512_storeu_si512(symbols + i, _mm512_maskz_set1_epi16(bits, 1));
    }
    __mmask32 here = (1u << (count - i)) - 1;
    bits = 0;
    memcpy(&bits, bytes + i / 8, (count - i + 7) / 8);
    _mm512_mask_storeu_epi16(symbols + i, here, _mm512_maskz_set1_epi16(bits, 1));
    return (bits & ~here) == 0;
}

TG_AVX512 static size_t read_nines(uint16_t *symbols, const uint8_t *bytes, size_t count)
{
    /* Symbol i of eight begins at bit i of byte i. */
    const __m512i shifts = _mm512_broadcast_i32x4(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7));
    const __m512i pairs = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8));
    size_t done = 0;
    for (; count - done >= 32; done += 32, bytes += 36) {
        __m512i words = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)bytes));
        words = _mm512_inserti32x4(words, _mm_loadu_si128((const __m128i *)(const void *)(bytes + 9)), 1);
        words = _mm512_inserti32x4(words, _mm_loadu_si128((const __m128i *)(const void *)(bytes + 18)), 2);
        words = _mm512_inserti32x4(words, _mm_maskz_loadu_epi8(0x1ff, bytes + 27), 3); /* and no byte after it */
        words = _mm512_srlv_epi16(_mm512_shuffle_epi8(words, pairs), shifts);
        _mm512_storeu_si512(symbols + done, _mm512_and_si512(words, _mm512_set1_epi16(0x1ff)));
    }
    return done;
}

/* ---- all --------------------------------------------------------------------------------------------------------------- */

/* Readers leave a few symbols to the scalar kernel, of base 3 and 9 up to 160. */
TG_AVX512 bool tg_avx512_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d)
{
    bool sound = true;
    size_t done = 0;
    if (d.base == 2) {
        return read_signs(symbols, bytes, count);
    }
    if (d.symbols <= 3 && d.bits <= 9 && d.base != 512) { /* small numbers, which 16-bit lanes of any width do well */
        return tg_avx2_bits_read(symbols, bytes, count, d);
    }
    if (d.base == 3) {
        done = read_base_3(symbols, bytes, count, &sound);
    } else if (d.base == 9) {
        done = read_base_9(symbols, bytes, count, &sound);
    } else if (d.base == 512) {
        done = read_nines(symbols, bytes, count);
    } else if (d.symbols > 1 && d.base < 128) {
        done = read_groups(symbols, bytes, count, d, &sound);
        if (count - done > 8) {
            return sound && read_last_groups(symbols + done, bytes + done / d.symbols * d.bits / 8, count - done, d);
        }
    }
    const uint8_t *rest = bytes + done / d.symbols * d.bits / 8;
    return sound && tg_scalar_bits_read(symbols + done, rest, count - done, d);
}
#endif
