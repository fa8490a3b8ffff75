/* A format of small floats (quantize/minifloat.h) in the form that kernels take. */
#ifndef TG_KERNELS_MINIFLOAT_H
#define TG_KERNELS_MINIFLOAT_H

#include <stdint.h>

/* Magnitudes are numbered from 0 in ascending order. Those below 2^fraction_bits are subnormal: multiples of
 * 2^(1 - bias - fraction_bits). There are at most 16 of these. */
typedef struct tg_float_format {
    uint32_t fraction_bits, bias;
    uint32_t largest; /* number of the largest magnitude; symbols are `largest` plus or minus a number */
} tg_float_format;

#endif
