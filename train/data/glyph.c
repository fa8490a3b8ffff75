/* Draws a digit with a round pen. How black a pixel is depends on its distance to the stroke, so edges are smooth. */
#include "data/glyph.h"

#include "data/random.h"

#include <math.h>

enum { PIECES = 6, SPECK_MAX = 5 };

/* The random numbers of one picture. */
typedef struct numbers {
    uint64_t key, used;
} numbers;

typedef struct point {
    double x, y;
} point;

typedef struct pen {
    double radius, strength;
} pen;

/* From the box of the shapes to pixels: bend, slant, stretch, turn, move. */
typedef struct pose {
    double bend[4];
    double slant, width, height;
    double cosine, sine;
    point middle;
} pose;

/* [low, high) */
static double between(numbers *n, double low, double high)
{
    double unit = tr_random_signed(tr_random_mix(n->key, n->used++));
    return (low + high) / 2 + unit * (high - low) / 2;
}

/* One statement per random number: compilers may evaluate an expression or an initialiser list in any order. */
static point draw_point(numbers *n, double low, double high)
{
    point p;
    p.x = between(n, low, high);
    p.y = between(n, low, high);
    return p;
}

static pen draw_pen(numbers *n, double thin, double thick)
{
    pen p;
    p.radius = between(n, thin, thick);
    p.strength = between(n, 0.55, 1);
    return p;
}

/* An angle is drawn as the tangent of its half, so that sine and cosine need only divisions. */
static pose draw_pose(numbers *n)
{
    pose p;
    for (int i = 0; i < 4; i++) {
        p.bend[i] = between(n, -0.22, 0.22);
    }
    p.slant = between(n, -0.35, 0.25);
    p.width = between(n, 3.8, 7.2);
    p.height = between(n, 6.2, 10.2);
    double half = between(n, -0.2, 0.2);
    p.cosine = (1 - half * half) / (1 + half * half);
    p.sine = 2 * half / (1 + half * half);
    p.middle = draw_point(n, (TR_GLYPH_SIDE - 1) / 2.0 - 3.5, (TR_GLYPH_SIDE - 1) / 2.0 + 3.5);
    return p;
}

/* Bending depends on the point's position alone, so that curves that meet still do. */
static point place(const pose *p, double box_x, double box_y)
{
    double x = box_x / 10, y = box_y / 16;
    double bent_x = x + p->bend[0] * y * y + p->bend[1] * x * y;
    double bent_y = y + p->bend[2] * x * x + p->bend[3] * x * y;
    x = (bent_x - p->slant * bent_y) * p->width;
    y = bent_y * p->height;
    return (point){p->middle.x + p->cosine * x - p->sine * y, p->middle.y + p->sine * x + p->cosine * y};
}

static double distance_squared(point at, point from, point to)
{
    double dx = to.x - from.x, dy = to.y - from.y, len = dx * dx + dy * dy;
    double along = len > 0 ? ((at.x - from.x) * dx + (at.y - from.y) * dy) / len : 0;
    along = along < 0 ? 0 : along > 1 ? 1 : along;
    double x = at.x - from.x - along * dx, y = at.y - from.y - along * dy;
    return x * x + y * y;
}

/* The pixels from `low` - reach to `high` + reach, clipped to the image. */
static void pixel_range(int *first, int *last, double low, double high, double reach)
{
    if (low > high) {
        double other = low;
        low = high;
        high = other;
    }
    *first = low - reach < 0 ? 0 : (int)(low - reach);
    *last = high + reach > TR_GLYPH_SIDE - 1 ? TR_GLYPH_SIDE - 1 : (int)(high + reach);
}

static void draw_line(double ink[TR_GLYPH_LEN], point from, point to, const pen *with)
{
    int left, right, top, bottom;
    double reach = with->radius + 0.5;
    pixel_range(&left, &right, from.x, to.x, reach);
    pixel_range(&top, &bottom, from.y, to.y, reach);
    for (int y = top; y <= bottom; y++) {
        for (int x = left; x <= right; x++) {
            double squared = distance_squared((point){x, y}, from, to);
            if (squared >= reach * reach) {
                continue;
            }
            double cover = reach - sqrt(squared);
            double black = (cover > 1 ? 1 : cover) * with->strength;
            double *at = &ink[y * TR_GLYPH_SIDE + x];
            *at = black > *at ? black : *at;
        }
    }
}

static void draw_curve(double ink[TR_GLYPH_LEN], const tr_glyph_curve *c, const pose *p, const pen *with)
{
    point from = place(p, c->x0, c->y0);
    for (int i = 1; i <= PIECES; i++) {
        double t = (double)i / PIECES, a = (1 - t) * (1 - t), b = 2 * t * (1 - t), d = t * t;
        point to = place(p, a * c->x0 + b * c->x1 + d * c->x2, a * c->y0 + b * c->y1 + d * c->y2);
        draw_line(ink, from, to, with);
        from = to;
    }
}

/* Draws short lines at random positions, paler than the digit, as distractors. */
static void draw_specks(double ink[TR_GLYPH_LEN], numbers *n)
{
    int speck_n = (int)between(n, 0, SPECK_MAX + 1);
    for (int i = 0; i < speck_n; i++) {
        point from = draw_point(n, 0, TR_GLYPH_SIDE), by = draw_point(n, -6, 6);
        pen thin = draw_pen(n, 0.4, 1);
        thin.strength *= 0.75;
        point to = {from.x + by.x, from.y + by.y};
        draw_line(ink, from, to, &thin);
    }
}

/* About normal, deviation 1: the sum of four numbers from 0 to 15 has mean 30 and deviation 9.2. */
static double noise_of(uint64_t bits)
{
    uint64_t sum = (bits & 15) + (bits >> 4 & 15) + (bits >> 8 & 15) + (bits >> 12 & 15);
    return ((double)sum - 30) / 9.2;
}

static void develop(uint8_t out[TR_GLYPH_LEN], const double ink[TR_GLYPH_LEN], double noise, uint64_t key)
{
    uint64_t bits = 0;
    for (uint64_t i = 0; i < TR_GLYPH_LEN; i++) {
        bits = i % 4 == 0 ? tr_random_mix(key, i) : bits >> 16; /* 16 bits for each pixel */
        double value = ink[i] + noise * noise_of(bits);
        value = value < 0 ? 0 : value > 1 ? 1 : value;
        out[i] = (uint8_t)(value * 255 + 0.5);
    }
}

void tr_glyph_draw(uint8_t out[TR_GLYPH_LEN], uint32_t digit, uint64_t key)
{
    numbers n = {key, 0};
    double ink[TR_GLYPH_LEN] = {0};
    size_t curve_n;
    const tr_glyph_curve *curves = tr_glyph_shape(&curve_n, digit);
    pose p = draw_pose(&n);
    pen thick = draw_pen(&n, 0.5, 1.5);
    for (size_t i = 0; i < curve_n; i++) {
        draw_curve(ink, &curves[i], &p, &thick);
    }
    draw_specks(ink, &n);
    double noise = between(&n, 0.02, 0.18);
    develop(out, ink, noise, tr_random_key(TR_RANDOM_NOISE, key, 0));
}
