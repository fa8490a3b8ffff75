/* Formats with a scale for every few values: kernels against the definition and against each other, recipes, and what they send. */
#include "kernels/blocks.h"
#include "kernels/kernels.h"
#include "support.h"
#include "world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tg_block_format *const formats[] = {&tg_e4m3, &tg_e5m2, &tg_e2m1};

/* The magnitude of a bit pattern, from the definition. */
static double magnitude(const tg_block_format *f, uint32_t pattern)
{
    uint32_t steps = 1u << f->fraction_bits, exponent = pattern / steps, fraction = pattern % steps;
    int scale = (int)(exponent > 0 ? exponent : 1) - (int)f->bias - (int)f->fraction_bits;
    return ldexp((exponent > 0 ? steps : 0) + fraction, scale);
}

/* The pattern nearest to a magnitude, by trying all; of two the even one. */
static uint32_t nearest(const tg_block_format *f, double value)
{
    uint32_t best = 0;
    for (uint32_t p = 1; p <= f->most; p++) {
        double here = fabs(magnitude(f, p) - value), before = fabs(magnitude(f, best) - value);
        best = here < before || (here == before && p % 2 == 0) ? p : best;
    }
    return best;
}

static void all_halves_become_the_nearest(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const tg_block_format *f = formats[i];
        assert_true(magnitude(f, f->most) == (double)f->largest);
        for (uint32_t half = 0; half < 0x7c00; half += i == 2 ? 1 : 7) {
            float values[2] = {0, -f->largest}; /* so that the scale is 1 */
            uint16_t bits = (uint16_t)half, symbols[2];
            uint8_t scale = 0;
            tg_widen(values, &bits, TG_FP16, 1);
            if (values[0] > f->largest) {
                continue;
            }
            tg_kernels_scalar.blocks.mx_encode(symbols, &scale, values, NULL, f, TG_MX_BLOCK, 2);
            assert_int_equal(scale, 127);
            assert_int_equal(symbols[0], nearest(f, (double)values[0]));
            assert_int_equal(symbols[1], f->most | f->sign);
            float back[2];
            tg_kernels_scalar.blocks.mx_decode(back, symbols, &scale, f, TG_MX_BLOCK, 2);
            assert_true((double)back[0] == magnitude(f, symbols[0]) && back[1] == -f->largest);
        }
    }
}

static void scales_are_powers_below_the_largest(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (int e = -149; e < 128; e++) {
            for (int k = 8; k < 16; k++) {
                float value = ldexpf((float)k, e - 3), back;
                uint16_t symbol;
                uint8_t scale;
                if (value == 0 || ilogbf(value) != e) {
                    continue; /* rounded */
                }
                tg_kernels_scalar.blocks.mx_encode(&symbol, &scale, &value, NULL, formats[i], TG_MX_BLOCK, 1);
                int expected = e - (int)formats[i]->exponent;
                assert_int_equal(scale, (expected < -127 ? -127 : expected) + 127);
                tg_kernels_scalar.blocks.mx_decode(&back, &symbol, &scale, formats[i], TG_MX_BLOCK, 1);
                assert_true(isfinite(back) && (expected < -127 || fabsf(back - value) <= 0.25f * value));
            }
        }
    }
}

/* Values of many magnitudes, some special. */
static float some_value(test_random *r)
{
    static const float special[] = {0, -0.0f, 1e-45f, -3.4e38f, 3.4e38f, 1.17e-38f, 6, 448};
    uint64_t bits = test_bits(r);
    return bits % 16 == 0 ? special[bits / 16 % 8] : test_gaussian(r) * ldexpf(1, (int)(bits / 16 % 60) - 30);
}

enum { N = 1100 };

static void check_same(const tg_kernels *k, const float *values, const tg_draws *draws, size_t n)
{
    const tg_block_kernels *s = &tg_kernels_scalar.blocks, *o = &k->blocks;
    uint16_t a[N], b[N];
    uint8_t of_a[N], of_b[N];
    float back_a[N], back_b[N];
    for (size_t i = 0; i < 3; i++) {
        for (uint32_t block = 32; block <= 128; block *= 2) {
            s->mx_encode(a, of_a, values, draws, formats[i], block, n);
            o->mx_encode(b, of_b, values, draws, formats[i], block, n);
            assert_memory_equal(a, b, n * sizeof *a);
            assert_memory_equal(of_a, of_b, (n + block - 1) / block);
            for (size_t j = 0; j < n; j++) { /* all patterns, NaN and Inf among them */
                a[j] = (uint16_t)((a[j] + (j % 5 == 0 ? j : 0)) % (2 * formats[i]->sign));
            }
            s->mx_decode(back_a, a, of_a, formats[i], block, n);
            o->mx_decode(back_b, a, of_a, formats[i], block, n);
            assert_memory_equal(back_a, back_b, n * sizeof *back_a);
        }
    }
    for (float whole = 1e-30f; whole < 1e30f; whole *= 1e15f) {
        s->nv_encode(a, of_a, values, draws, whole, n);
        o->nv_encode(b, of_b, values, draws, whole, n);
        assert_memory_equal(a, b, n * sizeof *a);
        assert_memory_equal(of_a, of_b, (n + TG_NV_BLOCK - 1) / TG_NV_BLOCK);
        s->nv_decode(back_a, a, of_a, whole, n);
        o->nv_decode(back_b, a, of_a, whole, n);
        assert_memory_equal(back_a, back_b, n * sizeof *back_a);
    }
}

