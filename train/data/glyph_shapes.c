/* The ten digits as curves; see glyph.h for the box that they stand in. */
#include "data/glyph.h"

/* A straight line is a curve whose control point is on the line. */
#define LINE(x0, y0, x2, y2)                                 \
    {                                                        \
        x0, y0, ((x0) + (x2)) / 2, ((y0) + (y2)) / 2, x2, y2 \
    }
/* Four quarters around (x, y), through x +- a and y +- b. */
#define RING(x, y, a, b)                                                                                    \
    {x, (y) - (b), (x) + (a), (y) - (b), (x) + (a), y}, {(x) + (a), y, (x) + (a), (y) + (b), x, (y) + (b)}, \
        {x, (y) + (b), (x) - (a), (y) + (b), (x) - (a), y},                                                 \
    {                                                                                                       \
        (x) - (a), y, (x) - (a), (y) - (b), x, (y) - (b)                                                    \
    }

static const tr_glyph_curve zero[] = {RING(0, 0, 10, 16)};
static const tr_glyph_curve one[] = {LINE(-6, -8, 1, -16), LINE(1, -16, 1, 16)};
static const tr_glyph_curve two[] = {
    {-10, -9, -9, -16, 0, -16}, {0, -16, 9, -16, 9, -8}, {9, -8, 9, 0, -10, 16}, LINE(-10, 16, 10, 16)};
static const tr_glyph_curve three[] = {{-9, -13, -5, -16, 0, -16}, {0, -16, 9, -16, 9, -8}, {9, -8, 9, -1, -2, -1},
                                       {-2, -1, 10, -1, 10, 8},    {10, 8, 10, 16, 0, 16},  {0, 16, -7, 16, -10, 11}};
static const tr_glyph_curve four[] = {LINE(4, -16, -10, 6), LINE(-10, 6, 10, 6), LINE(4, -16, 4, 16)};
static const tr_glyph_curve five[] = {LINE(8, -16, -8, -16),  LINE(-8, -16, -9, -1),   {-9, -1, -4, -4, 0, -4},
                                      {0, -4, 10, -4, 10, 6}, {10, 6, 10, 16, -1, 16}, {-1, 16, -7, 16, -10, 12}};
static const tr_glyph_curve six[] = {{6, -16, -9, -11, -9, 6},
                                     {-9, 6, -9, 16, 0, 16},
                                     {0, 16, 10, 16, 10, 6},
                                     {10, 6, 10, -3, 1, -3},
                                     {1, -3, -7, -3, -9, 6}};
static const tr_glyph_curve seven[] = {LINE(-10, -16, 10, -16), {10, -16, -1, -2, -2, 16}};
static const tr_glyph_curve eight[] = {RING(0, -8, 8, 8), RING(0, 8, 10, 8)};
static const tr_glyph_curve nine[] = {{-6, 16, 9, 11, 9, -6},
                                      {9, -6, 9, -16, 0, -16},
                                      {0, -16, -10, -16, -10, -6},
                                      {-10, -6, -10, 3, -1, 3},
                                      {-1, 3, 7, 3, 9, -6}};

#define SHAPE(digit)                        \
    {                                       \
        digit, sizeof digit / sizeof *digit \
    }

const tr_glyph_curve *tr_glyph_shape(size_t *curve_n, uint32_t digit)
{
    static const struct {
        const tr_glyph_curve *curves;
        size_t n;
    } shapes[TR_GLYPH_CLASSES] = {SHAPE(zero), SHAPE(one), SHAPE(two),   SHAPE(three), SHAPE(four),
                                  SHAPE(five), SHAPE(six), SHAPE(seven), SHAPE(eight), SHAPE(nine)};
    *curve_n = shapes[digit].n;
    return shapes[digit].curves;
}
