/* Entropy-coded packs: round trips, sizes against the entropy, and damaged bytes. */
#include "base/bits.h"
#include "pack/geometric.h"
#include "plan/plan.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const tg_symbol_part tg_symbol_huffman, tg_symbol_lossless, tg_symbol_zstd;

enum { N = TG_CHUNK };

typedef struct coded {
    const tg_symbol_part *part;
    tg_coding coding;
    double params[TG_PARAM_CAP];
} coded;

static coded coded_new(const tg_symbol_part *part, uint32_t base, uint32_t word_len)
{
    coded c = {.part = part, .coding = {.base = base, .word_len = word_len}};
    c.params[0] = part->part.param_n > 0 ? part->part.params[0].standard : 0;
    c.coding.scratch = test_room((size_t)part->scratch_len(c.params));
    return c;
}

static size_t coded_write(uint8_t *out, const void *symbols, size_t count, coded *c)
{
    c->coding.params = c->params;
    return tg_coded_write(out, symbols, count, c->part, &c->coding);
}

static bool coded_read(void *symbols, const uint8_t *bytes, size_t len, size_t count, coded *c)
{
    c->coding.params = c->params;
    return tg_coded_read(symbols, bytes, len, count, c->part, &c->coding);
}

/* ---- symbols --------------------------------------------------------------------------------------------------------- */

typedef enum law { CONSTANT, EVEN, GEOMETRIC, RARE, LAW_N } law;

static uint16_t draw(law l, uint32_t base, test_random *r)
{
    double u = test_uniform(r);
    switch (l) {
    case EVEN: return (uint16_t)(u * base);
    case GEOMETRIC: return (uint16_t)fmin(floor(-log(1 - u) * base / 6), base - 1);
    case RARE: return (uint16_t)(u < 0.98 ? base / 2 : (uint32_t)((u - 0.98) * 50 * base));
    default: return (uint16_t)(base - 1);
    }
}

static void fill(uint16_t *symbols, size_t n, law l, uint32_t base, test_random *r)
{
    for (size_t i = 0; i < n; i++) {
        symbols[i] = draw(l, base, r);
    }
}

static double entropy_len(const uint16_t *symbols, size_t n)
{
    uint32_t counts[TG_BASE_MAX] = {0};
    double bits = 0;
    for (size_t i = 0; i < n; i++) {
        counts[symbols[i]]++;
    }
    for (uint32_t s = 0; s < TG_BASE_MAX; s++) {
        bits -= counts[s] == 0 ? 0 : counts[s] * log2((double)counts[s] / (double)n);
    }
    return bits / 8;
}

/* Uses a buffer of the exact length, so that a sanitizer detects any access past its end. Returns the length. */
static size_t round_trip(coded *c, const uint16_t *symbols, size_t n)
{
    size_t limit = (size_t)tg_bits_len(n, c->coding.base) + 1;
    uint8_t *bytes = test_room(limit), *again = test_room(limit);
    size_t len = coded_write(bytes, symbols, n, c);
    assert_true(len >= 1 && len <= limit);
    assert_int_equal(coded_write(again, symbols, n, c), len);
    assert_memory_equal(again, bytes, len);
    uint8_t *exact = test_room(len);
    memcpy(exact, bytes, len);
    uint16_t *back = test_room(n * sizeof *back);
    assert_true(coded_read(back, exact, len, n, c));
    assert_memory_equal(back, symbols, n * sizeof *back);
    assert_false(coded_read(back, exact, len - 1, n, c));
    free(back);
    free(exact);
    free(again);
    free(bytes);
    return len;
}

static void symbols_round_trip(void **state)
{
    (void)state;
    static const tg_symbol_part *const parts[] = {&tg_symbol_huffman, &tg_symbol_rans, &tg_symbol_zstd};
    static const uint32_t bases[] = {2, 3, 9, 11, 17, 247, 511, 512};
    static const size_t sizes[] = {1, 2, 3, 7, 64, 65, 1000, 5003, 70001};
    test_random r = {21};
    uint16_t *symbols = test_room(N * sizeof *symbols);
    for (size_t p = 0; p < 3; p++) {
        for (size_t b = 0; b < 8; b++) {
            coded c = coded_new(parts[p], bases[b], 0);
            for (size_t i = 0; i < 9 * LAW_N; i++) {
                fill(symbols, sizes[i / LAW_N], (law)(i % LAW_N), bases[b], &r);
                round_trip(&c, symbols, sizes[i / LAW_N]);
            }
            fill(symbols, N, GEOMETRIC, bases[b], &r);
            round_trip(&c, symbols, N);
            free(c.coding.scratch);
        }
    }
    free(symbols);
}

