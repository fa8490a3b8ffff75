/* Tables of the range coder (pack/rans_coder.h) in the form its kernels read. */
#ifndef TG_KERNELS_RANS_H
#define TG_KERNELS_RANS_H

#include <stdint.h>

/* The lower bound of a state, the most interleaved states, up to how many symbols a search in vector registers decodes faster than
 * a table, and up to how many the encoder's tables fit into them. */
enum { TG_RANS_START = 1 << 15, TG_RANS_LANES_MAX = 64, TG_RANS_FEW = 4, TG_RANS_SPAN = 32 };

/* Bit positions in an encoder entry. Division by the frequency f is a multiplication: for x below 2^31, x / f is
 * (x * inverse) >> (31 + log) with inverse = ceil(2^(31 + log) / f), where 2^log is the least power of two not below f
 * (Granlund and Montgomery, 1994). */
enum { TG_PLAN_FREQUENCY = 32, TG_PLAN_START = 46, TG_PLAN_LOG = 60, TG_PLAN_MASK = (1 << 14) - 1 };

/* The encoder's table. */
typedef struct tg_rans_plans {
    const uint64_t *plans; /* per symbol, from bit 0: inverse, frequency - 1, cumulative start, log */
    uint32_t bits;         /* frequencies sum to 2^bits */
    uint32_t first, span;  /* all symbols are in [first, first + span), and each of these has an entry */
} tg_rans_plans;

/* The decoder's table, indexed by the low bits of a state. */
typedef struct tg_rans_slots {
    const uint32_t *slots; /* 2^bits entries. Bits 0-7: low 8 bits of the symbol; 8-19: frequency - 1; 20-31: offset */
    uint32_t bits;         /* at most 12 */
    uint32_t upper;        /* the first slot of symbols from 256 on */
    uint32_t few_n;        /* number of symbols that occur, if at most TG_RANS_FEW; else 0 */
    uint32_t few_symbol[TG_RANS_FEW], few_start[TG_RANS_FEW], few_frequency[TG_RANS_FEW]; /* unused: start 2^bits */
} tg_rans_slots;

#endif
