/* Values that are not like others: NaN and Inf under each policy, every half, zeros of both signs, denormals, constants. */
#include "world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const recipes[] = {"fp32",
                                      "ef@decay=0.5+bf16",
                                      "topk@0.1",
                                      "ef+topk@0.2,scope=model+fp16+bitmap",
                                      "ef+threshold@1.5,scope=model+fp16",
                                      "randomk@0.2,unbiased=yes+fp16",
                                      "ef+randomk@0.1,coords=own,scope=model",
                                      "ef+randomblock@0.1+fp16",
                                      "ef+topk@0.1,coords=shared",
                                      "ef+adabins@50+fp16",
                                      "ef+adabins+sign@scale=meanmax",
                                      "adabins@50+sign@scale=meanmax+adacomp8",
                                      "ef+sign",
                                      "ef+orq@3,bucket=100",
                                      "ef+bingrad@b,bucket=100",
                                      "linear@9,bucket=100",
                                      "qsgd@4,bucket=100",
                                      "ternary@bucket=100,clip=2.5",
                                      "ef+fp4",
                                      "fp8+rans",
                                      "fp8@e4m3",
                                      "qsgd@4,bucket=20000",
                                      "ef+topk@0.1+fp4+huffman",
                                      "fp16+lossless"};
enum { RECIPE_N = sizeof recipes / sizeof *recipes };

static const tg_options with_seed = {.size = sizeof(tg_options), .has_seed = 1, .seed = 7, .describe = 1};

/* ---- NaN and Inf ------------------------------------------------------------------------------------------------------ */

static void nonfinite_is_refused_and_leaves_no_trace(void **state)
{
    (void)state;
    uint64_t lens[] = {900, 1300};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t r = 0; r < RECIPE_N; r++) {
        test_random random = {r};
        test_model m = test_model_new(lens, 2, TG_FP32);
        tg_codec *c = NULL, *twin = NULL;
        MUST(tg_codec_new(&c, recipes[r], m.tensors, 2, &with_seed, why));
        MUST(tg_codec_new(&twin, recipes[r], m.tensors, 2, &with_seed, why));
        size_t bound = tg_encode_bound(c), len = 77;
        uint8_t *room = test_room(bound);
        for (uint64_t step = 0; step < 3; step++) {
            test_model_fill(&m, &random);
            float kept = test_model_get(&m, 1, 1299);
            test_model_set(&m, 1, 1299, bad[step]);
            MUST_FAIL(TG_E_NONFINITE, "'t1'", tg_encode(&len, c, room, bound, step, (const void *const *)m.grads, why));
            assert_int_equal(len, 77);
            test_model_set(&m, 1, 1299, kept);
            test_expect_same_frames(c, twin, step, &m);
        }
        free(room);
        tg_codec_free(c);
        tg_codec_free(twin);
        test_model_free(&m);
    }
}

static void nonfinite_is_taken_as_zero(void **state)
{
    (void)state;
    uint64_t n = 300;
    for (size_t r = 0; r < RECIPE_N; r++) {
        test_random random = {r};
        test_model bad = test_model_new(&n, 1, TG_FP32), zeroed = test_model_new(&n, 1, TG_FP32);
        test_model_fill(&bad, &random);
        test_model_copy(&zeroed, &bad);
        for (uint64_t i = 0; i < n; i += 3) {
            test_model_set(&bad, 0, i, i % 2 == 0 ? NAN : -INFINITY);
            test_model_set(&zeroed, 0, i, 0);
        }
        tg_options opt = with_seed;
        opt.nonfinite = TG_NONFINITE_ZERO;
        tg_codec *c = NULL, *twin = NULL;
        MUST(tg_codec_new(&c, recipes[r], bad.tensors, 1, &opt, why));
        MUST(tg_codec_new(&twin, recipes[r], bad.tensors, 1, &opt, why));
        test_frame f = test_encode(c, 0, &bad), f_twin = test_encode(twin, 0, &zeroed);
        assert_int_equal(f.len, f_twin.len);
        assert_memory_equal(f.bytes, f_twin.bytes, f.len);
        free(f.bytes);
        free(f_twin.bytes);
        tg_codec_free(c);
        tg_codec_free(twin);
        test_model_free(&bad);
        test_model_free(&zeroed);
    }
}

