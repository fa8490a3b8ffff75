/* Kernels for AVX-512 that pack symbols at their plain width, and unpack them; see avx512.h and pack/bits.c. Eight groups, which
 * fill whole bytes, are at work at a time, one a lane of 64 bits. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TG_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,popcnt")))
#define INLINED static inline __attribute__((always_inline)) TG_TARGET

/* Symbols that must be left behind what is worked on: loads and stores reach beyond it, by up to 15 symbols and 8 bytes. */
enum { SPARE = 64, GROUPS = 8 };

/* ---- groups of several ------------------------------------------------------------------------------------------------- */

/* Which bytes of two groups, each at the start of a lane of 64 bits, stand together as 2 k bytes; and the other way round. */
INLINED __m512i together(uint32_t k)
{
    uint8_t at[16];
    for (uint32_t i = 0; i < 16; i++) {
        at[i] = (uint8_t)(i < k ? i : i < 2 * k ? 8 + i - k : 0x80);
    }
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)at));
}

INLINED __m512i apart(uint32_t k)
{
    uint8_t at[16];
    for (uint32_t i = 0; i < 16; i++) {
        at[i] = (uint8_t)(i % 8 < k ? i / 8 * k + i % 8 : 0x80);
    }
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)at));
}

/* The symbols of eight groups, as bytes from the lowest of a lane on. */
INLINED __m512i load_groups(const uint16_t *symbols, uint32_t k, __m512i spread)
{
    if (k == 8) {
        __m256i halves[2];
        for (int h = 0; h < 2; h++) {
            halves[h] = _mm512_cvtepi16_epi8(_mm512_loadu_si512(symbols + 32 * h));
        }
        return _mm512_inserti64x4(_mm512_castsi256_si512(halves[0]), halves[1], 1);
    }
    __m128i pairs[4];
    for (uint32_t p = 0; p < 4; p++) {
        __m256i words = _mm256_loadu_si256((const __m256i *)(const void *)(symbols + 2 * k * p));
        pairs[p] = _mm256_cvtepi16_epi8(words);
    }
    __m512i bytes = _mm512_castsi128_si512(pairs[0]);
    bytes = _mm512_inserti32x4(bytes, pairs[1], 1);
    bytes = _mm512_inserti32x4(bytes, pairs[2], 2);
    bytes = _mm512_inserti32x4(bytes, pairs[3], 3);
    return _mm512_shuffle_epi8(bytes, spread);
}

/* How eight numbers, each in a lane, come to stand one behind the other. A number is turned to where it begins in a word of 16
 * bits; the numbers at even places have words of their own then, and so do those at odd ones, if they have 32 bits or more. */
typedef struct joints {
    __m512i shifts, words[2];
    __mmask32 are_there[2];
    __mmask64 bytes;
} joints;

INLINED joints joints_of(uint32_t bits)
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

/* Eight numbers of so many bits. */
INLINED void put_numbers(uint8_t *out, __m512i numbers, uint32_t bits, const joints *j)
{
    if (bits >= 32) {
        __m512i turned = _mm512_sllv_epi64(numbers, j->shifts);
        __m512i even = _mm512_maskz_permutexvar_epi16(j->are_there[0], j->words[0], turned);
        __m512i odd = _mm512_maskz_permutexvar_epi16(j->are_there[1], j->words[1], turned);
        _mm512_mask_storeu_epi8(out, j->bytes, _mm512_or_si512(even, odd));
        return;
    }
    if (bits == 8) {
        _mm_storel_epi64((__m128i *)(void *)out, _mm512_cvtepi64_epi8(numbers));
        return;
    }
    if (bits == 16) {
        _mm_storeu_si128((__m128i *)(void *)out, _mm512_cvtepi64_epi16(numbers));
        return;
    }
    uint64_t all[GROUPS], held = 0;
    uint32_t held_n = 0;
    _mm512_storeu_si512(all, numbers);
    for (int g = 0; g < GROUPS; g++) {
        held |= all[g] << held_n;
        held_n += bits;
        memcpy(out, &held, sizeof held);
        out += held_n / 8;
        held >>= held_n & ~7u; /* at most 48 + 7 bits, so never all */
        held_n &= 7;
    }
}

