/* Kernels for AVX-512 (F, BW, VL, DQ), in files by idea, and the helpers that these share. Each kernel gives the bits of the
 * scalar one of its name. The caller has checked that the CPU has these instructions (kernels.c). */
#ifndef TG_KERNELS_AVX512_H
#define TG_KERNELS_AVX512_H

#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TG_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi,bmi2,f16c,popcnt")))
#define TG_AVX512_INLINE static inline __attribute__((always_inline, unused)) TG_AVX512

/* Masks of the sixteen lanes of a vector that begins `left` elements before the end. Loops take ALL for whole vectors, since masked
 * stores are slow on some CPUs; compilers leave out a mask that is constant and full. */
enum { ALL = 0xffff };

TG_AVX512_INLINE __mmask16 lanes_of(size_t left)
{
    return (__mmask16)(left >= 16 ? ALL : (1u << left) - 1);
}

/* avx512_passes.c */
bool tg_avx512_all_finite(const float *values, size_t n);
bool tg_avx512_accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                          bool non_temporal);
bool tg_avx512_subtract(float *out, const float *a, const float *b, size_t n, bool non_temporal);
bool tg_avx512_divide(float *out, const float *values, float divisor, size_t n, bool non_temporal);
void tg_avx512_copy(float *out, const float *values, size_t n, bool non_temporal);
void tg_avx512_stream_bytes(uint8_t *out, const uint8_t *bytes, size_t len);
void tg_avx512_add(float *sums, const float *values, float weight, size_t n);

/* avx512_hash.c */
uint64_t tg_avx512_hash_leaf(const uint8_t *bytes, const tg_prefetch *next);

/* avx512_halves.c */
bool tg_avx512_halves_all_finite(const void *halves, uint16_t exponent, size_t n);
bool tg_avx512_fp16_narrow(void *halves, const float *values, size_t n);
void tg_avx512_fp16_widen(float *out, const void *halves, size_t n);
void tg_avx512_fp16_add(float *sums, const void *halves, float weight, size_t n);
bool tg_avx512_bf16_narrow(void *halves, const float *values, size_t n);
void tg_avx512_bf16_widen(float *out, const void *halves, size_t n);
void tg_avx512_bf16_add(float *sums, const void *halves, float weight, size_t n);

/* avx512_select.c */
uint32_t tg_avx512_largest_key(const float *values, size_t n);
void tg_avx512_mark_keys(uint64_t *mask, const float *values, uint32_t least, size_t n);
void tg_avx512_mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least,
                        size_t n);
size_t tg_avx512_list_marks(uint32_t *list, const uint64_t *mask, uint32_t first, size_t n);
size_t tg_avx512_compress(float *out, const float *values, const uint64_t *mask, size_t n);
void tg_avx512_expand_add(float *out, const uint64_t *mask, const float *values, float weight, size_t n);
void tg_avx512_expand_set(float *out, const uint64_t *mask, const float *values, size_t n);

/* avx512_philox.c */
void tg_avx512_draw(uint16_t *upper, uint64_t key, uint64_t block, uint32_t other, size_t block_n,
                    const void *prefetch);

/* avx512_symbols.c */
void tg_avx512_ternary(uint16_t *symbols, const float *values, const tg_draws *draws, float largest, size_t n);
void tg_avx512_two_sided(uint16_t *symbols, const float *values, const tg_draws *draws, float level, size_t n);
void tg_avx512_levels(uint16_t *symbols, const float *values, const tg_draws *draws, float shift, float factor,
                      uint32_t most, size_t n);
void tg_avx512_natural(uint16_t *symbols, const float *values, const tg_draws *draws, size_t n);
void tg_avx512_signs(uint16_t *symbols, const float *values, size_t n);
void tg_avx512_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n);
void tg_avx512_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n, size_t n);
void tg_avx512_round_between(uint16_t *symbols, const float *values, const tg_draws *draws, const float *bounds,
                             uint32_t bound_n, float scale, size_t n);
void tg_avx512_powers(float *values, const uint16_t *symbols, size_t n);
void tg_avx512_look_up(float *values, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);
void tg_avx512_look_up_add(float *sums, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);

/* avx512_minifloat.c */
void tg_avx512_minifloats(uint16_t *symbols, const float *values, float step, tg_float_format f, size_t n);

/* avx512_sums.c */
double tg_avx512_magnitudes(const float *values, size_t n);
double tg_avx512_squares(const float *values, size_t n);
size_t tg_avx512_moments(double of[2], const float *values, size_t n);
size_t tg_avx512_sums_around(double around[2], const float *values, float threshold, float scale, size_t n);
size_t tg_avx512_sum_above(double *sum, const float *values, float threshold, size_t n);

/* avx512_order.c */
void tg_avx512_ends(float ends[2], const float *values, size_t n);
tg_ordered tg_avx512_nth(float *scratch, const float *values, size_t n, size_t m);
void tg_avx512_split(float *out, const float *values, size_t n, const tg_ordered *at);
uint64_t tg_avx512_ways_up(const float *values, double high, double scale, size_t n);

/* avx512_bits_write.c and avx512_bits_read.c */
void tg_avx512_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d);
bool tg_avx512_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d);
bool tg_avx512_numbers_below(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit);

/* avx512_count.c */
void tg_avx512_count(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base);

/* avx512_words.c */
void tg_avx512_split_words(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, uint32_t word_len, size_t n);
void tg_avx512_join_words(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, uint32_t word_len, size_t n);

/* avx512_rans.c */
void tg_avx512_rans_push(tg_rans_writer *w, size_t writer_n, uint32_t lane_n, const tg_rans_plans *plans);
void tg_avx512_rans_pull(tg_rans_reader *r, size_t reader_n, uint32_t lane_n, const uint8_t *end,
                         const tg_rans_slots *slots);
#endif

#endif
