/* Floats of a few bits, times a step that suits the values of a chunk: CO3's conversion (arXiv 2203.09044, 2204.08211).
 *
 * A format is a sign, a few bits of exponent, of which the highest number is reserved, and a few of fraction, subnormals
 * included. Its values in ascending order are the symbols. A value travels as the nearest multiple of the step by one of
 * them, the lower one where two are as near, and the largest if it is beyond. The step is the one of the least mean square
 * error for a generalised normal with the moments of the chunk. */
#ifndef TG_QUANTIZE_MINIFLOAT_H
#define TG_QUANTIZE_MINIFLOAT_H

#include "quantize/bucket.h"

#define TG_MINIFLOAT_MAX 247 /* values that a format may have */

typedef struct tg_minifloat {
    int exponent_bits, fraction_bits, bias;
    int in_shapes; /* its column in the table of shapes */
    uint32_t values;
} tg_minifloat;

enum { TG_MINIFLOAT_SIDE = 5 }; /* step, and number of the shape */

void tg_minifloat_encode(const tg_bucket *b, const tg_minifloat *f);
void tg_minifloat_decode(float *values, const uint16_t *symbols, const uint8_t *side, size_t n, const tg_minifloat *f);

/* As tg_quantize_part says. */
bool tg_minifloat_lengths(uint8_t *lengths, const uint8_t *side, const tg_minifloat *f);
void tg_minifloat_fit(double *shape, double *scale, const uint8_t *side);

#endif
