/* The hot loops. Each instruction set has one table of them (scalar.c, avx2.c, avx512.c, neon.c), which names the function of
 * every kernel; scalar.c is the reference, and all tables give the same bits. Loops with one version for all instruction sets
 * are in conversions.h, range.h and sparse.h.
 *
 * Symbols are 16-bit words, masks are as in base/bits.h, and a "key" is the bit pattern of a magnitude, which orders as the
 * magnitude does. A kernel processes all n elements unless its comment says otherwise. */
#ifndef TG_KERNELS_KERNELS_H
#define TG_KERNELS_KERNELS_H

#include "kernels/conversions.h"
#include "kernels/draws.h"
#include "kernels/range.h"
#include "kernels/sparse.h"
#include "kernels/sums.h"

#include "tersegrad/tersegrad.h"

#include <stdbool.h>

/* Cache lines to prefetch during another pass: `each` of them for every 64 bytes of that pass, from number `first` on. Four
 * quarters of what will be read take turns. These are hints, and may point past the end of a buffer. Lines go to the
 * second-level cache: the first has room for few that are on their way, and a pass that computes would wait for it. */
typedef struct tg_prefetch {
    const char *from;
    size_t quarter, first, each;
} tg_prefetch;

/* Passes over buffers of fp32. `non_temporal`: the result is not read again soon, so non-temporal stores may be used; call
 * tg_store_fence before another thread reads it. */
typedef struct tg_pass_kernels {
    bool (*all_finite)(const float *values, size_t n);
    /* out = a + share * b, rounded twice. Returns whether all results are finite. `out` may be `a` or `b`. If `also` is not
     * NULL the result is written there as well, and only that store may be non-temporal. */
    bool (*accumulate)(float *out, float *also, const float *a, const float *b, float share, size_t n,
                       bool non_temporal);
    /* out = a - b, likewise. */
    bool (*subtract)(float *out, const float *a, const float *b, size_t n, bool non_temporal);
    /* out = values / divisor, likewise. `out` may be `values`. */
    bool (*divide)(float *out, const float *values, float divisor, size_t n, bool non_temporal);
    void (*copy)(float *out, const float *values, size_t n, bool non_temporal);
    void (*stream_bytes)(uint8_t *out, const uint8_t *bytes, size_t len);  /* non-temporal copy */
    void (*add)(float *sums, const float *values, float weight, size_t n); /* sums += weight * values */
    uint64_t (*hash_leaf)(const uint8_t *bytes, const tg_prefetch *next);  /* XXH3 of TG_HASH_LEAF bytes */
} tg_pass_kernels;

/* fp16 and bf16, rounded as base/half.h says. Halves may lie at any address. */
typedef struct tg_half_kernels {
    /* Whether no half has all bits of `exponent` set, which is the mask of its exponent. */
    bool (*all_finite)(const void *halves, uint16_t exponent, size_t n);
    bool (*fp16_narrow)(void *halves, const float *values, size_t n); /* returns whether all values are finite */
    void (*fp16_widen)(float *out, const void *halves, size_t n);     /* NaNs keep their payload */
    void (*fp16_add)(float *sums, const void *halves, float weight, size_t n);
    bool (*bf16_narrow)(void *halves, const float *values, size_t n);
    void (*bf16_widen)(float *out, const void *halves, size_t n);
    void (*bf16_add)(float *sums, const void *halves, float weight, size_t n);
} tg_half_kernels;

#define TG_LIST_MORE 16 /* elements after the end of a list that list_marks may overwrite */

/* Selection of elements by magnitude, and the values of those that are marked. No bit after the last element is set. */
typedef struct tg_select_kernels {
    uint32_t (*largest_key)(const float *values, size_t n); /* 0 if n is 0 */
    /* Marks elements whose key is `least` or more; sets all words of the mask. */
    void (*mark_keys)(uint64_t *mask, const float *values, uint32_t least, size_t n);
    /* One bin of AdaComp: marks, from bit `at` of the mask on, elements where u is not 0 and the key of u + more * g is
     * `least` or more, or a NaN. Leaves other bits as they are. */
    void (*mark_bin)(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least, size_t n);
    /* Lists `first` plus each marked index, in ascending order; returns their number. The list has space for TG_LIST_MORE more. */
    size_t (*list_marks)(uint32_t *list, const uint64_t *mask, uint32_t first, size_t n);
    /* Copies the marked values to the front of out, which has space for them alone; returns their number. */
    size_t (*compress)(float *out, const float *values, const uint64_t *mask, size_t n);
    /* The j-th value belongs to the j-th marked element i: adds weight * value to out[i], rounded twice, or sets out[i] = value. */
    void (*expand_add)(float *out, const uint64_t *mask, const float *values, float weight, size_t n);
    void (*expand_set)(float *out, const uint64_t *mask, const float *values, size_t n);
} tg_select_kernels;

