/* Symbols at their plain width for AVX2: reading and checking. As avx2_bits_write.c. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/digits.h"
#include "kernels/scalar.h"

#include <string.h>

/* Where readers are. Loads may reach past what is read, but never past `end`. */
typedef struct source {
    const uint8_t *bytes, *end;
} source;

TG_AVX2_INLINE bool has(const source *s, size_t len)
{
    return (size_t)(s->end - s->bytes) >= len;
}

/* Sixteen bytes from each of two addresses. */
TG_AVX2_INLINE __m256i load_two(const uint8_t *low, const uint8_t *high)
{
    __m256i lower = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)low));
    return _mm256_inserti128_si256(lower, _mm_loadu_si128((const __m128i *)(const void *)high), 1);
}

TG_AVX2_INLINE __m256i load_twice(const uint8_t *bytes)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)bytes));
}

/* ---- groups of several symbols ----------------------------------------------------------------------------------------- */

enum { GROUPS = 8 }; /* fill whole bytes */

/* Where eight numbers of so many bits, which fill as many bytes, are: two numbers in every sixteen bytes from `first` on; which
 * of these hold each number, the bit of the first of them at which it begins, and the mask of its bits. */
typedef struct places {
    uint32_t first[GROUPS / 2];
    __m256i bytes[2], shifts[2], mask;
    uint32_t reach; /* the end of the last sixteen bytes */
} places;

TG_AVX2_INLINE places places_of(uint32_t bits)
{
    places at;
    uint8_t bytes[2][32];
    uint64_t shifts[GROUPS];
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t pair = g / 2 * 2 * bits / 8;
        at.first[g / 2] = pair;
        shifts[g] = g * bits % 8;
        for (uint32_t b = 0; b < 8; b++) {
            uint32_t byte = g * bits / 8 - pair + b; /* at most 6 + 7 */
            bytes[g / 4][g % 4 * 8 + b] = (uint8_t)byte;
        }
    }
    for (int h = 0; h < 2; h++) {
        at.bytes[h] = _mm256_loadu_si256((const __m256i *)(const void *)bytes[h]);
        at.shifts[h] = _mm256_loadu_si256((const __m256i *)(const void *)(shifts + 4 * h));
    }
    at.mask = _mm256_set1_epi64x((long long)((UINT64_C(1) << bits) - 1));
    at.reach = at.first[GROUPS / 2 - 1] + 16 > bits ? at.first[GROUPS / 2 - 1] + 16 : bits;
    return at;
}

/* The first or last four of eight numbers. */
TG_AVX2_INLINE __m256i load_numbers(const uint8_t *bytes, const places *at, int half)
{
    __m256i pairs = load_two(bytes + at->first[2 * half], bytes + at->first[2 * half + 1]);
    __m256i words = _mm256_shuffle_epi8(pairs, at->bytes[half]);
    return _mm256_and_si256(_mm256_srlv_epi64(words, at->shifts[half]), at->mask);
}

TG_AVX2 bool tg_avx2_numbers_below(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit)
{
    const places at = places_of(bits);
    const __m256i most = _mm256_set1_epi64x((long long)limit - 1);
    source s = {bytes, bytes + n / GROUPS * bits};
    __m256i bad = _mm256_setzero_si256();
    size_t i = 0;
    for (; i < n && has(&s, at.reach); i += GROUPS, s.bytes += bits) {
        bad = _mm256_or_si256(bad, _mm256_cmpgt_epi64(load_numbers(s.bytes, &at, 0), most));
        bad = _mm256_or_si256(bad, _mm256_cmpgt_epi64(load_numbers(s.bytes, &at, 1), most));
    }
    return _mm256_testz_si256(bad, bad) != 0 && tg_scalar_numbers_below(s.bytes, n - i, bits, limit);
}

/* Byte shuffle that moves two groups of k bytes, each at the start of a 64-bit lane, together. */
TG_AVX2_INLINE __m256i together(uint32_t k)
{
    uint8_t at[16];
    for (uint32_t i = 0; i < 16; i++) {
        at[i] = (uint8_t)(i < k ? i : i < 2 * k ? 8 + i - k : 0x80);
    }
    return load_twice(at);
}

/* x / divisor, rounded down, of integers below 2^48 in binary64: the integer nearest to (x + 0.5) / divisor - 0.5. Adding a number
 * above 2^52 rounds to an integer. */
