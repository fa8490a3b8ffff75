/* Runs one kernel of one instruction set so many times on the same data, and prints how many elements it has processed each time.
 * For bench/neon_instructions.py, which counts the instructions of runs that differ in nothing else. Without arguments it lists
 * the kernels. */
#include "kernels/kernels.h"
#include "kernels/digits.h"
#include "kernels/hash.h"
#include "kernels/minifloat.h"
#include "kernels/rans.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 65536, BUCKET = 2048, LANES = 32, BITS = 12 };

/* Data of every kind that kernels take. */
typedef struct data {
    float values[N], other[N], out[2 * N];
    uint16_t halves[N], upper[N], symbols[N], out_symbols[N];
    uint8_t bytes[4 * N + 64];
    uint64_t mask[N / 64];
    uint32_t list[N + TG_LIST_MORE], counts[TG_BASE_MAX];
    uint64_t plans[TG_BASE_MAX];
    uint32_t slots[1 << BITS];
    tg_draws draws;
    tg_ordered middles[N / BUCKET];
    tg_digits digits;
    tg_rans_plans rans_plans;
    tg_rans_slots rans_slots;
    uint32_t table_n;
    float table[TG_BASE_MAX];
} data;

static data d;

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 32;
}

/* Values that look like a gradient: sums of four uniform numbers. */
static void fill_values(void)
{
    uint64_t random = 1;
    for (size_t i = 0; i < N; i++) {
        float sum = 0, another = 0;
        for (int k = 0; k < 4; k++) {
            sum += (float)next_random(&random) * 0x1p-32f - 0.5f;
            another += (float)next_random(&random) * 0x1p-32f - 0.5f;
        }
        d.values[i] = sum * 0.01f;
        d.other[i] = another * 0.01f;
        d.upper[i] = (uint16_t)next_random(&random);
    }
    tg_kernels_scalar.halves.fp16_narrow(d.halves, d.values, N);
    tg_kernels_scalar.select.mark_keys(d.mask, d.values, 0x3c5f0000, N); /* one in a hundred */
    d.draws = (tg_draws){.upper = d.upper, .key = 1};
    for (size_t at = 0; at < N; at += BUCKET) {
        d.middles[at / BUCKET] = tg_kernels_scalar.statistics.nth(d.out, d.values + at, BUCKET, BUCKET / 2);
    }
}

/* Symbols below `base`, the middle ones more often, packed at their plain width in groups of k in `bits` bits; levels; and the
 * tables of a range coder. */
static void fill_symbols(uint32_t base, uint32_t k, uint32_t bits)
{
    uint32_t counts[TG_BASE_MAX] = {0}, start = 0, left = 1 << BITS, few_n = 0;
    uint64_t random = 2;
    for (size_t i = 0; i < N; i++) {
        uint64_t sum = next_random(&random) % base + next_random(&random) % base;
        d.symbols[i] = (uint16_t)(sum / 2);
        counts[d.symbols[i]]++;
    }
    d.digits = (tg_digits){base, k, bits};
    tg_kernels_scalar.coders.bits_write(d.bytes, d.symbols, N, d.digits);
    d.rans_plans = (tg_rans_plans){.plans = d.plans, .bits = BITS, .first = 0, .span = base};
    d.rans_slots = (tg_rans_slots){.slots = d.slots, .bits = BITS, .upper = 1 << BITS};
    for (uint32_t l = 0; l < TG_RANS_FEW; l++) {
        d.rans_slots.few_start[l] = 1 << BITS;
    }
    for (uint32_t s = 0; s < base; s++) {
        uint32_t share = counts[s] / (N >> BITS) + 1, log = 0, others = base - 1 - s;
        uint32_t f = s + 1 == base ? left : share + others < left ? share : left - others;
        for (; 1u << log < f; log++) {
        }
        d.plans[s] = ((UINT64_C(1) << (31 + log)) + f - 1) / f | (uint64_t)(f - 1) << TG_PLAN_FREQUENCY |
                     (uint64_t)start << TG_PLAN_START | (uint64_t)log << TG_PLAN_LOG;
        d.rans_slots.upper = s == 256 ? start : d.rans_slots.upper;
        if (few_n++ < TG_RANS_FEW) {
            d.rans_slots.few_symbol[s] = s;
            d.rans_slots.few_start[s] = start;
            d.rans_slots.few_frequency[s] = f;
        }
        for (uint32_t o = 0; o < f; o++) {
            d.slots[start + o] = (s & 255) | (f - 1) << 8 | o << 20;
        }
        start += f;
        left -= f;
    }
    d.rans_slots.few_n = few_n <= TG_RANS_FEW ? few_n : 0;
    d.table_n = base;
    for (uint32_t s = 0; s < base; s++) {
        d.table[s] = 0.04f * ((float)s / (float)base - 0.5f);
    }
}

