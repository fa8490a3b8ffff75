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

/* ---- range coding (pack/rans_coder.h) -------------------------------------------------------------------------------- */

enum { TG_RANS_START = 1 << 15, TG_RANS_LANES_MAX = 64, TG_RANS_FEW = 16, TG_RANS_SPAN = 32 };

/* A symbol as the encoder needs it, of frequency f out of 2^bits. Division by f is a multiplication: for x below 2^31, x / f
 * is (x * inverse) >> (31 + log) with inverse = ceil(2^(31 + log) / f), 2^log being the power of two that is not below f
 * (Granlund and Montgomery, 1994). */
enum { TG_PLAN_FREQUENCY = 32, TG_PLAN_START = 46, TG_PLAN_LOG = 60, TG_PLAN_MASK = (1 << 14) - 1 };

typedef struct tg_rans_plans {
    const uint64_t *plans; /* of each symbol: inverse, frequency less 1, where it starts, log; from these bits on */
    uint32_t bits;
    uint32_t first, span; /* symbols are from the first on, this many; there are plans for all of these */
} tg_rans_plans;

/* What the low bits of a state say. */
typedef struct tg_rans_slots {
    const uint32_t
        *slots;     /* 2^bits: the low 8 bits of a symbol, from bit 8 on its frequency less 1, from bit 20 on how far
                              into it the slot is */
    uint32_t bits;  /* at most 12 */
    uint32_t upper; /* the first slot of symbols from 256 on */
    uint32_t few_n; /* how many symbols occur, if they are no more than TG_RANS_FEW; else 0 */
    uint32_t few_symbol[TG_RANS_FEW], few_start[TG_RANS_FEW],
        few_frequency[TG_RANS_FEW]; /* from few_n on start at 2^bits */
} tg_rans_slots;

/* ---- prefix codes (pack/huffman.c) ----------------------------------------------------------------------------------- */

enum { TG_PREFIX_LONGEST = 12, TG_PREFIX_SLOTS = 1 << TG_PREFIX_LONGEST };

/* Codes to write: their length, and from this bit on their bits, first one lowest. */
enum { TG_PREFIX_CODE = 8, TG_PREFIX_PAIR_BASE = 16 };

typedef struct tg_prefix_codes {
    uint64_t entries[512];
    uint64_t pairs[256]; /* of symbols below 16, the second one times 16, if ... */
    bool has_pairs;      /* ... there are no others */
} tg_prefix_codes;

/* What 12 bits say. `singles`: the first symbol, from bit 6 on, above its length. `slots`: the bits taken by up to three
 * symbols, how many they are, and they, 16 bits each, from these bits on. Slots are for codes that are short. */
enum { TG_PREFIX_SINGLE_SYMBOL = 6, TG_PREFIX_SLOT_N = 8, TG_PREFIX_SLOT_SYMBOL = 16, TG_PREFIX_SLOT_SYMBOLS = 3 };

typedef struct tg_prefix_tables {
    uint64_t slots[TG_PREFIX_SLOTS];
    uint16_t singles[TG_PREFIX_SLOTS];
    bool has_slots;
} tg_prefix_tables;

/* A stream while it is read: the next bit is bit `skip` of the byte at `at`. */
typedef struct tg_prefix_stream {
    const uint8_t *at, *end;
    uint32_t skip;
    uint16_t *out, *out_end;
} tg_prefix_stream;

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
    /* Words of two or four bytes, each in four, turned left by one bit within their length: their upper bytes, and their lower
     * ones, little-endian, one word behind the other. And back. */
    void (*split_words)(uint16_t *uppers, uint8_t *lowers, const uint32_t *words, uint32_t word_len, size_t n);
    void (*join_words)(uint32_t *words, const uint16_t *uppers, const uint8_t *lowers, uint32_t word_len, size_t n);
    /* Symbols into states, from the last on: symbol i into state i mod lane_n, which is a power of two. Words that states give
     * away are put in front of *words, at most one for each symbol. */
    void (*rans_push)(uint32_t *states, uint32_t lane_n, uint8_t **words, const uint16_t *symbols, size_t count,
                      const tg_rans_plans *plans);
    /* Rounds of a symbol from each of 16, 32 or 64 states, as long as there are as many words as states for each; returns the
     * number of symbols. */
    size_t (*rans_pull)(uint16_t *symbols, uint32_t *states, uint32_t lane_n, const uint8_t **words, const uint8_t *end,
                        size_t count, const tg_rans_slots *slots);
    /* Codes of symbols, one behind the other from the lowest bit of each byte on, and zero bits to the end of the last byte.
     * There is room for them before `end`. Returns where they end. */
    uint8_t *(*prefix_write)(uint8_t *out, const uint8_t *end, const uint16_t *symbols, size_t count,
                             const tg_prefix_codes *codes);
    /* Reads as much of one or four streams as can be read with eight bytes at a time, and with room for a few symbols more; a
     * few at the end are left. */
    void (*prefix_read)(tg_prefix_stream *streams, size_t stream_n, const tg_prefix_tables *tables);
} tg_kernels;

extern const tg_kernels tg_kernels_scalar;
#if defined(__x86_64__)
extern const tg_kernels tg_kernels_avx2, tg_kernels_avx512;

/* What of theirs stands in files of its own. */
uint8_t *tg_prefix_write_bmi2(uint8_t *out, const uint8_t *end, const uint16_t *symbols, size_t count,
                              const tg_prefix_codes *codes);
void tg_prefix_read_bmi2(tg_prefix_stream *streams, size_t stream_n, const tg_prefix_tables *tables);
void tg_rans_push_avx512(uint32_t *states, uint32_t lane_n, uint8_t **words, const uint16_t *symbols, size_t count,
                         const tg_rans_plans *plans);
size_t tg_rans_pull_avx512(uint16_t *symbols, uint32_t *states, uint32_t lane_n, const uint8_t **words,
                           const uint8_t *end, size_t count, const tg_rans_slots *slots);
#endif

/* What of its instruction sets a processor may use here: TG_SIMD=avx2 or =scalar in the environment forbids higher ones. It is
 * looked up once. */
typedef enum tg_simd_level { TG_SIMD_SCALAR, TG_SIMD_AVX2, TG_SIMD_AVX512 } tg_simd_level;
tg_simd_level tg_simd_best(void);
const tg_kernels *tg_kernels_best(void);

/* Those of a level, NULL if this processor has none such. */
const tg_kernels *tg_kernels_of(tg_simd_level level);

#endif
