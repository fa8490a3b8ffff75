/* Pack: how indices and symbols become bytes. Both work on one chunk at a time. */
#ifndef TG_PACK_PACK_H
#define TG_PACK_PACK_H

#include "base/part.h"

#include <stdint.h>

/* Modes 0 to TG_MODE_RICE_MAX are Rice parameters; docs/format.md section 4 defines all. */
enum {
    TG_MODE_RICE_MAX = 18,
    TG_MODE_BITMAP = 32,
    TG_MODE_RUNS = 33,
    TG_MODE_EVERY = 34,
    TG_MODE_ADACOMP8 = 35,
    TG_MODE_ADACOMP16 = 36
};

/* Bytes of a plain bitmap, which no index pack may exceed. */
static inline size_t tg_bitmap_len(size_t n)
{
    return (n + 7) / 8;
}

typedef struct tg_index_part {
    tg_part part;

    /* Bytes that `count` (at least 1) of n elements never exceed, however they are cut into chunks, but for one byte a
     * chunk of rounding. */
    uint64_t (*limit)(uint64_t n, uint64_t count);

    /* Writes the `count` (at least 1) marked of n elements; at most tg_bitmap_len(n) bytes. */
    size_t (*write)(uint8_t *out, uint8_t *mode, const uint64_t *mask, size_t n, size_t count);

    /* The mask back. Trusts nothing: false if the bytes are not `count` indices below n in ascending order,
     * written in `mode`, with nothing left over. The mask is then meaningless. */
    bool (*read)(uint64_t *mask, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count);

    /* Parts that pack indices together with symbols of base 2, by the place in cells of `cell` elements: the longest
     * cell; 0 for all other parts. */
    uint32_t cell_max;

    /* Fewer bytes than a bitmap and the symbols take apart; or 0, and then these are what to write. */
    size_t (*write_joint)(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint16_t *symbols, size_t n,
                          size_t count, uint32_t cell);

    /* Mask and symbols back, of a mode that write_joint gives. Trusts nothing, as `read`. */
    bool (*read_joint)(uint64_t *mask, uint16_t *symbols, uint8_t mode, const uint8_t *bytes, size_t len, size_t n,
                       size_t count, uint32_t cell);
} tg_index_part;

/* Whether a chunk of this mode has its symbols among its indices. */
static inline bool tg_mode_is_joint(uint8_t mode)
{
    return mode == TG_MODE_ADACOMP8 || mode == TG_MODE_ADACOMP16;
}

/* The symbols of a chunk: numbers below a base of 2 to 65536. */
typedef struct tg_symbol_part {
    tg_part part;
    uint64_t (*len)(uint64_t count, uint32_t base);
    void (*write)(uint8_t *out, const uint16_t *symbols, size_t count, uint32_t base);

    /* Trusts nothing: false if the len(count, base) bytes are not such symbols. */
    bool (*read)(uint16_t *symbols, const uint8_t *bytes, size_t count, uint32_t base);
} tg_symbol_part;

extern const tg_index_part tg_index_bitmap;

#endif
