/* Quantize: how a value is written, as a symbol of a whole number of bytes. */
#ifndef TG_QUANTIZE_QUANTIZE_H
#define TG_QUANTIZE_QUANTIZE_H

#include "base/part.h"

#include <stdint.h>

typedef struct tg_quantize_part {
    tg_part part;
    uint32_t symbol_len; /* bytes of a symbol: 1 to 4 */
    bool adds_up;        /* the mean of decoded values can be written by the same part with nothing lost but rounding */

    /* Symbols of n values, and what a decoder will make of them. */
    void (*encode)(uint32_t *symbols, float *decoded, const float *values, size_t n);
    void (*decode)(float *values, const uint32_t *symbols, size_t n);
} tg_quantize_part;

#endif
