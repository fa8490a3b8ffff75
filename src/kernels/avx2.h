/* Kernels for AVX2 with BMI1, BMI2 and F16C, in files by idea, and the helpers that these share. Each kernel gives the bits of the
 * scalar one of its name. The caller has checked that the CPU has these instructions (kernels.c). */
#ifndef TG_KERNELS_AVX2_H
#define TG_KERNELS_AVX2_H

#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TG_AVX2 __attribute__((target("avx2,bmi,bmi2,f16c,popcnt")))
#define TG_AVX2_INLINE static inline __attribute__((always_inline, unused)) TG_AVX2

enum { PREFETCH_DISTANCE = 512 }; /* in elements */

/* avx2_places.c: the positions of the set bits of a mask, the first in the lowest byte; the same, the last in the highest byte;
 * and for each bit the number of set bits below it. */
extern const uint64_t tg_avx2_marked[256], tg_avx2_marked_last[256], tg_avx2_ranks[256];

/* An entry of these tables as indices of 32-bit lanes. */
TG_AVX2_INLINE __m256i lanes_in(const uint64_t *entry)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)entry));
}

/* avx2_passes.c */
bool tg_avx2_all_finite(const float *values, size_t n);
bool tg_avx2_accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                        bool non_temporal);
bool tg_avx2_subtract(float *out, const float *a, const float *b, size_t n, bool non_temporal);
bool tg_avx2_divide(float *out, const float *values, float divisor, size_t n, bool non_temporal);
void tg_avx2_copy(float *out, const float *values, size_t n, bool non_temporal);
void tg_avx2_stream_bytes(uint8_t *out, const uint8_t *bytes, size_t len);
void tg_avx2_add(float *sums, const float *values, float weight, size_t n);

/* avx2_hash.c */
uint64_t tg_avx2_hash_leaf(const uint8_t *bytes, const tg_prefetch *next);

/* avx2_halves.c */
bool tg_avx2_halves_all_finite(const void *halves, uint16_t exponent, size_t n);
bool tg_avx2_fp16_narrow(void *halves, const float *values, size_t n);
void tg_avx2_fp16_widen(float *out, const void *halves, size_t n);
void tg_avx2_fp16_add(float *sums, const void *halves, float weight, size_t n);
bool tg_avx2_bf16_narrow(void *halves, const float *values, size_t n);
void tg_avx2_bf16_widen(float *out, const void *halves, size_t n);
void tg_avx2_bf16_add(float *sums, const void *halves, float weight, size_t n);

/* avx2_select.c */
uint32_t tg_avx2_largest_key(const float *values, size_t n);
void tg_avx2_mark_keys(uint64_t *mask, const float *values, uint32_t least, size_t n);
void tg_avx2_mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least, size_t n);
size_t tg_avx2_list_marks(uint32_t *list, const uint64_t *mask, uint32_t first, size_t n);

/* avx2_philox.c */
void tg_avx2_draw(uint16_t *upper, uint64_t key, uint64_t block, uint32_t other, size_t block_n, const void *prefetch);

/* avx2_symbols.c */
void tg_avx2_ternary(uint16_t *symbols, const float *values, const tg_draws *draws, float largest, size_t n);
void tg_avx2_two_sided(uint16_t *symbols, const float *values, const tg_draws *draws, float level, size_t n);
void tg_avx2_levels(uint16_t *symbols, const float *values, const tg_draws *draws, float shift, float factor,
                    uint32_t most, size_t n);
void tg_avx2_natural(uint16_t *symbols, const float *values, const tg_draws *draws, size_t n);
void tg_avx2_signs(uint16_t *symbols, const float *values, size_t n);
void tg_avx2_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n);
void tg_avx2_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n, size_t n);
void tg_avx2_round_between(uint16_t *symbols, const float *values, const tg_draws *draws, const float *bounds,
                           uint32_t bound_n, float scale, size_t n);
void tg_avx2_powers(float *values, const uint16_t *symbols, size_t n);
void tg_avx2_look_up(float *values, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);
void tg_avx2_look_up_add(float *sums, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);

/* avx2_minifloat.c */
void tg_avx2_minifloats(uint16_t *symbols, const float *values, float step, tg_float_format f, size_t n);

/* avx2_sums.c */
double tg_avx2_magnitudes(const float *values, size_t n);
double tg_avx2_squares(const float *values, size_t n);
size_t tg_avx2_moments(double of[2], const float *values, size_t n);
size_t tg_avx2_sums_around(double around[2], const float *values, float threshold, float scale, size_t n);
size_t tg_avx2_sum_above(double *sum, const float *values, float threshold, size_t n);

/* avx2_order.c */
void tg_avx2_ends(float ends[2], const float *values, size_t n);
tg_ordered tg_avx2_nth(float *scratch, const float *values, size_t n, size_t m);
void tg_avx2_split(float *out, const float *values, size_t n, const tg_ordered *at);
uint64_t tg_avx2_ways_up(const float *values, double high, double scale, size_t n);

/* avx2_bits_write.c and avx2_bits_read.c */
void tg_avx2_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d);
bool tg_avx2_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d);
bool tg_avx2_numbers_below(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit);

/* avx2_count.c */
void tg_avx2_count(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base);

/* avx2_words.c */
void tg_avx2_split_words(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, uint32_t word_len, size_t n);
void tg_avx2_join_words(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, uint32_t word_len, size_t n);

/* avx2_rans.c */
void tg_avx2_rans_push(tg_rans_writer *w, size_t writer_n, uint32_t lane_n, const tg_rans_plans *plans);
void tg_avx2_rans_pull(tg_rans_reader *r, size_t reader_n, uint32_t lane_n, const uint8_t *end,
                       const tg_rans_slots *slots);
#endif

#endif