/* From 64 k symbols on, tables and all, from 128 k with large bases: within 1%, or within 1/32 bit a symbol. A table takes up to a byte a symbol, which counts where
 * almost nothing else does. */
static void rans_comes_near_the_entropy(void **state)
{
    (void)state;
    static const uint32_t bases[] = {2, 3, 5, 9, 11, 17, 64, 239, 247, 512};
    test_random r = {22};
    uint16_t *symbols = test_room(N * sizeof *symbols);
    double worst = 0;
    for (size_t b = 0; b < 10; b++) {
        coded c = coded_new(&tg_symbol_rans, bases[b], 0);
        for (size_t n = bases[b] <= 256 ? 65536 : 131072; n <= N; n *= 2) {
            for (law l = EVEN; l < LAW_N; l++) {
                fill(symbols, n, l, bases[b], &r);
                double base_len = l == RARE ? bases[b] : 0;
                double entropy = entropy_len(symbols, n), len = (double)round_trip(&c, symbols, n);
                if (len > fmax(1.01 * entropy, entropy + 8 + (double)n / 256 + base_len)) {
                    fail_msg("base %u, %zu symbols, law %d: %.0f bytes, entropy %.0f", bases[b], n, l, len, entropy);
                }
                worst = entropy < (double)n / 2 ? worst : fmax(worst, len / entropy - 1); /* from 4 bits a symbol on */
            }
        }
        free(c.coding.scratch);
    }
    print_message("rans: at most %.2f%% above the entropy\n", 100 * worst);
    assert_true(worst < 0.01);
    free(symbols);
}

/* Counting, however long and repetitive. */
static void symbols_are_counted(void **state)
{
    (void)state;
    static const uint32_t bases[] = {2, 3, 16, 31, 32, 33, 100, 512};
    enum { MOST = 10000 };
    test_random r = {30};
    uint16_t *symbols = test_room(MOST * sizeof *symbols);
    for (size_t round = 0; round < 400; round++) {
        uint32_t base = bases[round % 8], counts[TG_BASE_MAX], want[TG_BASE_MAX] = {0};
        size_t n = round % 3 == 0 ? (size_t)(test_bits(&r) % 100) : MOST - (size_t)(test_bits(&r) % 3000);
        uint32_t from = (uint32_t)(test_bits(&r) % (TG_BASE_MAX + 1 - base)); /* symbols need not begin with 0 */
        fill(symbols, n, (law)(round / 8 % LAW_N), base, &r);
        for (size_t i = 0; i < n; i++) {
            symbols[i] = (uint16_t)(symbols[i] + from);
            want[symbols[i]]++;
        }
        tg_count_symbols(counts, symbols, n, from + base);
        assert_memory_equal(counts, want, (from + base) * sizeof *want);
    }
    free(symbols);
}

/* ---- prefix codes ------------------------------------------------------------------------------------------------------ */

/* Bits of Huffman's own code, of any length: the sum of all weights that two smallest are merged to. */
static uint64_t huffman_bits(const uint32_t *counts, uint32_t base, uint32_t *depth)
{
    uint64_t weight[TG_BASE_MAX], bits = 0;
    uint32_t deep[TG_BASE_MAX], n = 0;
    for (uint32_t s = 0; s < base; s++) {
        if (counts[s] > 0) {
            weight[n] = counts[s];
            deep[n++] = 0;
        }
    }
    while (n > 1) {
        for (uint32_t end = n - 1; end + 2 >= n && end < n; end--) { /* the two smallest to the end */
            for (uint32_t i = 0; i < end; i++) {
                bool less = weight[i] < weight[end] || (weight[i] == weight[end] && deep[i] < deep[end]);
                uint64_t w = less ? weight[i] : weight[end];
                uint32_t d = less ? deep[i] : deep[end];
                weight[i] = less ? weight[end] : weight[i];
                deep[i] = less ? deep[end] : deep[i];
                weight[end] = w;
                deep[end] = d;
            }
            if (end == 0) {
                break;
            }
        }
        weight[n - 2] += weight[n - 1];
        deep[n - 2] = 1 + (deep[n - 2] > deep[n - 1] ? deep[n - 2] : deep[n - 1]);
        bits += weight[n - 2];
        n--;
    }
    *depth = deep[0];
    return bits;
}