TG_AVX2_INLINE __m256d divide(__m256d x, double divisor)
{
    const __m256d large = _mm256_set1_pd(0x1.8p52);
    __m256d quotient = _mm256_mul_pd(x, _mm256_set1_pd(1 / divisor));
    quotient = _mm256_add_pd(quotient, _mm256_set1_pd(0.5 / divisor - 0.5));
    return _mm256_sub_pd(_mm256_add_pd(quotient, large), large);
}

/* The integer, below 2^52, as 64 bits, and back. */
TG_AVX2_INLINE __m256i whole(__m256d x)
{
    const __m256d large = _mm256_set1_pd(0x1p52);
    return _mm256_castpd_si256(_mm256_xor_pd(_mm256_add_pd(x, large), large));
}

TG_AVX2_INLINE __m256d real(__m256i x)
{
    const __m256d large = _mm256_set1_pd(0x1p52);
    return _mm256_sub_pd(_mm256_or_pd(_mm256_castsi256_pd(x), large), large);
}

/* Numbers of up to eight digits to the digits, the first in the lowest byte of a lane: split into halves of four, two and one
 * digits. Numbers of four digits below 128 are below 2^28, so a quotient by two digits, estimated in binary32, is wrong by one at
 * most, which the remainder shows; likewise for two digits in 16 bits. */
TG_AVX2_INLINE __m256i digits_of(__m256i numbers, uint32_t base)
{
    double square = (double)base * base, fourth = square * square;
    __m256d x = real(numbers), high = divide(x, fourth);
    __m256d low = _mm256_sub_pd(x, _mm256_mul_pd(high, _mm256_set1_pd(fourth)));
    __m256i fours = _mm256_or_si256(whole(low), _mm256_slli_epi64(whole(high), 32));

    const __m256i two = _mm256_set1_epi32((int)(base * base)), most = _mm256_set1_epi32((int)(base * base) - 1);
    __m256 estimate = _mm256_mul_ps(_mm256_cvtepi32_ps(fours), _mm256_set1_ps((float)(1 / square)));
    __m256i quotients = _mm256_cvttps_epi32(estimate);
    __m256i rests = _mm256_sub_epi32(fours, _mm256_mullo_epi32(quotients, two));
    __m256i above = _mm256_cmpgt_epi32(rests, most), below = _mm256_srai_epi32(rests, 31);
    quotients = _mm256_add_epi32(_mm256_sub_epi32(quotients, above), below);
    rests = _mm256_sub_epi32(rests, _mm256_and_si256(above, two));
    rests = _mm256_add_epi32(rests, _mm256_and_si256(below, two));
    __m256i pairs = _mm256_or_si256(rests, _mm256_slli_epi32(quotients, 16));

    const __m256i one = _mm256_set1_epi16((short)base), last = _mm256_set1_epi16((short)(base - 1));
    __m256i upper = _mm256_mulhi_epu16(pairs, _mm256_set1_epi16((short)(65536 / base)));
    __m256i lower = _mm256_sub_epi16(pairs, _mm256_mullo_epi16(upper, one));
    __m256i short_by = _mm256_cmpgt_epi16(lower, last);
    upper = _mm256_sub_epi16(upper, short_by);
    lower = _mm256_sub_epi16(lower, _mm256_and_si256(short_by, one));
    return _mm256_or_si256(lower, _mm256_slli_epi16(upper, 8));
}

/* Stores four groups, and up to 16 - 2 k symbols more. */
TG_AVX2_INLINE void store_groups(uint16_t *symbols, __m256i digits, uint32_t k, __m256i gathered)
{
    __m256i bytes = _mm256_shuffle_epi8(digits, gathered);
    __m256i first = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes));
    _mm256_storeu_si256((__m256i *)(void *)symbols, first);
    __m256i last = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes, 1));
    _mm256_storeu_si256((__m256i *)(void *)(symbols + 2 * k), last);
}

