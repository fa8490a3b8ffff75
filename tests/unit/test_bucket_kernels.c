/* Kernels of bucket quantizers, of every instruction set that this CPU has, against the scalar ones and Philox: the same bits for any
 * values and lengths. */
#include "support.h"

#include "base/half.h"
#include "base/philox.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3000 };
static const size_t lens[] = {0, 1, 7, 15, 16, 17, 31, 33, 63, 65, 511, 512, 513, 1000, 2048, N};
enum { LEN_N = sizeof lens / sizeof *lens };

typedef struct input {
    float values[N];
    uint16_t upper[N];
    tg_draws draws;
} input;

/* Finite values of many magnitudes, with equal ones, zeros of both signs, and the least and largest there are. */
static void fill(input *in, test_random *random, int kind)
{
    static const uint32_t edges[] = {0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x7f7fffff, 0xff7fffff, 0x3f800000};
    for (size_t i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)test_bits(random);
        in->upper[i] = bits % 97 == 0 ? 0xffff : bits % 89 == 0 ? 0 : (uint16_t)test_bits(random);
        float small = (float)((int32_t)(bits >> 8) - (1 << 23)) * 0x1p-23f;
        bits = (bits & 0x7f800000u) == 0x7f800000u ? bits & 0xbfffffffu : bits;
        float any = tg_bits_float(bits % 5 == 0 ? edges[bits / 8 % 8] : bits);
        in->values[i] = kind == 0 ? small : kind == 1 ? any : kind == 2 ? roundf(small * 4) / 4 : small * 1e-39f;
        /* Draws that do not decide, where values are rounded on [-1, 1], and to powers of two. */
        in->upper[i] = bits % 41 == 0 ? (uint16_t)(fabsf(small) * 0x1p16f) : in->upper[i];
        in->upper[i] = bits % 43 == 0 ? (uint16_t)(tg_float_bits(in->values[i]) >> 7) : in->upper[i];
    }
    in->draws = (tg_draws){in->upper, test_bits(random), test_bits(random), (uint32_t)kind % 2};
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
            for (size_t n = 0; round < 4 && n < 200; n++) {
                compare(fast, &in, n);
            }
        }
    }
}

/* Outputs of both; the element after the last must not be written. */
static uint16_t want[N + 1], got[N + 1];

static void assert_same_symbols(size_t n)
{
    assert_memory_equal(want, got, (n + 1) * sizeof *want);
}

