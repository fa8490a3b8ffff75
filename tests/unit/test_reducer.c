/* Steps in flight: groups in any order on any rank, over a link that performs operations in any order, give the bits of one group
 * after the other; a failure changes nothing on any rank. */
#include "flight.h"

#include "exchange/exchange.h"

#include <stdlib.h>

static const uint32_t groups_of_all[TEST_RUN_TENSOR_N] = {6, 5, 4, 3, 2, 1, 0};

static test_setup setup_of(size_t run)
{
    return (test_setup){.recipe = test_runs[run].recipe,
                        .exchange = test_runs[run].exchange,
                        .lens = test_run_lens,
                        .tensor_n = TEST_RUN_TENSOR_N};
}

/* ---- the same bits ---------------------------------------------------------------------------------------------------------- */

static void compare(size_t run, uint32_t n, const uint32_t *group_of, uint32_t threads)
{
    test_setup setup = setup_of(run);
    setup.verify_every = 2;
    setup.threads = threads;
    test_world twin = test_world_new(n, &setup);
    test_flight f = test_take_off(&setup, n, group_of, run * 100 + n);
    for (uint64_t step = 0; step < 4; step++) {
        test_world_fill(&f.world, step);
        test_fly(&f, step);
        test_must_succeed(&f);
        test_world_step(&twin, step);
        if (!test_world_same(&f.world, &twin)) {
            fail_msg("%s, %u ranks, step %d", test_runs[run].recipe, n, (int)step);
        }
    }
    test_land(&f);
    test_world_free(&twin);
}

static void groups_change_no_bits(void **state)
{
    static const uint32_t worlds[] = {1, 2, 3, 8, 11};
    (void)state;
    for (size_t run = 0; run < TEST_RUN_N; run++) {
        for (size_t i = run % TEST_EVERY; i < sizeof worlds / sizeof *worlds; i += TEST_EVERY) {
            compare(run, worlds[i], test_run_groups, 1);
        }
        compare(run, 3, groups_of_all, 1);
        compare(run, 3, NULL, 1);
        compare(run, 3, test_run_groups, 3);
    }
}

static void recipes_that_span_the_model_are_one_group(void **state)
{
    static const char *const recipes[] = {"ef+topk@0.1,scope=model", "lgc-ring@0.1", "lgc-server@0.1"};
    (void)state;
    for (size_t k = 0; k < sizeof recipes / sizeof *recipes; k++) {
        test_setup setup = {.recipe = recipes[k], .lens = test_run_lens, .tensor_n = TEST_RUN_TENSOR_N};
        test_flight f = test_take_off(&setup, 3, test_run_groups, k);
        assert_int_equal(tg_exchange_groups(f.world.ranks[0]), 1);
        test_world_fill(&f.world, 0);
        test_fly(&f, 0);
        test_must_succeed(&f);
        test_land(&f);
    }
}

static void a_saved_step_goes_on_in_other_groups(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_RUN_N; run++) {
        test_setup setup = setup_of(run);
        test_flight f = test_take_off(&setup, 3, test_run_groups, run),
                    after = test_take_off(&setup, 3, groups_of_all, run);
        test_world_fill(&f.world, 0);
        test_fly(&f, 0);
        test_must_succeed(&f);
        for (uint32_t r = 0; r < 3; r++) {
            size_t len = tg_state_len(f.world.ranks[r]);
            void *saved = test_room(len);
            MUST(tg_state_save(f.world.ranks[r], saved, len, why));
            MUST(tg_state_load(after.world.ranks[r], &(tg_span){saved, len}, 1, why));
            free(saved);
        }
        test_world_fill(&f.world, 1);
        test_world_fill(&after.world, 1);
        test_fly(&f, 1);
        test_fly(&after, 1);
        test_must_succeed(&after);
        assert_true(test_world_same(&f.world, &after.world));
        test_land(&after);
        test_land(&f);
    }
}

