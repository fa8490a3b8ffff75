/* Random rounding. Each value has 32 random bits w; r is w / 2^32, rounded towards zero to a float (docs/format.md, section 8).
 * Kernels are given the upper 16 bits, the draws. These nearly always decide whether r x < y, because r is between draw * 2^-16
 * and (draw + 1) * 2^-16, and rounding a product keeps order. The lower 16 bits are computed only where they do not. */
#ifndef TG_KERNELS_DRAWS_H
#define TG_KERNELS_DRAWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tg_draws {
    const uint16_t *upper; /* one for each value */
    uint64_t key, at;      /* value i has number at + i in this stream ... */
    uint32_t other;        /* ... and in this sequence of it */
} tg_draws;

/* Fills `upper`, n draws, by the `draw` kernel, which draws whole blocks: up to TG_DRAWS_MORE more are overwritten. `prefetch` as
 * there. */
enum { TG_DRAWS_MORE = 7 };

tg_draws tg_draw(uint16_t *upper, uint64_t key, uint64_t at, size_t n, uint32_t other, const void *prefetch);

/* The draws from value i on. */
static inline tg_draws tg_draws_from(const tg_draws *d, size_t i)
{
    return (tg_draws){d->upper + i, d->key, d->at + i, d->other};
}

/* All random bits of value i. */
uint32_t tg_draw_bits(const tg_draws *d, size_t i);

/* r of value i. */
float tg_draw_unit(const tg_draws *d, size_t i);

/* r x < y in binary32, whatever the draw. */
bool tg_draw_settle(const tg_draws *d, size_t i, float x, float y);

/* The same; the draw decides if it can. x >= 0. */
static inline bool tg_draw_below(const tg_draws *d, size_t i, float x, float y)
{
    float low = (float)d->upper[i] * 0x1p-16f, high = low + 0x1p-16f;
    return high * x < y || (low * x < y && tg_draw_settle(d, i, x, y));
}

#endif
