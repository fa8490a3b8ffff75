/* The hot loops, one function each, as every instruction set must compute them. Masks as in base/bits.h. */
#ifndef TG_KERNELS_KERNELS_H
#define TG_KERNELS_KERNELS_H

#include "tersegrad/tersegrad.h"

#include <stdbool.h>

/* tg_widen and tg_narrow of the public header are two of them. */

/* To fp16 or bf16, a half in each word, with what it is worth, and back. */
void tg_narrow_words(uint32_t *words, float *back, const float *values, tg_dtype dtype, size_t n);
void tg_widen_words(float *values, const uint32_t *words, tg_dtype dtype, size_t n);

/* Elements, each divided by `divisor`, from fp32 to a gradient. */
void tg_store(void *out, tg_dtype dtype, const float *values, float divisor, size_t n);

/* out[i] = factor * values[i]; a finite value stays finite. `out` may be `values`. */
void tg_scale(float *out, const float *values, float factor, size_t n);

bool tg_all_finite(const float *values, size_t n);
void tg_zero_nonfinite(float *values, size_t n);

/* The sum of n magnitudes, or of n squares, in binary64, in one order for all instruction sets: 16 sums of every 16th,
 * then these in order. */
double tg_sum_magnitudes(const float *values, size_t n);
double tg_sum_squares(const float *values, size_t n);

size_t tg_count_nonzero(const float *values, size_t n);

/* Gathers the marked values to the front of out; returns their number. */
size_t tg_compress(float *out, const float *values, const uint64_t *mask, size_t n);

/* out[i] += weight * value for marked i, values in order; all i if mask is NULL. Or sets out[i] = value. */
void tg_expand_add(float *out, const uint64_t *mask, const float *values, float weight, size_t n);
void tg_expand_set(float *out, const uint64_t *mask, const float *values, size_t n);

/* Rounds of 32 symbols by the 32 states of a range coder (pack/rans_coder.h), as long as there are 64 bytes of words for
 * each; returns the number of symbols. */
typedef struct tg_rans_slots {
    const uint32_t
        *slots;       /* one for each of the low 12 bits of a state: symbol, from bit 8 on its frequency less 1, from
                              bit 20 on how far into it the slot is */
    uint32_t few[16]; /* frequencies of the symbols, if they are no more than so many ... */
    bool are_few;     /* ... which this says */
} tg_rans_slots;

size_t tg_rans_rounds(uint16_t *symbols, uint32_t states[32], const uint8_t **words, const uint8_t *end, size_t count,
                      const tg_rans_slots *slots);

/* ---- by instruction set ---------------------------------------------------------------------------------------------- */

/* Loops that have a version for each instruction set; all give the same bits. */
typedef struct tg_kernels {
    bool (*all_finite)(const float *values, size_t n);
    /* out = a + b, out = a - b; out may be either. */
    void (*add)(float *out, const float *a, const float *b, size_t n);
    void (*subtract)(float *out, const float *a, const float *b, size_t n);
    void (*fp16_narrow)(uint16_t *halves, const float *values, size_t n); /* as base/half.h has it */
    void (*fp16_widen)(float *out, const uint16_t *halves, size_t n);
    void (*bf16_narrow)(uint16_t *halves, const float *values, size_t n);
    void (*bf16_widen)(float *out, const uint16_t *halves, size_t n);
    /* Marks elements whose magnitude, as the bits of a float, is `least` or more; sets all words of the mask. */
    void (*mark_keys)(uint64_t *mask, const float *values, uint32_t least, size_t n);
    /* The largest magnitude, as the bits of a float. */
    uint32_t (*largest_key)(const float *values, size_t n);
    /* AdaComp's bin: marks, from bit `at` of the mask on, elements whose |u + more * g| is `least` or more, as bits, or a NaN,
     * and whose u is not 0. */
    void (*mark_bin)(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least, size_t n);
    size_t (*rans_rounds)(uint16_t *symbols, uint32_t states[32], const uint8_t **words, const uint8_t *end,
                          size_t count, const tg_rans_slots *slots);
} tg_kernels;

extern const tg_kernels tg_kernels_scalar;
size_t tg_rans_rounds_scalar(uint16_t *symbols, uint32_t states[32], const uint8_t **words, const uint8_t *end,
                             size_t count, const tg_rans_slots *slots);
#if defined(__x86_64__)
extern const tg_kernels tg_kernels_avx2, tg_kernels_avx512;
#elif defined(__AARCH64EL__) /* with the low byte first, as nearly all of them run */
extern const tg_kernels tg_kernels_neon;
#endif

/* What of its instruction sets a processor may use here: TG_SIMD=avx2 or =scalar in the environment forbids higher ones. It is
 * looked up once. Those of one kind of processor stand in order; others have none of them. */
typedef enum tg_simd_level {
    TG_SIMD_SCALAR,
    TG_SIMD_AVX2,
    TG_SIMD_AVX512,
    TG_SIMD_NEON,
    TG_SIMD_LEVELS /* how many */
} tg_simd_level;
tg_simd_level tg_simd_best(void);
const tg_kernels *tg_kernels_best(void);

/* Those of a level, NULL if this processor has none such. */
const tg_kernels *tg_kernels_of(tg_simd_level level);

#endif
