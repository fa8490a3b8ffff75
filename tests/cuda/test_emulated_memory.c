/* Memory of the emulated GPU: what fails for lack of it leaves nothing behind; steps take none; and host memory is refused where device
 * memory is wanted. */
#include "exec/cuda/emulate/calls.h"
#include "mixed.h"

#include <stdlib.h>
#include <string.h>

enum { TENSOR_N = 3 };
static const uint64_t lens[TENSOR_N] = {300, 7, 40};
static const uint32_t groups[TENSOR_N] = {1, 0, 0};

static const test_run runs[] = {
    {"ef+fp16", "gather"}, {"ef+bf16", "shard"}, {"dense", "allreduce"}, {"fp16", "server"}};
enum { RUN_N = sizeof runs / sizeof *runs };

static tg_status make(tg_exchange **out, const test_run *run, const test_model *model, tg_device *device,
                      const tg_allocator *allocator, tg_detail *why)
{
    test_setup setup = {.recipe = run->recipe, .exchange = run->exchange, .allocator = allocator};
    tg_options opt = test_setup_options(&setup);
    opt.group_of = groups;
    opt.device = device;
    return tg_exchange_new(out, run->recipe, model->tensors, TENSOR_N, 0, 3, &opt, why);
}

/* Every acquisition fails in turn: of device and pinned memory, then of host memory. */
static void an_exchange_that_fails_leaves_nothing(void **state)
{
    test_model model = test_model_new(lens, TENSOR_N, TG_FP32);
    tg_device *device = NULL;
    (void)state;
    MUST(tg_cuda_open(&device, 0, NULL, why));
    uint64_t held = tg_emulated_held();
    for (size_t run = 0; run < RUN_N; run++) {
        for (int on_device = 0; on_device < 2; on_device++) {
            tg_status status = TG_E_MEMORY;
            uint64_t nth = 1;
            for (; status != TG_OK; nth++) {
                tg_exchange *x = NULL;
                tg_detail why = {""};
                test_allocator a;
                test_allocator_start(&a, on_device ? 0 : nth, false);
                tg_emulated_fail(on_device ? nth : 0);
                status = make(&x, &runs[run], &model, device, &a.allocator, &why);
                assert_true(status == TG_OK || status == TG_E_MEMORY);
                assert_true(status == TG_OK || why.text[0] != '\0');
                tg_exchange_free(x);
                assert_int_equal(a.held, 0);
                assert_int_equal(tg_emulated_held(), held);
            }
            assert_true(nth > 20); /* acquisitions have failed */
        }
    }
    tg_emulated_fail(0);
    tg_cuda_close(device);
    test_model_free(&model);
}

static void steps_take_no_memory(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        test_setup setup = {.recipe = runs[run].recipe,
                            .exchange = runs[run].exchange,
                            .lens = lens,
                            .tensor_n = TENSOR_N,
                            .verify_every = 2};
        mixed_flight f;
        mixed_take_off(&f, 3, &setup, groups, MIXED_ALL, run);
        mixed_fly(&f, 0, 1); /* pinned memory of links */
        uint64_t acquired = tg_emulated_acquired();
        mixed_fly(&f, 1, 5);
        assert_int_equal(tg_emulated_acquired(), acquired);
        mixed_land(&f);
        assert_int_equal(tg_emulated_held(), 0);
    }
}

/* A link that gets no pinned memory fails the step, as any failure of a link does. */
static void a_link_that_fails_leaves_nothing(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth < 6; nth++) {
        test_setup setup = {.recipe = "ef+fp16", .exchange = "shard", .lens = lens, .tensor_n = TENSOR_N};
        mixed_flight f;
        mixed_take_off(&f, 3, &setup, groups, MIXED_ODD, nth);
        test_world_fill(&f.flight.world, 0);
        tg_emulated_fail(nth);
        test_fly(&f.flight, 0);
        tg_emulated_fail(0);
        uint32_t failed = 0;
        for (uint32_t r = 0; r < 3; r++) {
            failed += f.flight.world.outcomes[r].status < 0;
            if (r == 1 && f.flight.world.outcomes[r].status < 0) {
                assert_non_null(strstr(f.flight.world.outcomes[r].why.text, "bytes of pinned host memory"));
            }
        }
        assert_true(failed == 0 || failed == 3);
        assert_true(failed == 3 || nth > 2);
        mixed_land(&f);
        assert_int_equal(tg_emulated_held(), 0);
    }
}

/* ---- the wrong memory ---------------------------------------------------------------------------------------------------- */

typedef struct fixture {
    test_model model;
    tg_device *device;
    tg_codec *codec;
    void *grads[TENSOR_N]; /* device */
    size_t bound;
    void *frame, *host_frame;
} fixture;

