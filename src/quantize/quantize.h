/* Quantize: how a value is written, as a symbol of a number of bits. */
#ifndef TG_QUANTIZE_QUANTIZE_H
#define TG_QUANTIZE_QUANTIZE_H

#include "base/part.h"

#include <stdint.h>

typedef struct tg_quantize_part {
    tg_part part;
    uint32_t symbol_bits; /* 1, 2, 4, 8, 16 or 32 */
    bool adds_up; /* the mean of decoded values can be written by the same part with nothing lost but rounding */

    /* A scale: one number that decoded values are in proportion to. It is of the whole unit and known only when all of
     * that was seen, so symbols must not depend on it, and `decoded` is 0 for now. It is the mean magnitude of what
     * was sent or, where of_bins says so, of the largest of each bin. */
    bool has_scale;
    bool (*of_bins)(const double *params);

    /* Symbols of n values, and what a decoder will make of them. */
    void (*encode)(uint32_t *symbols, float *decoded, const float *values, size_t n);
    void (*decode)(float *values, const uint32_t *symbols, size_t n, float scale);
} tg_quantize_part;

#endif