/* ---- failures ---------------------------------------------------------------------------------------------------------------- */

/* A NaN on one rank: all ranks name it, nothing changes, and the next step gives the bits that it would have given. */
static void a_rank_that_fails_is_named_everywhere(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_RUN_N; run++) {
        for (uint32_t bad = 0; bad < 3; bad++) {
            test_setup setup = setup_of(run);
            test_flight f = test_take_off(&setup, 3, test_run_groups, run * 3 + bad);
            test_world twin = test_world_new(3, &setup);
            test_fail_and_go_on(&f, &twin, bad);
            test_world_free(&twin);
            test_land(&f);
        }
    }
}

static void any_message_may_be_damaged(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_RUN_N; run++) {
        for (uint64_t at = 3 * (run % TEST_EVERY); at < 40; at += 3 * TEST_EVERY) {
            test_setup setup = setup_of(run);
            test_flight f = test_take_off(&setup, 3, test_run_groups, run * 100 + at);
            test_world twin = test_world_new(3, &setup);
            test_fail_by_damage(&f, &twin, at);
            test_world_free(&twin);
            test_land(&f);
        }
    }
}

/* A rank dies with groups in flight: the others end with a failure of the link, and nothing changes. */
static void a_rank_that_dies_ends_the_step(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_RUN_N; run += 3) {
        test_setup setup = setup_of(run);
        test_flight f = test_take_off(&setup, 3, test_run_groups, run);
        test_world twin = test_world_new(3, &setup);
        test_world_fill(&f.world, 0);
        test_world_fill(&twin, 0);
        f.dead = (uint32_t)(run % 3);
        test_loose_kill(f.link, f.dead);
        test_fly(&f, 0);
        for (uint32_t r = 0; r < 3; r++) {
            assert_true(r == f.dead || f.world.outcomes[r].status == TG_E_LINK);
        }
        assert_true(test_world_same(&f.world, &twin));
        test_land(&f);
        test_world_free(&twin);
    }
}

/* The same after a step that went well, with all three groups of the next one under way on the rank that dies. */
static void a_rank_that_dies_with_three_groups_in_flight_ends_the_step(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_RUN_N; run++) {
        test_setup setup = setup_of(run);
        test_flight f = test_take_off(&setup, 3, test_run_groups, run);
        test_world twin = test_world_new(3, &setup);
        uint32_t dead = (uint32_t)(run % 3);
        test_world_fill(&f.world, 0);
        test_fly(&f, 0);
        test_must_succeed(&f);
        test_world_step(&twin, 0);
        test_world_fill(&f.world, 1);
        test_world_fill(&twin, 1);
        test_loose_kill_in_flight(f.link, dead, 3);
        test_fly(&f, 1);
        assert_true(test_loose_is_dead(f.link, dead));
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(f.world.outcomes[r].status, TG_E_LINK);
            assert_string_equal(f.world.outcomes[r].why.text, "a rank is lost");
        }
        assert_true(test_world_same(&f.world, &twin));
        test_land(&f);
        test_world_free(&twin);
    }
}

/* ---- large worlds ---------------------------------------------------------------------------------------------------------- */

static const uint64_t short_lens[] = {100, 30, 7, 1, 0, 20, 3};

/* Control messages of a rank: votes, and lengths by hops. */
static void control_messages_grow_by_the_logarithm(void **state)
{
    enum { N = TEST_MANY, LOG = TEST_MANY_LOG, GROUPS = 3 };
    (void)state;
    test_setup setup = {
        .recipe = "ef+topk@0.1", .exchange = "server", .lens = short_lens, .tensor_n = TEST_RUN_TENSOR_N};
    test_flight f = test_take_off(&setup, N, test_run_groups, 5);
    test_world_fill(&f.world, 0);
    test_fly(&f, 0);
    test_must_succeed(&f);
    uint64_t before = test_loose_messages(f.link, 1);
    test_world_fill(&f.world, 1);
    test_fly(&f, 1);
    test_must_succeed(&f);
    /* By the server: one message a group, announcements of lengths, at most as many as groups have rounds, and the closing vote. */
    uint64_t announcements = (test_loose_messages(f.link, 1) - before - GROUPS - LOG) / LOG;
    assert_int_equal(test_loose_messages(f.link, 1) - before, GROUPS + announcements * LOG + LOG);
    assert_in_range(announcements, 2, GROUPS * 2);
    assert_true(test_world_identical(&f.world));
    test_land(&f);
}

