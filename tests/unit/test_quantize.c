/* Bucket quantizers: levels against brute force, values against their definition. */
#include "quantize/bucket.h"
#include "quantize/levels.h"
#include "support.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D_MAX = 90, S_MAX = 17 };

/* A bucket of a kind: Gaussian, ties, constant, two values, denormals, a wide range, sorted. */
static size_t draw_bucket(float *x, test_random *r, int kind)
{
    size_t n = 1 + (size_t)(test_bits(r) % D_MAX);
    float constant = test_gaussian(r);
    for (size_t i = 0; i < n; i++) {
        switch (kind % 7) {
        case 0: x[i] = test_gaussian(r); break;
        case 1: x[i] = (float)(test_bits(r) % 5) - 2; break;
        case 2: x[i] = constant; break;
        case 3: x[i] = test_bits(r) % 3 == 0 ? constant : -1; break;
        case 4: x[i] = (float)(int)(test_bits(r) % 2001 - 1000) * 1e-45f; break;
        case 5: x[i] = test_gaussian(r) * powf(10, (float)(test_bits(r) % 40) - 20); break;
        default: x[i] = (float)i * 0.1f - 3; break;
        }
    }
    return n;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* What random rounding to these levels costs. */
static double cost_of(const float *x, size_t n, const float *levels, uint32_t s)
{
    double cost = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t k = 0;
        while (k + 2 < s && levels[k + 1] <= x[i]) {
            k++;
        }
        cost += ((double)levels[k + 1] - (double)x[i]) * ((double)x[i] - (double)levels[k]);
    }
    return cost;
}

/* The least cost there is, in s d^2 steps of d each. */
static double least_cost(const float *sorted, size_t n, uint32_t s)
{
    static double least[S_MAX][D_MAX];
    for (uint32_t t = 1; t < s; t++) {
        for (size_t j = 0; j < n; j++) {
            least[t][j] = INFINITY;
            for (size_t k = 0; k <= (t == 1 ? 0 : j); k++) { /* the first level lies on the first value */
                double cost = t == 1 ? 0 : least[t - 1][k];
                for (size_t i = k; i <= j; i++) {
                    cost += ((double)sorted[j] - (double)sorted[i]) * ((double)sorted[i] - (double)sorted[k]);
                }
                least[t][j] = fmin(least[t][j], cost);
            }
        }
    }
    return least[s - 1][n - 1];
}

static void exact_levels_are_the_best(void **state)
{
    (void)state;
    test_random r = {21};
    for (int trial = 0; trial < 2000; trial++) {
        float x[D_MAX], copy[D_MAX], levels[S_MAX];
        size_t n = draw_bucket(x, &r, trial);
        uint32_t s = 2 + (uint32_t)(test_bits(&r) % 16);
        void *room = test_room((size_t)tg_levels_scratch_len(s, n));
        memcpy(copy, x, n * sizeof *x);
        tg_levels_exact(levels, s, copy, n, room);
        free(room);
        qsort(x, n, sizeof *x, by_value);
        assert_true(levels[0] == x[0] && levels[s - 1] == x[n - 1]);
        for (uint32_t k = 1; k < s; k++) {
            assert_true(levels[k] >= levels[k - 1]);
        }
        /* Values count as multiples of a 2^22nd of their range, so that a level may be as good only up to that. */
        double range = (double)x[n - 1] - (double)x[0];
        assert_true(cost_of(x, n, levels, s) <= least_cost(x, n, s) * (1 + 1e-9) + (double)n * range * range * 0x1p-21);
    }
}

