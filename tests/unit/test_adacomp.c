/* AdaComp against its definition, step by step; its parts on their own; its counters. */
#include "support.h"

#include <tersegrad/experimental.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the definition ----------------------------------------------------------------------------------------------------- */

/* One step of one tensor, written from the paper. Computes the decoded values and the new residual. */
static uint64_t step_by_definition(float *decoded, float *residual, const float *grad, uint64_t n, uint64_t bin)
{
    double sum = 0;
    uint64_t bins = 0, entries = 0;
    for (uint64_t lo = 0; lo < n; lo += bin, bins++) {
        uint64_t hi = lo + bin < n ? lo + bin : n;
        float largest = 0;
        for (uint64_t i = lo; i < hi; i++) {
            largest = fmaxf(largest, fabsf(residual[i] + grad[i]));
        }
        sum += (double)largest;
        for (uint64_t i = lo; i < hi; i++) {
            float all = residual[i] + grad[i], ahead = all + grad[i];
            decoded[i] = largest > 0 && fabsf(ahead) >= largest && all != 0 ? copysignf(1, all) : 0;
            entries += decoded[i] != 0;
            residual[i] = all;
        }
    }
    float scale = (float)(sum / (double)bins);
    for (uint64_t i = 0; i < n; i++) {
        decoded[i] *= scale;
        residual[i] -= decoded[i];
    }
    return entries;
}

typedef struct trial {
    uint64_t n, bin;
    uint32_t threads;
    const char *pack;
} trial;

static void run_trial(const trial *t, uint64_t steps)
{
    test_random random = {t->n + t->bin};
    test_model m = test_model_new(&t->n, 1, TG_FP32), back = test_model_new(&t->n, 1, TG_FP32);
    size_t len = (size_t)t->n * sizeof(float);
    float *decoded = test_room(len), *residual = test_room(len), *kept = test_room(len), *drift = test_room(len);
    memset(residual, 0, len);
    for (uint64_t i = 0; i < t->n; i++) {
        drift[i] = 0.1f * test_gaussian(&random);
    }
    char recipe[100];
    (void)snprintf(recipe, sizeof recipe, "ef+adabins@%llu+sign@scale=meanmax%s", (unsigned long long)t->bin, t->pack);
    tg_options opt = TG_OPTIONS_INIT;
    opt.threads = t->threads;
    opt.describe = 1;
    tg_codec *c = NULL;
    MUST(tg_codec_new(&c, recipe, m.tensors, 1, &opt, why));
    for (uint64_t step = 0; step < steps; step++) {
        test_model_fill(&m, &random);
        for (uint64_t i = 0; i < t->n; i++) {
            bool silent = i / t->bin == 1; /* a bin of zeros, and elements that are 0 */
            test_model_set(&m, 0, i, silent || i % 11 == 3 ? 0 : test_model_get(&m, 0, i) + drift[i]);
        }
        uint64_t entries = step_by_definition(decoded, residual, m.grads[0], t->n, t->bin);
        test_frame f = test_encode(c, step, &m);
        test_decode(&back, &f);
        assert_memory_equal(back.grads[0], decoded, len);
        MUST(tg_codec_residual(c, kept, 0, why));
        for (uint64_t i = 0; i < t->n; i++) {
            assert_true(kept[i] == residual[i]);
        }
        tg_traffic traffic;
        MUST(tg_codec_traffic(&traffic, c, 0, why));
        assert_int_equal(traffic.entries, entries);
        assert_int_equal(traffic.bins, (t->n + t->bin - 1) / t->bin);
        assert_int_equal(tg_codec_paper_len(c, 0), entries * (t->bin <= 64 ? 1 : 2) + 4);
        assert_true(traffic.len < f.len);
        free(f.bytes);
    }
    tg_codec_free(c);
    free(drift);
    free(kept);
    free(residual);
    free(decoded);
    test_model_free(&back);
    test_model_free(&m);
}

