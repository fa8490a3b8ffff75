/* Parameters of `ef` that are for the whole model: how small tensors travel (small=), and whether averages are encoded again (again=). */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_N = 3, WORLD = 3, STEPS = 4 };

static const uint64_t lens[TENSOR_N] = {3000, 70, 64};

static test_model model_of(tg_dtype dtype)
{
    test_model m = test_model_new(lens, TENSOR_N, dtype);
    m.tensors[0].kind = TG_DENSE;
    m.tensors[1].kind = TG_NORM;
    m.tensors[2].kind = TG_BIAS;
    return m;
}

static void check_recipes(const char *recipe, tg_dtype dtype, uint64_t dense_below, const char *const texts[TENSOR_N])
{
    test_model m = model_of(dtype);
    tg_options opt = TG_OPTIONS_INIT;
    tg_codec *c = NULL;
    opt.dense_below = dense_below;
    MUST(tg_codec_new(&c, recipe, m.tensors, m.tensor_n, &opt, why));
    for (size_t t = 0; t < TENSOR_N; t++) {
        assert_string_equal(tg_codec_recipe(c, t), texts[t]);
    }
    tg_codec_free(c);
    test_model_free(&m);
}

static void small_tensors_travel_as_told(void **state)
{
    (void)state;
    const char *const own[] = {"ef+topk@0.1+fp32", "fp32", "fp32"};
    const char *const rounded[] = {"ef+topk@0.1+fp32", "ef+fp16", "ef+fp16"};
    const char *const bytes[] = {"ef+topk@0.1+fp32", "ef+fp8@e5m2", "ef+fp8@e5m2"};
    const char *const same[] = {"ef@decay=0.9+topk@0.1+fp32", "ef@decay=0.9+topk@0.1+fp32",
                                "ef@decay=0.9+topk@0.1+fp32"};
    const char *const halved[] = {"ef+topk@0.1+fp32", "ef+bf16", "ef+bf16"};
    const char *const halves[] = {"ef+topk@0.1+fp32", "fp16", "fp16"};
    check_recipes("ef@small=own+topk@0.1", TG_FP32, 0, own);
    check_recipes("ef@small=fp16+topk@0.1", TG_FP32, 0, rounded);
    check_recipes("ef@small=fp8+topk@0.1", TG_FP32, 0, bytes);
    check_recipes("ef@decay=0.9,small=same+topk@0.1", TG_FP32, 0, same);
    check_recipes("ef@decay=0.9,small=same+topk@0.1", TG_FP32, 100, same);
    check_recipes("ef@small=bf16+topk@0.1", TG_FP32, 2000, halved);
    check_recipes("ef@small=fp16+topk@0.1", TG_FP16, 0, halves); /* nothing to gain */
    check_recipes("ef@again=no+topk@0.1", TG_FP32, 0, own);
    const char *const answered[] = {"ef@again=fp16+topk@0.1+fp32", "ef+fp16", "ef+fp16"};
    const char *const corrected[] = {"momentum@0.9,again=fp32+topk@0.1+fp32", "momentum@0.9+fp32", "momentum@0.9+fp32"};
    check_recipes("ef@small=fp16,again=fp16+topk@0.1", TG_FP32, 0, answered);
    check_recipes("momentum@again=fp32+topk@0.1", TG_FP32, 0, corrected);
}

/* What the whole model is told is no part of frames. */
static void frames_hold_what_tensors_use(void **state)
{
    (void)state;
    test_model m = model_of(TG_FP32), back = model_of(TG_FP32);
    test_random random = {3};
    tg_options opt = TG_OPTIONS_INIT;
    tg_codec *c = NULL, *plain = NULL;
    opt.describe = 1;
    test_model_fill(&m, &random);
    MUST(tg_codec_new(&c, "ef@again=no+topk@0.1", m.tensors, m.tensor_n, &opt, why));
    MUST(tg_codec_new(&plain, "ef+topk@0.1", m.tensors, m.tensor_n, &opt, why));
    test_frame one = test_encode(c, 0, &m), other = test_encode(plain, 0, &m);
    assert_int_equal(one.len, other.len);
    assert_memory_equal(one.bytes, other.bytes, one.len);
    test_decode(&back, &one);
    free(one.bytes);
    free(other.bytes);
    tg_codec_free(plain);
    tg_codec_free(c);
    test_model_free(&back);
    test_model_free(&m);
}

