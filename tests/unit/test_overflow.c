/* Finite gradients so large that a sum overflows: residuals stay finite with every policy, or the step is refused. */
#include "support.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const recipes[] = {"ef+topk@0.01",
                                      "ef+topk@0.2,scope=model+fp16+bitmap",
                                      "ef+topk@0.2+linear@3,bucket=100",
                                      "ef+topk@0.1+fp4+huffman",
                                      "ef+topk@0.01,coords=shared",
                                      "momentum+topk@0.01",
                                      "momentum@0.9,clip=1e30+topk@0.01+fp16",
                                      "momentum+fp32",
                                      "momentum+linear@3,bucket=100",
                                      "momentum+fp4+rans",
                                      "ef@decay=0.9+fp16",
                                      "ef+bf16",
                                      "ef+fp32",
                                      "ef+threshold@1e37",
                                      "ef+threshold@1e37+orq@3,bucket=100",
                                      "ef+randomk@0.1",
                                      "ef+randomk@0.1,coords=own,scope=model",
                                      "ef+randomblock@0.1",
                                      "ef+randomblock@0.1+ternary@bucket=100",
                                      "ef+adabins@50+fp16",
                                      "ef+adabins@50+qsgd@1,bucket=100",
                                      "ef+adabins+sign@scale=meanmax",
                                      "ef+sign",
                                      "ef+natural",
                                      "ef+orq@3,bucket=100",
                                      "ef+orq@2,bucket=100,levels=exact",
                                      "ef+orq@9,bucket=20000,half=yes",
                                      "ef+bingrad@b,bucket=100",
                                      "ef+bingrad@pb,bucket=100",
                                      "ef+bingrad@zero",
                                      "ef+bingrad@b,bucket=100,clip=2.5",
                                      "ef+linear@2,bucket=100",
                                      "ef+linear@9,bucket=20000,clip=1",
                                      "ef+qsgd@1,bucket=100",
                                      "ef+qsgd@255,bucket=20000,norm=max",
                                      "ef+ternary@bucket=100",
                                      "ef+ternary@bucket=100,clip=2.5",
                                      "ef+fp4",
                                      "ef+fp8+rans",
                                      "ef@decay=0.9+fp4+huffman"};
enum { RECIPE_N = sizeof recipes / sizeof *recipes, LONGEST = 1300, PATTERN_N = 4, STEP_N = 6 };

static const uint64_t lens[] = {900, LONGEST};

static tg_options options_of(tg_nonfinite policy)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 7;
    opt.describe = 1;
    opt.nonfinite = policy;
    return opt;
}

/* The second tensor is ordinary in the first of the patterns. */
static void fill(test_model *m, int pattern, test_random *random)
{
    for (size_t t = 0; t < 2; t++) {
        for (uint64_t i = 0; i < lens[t]; i++) {
            float sign = test_bits(random) % 2 == 0 ? 1.0f : -1.0f, share = (float)test_uniform(random);
            const float values[PATTERN_N] = {t == 0 ? 2e38f : share, sign * FLT_MAX, sign * share * FLT_MAX, FLT_MAX};
            test_model_set(m, t, i, values[pattern]);
        }
    }
}

static void residuals_of(float out[2][LONGEST], const tg_codec *c)
{
    memset(out, 0, 2 * sizeof out[0]);
    for (size_t t = 0; t < 2; t++) {
        MUST(tg_codec_residual(c, out[t], t, why));
        for (uint64_t i = 0; i < lens[t]; i++) {
            assert_true(isfinite(out[t][i]));
        }
    }
}

static void decoded_is_finite(const test_frame *f)
{
    test_model back = test_model_new(lens, 2, TG_FP32);
    test_decode(&back, f);
    for (size_t t = 0; t < 2; t++) {
        for (uint64_t i = 0; i < lens[t]; i++) {
            assert_true(isfinite(test_model_get(&back, t, i)));
        }
    }
    test_model_free(&back);
}

/* A step with the policy `error`: succeeds, or is refused with the tensor's name and changes nothing. Returns whether it succeeded. */
static bool step_or_refusal(tg_codec *c, uint64_t step, const test_model *m, int pattern)
{
    float before[2][LONGEST], after[2][LONGEST];
    size_t bound = tg_encode_bound(c), len = 0;
    uint8_t *room = test_room(bound);
    tg_detail why = {""};
    residuals_of(before, c);
    tg_status status = tg_encode(&len, c, room, bound, step, (const void *const *)m->grads, &why);
    residuals_of(after, c);
    if (status == TG_OK) {
        test_frame f = {room, len};
        decoded_is_finite(&f);
    } else {
        assert_int_equal(status, TG_E_NONFINITE);
        assert_non_null(strstr(why.text, "overflows"));
        assert_non_null(strstr(why.text, pattern == 0 || strstr(why.text, "'t1'") == NULL ? "'t0'" : "'t1'"));
        assert_memory_equal(before, after, sizeof before);
    }
    free(room);
    return status == TG_OK;
}