static void all_instruction_sets_agree(void **state)
{
    (void)state;
    test_random random = {3};
    for (int level = TG_SIMD_AVX2; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        for (size_t n = 1; k != NULL && n < N; n += n < 70 ? 1 : 173) {
            float values[N], signs[TG_ROTATION_MAX], a[N], b[N];
            uint16_t upper[N + TG_DRAWS_MORE];
            for (size_t i = 0; i < n; i++) {
                values[i] = some_value(&random);
            }
            if (n % 9 == 0) {
                values[n / 2] = n % 2 == 0 ? NAN : INFINITY;
            }
            tg_draws draws = tg_draw(upper, 5, n, n, 0, NULL);
            check_same(k, values, NULL, n);
            check_same(k, values, &draws, n);
            for (uint32_t rotation = 32; rotation <= TG_ROTATION_MAX; rotation *= 2) {
                size_t whole = n / rotation * rotation;
                for (uint32_t i = 0; i < rotation; i++) {
                    signs[i] = test_bits(&random) % 2 == 0 ? 1.0f : -1.0f;
                }
                tg_kernels_scalar.blocks.rotate(a, values, signs, rotation, whole);
                k->blocks.rotate(b, values, signs, rotation, whole);
                if (n % 9 != 0) { /* NaNs of sums may differ */
                    assert_memory_equal(a, b, whole * sizeof *a);
                }
                tg_kernels_scalar.blocks.turn_back(a, signs, rotation, whole);
                k->blocks.turn_back(b, signs, rotation, whole);
                assert_memory_equal(a, b, whole * sizeof *a);
            }
        }
    }
}

static void a_rotation_keeps_norms_and_turns_back(void **state)
{
    (void)state;
    test_random random = {4};
    for (uint32_t rotation = 32; rotation <= TG_ROTATION_MAX; rotation *= 2) {
        float values[TG_ROTATION_MAX], turned[TG_ROTATION_MAX], signs[TG_ROTATION_MAX];
        double before = 0, after = 0;
        for (uint32_t i = 0; i < rotation; i++) {
            values[i] = test_gaussian(&random) * (i == 3 ? 100.0f : 1.0f);
            signs[i] = test_bits(&random) % 2 == 0 ? 1.0f : -1.0f;
            before += (double)values[i] * (double)values[i];
        }
        tg_kernels_best()->blocks.rotate(turned, values, signs, rotation, rotation);
        for (uint32_t i = 0; i < rotation; i++) {
            after += (double)turned[i] * (double)turned[i] * rotation;
        }
        assert_true(fabs(after / before - 1) < 1e-5);
        tg_kernels_best()->blocks.turn_back(turned, signs, rotation, rotation);
        for (uint32_t i = 0; i < rotation; i++) {
            assert_true(fabsf(turned[i] - values[i]) < 1e-4f);
        }
    }
}

/* ---- recipes ---------------------------------------------------------------------------------------------------------------- */

/* The mean over steps of what a value decodes to is the value. */
static void random_rounding_has_no_bias(void **state)
{
    static const char *const recipes[] = {"mxfp8@round=random", "mxfp8@e5m2,round=random", "mxfp4@round=random",
                                          "nvfp4@round=random", "hadamard@32+mxfp4@round=random"};
    enum { LEN = 96, STEPS = 2000 };
    (void)state;
    for (size_t c = 0; c < sizeof recipes / sizeof *recipes; c++) {
        uint64_t len = LEN;
        test_random random = {c};
        test_model m = test_model_new(&len, 1, TG_FP32), back = test_model_new(&len, 1, TG_FP32);
        double sums[LEN] = {0}, squares = 0;
        test_model_fill(&m, &random);
        tg_options opt = TG_OPTIONS_INIT;
        opt.describe = 1;
        tg_codec *codec = NULL;
        MUST(tg_codec_new(&codec, recipes[c], m.tensors, 1, &opt, why));
        for (uint64_t step = 0; step < STEPS; step++) {
            test_frame f = test_encode(codec, step, &m);
            MUST(tg_decode(codec, back.grads, f.bytes, f.len, why));
            for (uint64_t i = 0; i < LEN; i++) {
                double error = (double)test_model_get(&back, 0, i) - (double)test_model_get(&m, 0, i);
                sums[i] += error;
                squares += error * error / LEN / STEPS;
            }
            free(f.bytes);
        }
        double limit = 5 * sqrt(squares / STEPS) + 1e-9;
        for (uint64_t i = 0; i < LEN; i++) {
            assert_true(fabs(sums[i] / STEPS) < 2 * limit);
        }
        tg_codec_free(codec);
        test_model_free(&back);
        test_model_free(&m);
    }
}

