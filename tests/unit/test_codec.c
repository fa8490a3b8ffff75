/* The codec through its public functions: inputs, outputs, residuals. */
#include "support.h"

#include "base/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every part at least once, with seed 7. */
static const char *const recipes[] = {
    "fp32",
    "fp16",
    "bf16",
    "ef+fp16",
    "ef@decay=0.5+bf16",
    "topk@0.1",
    "ef+topk@0.03+fp16",
    "ef@decay=0.9+topk@0.2,scope=model+bf16+bitmap",
    "threshold@1.5",
    "ef+threshold@1.5,scope=model+fp16",
    "randomk@0.1",
    "ef+randomk@0.1,coords=own,scope=model",
    "randomk@0.2,unbiased=yes+fp16",
    "ef+randomblock@0.1+fp16",
    "randomblock@0.3,coords=own,scope=model+bf16",
    "ef+topk@0.1,coords=shared",
    "ef+adabins@50+fp16",
    "adabins@500,scope=model",
    "ef+adabins+sign@scale=meanmax",
    "ef@decay=0.5+adabins@50,scope=model+sign@scale=meanmax+adacomp8",
    "adabins@16384,weight=3+sign+adacomp16",
    "ef+sign",
    "ef+topk@0.1+sign+bitmap",
    "randomblock@0.2+sign",
    "ef+bingrad@b",
    "ef+bingrad@pb,bucket=100",
    "onebit",
    "orq@9",
    "ef+orq@3,bucket=300,half=yes",
    "ef+topk@0.1+orq@5,levels=exact,bucket=64",
    "linear@5",
    "ef+adabins@50+qsgd@4,bucket=7",
    "terngrad",
    "ef+ternary@clip=2.5",
    "ef+threshold@1,scope=model+natural",
    "ef@decay=0.9+fp4+huffman",
    "ef@decay=0.9+fp8@e4m3+rans",
    "fp4+huffman@model",
    "ef+topk@0.1+fp8+rans",
    "ef+topk@0.05,scope=model+fp16+rans",
    "ef+randomk@0.2+orq@9+huffman",
    "ef+sign+rans",
    "bf16+lossless",
    "ef+threshold@1+fp32+lossless",
    "ternary+zstd@1",
    "ef+fp16+zstd",
};
enum { RECIPE_N = sizeof recipes / sizeof *recipes };

static const tg_options with_seed = {.size = sizeof(tg_options), .has_seed = 1, .seed = 7, .describe = 1};

static void residuals(float *out, const tg_codec *c, const test_model *m)
{
    for (size_t t = 0; t < m->tensor_n; t++) {
        MUST(tg_codec_residual(c, out, t, why));
        out += m->dims[t];
    }
}

static float round_by(const char *recipe, float value)
{
    if (strstr(recipe, "fp16") != NULL) {
        return tg_fp16_to_float(tg_float_to_fp16(value));
    }
    return strstr(recipe, "bf16") != NULL ? tg_bf16_to_float(tg_float_to_bf16(value)) : value;
}

/* ---- what is decoded is what was chosen, rounded ---------------------------------------------------------------- */

static void check_values(const char *recipe, const test_model *in, const test_model *out)
{
    static const char *const exact[] = {"fp32", "fp16", "bf16"}; /* test_adacomp and test_quantize have the others */
    char canonical[TG_RECIPE_CAP];
    MUST(tg_recipe_canonical(canonical, recipe, why));
    if (strstr(canonical, exact[0]) == NULL && strstr(canonical, exact[1]) == NULL &&
        strstr(canonical, exact[2]) == NULL) {
        return;
    }
    float gain = strstr(recipe, "unbiased") != NULL ? 5.0f : 1.0f;
    for (size_t t = 0; t < in->tensor_n; t++) {
        for (uint64_t i = 0; i < in->dims[t]; i++) {
            float sent = test_model_get(out, t, i);
            float value = round_by(recipe, gain * test_model_get(in, t, i));
            value = in->tensors[t].dtype == TG_FP16 ? tg_fp16_to_float(tg_float_to_fp16(value)) : value;
            value = in->tensors[t].dtype == TG_BF16 ? tg_bf16_to_float(tg_float_to_bf16(value)) : value;
            if (sent != 0 && sent != value) {
                fail_msg("%s: element %llu of tensor %zu came as %g, not %g", recipe, (unsigned long long)i, t,
                         (double)sent, (double)value);
            }
        }
    }
}