static void nonfinite_passes_but_not_into_residuals(void **state)
{
    (void)state;
    uint64_t n = 1000;
    for (size_t r = 0; r < RECIPE_N; r++) {
        test_random random = {r};
        test_model m = test_model_new(&n, 1, TG_FP32), back = test_model_new(&n, 1, TG_FP32);
        test_model_fill(&m, &random);
        test_model_set(&m, 0, 400, NAN);
        test_model_set(&m, 0, 401, INFINITY);
        tg_options opt = with_seed;
        opt.nonfinite = TG_NONFINITE_PASS;
        tg_codec *c = NULL;
        MUST(tg_codec_new(&c, recipes[r], m.tensors, 1, &opt, why));
        test_frame f = test_encode(c, 0, &m);
        test_decode(&back, &f);
        if (strstr(recipes[r], "sign") != NULL || strstr(recipes[r], "bucket") != NULL ||
            strstr(recipes[r], "fp4") != NULL ||
            strstr(recipes[r], "fp8") != NULL) { /* one for all, one for a bucket */
            assert_true(isnan(test_model_get(&back, 0, 400)));
        } else if (strstr(recipes[r], "adabins") != NULL) { /* nothing is as large as the NaN in its bin */
            assert_true(isnan(test_model_get(&back, 0, 400)) && test_model_get(&back, 0, 401) == 0);
        } else if (strstr(recipes[r], "random") == NULL) { /* NaN and Inf count as the largest magnitudes */
            assert_true(isnan(test_model_get(&back, 0, 400)));
            assert_true(test_model_get(&back, 0, 401) == INFINITY);
        }
        float *residual = test_room(n * sizeof *residual);
        MUST(tg_codec_residual(c, residual, 0, why));
        for (uint64_t i = 0; i < n; i++) {
            assert_true(isfinite(residual[i]));
        }
        free(residual);
        free(f.bytes);
        tg_codec_free(c);
        test_model_free(&back);
        test_model_free(&m);
    }
}

/* ---- every half through every quantizer --------------------------------------------------------------------------------- */

static void all_halves_through_all_quantizers(void **state)
{
    (void)state;
    uint64_t n = 65536;
    static const char *const quantizers[] = {"fp32", "fp16", "bf16"};
    for (int k = 0; k < 6; k++) {
        const char *quantizer = quantizers[k / 2];
        tg_dtype dtype = k % 2 == 0 ? TG_FP16 : TG_BF16;
        bool exact = k / 2 == 0 || (k / 2 == 1 && dtype == TG_FP16) || (k / 2 == 2 && dtype == TG_BF16);
        test_model m = test_model_new(&n, 1, dtype), back = test_model_new(&n, 1, dtype);
        uint16_t *in = m.grads[0], *out = back.grads[0];
        for (uint32_t i = 0; i < n; i++) {
            in[i] = (uint16_t)i;
        }
        tg_options opt = with_seed;
        opt.nonfinite = TG_NONFINITE_PASS;
        tg_codec *c = NULL;
        MUST(tg_codec_new(&c, quantizer, m.tensors, 1, &opt, why));
        test_frame f = test_encode(c, 0, &m);
        test_decode(&back, &f);
        for (uint32_t i = 0; i < n; i++) {
            float given = test_model_get(&m, 0, i), got = test_model_get(&back, 0, i);
            if (isnan(given)) {
                assert_true(isnan(got));
            } else if (exact) {
                assert_int_equal(out[i], in[i]);
            } else if (isinf(given)) {
                assert_true(got == given);
            } else {
                /* Rounded twice, on the wire and back into the tensor's dtype: half a unit in the last place each, and
                 * half of the least fp16. Beyond the range of fp16, its end. */
                double expected = k / 2 == 1 ? fmin(fmax((double)given, -65504), 65504) : (double)given;
                double room = fabs(expected) * (0x1p-8 + 0x1p-11) + 0x1p-25;
                assert_true(fabs((double)got - expected) <= room);
                assert_true((signbit(got) != 0) == (signbit(given) != 0));
            }
        }
        free(f.bytes);
        tg_codec_free(c);
        test_model_free(&back);
        test_model_free(&m);
    }
}

