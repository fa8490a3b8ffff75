/* Kernels of bucket quantizers and of plain bits, of every instruction set that this CPU has, against the scalar ones, pack/bits.c
 * and Philox: the same bits for any values and lengths. */
#include "support.h"

#include "base/half.h"
#include "base/philox.h"
#include "kernels/kernels.h"
#include "pack/pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3000 };
static const size_t lens[] = {0, 1, 7, 15, 16, 17, 31, 33, 63, 65, 511, 512, 513, 1000, 2048, N};
enum { LEN_N = sizeof lens / sizeof *lens };

typedef struct input {
    float values[N];
    uint32_t draws[N];
} input;

/* Finite values of many magnitudes, with equal ones, zeros of both signs, and the least and largest there are. */
static void fill(input *in, test_random *random, int kind)
{
    static const uint32_t edges[] = {0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x7f7fffff, 0xff7fffff, 0x3f800000};
    for (size_t i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)test_bits(random);
        in->draws[i] = (uint32_t)test_bits(random) | (bits % 97 == 0 ? 0xffffff00u : 0);
        in->draws[i] = bits % 89 == 0 ? bits % 256 : in->draws[i];
        float small = (float)((int32_t)(bits >> 8) - (1 << 23)) * 0x1p-23f;
        bits = (bits & 0x7f800000u) == 0x7f800000u ? bits & 0xbfffffffu : bits;
        float any = tg_bits_float(bits % 5 == 0 ? edges[bits / 8 % 8] : bits);
        in->values[i] = kind == 0 ? small : kind == 1 ? any : kind == 2 ? roundf(small * 4) / 4 : small * 1e-39f;
    }
}

typedef void (*look)(const tg_kernels *fast, const input *in, size_t n);

static void everywhere(look compare)
{
    static input in;
    test_random random = {11};
    for (int level = TG_SIMD_SCALAR + 1; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *fast = tg_kernels_of((tg_simd_level)level);
        for (int round = 0; fast != NULL && round < 24; round++) {
            fill(&in, &random, round % 4);
            for (size_t l = 0; l < LEN_N; l++) {
                compare(fast, &in, lens[l]);
            }
        }
    }
}

/* Outputs of both; the element after the last must not be written. */
static uint16_t want[N + 1], got[N + 1];

static void assert_same_symbols(size_t n)
{
    assert_memory_equal(want, got, n * sizeof *want);
}

static void compare_rounding(const tg_kernels *fast, const input *in, size_t n)
{
    float largest = tg_bits_float(tg_kernels_scalar.select.largest_key(in->values, n));
    tg_kernels_scalar.symbols.ternary(want, in->values, in->draws, largest, n);
    fast->symbols.ternary(got, in->values, in->draws, largest, n);
    assert_same_symbols(n);
    for (uint32_t most = 1; most < 256; most = most * 3 + 1) {
        float shift = largest < 0x1p-60f ? 0x1p80f : largest > 0x1p60f ? 0x1p-80f : 1.0f;
        float factor = largest > 0 ? (float)most / (largest * shift) : 0;
        tg_kernels_scalar.symbols.levels(want, in->values, in->draws, shift, factor, most, n);
        fast->symbols.levels(got, in->values, in->draws, shift, factor, most, n);
        assert_same_symbols(n);
    }
    tg_kernels_scalar.symbols.natural(want, in->values, in->draws, n);
    fast->symbols.natural(got, in->values, in->draws, n);
    assert_same_symbols(n);
    float powers[2][N];
    tg_kernels_scalar.symbols.powers(powers[0], want, n);
    fast->symbols.powers(powers[1], want, n);
    assert_memory_equal(powers[0], powers[1], n * sizeof **powers);
    tg_kernels_scalar.symbols.signs(want, in->values, n);
    fast->symbols.signs(got, in->values, n);
    assert_same_symbols(n);
    tg_kernels_scalar.symbols.mark_above(want, in->values, largest / 3, n);
    fast->symbols.mark_above(got, in->values, largest / 3, n);
    assert_same_symbols(n);
}

static void rounding_is_the_same(void **state)
{
    (void)state;
    everywhere(compare_rounding);
}

