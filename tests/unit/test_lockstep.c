/* Ranks in lockstep: a step in two parts, and ranks that leave the averages to another one. */
#include "world.h"

#include <string.h>

static const test_setup setups[] = {
    {.recipe = "dense"},
    {.recipe = "ef+topk@0.05", .exchange = "gather"},
    {.recipe = "ef+topk@0.05", .exchange = "shard"},
    {.recipe = "ef+fp4+rans", .exchange = "gather"},
    {.recipe = "ef+sign", .exchange = "server"},
    {.recipe = "ef+topk@0.05,coords=shared", .exchange = "allreduce"},
    {.recipe = "powersgd@2"},
    {.recipe = "adacomp", .exchange = "gather", .verify_every = 2},
};
enum { SETUP_N = sizeof setups / sizeof *setups, TENSOR_N = 4 };

static const uint64_t lens[TENSOR_N] = {700, 5, 330, 64};

static test_world new_world(size_t i, uint32_t n)
{
    test_setup setup = setups[i];
    setup.lens = lens;
    setup.tensor_n = TENSOR_N;
    test_world w = test_world_new(n, &setup);
    assert_true(test_world_exists(&w));
    return w;
}

/* Only rank `taker` takes the averages, and gives them to the others. */
static void step_apart(test_world *w, uint64_t step, uint32_t taker)
{
    test_world_fill(w, step);
    for (uint32_t r = w->n; r-- > 0;) {
        MUST(tg_lockstep_begin(w->ranks[r], step, w->grads[r], r == taker, why));
    }
    MUST(tg_lockstep_end(w->outcomes, w->ranks, w->n, NULL, why));
    for (uint32_t r = 0; r < w->n; r++) {
        assert_int_equal(w->outcomes[r].status, TG_OK);
        test_model_copy(&w->models[r], &w->models[taker]);
    }
}

static void ranks_that_are_spared_change_no_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < SETUP_N; i++) {
        for (uint32_t n = 1; n <= 5; n += 2) {
            test_world w = new_world(i, n), twin = new_world(i, n);
            for (uint64_t step = 0; step < 4; step++) {
                step_apart(&w, step, (uint32_t)step % n);
                test_world_step(&twin, step);
                if (!test_world_same(&w, &twin)) {
                    fail_msg("%s, %u ranks, step %u", setups[i].recipe, n, (unsigned)step);
                }
            }
            for (uint32_t r = 0; r < n; r++) { /* the bytes are the same, too */
                tg_meter a, b;
                tg_exchange_meter(w.ranks[r], NULL, &a);
                tg_exchange_meter(twin.ranks[r], NULL, &b);
                assert_true(a.payload == b.payload && a.header == b.header && a.received == b.received);
            }
            test_world_free(&w);
            test_world_free(&twin);
        }
    }
}

/* Damages the first frame, which only a rank that takes the averages reads. */
typedef struct damage {
    uint32_t to;
    bool is_done;
} damage;

static tg_status change(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    damage *d = context;
    (void)kind;
    (void)from;
    if (!d->is_done && to == d->to && len > 4 && memcmp(data, "TGFR", 4) == 0) {
        ((uint8_t *)data)[len / 2] ^= 1;
        d->is_done = true;
    }
    return TG_OK;
}

static void damage_that_one_rank_finds_fails_all(void **state)
{
    (void)state;
    test_world w = new_world(1, 3), twin = new_world(1, 3);
    step_apart(&w, 0, 1);
    test_world_step(&twin, 0);
    damage d = {.to = 1};
    const tg_tap tap = {change, &d};
    test_world_fill(&w, 1);
    for (uint32_t r = 0; r < 3; r++) {
        MUST(tg_lockstep_begin(w.ranks[r], 1, w.grads[r], r == 1, why));
    }
    MUST_FAIL(TG_E_PEER, "rank 1: from rank 0: the frame is damaged",
              tg_lockstep_end(w.outcomes, w.ranks, 3, &tap, why));
    assert_true(d.is_done);
    assert_int_equal(w.outcomes[1].status, TG_E_FRAME);
    step_apart(&w, 1, 0);
    test_world_step(&twin, 1);
    assert_true(test_world_same(&w, &twin));
    test_world_free(&w);
    test_world_free(&twin);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    test_world w = new_world(1, 2);
    test_world_fill(&w, 0);
    MUST(tg_lockstep_begin(w.ranks[0], 0, w.grads[0], 1, why));
    MUST_FAIL(TG_E_ARGUMENT, "has not ended", tg_lockstep_begin(w.ranks[0], 0, w.grads[0], 1, why));
    MUST_FAIL(TG_E_LINK, "some ranks have ended the step", tg_lockstep_end(w.outcomes, w.ranks, 2, NULL, why));
    assert_int_equal(w.outcomes[0].status, TG_E_LINK);
    tg_exchange *swapped[2] = {w.ranks[1], w.ranks[0]};
    MUST_FAIL(TG_E_ARGUMENT, "belongs to rank 1 of 2", tg_lockstep_end(w.outcomes, swapped, 2, NULL, why));
    test_world_step(&w, 0);
    test_world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_are_spared_change_no_bits),
        cmocka_unit_test(damage_that_one_rank_finds_fails_all),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