static void set_up(fixture *f)
{
    test_random random = {3};
    *f = (fixture){.model = test_model_new(lens, TENSOR_N, TG_FP32)};
    test_model_fill(&f->model, &random);
    MUST(tg_cuda_open(&f->device, 0, NULL, why));
    tg_options opt = TG_OPTIONS_INIT;
    opt.device = f->device;
    MUST(tg_codec_new(&f->codec, "ef+fp16", f->model.tensors, TENSOR_N, &opt, why));
    for (size_t t = 0; t < TENSOR_N; t++) {
        MUST(tg_cuda_acquire(&f->grads[t], f->device, lens[t] * 4, why));
        MUST(tg_cuda_copy(f->device, f->grads[t], f->model.grads[t], lens[t] * 4, why));
    }
    f->bound = tg_encode_bound(f->codec);
    MUST(tg_cuda_acquire(&f->frame, f->device, f->bound, why));
    f->host_frame = test_room(f->bound);
}

static void tear_down(fixture *f)
{
    free(f->host_frame);
    tg_cuda_release(f->device, f->frame);
    for (size_t t = 0; t < TENSOR_N; t++) {
        tg_cuda_release(f->device, f->grads[t]);
    }
    tg_codec_free(f->codec);
    tg_cuda_close(f->device);
    test_model_free(&f->model);
}

static void host_memory_is_refused(void **state)
{
    static const char tensor[] = "the elements of tensor 't1' are not in the memory of GPU 0";
    static const char frame[] = "the frame is not in the memory of GPU 0";
    fixture f;
    size_t len = 0;
    (void)state;
    set_up(&f);
    const void *const *given = (const void *const *)f.grads;
    void *mixed_up[TENSOR_N] = {f.grads[0], f.model.grads[1], f.grads[2]};
    const void *const *wrong = (const void *const *)mixed_up;
    for (int i = 0; i < 2; i++) { /* at first, and when all else is known */
        MUST_FAIL(TG_E_ARGUMENT, tensor, tg_encode(&len, f.codec, f.frame, f.bound, 0, wrong, why));
        MUST_FAIL(TG_E_ARGUMENT, frame, tg_encode(&len, f.codec, f.host_frame, f.bound, 0, given, why));
        MUST(tg_encode(&len, f.codec, f.frame, f.bound, 0, given, why));
        MUST(tg_cuda_copy(f.device, f.host_frame, f.frame, len, why));
        MUST_FAIL(TG_E_ARGUMENT, frame, tg_decode(f.codec, f.grads, f.host_frame, len, why));
        MUST_FAIL(TG_E_ARGUMENT, tensor, tg_decode(f.codec, mixed_up, f.frame, len, why));
        MUST_FAIL(TG_E_ARGUMENT, tensor, tg_decode_add(f.codec, (float *const *)mixed_up, 1.0f, f.frame, len, why));
        MUST_FAIL(TG_E_ARGUMENT, tensor,
                  tg_decode_add_private(f.codec, (float *const *)mixed_up, 1.0f, f.frame, len, why));
        MUST(tg_decode(f.codec, f.grads, f.frame, len, why));
        MUST(tg_decode_add(f.codec, (float *const *)f.grads, 1.0f, f.frame, len, why));
    }
    tear_down(&f);
}

static void copies_are_in_any_direction(void **state)
{
    uint8_t a[100], b[100];
    void *device_a = NULL, *device_b = NULL;
    tg_device *device = NULL;
    (void)state;
    memset(a, 7, sizeof a);
    MUST(tg_cuda_open(&device, 0, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "GPU 1 cannot be used: the emulation has one GPU, number 0",
              tg_cuda_open(&device, 1, NULL, why));
    MUST(tg_cuda_acquire(&device_a, device, sizeof a, why));
    MUST(tg_cuda_acquire(&device_b, device, sizeof a, why));
    MUST(tg_cuda_copy(device, device_a, a, sizeof a, why));
    MUST(tg_cuda_copy(device, device_b, device_a, sizeof a, why));
    MUST(tg_cuda_copy(device, b, device_b, sizeof a, why));
    assert_memory_equal(a, b, sizeof a);
    tg_emulated_fail(1);
    MUST_FAIL(TG_E_MEMORY, "GPU 0 has no 5 bytes of memory: out of memory", tg_cuda_acquire(&device_a, device, 5, why));
    tg_cuda_release(device, device_b);
    tg_cuda_release(device, device_a);
    tg_cuda_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exchange_that_fails_leaves_nothing), cmocka_unit_test(steps_take_no_memory),
        cmocka_unit_test(a_link_that_fails_leaves_nothing),      cmocka_unit_test(host_memory_is_refused),
        cmocka_unit_test(copies_are_in_any_direction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
