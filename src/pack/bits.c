/* Symbols at their plain width, in groups that waste few bits.
 *
 * A group of k symbols is one number in base `base`, the first symbol lowest, in the fewest bits that hold any such number.
 * k is at most 8; it is the smallest k that takes the fewest bits a symbol. So five symbols of base 3 take 8 bits, three of
 * base 5 take 7, five of base 9 take 16, and a power of two takes its own bits. Bits fill each byte from the lowest. If the
 * last group is not full, the missing symbols are zeros. */
#include "pack/pack.h"

#include "base/bytes.h"
#include "kernels/kernels.h"

#include <string.h>

static uint32_t bits_for(uint64_t numbers)
{
    return numbers <= 1 ? 0 : 64 - (uint32_t)__builtin_clzll(numbers - 1);
}

static tg_digits group_of(uint32_t base)
{
    tg_digits best = {base, 1, bits_for(base)};
    uint64_t numbers = base;
    for (uint32_t k = 2; k <= 8 && numbers <= (UINT64_C(1) << 48) / base; k++) {
        numbers *= base;
        uint32_t bits = bits_for(numbers);
        if (bits * best.symbols < best.bits * k) {
            best = (tg_digits){base, k, bits};
        }
    }
    return best;
}

uint64_t tg_bits_len(uint64_t count, uint32_t base)
{
    tg_digits g = group_of(base);
    return ((count + g.symbols - 1) / g.symbols * g.bits + 7) / 8;
}

uint32_t tg_bits_align(uint32_t base)
{
    return 8 * group_of(base).symbols;
}

/* The loops are written once and inlined for every common base, because dividing by a constant is a multiplication. */
static inline void write_in(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits g)
{
    uint64_t held = 0;
    uint32_t held_n = 0;
    for (size_t at = 0; at < count; at += g.symbols) {
        uint64_t number = 0;
        for (size_t i = count - at < g.symbols ? count - at : g.symbols; i-- > 0;) {
            number = number * g.base + symbols[at + i];
        }
        held |= number << held_n; /* at most 48 + 7 bits */
        held_n += g.bits;
        for (; held_n >= 8; held_n -= 8, held >>= 8) {
            *out++ = (uint8_t)held;
        }
    }
    if (held_n > 0) {
        *out = (uint8_t)held;
    }
}

static inline bool read_in(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits g)
{
    uint64_t held = 0;
    uint32_t held_n = 0;
    for (size_t at = 0; at < count; at += g.symbols) {
        for (; held_n < g.bits; held_n += 8) {
            held |= (uint64_t)*bytes++ << held_n;
        }
        uint64_t number = held & ((UINT64_C(1) << g.bits) - 1);
        held >>= g.bits;
        held_n -= g.bits;
        size_t n = count - at < g.symbols ? count - at : g.symbols;
        for (size_t i = 0; i < n; i++) {
            symbols[at + i] = (uint16_t)(number % g.base);
            number /= g.base;
        }
        if (number != 0) { /* not a valid group, or symbols after the last */
            return false;
        }
    }
    return held == 0;
}

/* A lookup table for base 3: the five symbols of each byte. A row has three more zeros, so that it is copied as a whole. */
#define FIVE(b)                                                   \
    {                                                             \
        (b) % 3, (b) / 3 % 3, (b) / 9 % 3, (b) / 27 % 3, (b) / 81 \
    }
#define FIVES_3(b) FIVE(b), FIVE((b) + 1), FIVE((b) + 2)
#define FIVES_9(b) FIVES_3(b), FIVES_3((b) + 3), FIVES_3((b) + 6)
#define FIVES_27(b) FIVES_9(b), FIVES_9((b) + 9), FIVES_9((b) + 18)
#define FIVES_81(b) FIVES_27(b), FIVES_27((b) + 27), FIVES_27((b) + 54)
static const uint16_t fives[243][8] = {FIVES_81(0), FIVES_81(81), FIVES_81(162)};

