/* Symbols at their plain width for NEON: reading and checking. pack/bits.c defines groups, docs/format.md the bytes. Eight groups
 * fill whole bytes. A digit is the quotient by a power of the base: a multiplication with twice the product's upper half. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "kernels/digits.h"
#include "kernels/scalar.h"

enum { GROUPS = 8, LOADED = 16 }; /* bytes that a load reads, needed or not */

/* ---- division ------------------------------------------------------------------------------------------------------------ */

/* Division by a constant d that is no power of two, in signed lanes of `width` bits: x / d is (2 x * factor >> width) >> shift,
 * where 2^shift < d < 2 * 2^shift and factor = 2^(width - 1 + shift) / d, rounded up. The error of the factor is below 1, so the
 * quotient is exact as long as x * d is below 2^(width - 1 + shift), as it is for x < d^2 with d < 2^14 in lanes of 32 bits, or
 * d < 2^7 in lanes of 16. */
typedef struct divisor {
    int32_t value, factor, shift; /* the shift is negative: to the right */
} divisor;

static divisor divisor_of(uint32_t value, uint32_t width)
{
    uint32_t shift = 31 - (uint32_t)__builtin_clz(value);
    uint64_t power = UINT64_C(1) << (width - 1 + shift);
    return (divisor){(int32_t)value, (int32_t)((power + value - 1) / value), -(int32_t)shift};
}

/* The quotients of eight numbers; their remainders stay in *x. */
TG_NEON_INLINE int16x8_t divide_eight(int16x8_t *x, int16x8_t value, int16x8_t factor, int16x8_t shift)
{
    int16x8_t quotient = vshlq_s16(vqdmulhq_s16(*x, factor), shift);
    *x = vmlsq_s16(*x, quotient, value);
    return quotient;
}

/* ---- groups of several symbols ------------------------------------------------------------------------------------------- */

/* Where two numbers of so many bits are in sixteen bytes: the eight bytes that hold each, and the shift of each to the right. */
typedef struct places {
    uint8x16_t bytes;
    int64x2_t shifts;
} places;

/* The four pairs of eight numbers; a pair is loaded from the byte in which its first number begins. */
typedef struct pairs {
    places at[GROUPS / 2];
    size_t starts[GROUPS / 2];
    uint64x2_t mask;
} pairs;

TG_NEON_INLINE pairs pairs_of(uint32_t bits)
{
    pairs p = {.mask = vdupq_n_u64((UINT64_C(1) << bits) - 1)};
    for (uint32_t i = 0; i < GROUPS / 2; i++) {
        uint8_t bytes[16];
        uint32_t first = 2 * i * bits, second = first + bits;
        for (uint32_t b = 0; b < 16; b++) {
            bytes[b] = (uint8_t)(b < 8 ? b : second / 8 - first / 8 + b - 8);
        }
        const int64_t shifts[2] = {-(int64_t)(first % 8), -(int64_t)(second % 8)};
        p.at[i] = (places){vld1q_u8(bytes), vld1q_s64(shifts)};
        p.starts[i] = first / 8;
    }
    return p;
}

/* How many bytes from the start of eight numbers on are loaded. */
static size_t pairs_len(uint32_t bits)
{
    return 6 * bits / 8 + LOADED;
}

TG_NEON_INLINE uint64x2_t load_pair(const uint8_t *bytes, const pairs *p, uint32_t i)
{
    uint64x2_t words = vreinterpretq_u64_u8(vqtbl1q_u8(vld1q_u8(bytes + p->starts[i]), p->at[i].bytes));
    return vandq_u64(vshlq_u64(words, p->at[i].shifts), p->mask);
}

TG_NEON_INLINE bool any_pair(uint64x2_t marks)
{
    return (vgetq_lane_u64(marks, 0) | vgetq_lane_u64(marks, 1)) != 0;
}

/* What splits a number of up to eight digits into halves of four, these into twos, and these into digits. */
typedef struct splitter {
    float64x2_t inverse, middle; /* of the base to the fourth */
    uint32x2_t fourth;
    int32x4_t two, two_factor, two_shift;
    int16x8_t one, one_factor, one_shift;
} splitter;

TG_NEON_INLINE splitter splitter_of(uint32_t base)
{
    const uint32_t fourth = base * base * base * base;
    const divisor two = divisor_of(base * base, 32), one = divisor_of(base, 16);
    return (splitter){.inverse = vdupq_n_f64(1 / (double)fourth),
                      .middle = vdupq_n_f64(0.5 / (double)fourth - 0.5),
                      .fourth = vdup_n_u32(fourth),
                      .two = vdupq_n_s32(two.value),
                      .two_factor = vdupq_n_s32(two.factor),
                      .two_shift = vdupq_n_s32(two.shift),
                      .one = vdupq_n_s16((int16_t)one.value),
                      .one_factor = vdupq_n_s16((int16_t)one.factor),
                      .one_shift = vdupq_n_s16((int16_t)one.shift)};
}

