/* The hot loops, one function each, as every instruction set must compute them. Masks as in base/bits.h. */
#ifndef TG_KERNELS_KERNELS_H
#define TG_KERNELS_KERNELS_H

#include "tersegrad/tersegrad.h"

#include <stdbool.h>

/* tg_widen and tg_narrow of the public header are two of them. */

/* Elements, each divided by `divisor`, from fp32 to a gradient. Returns whether all quotients are finite; they are not
 * checked if the divisor is 1. */
bool tg_store(void *out, tg_dtype dtype, const float *values, float divisor, size_t n);

/* out[i] = factor * values[i]; a finite value stays finite. `out` may be `values`. */
void tg_scale(float *out, const float *values, float factor, size_t n);

bool tg_all_finite(const float *values, size_t n);

/* How averages of finite values stay finite where their sum overflows: every value is multiplied by tg_average_share, a power
 * of two so small that no sum of n values can overflow, and the sum is divided by n and the share; what rounding still takes
 * beyond the range saturates. A sum that is not finite, because a value was not, stays so. */
float tg_average_share(size_t n);
void tg_average_shared(float *sums, float share, size_t value_n, size_t n);

/* Behind kernels that were told to stream, before another thread looks at what they wrote. */
static inline void tg_stream_end(void)
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}
void tg_zero_nonfinite(float *values, size_t n);

/* Sums that have overflowed become the largest finite value of their sign; where what was `given` is NaN or Inf they stay. */
void tg_saturate(float *sums, const float *given, size_t n);

/* The sum of n magnitudes, or of n squares, in binary64, in one order for all instruction sets: 16 sums of every 16th,
 * then these in order. */
double tg_sum_magnitudes(const float *values, size_t n);
double tg_sum_squares(const float *values, size_t n);

/* Gathers the marked values to the front of out; returns their number. */
size_t tg_compress(float *out, const float *values, const uint64_t *mask, size_t n);

/* out[i] += weight * value for marked i, values in order; all i if mask is NULL. Or sets out[i] = value. */
void tg_expand_add(float *out, const uint64_t *mask, const float *values, float weight, size_t n);
void tg_expand_set(float *out, const uint64_t *mask, const float *values, size_t n);

/* The same with a list of n indices in ascending order. */
void tg_gather(float *out, const float *values, const uint32_t *list, size_t n);
void tg_scatter_add(float *out, const uint32_t *list, const float *values, float weight, size_t n);
void tg_scatter_set(float *out, const uint32_t *list, const float *values, size_t n);

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

/* Indices while they are read from gaps in a Rice code (pack/gaps.c). */
typedef struct tg_rice_reader {
    const uint8_t *bytes;
    uint64_t bit, bit_n; /* the next, and all */
    uint64_t next;       /* the least index that may follow */
    size_t left;         /* indices that are to come */
    uint32_t *list;      /* where they go */
} tg_rice_reader;

#define TG_LIST_MORE 16
#define TG_COUNT_FEW 16
#define TG_STRETCH 512 /* values that are summed in binary32 */

/* So many symbols below a base are one number of so many bits (pack/bits.c). */
typedef struct tg_digits {
    uint32_t base, symbols, bits;
} tg_digits;

/* A value in its place among others: how many are less, and how many equal, itself among them. */
typedef struct tg_ordered {
    float value;
    size_t less, equal;
} tg_ordered;

/* ---- by instruction set ---------------------------------------------------------------------------------------------- */

/* Loops that have a version for each instruction set; all give the same bits. Where `streams` says that nobody reads what is
 * written again soon, it may go around the caches. */