/* ---- the kernels ----------------------------------------------------------------------------------------------------------- */

typedef size_t (*run)(const tg_kernels *k);

#define RUN(name, call)                           \
    static size_t run_##name(const tg_kernels *k) \
    {                                             \
        call;                                     \
        return N;                                 \
    }

/* In buckets, from `at` on. */
#define RUN_BUCKETS(name, call)                          \
    static size_t run_##name(const tg_kernels *k)        \
    {                                                    \
        for (size_t at = 0; at < N; at += BUCKET) {      \
            tg_draws here = tg_draws_from(&d.draws, at); \
            (void)here;                                  \
            call;                                        \
        }                                                \
        return N;                                        \
    }

/* In leaves of sums. */
#define RUN_LEAVES(name, call)                           \
    static size_t run_##name(const tg_kernels *k)        \
    {                                                    \
        double of[2] = {0};                              \
        (void)of;                                        \
        for (size_t at = 0; at < N; at += TG_SUM_LEAF) { \
            (void)(call);                                \
        }                                                \
        return N;                                        \
    }

static const tg_float_format fp4 = {.fraction_bits = 1, .bias = 1, .largest = 7};

RUN(all_finite, (void)k->passes.all_finite(d.values, N))
RUN(accumulate, (void)k->passes.accumulate(d.out, NULL, d.values, d.other, 0.9f, N, false))
RUN(accumulate_twice, (void)k->passes.accumulate(d.out, d.out + N, d.values, d.other, 0.9f, N, false))
RUN(subtract, (void)k->passes.subtract(d.out, d.values, d.other, N, false))
RUN(divide, (void)k->passes.divide(d.out, d.values, 2.0f, N, false))
RUN(divide_by_3, (void)k->passes.divide(d.out, d.values, 3.0f, N, false))
RUN(add, k->passes.add(d.out, d.values, 0.5f, N))
RUN(halves_all_finite, (void)k->halves.all_finite(d.halves, 0x7c00, N))
RUN(fp16_narrow, (void)k->halves.fp16_narrow(d.out, d.values, N))
RUN(fp16_widen, k->halves.fp16_widen(d.out, d.halves, N))
RUN(fp16_add, k->halves.fp16_add(d.out, d.halves, 0.5f, N))
RUN(bf16_narrow, (void)k->halves.bf16_narrow(d.out, d.values, N))
RUN(bf16_widen, k->halves.bf16_widen(d.out, d.halves, N))
RUN(bf16_add, k->halves.bf16_add(d.out, d.halves, 0.5f, N))
RUN(largest_key, (void)k->select.largest_key(d.values, N))
RUN(mark_keys, k->select.mark_keys(d.mask, d.values, 0x3c5f0000, N))
RUN_BUCKETS(mark_bin, k->select.mark_bin(d.mask, at, d.values + at, d.other + at, 0.5f, 0x3c5f0000, BUCKET))
RUN(list_marks, (void)k->select.list_marks(d.list, d.mask, 0, N))
RUN(compress, (void)k->select.compress(d.out, d.values, d.mask, N))
RUN(expand_add, k->select.expand_add(d.out, d.mask, d.values, -1.0f, N))
RUN(expand_set, k->select.expand_set(d.out, d.mask, d.values, N))
RUN(draw, k->symbols.draw(d.out_symbols, 1, 2, 3, N / 8, d.values))
RUN_BUCKETS(ternary, k->symbols.ternary(d.out_symbols + at, d.values + at, &here, 0.02f, BUCKET))
RUN_BUCKETS(two_sided, k->symbols.two_sided(d.out_symbols + at, d.values + at, &here, 0.02f, BUCKET))
RUN_BUCKETS(levels, k->symbols.levels(d.out_symbols + at, d.values + at, &here, 1.0f, 16 / 0.02f, 16, BUCKET))
RUN_BUCKETS(natural, k->symbols.natural(d.out_symbols + at, d.values + at, &here, BUCKET))
RUN(signs, k->symbols.signs(d.out_symbols, d.values, N))
RUN(mark_above, k->symbols.mark_above(d.out_symbols, d.values, 0.001f, N))
RUN_BUCKETS(count_above, k->symbols.count_above(d.out_symbols + at, d.values + at, d.table, d.table_n, BUCKET))
RUN_BUCKETS(minifloats, k->symbols.minifloats(d.out_symbols + at, d.values + at, 0.003f, fp4, BUCKET))
RUN_BUCKETS(round_between,
            k->symbols.round_between(d.out_symbols + at, d.values + at, &here, d.table, d.table_n, 1.0f, BUCKET))