/* Symbols below 128: digits are taken together by twos, by fours and by eights. `k` and `bits` are d's, in sight of the
 * compiler. */
INLINED size_t write_groups_of(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d, uint32_t k,
                               uint32_t bits)
{
    const __m512i spread = apart(k);
    const __m512i twos = _mm512_set1_epi16((short)(d.base << 8 | 1));
    const __m512i fours = _mm512_set1_epi32((int)(d.base * d.base << 16 | 1));
    const __m512i eights = _mm512_set1_epi64((long long)d.base * d.base * d.base * d.base);
    const __m512i lower = _mm512_set1_epi64(0xffffffff);
    const joints j = joints_of(bits);
    size_t done = 0;
    for (; count - done >= GROUPS * k + SPARE; done += GROUPS * k) {
        __m512i bytes = load_groups(symbols + done, k, spread);
        __m512i pairs = _mm512_madd_epi16(_mm512_maddubs_epi16(bytes, twos), fours);
        __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(pairs, 32), eights);
        put_numbers(out, _mm512_add_epi64(high, _mm512_and_si512(pairs, lower)), bits, &j);
        out += bits;
    }
    return done;
}

/* The four words of 16 bits that hold a group's number, at which bit of the first it begins, and which bits are its own. Eight
 * numbers of so many bits are as many bytes. */
typedef struct places {
    __m512i words, shifts, mask;
    __mmask64 bytes;
} places;

INLINED places places_of(uint32_t bits)
{
    uint16_t words[32];
    for (uint32_t i = 0; i < 32; i++) {
        words[i] = (uint16_t)(i / 4 * bits / 16 + i % 4);
    }
    __m512i at = _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(bits));
    return (places){_mm512_loadu_si512(words), _mm512_and_si512(at, _mm512_set1_epi64(15)),
                    _mm512_set1_epi64((long long)((UINT64_C(1) << bits) - 1)), ((__mmask64)1 << bits) - 1};
}

INLINED __m512i load_numbers(const uint8_t *bytes, const places *at)
{
    __m512i words = _mm512_permutexvar_epi16(at->words, _mm512_maskz_loadu_epi8(at->bytes, bytes));
    return _mm512_and_si512(_mm512_srlv_epi64(words, at->shifts), at->mask);
}

/* x / divisor, rounded down, of whole numbers below 2^48 in binary64: what (x + 0.5) / divisor - 0.5 is nearest to, and a number
 * above 2^52 has no place for anything but whole ones. */
INLINED __m512d divide(__m512d x, double divisor)
{
    const __m512d large = _mm512_set1_pd(0x1.8p52);
    __m512d quotient = _mm512_mul_pd(x, _mm512_set1_pd(1 / divisor));
    quotient = _mm512_add_pd(quotient, _mm512_set1_pd(0.5 / divisor - 0.5));
    return _mm512_sub_pd(_mm512_add_pd(quotient, large), large);
}

INLINED __m512i whole(__m512d x)
{
    return _mm512_castpd_si512(_mm512_xor_pd(_mm512_add_pd(x, _mm512_set1_pd(0x1p52)), _mm512_set1_pd(0x1p52)));
}

/* Numbers of up to eight digits to the digits, the first in the lowest byte of a lane: by halves of four, of two, of one. Numbers
 * of four digits below 128 are below 2^28, so their quotients by two digits, below 2^14, are exact in binary32 but for one at
 * the most, which the rest tells; those of two by one digit likewise in 16 bits. */
INLINED __m512i digits_of(__m512i numbers, uint32_t base)
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

INLINED void store_groups(uint16_t *symbols, __m512i bytes, uint32_t k)
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