/* Two numbers below 2^48 to eight digits each. The quotient by the fourth power is the integer nearest to
 * (x + 0.5) / fourth - 0.5, and x is exact in binary64. */
TG_NEON_INLINE int16x8x2_t digits_of(uint64x2_t numbers, const splitter *s)
{
    float64x2_t nearly = vaddq_f64(vmulq_f64(vcvtq_f64_u64(numbers), s->inverse), s->middle);
    uint64x2_t upper = vcvtnq_u64_f64(nearly);
    uint64x2_t lower = vmlsl_u32(numbers, vmovn_u64(upper), s->fourth);
    int32x4_t rests = vreinterpretq_s32_u64(vsliq_n_u64(lower, upper, 32));
    int32x4_t quotients = vshlq_s32(vqdmulhq_s32(rests, s->two_factor), s->two_shift);
    rests = vmlsq_s32(rests, quotients, s->two);
    int16x8_t twos = vreinterpretq_s16_s32(vsliq_n_s32(rests, quotients, 16));
    int16x8_t odd = divide_eight(&twos, s->one, s->one_factor, s->one_shift);
    return vzipq_s16(twos, odd);
}

/* Stores eight digits for each group of k, in sequence: the next group overwrites those that are too many. */
static size_t read_groups(uint16_t *symbols, const uint8_t *bytes, size_t len, size_t count, tg_digits d, bool *sound)
{
    const pairs p = pairs_of(d.bits);
    const splitter s = splitter_of(d.base);
    const size_t k = d.symbols, most_len = pairs_len(d.bits);
    uint64_t numbers_n = 1;
    for (size_t i = 0; i < k; i++) {
        numbers_n *= d.base;
    }
    const uint64x2_t limit = vdupq_n_u64(numbers_n);
    uint64x2_t bad = vdupq_n_u64(0);
    size_t done = 0;
    for (; count - done >= (GROUPS - 1) * k + 8 && len >= most_len;
         done += GROUPS * k, bytes += d.bits, len -= d.bits) {
        uint16_t *out = symbols + done;
        for (uint32_t i = 0; i < GROUPS / 2; i++, out += 2 * k) {
            uint64x2_t numbers = load_pair(bytes, &p, i);
            bad = vorrq_u64(bad, vcgeq_u64(numbers, limit));
            int16x8x2_t digits = digits_of(numbers, &s);
            vst1q_u16(out, vreinterpretq_u16_s16(digits.val[0]));
            vst1q_u16(out + k, vreinterpretq_u16_s16(digits.val[1]));
        }
    }
    *sound = !any_pair(bad);
    return done;
}

/* ---- numbers of up to nine bits ------------------------------------------------------------------------------------------ */

enum { SHORT = 9 }; /* bits, the most that two bytes hold wherever a number begins */

/* Where eight such numbers are in sixteen bytes: two bytes hold each. */
typedef struct shorts {
    uint8x16_t bytes;
    int16x8_t shifts;
    uint16x8_t mask;
} shorts;

TG_NEON_INLINE shorts shorts_of(uint32_t bits)
{
    uint8_t bytes[16];
    int16_t shifts[8];
    for (uint32_t i = 0; i < 8; i++) {
        bytes[2 * i] = (uint8_t)(i * bits / 8);
        bytes[2 * i + 1] = (uint8_t)(i * bits / 8 + 1);
        shifts[i] = (int16_t)(0 - i * bits % 8);
    }
    return (shorts){vld1q_u8(bytes), vld1q_s16(shifts), vdupq_n_u16((uint16_t)((1u << bits) - 1))};
}

TG_NEON_INLINE uint16x8_t load_shorts(const uint8_t *bytes, const shorts *s)
{
    uint16x8_t words = vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(bytes), s->bytes));
    return vandq_u16(vshlq_u16(words, s->shifts), s->mask);
}

/* Groups of one symbol; `sound` if all are below the base. */
static size_t read_singles(uint16_t *symbols, const uint8_t *bytes, size_t len, size_t count, tg_digits d, bool *sound)
{
    const shorts s = shorts_of(d.bits);
    const size_t bits = d.bits;
    uint16x8_t most = vdupq_n_u16(0);
    size_t done = 0;
    for (; count - done >= 32 && len >= 3 * bits + LOADED; done += 32, bytes += 4 * bits, len -= 4 * bits) {
        for (size_t i = 0; i < 4; i++) {
            uint16x8_t eight = load_shorts(bytes + i * bits, &s);
            most = vmaxq_u16(most, eight);
            vst1q_u16(symbols + done + 8 * i, eight);
        }
    }
    *sound = vmaxvq_u16(most) < d.base;
    return done;
}

