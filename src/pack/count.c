/* How often each symbol occurs. A counter that was just written is slow to read again, and quantizers give the same symbol
 * often in a row: neighbours are counted in tables of their own, and few symbols in pairs, which halves the work. */
#include "pack/pack.h"

#include <string.h>

enum { TABLES = 4, PAIR_BASE = 16, PAIRS = PAIR_BASE * PAIR_BASE };

/* Four symbols, 16 bits each, in any order. */
static inline uint64_t four_of(const uint16_t *symbols)
{
    uint64_t four;
    memcpy(&four, symbols, sizeof four);
    return four;
}

static void count_pairs(uint32_t *counts, const uint16_t *symbols, size_t count)
{
    uint32_t pairs[TABLES][PAIRS] = {{0}};
    for (size_t i = 0; i < count; i += 8) {
        uint64_t a = four_of(symbols + i), b = four_of(symbols + i + 4);
        a |= a >> 12; /* a pair in each lowest byte of 32 bits */
        b |= b >> 12;
        pairs[0][a & 255]++;
        pairs[1][a >> 32 & 255]++;
        pairs[2][b & 255]++;
        pairs[3][b >> 32 & 255]++;
    }
    for (uint32_t p = 0; p < PAIRS; p++) {
        uint32_t sum = pairs[0][p] + pairs[1][p] + pairs[2][p] + pairs[3][p];
        counts[p % PAIR_BASE] += sum;
        counts[p / PAIR_BASE] += sum;
    }
}

static void count_singles(uint32_t *counts, const uint16_t *symbols, size_t count, uint32_t base)
{
    uint32_t tables[TABLES][TG_BASE_MAX] = {{0}};
    for (size_t i = 0; i < count; i += 4) {
        uint64_t four = four_of(symbols + i);
        tables[0][four & 0xffff]++;
        tables[1][four >> 16 & 0xffff]++;
        tables[2][four >> 32 & 0xffff]++;
        tables[3][four >> 48]++;
    }
    for (uint32_t s = 0; s < base; s++) {
        counts[s] += tables[0][s] + tables[1][s] + tables[2][s] + tables[3][s];
    }
}

void tg_count_symbols(uint32_t counts[TG_BASE_MAX], const uint16_t *symbols, size_t count, uint32_t base)
{
    size_t whole = count - count % 8;
    memset(counts, 0, TG_BASE_MAX * sizeof *counts);
    if (base <= PAIR_BASE) {
        count_pairs(counts, symbols, whole);
    } else {
        count_singles(counts, symbols, whole, base);
    }
    for (size_t i = whole; i < count; i++) {
        counts[symbols[i]]++;
    }
}