static void large_worlds_give_the_bits_of_lockstep(void **state)
{
    static const char *const recipes[] = {"fp16", "ef+topk@0.1"};
    static const uint32_t worlds[] = {9, 16, 33};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < 3; i++) {
            test_setup setup = {.recipe = recipes[k],
                                .exchange = "shard",
                                .lens = short_lens,
                                .tensor_n = TEST_RUN_TENSOR_N,
                                .verify_every = 1};
            test_flight f = test_take_off(&setup, worlds[i], test_run_groups, i);
            test_world twin = test_world_new(worlds[i], &setup);
            test_world_fill(&f.world, 0);
            test_fly(&f, 0);
            test_must_succeed(&f);
            test_world_step(&twin, 0);
            assert_true(test_world_same(&f.world, &twin));
            test_world_free(&twin);
            test_land(&f);
        }
    }
}

/* ---- arguments ---------------------------------------------------------------------------------------------------------------- */

static void groups_must_make_sense(void **state)
{
    static const uint32_t gap[TEST_RUN_TENSOR_N] = {0, 2, 0, 0, 0, 0, 0},
                          far[TEST_RUN_TENSOR_N] = {0, 59, 0, 0, 0, 0, 0};
    (void)state;
    test_model m = test_model_new(test_run_lens, TEST_RUN_TENSOR_N, TG_FP32);
    tg_options opt = TG_OPTIONS_INIT;
    tg_exchange *x = NULL;
    opt.group_of = gap;
    MUST_FAIL(TG_E_ARGUMENT, "group 1 has no tensors",
              tg_exchange_new(&x, "fp16", m.tensors, TEST_RUN_TENSOR_N, 0, 1, &opt, why));
    opt.group_of = far;
    MUST_FAIL(TG_E_ARGUMENT, "at most 58 groups",
              tg_exchange_new(&x, "fp16", m.tensors, TEST_RUN_TENSOR_N, 0, 1, &opt, why));
    opt.group_of = NULL;
    opt.group_len = 4000;
    MUST(tg_exchange_new(&x, "fp16", m.tensors, TEST_RUN_TENSOR_N, 0, 1, &opt, why));
    assert_int_equal(tg_exchange_group(x, TEST_RUN_TENSOR_N - 1), 0);
    for (size_t t = 1; t < TEST_RUN_TENSOR_N; t++) {
        assert_in_range(tg_exchange_group(x, t - 1), tg_exchange_group(x, t), tg_exchange_groups(x) - 1);
    }
    assert_in_range(tg_exchange_groups(x), 3, TEST_RUN_TENSOR_N);
    tg_exchange_free(x);
    test_model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_change_no_bits),
        cmocka_unit_test(recipes_that_span_the_model_are_one_group),
        cmocka_unit_test(a_saved_step_goes_on_in_other_groups),
        cmocka_unit_test(a_rank_that_fails_is_named_everywhere),
        cmocka_unit_test(any_message_may_be_damaged),
        cmocka_unit_test(a_rank_that_dies_ends_the_step),
        cmocka_unit_test(a_rank_that_dies_with_three_groups_in_flight_ends_the_step),
        cmocka_unit_test(control_messages_grow_by_the_logarithm),
        cmocka_unit_test(large_worlds_give_the_bits_of_lockstep),
        cmocka_unit_test(groups_must_make_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
