/* Steps of ranks with and without a device: the same averages and residuals, to the bit, as those of ranks on the CPU alone. A failure
 * on any rank changes nothing on any. Groups are in flight, over a link that performs operations in any order. */
#include "mixed.h"

#include <string.h>

/* Every protocol; frames of known length and of any; with residuals and without. */
static const test_run runs[] = {
    {"dense", NULL},
    {"fp16", "gather"},
    {"ef+fp16", "shard"},
    {"ef+bf16", "server"},
    {"ef+topk@0.05+fp16", "gather"},
    {"ef+topk@0.05", "shard"},
    {"ef+randomblock@0.1", "allreduce"},
    {"ef+randomk@0.1+fp16", "allreduce"},
    {"ef+randomk@0.1", "shard"},
    {"randomk@0.1,coords=own", "gather"},
    {"ef+topk@0.1,scope=model", "server"},
    {"adacomp", "gather"},
    {"adacomp@20", "shard"},
    {"terngrad", "server"},
    {"qsgd@16", "shard"},
    {"ef+fp4+rans", "gather"},
    {"ef@decay=0.9+fp4@refit=2+huffman", "shard"},
    {"ef+topk@0.1+fp8@refit=2+gaps", "gather"},
    {"orq@9+huffman", "shard"},
    {"bingrad@b", "gather"},
    {"ef+sign", "shard"},
    {"sign@scale=one", "shard"},
    {"fp16+lossless", "gather"},
    {"ef+threshold@0.5+qsgd@4", "gather"},
    {"momentum+topk@0.05", "gather"},
    {"ef+topk@0.05,coords=shared", "allreduce"},
    {"ef+threshold@0.5,coords=shared+fp16", "allreduce"},
    {"momentum@0.9,clip=2+topk@0.05,coords=shared+bf16", "allreduce"},
    {"ef+adabins@20,coords=shared", "allreduce"},
    {"ef+hadamard@32+mxfp4", "shard"},
    {"ef+nvfp4@round=random", "gather"},
    {"ef@again=fp16+adabins@20+sign@scale=meanmax", "shard"},
    {"ef@again=fp32+topk@0.05", "shard"},
    {"ef@again=bf16+topk@0.1,scope=model+rans", "server"},
    {"momentum@again=fp16+topk@0.05", "shard"},
    {"ef@again=fp32+fp4+huffman", "shard"},
    {"ef@again=fp16+randomk@0.1,coords=own", "shard"},
};
enum { RUN_N = sizeof runs / sizeof *runs, LARGE_N = 7 /* also in larger worlds */, TENSOR_N = 6 };

static const uint64_t lens[TENSOR_N] = {700, 5, 0, 330, 1, 64};
static const uint32_t groups[TENSOR_N] = {2, 2, 1, 1, 0, 1};

static test_setup setup_of(size_t run, tg_dtype dtype)
{
    return (test_setup){.recipe = runs[run].recipe,
                        .exchange = runs[run].exchange,
                        .lens = lens,
                        .tensor_n = TENSOR_N,
                        .dtype = dtype,
                        .verify_every = 2};
}

static void must_be_same(const mixed_flight *f, const test_world *twin, size_t run, const char *when)
{
    if (!test_world_same(&f->flight.world, twin) || !test_world_identical(&f->flight.world)) {
        fail_msg("%s by %s, %u ranks: %s", runs[run].recipe, tg_exchange_name(twin->ranks[0]), twin->n, when);
    }
}

static void compare(size_t run, uint32_t n, mixed_kind kind, tg_dtype dtype)
{
    test_setup setup = setup_of(run, dtype);
    test_world twin = test_world_new(n, &setup);
    mixed_flight f;
    assert_true(test_world_exists(&twin));
    mixed_take_off(&f, n, &setup, groups, kind, run * 100 + n);
    for (uint64_t step = 0; step < 2; step++) {
        mixed_fly(&f, step, step + 1);
        test_world_step(&twin, step);
        must_be_same(&f, &twin, run, "a step");
    }
    mixed_land(&f);
    test_world_free(&twin);
}

static void devices_change_no_bits(void **state)
{
    static const uint32_t worlds[] = {1, 2, 3, 5, 11};
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        for (size_t i = 0; i < (run == 0 || run == LARGE_N - 2 ? 5 : run < LARGE_N ? 4 : 3); i++) {
            compare(run, worlds[i], i % 2 == 0 ? MIXED_EVEN : MIXED_ODD, TG_FP32);
        }
        compare(run, 2, MIXED_ALL, run % 2 == 0 ? TG_FP16 : TG_BF16);
    }
}

/* Slices of several thousand elements: of coordinates that are known without a frame; and of lists that are answered with all values. */
static void long_slices(void **state)
{
    static const uint64_t long_lens[] = {20000, 100, 9000};
    static const test_run some[] = {{"ef+randomk@0.05", "allreduce"},
                                    {"ef+randomblock@0.1+fp16", "allreduce"},
                                    {"ef+topk@0.01,coords=shared", "allreduce"},
                                    {"ef@again=fp32+adabins@50+sign@scale=meanmax", "shard"},
                                    {"ef@again=fp16+topk@0.01", "shard"}};
    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        test_setup setup = {.recipe = some[i].recipe, .exchange = some[i].exchange, .lens = long_lens, .tensor_n = 3};
        test_world twin = test_world_new(2, &setup);
        mixed_flight f;
        mixed_take_off(&f, 2, &setup, NULL, MIXED_ALL, i);
        mixed_fly(&f, 0, 2);
        test_world_step(&twin, 0);
        test_world_step(&twin, 1);
        assert_true(test_world_same(&f.flight.world, &twin));
        mixed_land(&f);
        test_world_free(&twin);
    }
}

