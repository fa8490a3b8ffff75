/* The wire format that the AdaComp paper counts with (arXiv 1712.02679). An entry is the position of an element in its bin,
 * in 6 or 14 bits, and a code of 2 bits for its sign. The paper does not say how a reader knows the bin; this format does:
 *
 *     code 1, 2    plus, minus. The entry is in the current bin if its position is above the previous one, else in the next
 *     code 0       skip: advances by (position + 1) bins. Used for empty bins, and where a position alone would be misread
 *
 * `gaps` with `sign` is shorter. This format is for measuring the paper's figures in real bytes. */
#include "base/bits.h"
#include "base/bytes.h"
#include "pack/pack.h"

#include <string.h>

enum { SKIP = 0, PLUS = 1, MINUS = 2 };

typedef struct wire {
    unsigned position_bits;
    uint8_t mode;
} wire;

static const wire wire8 = {.position_bits = 6, .mode = TG_MODE_ADACOMP8};
static const wire wire16 = {.position_bits = 14, .mode = TG_MODE_ADACOMP16};

static size_t entry_len(const wire *x)
{
    return (x->position_bits + 2) / 8;
}

/* The place of the previous entry, as a reader knows it. */
typedef struct cursor {
    uint64_t bin;
    int64_t position; /* in the bin; -1: the bin has no entry yet */
} cursor;

/* The number of bins to skip before an entry; 0 if no skip is needed. */
static uint64_t skip_before(const cursor *s, uint64_t bin, uint64_t position)
{
    bool follows =
        bin == s->bin ? (int64_t)position > s->position : bin == s->bin + 1 && (int64_t)position <= s->position;
    return follows ? 0 : bin - s->bin;
}

static void put(uint8_t **out, const wire *x, unsigned code, uint64_t position)
{
    uint32_t entry = (uint32_t)position | code << x->position_bits;
    if (x->position_bits == 6) {
        **out = (uint8_t)entry;
    } else {
        tg_put16(*out, (uint16_t)entry);
    }
    *out += entry_len(x);
}

/* Writes all entries and returns the length; only counts bytes if out is NULL. */
static size_t write_entries(uint8_t *out, const wire *x, const uint64_t *mask, const uint16_t *symbols, size_t n,
                            uint32_t cell)
{
    cursor s = {.position = -1};
    uint64_t farthest = UINT64_C(1) << x->position_bits, number = 0, skips = 0;
    for (size_t w = 0; w < tg_words(n); w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1, number++) {
            uint64_t index = w * 64 + tg_lowest(word), bin = index / cell, position = index % cell;
            for (uint64_t skip = skip_before(&s, bin, position); skip > 0; skips++) {
                uint64_t now = skip < farthest ? skip : farthest;
                if (out != NULL) {
                    put(&out, x, SKIP, now - 1);
                }
                skip -= now;
            }
            if (out != NULL) {
                put(&out, x, symbols[number] != 0 ? MINUS : PLUS, position);
            }
            s = (cursor){bin, (int64_t)position};
        }
    }
    return (size_t)(number + skips) * entry_len(x);
}

static size_t write_joint(const wire *x, uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint16_t *symbols,
                          size_t n, size_t count, uint32_t cell)
{
    if (write_entries(NULL, x, mask, symbols, n, cell) >= tg_bitmap_len(n) + (count + 7) / 8) {
        return 0;
    }
    *mode = x->mode;
    return write_entries(out, x, mask, symbols, n, cell);
}

static bool read_joint(const wire *x, uint64_t *mask, uint16_t *symbols, uint8_t mode, const uint8_t *bytes, size_t len,
                       size_t n, size_t count, uint32_t cell)
{
    cursor s = {.position = -1};
    size_t number = 0;
    unsigned code = SKIP;
    if (mode != x->mode || len % entry_len(x) != 0) {
        return false;
    }
    memset(mask, 0, tg_words(n) * sizeof *mask);
    for (size_t at = 0; at < len; at += entry_len(x)) {
        uint32_t entry = x->position_bits == 6 ? bytes[at] : tg_get16(bytes + at);
        uint64_t position = entry & ((1u << x->position_bits) - 1);
        code = entry >> x->position_bits;
        if (code == SKIP) {
            s = (cursor){s.bin + position + 1, -1};
            continue;
        }
        s = (cursor){s.bin + ((int64_t)position > s.position ? 0 : 1), (int64_t)position};
        if (code > MINUS || position >= cell || s.bin > n / cell || s.bin * cell + position >= n || number == count) {
            return false;
        }
        uint64_t index = s.bin * cell + position;
        mask[index / 64] |= UINT64_C(1) << index % 64;
        symbols[number++] = code == MINUS ? 1 : 0;
    }
    return number == count && code != SKIP; /* the last entry is not a skip */
}

static size_t write_joint8(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint16_t *symbols, size_t n,
                           size_t count, uint32_t cell)
{
    return write_joint(&wire8, out, mode, mask, symbols, n, count, cell);
}

static size_t write_joint16(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint16_t *symbols, size_t n,
                            size_t count, uint32_t cell)
{
    return write_joint(&wire16, out, mode, mask, symbols, n, count, cell);
}

static bool read_joint8(uint64_t *mask, uint16_t *symbols, uint8_t mode, const uint8_t *bytes, size_t len, size_t n,
                        size_t count, uint32_t cell)
{
    return read_joint(&wire8, mask, symbols, mode, bytes, len, n, count, cell);
}

static bool read_joint16(uint64_t *mask, uint16_t *symbols, uint8_t mode, const uint8_t *bytes, size_t len, size_t n,
                         size_t count, uint32_t cell)
{
    return read_joint(&wire16, mask, symbols, mode, bytes, len, n, count, cell);
}

/* If entries would take more than a bitmap and the signs, those are written instead. */
static uint64_t limit(uint64_t n, uint64_t count)
{
    return tg_index_bitmap.limit(n, count);
}

static size_t write(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint32_t *list, size_t n, size_t count)
{
    return tg_index_bitmap.write(out, mode, mask, list, n, count);
}

static bool read(uint64_t *mask, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    return tg_index_bitmap.read(mask, mode, bytes, len, n, count);
}

const tg_index_part tg_index_adacomp8 = {
    .part = {.name = "adacomp8",
             .summary = "AdaComp's wire format: 6 bits of position and 2 of sign, for bins up to 64"},
    .limit = limit,
    .write = write,
    .read = read,
    .cell_max = 64,
    .write_joint = write_joint8,
    .read_joint = read_joint8,
};

const tg_index_part tg_index_adacomp16 = {
    .part = {.name = "adacomp16",
             .summary = "AdaComp's wire format: 14 bits of position and 2 of sign, for bins up to 16384"},
    .limit = limit,
    .write = write,
    .read = read,
    .cell_max = 16384,
    .write_joint = write_joint16,
    .read_joint = read_joint16,
};