static void error_refuses_what_overflows(void **state)
{
    (void)state;
    tg_options opt = options_of(TG_NONFINITE_ERROR);
    for (size_t r = 0; r < RECIPE_N; r++) {
        for (int pattern = 0; pattern < PATTERN_N; pattern++) {
            test_random random = {r};
            test_model m = test_model_new(lens, 2, TG_FP32);
            tg_codec *c = NULL;
            MUST(tg_codec_new(&c, recipes[r], m.tensors, 2, &opt, why));
            for (uint64_t step = 0; step < STEP_N; step++) {
                fill(&m, pattern, &random);
                (void)step_or_refusal(c, step, &m, pattern);
            }
            for (uint64_t i = 0; i < lens[0]; i++) {
                test_model_set(&m, 0, i, 0.01f);
            }
            for (uint64_t i = 0; i < lens[1]; i++) {
                test_model_set(&m, 1, i, -0.01f);
            }
            for (uint64_t step = STEP_N; step < 2 * STEP_N; step++) {
                bool done = step_or_refusal(c, step, &m, pattern);
                assert_true(done || strstr(recipes[r], "momentum") != NULL || strstr(recipes[r], "linear") != NULL ||
                            strstr(recipes[r], "qsgd") != NULL || strstr(recipes[r], "pb") != NULL ||
                            strstr(recipes[r], "orq") != NULL);
            }
            tg_codec_free(c);
            test_model_free(&m);
        }
    }
}

/* 990 of 1,000 residuals of 2e38 cannot take another 2e38; the refused step leaves them unchanged. */
static void a_refused_step_can_be_followed(void **state)
{
    (void)state;
    uint64_t n = 1000;
    test_model m = test_model_new(&n, 1, TG_FP32);
    tg_options opt = options_of(TG_NONFINITE_ERROR);
    tg_codec *c = NULL;
    MUST(tg_codec_new(&c, "ef+topk@0.01", m.tensors, 1, &opt, why));
    size_t bound = tg_encode_bound(c), len = 0;
    uint8_t *room = test_room(bound);
    static const float given[] = {2e38f, 2e38f, 0.01f};
    for (uint64_t step = 0; step < 3; step++) {
        for (uint64_t i = 0; i < n; i++) {
            test_model_set(&m, 0, i, given[step]);
        }
        if (step == 1) {
            MUST_FAIL(TG_E_NONFINITE, "the residual of tensor 't0' overflows: its gradient is finite",
                      tg_encode(&len, c, room, bound, step, (const void *const *)m.grads, why));
        } else {
            MUST(tg_encode(&len, c, room, bound, step, (const void *const *)m.grads, why));
        }
    }
    test_model_set(&m, 0, 999, NAN); /* both at once: the gradient's own fault is named */
    test_model_set(&m, 0, 998, 3e38f);
    MUST_FAIL(TG_E_NONFINITE, "the gradient of tensor 't0' holds NaN or Inf",
              tg_encode(&len, c, room, bound, 3, (const void *const *)m.grads, why));
    float residual[1000];
    MUST(tg_codec_residual(c, residual, 0, why));
    for (uint64_t i = 0; i < n; i++) {
        assert_true(residual[i] == (i < 10 ? 0.01f : i < 20 ? 0.0f : 2e38f));
    }
    free(room);
    tg_codec_free(c);
    test_model_free(&m);
}

/* Halves and unaligned gradients are copied before they are read. */
static void other_types_overflow_too(void **state)
{
    (void)state;
    uint64_t n = 1000;
    test_model m = test_model_new(&n, 1, TG_BF16);
    tg_options opt = options_of(TG_NONFINITE_ERROR);
    tg_codec *c = NULL;
    MUST(tg_codec_new(&c, "ef+topk@0.01", m.tensors, 1, &opt, why));
    size_t bound = tg_encode_bound(c), len = 0;
    uint8_t *room = test_room(bound);
    for (uint64_t i = 0; i < n; i++) {
        test_model_set(&m, 0, i, 2e38f);
    }
    MUST(tg_encode(&len, c, room, bound, 0, (const void *const *)m.grads, why));
    MUST_FAIL(TG_E_NONFINITE, "overflows", tg_encode(&len, c, room, bound, 1, (const void *const *)m.grads, why));
    free(room);
    tg_codec_free(c);
    test_model_free(&m);
}

static void other_policies_keep_residuals_finite(void **state)
{
    (void)state;
    static const tg_nonfinite policies[] = {TG_NONFINITE_ZERO, TG_NONFINITE_PASS};
    for (size_t k = 0; k < 2 * RECIPE_N * PATTERN_N; k++) {
        size_t r = k / 2 / PATTERN_N;
        int pattern = (int)(k / 2 % PATTERN_N);
        test_random random = {r};
        test_model m = test_model_new(lens, 2, TG_FP32);
        tg_options opt = options_of(policies[k % 2]);
        tg_codec *c = NULL;
        float residuals[2][LONGEST];
        MUST(tg_codec_new(&c, recipes[r], m.tensors, 2, &opt, why));
        for (uint64_t step = 0; step < 2 * STEP_N; step++) {
            fill(&m, step < STEP_N ? pattern : 0, &random);
            if (step == STEP_N) {
                test_model_fill(&m, &random);
            }
            test_frame f = test_encode(c, step, &m);
            decoded_is_finite(&f);
            residuals_of(residuals, c);
            free(f.bytes);
        }
        tg_codec_free(c);
        test_model_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_refuses_what_overflows),
        cmocka_unit_test(a_refused_step_can_be_followed),
        cmocka_unit_test(other_types_overflow_too),
        cmocka_unit_test(other_policies_keep_residuals_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