/* The same large values on all ranks, in some tensors: their sum overflows, their average does not. */
static void fill_large(test_world *w, uint64_t step)
{
    test_world_fill(w, step);
    for (uint32_t r = 0; r < w->n; r++) {
        float *first = w->models[r].grads[0], *other = w->models[r].grads[3];
        for (size_t i = 0; i < 40; i++) {
            first[7 * i] = i % 2 == 0 ? 3e38f : -3e38f;
            other[i] = 3.1e38f;
        }
    }
}

static void sums_that_overflow(void **state)
{
    static const test_run some[] = {
        {"dense", "gather"}, {"topk@0.1", "gather"}, {"bf16", "gather"}, {"dense", "shard"}};
    (void)state;
    for (size_t run = 0; run < sizeof some / sizeof *some; run++) {
        test_setup setup = setup_of(0, TG_FP32);
        setup.recipe = some[run].recipe;
        setup.exchange = some[run].exchange;
        test_world twin = test_world_new(3, &setup);
        mixed_flight f;
        tg_detail why = {""};
        mixed_take_off(&f, 3, &setup, groups, MIXED_EVEN, run);
        for (uint64_t step = 0; step < 2; step++) {
            fill_large(&f.flight.world, step);
            test_fly(&f.flight, step);
            fill_large(&twin, step);
            assert_int_equal(test_world_reduce(&twin, step, NULL, &why), TG_OK);
            assert_true(test_world_same(&f.flight.world, &twin) && test_world_identical(&f.flight.world));
            assert_true(((const float *)f.flight.world.models[0].grads[3])[0] > 3e38f);
        }
        mixed_land(&f);
        test_world_free(&twin);
    }
}

static void a_nan_changes_nothing(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        test_setup setup = setup_of(run, TG_FP32);
        test_world twin = test_world_new(3, &setup);
        mixed_flight f;
        mixed_take_off(&f, 3, &setup, groups, MIXED_ODD, run);
        test_fail_and_go_on(&f.flight, &twin, (uint32_t)(run % 3)); /* with a device, and without */
        mixed_land(&f);
        test_world_free(&twin);
    }
}

static void damage_changes_nothing(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        for (uint64_t at = 6 + run % 8; at < 30; at += 8) { /* the first messages are opening votes */
            test_setup setup = setup_of(run, TG_FP32);
            test_world twin = test_world_new(3, &setup);
            mixed_flight f;
            mixed_take_off(&f, 3, &setup, groups, MIXED_EVEN, run * 10 + at);
            test_fail_by_damage(&f.flight, &twin, at);
            mixed_land(&f);
            test_world_free(&twin);
        }
    }
}

/* Gradients in host memory on a rank with a device: the step fails on all ranks, and the next one succeeds. */
static void host_memory_is_refused(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        test_setup setup = setup_of(run, TG_FP32);
        test_world twin = test_world_new(3, &setup);
        mixed_flight f;
        mixed_take_off(&f, 3, &setup, groups, MIXED_ODD, run);
        void *kept = f.mixed.grads[1][3];
        test_world_fill(&f.flight.world, 0);
        f.flight.around.before(f.flight.around.context, &f.flight.world);
        f.mixed.grads[1][3] = f.flight.world.models[1].grads[3];
        test_around around = f.flight.around;
        f.flight.around = (test_around){0};
        test_fly(&f.flight, 0);
        f.flight.around = around;
        f.mixed.grads[1][3] = kept;
        for (uint32_t r = 0; r < 3; r++) {
            const tg_outcome *o = &f.flight.world.outcomes[r];
            assert_int_equal(o->status, r == 1 ? TG_E_ARGUMENT : TG_E_PEER);
            assert_non_null(strstr(o->why.text, "the elements of tensor 't3' are not in the memory of GPU 0"));
        }
        mixed_fly(&f, 0, 1);
        test_world_step(&twin, 0);
        must_be_same(&f, &twin, run, "after host memory was refused");
        mixed_land(&f);
        test_world_free(&twin);
    }
}

static void what_devices_lack_is_refused(void **state)
{
    static const uint64_t dims[] = {40, 30};
    static const tg_tensor tensor = {"w", dims, 2, TG_DENSE, TG_FP32};
    tg_device *device = NULL;
    tg_exchange *x = NULL;
    (void)state;
    MUST(tg_cuda_open(&device, 0, NULL, why));
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.device = device;
    MUST_FAIL(TG_E_RECIPE, "'zstd', which tensor 'w' uses, has no kernel for the GPU",
              tg_exchange_new(&x, "ef+fp16+zstd", &tensor, 1, 0, 2, &opt, why));
    MUST(tg_exchange_new(&x, "dense", &tensor, 1, 0, 1, &opt, why));
    tg_exchange_free(x);
    tg_cuda_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_that_overflow),
        cmocka_unit_test(devices_change_no_bits),
        cmocka_unit_test(long_slices),
        cmocka_unit_test(a_nan_changes_nothing),
        cmocka_unit_test(damage_changes_nothing),
        cmocka_unit_test(host_memory_is_refused),
        cmocka_unit_test(what_devices_lack_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
