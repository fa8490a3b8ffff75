/* The frequency table of a rANS stream; shared by its encoder and its decoder. */
#ifndef TG_PACK_RANS_TABLE_H
#define TG_PACK_RANS_TABLE_H

#include "kernels/rans.h"
#include "pack/rans_coder.h"

typedef struct tg_rans_table {
    uint32_t bits;
    uint32_t first, last;            /* symbols that occur */
    uint32_t frequency[TG_BASE_MAX]; /* their sum is 2^bits; 0 for symbols that do not occur */
} tg_rans_table;

/* Sets the frequencies in proportion to the counts, whose sum is `count`. A symbol that occurs has a frequency of at
 * least 1. t->bits must be set. */
void tg_rans_normalise(tg_rans_table *t, const uint32_t *counts, uint64_t count, uint32_t base);

/* An estimate of the bytes that symbols with these counts take, possibly a little too high. */
uint64_t tg_rans_cost(const tg_rans_table *t, const uint32_t *counts, uint32_t base);

/* The length of a table in bytes. Writes one; reads one and returns its length, or 0 if the bytes are not a valid table. t->bits
 * must be set. */
size_t tg_rans_table_len(const tg_rans_table *t, uint32_t base);
void tg_rans_table_write(uint8_t *out, const tg_rans_table *t, uint32_t base);
size_t tg_rans_table_read(tg_rans_table *t, const uint8_t *bytes, size_t len, uint32_t base);

/* The symbols of each segment of a stream but the last, with lane_n states each. */
static inline size_t tg_rans_segment_n(size_t count, size_t segment_n, uint32_t lane_n)
{
    size_t each = (count + segment_n - 1) / segment_n;
    return lane_n < TG_RANS_LANES ? each : (each + TG_RANS_LANES - 1) / TG_RANS_LANES * TG_RANS_LANES;
}

#endif
