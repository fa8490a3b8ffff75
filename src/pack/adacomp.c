/* The wire that AdaComp's paper counts by (arXiv 1712.02679): an entry is its place in its bin, in 6 or 14 bits, and two
 * bits that say plus or minus. Where the paper leaves open how bins are told apart, this does it:
 *
 *     code 1, 2    plus, minus: in the bin at hand if the place is behind the one before it, else in the next bin
 *     code 0       no value: on by (place + 1) bins, for bins that are empty or whose first place is that far back
 *
 * `gaps` with `sign` takes less. This is for those who want the paper's figures as real bytes. */
#include "base/bits.h"
#include "base/bytes.h"
#include "pack/pack.h"

#include <string.h>

enum { SKIP = 0, PLUS = 1, MINUS = 2 };

typedef struct wire {
    unsigned place_bits;
    uint8_t mode;
} wire;

static const wire wire8 = {.place_bits = 6, .mode = TG_MODE_ADACOMP8};
static const wire wire16 = {.place_bits = 14, .mode = TG_MODE_ADACOMP16};

static size_t entry_len(const wire *x)
{
    return (x->place_bits + 2) / 8;
}

/* Where a reader stands. */
typedef struct stand {
    uint64_t bin;
    int64_t place; /* of the last entry in the bin; -1: none yet */
} stand;

/* How many bins an explicit skip must pass before an entry, or 0. */
static uint64_t skip_before(const stand *s, uint64_t bin, uint64_t place)
{
    bool follows = bin == s->bin ? (int64_t)place > s->place : bin == s->bin + 1 && (int64_t)place <= s->place;
    return follows ? 0 : bin - s->bin;
}

static void put(uint8_t **out, const wire *x, unsigned code, uint64_t place)
{
    uint32_t entry = (uint32_t)place | code << x->place_bits;
    if (x->place_bits == 6) {
        **out = (uint8_t)entry;
    } else {
        tg_put16(*out, (uint16_t)entry);
    }
    *out += entry_len(x);
}

/* Writes, or only counts the bytes if out is NULL. */
static size_t write_entries(uint8_t *out, const wire *x, const uint64_t *mask, const uint16_t *symbols, size_t n,
                            uint32_t cell)
{
    stand s = {.place = -1};
    uint64_t farthest = UINT64_C(1) << x->place_bits, number = 0, skips = 0;
    for (size_t w = 0; w < tg_words(n); w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1, number++) {
            uint64_t index = w * 64 + tg_lowest(word), bin = index / cell, place = index % cell;
            for (uint64_t skip = skip_before(&s, bin, place); skip > 0; skips++) {
                uint64_t now = skip < farthest ? skip : farthest;
                if (out != NULL) {
                    put(&out, x, SKIP, now - 1);
                }
                skip -= now;
            }
            if (out != NULL) {
                put(&out, x, symbols[number] != 0 ? MINUS : PLUS, place);
            }
            s = (stand){bin, (int64_t)place};
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
    stand s = {.place = -1};
    size_t number = 0;
    unsigned code = SKIP;
    if (mode != x->mode || len % entry_len(x) != 0) {
        return false;
    }
    memset(mask, 0, tg_words(n) * sizeof *mask);
    for (size_t at = 0; at < len; at += entry_len(x)) {
        uint32_t entry = x->place_bits == 6 ? bytes[at] : tg_get16(bytes + at);
        uint64_t place = entry & ((1u << x->place_bits) - 1);
        code = entry >> x->place_bits;
        if (code == SKIP) {
            s = (stand){s.bin + place + 1, -1};
            continue;
        }
        s = (stand){s.bin + ((int64_t)place > s.place ? 0 : 1), (int64_t)place};
        if (code > MINUS || place >= cell || s.bin > n / cell || s.bin * cell + place >= n || number == count) {
            return false;
        }
        uint64_t index = s.bin * cell + place;
        mask[index / 64] |= UINT64_C(1) << index % 64;
        symbols[number++] = code == MINUS ? 1 : 0;
    }
    return number == count && code != SKIP; /* nothing is skipped behind the last */
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

/* Where entries would take more than a bitmap, they are one. */
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
    .part = {.name = "adacomp8", .summary = "AdaComp's own wire: 6 bits of place and 2 of sign, for bins up to 64"},
    .limit = limit,
    .write = write,
    .read = read,
    .cell_max = 64,
    .write_joint = write_joint8,
    .read_joint = read_joint8,
};

const tg_index_part tg_index_adacomp16 = {
    .part = {.name = "adacomp16", .summary = "the same with 14 bits of place, for bins up to 16384"},
    .limit = limit,
    .write = write,
    .read = read,
    .cell_max = 16384,
    .write_joint = write_joint16,
    .read_joint = read_joint16,
};