TG_AVX2 static size_t read_groups(uint16_t *symbols, source s, size_t count, tg_digits d, bool *sound)
{
    enum { BEYOND = 16 }; /* symbols that stores may overwrite after the last */
    const places at = places_of(d.bits);
    const __m256i gathered = together(d.symbols);
    uint64_t numbers_n = 1;
    for (uint32_t i = 0; i < d.symbols; i++) {
        numbers_n *= d.base;
    }
    const __m256i most = _mm256_set1_epi64x((long long)numbers_n - 1);
    __m256i bad = _mm256_setzero_si256();
    size_t done = 0, step = GROUPS * (size_t)d.symbols;
    for (; count - done >= step + BEYOND && has(&s, at.reach); done += step, s.bytes += d.bits) {
        __m256i first = load_numbers(s.bytes, &at, 0), last = load_numbers(s.bytes, &at, 1);
        bad = _mm256_or_si256(bad, _mm256_cmpgt_epi64(first, most));
        bad = _mm256_or_si256(bad, _mm256_cmpgt_epi64(last, most));
        store_groups(symbols + done, digits_of(first, d.base), d.symbols, gathered);
        store_groups(symbols + done + step / 2, digits_of(last, d.base), d.symbols, gathered);
    }
    *sound = _mm256_testz_si256(bad, bad) != 0;
    return done;
}

/* ---- five digits of base 3 in a byte, or of base 9 in two -------------------------------------------------------------- */

/* For each of 16 symbols: which bytes hold its number, and a factor after which the low 16 bits are the fraction of
 * number / base^(digit + 1), slightly too large. The fraction times the base is the digit. */
typedef struct fives {
    uint32_t first; /* the byte from which sixteen are loaded */
    __m256i bytes, factors, are_upper;
} fives;

/* For symbols from number `first` on. Of a number of base 9 the last two digits are taken from number / 729. */
TG_AVX2_INLINE fives fives_of(uint32_t base, uint32_t first)
{
    uint8_t bytes[16][2];
    uint16_t factors[16], are_upper[16];
    uint32_t len = base == 3 ? 1 : 2, of_word = base == 3 ? 5 : 3;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t group = (first + i) / 5 - first / 5, digit = (first + i) % 5, divisor = base;
        bytes[i][0] = (uint8_t)(len * group);
        bytes[i][1] = (uint8_t)(len == 1 ? 0x80 : len * group + 1);
        for (uint32_t j = 0; j < digit % of_word; j++) {
            divisor *= base;
        }
        factors[i] = (uint16_t)((65536 + divisor - 1) / divisor);
        are_upper[i] = digit < of_word ? 0 : 0xffff;
    }
    return (fives){len * (first / 5), _mm256_loadu_si256((const __m256i *)(const void *)bytes),
                   _mm256_loadu_si256((const __m256i *)(const void *)factors),
                   _mm256_loadu_si256((const __m256i *)(const void *)are_upper)};
}

TG_AVX2_INLINE __m256i digits_by(const fives *f, const uint8_t *bytes, uint32_t base)
{
    __m256i numbers = _mm256_shuffle_epi8(load_twice(bytes + f->first), f->bytes);
    if (base == 9) {
        /* number / 729 is (number + 1) * 46028 / 2^25, rounded down, because 46028 * 729 is 2^25 - 20. */
        __m256i more = _mm256_add_epi16(numbers, _mm256_set1_epi16(1));
        __m256i upper = _mm256_srli_epi16(_mm256_mulhi_epu16(more, _mm256_set1_epi16((short)46028)), 9);
        __m256i lower = _mm256_sub_epi16(numbers, _mm256_mullo_epi16(upper, _mm256_set1_epi16(729)));
        numbers = _mm256_blendv_epi8(lower, upper, f->are_upper);
    }
    return _mm256_mulhi_epu16(_mm256_mullo_epi16(numbers, f->factors), _mm256_set1_epi16((short)base));
}

