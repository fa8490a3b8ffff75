/* The frequency table of a rANS stream: made from counts, written and read. */
#include "pack/rans_table.h"
#include "base/bytes.h"

/* The symbol whose frequency can change by 1 at the least cost, down if `loses`, else up. The cost of one unit is about the
 * symbol's count over its frequency. */
static uint32_t cheapest(const tg_rans_table *t, const uint32_t *counts, uint32_t base, bool loses)
{
    uint32_t best = base;
    for (uint32_t s = 0; s < base; s++) {
        uint32_t f = t->frequency[s];
        if (counts[s] == 0 || (loses && f == 1)) {
            continue;
        }
        if (best < base) {
            uint64_t here = (uint64_t)counts[s] * (t->frequency[best] - (loses ? 1 : 0));
            uint64_t there = (uint64_t)counts[best] * (f - (loses ? 1 : 0));
            if (loses ? here >= there : here <= there) {
                continue;
            }
        }
        best = s;
    }
    return best;
}

void tg_rans_normalise(tg_rans_table *t, const uint32_t *counts, uint64_t count, uint32_t base)
{
    uint32_t total = 1u << t->bits, sum = 0;
    /* In binary64, in which loops of divisions vectorise. The numerator is an integer below 2^33, and a quotient below 2^15 by at
     * most 2^18 is too far from the next integer to be rounded to it, so that truncation gives the quotient of integers. */
    const double whole = (double)(int32_t)total, half = (double)(int32_t)(count / 2), all = (double)(int32_t)count;
    for (uint32_t s = 0; s < base; s++) {
        uint32_t f = (uint32_t)(int32_t)(((double)(int32_t)counts[s] * whole + half) / all);
        f = f == 0 && counts[s] > 0 ? 1 : f;
        t->frequency[s] = f;
        sum += f;
    }
    for (; sum > total; sum--) {
        t->frequency[cheapest(t, counts, base, true)]--;
    }
    for (; sum < total; sum++) {
        t->frequency[cheapest(t, counts, base, false)]++;
    }
}

/* 256 times the binary logarithm, rounded down. In integers, so that every machine gets the same result; without branches, which
 * nothing would predict. */
static uint32_t log_of(uint32_t number)
{
    uint32_t whole = 31 - (uint32_t)__builtin_clz(number), log = whole;
    uint64_t x = ((uint64_t)number << 31) >> whole; /* from 2^31 up to 2^32 */
    for (int bit = 0; bit < 8; bit++) {
        x = (x * x) >> 31;
        uint32_t is_set = (uint32_t)(x >> 32);
        log = log << 1 | is_set;
        x >>= is_set;
    }
    return log;
}

uint64_t tg_rans_cost(const tg_rans_table *t, const uint32_t *counts, uint32_t base)
{
    uint64_t bits = 0;
    for (uint32_t s = 0; s < base; s++) {
        bits += counts[s] == 0 ? 0 : (uint64_t)counts[s] * ((t->bits << 8) - log_of(t->frequency[s]));
    }
    return bits >> 11;
}

/* A frequency f is stored as the number f + 1, which has b + 1 bits: b ones, a zero, then its b low bits. The last symbol's
 * frequency is not stored: it is what the others leave of 2^bits. */
static uint32_t low_bits_of(uint32_t frequency)
{
    return 31 - (uint32_t)__builtin_clz(frequency + 1);
}

size_t tg_rans_table_len(const tg_rans_table *t, uint32_t base)
{
    size_t bits = 0;
    for (uint32_t s = 0; s + 1 < base; s++) {
        bits += 2 * (size_t)low_bits_of(t->frequency[s]) + 1;
    }
    return (bits + 7) / 8;
}

void tg_rans_table_write(uint8_t *out, const tg_rans_table *t, uint32_t base)
{
    uint64_t held = 0;
    uint32_t held_n = 0;
    for (uint32_t s = 0; s + 1 < base; s++) {
        uint32_t number = t->frequency[s] + 1, b = low_bits_of(t->frequency[s]);
        held |= (((uint64_t)1 << b) - 1) << held_n;
        held_n += b + 1;
        held |= (uint64_t)(number & ((1u << b) - 1)) << held_n;
        for (held_n += b; held_n >= 8; held_n -= 8, held >>= 8) {
            *out++ = (uint8_t)held;
        }
    }
    if (held_n > 0) {
        *out = (uint8_t)held;
    }
}

/* At least 57 bits from bit number `bit` on, with zeros after the last of the `len` bytes. */
static uint64_t bits_from(const uint8_t *bytes, size_t len, uint64_t bit)
{
    size_t at = (size_t)(bit / 8), left = len - at;
    uint64_t word = 0;
    if (left >= sizeof word) {
        word = tg_get64(bytes + at);
    } else {
        for (size_t i = 0; i < left; i++) {
            word |= (uint64_t)bytes[at + i] << 8 * i;
        }
    }
    return word >> bit % 8;
}

size_t tg_rans_table_read(tg_rans_table *t, const uint8_t *bytes, size_t len, uint32_t base)
{
    uint64_t bit = 0, bit_n = (uint64_t)len * 8;
    uint64_t total = UINT64_C(1) << t->bits, sum = 0;
    for (uint32_t s = 0; s + 1 < base; s++) {
        uint64_t word = bits_from(bytes, len, bit);
        uint32_t b = (uint32_t)__builtin_ctzll(~word | UINT64_C(1) << (TG_RANS_BITS_MAX + 1));
        if (b > TG_RANS_BITS_MAX || bit_n - bit < 1 + 2 * (uint64_t)b) {
            return 0;
        }
        uint32_t number = 1u << b | (uint32_t)(word >> (b + 1) & ((1u << b) - 1));
        bit += 1 + 2 * (uint64_t)b;
        t->frequency[s] = number - 1;
        sum += number - 1;
    }
    for (; bit % 8 != 0; bit++) {
        if (bytes[bit / 8] >> bit % 8 & 1) {
            return 0;
        }
    }
    t->frequency[base - 1] = (uint32_t)(total - sum);
    return sum <= total ? (size_t)(bit / 8) : 0;
}
