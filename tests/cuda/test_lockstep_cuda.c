/* Ranks with and without a device in lockstep: the averages and residuals of ranks on the CPU, to the bit. */
#include "mixed.h"

#include <string.h>

static const test_run runs[] = {
    {"dense", NULL},
    {"ef+fp16", "shard"},
    {"ef+topk@0.05", "gather"},
    {"ef+topk@0.05", "shard"},
    {"adacomp", "gather"},
    {"terngrad", "server"},
    {"ef+fp4+rans", "gather"},
    {"ef+randomblock@0.1", NULL},
    {"ef+sign", "shard"},
    {"ef@again=fp16+topk@0.05", "shard"},
};
enum { RUN_N = sizeof runs / sizeof *runs, TENSOR_N = 4 };

static const uint64_t lens[TENSOR_N] = {700, 5, 330, 64};

static test_setup setup_of(size_t run)
{
    return (test_setup){.recipe = runs[run].recipe,
                        .exchange = runs[run].exchange,
                        .lens = lens,
                        .tensor_n = TENSOR_N,
                        .verify_every = 3};
}

/* One rank takes the averages, unless the step is verified. */
static void step_apart(mixed *m, uint64_t step, uint32_t taker)
{
    test_world *w = &m->world;
    test_world_fill(w, step);
    for (uint32_t r = 0; r < w->n; r++) {
        mixed_put(m, r);
        MUST(tg_lockstep_begin(w->ranks[r], step, w->grads[r], r == taker, why));
    }
    MUST(tg_lockstep_end(w->outcomes, w->ranks, w->n, NULL, why));
    mixed_get(m, taker);
    for (uint32_t r = 0; r < w->n; r++) {
        test_model_copy(&w->models[r], &w->models[taker]);
    }
}

static void devices_change_no_bits(void **state)
{
    static const mixed_kind kinds[] = {MIXED_ALL, MIXED_EVEN, MIXED_ODD};
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        for (size_t k = 0; k < 3; k++) {
            test_setup setup = setup_of(run);
            mixed m = mixed_new(3, &setup, NULL, kinds[k]);
            test_world twin = test_world_new(3, &setup);
            for (uint64_t step = 0; step < 4; step++) {
                step_apart(&m, step, (uint32_t)step % 3);
                test_world_step(&twin, step);
                if (!test_world_same(&m.world, &twin)) {
                    fail_msg("%s, devices %d, step %u", runs[run].recipe, (int)kinds[k], (unsigned)step);
                }
            }
            test_world_free(&twin);
            mixed_free(&m);
        }
    }
}

static tg_status ignore(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    (void)context;
    (void)kind;
    (void)from;
    (void)to;
    (void)data;
    (void)len;
    return TG_OK;
}

static void a_nan_fails_the_step_and_a_tap_is_refused(void **state)
{
    (void)state;
    test_setup setup = setup_of(2);
    mixed m = mixed_new(3, &setup, NULL, MIXED_ALL);
    test_world twin = test_world_new(3, &setup), *w = &m.world;
    const tg_tap tap = {ignore, NULL};
    MUST_FAIL(TG_E_ARGUMENT, "a tap sees messages in host memory, and rank 0 has a device",
              tg_lockstep_reduce(NULL, w->ranks, 3, 0, w->grads, &tap, why));
    test_world_fill(w, 0);
    test_model_set(&w->models[1], 2, 17, __builtin_nanf(""));
    for (uint32_t r = 0; r < 3; r++) {
        mixed_put(&m, r);
        MUST(tg_lockstep_begin(w->ranks[r], 0, w->grads[r], r == 0, why));
    }
    MUST_FAIL(TG_E_PEER, "rank 1: the gradient of tensor 't2' holds NaN or Inf",
              tg_lockstep_end(w->outcomes, w->ranks, 3, NULL, why));
    step_apart(&m, 0, 0);
    test_world_step(&twin, 0);
    assert_true(test_world_same(w, &twin));
    test_world_free(&twin);
    mixed_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_change_no_bits),
        cmocka_unit_test(a_nan_fails_the_step_and_a_tap_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