RUN(powers, k->symbols.powers(d.out, d.symbols, N))
RUN_BUCKETS(look_up, k->symbols.look_up(d.out + at, d.symbols + at, d.table, d.table_n, BUCKET))
RUN_BUCKETS(look_up_add, k->symbols.look_up_add(d.out + at, d.symbols + at, d.table, d.table_n, BUCKET))
RUN_LEAVES(magnitudes, k->statistics.magnitudes(d.values + at, TG_SUM_LEAF))
RUN_LEAVES(squares, k->statistics.squares(d.values + at, TG_SUM_LEAF))
RUN_LEAVES(moments, k->statistics.moments(of, d.values + at, TG_SUM_LEAF))
RUN_LEAVES(sums_around, k->statistics.sums_around(of, d.values + at, 0.001f, 0.5f, TG_SUM_LEAF))
RUN_BUCKETS(sum_above, double sum = 0; (void)k->statistics.sum_above(&sum, d.values + at, 0.001f, BUCKET))
RUN_BUCKETS(ends, float ends[2]; k->statistics.ends(ends, d.values + at, BUCKET))
RUN_BUCKETS(nth, (void)k->statistics.nth(d.out, d.values + at, BUCKET, BUCKET / 3))
RUN_BUCKETS(split, k->statistics.split(d.out, d.values + at, BUCKET, &d.middles[at / BUCKET]))
RUN_BUCKETS(ways_up, (void)k->statistics.ways_up(d.values + at, 0.02, 0x1p40, BUCKET))
RUN(bits_write, k->coders.bits_write(d.bytes, d.symbols, N, d.digits))
RUN(bits_read, (void)k->coders.bits_read(d.out_symbols, d.bytes, N, d.digits))
RUN(count, k->coders.count(d.counts, d.symbols, N, d.digits.base))
RUN(split_words_2, k->coders.split_words(d.out_symbols, (uint8_t *)d.out, (const uint8_t *)d.halves, 2, N))
RUN(split_words_4, k->coders.split_words(d.out_symbols, (uint8_t *)d.out, (const uint8_t *)d.values, 4, N))
RUN(join_words_2, k->coders.join_words((uint8_t *)d.out, d.symbols, (const uint8_t *)d.values, 2, N))
RUN(join_words_4, k->coders.join_words((uint8_t *)d.out, d.symbols, (const uint8_t *)d.values, 4, N))

/* Elements are floats. */
static size_t run_hash_leaf(const tg_kernels *k)
{
    const tg_prefetch none = {NULL, 0, 0, 0};
    for (size_t at = 0; at < sizeof d.values; at += TG_HASH_LEAF) {
        (void)k->passes.hash_leaf((const uint8_t *)d.values + at, &none);
    }
    return N;
}

static size_t run_numbers_below(const tg_kernels *k)
{
    size_t n = N / d.digits.symbols / 8 * 8;
    (void)k->coders.numbers_below(d.bytes, n, d.digits.bits, UINT64_MAX);
    return n * d.digits.symbols;
}

/* Two segments at a time, as long streams have them. */
static size_t run_rans_push(const tg_kernels *k)
{
    tg_rans_writer w[2];
    for (uint32_t i = 0; i < 2; i++) {
        w[i] = (tg_rans_writer){
            .at = d.bytes + (i + 1) * (size_t)N, .symbols = d.symbols + i * (size_t)(N / 2), .count = N / 2};
        for (uint32_t l = 0; l < TG_RANS_LANES; l++) {
            w[i].states[l] = tg_rans_start(BITS);
        }
    }
    k->coders.rans_push(w, 2, TG_RANS_LANES, &d.rans_plans);
    return N;
}