static void compare_tables(const tg_kernels *fast, const input *in, size_t n)
{
    static float values[2][N];
    for (uint32_t bound_n = 2; bound_n < 300; bound_n += 1 + bound_n / 4) {
        float bounds[300], most = n > 0 ? fabsf(in->values[n / 2]) : 1;
        for (uint32_t b = 0; b < bound_n; b++) {
            bounds[b] = most * ((float)b / (float)(bound_n - 1) - 0.5f);
        }
        for (int s = 0; s < 2; s++) {
            float scale = s == 0 ? 1.0f : 0.5f;
            tg_kernels_scalar.symbols.round_between(want, in->values, in->draws, bounds, bound_n, scale, n);
            fast->symbols.round_between(got, in->values, in->draws, bounds, bound_n, scale, n);
            assert_same_symbols(n);
        }
        tg_kernels_scalar.symbols.look_up(values[0], want, bounds, bound_n, n);
        fast->symbols.look_up(values[1], want, bounds, bound_n, n);
        assert_memory_equal(values[0], values[1], n * sizeof **values);
        tg_kernels_scalar.symbols.look_up_add(values[0], want, bounds, bound_n, n);
        fast->symbols.look_up_add(values[1], want, bounds, bound_n, n);
        assert_memory_equal(values[0], values[1], n * sizeof **values);
        tg_kernels_scalar.symbols.count_above(want, in->values, bounds, bound_n, n);
        fast->symbols.count_above(got, in->values, bounds, bound_n, n);
        assert_same_symbols(n);
    }
}

static void tables_are_the_same(void **state)
{
    (void)state;
    everywhere(compare_tables);
}

static void compare_sums(const tg_kernels *fast, const input *in, size_t n)
{
    double sums[2][2];
    const float thresholds[] = {INFINITY, 0, 0.25f, n > 0 ? in->values[n - 1] : 1, -INFINITY};
    for (size_t t = 0; t < sizeof thresholds / sizeof *thresholds; t++) {
        size_t above = tg_kernels_scalar.statistics.sums_around(sums[0], in->values, thresholds[t], 0x1p-30f, n);
        assert_int_equal(fast->statistics.sums_around(sums[1], in->values, thresholds[t], 0x1p-30f, n), above);
        assert_memory_equal(sums[0], sums[1], sizeof *sums);
    }
    size_t count = tg_kernels_scalar.statistics.moments(sums[0], in->values, n);
    assert_int_equal(fast->statistics.moments(sums[1], in->values, n), count);
    assert_memory_equal(sums[0], sums[1], sizeof *sums);
    assert_true(fast->statistics.squares(in->values, n) == sums[0][1]);
    assert_true(tg_kernels_scalar.statistics.squares(in->values, n) == sums[0][1]);
}

