/* Scalar kernels that tables of other instruction sets use as well, or fall back on. Each is described in kernels.h. */
#ifndef TG_KERNELS_SCALAR_H
#define TG_KERNELS_SCALAR_H

#include "kernels/kernels.h"

/* scalar.c */
bool tg_scalar_accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                          bool non_temporal);
bool tg_scalar_subtract(float *out, const float *a, const float *b, size_t n, bool non_temporal);
void tg_scalar_copy(float *out, const float *values, size_t n, bool non_temporal);
void tg_scalar_stream_bytes(uint8_t *out, const uint8_t *bytes, size_t len);

/* hash.c */
uint64_t tg_scalar_hash_leaf(const uint8_t *bytes, const tg_prefetch *next);

/* scalar_buckets.c */
void tg_scalar_draw(uint16_t *upper, uint64_t key, uint64_t block, uint32_t other, size_t block_n,
                    const void *prefetch);
void tg_scalar_ternary(uint16_t *symbols, const float *values, const tg_draws *draws, float largest, size_t n);
void tg_scalar_two_sided(uint16_t *symbols, const float *values, const tg_draws *draws, float level, size_t n);
void tg_scalar_levels(uint16_t *symbols, const float *values, const tg_draws *draws, float shift, float factor,
                      uint32_t most, size_t n);
void tg_scalar_natural(uint16_t *symbols, const float *values, const tg_draws *draws, size_t n);
void tg_scalar_signs(uint16_t *symbols, const float *values, size_t n);
void tg_scalar_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n);
void tg_scalar_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n, size_t n);
void tg_scalar_round_between(uint16_t *symbols, const float *values, const tg_draws *draws, const float *bounds,
                             uint32_t bound_n, float scale, size_t n);
void tg_scalar_powers(float *values, const uint16_t *symbols, size_t n);
void tg_scalar_look_up(float *values, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);
void tg_scalar_look_up_add(float *sums, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);
double tg_scalar_magnitudes(const float *values, size_t n);
double tg_scalar_squares(const float *values, size_t n);
size_t tg_scalar_moments(double of[2], const float *values, size_t n);
size_t tg_scalar_sums_around(double around[2], const float *values, float threshold, float scale, size_t n);
size_t tg_scalar_sum_above(double *sum, const float *values, float threshold, size_t n);

/* scalar_order.c */
size_t tg_scalar_list_marks(uint32_t *list, const uint64_t *mask, uint32_t first, size_t n);
void tg_scalar_ends(float ends[2], const float *values, size_t n);
tg_ordered tg_scalar_nth(float *scratch, const float *values, size_t n, size_t m);
void tg_scalar_split(float *out, const float *values, size_t n, const tg_ordered *at);
uint64_t tg_scalar_ways_up(const float *values, double high, double scale, size_t n);

/* scalar_bits.c */
void tg_scalar_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d);
bool tg_scalar_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d);
bool tg_scalar_numbers_below(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit);

/* scalar_count.c */
void tg_scalar_count(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base);

/* scalar_factors.c */
bool tg_scalar_multiply(float *sums, const tg_matrix *m, size_t row_n, const float *factor, size_t stride,
                        uint32_t rank, uint32_t limit, size_t n);
void tg_scalar_multiply_back(float *sums, size_t sum_stride, const tg_matrix *m, size_t row_n, const float *factor,
                             size_t stride, uint32_t rank, size_t n);
void tg_scalar_expand(float *averages, float *residual, const tg_matrix *m, size_t row_n, const float *weights,
                      const float *factor, size_t stride, uint32_t rank, size_t n);
void tg_scalar_dots(double *sums, const float *column, const float *others, size_t stride, uint32_t other_n, size_t n);
void tg_scalar_project(float *column, const float *others, size_t stride, const double *shares, uint32_t other_n,
                       size_t n);

#endif