/* The best length: Huffman's, where its code needs no more than 12 bits; never less. */
static void prefix_codes_are_optimal(void **state)
{
    (void)state;
    test_random r = {23};
    uint32_t optimal = 0;
    for (int round = 0; round < 300; round++) {
        uint32_t base = 2 + (uint32_t)(test_bits(&r) % 60), depth = 0;
        size_t n = 1024; /* one stream */
        uint16_t *symbols = test_room(n * sizeof *symbols);
        uint32_t counts[TG_BASE_MAX] = {0};
        double skew = test_uniform(&r) * 3;
        for (size_t i = 0; i < n; i++) {
            symbols[i] = (uint16_t)(pow(test_uniform(&r), 1 + skew * 4) * base);
            counts[symbols[i]]++;
        }
        uint64_t bits = huffman_bits(counts, base, &depth);
        coded c = coded_new(&tg_symbol_huffman, base, 0);
        uint8_t *bytes = test_room((size_t)tg_bits_len(n, base) + 1);
        size_t len = coded_write(bytes, symbols, n, &c);
        size_t best = 1 + (base + 1) / 2 + (size_t)((bits + 7) / 8);
        if (bytes[0] != 0) {
            assert_true(len >= best);
            if (depth <= 12) {
                assert_int_equal(len, best);
                optimal++;
            }
        }
        free(bytes);
        free(c.coding.scratch);
        free(symbols);
    }
    assert_true(optimal > 100);
}

/* Weights like Fibonacci's numbers make codes as long as there are symbols; here they stay at 12 bits. */
static void prefix_codes_are_limited(void **state)
{
    (void)state;
    uint16_t *symbols = test_room(N * sizeof *symbols);
    size_t n = 0;
    uint32_t a = 1, b = 1;
    for (uint16_t s = 0; s < 22; s++) {
        for (uint32_t i = 0; i < a; i++) {
            symbols[n++] = s;
        }
        uint32_t next = a + b;
        a = b;
        b = next;
    }
    coded c = coded_new(&tg_symbol_huffman, 22, 0);
    uint8_t *bytes = test_room((size_t)tg_bits_len(n, 22) + 1);
    size_t len = coded_write(bytes, symbols, n, &c);
    assert_int_equal(bytes[0], 1);
    double kraft = 0;
    for (uint32_t s = 0; s < 22; s++) {
        uint32_t length = bytes[1 + s / 2] >> 4 * (s % 2) & 15;
        assert_in_range(length, 1, 12);
        kraft += pow(2, -(double)length);
    }
    assert_true(kraft == 1);
    assert_true((double)len < 1.05 * entropy_len(symbols, n));
    free(bytes);
    round_trip(&c, symbols, n);
    free(c.coding.scratch);
    free(symbols);
}

/* ---- words ------------------------------------------------------------------------------------------------------------- */

static void words_round_trip(void **state)
{
    (void)state;
    test_random r = {24};
    uint8_t *words = test_room(4 * N), *back = test_room(4 * N);
    static const tg_symbol_part *const parts[] = {&tg_symbol_lossless, &tg_symbol_zstd};
    static const size_t sizes[] = {1, 2, 3, 17, 1000, 65536, N};
    for (size_t i = 0; i < 2 * 2 * 7 * 2; i++) {
        uint32_t word_len = i & 1 ? 4 : 2;
        size_t n = sizes[i / 8];
        coded c = coded_new(parts[i >> 1 & 1], 0, word_len);
        for (size_t k = 0; k < n; k++) {
            double normal = sqrt(-2 * log(1 - test_uniform(&r))) * cos(6.283185307 * test_uniform(&r));
            float value = (float)normal;
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            bits = i & 4 ? (uint32_t)k : word_len == 4 ? bits : bits >> 16; /* or all 16-bit words there are */
            for (uint32_t b = 0; b < word_len; b++) {
                words[word_len * k + b] = (uint8_t)(bits >> 8 * b);
            }
        }
        uint8_t *bytes = test_room(n * word_len + 1);
        size_t len = coded_write(bytes, words, n, &c);
        assert_true(coded_read(back, bytes, len, n, &c));
        assert_memory_equal(back, words, n * word_len);
        assert_false(coded_read(back, bytes, len - 1, n, &c));
        if (c.part == &tg_symbol_lossless && n == N && !(i & 4)) { /* a normal distribution, at its bound */
            double ratio = (double)len / (double)(n * word_len);
            print_message("lossless, %u bytes a word: %.4f of the size\n", word_len, ratio);
            assert_true(ratio < (word_len == 4 ? 0.84 : 0.67));
        }
        free(bytes);
        free(c.coding.scratch);
    }
    free(back);
    free(words);
}