static uint64_t count_nonzero(const test_model *m)
{
    uint64_t n = 0;
    for (size_t t = 0; t < m->tensor_n; t++) {
        for (uint64_t i = 0; i < m->dims[t]; i++) {
            n += test_model_get(m, t, i) != 0;
        }
    }
    return n;
}

static void every_recipe_at_every_size(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 2, 7, 8, 9, 31, 33, 63, 65, 1023, 4096, 4099, 262144, 262147};
    for (size_t r = 0; r < RECIPE_N; r++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            tg_dtype dtype = (tg_dtype)((r + s) % 3);
            test_random random = {1000 * r + s};
            uint64_t lens[] = {sizes[s], 5, sizes[s] / 2};
            test_model m = test_model_new(lens, 3, dtype), back = test_model_new(lens, 3, dtype);
            test_model_fill(&m, &random);
            tg_codec *c = NULL;
            MUST(tg_codec_new(&c, recipes[r], m.tensors, 3, &with_seed, why));
            test_frame f = test_encode(c, s, &m);
            test_decode(&back, &f);
            if (strstr(recipes[r], "unbiased") == NULL || sizes[s] % 10 == 0) { /* else gains differ by tensor */
                check_values(recipes[r], &m, &back);
            }
            tg_frame_info info;
            MUST(tg_frame_inspect(&info, c, f.bytes, f.len, why));
            assert_true(count_nonzero(&back) <= info.entry_n);
            assert_int_equal(info.element_n, test_model_elements(&m));
            if (strstr(recipes[r], "threshold") == NULL) { /* which may find nothing */
                assert_true(info.entry_n > 0);
            }
            free(f.bytes);
            tg_codec_free(c);
            test_model_free(&back);
            test_model_free(&m);
        }
    }
}

/* Top-k of a model is top-k of its concatenated tensors. */
static void a_selection_spans_the_model(void **state)
{
    (void)state;
    uint64_t lens[] = {300, 0, 7, 1000, 1}, all = 1308;
    test_random random = {5};
    test_model m = test_model_new(lens, 5, TG_FP32), back = test_model_new(lens, 5, TG_FP32);
    test_model whole = test_model_new(&all, 1, TG_FP32), whole_back = test_model_new(&all, 1, TG_FP32);
    test_model_fill(&m, &random);
    float *at = whole.grads[0];
    for (size_t t = 0; t < 5; t++) {
        memcpy(at, m.grads[t], lens[t] * sizeof *at);
        at += lens[t];
    }
    static const char *const same[] = {"topk@0.1", "threshold@1.7", "randomk@0.1", "randomblock@0.3"};
    for (size_t r = 0; r < sizeof same / sizeof *same; r++) {
        char recipe[64];
        (void)snprintf(recipe, sizeof recipe, "%s,scope=model", same[r]);
        tg_codec *c = NULL, *c_whole = NULL;
        MUST(tg_codec_new(&c, recipe, m.tensors, 5, &with_seed, why));
        MUST(tg_codec_new(&c_whole, same[r], whole.tensors, 1, &with_seed, why));
        test_frame f = test_encode(c, 3, &m), f_whole = test_encode(c_whole, 3, &whole);
        test_decode(&back, &f);
        test_decode(&whole_back, &f_whole);
        at = whole_back.grads[0];
        for (size_t t = 0; t < 5; t++) {
            assert_memory_equal(at, back.grads[t], lens[t] * sizeof *at);
            at += lens[t];
        }
        free(f.bytes);
        free(f_whole.bytes);
        tg_codec_free(c);
        tg_codec_free(c_whole);
    }
    test_model_free(&m);
    test_model_free(&back);
    test_model_free(&whole);
    test_model_free(&whole_back);
}

/* ---- nothing is lost --------------------------------------------------------------------------------------------- */

/* gradient + decay * old residual = decoded + new residual. Each side is rounded once to fp32, so they differ by at most
 * one unit in the last place of the larger term: 2^-23 of |gradient| + |residual|, or of what a sign made of them. */
