/* Symbols one after the other: those of whole bytes little-endian, those of fewer bits from the lowest bit of each byte. */
#include "base/bytes.h"
#include "pack/pack.h"

static uint64_t len(uint64_t count, uint32_t symbol_bits)
{
    return (count * symbol_bits + 7) / 8;
}

/* Symbols of 1, 2 or 4 bits. */
static void write_small(uint8_t *bytes, uint64_t at, const uint32_t *symbols, size_t n, uint32_t symbol_bits)
{
    uint64_t bit = at * symbol_bits;
    for (size_t i = 0; i < n; i++, bit += symbol_bits) {
        uint8_t held = bit % 8 == 0 ? 0 : bytes[bit / 8];
        bytes[bit / 8] = (uint8_t)(held | symbols[i] << bit % 8);
    }
}

static void read_small(uint32_t *symbols, const uint8_t *bytes, uint64_t at, size_t n, uint32_t symbol_bits)
{
    uint64_t bit = at * symbol_bits;
    uint32_t low = (1u << symbol_bits) - 1;
    for (size_t i = 0; i < n; i++, bit += symbol_bits) {
        symbols[i] = (uint32_t)bytes[bit / 8] >> bit % 8 & low;
    }
}

static void write(uint8_t *bytes, uint64_t at, const uint32_t *symbols, size_t n, uint32_t symbol_bits)
{
    uint8_t *out = bytes + at * symbol_bits / 8;
    switch (symbol_bits) {
    case 32:
        for (size_t i = 0; i < n; i++) {
            tg_put32(out + 4 * i, symbols[i]);
        }
        return;
    case 16:
        for (size_t i = 0; i < n; i++) {
            tg_put16(out + 2 * i, (uint16_t)symbols[i]);
        }
        return;
    case 8:
        for (size_t i = 0; i < n; i++) {
            out[i] = (uint8_t)symbols[i];
        }
        return;
    default: write_small(bytes, at, symbols, n, symbol_bits);
    }
}

static void read(uint32_t *symbols, const uint8_t *bytes, uint64_t at, size_t n, uint32_t symbol_bits)
{
    const uint8_t *from = bytes + at * symbol_bits / 8;
    switch (symbol_bits) {
    case 32:
        for (size_t i = 0; i < n; i++) {
            symbols[i] = tg_get32(from + 4 * i);
        }
        return;
    case 16:
        for (size_t i = 0; i < n; i++) {
            symbols[i] = tg_get16(from + 2 * i);
        }
        return;
    case 8:
        for (size_t i = 0; i < n; i++) {
            symbols[i] = from[i];
        }
        return;
    default: read_small(symbols, bytes, at, n, symbol_bits);
    }
}

static bool check(const uint8_t *bytes, uint64_t count, uint32_t symbol_bits)
{
    uint64_t bits = count * symbol_bits;
    return bits % 8 == 0 || bytes[bits / 8] >> bits % 8 == 0;
}

const tg_symbol_part tg_symbol_bits = {
    .part = {.name = "bits", .summary = "symbols at their plain width"},
    .len = len,
    .write = write,
    .read = read,
    .check = check,
};
