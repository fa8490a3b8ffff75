/* Kernels for AVX-512 (F, BW, VL, DQ) that stand in files of their own. Each mirrors the scalar one of its name; whoever calls
 * them has looked whether the processor can. */
#ifndef TG_KERNELS_AVX512_H
#define TG_KERNELS_AVX512_H

#include "kernels/kernels.h"

/* avx512_passes.c */
bool tg_avx512_all_finite(const float *values, size_t n);
bool tg_avx512_accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n, bool streams);
bool tg_avx512_subtract(float *out, const float *a, const float *b, size_t n, bool streams);
void tg_avx512_copy(float *out, const float *values, size_t n, bool streams);
void tg_avx512_stream_bytes(uint8_t *out, const uint8_t *bytes, size_t len);
void tg_avx512_add(float *sums, const float *values, float weight, size_t n);
bool tg_avx512_fp16_narrow(void *halves, const float *values, size_t n);
void tg_avx512_fp16_add(float *sums, const void *halves, float weight, size_t n);
bool tg_avx512_bf16_narrow(void *halves, const float *values, size_t n);
void tg_avx512_bf16_add(float *sums, const void *halves, float weight, size_t n);

/* avx512_buckets.c */
void tg_avx512_draw(uint32_t *words, uint64_t key, uint64_t block, uint32_t other, size_t block_n, const void *ahead);
void tg_avx512_look_up(float *values, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n);
void tg_avx512_look_up_add(float *sums, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n);
void tg_avx512_round_between(uint16_t *symbols, const float *values, const uint32_t *draws, const float *bounds,
                             uint32_t bound_n, float scale, size_t n);
void tg_avx512_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n, size_t n);
size_t tg_avx512_sums_around(double around[2], const float *values, float threshold, float scale, size_t n);
size_t tg_avx512_moments(double of[2], const float *values, size_t n);
double tg_avx512_squares(const float *values, size_t n);

/* avx512_rounding.c */
void tg_avx512_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n);
void tg_avx512_ternary(uint16_t *symbols, const float *values, const uint32_t *draws, float largest, size_t n);
void tg_avx512_levels(uint16_t *symbols, const float *values, const uint32_t *draws, float shift, float factor,
                      uint32_t most, size_t n);
void tg_avx512_natural(uint16_t *symbols, const float *values, const uint32_t *draws, size_t n);
void tg_avx512_signs(uint16_t *symbols, const float *values, size_t n);
void tg_avx512_powers(float *values, const uint16_t *symbols, size_t n);

/* avx512_select.c */
size_t tg_avx512_list_marks(uint32_t *list, const uint64_t *mask, size_t n);
void tg_avx512_ends(float ends[2], const float *values, size_t n);
tg_ordered tg_avx512_nth(float *room, const float *values, size_t n, size_t m);
void tg_avx512_split(float *out, const float *values, size_t n, const tg_ordered *at);
uint64_t tg_avx512_ways_up(const float *values, double high, double scale, size_t n);

/* avx512_count.c */
size_t tg_avx512_count_few(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base);

/* avx512_bits.c */
size_t tg_avx512_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d);
size_t tg_avx512_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d, bool *sound);
bool tg_avx512_numbers_below(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit);

#endif