static void the_residual_is_what_the_decoder_misses(void **state)
{
    (void)state;
    uint64_t lens[] = {5000, 3, 0, 411}, n = 5414;
    for (size_t r = 0; r < RECIPE_N; r++) {
        bool remembers = strncmp(recipes[r], "ef", 2) == 0 || strcmp(recipes[r], "onebit") == 0;
        const char *decay_at = strstr(recipes[r], "decay=");
        double decay = !remembers ? 0 : decay_at != NULL ? atof(decay_at + 6) : 1;
        test_random random = {r};
        test_model m = test_model_new(lens, 4, TG_FP32), back = test_model_new(lens, 4, TG_FP32);
        float *old = test_room(n * sizeof *old), *now = test_room(n * sizeof *now);
        tg_codec *c = NULL;
        MUST(tg_codec_new(&c, recipes[r], m.tensors, 4, &with_seed, why));
        for (uint64_t step = 0; step < 30; step++) {
            test_model_fill(&m, &random);
            residuals(old, c, &m);
            test_frame f = test_encode(c, step, &m);
            residuals(now, c, &m);
            test_decode(&back, &f);
            size_t e = 0;
            for (size_t t = 0; t < 4; t++) {
                for (uint64_t i = 0; i < lens[t]; i++, e++) {
                    double g = (double)test_model_get(&m, t, i), d = (double)test_model_get(&back, t, i);
                    double lost = g + decay * (double)old[e] - (d + (double)now[e]);
                    if (!remembers) {
                        assert_true(now[e] == 0);
                    } else if (fabs(lost) > 0x1p-23 * (fabs(g) + fabs((double)old[e]) + fabs(d))) {
                        fail_msg("%s, step %d: %g of %g is lost", recipes[r], (int)step, lost, g);
                    }
                }
            }
            free(f.bytes);
        }
        tg_codec_free(c);
        free(old);
        free(now);
        test_model_free(&back);
        test_model_free(&m);
    }
}

/* ---- adding ---------------------------------------------------------------------------------------------------------- */

static void decode_add_adds_what_decode_gives(void **state)
{
    (void)state;
    uint64_t lens[] = {5000, 0, 77};
    for (size_t r = 0; r < RECIPE_N; r++) {
        test_random random = {r};
        test_model m = test_model_new(lens, 3, TG_FP32), back = test_model_new(lens, 3, TG_FP32);
        test_model sums = test_model_new(lens, 3, TG_FP32), before = test_model_new(lens, 3, TG_FP32);
        test_model_fill(&m, &random);
        test_model_fill(&sums, &random);
        test_model_copy(&before, &sums);
        tg_codec *c = NULL;
        MUST(tg_codec_new(&c, recipes[r], m.tensors, 3, &with_seed, why));
        test_frame f = test_encode(c, 0, &m);
        test_decode(&back, &f);
        MUST(tg_decode_add(c, (float *const *)sums.grads, 0.25f, f.bytes, f.len, why));
        for (size_t t = 0; t < 3; t++) {
            for (uint64_t i = 0; i < lens[t]; i++) {
                float expected = test_model_get(&before, t, i) + 0.25f * test_model_get(&back, t, i);
                assert_true(test_model_get(&sums, t, i) == expected);
            }
        }
        free(f.bytes);
        tg_codec_free(c);
        test_model_free(&before);
        test_model_free(&sums);
        test_model_free(&back);
        test_model_free(&m);
    }
}

/* ---- policy ------------------------------------------------------------------------------------------------------------ */

static void tensors_travel_by_kind_size_and_rule(void **state)
{
    (void)state;
    static const uint64_t large[] = {100, 10}, small[] = {10}, none[] = {0};
    const tg_tensor tensors[] = {
        {"conv1.weight", large, 2, TG_CONV, TG_FP32}, {"conv1.bias", small, 1, TG_BIAS, TG_FP32},
        {"bn.weight", small, 1, TG_NORM, TG_FP16},    {"fc.weight", large, 2, TG_DENSE, TG_BF16},
        {"scale", NULL, 0, TG_OTHER, TG_FP32},        {"fc.bias", small, 1, TG_BIAS, TG_FP32},
        {"nothing", none, 1, TG_OTHER, TG_FP32},
    };
    const tg_rule rules[] = {{"fc.?ias", "bf16"}, {"fc.*", "fp16"}, {"fc.weight", "fp32"}};
    tg_options opt = TG_OPTIONS_INIT;
    opt.rules = rules;
    opt.rule_n = 3;
    opt.dense_below = 2;
    tg_codec *c = NULL;
    MUST(tg_codec_new(&c, "ef+topk@0.1", tensors, 7, &opt, why));
    static const char *const expected[] = {"ef+topk@0.1+fp32", "fp32", "fp16", "fp16", "fp32", "bf16", "fp32"};
    for (size_t t = 0; t < 7; t++) {
        assert_string_equal(tg_codec_recipe(c, t), expected[t]);
        tg_tensor got;
        MUST(tg_codec_tensor(&got, c, t, why));
        assert_string_equal(got.name, tensors[t].name);
        assert_int_equal(got.dim_n, tensors[t].dim_n);
    }
    assert_null(tg_codec_recipe(c, 7));
    assert_int_equal(tg_codec_tensors(c), 7);
    tg_codec_free(c);
    /* A recipe that would compress nothing is refused. */
    opt.rule_n = 0;
    opt.dense_below = 100000;
    c = NULL;
    MUST_FAIL(TG_E_NO_EFFECT, "would compress nothing", tg_codec_new(&c, "topk@0.1", tensors, 7, &opt, why));
    assert_null(c);
    MUST(tg_codec_new(&c, "dense", tensors, 7, &opt, why));
    tg_codec_free(c);
}