typedef struct tg_kernels {
    bool (*all_finite)(const float *values, size_t n);
    /* Whether no half has all bits of an exponent. */
    bool (*halves_finite)(const void *halves, uint16_t exponent, size_t n);
    /* out = a + share * b, and out = a - b; both return whether all results are finite. out may be either. The sum goes to
     * `also`, too, if that is not NULL; then this is what streams. */
    bool (*accumulate)(float *out, float *also, const float *a, const float *b, float share, size_t n, bool streams);
    bool (*subtract)(float *out, const float *a, const float *b, size_t n, bool streams);
    void (*copy)(float *out, const float *values, size_t n, bool streams);
    void (*stream_bytes)(uint8_t *out, const uint8_t *bytes, size_t len);
    void (*add)(float *sums, const float *values, float weight, size_t n); /* sums += weight * values */
    /* As base/half.h has it; halves may lie at any address. Narrowing tells whether all values are finite. */
    bool (*fp16_narrow)(void *halves, const float *values, size_t n);
    void (*fp16_widen)(float *out, const void *halves, size_t n);
    void (*fp16_add)(float *sums, const void *halves, float weight, size_t n);
    bool (*bf16_narrow)(void *halves, const float *values, size_t n);
    void (*bf16_widen)(float *out, const void *halves, size_t n);
    void (*bf16_add)(float *sums, const void *halves, float weight, size_t n);
    /* Marks elements whose magnitude, as the bits of a float, is `least` or more; sets all words of the mask. */
    void (*mark_keys)(uint64_t *mask, const float *values, uint32_t least, size_t n);
    /* Indices of marked elements, in order, and their number; there is room for TG_LIST_MORE more. */
    size_t (*list_marks)(uint32_t *list, const uint64_t *mask, size_t n);
    /* The largest magnitude, as the bits of a float. */
    uint32_t (*largest_key)(const float *values, size_t n);
    /* AdaComp's bin: marks, from bit `at` of the mask on, elements whose |u + more * g| is `least` or more, as bits, or a NaN,
     * and whose u is not 0. */
    void (*mark_bin)(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least, size_t n);
    /* Words of two or four bytes, the lowest first, turned left by one bit: their upper bytes, and their lower ones, one word
     * behind the other. And back. */
    void (*split_words)(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, uint32_t word_len, size_t n);
    void (*join_words)(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, uint32_t word_len, size_t n);
    /* Symbols into states, from the last on: symbol i into state i mod lane_n, which is a power of two. Words that states give
     * away are put in front of *words, at most one for each symbol. */
    void (*rans_push)(uint32_t *states, uint32_t lane_n, uint8_t **words, const uint16_t *symbols, size_t count,
                      const tg_rans_plans *plans);
    /* How often each of the symbols below a base of at most TG_COUNT_FEW occurs, added to counts: in the first of n symbols, as many
     * as a kernel sees fit, whose number it returns. */
    size_t (*count_few)(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base);
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

    /* Reads as many indices below n as can be read with eight bytes at a time; false if one is not below. */
    bool (*rice_read)(tg_rice_reader *r, unsigned k, size_t n);

    /* The first of `count` symbols as numbers, and back, as many as a kernel sees fit: all groups, to whole bytes. Nothing is
     * read or written beyond what all of them take. Not `sound`: some number is too large. */
    size_t (*bits_write)(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d);
    size_t (*bits_read)(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d, bool *sound);
    /* Whether so many numbers of at most 48 bits, a multiple of eight of them, are all below a limit. */
    bool (*numbers_below)(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit);

    /* ---- of quantizers in buckets; a draw is a random word, and its upper 24 bits a number from 0 up to but not 1 ---- */

    /* Words of so many blocks of Philox from number `block` on, as tg_stream_words has them. Meanwhile as many bytes from `ahead`
     * on, which will be read soon, are asked for; they need not be there. */
    void (*draw)(uint32_t *words, uint64_t key, uint64_t block, uint32_t other, size_t block_n, const void *ahead);
    /* 1, or where draw * largest < |value| 0 for negative values and 2 for others. */
    void (*ternary)(uint16_t *symbols, const float *values, const uint32_t *draws, float largest, size_t n);
    /* `most`, plus or minus |value| * shift * factor, at most `most`, rounded down or, where the draw is below the rest, up. */
    void (*levels)(uint16_t *symbols, const float *values, const uint32_t *draws, float shift, float factor,
                   uint32_t most, size_t n);
    /* Sign and exponent, rounded up where the draw's upper 23 bits are below the fraction, but not to what is not finite. */
    void (*natural)(uint16_t *symbols, const float *values, const uint32_t *draws, size_t n);
    /* value > threshold; how many limits, ascending, it is above. */
    void (*mark_above)(uint16_t *symbols, const float *values, float threshold, size_t n);
    void (*count_above)(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n, size_t n);
    /* The bound of bound_n ascending ones that is not above value * scale, the first if none is and never the last; or where
     * draw * (way to the next bound) < value * scale - bound the next. */
    void (*round_between)(uint16_t *symbols, const float *values, const uint32_t *draws, const float *bounds,
                          uint32_t bound_n, float scale, size_t n);
    /* The sign bit. */
    void (*signs)(uint16_t *symbols, const float *values, size_t n);
    /* A float of the sign and exponent that a symbol is. */
    void (*powers)(float *values, const uint16_t *symbols, size_t n);
    /* table[symbol], or added to sums. */
    void (*look_up)(float *values, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);
    void (*look_up_add)(float *sums, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n);
    /* Sums of magnitudes and of squares, as tg_sum_magnitudes has them, with the number of values that are not 0; of squares
     * alone. */
    size_t (*moments)(double of[2], const float *values, size_t n);
    double (*squares)(const float *values, size_t n);
    /* Sums of value * scale, where the value is not above a threshold, and where it is, whose number it returns: in binary32 of
     * every 16th of TG_STRETCH values, these in binary64, and then in order. */
    size_t (*sums_around)(double around[2], const float *values, float threshold, float scale, size_t n);

    /* ---- order among the values of a bucket, none of which is a NaN; n is at least 1 ---- */

    /* The least and the largest. */
    void (*ends)(float ends[2], const float *values, size_t n);
    /* Value number m, from 0, in ascending order. The room is for 2 n values. */
    tg_ordered (*nth)(float *room, const float *values, size_t n, size_t m);
    /* All that are less, then those that are equal, then the rest. */
    void (*split)(float *out, const float *values, size_t n, const tg_ordered *at);
    /* The sum of (high - value) * scale, each rounded down, which so does not depend on their order. */
    uint64_t (*ways_up)(const float *values, double high, double scale, size_t n);
} tg_kernels;

