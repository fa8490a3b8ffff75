/* Symbols at their plain width in plain C: part of the reference (scalar.c). docs/format.md defines the bytes. */
#include "kernels/scalar.h"

#include "kernels/digits.h"

#include <string.h>

/* The loops are written once and compiled for every usual base: division by a constant is a multiplication. */
static inline void write_in(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d)
{
    uint64_t held = 0;
    uint32_t held_n = 0;
    for (size_t at = 0; at < count; at += d.symbols) {
        uint64_t number = 0;
        for (size_t i = count - at < d.symbols ? count - at : d.symbols; i-- > 0;) {
            number = number * d.base + symbols[at + i];
        }
        held |= number << held_n; /* at most 48 + 7 bits */
        held_n += d.bits;
        for (; held_n >= 8; held_n -= 8, held >>= 8) {
            *out++ = (uint8_t)held;
        }
    }
    if (held_n > 0) {
        *out = (uint8_t)held;
    }
}

static inline bool read_in(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d)
{
    uint64_t held = 0;
    uint32_t held_n = 0;
    for (size_t at = 0; at < count; at += d.symbols) {
        for (; held_n < d.bits; held_n += 8) {
            held |= (uint64_t)*bytes++ << held_n;
        }
        uint64_t number = held & ((UINT64_C(1) << d.bits) - 1);
        held >>= d.bits;
        held_n -= d.bits;
        size_t n = count - at < d.symbols ? count - at : d.symbols;
        for (size_t i = 0; i < n; i++) {
            symbols[at + i] = (uint16_t)(number % d.base);
            number /= d.base;
        }
        if (number != 0) { /* too large for a group, or nonzero after the last symbol */
            return false;
        }
    }
    return held == 0;
}

/* Symbols of one byte, in loops that compilers vectorise. */
static void write_bytes(uint8_t *out, const uint16_t *symbols, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = (uint8_t)symbols[i];
    }
}

static bool read_bytes(uint16_t *symbols, const uint8_t *bytes, size_t count, uint32_t base)
{
    uint8_t most = 0;
    for (size_t i = 0; i < count; i++) {
        symbols[i] = bytes[i];
        most = bytes[i] > most ? bytes[i] : most;
    }
    return most < base;
}

void tg_scalar_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d)
{
    if (d.symbols == 1 && d.bits == 8) {
        write_bytes(out, symbols, count);
        return;
    }
    switch (d.base) {
    case 2: write_in(out, symbols, count, (tg_digits){2, 1, 1}); return;
    case 3: write_in(out, symbols, count, (tg_digits){3, 5, 8}); return;
    case 5: write_in(out, symbols, count, (tg_digits){5, 3, 7}); return;
    case 9: write_in(out, symbols, count, (tg_digits){9, 5, 16}); return;
    case 512: write_in(out, symbols, count, (tg_digits){512, 1, 9}); return;
    default: write_in(out, symbols, count, d);
    }
}

/* The five digits of base 3 of every byte. Rows are padded, so that one is copied as a whole. */
#define FIVE(b)                                                   \
    {                                                             \
        (b) % 3, (b) / 3 % 3, (b) / 9 % 3, (b) / 27 % 3, (b) / 81 \
    }
#define FIVES_3(b) FIVE(b), FIVE((b) + 1), FIVE((b) + 2)
#define FIVES_9(b) FIVES_3(b), FIVES_3((b) + 3), FIVES_3((b) + 6)
#define FIVES_27(b) FIVES_9(b), FIVES_9((b) + 9), FIVES_9((b) + 18)
#define FIVES_81(b) FIVES_27(b), FIVES_27((b) + 27), FIVES_27((b) + 54)
static const uint16_t fives[243][8] = {FIVES_81(0), FIVES_81(81), FIVES_81(162)};

/* Groups of base 3 while a whole row can be stored, then the rest. */
static bool read_base_3(uint16_t *symbols, const uint8_t *bytes, size_t count)
{
    size_t done = 0;
    uint8_t most = 0;
    for (; count - done >= 8; done += 5) {
        uint8_t byte = *bytes++;
        most = byte > most ? byte : most;
        memcpy(symbols + done, fives[byte < 243 ? byte : 0], sizeof *fives);
    }
    return most < 243 && read_in(symbols + done, bytes, count - done, (tg_digits){3, 5, 8});
}

bool tg_scalar_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d)
{
    if (d.symbols == 1 && d.bits == 8) {
        return read_bytes(symbols, bytes, count, d.base);
    }
    switch (d.base) {
    case 2: return read_in(symbols, bytes, count, (tg_digits){2, 1, 1});
    case 3: return read_base_3(symbols, bytes, count);
    case 5: return read_in(symbols, bytes, count, (tg_digits){5, 3, 7});
    case 9: return read_in(symbols, bytes, count, (tg_digits){9, 5, 16});
    case 512: return read_in(symbols, bytes, count, (tg_digits){512, 1, 9});
    default: return read_in(symbols, bytes, count, d);
    }
}

bool tg_scalar_numbers_below(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit)
{
    uint64_t held = 0, mask = (UINT64_C(1) << bits) - 1;
    uint32_t held_n = 0, bad = 0;
    for (size_t i = 0; i < n; i++) {
        for (; held_n < bits; held_n += 8) {
            held |= (uint64_t)*bytes++ << held_n;
        }
        bad |= (held & mask) >= limit ? 1 : 0;
        held >>= bits;
        held_n -= bits;
    }
    return bad == 0;
}