/* `k` is d.symbols, in sight of the compiler. */
INLINED size_t read_groups_of(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d, uint32_t k,
                              bool *sound)
{
    enum { BEYOND = 16 }; /* symbols that are stored over others, or behind the last */
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

TG_TARGET static size_t read_groups(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d, bool *sound)
{
    return d.symbols == 8 ? read_groups_of(symbols, bytes, count, d, 8, sound)
                          : read_groups_of(symbols, bytes, count, d, d.symbols, sound);
}

TG_TARGET bool tg_avx512_numbers_below(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit)
{
    const places at = places_of(bits);
    const __m512i bound = _mm512_set1_epi64((long long)limit);
    __mmask8 bad = 0;
    for (size_t i = 0; i < n; i += GROUPS, bytes += bits) {
        bad |= _mm512_cmpge_epu64_mask(load_numbers(bytes, &at), bound);
    }
    return bad == 0;
}

TG_TARGET static size_t write_groups(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d)
{
    if (d.symbols == 5 && d.bits == 8) {
        return write_groups_of(out, symbols, count, d, 5, 8);
    }
    if (d.symbols == 5 && d.bits == 16) {
        return write_groups_of(out, symbols, count, d, 5, 16);
    }
    if (d.symbols == 8 && d.bits == 41) {
        return write_groups_of(out, symbols, count, d, 8, 41);
    }
    return write_groups_of(out, symbols, count, d, d.symbols, d.bits);
}

/* ---- five digits of base 3 in a byte, or of base 9 in two -------------------------------------------------------------- */

/* For each of 32 symbols: in which of 32 words its number stands, and what to multiply it with so that the fraction of
 * number / base^(digit + 1) is left in 16 bits, a little too large. That times the base is the digit. */
typedef struct fives {
    __m512i words, factors;
} fives;

/* For symbols from number `first` on. Of base 9 the number stands in two words, three digits in the one, two in the other. */
INLINED fives fives_of(uint32_t base, uint32_t first)
{
    uint16_t words[32], factors[32];
    uint32_t of_word = base == 3 ? 5 : 3;
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t group = (first + i) / 5, digit = (first + i) % 5, divisor = base;
        words[i] = (uint16_t)(base == 3 ? group : 2 * group + digit / of_word);
        for (uint32_t j = 0; j < digit % of_word; j++) {
            divisor *= base;
        }
        factors[i] = (uint16_t)((65536 + divisor - 1) / divisor);
    }
    return (fives){_mm512_loadu_si512(words), _mm512_loadu_si512(factors)};
}

INLINED __m512i digits_by(const fives *f, __m512i numbers, uint32_t base)
{
    __m512i fractions = _mm512_mullo_epi16(_mm512_permutexvar_epi16(f->words, numbers), f->factors);
    return _mm512_mulhi_epu16(fractions, _mm512_set1_epi16((short)base));
}

TG_TARGET static size_t read_threes(uint16_t *symbols, const uint8_t *bytes, size_t count, bool *sound)
{
    enum { BYTES = 32, SYMBOLS = 5 * BYTES, VECTORS = SYMBOLS / 32 };
    fives f[VECTORS];
    for (uint32_t v = 0; v < VECTORS; v++) {
        f[v] = fives_of(3, 32 * v);
    }
    __m512i most = _mm512_setzero_si512();
    size_t done = 0;
    for (; count - done >= SYMBOLS; done += SYMBOLS, bytes += BYTES) {
        __m512i numbers = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)bytes));
        most = _mm512_max_epu16(most, numbers);
        for (uint32_t v = 0; v < VECTORS; v++) {
            _mm512_storeu_si512(symbols + done + 32 * v, digits_by(&f[v], numbers, 3));
        }
    }
    *sound = _mm512_cmpge_epu16_mask(most, _mm512_set1_epi16(243)) == 0;
    return done;
}

TG_TARGET static size_t read_base_9(uint16_t *symbols, const uint8_t *bytes, size_t count, bool *sound)
{
    enum { NUMBERS = 16, SYMBOLS = 5 * NUMBERS };
    const fives f[3] = {fives_of(9, 0), fives_of(9, 32), fives_of(9, 64)};
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
        _mm512_storeu_si512(symbols + done, digits_by(&f[0], words, 9));
        _mm512_storeu_si512(symbols + done + 32, digits_by(&f[1], words, 9));
        _mm256_storeu_si256((__m256i *)(void *)(symbols + done + 64),
                            _mm512_castsi512_si256(digits_by(&f[2], words, 9)));
    }
    *sound = bad == 0;
    return done;
}

