/* Kernels for NEON, which every AArch64 CPU has, in files by idea, and the helpers that these share. Each kernel gives the bits of
 * the scalar one of its name, provided that the CPU is not set to flush subnormal numbers to zero. */
#ifndef TG_KERNELS_NEON_H
#define TG_KERNELS_NEON_H

#include "kernels/kernels.h"

#if defined(__AARCH64EL__)
#include <arm_neon.h>

#define TG_NEON_INLINE static inline __attribute__((always_inline, unused))

/* neon_passes.c */
bool tg_neon_all_finite(const float *values, size_t n);
bool tg_neon_accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                        bool non_temporal);
bool tg_neon_subtract(float *out, const float *a, const float *b, size_t n, bool non_temporal);
bool tg_neon_divide(float *out, const float *values, float divisor, size_t n, bool non_temporal);
void tg_neon_add(float *sums, const float *values, float weight, size_t n);

/* neon_halves.c */
bool tg_neon_fp16_narrow(void *halves, const float *values, size_t n);
bool tg_neon_bf16_narrow(void *halves, const float *values, size_t n);
void tg_neon_fp16_widen(float *out, const void *halves, size_t n);
void tg_neon_fp16_add(float *sums, const void *halves, float weight, size_t n);

/* neon_select.c */
uint32_t tg_neon_largest_key(const float *values, size_t n);
void tg_neon_mark_keys(uint64_t *mask, const float *values, uint32_t least, size_t n);
void tg_neon_mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least, size_t n);
size_t tg_neon_list_marks(uint32_t *list, const uint64_t *mask, uint32_t first, size_t n);

/* neon_philox.c */
void tg_neon_draw(uint16_t *upper, uint64_t key, uint64_t block, uint32_t other, size_t block_n, const void *prefetch);

/* neon_symbols.c */
void tg_neon_ternary(uint16_t *symbols, const float *values, const tg_draws *draws, float largest, size_t n);
void tg_neon_two_sided(uint16_t *symbols, const float *values, const tg_draws *draws, float level, size_t n);
void tg_neon_levels(uint16_t *symbols, const float *values, const tg_draws *draws, float shift, float factor,
                    uint32_t most, size_t n);
void tg_neon_natural(uint16_t *symbols, const float *values, const tg_draws *draws, size_t n);
void tg_neon_signs(uint16_t *symbols, const float *values, size_t n);
void tg_neon_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n);
void tg_neon_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n, size_t n);
void tg_neon_round_between(uint16_t *symbols, const float *values, const tg_draws *draws, const float *bounds,
                           uint32_t bound_n, float scale, size_t n);
void tg_neon_powers(float *values, const uint16_t *symbols, size_t n);
void tg_neon_look_up(float *values, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);
void tg_neon_look_up_add(float *sums, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);

/* neon_minifloat.c */
void tg_neon_minifloats(uint16_t *symbols, const float *values, float step, tg_float_format f, size_t n);

/* neon_sums.c */
double tg_neon_magnitudes(const float *values, size_t n);
double tg_neon_squares(const float *values, size_t n);
size_t tg_neon_moments(double of[2], const float *values, size_t n);
size_t tg_neon_sums_around(double around[2], const float *values, float threshold, float scale, size_t n);
size_t tg_neon_sum_above(double *sum, const float *values, float threshold, size_t n);

/* neon_order.c */
void tg_neon_ends(float ends[2], const float *values, size_t n);
tg_ordered tg_neon_nth(float *scratch, const float *values, size_t n, size_t m);
void tg_neon_split(float *out, const float *values, size_t n, const tg_ordered *at);
uint64_t tg_neon_ways_up(const float *values, double high, double scale, size_t n);

/* neon_bits_write.c and neon_bits_read.c */
void tg_neon_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d);
bool tg_neon_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d);
bool tg_neon_numbers_below(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit);

/* neon_count.c */
void tg_neon_count(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base);

/* neon_words.c */
void tg_neon_split_words(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, uint32_t word_len, size_t n);
void tg_neon_join_words(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, uint32_t word_len, size_t n);

/* neon_rans.c */
void tg_neon_rans_push(tg_rans_writer *w, size_t writer_n, uint32_t lane_n, const tg_rans_plans *plans);
void tg_neon_rans_pull(tg_rans_reader *r, size_t reader_n, uint32_t lane_n, const uint8_t *end,
                       const tg_rans_slots *slots);
#endif

#endif