/* ---- misuse ------------------------------------------------------------------------------------------------------------ */

static void misuse_is_named(void **state)
{
    (void)state;
    uint64_t lens[] = {100, 20};
    test_random random = {1};
    test_model m = test_model_new(lens, 2, TG_FP32);
    test_model_fill(&m, &random);
    const void *const *grads = (const void *const *)m.grads;
    const void *hole[] = {m.grads[0], NULL};
    tg_codec *c = NULL, *reader = NULL;
    MUST(tg_codec_new(&c, "topk@0.1", m.tensors, 2, &with_seed, why));
    size_t bound = tg_encode_bound(c), len = 0;
    uint8_t *room = test_room(bound);
    MUST_FAIL(TG_E_SPACE, "may need", tg_encode(&len, c, room, bound - 1, 0, grads, why));
    MUST_FAIL(TG_E_ARGUMENT, "no elements are given for tensor 't1'", tg_encode(&len, c, room, bound, 0, hole, why));
    MUST_FAIL(TG_E_ARGUMENT, "no elements", tg_encode(&len, c, room, bound, 0, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "no frame", tg_decode(c, m.grads, NULL, 0, why));
    MUST(tg_encode(&len, c, room, bound, 0, grads, why));
    MUST(tg_codec_from_frame(&reader, NULL, room, len, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "only decodes", tg_encode(&len, reader, room, bound, 0, grads, why));
    tg_codec_free(reader);
    tg_codec_free(c);
    tg_codec_free(NULL);
    free(room);

    c = NULL;
    tg_options opt = TG_OPTIONS_INIT;
    opt.size = 7;
    MUST_FAIL(TG_E_ARGUMENT, "TG_OPTIONS_INIT", tg_codec_new(&c, "fp32", m.tensors, 2, &opt, why));
    MUST_FAIL(TG_E_RECIPE, "seed", tg_codec_new(&c, "randomk@0.1,coords=shared", m.tensors, 2, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "no tensors", tg_codec_new(&c, "fp32", NULL, 2, NULL, why));
    m.tensors[1].name = m.tensors[0].name;
    MUST_FAIL(TG_E_ARGUMENT, "two tensors are called 't0'", tg_codec_new(&c, "fp32", m.tensors, 2, NULL, why));
    m.tensors[1].name = "";
    MUST_FAIL(TG_E_ARGUMENT, "0 bytes", tg_codec_new(&c, "fp32", m.tensors, 2, NULL, why));
    m.tensors[1].name = NULL;
    const tg_rule rule = {"*", "fp32"};
    tg_options with_rule = TG_OPTIONS_INIT;
    with_rule.rules = &rule;
    with_rule.rule_n = 1;
    MUST_FAIL(TG_E_ARGUMENT, "no name", tg_codec_new(&c, "fp32", m.tensors, 2, &with_rule, why));
    m.tensors[1].name = "b";
    m.dims[1] = UINT64_C(1) << 61;
    MUST_FAIL(TG_E_ARGUMENT, "2^60", tg_codec_new(&c, "fp32", m.tensors, 2, NULL, why));
    m.dims[1] = UINT64_C(1) << 59;
    MUST_FAIL(TG_E_MEMORY, "", tg_codec_new(&c, "ef+fp32", m.tensors, 2, NULL, why));
    assert_null(c);
    m.dims[1] = 20;
    test_model_free(&m);
    /* A model may have no tensors. */
    MUST(tg_codec_new(&c, "topk@0.1", NULL, 0, &with_seed, why));
    uint8_t empty[256];
    MUST(tg_encode(&len, c, empty, sizeof empty, 0, NULL, why));
    MUST(tg_decode(c, NULL, empty, len, why));
    tg_codec_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recipe_at_every_size),
        cmocka_unit_test(a_selection_spans_the_model),
        cmocka_unit_test(the_residual_is_what_the_decoder_misses),
        cmocka_unit_test(decode_add_adds_what_decode_gives),
        cmocka_unit_test(tensors_travel_by_kind_size_and_rule),
        cmocka_unit_test(misuse_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