/* `base` is a constant. */
TG_AVX2_INLINE size_t read_fives(uint16_t *symbols, source s, size_t count, uint32_t base, bool *sound)
{
    enum { NUMBERS = 16, SYMBOLS = 5 * NUMBERS, VECTORS = SYMBOLS / 16 };
    const size_t len = base == 3 ? NUMBERS : 2 * NUMBERS;
    fives f[VECTORS];
    for (uint32_t v = 0; v < VECTORS; v++) {
        f[v] = fives_of(base, 16 * v);
    }
    const size_t reach = f[VECTORS - 1].first + 16;
    __m256i most = _mm256_setzero_si256();
    size_t done = 0;
    for (; count - done >= SYMBOLS && has(&s, reach); done += SYMBOLS, s.bytes += len) {
        __m128i first = _mm_loadu_si128((const __m128i *)(const void *)s.bytes);
        __m256i numbers = base == 3 ? _mm256_cvtepu8_epi16(first) : load_two(s.bytes, s.bytes + 16);
        most = _mm256_max_epu16(most, numbers);
        for (uint32_t v = 0; v < VECTORS; v++) {
            _mm256_storeu_si256((__m256i *)(void *)(symbols + done + 16 * v), digits_by(&f[v], s.bytes, base));
        }
    }
    const __m256i largest = _mm256_set1_epi16((short)(base == 3 ? 242 : 59048));
    __m256i beyond = _mm256_subs_epu16(most, largest);
    *sound = _mm256_testz_si256(beyond, beyond) != 0;
    return done;
}

/* ---- numbers of up to nine bits ---------------------------------------------------------------------------------------- */

/* Eight numbers fill as many bytes as a number has bits. Each is in two bytes, which are moved to a 16-bit lane; it is shifted to
 * the upper end by a multiplication, then to the lower. */
typedef struct smalls {
    __m256i bytes, factors;
    __m128i down;
} smalls;

TG_AVX2_INLINE smalls smalls_of(uint32_t bits)
{
    uint8_t bytes[8][2];
    uint16_t factors[8];
    for (uint32_t i = 0; i < 8; i++) {
        bytes[i][0] = (uint8_t)(i * bits / 8);
        bytes[i][1] = (uint8_t)(i * bits / 8 + 1);
        factors[i] = (uint16_t)(1u << (16 - bits - i * bits % 8));
    }
    return (smalls){load_twice(bytes[0]), load_twice((const uint8_t *)factors), _mm_cvtsi32_si128((int)(16 - bits))};
}

/* Sixteen numbers. */
TG_AVX2_INLINE __m256i load_smalls(const uint8_t *bytes, uint32_t bits, const smalls *at)
{
    __m256i words = _mm256_shuffle_epi8(load_two(bytes, bytes + bits), at->bytes);
    return _mm256_srl_epi16(_mm256_mullo_epi16(words, at->factors), at->down);
}

/* How numbers of k digits are divided: by the base, and by its square. */
typedef struct divisors {
    __m256i base, by_base, by_square;
} divisors;

TG_AVX2_INLINE divisors divisors_of(uint32_t base)
{
    return (divisors){_mm256_set1_epi16((short)base), _mm256_set1_epi16((short)(65536 / base + 1)),
                      _mm256_set1_epi16((short)(65536 / (base * base) + 1))};
}

TG_AVX2_INLINE void put_twos(uint16_t *symbols, __m256i numbers, const divisors *by)
{
    __m256i upper = _mm256_mulhi_epu16(numbers, by->by_base);
    __m256i lower = _mm256_sub_epi16(numbers, _mm256_mullo_epi16(upper, by->base));
    __m256i first = _mm256_unpacklo_epi16(lower, upper), last = _mm256_unpackhi_epi16(lower, upper);
    _mm256_storeu_si256((__m256i *)(void *)symbols, _mm256_permute2x128_si256(first, last, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)(symbols + 16), _mm256_permute2x128_si256(first, last, 0x31));
}

/* Eight numbers are three vectors of eight symbols, each from two shuffles: of the first two digits, and of the last. */
TG_AVX2_INLINE void put_threes(uint16_t *symbols, __m256i numbers, const divisors *by)
{
    static const uint8_t moves[3][2][16] = {
        {{0, 128, 1, 128, 128, 128, 2, 128, 3, 128, 128, 128, 4, 128, 5, 128},
         {128, 128, 128, 128, 0, 128, 128, 128, 128, 128, 2, 128, 128, 128, 128, 128}},
        {{128, 128, 6, 128, 7, 128, 128, 128, 8, 128, 9, 128, 128, 128, 10, 128},
         {4, 128, 128, 128, 128, 128, 6, 128, 128, 128, 128, 128, 8, 128, 128, 128}},
        {{11, 128, 128, 128, 12, 128, 13, 128, 128, 128, 14, 128, 15, 128, 128, 128},
         {128, 128, 10, 128, 128, 128, 128, 128, 12, 128, 128, 128, 128, 128, 14, 128}}};
    __m256i upper = _mm256_mulhi_epu16(numbers, by->by_base), last = _mm256_mulhi_epu16(numbers, by->by_square);
    __m256i first = _mm256_sub_epi16(numbers, _mm256_mullo_epi16(upper, by->base));
    __m256i second = _mm256_sub_epi16(upper, _mm256_mullo_epi16(last, by->base));
    __m256i both = _mm256_or_si256(first, _mm256_slli_epi16(second, 8));
    for (size_t v = 0; v < 3; v++) {
        __m256i eight = _mm256_or_si256(_mm256_shuffle_epi8(both, load_twice(moves[v][0])),
                                        _mm256_shuffle_epi8(last, load_twice(moves[v][1])));
        _mm_storeu_si128((__m128i *)(void *)(symbols + 8 * v), _mm256_castsi256_si128(eight));
        _mm_storeu_si128((__m128i *)(void *)(symbols + 24 + 8 * v), _mm256_extracti128_si256(eight, 1));
    }
}