/* Any words will do: all states are valid. */
static size_t run_rans_pull(const tg_kernels *k)
{
    const uint8_t *words = (const uint8_t *)d.upper;
    tg_rans_reader r[2];
    for (uint32_t i = 0; i < 2; i++) {
        r[i] = (tg_rans_reader){
            .at = words + i * sizeof d.upper / 2, .symbols = d.out_symbols + i * (size_t)(N / 2), .left = N / 2};
        for (uint32_t l = 0; l < TG_RANS_LANES; l++) {
            r[i].states[l] = tg_rans_start(BITS) + l * 12345;
        }
    }
    k->coders.rans_pull(r, 2, TG_RANS_LANES, words + sizeof d.upper, &d.rans_slots);
    return N - r[0].left - r[1].left;
}

typedef struct kernel {
    const char *name;
    run run;
    uint32_t base, k, bits; /* of symbols and levels */
} kernel;

#define PLAIN(name)                 \
    {                               \
#name, run_##name, 16, 1, 4 \
    }
#define OF_BASE(name, base, k, bits)               \
    {                                              \
#name "/" #base, run_##name, base, k, bits \
    }
#define OF_BASES(name)                                                                               \
    OF_BASE(name, 2, 1, 1), OF_BASE(name, 3, 5, 8), OF_BASE(name, 5, 3, 7), OF_BASE(name, 9, 5, 16), \
        OF_BASE(name, 16, 1, 4), OF_BASE(name, 33, 8, 41), OF_BASE(name, 127, 6, 42), OF_BASE(name, 512, 1, 9)
#define OF_TABLES(name) \
    OF_BASE(name, 3, 5, 8), OF_BASE(name, 9, 5, 16), OF_BASE(name, 16, 1, 4), OF_BASE(name, 33, 8, 41)

static const kernel kernels[] = {
    PLAIN(all_finite),
    PLAIN(accumulate),
    PLAIN(accumulate_twice),
    PLAIN(subtract),
    PLAIN(divide),
    PLAIN(divide_by_3),
    PLAIN(add),
    PLAIN(hash_leaf),
    PLAIN(halves_all_finite),
    PLAIN(fp16_narrow),
    PLAIN(fp16_widen),
    PLAIN(fp16_add),
    PLAIN(bf16_narrow),
    PLAIN(bf16_widen),
    PLAIN(bf16_add),
    PLAIN(largest_key),
    PLAIN(mark_keys),
    PLAIN(mark_bin),
    PLAIN(list_marks),
    PLAIN(compress),
    PLAIN(expand_add),
    PLAIN(expand_set),
    PLAIN(draw),
    PLAIN(ternary),
    PLAIN(two_sided),
    PLAIN(levels),
    PLAIN(natural),
    PLAIN(signs),
    PLAIN(mark_above),
    OF_TABLES(count_above),
    PLAIN(minifloats),
    OF_TABLES(round_between),
    PLAIN(powers),
    OF_TABLES(look_up),
    OF_TABLES(look_up_add),
    PLAIN(magnitudes),
    PLAIN(squares),
    PLAIN(moments),
    PLAIN(sums_around),
    PLAIN(sum_above),
    PLAIN(ends),
    PLAIN(nth),
    PLAIN(split),
    PLAIN(ways_up),
    OF_BASES(bits_write),
    OF_BASES(bits_read),
    OF_BASE(numbers_below, 5, 3, 7),
    OF_BASE(numbers_below, 33, 8, 41),
    OF_TABLES(count),
    PLAIN(split_words_2),
    PLAIN(split_words_4),
    PLAIN(join_words_2),
    PLAIN(join_words_4),
    OF_BASE(rans_push, 3, 5, 8),
    OF_BASE(rans_push, 16, 1, 4),
    OF_BASE(rans_push, 255, 1, 8),
    OF_BASE(rans_pull, 3, 5, 8),
    OF_BASE(rans_pull, 16, 1, 4),
    OF_BASE(rans_pull, 255, 1, 8),
};
enum { KERNEL_N = sizeof kernels / sizeof *kernels };

int main(int argc, char **argv)
{
    if (argc != 3) {
        for (size_t i = 0; i < KERNEL_N; i++) {
            (void)printf("%s\n", kernels[i].name);
        }
        return argc == 1 ? 0 : 2;
    }
    for (size_t i = 0; i < KERNEL_N; i++) { /* the instruction set is that of TG_SIMD */
        if (strcmp(kernels[i].name, argv[1]) == 0) {
            const tg_kernels *k = tg_kernels_best();
            size_t done = 0;
            fill_values();
            fill_symbols(kernels[i].base, kernels[i].k, kernels[i].bits);
            for (long times = strtol(argv[2], NULL, 10); times > 0; times--) {
                done = kernels[i].run(k);
            }
            (void)printf("%zu\n", done);
            return 0;
        }
    }
    return 2;
}