static void follows_its_definition(void **state)
{
    (void)state;
    static const trial trials[] = {
        {1, 1, 1, ""},           {1, 500, 1, ""},          {49, 50, 1, "+adacomp8"},    {50, 50, 1, ""},
        {101, 50, 1, "+bitmap"}, {997, 7, 1, "+adacomp8"}, {5000, 500, 2, ""},          {16385, 16384, 1, "+adacomp16"},
        {4096, 64, 1, ""},       {20011, 4097, 1, ""},     {20011, 50, 1, "+adacomp8"}, {20011, 1, 1, "+adacomp16"},
    };
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        run_trial(&trials[i], 50);
    }
}

/* Bins that span two chunks. */
static void follows_it_across_chunks(void **state)
{
    (void)state;
    static const trial trials[] = {{540000, 500, 1, ""},
                                   {540000, 500, 3, "+adacomp16"},
                                   {262145, 50, 2, "+adacomp8"},
                                   {300000, 16384, 2, ""},
                                   {262200, 262144 / 16, 1, ""}};
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        run_trial(&trials[i], 3);
    }
}

/* ---- steady state --------------------------------------------------------------------------------------------------------- */

static double entries_a_bin(const char *recipe)
{
    uint64_t n = 20000, entries = 0, bins = 0;
    test_random random = {4};
    test_model m = test_model_new(&n, 1, TG_FP32);
    float *drift = test_room((size_t)n * sizeof *drift);
    for (uint64_t i = 0; i < n; i++) {
        drift[i] = 0.1f * test_gaussian(&random);
    }
    tg_codec *c = NULL;
    MUST(tg_codec_new(&c, recipe, m.tensors, 1, NULL, why));
    for (uint64_t step = 0; step < 300; step++) {
        test_model_fill(&m, &random);
        for (uint64_t i = 0; i < n; i++) {
            test_model_set(&m, 0, i, test_model_get(&m, 0, i) + drift[i]);
        }
        test_frame f = test_encode(c, step, &m);
        free(f.bytes);
        tg_traffic traffic;
        MUST(tg_codec_traffic(&traffic, c, 0, why));
        entries += step >= 150 ? traffic.entries : 0;
        bins += step >= 150 ? traffic.bins : 0;
    }
    tg_codec_free(c);
    free(drift);
    test_model_free(&m);
    return (double)entries / (double)bins;
}

/* Simulated figures for Gaussian gradients with a drift of 0.1: 4.9 and 5.5; with r + g 1, with r + 3g 10 and 37. */
static void finds_its_rate(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        double low, high;
    } cases[] = {{"adacomp@50", 4.5, 5.3},           {"adacomp@500", 4.8, 6.1},
                 {"adacomp@50,weight=1", 0.9, 1.1},  {"adacomp@500,weight=1", 0.9, 1.1},
                 {"adacomp@50,weight=3", 8.5, 11.5}, {"adacomp@500,weight=3", 31, 43}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double rate = entries_a_bin(cases[i].recipe);
        if (rate < cases[i].low || rate > cases[i].high) {
            fail_msg("%s sends %g entries a bin", cases[i].recipe, rate);
        }
    }
}

/* ---- single parts --------------------------------------------------------------------------------------------------------- */

/* Without feedback: values of at least half of their bin's maximum are sent unchanged. */
static void bins_work_with_other_quantizers(void **state)
{
    (void)state;
    uint64_t n = 1234, bin = 50;
    test_random random = {8};
    test_model m = test_model_new(&n, 1, TG_FP32), back = test_model_new(&n, 1, TG_FP32);
    test_model_fill(&m, &random);
    tg_codec *c = NULL;
    tg_options opt = TG_OPTIONS_INIT;
    opt.describe = 1;
    MUST(tg_codec_new(&c, "adabins@50", m.tensors, 1, &opt, why));
    test_frame f = test_encode(c, 0, &m);
    test_decode(&back, &f);
    for (uint64_t i = 0; i < n; i++) {
        float largest = 0, value = test_model_get(&m, 0, i);
        for (uint64_t j = i / bin * bin; j < n && j < (i / bin + 1) * bin; j++) {
            largest = fmaxf(largest, fabsf(test_model_get(&m, 0, j)));
        }
        assert_true(test_model_get(&back, 0, i) == (2 * fabsf(value) >= largest ? value : 0));
    }
    assert_int_equal(tg_codec_paper_len(c, 0), 0); /* the paper does not count this */
    free(f.bytes);
    tg_codec_free(c);
    test_model_free(&back);
    test_model_free(&m);
}

