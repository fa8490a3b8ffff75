/* Threads inside a rank: the same bytes for any number of them. Models have several chunks, so that there is work to share. Run these
 * tests with the thread sanitizer, too. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

static const char *const recipes[] = {"fp16",
                                      "ef+topk@0.03+fp16",
                                      "ef@decay=0.9+topk@0.02,scope=model+bf16+bitmap",
                                      "ef+threshold@1.5,scope=model",
                                      "ef+randomk@0.01,coords=own,scope=model",
                                      "ef+randomblock@0.1",
                                      "ef+topk@0.01,coords=shared",
                                      "ef+adabins@500+sign@scale=meanmax",
                                      "ef+adabins@50,scope=model+sign@scale=meanmax+adacomp8",
                                      "ef+adabins@16384+bf16",
                                      "ef+sign",
                                      "ef+orq@9",
                                      "ef+adabins@50+bingrad@pb",
                                      "natural",
                                      "co3",
                                      "ef+fp8+rans",
                                      "ef+topk@0.03+fp4+huffman@model",
                                      "fp32+lossless",
                                      "ef+topk@0.01+bf16+zstd"};
enum { RECIPE_N = sizeof recipes / sizeof *recipes };

static const tg_options with_seed = {.size = sizeof(tg_options), .has_seed = 1, .seed = 7, .describe = 1};

static void threads_do_not_change_a_byte(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 5, 2};
    const size_t count_n = TEST_EVERY > 1 ? 2 : 3;
    uint64_t lens[] = {530001, 17, 270000, 0, 4097};
    for (size_t r = 0; r < RECIPE_N; r++) {
        test_frame first[2] = {{NULL, 0}, {NULL, 0}};
        for (size_t k = 0; k < count_n; k++) {
            test_random random = {99};
            test_model m = test_model_new(lens, 5, TG_FP32), back = test_model_new(lens, 5, TG_FP32);
            tg_options opt = with_seed;
            opt.threads = counts[k];
            tg_codec *c = NULL;
            MUST(tg_codec_new(&c, recipes[r], m.tensors, 5, &opt, why));
            for (uint64_t step = 0; step < 2; step++) {
                test_model_fill(&m, &random);
                test_frame f = test_encode(c, step, &m);
                if (k == 0) {
                    first[step] = f;
                    continue;
                }
                assert_int_equal(f.len, first[step].len);
                assert_memory_equal(f.bytes, first[step].bytes, f.len);
                free(f.bytes);
            }
            MUST(tg_decode(c, back.grads, first[1].bytes, first[1].len, why));
            test_decode(&m, &first[1]); /* with one thread */
            assert_true(test_model_equal(&m, &back));
            tg_codec_free(c);
            test_model_free(&back);
            test_model_free(&m);
        }
        free(first[0].bytes);
        free(first[1].bytes);
    }
}

/* Chunks beyond the first, threads inside each rank. */
static void large_models_in_slices(void **state)
{
    (void)state;
    static const uint64_t large[] = {600001, 300};
    static const char *const protocols[] = {"allreduce", "gather", "shard", "server"};
    static const char *const few[] = {"ef+topk@0.01+fp16", "ef+randomk@0.01", "bf16",
                                      "ef+adabins@500+sign@scale=meanmax", "ef+fp4+rans"};
    for (size_t k = 0; k < sizeof few / sizeof *few; k++) {
        for (int p = k < 3 ? 0 : 1; p < 4; p++) { /* symbols do not add up */
            test_setup setup = {.recipe = few[k],
                                .exchange = protocols[p],
                                .lens = large,
                                .tensor_n = 2,
                                .verify_every = 1,
                                .threads = 1};
            test_world one = test_world_new(2, &setup);
            setup.threads = 3;
            test_world more = test_world_new(2, &setup);
            for (uint64_t step = 0; step < 2 && test_world_exists(&one); step++) {
                test_world_step(&one, step);
                test_world_step(&more, step);
                assert_true(test_world_same(&one, &more));
                assert_memory_equal(one.sent, more.sent, 2 * sizeof *one.sent);
            }
            test_world_free(&more);
            test_world_free(&one);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_change_a_byte),
        cmocka_unit_test(large_models_in_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
