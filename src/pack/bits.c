/* Symbols at their plain width: as many together as make best use of whole bits.
 *
 * A group of k symbols is one number in base `base`, the first symbol lowest, in as few bits as hold any such number;
 * k, up to 8, is what takes the fewest bits a symbol, the smallest such k. So five of base 3 take a byte, three of base 5
 * take 7 bits, five of base 9 take 16, and a power of two takes its own bits. Bits fill each byte from the lowest; a last
 * group that is not full has zeros for what it lacks. */
#include "pack/pack.h"

#include "base/bytes.h"
#include "kernels/digits.h"
#include "kernels/kernels.h"

static uint32_t bits_for(uint64_t numbers)
{
    return numbers <= 1 ? 0 : 64 - (uint32_t)__builtin_clzll(numbers - 1);
}

/* Groups of the bases below 66, {symbols, bits} each, as find_group finds them, which would take longer than to pack a short
 * chunk. Powers of two need none. */
static const uint8_t small_groups[][2] = {
    {0, 0},  {0, 0},  {0, 0},  {5, 8},  {0, 0},  {3, 7},  {5, 13}, {6, 17}, {0, 0},  {5, 16}, {3, 10},
    {2, 7},  {5, 18}, {7, 26}, {6, 23}, {1, 4},  {0, 0},  {8, 33}, {5, 21}, {4, 17}, {3, 13}, {5, 22},
    {2, 9},  {7, 32}, {5, 23}, {3, 14}, {7, 33}, {5, 24}, {6, 29}, {8, 39}, {1, 5},  {1, 5},  {0, 0},
    {8, 41}, {8, 41}, {7, 36}, {5, 26}, {4, 21}, {4, 21}, {7, 37}, {3, 16}, {8, 43}, {5, 27}, {7, 38},
    {2, 11}, {2, 11}, {7, 39}, {7, 39}, {5, 28}, {8, 45}, {3, 17}, {7, 40}, {7, 40}, {4, 23}, {5, 29},
    {5, 29}, {6, 35}, {6, 35}, {8, 47}, {1, 6},  {1, 6},  {1, 6},  {1, 6},  {1, 6},  {0, 0},  {7, 43},
};

static tg_digits find_group(uint32_t base)
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

static inline tg_digits group_of(uint32_t base)
{
    if ((base & (base - 1)) == 0) {
        return (tg_digits){base, 1, bits_for(base)};
    }
    if (base < sizeof small_groups / sizeof *small_groups) {
        return (tg_digits){base, small_groups[base][0], small_groups[base][1]};
    }
    return find_group(base);
}

tg_digits tg_bits_group(uint32_t base)
{
    return group_of(base);
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

void tg_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, uint32_t base)
{
    tg_kernels_best()->coders.bits_write(out, symbols, count, group_of(base));
}

size_t tg_bits_write_some(uint8_t *out, const uint16_t *symbols, size_t count, uint32_t base)
{
    tg_digits g = group_of(base);
    size_t whole = count - count % (8 * (size_t)g.symbols);
    tg_kernels_best()->coders.bits_write(out, symbols, whole, g);
    return whole;
}

bool tg_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, uint32_t base)
{
    return tg_kernels_best()->coders.bits_read(symbols, bytes, count, group_of(base));
}

/* ---- checking ---------------------------------------------------------------------------------------------------------- */

/* Whether `n` numbers of whole bytes are below a limit. */
static bool are_bytes_below(const uint8_t *bytes, size_t n, uint32_t limit)
{
    uint8_t most = 0;
    for (size_t i = 0; i < n; i++) {
        most = bytes[i] > most ? bytes[i] : most;
    }
    return most < limit;
}

static bool are_halves_below(const uint8_t *bytes, size_t n, uint32_t limit)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= tg_get16(bytes + 2 * i) >= limit ? 1 : 0;
    }
    return bad == 0;
}

/* Whether `count` symbols, fewer than eight groups and one more, are sound, and only zeros follow them in their last byte: the
 * number of each group tells. */
static bool is_end_sound(const uint8_t *bytes, size_t count, tg_digits g, uint64_t limit)
{
    uint64_t held = 0, bad = 0;
    uint32_t held_n = 0;
    for (; count > 0; count -= count < g.symbols ? count : g.symbols) {
        for (; held_n < g.bits; held_n += 8) {
            held |= (uint64_t)*bytes++ << held_n;
        }
        for (size_t i = count; i < g.symbols; i++) {
            limit /= g.base; /* symbols that the last group lacks are zeros */
        }
        bad |= (held & ((UINT64_C(1) << g.bits) - 1)) >= limit ? 1 : 0;
        held >>= g.bits;
        held_n -= g.bits;
    }
    return bad == 0 && held == 0;
}

bool tg_bits_check(const uint8_t *bytes, size_t count, uint32_t base)
{
    tg_digits g = group_of(base);
    uint64_t limit = 1;
    for (uint32_t i = 0; i < g.symbols; i++) {
        limit *= base;
    }
    size_t groups = count / g.symbols, some = g.bits % 8 == 0 ? groups : groups / 8 * 8; /* whole bytes */
    bool sound = true;
    if (limit >> g.bits != 0) { /* any number is one of them */
        sound = true;
    } else if (g.bits == 8) {
        sound = are_bytes_below(bytes, some, (uint32_t)limit);
    } else if (g.bits == 16) {
        sound = are_halves_below(bytes, some, (uint32_t)limit);
    } else {
        some = groups / 8 * 8; /* as the kernel takes them */
        sound = tg_kernels_best()->coders.numbers_below(bytes, some, g.bits, limit);
    }
    return sound && is_end_sound(bytes + some * g.bits / 8, count - some * g.symbols, g, limit);
}

const tg_symbol_part tg_symbol_bits = {
    .part = {.name = "bits", .summary = "symbols at their plain width, several together where that is less"},
};