/* The value of lowest rank m of n, from 0, with all smaller ones before it and all larger ones behind it. */
float tg_partition(float *values, size_t n, size_t m);

/* scalar_select.c */
void tg_scalar_ends(float ends[2], const float *values, size_t n);
tg_ordered tg_scalar_nth(float *room, const float *values, size_t n, size_t m);
void tg_scalar_split(float *out, const float *values, size_t n, const tg_ordered *at);
uint64_t tg_scalar_ways_up(const float *values, double high, double scale, size_t n);

/* Them, in a table of kernels. */
size_t tg_scalar_list_marks(uint32_t *list, const uint64_t *mask, size_t n);

#define TG_SCALAR_SELECT \
    .ends = tg_scalar_ends, .nth = tg_scalar_nth, .split = tg_scalar_split, .ways_up = tg_scalar_ways_up

/* tg_stream_words by the best kernel, which asks for what is `ahead`. */
void tg_draw_words(uint32_t *out, uint64_t key, uint64_t at, size_t n, uint32_t other, const void *ahead);

extern const tg_kernels tg_kernels_scalar;
void tg_scalar_stream_bytes(uint8_t *out, const uint8_t *bytes, size_t len);
size_t tg_scalar_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d);
size_t tg_scalar_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d, bool *sound);
size_t tg_scalar_count_few(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base);
bool tg_scalar_numbers_below(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit);
#if defined(__x86_64__)
extern const tg_kernels tg_kernels_avx2, tg_kernels_avx512;

/* What of theirs stands in files of its own. */
uint8_t *tg_prefix_write_bmi2(uint8_t *out, const uint8_t *end, const uint16_t *symbols, size_t count,
                              const tg_prefix_codes *codes);
void tg_prefix_read_bmi2(tg_prefix_stream *streams, size_t stream_n, const tg_prefix_tables *tables);
bool tg_rice_read_bmi2(tg_rice_reader *r, unsigned k, size_t n);
void tg_rans_push_avx512(uint32_t *states, uint32_t lane_n, uint8_t **words, const uint16_t *symbols, size_t count,
                         const tg_rans_plans *plans);
size_t tg_rans_pull_avx512(uint16_t *symbols, uint32_t *states, uint32_t lane_n, const uint8_t **words,
                           const uint8_t *end, size_t count, const tg_rans_slots *slots);
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