/* ---- indices ----------------------------------------------------------------------------------------------------------- */

static size_t geometric_trip(const uint64_t *mask, size_t n, size_t count)
{
    size_t cap = 2 * tg_bitmap_len(n) + 16;
    uint8_t *bytes = test_room(cap);
    size_t len = tg_geometric_write(bytes, cap, mask, n, count);
    if (len > 0) {
        uint8_t *exact = test_room(len);
        uint64_t *back = test_room(tg_words(n) * sizeof *back);
        assert_int_equal(tg_geometric_write(exact, len, mask, n, count), len);
        assert_memory_equal(exact, bytes, len);
        assert_int_equal(tg_geometric_write(exact, len - 1, mask, n, count), 0);
        memcpy(exact, bytes, len);
        memset(back, 0, tg_words(n) * sizeof *back);
        assert_true(tg_geometric_read(back, exact, len, n, count));
        assert_memory_equal(back, mask, tg_words(n) * sizeof *back);
        memset(back, 0, tg_words(n) * sizeof *back);
        assert_false(tg_geometric_read(back, exact, len - 2, n, count));
        free(back);
        free(exact);
    }
    free(bytes);
    return len;
}

static void gaps_reach_the_bound(void **state)
{
    (void)state;
    test_random r = {25};
    uint64_t *mask = test_room(tg_words(N) * sizeof *mask);
    static const double densities[] = {0.001, 0.01, 0.03, 0.1, 0.3};
    for (int d = 0; d < 5; d++) {
        double p = densities[d], entropy = -p * log2(p) - (1 - p) * log2(1 - p);
        size_t count = 0, len = 0;
        for (int chunk = 0; chunk < 4; chunk++) {
            memset(mask, 0, N / 8);
            for (size_t i = 0; i < N; i++) {
                mask[i / 64] |= (uint64_t)(test_uniform(&r) < p) << i % 64;
            }
            size_t marked = (size_t)tg_mask_count(mask, N);
            count += marked;
            len += geometric_trip(mask, N, marked);
        }
        double bits = 8 * (double)len / (double)count;
        print_message("density %g%%: %.3f bits an index, bound %.3f, %.2f%% above\n", 100 * p, bits, entropy / p,
                      100 * (bits / (entropy / p) - 1));
        assert_true(bits < 1.02 * entropy / p);
    }
    free(mask);
}

static void gaps_of_any_kind(void **state)
{
    (void)state;
    test_random r = {26};
    uint64_t *mask = test_room(tg_words(N) * sizeof *mask);
    for (int round = 0; round < 2000; round++) {
        size_t n = 1 + (size_t)(test_bits(&r) % (round % 50 == 0 ? N : 700));
        memset(mask, 0, tg_words(n) * sizeof *mask);
        size_t marks = 1 + (size_t)(test_bits(&r) % (round % 3 ? 8 : n));
        for (size_t i = 0; i < marks; i++) {
            uint64_t at = test_bits(&r) % n; /* alone, in runs, or only at the end */
            tg_mask_fill(mask, round % 4 ? at : n - 1, round % 5 ? (round % 4 ? at + 1 : n) : n);
        }
        geometric_trip(mask, n, (size_t)tg_mask_count(mask, n));
    }
    free(mask);
}

/* ---- damage ------------------------------------------------------------------------------------------------------------ */