/* One to three symbols to a number; `k`, a constant, is how many. */
TG_AVX2_INLINE size_t read_smalls(uint16_t *symbols, source s, size_t count, tg_digits d, uint32_t k, bool *sound)
{
    const smalls at = smalls_of(d.bits);
    const divisors by = divisors_of(d.base);
    uint32_t numbers_n = d.base;
    for (uint32_t i = 1; i < k; i++) {
        numbers_n *= d.base;
    }
    __m256i most = _mm256_setzero_si256();
    size_t done = 0, step = 16 * (size_t)k;
    for (; count - done >= step && has(&s, d.bits + 16); done += step, s.bytes += 2 * d.bits) {
        __m256i numbers = load_smalls(s.bytes, d.bits, &at);
        most = _mm256_max_epu16(most, numbers);
        if (k == 1) {
            _mm256_storeu_si256((__m256i *)(void *)(symbols + done), numbers);
        } else if (k == 2) {
            put_twos(symbols + done, numbers, &by);
        } else {
            put_threes(symbols + done, numbers, &by);
        }
    }
    const __m256i largest = _mm256_set1_epi16((short)(numbers_n - 1));
    __m256i beyond = _mm256_subs_epu16(most, largest);
    *sound = _mm256_testz_si256(beyond, beyond) != 0;
    return done;
}

/* ---- symbols of one bit ------------------------------------------------------------------------------------------------ */

TG_AVX2 static size_t read_signs(uint16_t *symbols, const uint8_t *bytes, size_t count)
{
    const __m256i bit = _mm256_setr_epi16(1, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7, 1 << 8, 1 << 9,
                                          1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, (short)(1 << 15));
    size_t i = 0;
    for (; count - i >= 16; i += 16) {
        uint16_t bits;
        memcpy(&bits, bytes + i / 8, sizeof bits);
        __m256i are_set = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16((short)bits), bit), bit);
        _mm256_storeu_si256((__m256i *)(void *)(symbols + i), _mm256_srli_epi16(are_set, 15));
    }
    return i;
}

/* ---- all --------------------------------------------------------------------------------------------------------------- */

TG_AVX2 bool tg_avx2_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d)
{
    bool sound = true;
    size_t done = 0;
    source s = {bytes, bytes + ((count + d.symbols - 1) / d.symbols * d.bits + 7) / 8};
    if (d.base == 2) {
        done = read_signs(symbols, bytes, count);
    } else if (d.base == 3) {
        done = read_fives(symbols, s, count, 3, &sound);
    } else if (d.base == 9) {
        done = read_fives(symbols, s, count, 9, &sound);
    } else if (d.symbols == 1 && d.bits <= 9) {
        done = read_smalls(symbols, s, count, d, 1, &sound);
    } else if (d.symbols == 2 && d.bits <= 9) {
        done = read_smalls(symbols, s, count, d, 2, &sound);
    } else if (d.symbols == 3 && d.bits <= 9) {
        done = read_smalls(symbols, s, count, d, 3, &sound);
    } else if (d.symbols > 1 && d.base < 128) {
        done = read_groups(symbols, s, count, d, &sound);
    }
    const uint8_t *rest = bytes + done / d.symbols * d.bits / 8;
    return sound && tg_scalar_bits_read(symbols + done, rest, count - done, d);
}
#endif