/* The paper's index on a sorted bucket, again and again. */
static void split_sorted(float *levels, uint32_t lo, uint32_t hi, const float *x, size_t k, size_t j)
{
    if (hi - lo < 2) {
        return;
    }
    uint32_t middle = (lo + hi) / 2;
    size_t m = k;
    if (x[j] > x[k]) {
        double sum = 0;
        for (size_t i = k + 1; i <= j; i++) {
            sum += (double)x[i];
        }
        double at = ((double)j * (double)x[j] - (double)k * (double)x[k] - sum) / ((double)x[j] - (double)x[k]);
        m = (size_t)ceil(at - 1e-9);
        m = m > j ? j : m < k ? k : m;
    }
    levels[middle] = x[m];
    split_sorted(levels, lo, middle, x, k, m);
    split_sorted(levels, middle, hi, x, m, j);
}

static void greedy_levels_follow_the_rule(void **state)
{
    (void)state;
    static const uint32_t counts[] = {3, 5, 9, 17};
    test_random r = {22};
    int same = 0, trials = 2000;
    for (int trial = 0; trial < trials; trial++) {
        float x[D_MAX], room[4 * D_MAX], levels[S_MAX], expected[S_MAX];
        size_t n = draw_bucket(x, &r, trial);
        uint32_t s = counts[trial % 4];
        tg_levels_greedy(levels, s, x, n, room);
        qsort(x, n, sizeof *x, by_value);
        expected[0] = x[0];
        expected[s - 1] = x[n - 1];
        split_sorted(expected, 0, s - 1, x, 0, n - 1);
        same += memcmp(levels, expected, s * sizeof *levels) == 0;
        double best = least_cost(x, n, s), energy = 0;
        for (size_t i = 0; i < n; i++) {
            energy += (double)x[i] * (double)x[i];
        }
        if (s == 3) { /* the best, too */
            assert_true(cost_of(x, n, levels, s) <= best * (1 + 1e-9) + 1e-12 * energy);
        }
        assert_true(cost_of(x, n, levels, s) >= best * (1 - 1e-9) - 1e-12 * energy);
    }
    assert_true(same > trials - trials / 100); /* but where a quotient is a whole number up to rounding */
}

/* The smallest b for which the sum of all magnitudes above b is at most n b, from sorted magnitudes on a grid. */
static float balance_by_definition(float *x, size_t n)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmaxf(largest, fabsf(x[i]));
    }
    int exponent = 0;
    (void)frexp((double)largest, &exponent);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)ldexp(nearbyint(ldexp(fabs((double)x[i]), 37 - exponent)), exponent - 37);
    }
    qsort(x, n, sizeof *x, by_value);
    double above = 0; /* the sum of all after number i */
    for (size_t i = n; i-- > 0;) {
        /* Is some b not below x[i - 1], and below x[i], enough for x[i] and all after it? */
        double with = above + (double)x[i], below = i > 0 ? (double)x[i - 1] : 0;
        double least = with / (double)n;
        if (with > (double)n * below && least < (double)x[i]) {
            return (float)fmax(least, below);
        }
        if (with > (double)n * below) {
            return x[i];
        }
        above = with;
    }
    return 0;
}

static void compare_balance(float *x, size_t n)
{
    extern const tg_quantize_part tg_quantize_bingrad;
    const double params[TG_PARAM_CAP] = {1, TG_BUCKET_MAX, 3, 0};
    uint16_t *symbols = test_room(n * sizeof *symbols), *draws = test_room(n * sizeof *draws);
    void *room = test_room((size_t)tg_quantize_bingrad.scratch_len(params));
    memset(draws, 0, n * sizeof *draws);
    uint8_t side[4];
    tg_bucket b = {.symbols = symbols, .side = side, .values = x, .draws = {.upper = draws}, .scratch = room, .n = n};
    tg_quantize_bingrad.encode_bucket(&b, params);
    float expected = balance_by_definition(x, n), found = tg_get_float(side);
    assert_memory_equal(&found, &expected, sizeof found);
    free(room);
    free(draws);
    free(symbols);
}

