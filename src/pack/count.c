/* How often each symbol occurs. A counter that was just written is slow to read again, and quantizers give the same symbol
 * often in a row: neighbours are counted in tables of their own. Symbols that lie close together, as those of small bases and
 * the exponents of floats do, are counted in pairs, which is half the work and seldom the same counter. Where there are few, a
 * kernel may know a faster way. */
#include "kernels/kernels.h"
#include "pack/pack.h"

#include <string.h>

enum {
    TABLES = 4,
    SPAN_BITS = 5,
    SPAN = 1 << SPAN_BITS,
    PAIRS = SPAN * SPAN,
    PAIRS_FROM = 8192 /* symbols */,
    PIECE = 2048
};

/* Four symbols, 16 bits each, in any order. */
static inline uint64_t four_of(const uint16_t *symbols)
{
    uint64_t four;
    memcpy(&four, symbols, sizeof four);
    return four;
}

/* Symbols from `first` on, below first + SPAN. */
static void count_pairs(uint32_t *counts, const uint16_t *symbols, size_t count, uint32_t first)
{
    uint32_t pairs[TABLES][PAIRS] = {{0}};
    const uint64_t firsts = first * UINT64_C(0x0001000100010001);
    for (size_t i = 0; i < count; i += 8) {
        uint64_t a = four_of(symbols + i) - firsts, b = four_of(symbols + i + 4) - firsts;
        a |= a >> (16 - SPAN_BITS); /* a pair in the lowest bits of each half */
        b |= b >> (16 - SPAN_BITS);
        pairs[0][a & (PAIRS - 1)]++;
        pairs[1][a >> 32 & (PAIRS - 1)]++;
        pairs[2][b & (PAIRS - 1)]++;
        pairs[3][b >> 32 & (PAIRS - 1)]++;
    }
    uint32_t lower[SPAN] = {0}, upper[SPAN] = {0};
    for (uint32_t u = 0; u < SPAN; u++) {
        for (uint32_t l = 0; l < SPAN; l++) {
            uint32_t p = u * SPAN + l, sum = pairs[0][p] + pairs[1][p] + pairs[2][p] + pairs[3][p];
            lower[l] += sum;
            upper[u] += sum;
        }
    }
    for (uint32_t s = 0; s < SPAN && first + s < TG_BASE_MAX; s++) {
        counts[first + s] += lower[s] + upper[s];
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

/* Whether symbols lie close together, and from where on. They are compared as signed numbers, which all of x86 can in vectors,
 * and in pieces, the first of which tells most that do not. */
static bool are_close(uint32_t *first, const uint16_t *symbols, size_t count)
{
    int16_t least = INT16_MAX, largest = 0;
    for (size_t done = 0; done < count; done += PIECE) {
        size_t n = count - done < PIECE ? count - done : PIECE;
        for (size_t i = 0; i < n; i++) {
            int16_t symbol = (int16_t)symbols[done + i];
            least = symbol < least ? symbol : least;
            largest = symbol > largest ? symbol : largest;
        }
        if (largest - least >= SPAN) {
            return false;
        }
    }
    *first = (uint32_t)least;
    return true;
}

void tg_count_symbols(uint32_t counts[TG_BASE_MAX], const uint16_t *symbols, size_t count, uint32_t base)
{
    uint32_t first = 0;
    memset(counts, 0, TG_BASE_MAX * sizeof *counts);
    size_t done = base <= TG_COUNT_FEW ? tg_kernels_best()->count_few(counts, symbols, count, base) : 0;
    symbols += done;
    count -= done;
    size_t whole = count - count % 8;
    if (whole >= PAIRS_FROM && (base <= SPAN || are_close(&first, symbols, whole))) {
        count_pairs(counts, symbols, whole, first);
    } else if (whole > 0) {
        count_singles(counts, symbols, whole, base);
    }
    for (size_t i = whole; i < count; i++) {
        counts[symbols[i]]++;
    }
}
