/* Tables and streams of prefix codes (pack/huffman.c) in the form their kernels read. */
#ifndef TG_KERNELS_PREFIX_H
#define TG_KERNELS_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

enum { TG_PREFIX_LONGEST = 12, TG_PREFIX_SLOTS = 1 << TG_PREFIX_LONGEST };

/* The encoder's entries: bits 0-7 hold the code's length, the code follows from this bit on, its first bit lowest. */
enum { TG_PREFIX_CODE = 8, TG_PREFIX_PAIR_BASE = 16 };

typedef struct tg_prefix_codes {
    uint64_t entries[512];
    uint64_t pairs[256]; /* of two symbols below 16: index first + 16 * second */
    bool has_pairs;      /* all symbols are below 16 */
} tg_prefix_codes;

/* The decoder's tables, indexed by the next 12 bits. `singles`: length of the first code in bits 0-5, its symbol above.
 * `slots`, for short codes: total length of up to three codes, their number from bit 8 on, their symbols, 16 bits each,
 * from bit 16 on. */
enum { TG_PREFIX_SINGLE_SYMBOL = 6, TG_PREFIX_SLOT_N = 8, TG_PREFIX_SLOT_SYMBOL = 16, TG_PREFIX_SLOT_SYMBOLS = 3 };

typedef struct tg_prefix_tables {
    uint64_t slots[TG_PREFIX_SLOTS];
    uint16_t singles[TG_PREFIX_SLOTS];
    bool has_slots;
} tg_prefix_tables;

/* A stream being decoded: the next bit is bit `skip` of the byte at `at`. */
typedef struct tg_prefix_stream {
    const uint8_t *at, *end;
    uint32_t skip;
    uint16_t *out, *out_end;
} tg_prefix_stream;

#endif