static void compare_rounding(const tg_kernels *fast, const input *in, size_t n)
{
    float largest = tg_bits_float(tg_kernels_scalar.select.largest_key(in->values, n));
    tg_kernels_scalar.symbols.ternary(want, in->values, &in->draws, largest, n);
    fast->symbols.ternary(got, in->values, &in->draws, largest, n);
    assert_same_symbols(n);
    tg_kernels_scalar.symbols.two_sided(want, in->values, &in->draws, largest / 3, n);
    fast->symbols.two_sided(got, in->values, &in->draws, largest / 3, n);
    assert_same_symbols(n);
    for (uint32_t most = 1; most < 256; most = most * 3 + 1) {
        float shift = largest < 0x1p-60f ? 0x1p80f : largest > 0x1p60f ? 0x1p-80f : 1.0f;
        float factor = largest > 0 ? (float)most / (largest * shift) : 0;
        tg_kernels_scalar.symbols.levels(want, in->values, &in->draws, shift, factor, most, n);
        fast->symbols.levels(got, in->values, &in->draws, shift, factor, most, n);
        assert_same_symbols(n);
    }
    tg_kernels_scalar.symbols.natural(want, in->values, &in->draws, n);
    fast->symbols.natural(got, in->values, &in->draws, n);
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

/* Values whose quotient by x is close to the draw, in units of 2^-16: where draws hardly decide, or do not. */
static void near_draws(input *in, test_random *random, float x)
{
    for (size_t i = 0; i < N; i++) {
        uint64_t bits = test_bits(random);
        in->upper[i] = bits % 5 == 0   ? (uint16_t)(bits >> 8 & 3)
                       : bits % 5 == 1 ? (uint16_t) ~(bits >> 8 & 3)
                                       : (uint16_t)(bits >> 8);
        float value = ((float)in->upper[i] + (float)(bits >> 24 & 3) - 1) * 0x1p-16f * x;
        for (uint64_t steps = bits >> 32 & 3; steps > 0; steps--) {
            value = nextafterf(value, (bits >> 40 & 1) != 0 ? INFINITY : -INFINITY);
        }
        in->values[i] = (bits >> 41 & 1) != 0 ? value : -value;
    }
}

static void rounding_is_the_same_near_draws(void **state)
{
    (void)state;
    static input in;
    static float moved[N];
    test_random random = {23};
    for (int round = 0; round < 120; round++) {
        float x =
            ldexpf(1 + (float)(test_bits(&random) >> 40) * 0x1p-24f, round % 4 == 0 ? round * 2 - 120 : round % 9);
        near_draws(&in, &random, x);
        in.draws = (tg_draws){in.upper, test_bits(&random), test_bits(&random), 0};
        float bounds[5] = {-x, -x / 2, 0, x, x * 3};
        for (size_t i = 0; i < N; i++) {
            moved[i] = 2 * in.values[i] - x;
        }
        for (int level = TG_SIMD_SCALAR + 1; level < TG_SIMD_LEVELS; level++) {
            const tg_kernels *fast = tg_kernels_of((tg_simd_level)level);
            if (fast == NULL) {
                continue;
            }
            tg_kernels_scalar.symbols.ternary(want, in.values, &in.draws, x, N);
            fast->symbols.ternary(got, in.values, &in.draws, x, N);
            assert_same_symbols(N);
            tg_kernels_scalar.symbols.two_sided(want, moved, &in.draws, x, N);
            fast->symbols.two_sided(got, moved, &in.draws, x, N);
            assert_same_symbols(N);
            tg_kernels_scalar.symbols.levels(want, in.values, &in.draws, 1.0f, 1 / x, 3, N);
            fast->symbols.levels(got, in.values, &in.draws, 1.0f, 1 / x, 3, N);
            assert_same_symbols(N);
            tg_kernels_scalar.symbols.round_between(want, in.values, &in.draws, bounds, 5, 1.0f, N);
            fast->symbols.round_between(got, in.values, &in.draws, bounds, 5, 1.0f, N);
            assert_same_symbols(N);
        }
    }
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
            tg_kernels_scalar.symbols.round_between(want, in->values, &in->draws, bounds, bound_n, scale, n);
            fast->symbols.round_between(got, in->values, &in->draws, bounds, bound_n, scale, n);
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
    const tg_statistic_kernels *slow = &tg_kernels_scalar.statistics;
    double sums[2][2];
    const float thresholds[] = {INFINITY, 0, 0.25f, n > 0 ? in->values[n - 1] : 1, -INFINITY};
    n = n < TG_SUM_LEAF ? n : TG_SUM_LEAF;
    for (size_t t = 0; t < sizeof thresholds / sizeof *thresholds; t++) {
        size_t above = slow->sums_around(sums[0], in->values, thresholds[t], 0x1p-30f, n);
        assert_int_equal(fast->statistics.sums_around(sums[1], in->values, thresholds[t], 0x1p-30f, n), above);
        assert_memory_equal(sums[0], sums[1], sizeof *sums);
    }
    size_t count = slow->moments(sums[0], in->values, n);
    assert_int_equal(fast->statistics.moments(sums[1], in->values, n), count);
    assert_memory_equal(sums[0], sums[1], sizeof *sums);
    assert_true(fast->statistics.magnitudes(in->values, n) == sums[0][0]);
    assert_true(slow->magnitudes(in->values, n) == sums[0][0]);
    assert_true(fast->statistics.squares(in->values, n) == sums[0][1]);
    assert_true(slow->squares(in->values, n) == sums[0][1]);
    static float eighths[N]; /* their sums are exact */
    for (size_t i = 0; i < n; i++) {
        eighths[i] = (float)((int)in->upper[i] - 32768) / 8;
    }
    for (float threshold = 0; threshold < 5000; threshold = threshold * 3 + 1) {
        double above[2] = {1, 1};
        size_t above_n = slow->sum_above(&above[0], eighths, threshold, n);
        assert_int_equal(fast->statistics.sum_above(&above[1], eighths, threshold, n), above_n);
        assert_true(above[0] == above[1]);
    }
}

/* Leaf by leaf and level by level, as in docs/format.md. */
static double sum_by_definition(const double *x, size_t n)
{
    static double level[N];
    size_t leaf_n = 0;
    for (size_t at = 0; at < n; at += 1024) {
        double parts[32] = {0};
        for (size_t i = at; i < n && i < at + 1024; i++) {
            parts[(i - at) % 32] += x[i];
        }
        for (size_t h = 16; h > 0; h /= 2) {
            for (size_t l = 0; l < h; l++) {
                parts[l] += parts[l + h];
            }
        }
        level[leaf_n++] = parts[0];
    }
    while (leaf_n > 1) {
        for (size_t i = 0; i < leaf_n / 2; i++) {
            level[i] = level[2 * i] + level[2 * i + 1];
        }
        if (leaf_n % 2 == 1) {
            level[leaf_n / 2] = level[leaf_n - 1];
        }
        leaf_n = (leaf_n + 1) / 2;
    }
    return leaf_n == 0 ? 0 : level[0];
}

/* Any number of leaves, whole or in portions. */
static void sums_follow_the_definition(void **state)
{
    (void)state;
    enum { MANY = 40 * 1024 };
    static float values[MANY];
    static double magnitudes[MANY], squares[MANY];
    test_random random = {19};
    for (size_t i = 0; i < MANY; i++) {
        values[i] = ldexpf((float)((int64_t)test_bits(&random) >> 32), (int)(test_bits(&random) % 40) - 60);
        magnitudes[i] = fabs((double)values[i]);
        squares[i] = (double)values[i] * (double)values[i];
    }
    for (size_t n = 0; n < MANY; n += 1 + n / 5) {
        double of[2], sum = sum_by_definition(magnitudes, n);
        (void)tg_sum_moments(of, values, n);
        assert_true(of[0] == sum && tg_sum_magnitudes(values, n) == sum);
        assert_true(of[1] == sum_by_definition(squares, n) && tg_sum_squares(values, n) == of[1]);
        tg_summing portions = {{0}, 0, {0, {0}}};
        for (size_t at = 0, some = 0; at < n; at += some) {
            some = (size_t)(test_bits(&random) % 3000);
            some = some < n - at ? some : n - at;
            tg_summing_add(&portions, values + at, some);
        }
        assert_true(tg_summing_end(&portions) == sum);
    }
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
            for (size_t n = 0; n < 100; n++) {
                compare_order(k, &in, n);
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
                size_t count = tg_kernels_scalar.select.list_marks(lists[0], mask, (uint32_t)round, n);
                assert_int_equal(k->select.list_marks(lists[1], mask, (uint32_t)round, n), count);
                assert_memory_equal(lists[0], lists[1], count * sizeof **lists);
            }
        }
    }
}