/* Reads base 3 as long as a whole row fits into `symbols`; returns the number of symbols. */
static size_t read_fives(uint16_t *symbols, const uint8_t *bytes, size_t count, bool *valid)
{
    size_t done = 0;
    uint8_t most = 0;
    for (; count - done >= 8; done += 5) {
        uint8_t byte = bytes[done / 5];
        most = byte > most ? byte : most;
        memcpy(symbols + done, fives[byte < 243 ? byte : 0], sizeof *fives);
    }
    *valid = most < 243;
    return done;
}

size_t tg_bits_write_some(uint8_t *out, const uint16_t *symbols, size_t count, uint32_t base)
{
    return tg_kernels_best()->bits_write(out, symbols, count, group_of(base));
}

void tg_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, uint32_t base)
{
    size_t done = tg_kernels_best()->bits_write(out, symbols, count, group_of(base));
    out += tg_bits_len(done, base);
    symbols += done;
    count -= done;
    switch (base) {
    case 2: write_in(out, symbols, count, (tg_digits){2, 1, 1}); return;
    case 3: write_in(out, symbols, count, (tg_digits){3, 5, 8}); return;
    case 5: write_in(out, symbols, count, (tg_digits){5, 3, 7}); return;
    case 9: write_in(out, symbols, count, (tg_digits){9, 5, 16}); return;
    case 512: write_in(out, symbols, count, (tg_digits){512, 1, 9}); return;
    default: write_in(out, symbols, count, group_of(base));
    }
}

bool tg_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, uint32_t base)
{
    bool valid = true;
    size_t done = tg_kernels_best()->bits_read(symbols, bytes, count, group_of(base), &valid);
    if (done == 0 && base == 3) {
        done = read_fives(symbols, bytes, count, &valid);
    }
    bytes += tg_bits_len(done, base);
    symbols += done;
    count -= done;
    if (!valid) {
        return false;
    }
    switch (base) {
    case 2: return read_in(symbols, bytes, count, (tg_digits){2, 1, 1});
    case 3: return read_in(symbols, bytes, count, (tg_digits){3, 5, 8});
    case 5: return read_in(symbols, bytes, count, (tg_digits){5, 3, 7});
    case 9: return read_in(symbols, bytes, count, (tg_digits){9, 5, 16});
    case 512: return read_in(symbols, bytes, count, (tg_digits){512, 1, 9});
    default: return read_in(symbols, bytes, count, group_of(base));
    }
}

/* ---- checking ---------------------------------------------------------------------------------------------------------- */

/* Whether n numbers of one byte are all below a limit. */
static bool are_bytes_below(const uint8_t *bytes, size_t n, uint32_t limit)
{
    uint8_t most = 0;
    for (size_t i = 0; i < n; i++) {
        most = bytes[i] > most ? bytes[i] : most;
    }
    return most < limit;
}

/* The same for numbers of two bytes. */
static bool are_halves_below(const uint8_t *bytes, size_t n, uint32_t limit)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= tg_get16(bytes + 2 * i) >= limit ? 1 : 0;
    }
    return bad == 0;
}

enum { LAST = 16 }; /* groups at the end that are decoded, to check that unused bits and symbols are 0 */

bool tg_bits_check(const uint8_t *bytes, size_t count, uint32_t base)
{
    tg_digits g = group_of(base);
    uint64_t limit = 1;
    for (uint32_t i = 0; i < g.symbols; i++) {
        limit *= base;
    }
    size_t groups = count / g.symbols,
           some = groups < LAST ? 0 : (groups - LAST) / 8 * 8; /* a multiple of 8 groups: whole bytes */
    bool valid = true;
    if (limit >> g.bits != 0) { /* every number of that many bits is valid */
        valid = true;
    } else if (g.bits == 8) {
        valid = are_bytes_below(bytes, some, (uint32_t)limit);
    } else if (g.bits == 16) {
        valid = are_halves_below(bytes, some, (uint32_t)limit);
    } else {
        valid = tg_kernels_best()->numbers_below(bytes, some, g.bits, limit);
    }
    uint16_t symbols[(LAST + 9) * 8];
    size_t done = some * g.symbols;
    return valid && tg_bits_read(symbols, bytes + tg_bits_len(done, base), count - done, base);
}

const tg_symbol_part tg_symbol_bits = {
    .part = {.name = "bits", .summary = "symbols at their plain width, in groups where that is shorter"},
};