/* Whatever the bytes, reading terminates and stays in bounds, and accepted symbols are below the base. */
static void damage(const tg_symbol_part *part, uint32_t base, size_t n, law l, test_random *r, uint64_t tally[2])
{
    coded c = coded_new(part, base, 0);
    uint16_t *symbols = test_room(n * sizeof *symbols);
    uint8_t *bytes = test_room((size_t)tg_bits_len(n, base) + 1);
    fill(symbols, n, l, base, r);
    size_t len = coded_write(bytes, symbols, n, &c);
    uint8_t *exact = test_room(len);
    for (int trial = 0; trial < 8; trial++) {
        memcpy(exact, bytes, len);
        for (uint64_t hits = 1 + test_bits(r) % 3; hits > 0; hits--) {
            size_t near = test_bits(r) % 2 == 0 || len < 500 ? len : 500; /* where tables and states are, or anywhere */
            exact[test_bits(r) % near] = (uint8_t)(test_bits(r) >> (test_bits(r) % 8));
        }
        bool accepted = coded_read(symbols, exact, len, n, &c);
        tally[accepted ? 1 : 0]++;
        for (size_t i = 0; accepted && i < n; i++) {
            assert_true(symbols[i] < base);
        }
    }
    free(exact);
    free(bytes);
    free(symbols);
    free(c.coding.scratch);
}

static const tg_symbol_part *const damaged_parts[] = {&tg_symbol_huffman, &tg_symbol_rans, &tg_symbol_zstd};

static void damage_is_refused_or_sound(void **state)
{
    (void)state;
    test_random r = {27};
    uint64_t tally[2] = {0};
    for (int round = 0; round < 6000; round++) {
        uint32_t base = (const uint32_t[]){2, 3, 11, 247, 512}[round % 5];
        size_t n = 1 + (size_t)(test_bits(&r) % 400);
        damage(damaged_parts[round % 3], base, n, (law)(round % LAW_N), &r, tally);
    }
    assert_true(tally[0] > 5000 && tally[1] > 100);
}

/* Long enough for several segments, and for many streams. */
static void damage_to_long_ones_too(void **state)
{
    (void)state;
    test_random r = {32};
    uint64_t tally[2] = {0};
    for (int round = 0; round < 60; round++) {
        uint32_t base = (const uint32_t[]){3, 11, 30, 247, 512}[round % 5];
        size_t n = 10000 + (size_t)(test_bits(&r) % (round % 2 ? 40000 : 200000));
        damage(damaged_parts[round % 2], base, n, (law)(1 + round % (LAW_N - 1)), &r, tally);
    }
    assert_true(tally[0] > 100);
}

static void damaged_gaps_are_refused_or_sound(void **state)
{
    (void)state;
    test_random r = {28};
    uint64_t accepted = 0;
    for (int round = 0; round < 100000; round++) {
        size_t n = 1 + (size_t)(test_bits(&r) % 300), len = 4 + 2 * (size_t)(test_bits(&r) % 5);
        size_t count = 1 + (size_t)(test_bits(&r) % (n < 4 ? n : 4));
        uint8_t *bytes = test_room(len);
        uint64_t mask[5] = {0};
        for (size_t i = 0; i < len; i++) {
            bytes[i] = (uint8_t)test_bits(&r);
        }
        bytes[3] &= 0x7f;
        if (tg_geometric_read(mask, bytes, len, n, count)) {
            accepted++;
            assert_int_equal(tg_mask_count(mask, n), count);
        }
        if (round % 2) { /* valid ones with one bit flipped */
            memset(mask, 0, sizeof mask);
            for (size_t i = 0; i < count; i++) {
                mask[0] |= UINT64_C(1) << test_bits(&r) % (n < 64 ? n : 64);
            }
            uint8_t sound[64];
            size_t marked = (size_t)tg_mask_count(mask, n), sound_len = tg_geometric_write(sound, 64, mask, n, marked);
            sound[test_bits(&r) % sound_len] ^= (uint8_t)(1u << test_bits(&r) % 8);
            uint64_t back[5] = {0};
            if (tg_geometric_read(back, sound, sound_len, n, marked)) {
                accepted++;
                assert_int_equal(tg_mask_count(back, n), marked);
            }
        }
        free(bytes);
    }
    assert_true(accepted > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(symbols_round_trip),
        cmocka_unit_test(rans_comes_near_the_entropy),
        cmocka_unit_test(symbols_are_counted),
        cmocka_unit_test(prefix_codes_are_optimal),
        cmocka_unit_test(prefix_codes_are_limited),
        cmocka_unit_test(words_round_trip),
        cmocka_unit_test(gaps_reach_the_bound),
        cmocka_unit_test(gaps_of_any_kind),
        cmocka_unit_test(damage_is_refused_or_sound),
        cmocka_unit_test(damage_to_long_ones_too),
        cmocka_unit_test(damaged_gaps_are_refused_or_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
