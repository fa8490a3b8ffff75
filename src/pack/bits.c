/* Symbols one after the other, each little-endian in its whole bytes. */
#include "base/bytes.h"
#include "pack/pack.h"

static uint64_t len(uint64_t count, uint32_t symbol_len)
{
    return count * symbol_len;
}

static void write(uint8_t *out, const uint32_t *symbols, size_t n, uint32_t symbol_len)
{
    switch (symbol_len) {
    case 4:
        for (size_t i = 0; i < n; i++) {
            tg_put32(out + 4 * i, symbols[i]);
        }
        return;
    case 2:
        for (size_t i = 0; i < n; i++) {
            tg_put16(out + 2 * i, (uint16_t)symbols[i]);
        }
        return;
    default:
        for (size_t i = 0; i < n; i++) {
            for (uint32_t b = 0; b < symbol_len; b++) {
                *out++ = (uint8_t)(symbols[i] >> 8 * b);
            }
        }
    }
}

static void read(uint32_t *symbols, const uint8_t *bytes, size_t n, uint32_t symbol_len)
{
    switch (symbol_len) {
    case 4:
        for (size_t i = 0; i < n; i++) {
            symbols[i] = tg_get32(bytes + 4 * i);
        }
        return;
    case 2:
        for (size_t i = 0; i < n; i++) {
            symbols[i] = tg_get16(bytes + 2 * i);
        }
        return;
    default:
        for (size_t i = 0; i < n; i++) {
            symbols[i] = 0;
            for (uint32_t b = 0; b < symbol_len; b++) {
                symbols[i] |= (uint32_t)*bytes++ << 8 * b;
            }
        }
    }
}

const tg_symbol_part tg_symbol_bits = {
    .part = {.name = "bits", .summary = "symbols at their plain width"},
    .len = len,
    .write = write,
    .read = read,
};
