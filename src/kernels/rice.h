/* Rice-coded gaps between indices (pack/gaps.c). */
#ifndef TG_KERNELS_RICE_H
#define TG_KERNELS_RICE_H

#include <stddef.h>
#include <stdint.h>

/* The state of a decoder. */
typedef struct tg_rice_reader {
    const uint8_t *bytes;
    uint64_t bit, bit_n; /* the next bit, and the number of bits in all */
    uint64_t next;       /* the least index that may follow */
    size_t left;         /* indices still to be read */
    uint32_t *list;      /* where the next one is written */
} tg_rice_reader;

/* The state of an encoder. */
typedef struct tg_rice_writer {
    uint8_t *out;       /* where the next byte goes */
    const uint8_t *end; /* of the space for bytes */
    uint64_t held;      /* bits that are not written yet, fewer than eight, lowest first */
    unsigned held_n;
    uint32_t next; /* the least index that may follow */
} tg_rice_writer;

#endif
