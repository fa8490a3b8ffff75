/* Symbol counts in plain C: part of the reference (scalar.c).
 *
 * Quantizers often repeat a symbol, and a counter that was just written is slow to read again: neighbours are counted in tables of
 * their own. Symbols of a small range, as those of small bases and the exponents of floats, are counted in pairs, which halves
 * the work and seldom hits the same counter twice. */
#include "kernels/scalar.h"

#include "kernels/digits.h"

#include <string.h>

enum {
    TABLES = 4,
    SPAN_BITS = 5,
    SPAN = 1 << SPAN_BITS,
    PAIRS = SPAN * SPAN,
    PAIRS_FROM = 8192 /* symbols */,
    PIECE = 2048
};

/* Four symbols of 16 bits; their order does not matter. */
static inline uint64_t four_of(const uint16_t *symbols)
{
    uint64_t four;
    memcpy(&four, symbols, sizeof four);
    return four;
}

/* Counts symbols that are expected in [first, first + SPAN). Returns false, and counts nothing, if one is not. */
static bool count_pairs(uint32_t *counts, const uint16_t *symbols, size_t count, uint32_t first, uint32_t base)
{
    uint32_t pairs[TABLES][PAIRS] = {{0}};
    const uint64_t ones = UINT64_C(0x0001000100010001), firsts = first * ones;
    uint64_t seen = 0;
    for (size_t i = 0; i < count; i += 8) {
        uint64_t a = four_of(symbols + i) - firsts, b = four_of(symbols + i + 4) - firsts;
        seen |= a | b;
        a |= a >> (16 - SPAN_BITS); /* a pair in the lowest bits of each half */
        b |= b >> (16 - SPAN_BITS);
        pairs[0][a & (PAIRS - 1)]++;
        pairs[1][a >> 32 & (PAIRS - 1)]++;
        pairs[2][b & (PAIRS - 1)]++;
        pairs[3][b >> 32 & (PAIRS - 1)]++;
    }
    if ((seen & ~((SPAN - 1) * ones)) != 0) { /* a smaller symbol has borrowed from the bits above */
        return false;
    }
    uint32_t lower[SPAN] = {0}, upper[SPAN] = {0};
    for (uint32_t u = 0; u < SPAN; u++) {
        for (uint32_t l = 0; l < SPAN; l++) {
            uint32_t p = u * SPAN + l, sum = pairs[0][p] + pairs[1][p] + pairs[2][p] + pairs[3][p];
            lower[l] += sum;
            upper[u] += sum;
        }
    }
    for (uint32_t s = 0; s < SPAN && first + s < base; s++) {
        counts[first + s] += lower[s] + upper[s];
    }
    return true;
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

/* Guesses from the first PIECE symbols where a range of SPAN symbols begins that holds all; false if even these do not fit. */
static bool seem_close(uint32_t *first, const uint16_t *symbols, uint32_t base)
{
    uint16_t least = UINT16_MAX, largest = 0;
    for (size_t i = 0; i < PIECE; i++) {
        least = symbols[i] < least ? symbols[i] : least;
        largest = symbols[i] > largest ? symbols[i] : largest;
    }
    uint32_t spare = largest - least < SPAN ? SPAN - 1u - (uint32_t)(largest - least) : 0;
    uint32_t before = base <= SPAN ? least : spare * 3 / 4; /* exponents vary more downwards */
    *first = least - (before < least ? before : least);
    return base <= SPAN || largest - least < SPAN;
}

void tg_scalar_count(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base)
{
    uint32_t first = 0;
    size_t whole = n - n % 8;
    bool counted =
        whole >= PAIRS_FROM && seem_close(&first, symbols, base) && count_pairs(counts, symbols, whole, first, base);
    if (!counted && whole > 0) {
        count_singles(counts, symbols, whole, base);
    }
    for (size_t i = whole; i < n; i++) {
        counts[symbols[i]]++;
    }
}
