/* Draws the picture of a digit: strokes, bent and rotated at random, with distracting specks. */
#ifndef TR_DATA_GLYPH_H
#define TR_DATA_GLYPH_H

#include <stddef.h>
#include <stdint.h>

enum { TR_GLYPH_SIDE = 28, TR_GLYPH_LEN = TR_GLYPH_SIDE * TR_GLYPH_SIDE, TR_GLYPH_CLASSES = 10 };

/* Draws `digit` with the randomness of `key`. The bytes are the same on every machine, because only operations are used that
 * IEEE 754 rounds correctly (no sine, no power). */
void tr_glyph_draw(uint8_t out[TR_GLYPH_LEN], uint32_t digit, uint64_t key);

/* glyph_shapes.c: a curve from (x0, y0) to (x2, y2) that leaves and arrives in the direction of (x1, y1), a quadratic
 * Bezier curve, in a box from (-10, -16), top left, to (10, 16). */
typedef struct tr_glyph_curve {
    int8_t x0, y0, x1, y1, x2, y2;
} tr_glyph_curve;

const tr_glyph_curve *tr_glyph_shape(size_t *curve_n, uint32_t digit);

#endif