static void one_magnitude_is_in_balance(void **state)
{
    (void)state;
    test_random r = {23};
    for (int trial = 0; trial < 500; trial++) {
        float x[D_MAX];
        compare_balance(x, draw_bucket(x, &r, trial));
    }
    static const size_t lens[] = {1, 2, 64, 2048, 8192, 8193, TG_BUCKET_MAX};
    float *x = test_room(TG_BUCKET_MAX * sizeof *x);
    for (int trial = 0; trial < 12 * 7; trial++) {
        size_t n = lens[trial % 7];
        for (size_t i = 0; i < n; i++) {
            double v = test_gaussian(&r), heavy = v * v * v;
            switch (trial / 7) {
            case 0: x[i] = (float)v; break;
            case 1: x[i] = (float)(heavy * heavy * heavy); break;
            case 2: x[i] = v < 0 ? -1.0f : 1.0f; break;                    /* all equal */
            case 3: x[i] = (float)(i % 7); break;                          /* many equal */
            case 4: x[i] = i == n / 2 ? 1.0f : (float)v * 0x1p-30f; break; /* one alone */
            case 5: x[i] = (float)v * 0x1p-140f; break;
            case 6: x[i] = (float)(v * 0x1p125); break;
            case 7: x[i] = 0; break;
            case 8: x[i] = (float)exp(v * 12); break;
            case 9: x[i] = i < n / 2 ? 1.0f : 2.0f; break;
            case 10: x[i] = (float)(v * 0x1p-149); break;
            default: x[i] = (float)(1.0 + v * 1e-6); break;
            }
            x[i] = isfinite(x[i]) ? x[i] : 1.0f;
        }
        compare_balance(x, n);
    }
    free(x);
}

/* ---- through the codec ---------------------------------------------------------------------------------------------------- */

typedef struct law {
    const char *recipe;
    double nmse, tolerance; /* on Gaussian values, buckets of 300 unless the recipe says otherwise */
    bool unbiased;
} law;

/* Figures of the paper's kind, derived or simulated. */
static const law laws[] = {
    {"linear@3,bucket=300", 1.316, 0.03, true},
    {"linear@5,bucket=300", 0.346, 0.03, true},
    {"linear@9,bucket=300", 0.0866, 0.03, true},
    {"orq@3,bucket=300", 1.283, 0.03, true},
    {"orq@5,bucket=300", 0.268, 0.03, true},
    {"orq@9,bucket=300", 0.0619, 0.03, true},
    {"orq@5,levels=exact,bucket=300", 0.268, 0.03, true},
    {"orq@9,levels=exact,bucket=300", 0.0604, 0.03, true},
    {"ternary@bucket=300", 1.47, 0.03, true},
    {"bingrad@pb,bucket=65536", 0.454, 0.01, false},
    {"bingrad@b,bucket=65536,iters=50", 0.3634, 0.01, false},
    {"sign", 0.3634, 0.01, false},
    {"natural", 0.0, 0, true},
    {"qsgd@4,bucket=300", 0.0, 0, true},
};