/* Three digits of base 5 in seven bits. */
static size_t read_base_5(uint16_t *symbols, const uint8_t *bytes, size_t len, size_t count, bool *sound)
{
    const divisor five = divisor_of(5, 16);
    const int16x8_t value = vdupq_n_s16(5), factor = vdupq_n_s16((int16_t)five.factor),
                    shift = vdupq_n_s16((int16_t)five.shift);
    const shorts s = shorts_of(7);
    uint16x8_t most = vdupq_n_u16(0);
    size_t done = 0;
    for (; count - done >= 48 && len >= 7 + LOADED; done += 48, bytes += 14, len -= 14) {
        for (size_t i = 0; i < 2; i++) {
            uint16x8_t numbers = load_shorts(bytes + 7 * i, &s);
            most = vmaxq_u16(most, numbers);
            int16x8_t first = vreinterpretq_s16_u16(numbers), second = divide_eight(&first, value, factor, shift);
            int16x8_t third = divide_eight(&second, value, factor, shift);
            const uint16x8x3_t digits = {
                {vreinterpretq_u16_s16(first), vreinterpretq_u16_s16(second), vreinterpretq_u16_s16(third)}};
            vst3q_u16(symbols + done + 24 * i, digits);
        }
    }
    *sound = vmaxvq_u16(most) < 125;
    return done;
}

/* ---- five digits of base 3 in a byte, or of base 9 in two ---------------------------------------------------------------- */

/* For each of eight symbols: the bytes that hold its number, and a factor after which the low 15 bits are the fraction of
 * number / base^(digit + 1), slightly too large. The fraction times the base is the digit. */
typedef struct fives {
    uint8x16_t bytes;
    uint16x8_t factors;
} fives;

/* For symbols from number `first` on. A number of base 9 is in two words: three digits in one, two in the other. */
TG_NEON_INLINE fives fives_of(uint32_t base, uint32_t first)
{
    uint8_t bytes[16];
    uint16_t factors[8];
    uint32_t of_word = base == 3 ? 5 : 3;
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t group = (first + i) / 5, digit = (first + i) % 5, power = base;
        uint32_t word = 2 * group + digit / of_word; /* of base 9 */
        bytes[2 * i] = (uint8_t)(base == 3 ? group : 2 * word);
        bytes[2 * i + 1] = (uint8_t)(base == 3 ? 0xff : 2 * word + 1); /* 0xff: a zero */
        for (uint32_t j = 0; j < digit % of_word; j++) {
            power *= base;
        }
        factors[i] = (uint16_t)((32768 + power - 1) / power);
    }
    return (fives){vld1q_u8(bytes), vld1q_u16(factors)};
}

TG_NEON_INLINE uint16x8_t digits_by(uint16x8_t numbers, uint16x8_t factors, int16x8_t base)
{
    uint16x8_t fractions = vandq_u16(vmulq_u16(numbers, factors), vdupq_n_u16(0x7fff));
    return vreinterpretq_u16_s16(vqdmulhq_s16(vreinterpretq_s16_u16(fractions), base));
}

static size_t read_base_3(uint16_t *symbols, const uint8_t *bytes, size_t count, bool *sound)
{
    enum { BYTES = 16, SYMBOLS = 5 * BYTES, VECTORS = SYMBOLS / 8 };
    fives f[VECTORS];
    for (uint32_t v = 0; v < VECTORS; v++) {
        f[v] = fives_of(3, 8 * v);
    }
    const int16x8_t base = vdupq_n_s16(3);
    uint8x16_t most = vdupq_n_u8(0);
    size_t done = 0;
    for (; count - done >= SYMBOLS; done += SYMBOLS, bytes += BYTES) {
        uint8x16_t numbers = vld1q_u8(bytes);
        most = vmaxq_u8(most, numbers);
        for (uint32_t v = 0; v < VECTORS; v++) { /* factors repeat after 40 symbols */
            uint16x8_t spread = vreinterpretq_u16_u8(vqtbl1q_u8(numbers, f[v].bytes));
            vst1q_u16(symbols + done + 8 * v, digits_by(spread, f[v % 5].factors, base));
        }
    }
    *sound = vmaxvq_u8(most) < 243;
    return done;
}

