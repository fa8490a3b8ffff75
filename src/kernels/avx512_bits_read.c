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

/* Lanes of the first n of 16 or 32 words; of all if there are more. */
TG_AVX512_INLINE __mmask32 words_of(size_t n)
{
    return n >= 32 ? UINT32_MAX : ((uint32_t)1 << n) - 1;
}

/* Stores the first `count` symbols of eight groups of k. */
TG_AVX512_INLINE void store_groups(uint16_t *symbols, __m512i bytes, uint32_t k, size_t count)
{
    if (k == 8) {
        __m512i second = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(bytes, 1));
        _mm512_mask_storeu_epi16(symbols, words_of(count), _mm512_cvtepu8_epi16(_mm512_castsi512_si256(bytes)));
        _mm512_mask_storeu_epi16(symbols + 32, words_of(count > 32 ? count - 32 : 0), second);
        return;
    }
    const __m128i pairs[4] = {_mm512_castsi512_si128(bytes), _mm512_extracti32x4_epi32(bytes, 1),
                              _mm512_extracti32x4_epi32(bytes, 2), _mm512_extracti32x4_epi32(bytes, 3)};
    for (uint32_t p = 0; p < 4; p++) {
        size_t left = count > 2 * k * p ? count - 2 * k * p : 0;
        __mmask16 here = (__mmask16)words_of(left < 2 * k ? left : 2 * k);
        _mm256_mask_storeu_epi16(symbols + 2 * k * p, here, _mm256_cvtepu8_epi16(pairs[p]));
    }
}

/* Of eight groups with `count` symbols, fewer than are full: numbers that are too large. Symbols that a group lacks are zeros, and so
 * is all that follows the last group. */
TG_AVX512_INLINE __mmask8 bad_at_end(__m512i numbers, uint64_t numbers_n, size_t count, tg_digits d)
{
    uint64_t limits[GROUPS + 1];
    for (size_t g = 0; g < GROUPS; g++) {
        limits[g] = count >= (g + 1) * d.symbols ? numbers_n : 1;
    }
    limits[GROUPS] = 1;
    for (size_t i = 0; i < count % d.symbols; i++) {
        limits[count / d.symbols] *= d.base;
    }
    return _mm512_cmpge_epu64_mask(numbers, _mm512_loadu_si512(limits));
}

/* `k` is d.symbols, as a constant. */
TG_AVX512_INLINE bool read_groups_of(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d, uint32_t k)
{
    places at = places_of(d.bits);
    const __m512i gathered = together(k);
    const size_t step = GROUPS * (size_t)k;
    uint64_t numbers_n = 1;
    for (uint32_t i = 0; i < k; i++) {
        numbers_n *= d.base;
    }
    const __m512i limit = _mm512_set1_epi64((long long)numbers_n);
    __mmask8 bad = 0;
    size_t done = 0;
    for (; count - done >= step; done += step, bytes += d.bits) {
        __m512i numbers = load_numbers(bytes, &at);
        bad |= _mm512_cmpge_epu64_mask(numbers, limit);
        __m512i digits = digits_of(numbers, d.base);
        store_groups(symbols + done, k == 8 ? digits : _mm512_shuffle_epi8(digits, gathered), k, step);
    }
    size_t left = count - done;
    if (left > 0) {
        at.bytes = ((__mmask64)1 << ((left + k - 1) / k * d.bits + 7) / 8) - 1;
        __m512i numbers = load_numbers(bytes, &at);
        bad |= bad_at_end(numbers, numbers_n, left, d);
        __m512i digits = digits_of(numbers, d.base);
        store_groups(symbols + done, k == 8 ? digits : _mm512_shuffle_epi8(digits, gathered), k, left);
    }
    return bad == 0;
}

TG_AVX512 static bool read_groups(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d)
{
    return d.symbols == 8 ? read_groups_of(symbols, bytes, count, d, 8)
                          : read_groups_of(symbols, bytes, count, d, d.symbols);
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

/* The last number, of `count` symbols, 0 if all groups are full, must be below base^count. */
TG_AVX512_INLINE bool is_last_sound(uint32_t number, size_t count, uint32_t base)
{
    uint32_t limit = 1;
    for (size_t i = 0; i < count; i++) {
        limit *= base;
    }
    return count == 0 || number < limit;
}

/* Symbols of 32 bytes; `here` are the bytes that there are. Returns the numbers. */
TG_AVX512_INLINE __m512i read_threes(uint16_t *symbols, const uint8_t *bytes, size_t count, __mmask32 here)
{
    enum { VECTORS = 5 };
    __m512i numbers = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(here, bytes));
    for (uint32_t v = 0; v < VECTORS && 32 * v < count; v++) {
        _mm512_mask_storeu_epi16(symbols + 32 * v, words_of(count - 32 * v), digits_by(&fives_3, 32 * v, numbers, 3));
    }
    return numbers;
}