static void check_exchange(const char *recipe, uint32_t world, const char *asked, const char *name)
{
    test_model m = model_of(TG_FP32);
    tg_options opt = TG_OPTIONS_INIT;
    tg_exchange *x = NULL;
    opt.exchange = asked;
    MUST(tg_exchange_new(&x, recipe, m.tensors, m.tensor_n, 0, world, &opt, why));
    assert_string_equal(tg_exchange_name(x), name);
    tg_exchange_free(x);
    test_model_free(&m);
}

static void averages_are_not_encoded_again_if_told_so(void **state)
{
    (void)state;
    check_exchange("ef+topk@0.1", 4, NULL, "gather");
    check_exchange("ef+topk@0.1", 5, NULL, "shard");
    check_exchange("ef@again=no+topk@0.1", 5, NULL, "gather");
    check_exchange("ef@again=no+topk@0.1", 64, NULL, "gather");
    check_exchange("ef@again=no+topk@0.1", 8, "shard", "shard");
    check_exchange("ef@again=fp16+topk@0.1", 8, NULL, "gather"); /* which sends less is not known */
    check_exchange("ef@again=fp16,small=same+fp4", 5, NULL, "gather");
    check_exchange("ef@again=fp16,small=same+fp4", 6, NULL, "shard"); /* (3.5 + 16) bits / 6 against 3.5 */
    check_exchange("ef@again=fp32,small=same+fp4", 10, NULL, "gather");
    check_exchange("ef@again=fp32,small=same+fp4", 11, NULL, "shard");
    check_exchange("ef@again=fp16,small=same+fp4+rans", 64, NULL, "gather");
    check_exchange("ef@again=fp32+topk@0.1", 8, "server", "server");
    check_exchange("ef@again=bf16+fp16", 8, NULL, "allreduce");
    for (uint32_t world = 1; world <= 6; world++) {
        check_exchange("terse", world, NULL, world < 5 ? "gather" : "shard");
    }
    check_exchange("terse", 4, "shard", "shard");
    check_exchange("sparseloco", 8, NULL, "gather");
    check_exchange("ef@again=no+randomk@0.1", 8, "gather", "gather");
}

/* gradients = averages + mean residual, for small tensors, too. */
static void rounding_of_small_tensors_is_fed_back(void **state)
{
    (void)state;
    test_random random = {4};
    tg_exchange *ranks[WORLD];
    test_model models[WORLD];
    double sent[64] = {0}, given[64] = {0};
    for (uint32_t r = 0; r < WORLD; r++) {
        models[r] = model_of(TG_FP32);
        MUST(tg_exchange_new(&ranks[r], "ef@small=fp16+topk@0.1", models[r].tensors, TENSOR_N, r, WORLD, NULL, why));
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        void *const *grads[WORLD];
        for (uint32_t r = 0; r < WORLD; r++) {
            test_model_fill(&models[r], &random);
            grads[r] = models[r].grads;
            for (size_t i = 0; i < 64; i++) {
                given[i] += (double)test_model_get(&models[r], 2, i) / WORLD;
            }
        }
        MUST(tg_lockstep_reduce(NULL, ranks, WORLD, step, grads, NULL, why));
        for (size_t i = 0; i < 64; i++) {
            sent[i] += (double)test_model_get(&models[0], 2, i);
        }
    }
    double largest = 0;
    for (uint32_t r = 0; r < WORLD; r++) {
        float residual[64];
        MUST(tg_exchange_residual(ranks[r], residual, 2, why));
        for (size_t i = 0; i < 64; i++) {
            sent[i] += (double)residual[i] / WORLD;
            largest = fmax(largest, fabs((double)residual[i]));
        }
        tg_exchange_free(ranks[r]);
        test_model_free(&models[r]);
    }
    assert_true(largest > 0);
    for (size_t i = 0; i < 64; i++) {
        assert_true(fabs(sent[i] - given[i]) < 1e-6 * STEPS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_tensors_travel_as_told),
        cmocka_unit_test(frames_hold_what_tensors_use),
        cmocka_unit_test(averages_are_not_encoded_again_if_told_so),
        cmocka_unit_test(rounding_of_small_tensors_is_fed_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