static void every_selection_goes_with_them(void **state)
{
    static const char *const selections[] = {"",
                                             "ef+",
                                             "momentum@0.9+",
                                             "ef+topk@0.1+",
                                             "topk@0.1,coords=shared+",
                                             "threshold@1+",
                                             "ef+randomk@0.1+",
                                             "randomblock@0.2,coords=own+",
                                             "ef+adabins@20+",
                                             "topk@0.1,scope=model+"};
    static const char *const quantizers[] = {"mxfp8", "hadamard@64+mxfp4", "nvfp4@round=random", "hadamard@128+nvfp4"};
    static const uint64_t lens[] = {1, 31, 4097, 263001};
    static const char *const exchanges[] = {"gather", "shard", NULL};
    (void)state;
    for (size_t s = 0; s < sizeof selections / sizeof *selections; s++) {
        for (size_t q = 0; q < sizeof quantizers / sizeof *quantizers; q++) {
            char recipe[128];
            (void)snprintf(recipe, sizeof recipe, "%s%s", selections[s], quantizers[q]);
            test_setup setup = {.recipe = recipe, .exchange = exchanges[(s + q) % 3], .lens = lens, .tensor_n = 4};
            test_setup parallel = setup;
            parallel.threads = 3;
            test_world w = test_world_new(2, &setup), p = test_world_new(2, &parallel);
            if (test_world_exists(&w)) {
                for (uint64_t step = 0; step < (strncmp(recipe, "ef", 2) == 0 ? 2 : 1); step++) {
                    test_world_step(&w, step);
                    test_world_step(&p, step);
                }
                assert_true(test_world_same(&w, &p));
            } else {
                assert_non_null(strstr(selections[s], "coords=")); /* of a leader, or own ones for an owner */
            }
            test_world_free(&p);
            test_world_free(&w);
        }
    }
}

static void refuse(const char *recipe, const char *reason)
{
    char out[TG_RECIPE_CAP];
    MUST_FAIL(TG_E_RECIPE, reason, tg_recipe_canonical(out, recipe, why));
}

static void rotations_are_written_as_parameters(void **state)
{
    char out[TG_RECIPE_CAP];
    (void)state;
    MUST(tg_recipe_canonical(out, "ef+hadamard@32+mxfp4", why));
    assert_string_equal(out, "ef+mxfp4@hadamard=32");
    MUST(tg_recipe_canonical(out, "hadamard+mxfp8@e5m2,round=random", why));
    assert_string_equal(out, "mxfp8@e5m2,round=random,hadamard=64");
    refuse("hadamard@32+qsgd", "not for 'qsgd'");
    refuse("hadamard@32", "not for 'fp32'");
    refuse("hadamard@33+mxfp4", "32, 64 or 128 values");
    refuse("hadamard@no+mxfp4", "32, 64 or 128 values");
    refuse("hadamard@32+hadamard@32+mxfp4", "twice");
    refuse("hadamard@32+mxfp4@hadamard=64", "twice");
    refuse("mxfp4@block=48", "32, 64 or 128 values");
}

/* ---- bytes ------------------------------------------------------------------------------------------------------------------ */

/* What all ranks send in a step after the first, over what a ring of bf16 would. */
static double share_of_ring(const char *recipe, uint32_t world)
{
    uint64_t n = 1u << 20, sent = 0;
    test_setup setup = {.recipe = recipe, .exchange = "shard", .lens = &n, .tensor_n = 1};
    test_world w = test_world_new(world, &setup);
    test_world_step(&w, 0);
    memset(w.sent, 0, world * sizeof *w.sent);
    test_world_step(&w, 1);
    for (uint32_t r = 0; r < world; r++) {
        sent += w.sent[r];
    }
    test_world_free(&w);
    return (double)sent / (2.0 * (world - 1) * 2.0 * (double)n);
}

static void wires_are_as_short_as_they_say(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        double share;
    } most[] = {
        {"mxfp8", 0.51}, {"ef+mxfp4", 0.27}, {"mxfp8@e5m2", 0.51}, {"mxfp8@block=32", 0.517}, {"ef+nvfp4", 0.283}};
    for (uint32_t world = 2; world <= 8; world *= 4) {
        for (size_t i = world / 8; i < sizeof most / sizeof *most; i += TEST_EVERY) {
            assert_true(share_of_ring(most[i].recipe, world) <= most[i].share);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_halves_become_the_nearest),       cmocka_unit_test(scales_are_powers_below_the_largest),
        cmocka_unit_test(all_instruction_sets_agree),          cmocka_unit_test(a_rotation_keeps_norms_and_turns_back),
        cmocka_unit_test(random_rounding_has_no_bias),         cmocka_unit_test(every_selection_goes_with_them),
        cmocka_unit_test(rotations_are_written_as_parameters), cmocka_unit_test(wires_are_as_short_as_they_say)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