TG_AVX512 static bool read_base_3(uint16_t *symbols, const uint8_t *bytes, size_t count)
{
    enum { BYTES = 32, SYMBOLS = 5 * BYTES };
    __m512i most = _mm512_setzero_si512();
    size_t done = 0;
    for (; count - done >= SYMBOLS; done += SYMBOLS, bytes += BYTES) {
        most = _mm512_max_epu16(most, read_threes(symbols + done, bytes, SYMBOLS, UINT32_MAX));
    }
    size_t left = count - done, byte_n = (left + 4) / 5;
    if (left > 0) {
        most = _mm512_max_epu16(most, read_threes(symbols + done, bytes, left, words_of(byte_n)));
    }
    return _mm512_cmpge_epu16_mask(most, _mm512_set1_epi16(243)) == 0 &&
           is_last_sound(left > 0 ? bytes[byte_n - 1] : 0, left % 5, 3);
}

/* Symbols of 16 numbers; `here` are the numbers that there are. Returns those that are too large. */
TG_AVX512_INLINE __mmask16 read_nine_fives(uint16_t *symbols, const uint8_t *bytes, size_t count, __mmask16 here)
{
    enum { VECTORS = 3 };
    const __m512i limit = _mm512_set1_epi32(59049), one = _mm512_set1_epi32(1);
    __m512i numbers = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, bytes));
    /* number / 729 is (number + 1) * 46028 / 2^25, rounded down, because 46028 * 729 is 2^25 - 20. */
    __m512i upper = _mm512_mulhi_epu16(_mm512_add_epi32(numbers, one), _mm512_set1_epi32(46028));
    upper = _mm512_srli_epi32(upper, 9);
    __m512i lower = _mm512_sub_epi32(numbers, _mm512_mullo_epi16(upper, _mm512_set1_epi32(729)));
    __m512i words = _mm512_or_si512(lower, _mm512_slli_epi32(upper, 16));
    for (uint32_t v = 0; v < VECTORS && 32 * v < count; v++) {
        _mm512_mask_storeu_epi16(symbols + 32 * v, words_of(count - 32 * v), digits_by(&fives_9, 32 * v, words, 9));
    }
    return _mm512_cmpge_epu32_mask(numbers, limit);
}

TG_AVX512 static bool read_base_9(uint16_t *symbols, const uint8_t *bytes, size_t count)
{
    enum { NUMBERS = 16, SYMBOLS = 5 * NUMBERS };
    __mmask16 bad = 0;
    size_t done = 0;
    for (; count - done >= SYMBOLS; done += SYMBOLS, bytes += 2 * NUMBERS) {
        bad |= read_nine_fives(symbols + done, bytes, SYMBOLS, ALL);
    }
    size_t left = count - done, number_n = (left + 4) / 5;
    uint16_t last = 0;
    if (left > 0) {
        bad |= read_nine_fives(symbols + done, bytes, left, lanes_of(number_n));
        memcpy(&last, bytes + 2 * (number_n - 1), sizeof last);
    }
    return bad == 0 && is_last_sound(last, left % 5, 9);
}

/* ---- symbols of one bit, of eight and of nine --------------------------------------------------------------------------- */

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

TG_AVX512 static bool read_bytes(uint16_t *symbols, const uint8_t *bytes, size_t count, uint32_t base)
{
    __m256i most = _mm256_setzero_si256();
    size_t i = 0;
    for (; count - i >= 32; i += 32) {
        __m256i some = _mm256_loadu_si256((const __m256i *)(const void *)(bytes + i));
        most = _mm256_max_epu8(most, some);
        _mm512_storeu_si512(symbols + i, _mm512_cvtepu8_epi16(some));
    }
    __mmask32 here = (1u << (count - i)) - 1;
    __m256i some = _mm256_maskz_loadu_epi8(here, bytes + i);
    most = _mm256_max_epu8(most, some);
    _mm512_mask_storeu_epi16(symbols + i, here, _mm512_cvtepu8_epi16(some));
    return _mm256_cmpgt_epu8_mask(most, _mm256_set1_epi8((char)(base - 1))) == 0;
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

TG_AVX512 bool tg_avx512_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d)
{
    if (d.base == 2) {
        return read_signs(symbols, bytes, count);
    }
    if (d.symbols == 1 && d.bits == 8) {
        return read_bytes(symbols, bytes, count, d.base);
    }
    if (d.symbols <= 3 && d.bits <= 9 && d.base != 512) { /* small numbers, which 16-bit lanes of any width do well */
        return tg_avx2_bits_read(symbols, bytes, count, d);
    }
    if (d.base == 3) {
        return read_base_3(symbols, bytes, count);
    }
    if (d.base == 9) {
        return read_base_9(symbols, bytes, count);
    }
    if (d.symbols > 1 && d.base < 128) {
        return read_groups(symbols, bytes, count, d);
    }
    size_t done = d.base == 512 ? read_nines(symbols, bytes, count) : 0;
    const uint8_t *rest = bytes + done / d.symbols * d.bits / 8;
    return tg_scalar_bits_read(symbols + done, rest, count - done, d);
}
#endif