typedef struct tg_float_format tg_float_format; /* minifloat.h */

/* Quantizers: values to symbols and back. r is the random number of a value (draws.h). */
typedef struct tg_symbol_kernels {
    /* The upper halves of `block_n` Philox blocks from number `block` on, as tg_stream_halves defines them. `prefetch` is an
     * address from which 32 * block_n bytes will be read soon; it is a hint, and may point past the end of its buffer. */
    void (*draw)(uint16_t *upper, uint64_t key, uint64_t block, uint32_t other, size_t block_n, const void *prefetch);
    /* 1; or, where r * largest < |value|, 0 for negative values and 2 for others. */
    void (*ternary)(uint16_t *symbols, const float *values, const tg_draws *draws, float largest, size_t n);
    /* 1 where r * level < value / 2 + level / 2, else 0. */
    void (*two_sided)(uint16_t *symbols, const float *values, const tg_draws *draws, float level, size_t n);
    /* The level |value| * shift * factor, at most `most`, rounded down, or up where r is below the fraction; the symbol is
     * most + level, or most - level for negative values. */
    void (*levels)(uint16_t *symbols, const float *values, const tg_draws *draws, float shift, float factor,
                   uint32_t most, size_t n);
    /* Sign and exponent; the exponent is rounded up where the upper 23 random bits are below the fraction, but never to that of
     * infinity. */
    void (*natural)(uint16_t *symbols, const float *values, const tg_draws *draws, size_t n);
    void (*signs)(uint16_t *symbols, const float *values, size_t n);                       /* the sign bit */
    void (*mark_above)(uint16_t *symbols, const float *values, float threshold, size_t n); /* value > threshold */
    /* The number of limits, which ascend, that the value is above. */
    void (*count_above)(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n, size_t n);
    /* The symbol of the product of `step`, positive and finite, and a value of a format of small floats that is nearest to each
     * value; the lower of two. */
    void (*minifloats)(uint16_t *symbols, const float *values, float step, tg_float_format f, size_t n);
    /* Stochastic rounding to `bound_n` ascending bounds. The symbol is the last bound not above value * scale, within
     * [0, bound_n - 2]; or the next one, where r * (distance between both) < value * scale - bound. */
    void (*round_between)(uint16_t *symbols, const float *values, const tg_draws *draws, const float *bounds,
                          uint32_t bound_n, float scale, size_t n);
    void (*powers)(float *values, const uint16_t *symbols, size_t n); /* the inverse of `natural` */
    /* table[symbol], written or added. */
    void (*look_up)(float *values, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);
    void (*look_up_add)(float *sums, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);
} tg_symbol_kernels;

typedef struct tg_block_format tg_block_format; /* blocks.h */

/* Formats with a scale for every few values. Blocks follow each other from the first value on; the last may be short. `draws` is
 * NULL where values are rounded to nearest. docs/format.md has the arithmetic. */
typedef struct tg_block_kernels {
    /* One byte of scale for `block` values. A block with NaN or Inf has the scale TG_MX_NAN and symbols 0. */
    void (*mx_encode)(uint16_t *symbols, uint8_t *scales, const float *values, const tg_draws *draws,
                      const tg_block_format *f, uint32_t block, size_t n);
    void (*mx_decode)(float *values, const uint16_t *symbols, const uint8_t *scales, const tg_block_format *f,
                      uint32_t block, size_t n);
    /* One e4m3 for TG_NV_BLOCK values, times `whole`. If that is NaN, symbols and scales are 0. */
    void (*nv_encode)(uint16_t *symbols, uint8_t *scales, const float *values, const tg_draws *draws, float whole,
                      size_t n);
    void (*nv_decode)(float *values, const uint16_t *symbols, const uint8_t *scales, float whole, size_t n);
    /* Rotates blocks of `rotation` values by a Hadamard transform with these signs, 1 or -1 for each; n is a multiple. And back, in
     * place: finite values stay finite. */
    void (*rotate)(float *out, const float *values, const float *signs, uint32_t rotation, size_t n);
    void (*turn_back)(float *values, const float *signs, uint32_t rotation, size_t n);
} tg_block_kernels;

