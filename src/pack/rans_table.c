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
    t->first = 0;
    t->last = base - 1;
    while (t->frequency[t->first] == 0) {
        t->first++;
    }
    while (t->frequency[t->last] == 0) {
        t->last--;
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

/* A frequency f is stored as the number f + 1, which has b + 1 bits: b in four bits, for all symbols from the first to the one
 * before the last that occurs; then the b low bits of all. So every symbol is found by a sum over those before it. The last
 * symbol's frequency is not stored: it is what the others leave of 2^bits. */
static uint32_t low_bits_of(uint32_t frequency)
{
    return 31 - (uint32_t)__builtin_clz(frequency + 1);
}

/* Bytes of the first and the last symbol. */
static size_t ends_len(uint32_t base)
{
    return base <= 256 ? 2 : 4;
}

size_t tg_rans_table_len(const tg_rans_table *t, uint32_t base)
{
    size_t bits = 0;
    for (uint32_t s = t->first; s < t->last; s++) {
        bits += low_bits_of(t->frequency[s]);
    }
    return ends_len(base) + (t->last - t->first + 1) / 2 + (bits + 7) / 8;
}

void tg_rans_table_write(uint8_t *out, const tg_rans_table *t, uint32_t base)
{
    uint32_t n = t->last - t->first, held = 0, held_n = 0;
    if (base <= 256) {
        out[0] = (uint8_t)t->first;
        out[1] = (uint8_t)t->last;
    } else {
        tg_put16(out, (uint16_t)t->first);
        tg_put16(out + 2, (uint16_t)t->last);
    }
    const uint32_t *frequency = t->frequency + t->first;
    out += ends_len(base);
    for (uint32_t i = 0; i < n; i += 2) {
        *out++ = (uint8_t)(low_bits_of(frequency[i]) | (i + 1 < n ? low_bits_of(frequency[i + 1]) << 4 : 0));
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = low_bits_of(frequency[i]);
        held |= ((frequency[i] + 1) & ((1u << b) - 1)) << held_n;
        for (held_n += b; held_n >= 8; held_n -= 8, held >>= 8) {
            *out++ = (uint8_t)held;
        }
    }
    if (held_n > 0) {
        *out = (uint8_t)held;
    }
}

size_t tg_rans_table_read(tg_rans_table *t, const uint8_t *bytes, size_t len, uint32_t base)
{
    const uint8_t *end = bytes + len, *at = bytes + ends_len(base);
    if (len < ends_len(base)) {
        return 0;
    }
    t->first = base <= 256 ? bytes[0] : tg_get16(bytes);
    t->last = base <= 256 ? bytes[1] : tg_get16(bytes + 2);
    if (t->first > t->last || t->last >= base) {
        return 0;
    }
    for (uint32_t s = 0; s < base; s++) {
        t->frequency[s] = 0;
    }
    uint32_t n = t->last - t->first, held = 0, held_n = 0;
    uint64_t total = UINT64_C(1) << t->bits, sum = 0;
    const uint8_t *halves = at;
    if ((size_t)(end - at) < (n + 1) / 2 || (n % 2 == 1 && halves[n / 2] >> 4 != 0)) {
        return 0;
    }
    at += (n + 1) / 2;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = halves[i / 2] >> 4 * (i % 2) & 15;
        for (; held_n < b && at < end; held_n += 8) {
            held |= (uint32_t)*at++ << held_n;
        }
        if (b > TG_RANS_BITS_MAX || held_n < b) {
            return 0;
        }
        t->frequency[t->first + i] = (1u << b | (held & ((1u << b) - 1))) - 1;
        sum += t->frequency[t->first + i];
        held >>= b;
        held_n -= b;
    }
    if (held != 0 || sum >= total) {
        return 0;
    }
    t->frequency[t->last] = (uint32_t)(total - sum);
    return t->frequency[t->first] > 0 ? (size_t)(at - bytes) : 0;
}