static void bits_survive_untouched(void **state)
{
    (void)state;
    static const uint32_t patterns[] = {0x00000000, 0x80000000, 0x00000001, 0x807fffff,
                                        0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f800000};
    uint64_t n = sizeof patterns / sizeof *patterns;
    test_model m = test_model_new(&n, 1, TG_FP32), back = test_model_new(&n, 1, TG_FP32);
    memcpy(m.grads[0], patterns, sizeof patterns);
    static const char *const exact[] = {"fp32", "topk@1", "randomblock@1", "randomk@1+bitmap", "threshold@0"};
    for (size_t r = 0; r < sizeof exact / sizeof *exact; r++) {
        tg_codec *c = NULL;
        MUST(tg_codec_new(&c, exact[r], m.tensors, 1, &with_seed, why));
        test_frame f = test_encode(c, 0, &m);
        test_decode(&back, &f);
        assert_memory_equal(back.grads[0], patterns, sizeof patterns);
        free(f.bytes);
        tg_codec_free(c);
    }
    test_model_free(&back);
    test_model_free(&m);
}

/* All zero and all equal: a full selection all the same, ties to the lower index. */
static void constants_select_the_first(void **state)
{
    (void)state;
    uint64_t n = 1000;
    for (int k = 0; k < 2; k++) {
        test_model m = test_model_new(&n, 1, TG_FP32), back = test_model_new(&n, 1, TG_FP32);
        for (uint64_t i = 0; i < n; i++) {
            test_model_set(&m, 0, i, (float)k);
        }
        tg_codec *c = NULL;
        MUST(tg_codec_new(&c, "topk@0.05", m.tensors, 1, &with_seed, why));
        test_frame f = test_encode(c, 0, &m);
        test_decode(&back, &f);
        for (uint64_t i = 0; i < n; i++) {
            assert_true(test_model_get(&back, 0, i) == (i < 50 ? (float)k : 0));
        }
        free(f.bytes);
        tg_codec_free(c);
        test_model_free(&back);
        test_model_free(&m);
    }
}

/* Where a chunk has NaN, Inf or a sum that overflows, averages of its other elements are as ever: -0 keeps its sign, and values that fp32
 * can hardly hold their bits. */
static void other_averages_of_a_chunk_stay(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f};
    static const tg_dtype dtypes[] = {TG_FP32, TG_BF16, TG_FP16};
    static const char *const exchanges[] = {"gather", "shard", "server"};
    enum { RANKS = 3, N = 1003, ODD_AT = 7 };
    const uint64_t len = N;
    (void)state;
    for (size_t c = 0; c < 4 * 9; c++) {
        tg_dtype dtype = dtypes[c % 3];
        const test_setup setup = {.recipe = "dense",
                                  .exchange = exchanges[c / 3 % 3],
                                  .lens = &len,
                                  .tensor_n = 1,
                                  .dtype = dtype,
                                  .nonfinite = TG_NONFINITE_PASS};
        test_world plain = test_world_new(RANKS, &setup), w = test_world_new(RANKS, &setup);
        test_world_fill(&plain, 0);
        for (uint32_t r = 0; r < RANKS; r++) {
            for (uint64_t i = 0; i < N; i += 10) {
                test_model_set(&plain.models[r], 0, i, i % 20 == 0 ? -0.0f : dtype == TG_FP16 ? 3e-7f : 1e-44f);
            }
            test_model_copy(&w.models[r], &plain.models[r]);
            test_model_set(&w.models[r], 0, ODD_AT, odd[c / 9]);
        }
        MUST(test_world_reduce(&plain, 0, NULL, why));
        MUST(test_world_reduce(&w, 0, NULL, why));
        float got = test_model_get(&w.models[0], 0, ODD_AT);
        assert_true(c / 9 == 0 ? isnan(got) : c / 9 < 3 ? isinf(got) : isfinite(got));
        assert_true(signbit(test_model_get(&w.models[0], 0, 0)));
        test_model_set(&w.models[0], 0, ODD_AT, test_model_get(&plain.models[0], 0, ODD_AT));
        assert_true(test_model_equal(&w.models[0], &plain.models[0]));
        test_world_free(&plain);
        test_world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonfinite_is_refused_and_leaves_no_trace),
        cmocka_unit_test(nonfinite_is_taken_as_zero),
        cmocka_unit_test(nonfinite_passes_but_not_into_residuals),
        cmocka_unit_test(all_halves_through_all_quantizers),
        cmocka_unit_test(bits_survive_untouched),
        cmocka_unit_test(constants_select_the_first),
        cmocka_unit_test(other_averages_of_a_chunk_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