/* An order statistic: its value, how many values are less, and how many are equal, itself included. */
typedef struct tg_ordered {
    float value;
    size_t less, equal;
} tg_ordered;

/* Sums of a leaf, and order of the values of a bucket. For the kernels of order n is at least 1 and no value is a NaN. */
typedef struct tg_statistic_kernels {
    /* As sums.h says, of at most TG_SUM_LEAF values. */
    double (*magnitudes)(const float *values, size_t n);
    double (*squares)(const float *values, size_t n);
    size_t (*moments)(double of[2], const float *values, size_t n);
    size_t (*sums_around)(double around[2], const float *values, float threshold, float scale, size_t n);
    /* Adds the magnitudes that are above the threshold, which is not negative, and returns their number. The caller sees to it
     * that all sums are exact, so that the order does not matter. */
    size_t (*sum_above)(double *sum, const float *values, float threshold, size_t n);
    void (*ends)(float ends[2], const float *values, size_t n); /* the least and the largest value */
    /* Value number m, from 0, in ascending order. `scratch` holds 2 n values. */
    tg_ordered (*nth)(float *scratch, const float *values, size_t n, size_t m);
    /* Partitions: the values that are less, then those that are equal, then the rest. */
    void (*split)(float *out, const float *values, size_t n, const tg_ordered *at);
    /* The sum of (high - value) * scale, each term rounded down to an integer, so that the order does not matter. */
    uint64_t (*ways_up)(const float *values, double high, double scale, size_t n);
} tg_statistic_kernels;

typedef struct tg_digits tg_digits;               /* digits.h */
typedef struct tg_rans_plans tg_rans_plans;       /* rans.h */
typedef struct tg_rans_slots tg_rans_slots;       /* rans.h */
typedef struct tg_rans_writer tg_rans_writer;     /* rans.h */
typedef struct tg_rans_reader tg_rans_reader;     /* rans.h */
typedef struct tg_prefix_codes tg_prefix_codes;   /* prefix.h */
typedef struct tg_prefix_tables tg_prefix_tables; /* prefix.h */
typedef struct tg_prefix_stream tg_prefix_stream; /* prefix.h */
typedef struct tg_rice_reader tg_rice_reader;     /* rice.h */
typedef struct tg_rice_writer tg_rice_writer;     /* rice.h */

/* Packing of symbols, words and indices. */
typedef struct tg_coder_kernels {
    /* Symbols as numbers of d.bits bits, one after the other from the lowest bit of each byte on; the last group and the last
     * byte are filled up with zeros. Reading returns false if a number is too large or what was filled up is not 0. Neither
     * accesses anything past the last byte. */
    void (*bits_write)(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d);
    bool (*bits_read)(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d);
    /* Whether n numbers of at most 48 bits, n a multiple of 8, are all below a limit. */
    bool (*numbers_below)(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit);
    /* Adds to counts, one per symbol below `base`, how often each symbol occurs. */
    void (*count)(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base);
    /* Rotates little-endian words of two or four bytes left by one bit and separates the upper byte of each, as a symbol, from
     * the lower ones, in sequence. And back. */
    void (*split_words)(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, uint32_t word_len, size_t n);
    void (*join_words)(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, uint32_t word_len, size_t n);
    /* Encodes one segment of lane_n states, a power of two, or two segments of 32: symbol i into state i mod lane_n. There is
     * space for a word per symbol. */
    void (*rans_push)(tg_rans_writer *w, size_t writer_n, uint32_t lane_n, const tg_rans_plans *plans);
    /* Decodes one segment of 16 or 32 states, or two of 32, in rounds of one symbol a state, while each segment has symbols left
     * for a round and so many words before `end`. The caller decodes the rest with checks. */
    void (*rans_pull)(tg_rans_reader *r, size_t reader_n, uint32_t lane_n, const uint8_t *end,
                      const tg_rans_slots *slots);
    /* The codes of symbols from the lowest bit of each byte on, zero bits up to the end of the last byte. There is space for
     * them before `end`. Returns their end. */
    uint8_t *(*prefix_write)(uint8_t *out, const uint8_t *end, const uint16_t *symbols, size_t count,
                             const tg_prefix_codes *codes);
    /* Decodes one or four streams, while eight bytes can be loaded from each and a few symbols more can be stored. The caller
     * decodes the rest with checks. */
    void (*prefix_read)(tg_prefix_stream *streams, size_t stream_n, const tg_prefix_tables *tables);
    /* Decodes indices below n while eight bytes can be loaded; false if one is not below n. The caller decodes the rest. */
    bool (*rice_read)(tg_rice_reader *r, unsigned k, size_t n);
    /* Encodes indices while eight bytes can be stored, and codes have at most 56 bits. Returns how many; the caller encodes the
     * rest. */
    size_t (*rice_write)(tg_rice_writer *w, unsigned k, const uint32_t *list, size_t count);
} tg_coder_kernels;

