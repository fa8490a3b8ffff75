/* Floats of a few bits, times a step that is fitted to a chunk: the conversion of CO3 (arXiv 2203.09044, 2204.08211).
 *
 * A format has a sign, a few bits of exponent, the highest of which is reserved, and a few bits of fraction; subnormals are
 * included. Symbols number its values in ascending order. A gradient value is rounded to the nearest product of the step and
 * a value of the format; ties go to the lower one, and values out of range become the largest. The step minimises the mean
 * squared error for a generalised normal distribution with the moments of the chunk. */
#ifndef TG_QUANTIZE_MINIFLOAT_H
#define TG_QUANTIZE_MINIFLOAT_H

#include "quantize/bucket.h"

#define TG_MINIFLOAT_MAX 247 /* maximum number of values of a format */

typedef struct tg_minifloat {
    int exponent_bits, fraction_bits, bias;
    int in_shapes;   /* its column in the table of shapes (shapes.h) */
    uint32_t values; /* number of values */
} tg_minifloat;

enum { TG_MINIFLOAT_SIDE = 5 }; /* bytes of side data: the step (4), the row of the shape (1) */

#define TG_REFIT_PARAM                                                                                          \
    {                                                                                                           \
        .name = "refit", .summary = "fit in every so many steps, and use the last fit in between", .lowest = 1, \
        .highest = 1e9, .is_whole = true, .standard = 1                                                         \
    }

void tg_minifloat_encode(const tg_bucket *b, const tg_minifloat *f);

/* Implement `table`, `lengths` and `fit` of tg_quantize_part. A decoded value is the product of step and value, rounded once. It
 * saturates: if the step is finite, so is every value. */
uint32_t tg_minifloat_table(float *decoded, const uint8_t *side, const tg_minifloat *f);
bool tg_minifloat_lengths(uint8_t *lengths, const uint8_t *side, const tg_minifloat *f);
void tg_minifloat_fit(double *shape, double *scale, const uint8_t *side);

#endif
