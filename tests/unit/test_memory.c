/* Allocation failure at every nth call, once or from then on: an error, no leak, no change. And no step ever allocates. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t lens[] = {5000, 3, 0, 700};
enum { TENSOR_N = 4, WORLD = 3 };

static const char *const recipes[] = {"dense",
                                      "ef+topk@0.05,scope=model+fp16",
                                      "ef+randomk@0.1",
                                      "ef+threshold@1,coords=shared",
                                      "randomblock@0.1,coords=own+bf16+bitmap",
                                      "ef+adabins+sign@scale=meanmax",
                                      "ef+orq@4,levels=exact,bucket=300",
                                      "ef+fp4+rans",
                                      "ef@again=fp16+topk@0.05"};
enum { RECIPE_N = sizeof recipes / sizeof *recipes };

/* A scenario returns the first status that is not TG_OK, and frees all that it allocated. */
typedef tg_status scenario(const char *recipe, test_allocator *a, tg_detail *reason);

static tg_options options_with(const test_allocator *a)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.allocator = &a->allocator;
    opt.has_seed = 1;
    opt.threads = 2;
    opt.describe = 1;
    return opt;
}

static tg_status through_codec(const char *recipe, test_allocator *a, tg_detail *reason)
{
    test_model m = test_model_new(lens, TENSOR_N, TG_FP32);
    test_random random = {1};
    tg_options opt = options_with(a);
    tg_codec *c = NULL, *reader = NULL;
    uint8_t *frame = NULL;
    tg_status status = tg_codec_new(&c, recipe, m.tensors, TENSOR_N, &opt, reason);
    for (uint64_t step = 0; step < 2 && status == TG_OK; step++) {
        size_t cap = tg_encode_bound(c), len = 0;
        free(frame);
        frame = test_room(cap);
        test_model_fill(&m, &random);
        uint64_t calls = a->calls;
        MUST(tg_encode(&len, c, frame, cap, step, (const void *const *)m.grads, why));
        MUST(tg_decode(c, m.grads, frame, len, why));
        assert_int_equal(a->calls, calls);
        tg_codec_free(reader);
        reader = NULL;
        status = tg_codec_from_frame(&reader, NULL, frame, len, &opt, reason);
    }
    assert_true(status == TG_OK || reader == NULL);
    free(frame);
    tg_codec_free(reader);
    tg_codec_free(c);
    test_model_free(&m);
    return status;
}

/* Saves rank 0, changes it by a step, loads what was saved. A load that fails leaves it as it was. */
static tg_status save_and_load(tg_exchange *const *ranks, void *const *const *grads, tg_detail *reason)
{
    size_t len = tg_state_len(ranks[0]);
    uint8_t *saved = test_room(len), *before = test_room(len), *after = test_room(len);
    MUST(tg_state_save(ranks[0], saved, len, why));
    MUST(tg_lockstep_reduce(NULL, ranks, WORLD, 2, grads, NULL, why));
    MUST(tg_state_save(ranks[0], before, len, why));
    tg_span span = {saved, len};
    tg_status status = tg_state_load(ranks[0], &span, 1, reason);
    MUST(tg_state_save(ranks[0], after, len, why));
    assert_memory_equal(after, status == TG_OK ? saved : before, len);
    free(after);
    free(before);
    free(saved);
    return status;
}

static tg_status through_exchange(const char *recipe, test_allocator *a, tg_detail *reason)
{
    test_model models[WORLD];
    tg_exchange *ranks[WORLD] = {NULL};
    void *const *grads[WORLD];
    tg_threads *hub = NULL;
    tg_options opt = options_with(a);
    tg_status status = tg_threads_new(&hub, WORLD, 100, &a->allocator, reason);
    for (uint32_t r = 0; r < WORLD; r++) {
        models[r] = test_model_new(lens, TENSOR_N, TG_FP32);
        grads[r] = models[r].grads;
        test_random random = {r};
        test_model_fill(&models[r], &random);
        if (status == TG_OK) {
            status = tg_exchange_new(&ranks[r], recipe, models[r].tensors, TENSOR_N, r, WORLD, &opt, reason);
        }
    }
    uint64_t calls = a->calls;
    for (uint64_t step = 0; step < 2 && status == TG_OK; step++) {
        MUST(tg_lockstep_reduce(NULL, ranks, WORLD, step, grads, NULL, why));
        assert_int_equal(a->calls, calls);
    }
    if (status == TG_OK) {
        status = save_and_load(ranks, grads, reason);
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        tg_exchange_free(ranks[r]);
        test_model_free(&models[r]);
    }
    tg_threads_free(hub);
    return status;
}

static void fail_every_call(scenario *run)
{
    for (size_t k = 0; k < RECIPE_N; k++) {
        for (int persistent = 0; persistent < 2; persistent++) {
            uint64_t failures = 0;
            for (uint64_t nth = 1 + (k + (size_t)persistent) % TEST_EVERY;; nth += TEST_EVERY) {
                test_allocator a;
                test_allocator_start(&a, nth, persistent != 0);
                tg_detail reason = {""};
                tg_status status = run(recipes[k], &a, &reason);
                assert_int_equal(a.held, 0);
                if (a.calls < nth) { /* it never came to that call */
                    assert_int_equal(status, TG_OK);
                    break;
                }
                assert_int_equal(status, TG_E_MEMORY);
                assert_true(reason.text[0] != '\0');
                failures++;
            }
            assert_true(failures > 10 / TEST_EVERY);
        }
    }
}

static void codecs_survive_every_failure(void **state)
{
    (void)state;
    fail_every_call(through_codec);
}

static void exchanges_survive_every_failure(void **state)
{
    (void)state;
    fail_every_call(through_exchange);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codecs_survive_every_failure),
        cmocka_unit_test(exchanges_survive_every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