static void errors_are_as_known(void **state)
{
    (void)state;
    enum { N = 120000, STEPS = 10 };
    uint64_t n = N;
    test_random random = {31};
    test_model m = test_model_new(&n, 1, TG_FP32), back = test_model_new(&n, 1, TG_FP32);
    double *sums = test_room(N * sizeof *sums), energy = 0;
    test_model_fill(&m, &random);
    for (size_t i = 0; i < N; i++) {
        energy += pow((double)test_model_get(&m, 0, i), 2);
    }
    for (size_t k = 0; k < sizeof laws / sizeof *laws; k++) {
        const law *l = &laws[k];
        tg_options opt = TG_OPTIONS_INIT;
        opt.describe = 1;
        tg_codec *c = NULL;
        double error = 0, bias = 0;
        uint64_t steps = strstr(l->recipe, "exact") != NULL ? 2 : STEPS;
        memset(sums, 0, N * sizeof *sums);
        MUST(tg_codec_new(&c, l->recipe, m.tensors, 1, &opt, why));
        for (uint64_t step = 0; step < steps; step++) {
            test_frame f = test_encode(c, step, &m), again = test_encode(c, step, &m);
            assert_int_equal(f.len, again.len);
            assert_memory_equal(f.bytes, again.bytes, f.len);
            test_decode(&back, &f);
            for (size_t i = 0; i < N; i++) {
                double off = (double)test_model_get(&back, 0, i) - (double)test_model_get(&m, 0, i);
                error += off * off;
                sums[i] += off;
            }
            free(f.bytes);
            free(again.bytes);
        }
        error /= energy * (double)steps;
        for (size_t i = 0; i < N; i++) {
            bias += sums[i] * sums[i] / (double)(steps * steps) / energy;
        }
        if (l->nmse > 0 && fabs(error / l->nmse - 1) > l->tolerance) {
            fail_msg("%s: error %g, not %g", l->recipe, error, l->nmse);
        }
        /* The mean of unbiased results has a steps-th of the error; what does not go away is bias. */
        double expected = error / (double)steps;
        if (l->unbiased && fabs(bias / expected - 1) > 0.05) {
            fail_msg("%s: the mean of %d has an error of %g, not %g", l->recipe, (int)steps, bias, expected);
        }
        tg_codec_free(c);
    }
    free(sums);
    test_model_free(&back);
    test_model_free(&m);
}

/* What each value may become, and how often, for a bucket that can be worked out by hand. */
static void values_are_those_of_the_definition(void **state)
{
    (void)state;
    static const float given[] = {-1, -0.5f, 0, 0.25f, 1, 3};
    static const struct {
        const char *recipe;
        float low[6], high[6];
    } cases[] = {
        {"linear@3", {-1, -1, -1, -1, 1, 3}, {-1, 1, 1, 1, 1, 3}},
        {"ternary", {-3, -3, 0, 0, 0, 3}, {0, 0, 0, 3, 3, 3}},
        {"qsgd@3,norm=max", {-1, -1, 0, 0, 1, 3}, {-1, 0, 0, 1, 1, 3}},
        {"natural", {-1, -0.5f, 0, 0.25f, 1, 2}, {-1, -0.5f, 0, 0.25f, 1, 4}},
        {"orq@3", {-1, -1, -1, 0.25f, 0.25f, 3}, {-1, 0.25f, 0.25f, 0.25f, 3, 3}},
        {"bingrad@zero",
         {-0.5f, -0.5f, -0.5f, 4.25f / 3, 4.25f / 3, 4.25f / 3},
         {-0.5f, -0.5f, -0.5f, 4.25f / 3, 4.25f / 3, 4.25f / 3}},
        {"bingrad@b,iters=0",
         {-0.3125f, -0.3125f, -0.3125f, -0.3125f, 2, 2},
         {-0.3125f, -0.3125f, -0.3125f, -0.3125f, 2, 2}},
    };
    uint64_t n = 6;
    test_model m = test_model_new(&n, 1, TG_FP32), back = test_model_new(&n, 1, TG_FP32);
    memcpy(m.grads[0], given, sizeof given);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tg_options opt = TG_OPTIONS_INIT;
        opt.describe = 1;
        tg_codec *c = NULL;
        MUST(tg_codec_new(&c, cases[k].recipe, m.tensors, 1, &opt, why));
        for (uint64_t step = 0; step < 100; step++) {
            test_frame f = test_encode(c, step, &m);
            test_decode(&back, &f);
            for (uint64_t i = 0; i < n; i++) {
                float got = test_model_get(&back, 0, i);
                if (got != cases[k].low[i] && got != cases[k].high[i]) {
                    fail_msg("%s: %g became %g", cases[k].recipe, (double)given[i], (double)got);
                }
            }
            free(f.bytes);
        }
        tg_codec_free(c);
    }
    test_model_free(&back);
    test_model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_levels_are_the_best),          cmocka_unit_test(greedy_levels_follow_the_rule),
        cmocka_unit_test(one_magnitude_is_in_balance),        cmocka_unit_test(errors_are_as_known),
        cmocka_unit_test(values_are_those_of_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
