/* Pack: how indices and symbols become bytes. Both work on one chunk at a time. Everything that reads bytes validates them:
 * it returns false for anything that the writer would not have written. */
#ifndef TG_PACK_PACK_H
#define TG_PACK_PACK_H

#include "base/part.h"
#include "kernels/digits.h"

#include <stdint.h>

#define TG_PACK_MAX 262144                  /* elements of a chunk */
#define TG_BITMAP_LEN_MAX (TG_PACK_MAX / 8) /* bytes of its bitmap */

/* ---- indices --------------------------------------------------------------------------------------------------------- */

/* How the indices of a chunk are written; the mode is in the chunk's header. Modes 0 to TG_MODE_RICE_MAX are parameters of a
 * Rice code. docs/format.md section 4 defines them all. */
enum {
    TG_MODE_RICE_MAX = 18,
    TG_MODE_BITMAP = 32,
    TG_MODE_RUNS = 33,
    TG_MODE_EVERY = 34,
    TG_MODE_ADACOMP8 = 35,
    TG_MODE_ADACOMP16 = 36,
    TG_MODE_RANS = 37
};

/* Bytes of a bitmap of n elements. No index pack takes more. */
static inline size_t tg_bitmap_len(size_t n)
{
    return (n + 7) / 8;
}

/* An index pack. `n` are the elements of a chunk, `count` (at least 1) those that are selected. */
typedef struct tg_index_part {
    tg_part part;

    /* ---- every part ---- */

    /* A bound on the bytes of `count` of n elements, in however many chunks; rounding adds up to one byte a chunk. */
    uint64_t (*limit)(uint64_t n, uint64_t count);
    /* Writes the marked elements and returns the length, at most tg_bitmap_len(n). `list` has their indices; NULL if they
     * have not been listed. */
    size_t (*write)(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint32_t *list, size_t n, size_t count);
    /* Reads the mask. False if the bytes are not `count` ascending indices below n, in `mode`, with nothing left over; the
     * mask is then undefined. */
    bool (*read)(uint64_t *mask, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count);

    /* ---- optional ---- */

    /* As `read`, but writes a list of indices. Only for modes up to TG_MODE_RICE_MAX; false for any other. NULL: the part
     * has no such modes. */
    bool (*list)(uint32_t *indices, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count);
    /* As `write` and `read`, for recipes whose symbol pack is `rans`: one more mode. NULL: no difference. */
    size_t (*write_rans)(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint32_t *list, size_t n,
                         size_t count);
    bool (*read_rans)(uint64_t *mask, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count);

    /* ---- parts that pack each index together with its symbol, of base 2 ---- */

    /* Indices are written as positions in cells of `cell` consecutive elements. cell_max is the longest cell; 0 for all
     * other parts. */
    uint32_t cell_max;
    /* Returns the length, or 0 if a bitmap followed by the symbols would be at most as long; then that is to be written. */
    size_t (*write_joint)(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint16_t *symbols, size_t n,
                          size_t count, uint32_t cell);
    /* Reads mask and symbols in a mode of write_joint. Validates as `read` does. */
    bool (*read_joint)(uint64_t *mask, uint16_t *symbols, uint8_t mode, const uint8_t *bytes, size_t len, size_t n,
                       size_t count, uint32_t cell);
} tg_index_part;

/* Whether a chunk in this mode has its symbols together with its indices. */
static inline bool tg_mode_is_joint(uint8_t mode)
{
    return mode == TG_MODE_ADACOMP8 || mode == TG_MODE_ADACOMP16;
}

/* ---- symbols and words ------------------------------------------------------------------------------------------------- */

/* What is packed: symbols below a base (uint16_t), or the little-endian words of 2 or 4 bytes of a plain quantizer. */
typedef struct tg_coding {
    uint32_t base;          /* of the symbols; 0: words */
    uint32_t word_len;      /* bytes of a word, if base is 0 */
    const uint8_t *lengths; /* code lengths that the quantizer proposes for its symbols; NULL: none */
    const double *params;   /* of the pack */
    void *scratch;          /* scratch buffer of scratch_len bytes, aligned for any type */
} tg_coding;

/* A symbol pack. `bits` is not coded: it writes symbols and words at their plain length, and has none of these functions. A
 * coded pack writes a shorter form if it finds one. The length of that form precedes it. Its first byte is never 0. If there
 * is no shorter form, a 0 byte and the plain form are written instead. */
typedef struct tg_symbol_part {
    tg_part part;
    bool codes_symbols, codes_words;               /* what it can code; both false: it is not coded */
    uint64_t (*scratch_len)(const double *params); /* bytes of scratch buffer */

    /* Returns the length of the coded form, or 0 if it would be longer than cap bytes. */
    size_t (*encode)(uint8_t *out, size_t cap, const void *symbols, size_t count, const tg_coding *c);

    /* Decodes a form whose first byte is not 0. False if it is not exactly `count` symbols. */
    bool (*decode)(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_coding *c);
    /* Whether `decode` would return true, where that takes less time to find out. NULL: `decode` must be used. */
    bool (*check)(const uint8_t *bytes, size_t len, size_t count, const tg_coding *c);
} tg_symbol_part;

/* bits.c: symbols at their plain length. tg_bits_read and tg_bits_check return false if the bytes are not such symbols. */
uint64_t tg_bits_len(uint64_t count, uint32_t base);
void tg_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, uint32_t base);
bool tg_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, uint32_t base);
bool tg_bits_check(const uint8_t *bytes, size_t count, uint32_t base);

/* How many symbols are packed together, and in how many bits. */
tg_digits tg_bits_group(uint32_t base);

/* A multiple of this many symbols fills whole bytes, so the symbols after them can be written and read separately. */
uint32_t tg_bits_align(uint32_t base);

/* Writes the first symbols, as many as a fast kernel can, to whole bytes. Returns their number. */
size_t tg_bits_write_some(uint8_t *out, const uint16_t *symbols, size_t count, uint32_t base);

/* count.c: how often each symbol below the base occurs. */
void tg_count_symbols(uint32_t *counts, const uint16_t *symbols, size_t count, uint32_t base);

/* plain.c: symbols or words at their plain length. */
uint64_t tg_plain_len(uint64_t count, const tg_coding *c);
void tg_plain_write(uint8_t *out, const void *symbols, size_t count, const tg_coding *c);
bool tg_plain_read(void *symbols, const uint8_t *bytes, size_t count, const tg_coding *c);

/* plain.c: symbols or words in a coded pack; at most one byte longer than the plain length. */
size_t tg_coded_write(uint8_t *out, const void *symbols, size_t count, const tg_symbol_part *part, const tg_coding *c);
bool tg_coded_read(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_symbol_part *part,
                   const tg_coding *c);

/* Whether tg_coded_read would return true; `symbols` is space for them. */
bool tg_coded_check(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_symbol_part *part,
                    const tg_coding *c);

extern const tg_index_part tg_index_bitmap, tg_index_gaps;
extern const tg_symbol_part tg_symbol_rans;

#endif