static void sums_are_the_same(void **state)
{
    (void)state;
    everywhere(compare_sums);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Against sorting. Partitioning keeps the values, and moves the smaller ones to the front. */
static void compare_order(const tg_kernels *k, const input *in, size_t n)
{
    static float room[2 * N], sorted[N], out[N];
    float ends[2];
    if (n == 0) {
        return;
    }
    memcpy(sorted, in->values, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    k->statistics.ends(ends, in->values, n);
    assert_true(ends[0] == sorted[0] && ends[1] == sorted[n - 1]);
    for (size_t m = 0; m < n; m += 1 + n / 7) {
        tg_ordered at = k->statistics.nth(room, in->values, n, m);
        assert_true(at.value == sorted[m] && at.less <= m && m < at.less + at.equal);
        assert_true(at.less == 0 || sorted[at.less - 1] < at.value);
        assert_true(at.less + at.equal == n || sorted[at.less + at.equal] > at.value);
        k->statistics.split(out, in->values, n, &at);
        for (size_t i = 0; i < n; i++) {
            assert_true(i < at.less              ? out[i] < at.value
                        : i < at.less + at.equal ? out[i] == at.value
                                                 : out[i] > at.value);
        }
        qsort(out, n, sizeof *out, by_value);
        for (size_t i = 0; i < n; i++) {
            assert_true(out[i] == sorted[i]);
        }
    }
    double high = (double)ends[1], scale = high > (double)ends[0] ? 0x1p40 / (high - (double)ends[0]) : 0;
    assert_true(k->statistics.ways_up(in->values, high, scale, n) ==
                tg_kernels_scalar.statistics.ways_up(sorted, high, scale, n));
}

static void order_is_that_of_sorting(void **state)
{
    (void)state;
    static input in;
    test_random random = {13};
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        for (int round = 0; k != NULL && round < 8; round++) {
            fill(&in, &random, round % 4);
            for (size_t i = 0; round > 3 && i < N; i++) { /* orders that mislead sampling, and many equal values */
                in.values[i] = round == 4 ? (float)i : round == 5 ? (float)(i % 32 == 16) : (float)(i * i % 7);
            }
            for (size_t l = 0; l < LEN_N; l++) {
                compare_order(k, &in, lens[l]);
            }
        }
    }
}

static void lists_are_the_same(void **state)
{
    (void)state;
    static uint64_t mask[N / 64 + 1];
    static uint32_t lists[2][N + TG_LIST_MORE];
    test_random random = {17};
    for (int level = TG_SIMD_SCALAR + 1; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        for (int round = 0; k != NULL && round < 40; round++) {
            for (size_t w = 0; w < N / 64 + 1; w++) {
                uint64_t bits = test_bits(&random);
                bits = round % 4 == 0 ? 0 : round % 4 == 1 ? bits & test_bits(&random) & test_bits(&random) : bits;
                mask[w] = round % 4 == 3 ? UINT64_MAX : bits;
            }
            for (size_t l = 0; l < LEN_N; l++) {
                size_t n = lens[l] / 64 * 64;
                size_t count = tg_kernels_scalar.select.list_marks(lists[0], mask, n);
                assert_int_equal(k->select.list_marks(lists[1], mask, n), count);
                assert_memory_equal(lists[0], lists[1], count * sizeof **lists);
            }
        }
    }
}

/* Draws begin and end anywhere, and count beyond 32 bits. */
static void draws_are_those_of_philox(void **state)
{
    (void)state;
    static uint32_t words[4 * N], expected[4 * N];
    static const uint64_t starts[] = {0, 1, 2, 3, 1000001, 0x3fffffff0, 0x400000000, 0xfffffffffffff000};
    const tg_stream stream = {UINT64_C(0x9e3779b97f4a7c15)};
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        for (size_t s = 0; k != NULL && s < sizeof starts / sizeof *starts; s++) {
            for (size_t n = 0; n < 200; n += 1 + n / 3) {
                tg_stream_words(expected, &stream, starts[s] / 4 * 4, 4 * n, 1);
                k->symbols.draw(words, stream.key, starts[s] / 4, 1, n, expected);
                assert_memory_equal(words, expected, 4 * n * sizeof *words);
                tg_stream_words(expected, &stream, starts[s], n, 0);
                tg_draw_words(words, stream.key, starts[s], n, 0, expected);
                assert_memory_equal(words, expected, n * sizeof *words);
            }
        }
    }
}

/* ---- plain bits ---------------------------------------------------------------------------------------------------------- */

/* Group by group, as in docs/format.md. Returns the bits of a group. */
static uint32_t write_by_definition(uint8_t *out, const uint16_t *symbols, size_t n, uint32_t base)
{
    uint32_t best_n = 1, best_bits = 0;
    double least = INFINITY;
    for (uint32_t k = 1; k <= 8 && pow(base, k) <= 0x1p48; k++) {
        uint32_t bits = 0;
        while (ldexp(1, (int)bits) < pow(base, k)) {
            bits++;
        }
        if ((double)bits / k < least - 1e-9) {
            least = (double)bits / k;
            best_n = k;
            best_bits = bits;
        }
    }
    memset(out, 0, (size_t)tg_bits_len(n, base));
    for (size_t at = 0, bit = 0; at < n; at += best_n, bit += best_bits) {
        uint64_t number = 0, place = 1;
        for (size_t i = at; i < at + best_n && i < n; i++, place *= base) {
            number += symbols[i] * place;
        }
        for (uint32_t b = 0; b < best_bits; b++) {
            out[(bit + b) / 8] |= (uint8_t)((number >> b & 1) << (bit + b) % 8);
        }
    }
    return best_n;
}