/* Draws begin and end anywhere, and count beyond 32 bits. */
static void draws_are_those_of_philox(void **state)
{
    (void)state;
    static uint16_t draws[TG_HALVES * N], expected[TG_HALVES * N];
    static const uint64_t starts[] = {0, 1, 2, 3, 7, 1000001, 0x7ffffffe0, 0x800000000, 0xfffffffffffff000};
    const tg_stream stream = {UINT64_C(0x9e3779b97f4a7c15)};
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        for (size_t s = 0; k != NULL && s < sizeof starts / sizeof *starts; s++) {
            for (size_t n = 0; n < 200; n += 1 + n / 3) {
                tg_stream_halves(expected, &stream, starts[s] / 8 * 8, 8 * n, TG_HALF_UPPER, 1);
                k->symbols.draw(draws, stream.key, starts[s] / 8, 1, n, expected);
                assert_memory_equal(draws, expected, 8 * n * sizeof *draws);
                tg_stream_halves(expected, &stream, starts[s], n, TG_HALF_UPPER, 0);
                tg_draws all = tg_draw(draws, stream.key, starts[s], n, 0, expected);
                assert_true(all.upper == draws && all.at == starts[s] && all.other == 0);
                assert_memory_equal(draws, expected, n * sizeof *draws);
            }
        }
    }
}

/* The short way of deciding agrees with the definition, also where the draw alone does not decide. */
static void rounding_follows_the_definition(void **state)
{
    (void)state;
    enum { SOME = 4096 };
    static uint16_t upper[SOME + TG_DRAWS_MORE];
    test_random random = {23};
    size_t undecided = 0;
    for (int round = 0; round < 60; round++) {
        const tg_stream stream = {test_bits(&random)};
        tg_draws d = tg_draw(upper, stream.key, test_bits(&random), SOME, 0, upper);
        for (size_t i = 0; i < SOME; i++) {
            uint16_t halves[2];
            tg_stream_halves(&halves[0], &stream, d.at + i, 1, TG_HALF_UPPER, 0);
            tg_stream_halves(&halves[1], &stream, d.at + i, 1, TG_HALF_LOWER, 0);
            double r = (double)(halves[0] * UINT32_C(65536) + halves[1]) * 0x1p-32;
            float unit = (float)r;
            unit = (double)unit > r ? nextafterf(unit, 0) : unit;
            assert_true(tg_draw_unit(&d, i) == unit && unit >= 0 && unit < 1);
            float x = tg_bits_float((uint32_t)test_bits(&random) >> 1), y;
            x = isfinite(x) ? x : 1;
            y = i % 3 == 0 ? unit * x : i % 3 == 1 ? nextafterf(unit * x, INFINITY) : x;
            assert_int_equal(tg_draw_below(&d, i, x, y), unit * x < y);
            undecided += ((float)upper[i] * 0x1p-16f + 0x1p-16f) * x >= y && (float)upper[i] * 0x1p-16f * x < y;
            if (i % 3 == 2 && x > 0) {
                assert_true(tg_draw_below(&d, i, x, y)); /* what is certain happens always */
            }
        }
    }
    assert_true(undecided > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_is_the_same_near_draws),
        cmocka_unit_test(rounding_is_the_same),
        cmocka_unit_test(tables_are_the_same),
        cmocka_unit_test(order_is_that_of_sorting),
        cmocka_unit_test(lists_are_the_same),
        cmocka_unit_test(sums_are_the_same),
        cmocka_unit_test(draws_are_those_of_philox),
        cmocka_unit_test(sums_follow_the_definition),
        cmocka_unit_test(rounding_follows_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
