/* Symbols at their plain width: as many together as make best use of whole bits.
 *
 * A group of k symbols is one number in base `base`, the first symbol lowest, in as few bits as hold any such number;
 * k, up to 8, is what takes the fewest bits a symbol, the smallest such k. So five of base 3 take a byte, three of base 5
 * take 7 bits, five of base 9 take 16, and a power of two takes its own bits. Bits fill each byte from the lowest; a last
 * group that is not full has zeros for what it lacks. */
#include "pack/pack.h"

typedef struct grouping {
    uint32_t symbols, bits;
} grouping;

static uint32_t bits_for(uint64_t numbers)
{
    uint32_t bits = 0;
    while (UINT64_C(1) << bits < numbers) {
        bits++;
    }
    return bits;
}

static grouping group_of(uint32_t base)
{
    grouping best = {1, bits_for(base)};
    uint64_t numbers = base;
    for (uint32_t k = 2; k <= 8 && numbers <= (UINT64_C(1) << 48) / base; k++) {
        numbers *= base;
        uint32_t bits = bits_for(numbers);
        if (bits * best.symbols < best.bits * k) {
            best = (grouping){k, bits};
        }
    }
    return best;
}

uint64_t tg_bits_len(uint64_t count, uint32_t base)
{
    grouping g = group_of(base);
    return ((count + g.symbols - 1) / g.symbols * g.bits + 7) / 8;
}

uint32_t tg_bits_align(uint32_t base)
{
    return 8 * group_of(base).symbols;
}

/* The loops are written once and compiled for every usual base, because a division by a constant is a multiplication. */
static inline void write_in(uint8_t *out, const uint16_t *symbols, size_t count, uint32_t base, grouping g)
{
    uint64_t held = 0;
    uint32_t held_n = 0;
    for (size_t at = 0; at < count; at += g.symbols) {
        uint64_t number = 0;
        for (size_t i = count - at < g.symbols ? count - at : g.symbols; i-- > 0;) {
            number = number * base + symbols[at + i];
        }
        held |= number << held_n; /* of at most 48 + 7 bits */
        held_n += g.bits;
        for (; held_n >= 8; held_n -= 8, held >>= 8) {
            *out++ = (uint8_t)held;
        }
    }
    if (held_n > 0) {
        *out = (uint8_t)held;
    }
}

static inline bool read_in(uint16_t *symbols, const uint8_t *bytes, size_t count, uint32_t base, grouping g)
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
            symbols[at + i] = (uint16_t)(number % base);
            number /= base;
        }
        if (number != 0) { /* beyond any such group, or more symbols than there are */
            return false;
        }
    }
    return held == 0;
}

void tg_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, uint32_t base)
{
    switch (base) {
    case 2: write_in(out, symbols, count, 2, (grouping){1, 1}); return;
    case 3: write_in(out, symbols, count, 3, (grouping){5, 8}); return;
    case 5: write_in(out, symbols, count, 5, (grouping){3, 7}); return;
    case 9: write_in(out, symbols, count, 9, (grouping){5, 16}); return;
    case 512: write_in(out, symbols, count, 512, (grouping){1, 9}); return;
    default: write_in(out, symbols, count, base, group_of(base));
    }
}

bool tg_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, uint32_t base)
{
    switch (base) {
    case 2: return read_in(symbols, bytes, count, 2, (grouping){1, 1});
    case 3: return read_in(symbols, bytes, count, 3, (grouping){5, 8});
    case 5: return read_in(symbols, bytes, count, 5, (grouping){3, 7});
    case 9: return read_in(symbols, bytes, count, 9, (grouping){5, 16});
    case 512: return read_in(symbols, bytes, count, 512, (grouping){1, 9});
    default: return read_in(symbols, bytes, count, base, group_of(base));
    }
}

bool tg_bits_check(const uint8_t *bytes, size_t count, uint32_t base)
{
    uint16_t symbols[1024];
    uint32_t align = tg_bits_align(base);
    size_t batch = sizeof symbols / sizeof *symbols / align * align;
    for (size_t done = 0; done < count; done += batch) {
        size_t n = count - done < batch ? count - done : batch;
        if (!tg_bits_read(symbols, bytes + tg_bits_len(done, base), n, base)) {
            return false;
        }
    }
    return true;
}

const tg_symbol_part tg_symbol_bits = {
    .part = {.name = "bits", .summary = "symbols at their plain width, several together where that is less"},
};
