/* Tables of the range coder (pack/rans_coder.h) in the form its kernels read. */
#ifndef TG_KERNELS_RANS_H
#define TG_KERNELS_RANS_H

#include <stddef.h>
#include <stdint.h>

/* The most states of a segment, up to how many symbols a search in vector registers decodes faster than a table, and up to how
 * many the encoder's tables fit into them. */
enum { TG_RANS_LANES = 32, TG_RANS_FEW = 4, TG_RANS_SPAN = 32 };

/* The lower bound of states for frequencies that sum to 2^bits; the upper one is 2^16 times that. */
static inline uint32_t tg_rans_start(uint32_t bits)
{
    return 2u << bits;
}

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

/* A segment that is encoded, from its last symbol to its first. Words are put in front of `at`. */
typedef struct tg_rans_writer {
    uint32_t states[TG_RANS_LANES];
    uint8_t *at;
    const uint16_t *symbols;
    size_t count;
} tg_rans_writer;

/* A segment that is decoded. */
typedef struct tg_rans_reader {
    uint32_t states[TG_RANS_LANES];
    const uint8_t *at;
    uint16_t *symbols; /* the next one */
    size_t left;
} tg_rans_reader;

/* After `n` symbols, with the next word at `at`. */
static inline void tg_rans_advance(tg_rans_reader *r, const uint8_t *at, size_t n)
{
    r->at = at;
    r->symbols += n;
    r->left -= n;
}

/* Encodes by the scalar kernel what follows the last multiple of `round` symbols; everything if that is 0. */
void tg_rans_push_rest(tg_rans_writer *w, size_t round, uint32_t lane_n, const tg_rans_plans *plans);

#endif