static size_t read_base_9(uint16_t *symbols, const uint8_t *bytes, size_t count, bool *sound)
{
    enum { NUMBERS = 8, SYMBOLS = 5 * NUMBERS, VECTORS = SYMBOLS / 8 };
    fives f[VECTORS];
    for (uint32_t v = 0; v < VECTORS; v++) {
        f[v] = fives_of(9, 8 * v);
    }
    const int16x8_t base = vdupq_n_s16(9);
    const uint16x8_t times = vdupq_n_u16(46028), third = vdupq_n_u16(729);
    uint16x8_t most = vdupq_n_u16(0);
    size_t done = 0;
    for (; count - done >= SYMBOLS; done += SYMBOLS, bytes += 2 * NUMBERS) {
        uint16x8_t numbers = vreinterpretq_u16_u8(vld1q_u8(bytes));
        most = vmaxq_u16(most, numbers);
        /* number / 729 is (number + 1) * 46028 / 2^25, rounded down, because 46028 * 729 is 2^25 - 20. */
        uint16x8_t next = vaddq_u16(numbers, vdupq_n_u16(1));
        uint32x4_t low = vmull_u16(vget_low_u16(next), vget_low_u16(times)), high = vmull_high_u16(next, times);
        uint16x8_t upper = vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
        upper = vshrq_n_u16(upper, 9);
        uint16x8x2_t words = vzipq_u16(vmlsq_u16(numbers, upper, third), upper);
        const uint8x16x2_t all = {{vreinterpretq_u8_u16(words.val[0]), vreinterpretq_u8_u16(words.val[1])}};
        for (uint32_t v = 0; v < VECTORS; v++) {
            uint16x8_t spread = vreinterpretq_u16_u8(vqtbl2q_u8(all, f[v].bytes));
            vst1q_u16(symbols + done + 8 * v, digits_by(spread, f[v].factors, base));
        }
    }
    *sound = vmaxvq_u16(most) < 59049;
    return done;
}

/* ---- symbols of one bit -------------------------------------------------------------------------------------------------- */

static size_t read_signs(uint16_t *symbols, const uint8_t *bytes, size_t count)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    static const uint8_t first[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    const uint8x16_t bit_of = vld1q_u8(bits), bytes_of = vld1q_u8(first);
    size_t done = 0;
    for (; count - done >= 64; done += 64, bytes += 8) {
        uint8x16_t eight = vcombine_u8(vld1_u8(bytes), vdup_n_u8(0));
        for (unsigned i = 0; i < 4; i++) {
            uint8x16_t spread = vqtbl1q_u8(eight, vaddq_u8(bytes_of, vdupq_n_u8((uint8_t)(2 * i))));
            uint8x16_t ones = vshrq_n_u8(vtstq_u8(spread, bit_of), 7);
            vst1q_u16(symbols + done + 16 * i, vmovl_u8(vget_low_u8(ones)));
            vst1q_u16(symbols + done + 16 * i + 8, vmovl_high_u8(ones));
        }
    }
    return done;
}

/* ---- all ----------------------------------------------------------------------------------------------------------------- */

bool tg_neon_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d)
{
    const size_t len = ((count + d.symbols - 1) / d.symbols * d.bits + 7) / 8;
    bool sound = true;
    size_t done = 0;
    if (d.base == 2) {
        done = read_signs(symbols, bytes, count);
    } else if (d.base == 3) {
        done = read_base_3(symbols, bytes, count, &sound);
    } else if (d.base == 5) {
        done = read_base_5(symbols, bytes, len, count, &sound);
    } else if (d.base == 9) {
        done = read_base_9(symbols, bytes, count, &sound);
    } else if (d.symbols == 1 && d.bits <= SHORT) {
        done = read_singles(symbols, bytes, len, count, d, &sound);
    } else if (d.symbols > 1 && d.base < 128) {
        done = read_groups(symbols, bytes, len, count, d, &sound);
    }
    const uint8_t *rest = bytes + done / d.symbols * d.bits / 8;
    return sound && tg_scalar_bits_read(symbols + done, rest, count - done, d);
}

bool tg_neon_numbers_below(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit)
{
    size_t len = n / 8 * bits;
    bool sound = true;
    if (bits <= SHORT) {
        const shorts s = shorts_of(bits);
        uint16x8_t most = vdupq_n_u16(0);
        for (; len >= LOADED; bytes += bits, len -= bits) {
            most = vmaxq_u16(most, load_shorts(bytes, &s));
        }
        sound = vmaxvq_u16(most) < limit;
    } else {
        const pairs p = pairs_of(bits);
        const uint64x2_t bound = vdupq_n_u64(limit);
        uint64x2_t bad = vdupq_n_u64(0);
        for (; len >= pairs_len(bits); bytes += bits, len -= bits) {
            for (uint32_t i = 0; i < GROUPS / 2; i++) {
                bad = vorrq_u64(bad, vcgeq_u64(load_pair(bytes, &p, i), bound));
            }
        }
        sound = !any_pair(bad);
    }
    return sound && tg_scalar_numbers_below(bytes, len / bits * 8, bits, limit);
}
#endif