/* ---- symbols of one bit and of nine ------------------------------------------------------------------------------------ */

TG_TARGET static size_t write_signs(uint8_t *out, const uint16_t *symbols, size_t count)
{
    size_t done = 0;
    for (; count - done >= 32; done += 32) {
        __m512i words = _mm512_loadu_si512(symbols + done);
        uint32_t bits = _mm512_test_epi16_mask(words, words);
        memcpy(out + done / 8, &bits, sizeof bits);
    }
    return done;
}

TG_TARGET static size_t read_signs(uint16_t *symbols, const uint8_t *bytes, size_t count)
{
    size_t done = 0;
    for (; count - done >= 32; done += 32) {
        uint32_t bits;
        memcpy(&bits, bytes + done / 8, sizeof bits);
        _mm512_storeu_si512(symbols + done, _mm512_maskz_set1_epi16(bits, 1));
    }
    return done;
}

/* Symbol i of eight begins at bit i of byte i. */
INLINED __m512i own_shifts(void)
{
    return _mm512_broadcast_i32x4(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7));
}

TG_TARGET static size_t write_nines(uint8_t *out, const uint16_t *symbols, size_t count)
{
    const __m512i even =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1));
    const __m512i odd =
        _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 2, 3, 6, 7, 10, 11, 14, 15, -1, -1, -1, -1, -1, -1, -1));
    size_t done = 0;
    for (; count - done >= 32 + SPARE; done += 32, out += 36) {
        __m512i words = _mm512_sllv_epi16(_mm512_loadu_si512(symbols + done), own_shifts());
        words = _mm512_or_si512(_mm512_shuffle_epi8(words, even), _mm512_shuffle_epi8(words, odd));
        _mm_storeu_si128((__m128i *)(void *)out, _mm512_castsi512_si128(words));
        _mm_storeu_si128((__m128i *)(void *)(out + 9), _mm512_extracti32x4_epi32(words, 1));
        _mm_storeu_si128((__m128i *)(void *)(out + 18), _mm512_extracti32x4_epi32(words, 2));
        _mm_storeu_si128((__m128i *)(void *)(out + 27), _mm512_extracti32x4_epi32(words, 3));
    }
    return done;
}

TG_TARGET static size_t read_nines(uint16_t *symbols, const uint8_t *bytes, size_t count)
{
    const __m512i pairs = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8));
    size_t done = 0;
    for (; count - done >= 32; done += 32, bytes += 36) {
        __m512i words = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)bytes));
        words = _mm512_inserti32x4(words, _mm_loadu_si128((const __m128i *)(const void *)(bytes + 9)), 1);
        words = _mm512_inserti32x4(words, _mm_loadu_si128((const __m128i *)(const void *)(bytes + 18)), 2);
        words = _mm512_inserti32x4(words, _mm_maskz_loadu_epi8(0x1ff, bytes + 27), 3); /* and nothing behind it */
        words = _mm512_srlv_epi16(_mm512_shuffle_epi8(words, pairs), own_shifts());
        _mm512_storeu_si512(symbols + done, _mm512_and_si512(words, _mm512_set1_epi16(0x1ff)));
    }
    return done;
}

/* ---- all --------------------------------------------------------------------------------------------------------------- */

TG_TARGET size_t tg_avx512_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d)
{
    if (d.symbols > 1 && d.base < 128) {
        return write_groups(out, symbols, count, d);
    }
    return d.base == 2 ? write_signs(out, symbols, count) : d.base == 512 ? write_nines(out, symbols, count) : 0;
}

TG_TARGET size_t tg_avx512_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d, bool *sound)
{
    *sound = true;
    switch (d.base) {
    case 2: return read_signs(symbols, bytes, count);
    case 3: return read_threes(symbols, bytes, count, sound);
    case 9: return read_base_9(symbols, bytes, count, sound);
    case 512: return read_nines(symbols, bytes, count);
    default: break;
    }
    return d.symbols > 1 && d.base < 128 ? read_groups(symbols, bytes, count, d, sound) : 0;
}
#endif
