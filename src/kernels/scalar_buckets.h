/* Hot loops of quantizers in buckets in plain C, element by element: the rest of the reference (scalar.c). */
#ifndef TG_KERNELS_SCALAR_BUCKETS_H
#define TG_KERNELS_SCALAR_BUCKETS_H

#include "tersegrad/tersegrad.h"

#include <stdbool.h>

void tg_scalar_draw(uint32_t *words, uint64_t key, uint64_t block, uint32_t other, size_t block_n, const void *ahead);
void tg_scalar_ternary(uint16_t *symbols, const float *values, const uint32_t *draws, float largest, size_t n);
void tg_scalar_levels(uint16_t *symbols, const float *values, const uint32_t *draws, float shift, float factor,
                      uint32_t most, size_t n);
void tg_scalar_natural(uint16_t *symbols, const float *values, const uint32_t *draws, size_t n);
void tg_scalar_signs(uint16_t *symbols, const float *values, size_t n);
void tg_scalar_powers(float *values, const uint16_t *symbols, size_t n);
void tg_scalar_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n);
void tg_scalar_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n, size_t n);
void tg_scalar_round_between(uint16_t *symbols, const float *values, const uint32_t *draws, const float *bounds,
                             uint32_t bound_n, float scale, size_t n);
void tg_scalar_look_up(float *values, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);
void tg_scalar_look_up_add(float *sums, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);
size_t tg_scalar_sums_around(double around[2], const float *values, float threshold, float scale, size_t n);
size_t tg_scalar_moments(double of[2], const float *values, size_t n);
double tg_scalar_squares(const float *values, size_t n);

/* Them, in a table of kernels. */
#define TG_SCALAR_BUCKETS                                                                                           \
    .draw = tg_scalar_draw, .ternary = tg_scalar_ternary, .levels = tg_scalar_levels, .natural = tg_scalar_natural, \
    .signs = tg_scalar_signs, .powers = tg_scalar_powers, .mark_above = tg_scalar_mark_above,                       \
    .count_above = tg_scalar_count_above, .round_between = tg_scalar_round_between, .look_up = tg_scalar_look_up,   \
    .look_up_add = tg_scalar_look_up_add, .sums_around = tg_scalar_sums_around, .moments = tg_scalar_moments,       \
    .squares = tg_scalar_squares

#endif
