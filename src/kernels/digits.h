/* Symbols below a base, packed at their plain width: k symbols together are one number of a whole number of bits (pack/bits.c). */
#ifndef TG_KERNELS_DIGITS_H
#define TG_KERNELS_DIGITS_H

#include <stdint.h>

#define TG_BASE_MAX 512 /* symbols are below a base of at most this */

/* The grouping of one base: `symbols` digits below `base` fill `bits` bits, at most 48, the first digit lowest. */
typedef struct tg_digits {
    uint32_t base, symbols, bits;
} tg_digits;

#endif