/* The sign of what is sent, times its mean magnitude. */
static void signs_work_with_other_selects(void **state)
{
    (void)state;
    static const char *const recipes[] = {"sign", "topk@0.1+sign", "threshold@1+sign", "randomk@0.3+sign"};
    uint64_t n = 300007;
    test_random random = {9};
    test_model m = test_model_new(&n, 1, TG_FP32), back = test_model_new(&n, 1, TG_FP32);
    test_model exact = test_model_new(&n, 1, TG_FP32);
    test_model_fill(&m, &random);
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++) {
        tg_codec *c = NULL, *plain = NULL;
        tg_options opt = TG_OPTIONS_INIT;
        char other[64];
        (void)snprintf(other, sizeof other, "%.*sfp32", (int)(strlen(recipes[r]) - 4), recipes[r]);
        opt.has_seed = opt.describe = 1;
        MUST(tg_codec_new(&c, recipes[r], m.tensors, 1, &opt, why));
        MUST(tg_codec_new(&plain, other, m.tensors, 1, &opt, why));
        test_frame f = test_encode(c, 0, &m), g = test_encode(plain, 0, &m);
        test_decode(&back, &f);
        test_decode(&exact, &g);
        double sum = 0, count = 0;
        for (uint64_t i = 0; i < n; i++) {
            sum += fabs((double)test_model_get(&exact, 0, i));
            count += test_model_get(&exact, 0, i) != 0;
        }
        for (uint64_t i = 0; i < n; i++) {
            double sent = (double)test_model_get(&exact, 0, i), got = (double)test_model_get(&back, 0, i);
            assert_true((sent == 0) == (got == 0) && (sent > 0) == (got > 0));
            assert_true(sent == 0 || fabs(fabs(got) - sum / count) <= 1e-6 * sum / count);
        }
        free(f.bytes);
        free(g.bytes);
        tg_codec_free(plain);
        tg_codec_free(c);
    }
    test_model_free(&exact);
    test_model_free(&back);
    test_model_free(&m);
}

static void nothing_is_sent_of_zeros(void **state)
{
    (void)state;
    uint64_t n = 1000;
    test_model m = test_model_new(&n, 1, TG_FP32), back = test_model_new(&n, 1, TG_FP32);
    tg_codec *c = NULL;
    tg_options opt = TG_OPTIONS_INIT;
    opt.describe = 1;
    MUST(tg_codec_new(&c, "adacomp", m.tensors, 1, &opt, why));
    for (uint64_t i = 0; i < n; i++) {
        test_model_set(&m, 0, i, i % 2 == 0 ? 0.0f : -0.0f);
        test_model_set(&back, 0, i, 1);
    }
    test_frame f = test_encode(c, 0, &m);
    test_decode(&back, &f);
    for (uint64_t i = 0; i < n; i++) {
        assert_true(test_model_get(&back, 0, i) == 0);
    }
    tg_frame_info info;
    MUST(tg_frame_inspect(&info, c, f.bytes, f.len, why));
    assert_int_equal(info.entry_n, 0);
    assert_int_equal(info.payload_len, 0);
    free(f.bytes);
    tg_codec_free(c);
    test_model_free(&back);
    test_model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_its_definition),
        cmocka_unit_test(follows_it_across_chunks),
        cmocka_unit_test(finds_its_rate),
        cmocka_unit_test(bins_work_with_other_quantizers),
        cmocka_unit_test(signs_work_with_other_selects),
        cmocka_unit_test(nothing_is_sent_of_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