typedef struct tg_matrix tg_matrix; /* factors.h */

/* Products of a matrix M with factors of low rank, in the order that factors.h gives. A factor has a row for each column of P or
 * Q, `stride` apart. */
typedef struct tg_factor_kernels {
    /* sums[i * rank + k]: the leaf sum of row i of M times row k of the factor, n of each, at most TG_LEAF. Returns whether M has
     * a key above `limit`. */
    bool (*multiply)(float *sums, const tg_matrix *m, size_t row_n, const float *factor, size_t stride, uint32_t rank,
                     uint32_t limit, size_t n);
    /* Adds n columns of row_n rows of M, at most TG_LEAF_ROWS, times elements 0 ... row_n - 1 of row k of the factor, to row k of the sums. */
    void (*multiply_back)(float *sums, size_t sum_stride, const tg_matrix *m, size_t row_n, const float *factor,
                          size_t stride, uint32_t rank, size_t n);
    /* One to four rows of P Q': the sum of weights[i * rank + k] times row k of the factor. If `residual` is not NULL it gets M less
     * that. `averages` and `residual` have the stride of M, and may be m->values and m->residual. */
    void (*expand)(float *averages, float *residual, const tg_matrix *m, size_t row_n, const float *weights,
                   const float *factor, size_t stride, uint32_t rank, size_t n);
    /* The dot products of a column with the first n, at most TG_LEAF, of each of one to four rows of `others`. */
    void (*dots)(double *sums, const float *column, const float *others, size_t stride, uint32_t other_n, size_t n);
    /* Subtracts shares[b] times row b of `others`, in ascending order in binary64, and rounds once. */
    void (*project)(float *column, const float *others, size_t stride, const double *shares, uint32_t other_n,
                    size_t n);
} tg_factor_kernels;

typedef struct tg_kernels {
    tg_pass_kernels passes;
    tg_half_kernels halves;
    tg_select_kernels select;
    tg_symbol_kernels symbols;
    tg_block_kernels blocks;
    tg_statistic_kernels statistics;
    tg_coder_kernels coders;
    tg_factor_kernels factors;
} tg_kernels;

extern const tg_kernels tg_kernels_scalar;
#if defined(__x86_64__)
extern const tg_kernels tg_kernels_avx2, tg_kernels_avx512;
#elif defined(__AARCH64EL__) /* little-endian, as nearly all of them run */
extern const tg_kernels tg_kernels_neon;
#endif

/* The instruction sets, those of one architecture in ascending order. */
typedef enum tg_simd_level {
    TG_SIMD_SCALAR,
    TG_SIMD_AVX2,
    TG_SIMD_AVX512,
    TG_SIMD_NEON,
    TG_SIMD_LEVELS /* their number */
} tg_simd_level;

/* The kernels to use: those of the best instruction set that the CPU has, or of the one that the environment variable TG_SIMD
 * names. Unsupported values of TG_SIMD are ignored. It is read once. */
const tg_kernels *tg_kernels_best(void);
tg_simd_level tg_simd_best(void);

/* The kernels of one instruction set; NULL if the CPU does not have it. */
const tg_kernels *tg_kernels_of(tg_simd_level level);

/* Orders non-temporal stores before what follows: call it before another thread reads the result. */
static inline void tg_store_fence(void)
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}

/* Partitions values around rank m, from 0: returns the value of that rank, with no larger one before and no smaller one after
 * it. */
float tg_partition(float *values, size_t n, size_t m);

#endif