static void bits_are_as_defined(void **state)
{
    (void)state;
    static uint16_t symbols[N], back[N];
    static uint8_t bytes[2 * N], expected[2 * N];
    static const uint32_t bases[] = {2,  3,  4,  5,  6,   7,   9,   10,  11,  15,  17, 31,
                                     33, 40, 41, 63, 100, 127, 128, 200, 255, 257, 512};
    test_random random = {5};
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++) {
        for (size_t l = 1; l < LEN_N; l++) {
            size_t n = lens[l], len = (size_t)tg_bits_len(n, bases[b]);
            for (size_t i = 0; i < n; i++) {
                symbols[i] = (uint16_t)(test_bits(&random) % 4 == 0 ? bases[b] - 1 : test_bits(&random) % bases[b]);
            }
            (void)write_by_definition(expected, symbols, n, bases[b]);
            memset(bytes, 0xa5, sizeof bytes);
            tg_bits_write(bytes, symbols, n, bases[b]);
            assert_memory_equal(bytes, expected, len);
            assert_true(bytes[len] == 0xa5); /* nothing written after it */
            assert_true(tg_bits_check(bytes, n, bases[b]));
            assert_true(tg_bits_read(back, bytes, n, bases[b]));
            assert_memory_equal(back, symbols, n * sizeof *back);
        }
    }
}

/* All numbers of five digits in sequence. */
static void all_fives_are_read(void **state)
{
    (void)state;
    enum { NUMBERS = 59049 };
    static uint8_t bytes[2 * NUMBERS];
    static uint16_t symbols[5 * NUMBERS];
    for (uint32_t base = 3; base <= 9; base += 6) {
        size_t len = base == 3 ? 1 : 2, n = base == 3 ? 243 : NUMBERS;
        for (size_t i = 0; i < n; i++) {
            bytes[len * i] = (uint8_t)i;
            bytes[len * i + len - 1] = (uint8_t)(i >> 8 * (len - 1));
        }
        assert_true(tg_bits_read(symbols, bytes, 5 * n, base));
        for (size_t i = 0; i < n; i++) {
            size_t number = i;
            for (size_t digit = 0; digit < 5; digit++, number /= base) {
                assert_int_equal(symbols[5 * i + digit], number % base);
            }
        }
    }
}

/* Both detect a group that is too large, or a set bit after the last group. */
static void bad_bits_are_refused(void **state)
{
    (void)state;
    static uint16_t symbols[N], back[N];
    static uint8_t bytes[2 * N];
    static const uint32_t bases[] = {3, 5, 9, 11, 33, 100};
    test_random random = {6};
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++) {
        uint32_t align = tg_bits_align(bases[b]);
        size_t n = 1000 / align * align, len = (size_t)tg_bits_len(n, bases[b]);
        for (size_t i = 0; i < n; i++) {
            symbols[i] = (uint16_t)(test_bits(&random) % bases[b]);
        }
        size_t groups = n / (align / 8), bits = 8 * len / groups;
        for (size_t g = 0; g < groups; g++) {
            tg_bits_write(bytes, symbols, n, bases[b]);
            for (size_t bit = g * bits; bit < (g + 1) * bits; bit++) {
                bytes[bit / 8] |= (uint8_t)(1u << bit % 8);
            }
            assert_false(tg_bits_check(bytes, n, bases[b]));
            assert_false(tg_bits_read(back, bytes, n, bases[b]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_is_the_same),     cmocka_unit_test(tables_are_the_same),
        cmocka_unit_test(order_is_that_of_sorting), cmocka_unit_test(lists_are_the_same),
        cmocka_unit_test(sums_are_the_same),        cmocka_unit_test(draws_are_those_of_philox),
        cmocka_unit_test(bits_are_as_defined),      cmocka_unit_test(bad_bits_are_refused),
        cmocka_unit_test(all_fives_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
