/* The state of a decoder of Rice-coded gaps between indices (pack/gaps.c). */
#ifndef TG_KERNELS_RICE_H
#define TG_KERNELS_RICE_H

#include <stddef.h>
#include <stdint.h>

typedef struct tg_rice_reader {
    const uint8_t *bytes;
    uint64_t bit, bit_n; /* the next bit, and the number of bits in all */
    uint64_t next;       /* the least index that may follow */
    size_t left;         /* indices still to be read */
    uint32_t *list;      /* where the next one is written */
} tg_rice_reader;

#endif
