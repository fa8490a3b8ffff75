/* Pack: how indices and symbols become bytes. Both work on one chunk at a time. */
#ifndef TG_PACK_PACK_H
#define TG_PACK_PACK_H

#include "base/part.h"
#include "kernels/digits.h"

#include <stdint.h>

/* Modes 0 to TG_MODE_RICE_MAX are Rice parameters; docs/format.md section 4 defines all. */
enum {
    TG_MODE_RICE_MAX = 18,
    TG_MODE_BITMAP = 32,
    TG_MODE_RUNS = 33,
    TG_MODE_EVERY = 34,
    TG_MODE_ADACOMP8 = 35,
    TG_MODE_ADACOMP16 = 36,
    TG_MODE_RANS = 37
};

#define TG_PACK_MAX 262144                  /* elements of a chunk */
#define TG_BITMAP_LEN_MAX (TG_PACK_MAX / 8) /* bytes of its plain bitmap */

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

    /* Writes the `count` (at least 1) marked of n elements; at most tg_bitmap_len(n) bytes. The list has their indices, if
     * somebody has it; otherwise it is NULL. */
    size_t (*write)(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint32_t *list, size_t n, size_t count);

    /* The mask back. Trusts nothing: false if the bytes are not `count` indices below n in ascending order,
     * written in `mode`, with nothing left over. The mask is then meaningless. */
    bool (*read)(uint64_t *mask, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count);

    /* The same as a list, of modes up to TG_MODE_RICE_MAX, and false of any other. NULL: the part has no such modes. */
    bool (*list)(uint32_t *indices, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count);

    /* Both as they are where the symbol pack is `rans`, with one mode more. NULL: the same. */
    size_t (*write_rans)(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint32_t *list, size_t n,
                         size_t count);
    bool (*read_rans)(uint64_t *mask, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count);

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

/* What is to be packed: symbols below a base (uint16_t), or words of 2 or 4 bytes as they travel, the lowest first. */
typedef struct tg_coding {
    uint32_t base;          /* of symbols; 0: words ... */
    uint32_t word_len;      /* ... of so many bytes */
    const uint8_t *lengths; /* of a prefix code that the quantizer proposes for its symbols; NULL: it does not */
    const double *params;   /* of the pack */
    void *room;             /* room_len bytes, aligned for any type */
} tg_coding;

/* A pack that is not coded writes symbols and words at their plain length. A coded one looks for a shorter form, whose
 * length travels before it, and whose first byte, which is not 0, is the part's own; a 0 and the plain form stand for it
 * where there is none. */
typedef struct tg_symbol_part {
    tg_part part;
    bool codes_symbols, codes_words;
    uint64_t (*room_len)(const double *params);

    /* At most `cap` bytes; 0 if that is not enough. */
    size_t (*encode)(uint8_t *out, size_t cap, const void *symbols, size_t count, const tg_coding *c);

    /* Trusts nothing: false if these bytes, the first of which is not 0, are not such symbols with nothing left over. */
    bool (*decode)(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_coding *c);
} tg_symbol_part;

/* bits.c: symbols at their plain length. Reading trusts nothing: false if the bytes are not such symbols. */
uint64_t tg_bits_len(uint64_t count, uint32_t base);
bool tg_bits_check(const uint8_t *bytes, size_t count, uint32_t base);

/* A multiple of so many symbols fills whole bytes, and what follows can be written or read by itself. */
uint32_t tg_bits_align(uint32_t base);
void tg_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, uint32_t base);
/* Writes a multiple of tg_bits_align symbols, as many as there are, and returns their number. */
size_t tg_bits_write_some(uint8_t *out, const uint16_t *symbols, size_t count, uint32_t base);
bool tg_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, uint32_t base);

/* count.c: how often each symbol of a base occurs. */
void tg_count_symbols(uint32_t counts[TG_BASE_MAX], const uint16_t *symbols, size_t count, uint32_t base);

/* plain.c: the same for symbols or words; and either by a coded pack, at most one byte more. */
uint64_t tg_plain_len(uint64_t count, const tg_coding *c);
void tg_plain_write(uint8_t *out, const void *symbols, size_t count, const tg_coding *c);
bool tg_plain_read(void *symbols, const uint8_t *bytes, size_t count, const tg_coding *c);
size_t tg_coded_write(uint8_t *out, const void *symbols, size_t count, const tg_symbol_part *part, const tg_coding *c);
bool tg_coded_read(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_symbol_part *part,
                   const tg_coding *c);

extern const tg_index_part tg_index_bitmap, tg_index_gaps;
extern const tg_symbol_part tg_symbol_rans;

#endif
