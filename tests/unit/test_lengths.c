/* Lengths that go ahead of messages: one announcement for all groups that are ready, at most one a group and round where they get
 * ready one by one; the same bits; and damage to any message of an announcement fails the step. */
#include "flight.h"

#include "exchange/exchange.h"
#include "link/reducer.h"

#include <stdio.h>
#include <string.h>

enum { GROUPS = 12, STEPS = 3 };

static const uint64_t lens[GROUPS] = {300, 1, 0, 64, 500, 77, 5, 210, 33, 1000, 8, 129};
static const uint32_t group_of[GROUPS] = {11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};

static const struct {
    const char *recipe, *exchange;
    uint32_t rounds; /* whose lengths are announced */
} runs[] = {{"adacomp", "gather", 1}, {"adacomp", "shard", 2}, {"ef+fp4+rans", "server", 2}, {"fp16", "gather", 0}};
enum { RUN_N = sizeof runs / sizeof *runs };

static test_setup setup_of(size_t run)
{
    return (test_setup){.recipe = runs[run].recipe, .exchange = runs[run].exchange, .lens = lens, .tensor_n = GROUPS};
}

/* ---- how many ---------------------------------------------------------------------------------------------------------------- */

static void check_in_turn(size_t run, uint32_t n)
{
    test_setup setup = setup_of(run);
    test_world grouped = test_world_new_grouped(n, &setup, group_of), one = test_world_new(n, &setup);
    for (uint64_t step = 0; step < STEPS; step++) {
        test_world_step(&grouped, step);
        test_world_step(&one, step);
        assert_true(test_world_same(&grouped, &one));
        for (uint32_t r = 0; r < n; r++) {
            assert_int_equal(grouped.ranks[r]->lengths.started, runs[run].rounds);
        }
    }
    test_world_free(&one);
    test_world_free(&grouped);
}

static void all_groups_in_turn_are_announced_at_once(void **state)
{
    static const uint32_t worlds[] = {1, 2, 3, 8, 11};
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
            check_in_turn(run, worlds[i]);
        }
    }
}

static void many_ranks_announce_in_hops(void **state)
{
    static const uint64_t few[] = {20, 3, 40};
    static const uint32_t groups[] = {2, 1, 0};
    enum { N = TEST_MANY, LOG = TEST_MANY_LOG, TENSOR_N = 3 };
    (void)state;
    test_setup setup = {.recipe = "adacomp", .exchange = "server", .lens = few, .tensor_n = TENSOR_N};
    test_world grouped = test_world_new_grouped(N, &setup, groups), one = test_world_new(N, &setup);
    test_world_step(&grouped, 0);
    test_world_step(&one, 0);
    assert_true(test_world_same(&grouped, &one));
    assert_int_equal(tg_lengths_hops(N), LOG);
    for (uint32_t r = 0; r < N; r++) {
        assert_int_equal(grouped.ranks[r]->lengths.started, 2);
    }
    test_world_free(&one);
    test_world_free(&grouped);
}

/* Reports one group after the other, on all ranks, and lets each come as far as it can. */
static void fly_one_by_one(test_flight *f, uint64_t step)
{
    enum { CALLS = 300 }; /* that surely suffice: the link makes progress in two of three */
    for (uint32_t r = 0; r < f->world.n; r++) {
        MUST(tg_reducer_begin(f->reducers[r], step, f->world.models[r].grads, why));
    }
    for (size_t t = GROUPS; t-- > 0;) {
        for (uint32_t call = 0; call < CALLS * f->world.n; call++) {
            uint32_t r = call % f->world.n;
            if (call < f->world.n) {
                MUST(tg_reducer_ready(f->reducers[r], t, why));
            }
            assert_true(tg_reducer_test(f->reducers[r], NULL) >= TG_OK);
        }
    }
    for (uint32_t r = 0; r < f->world.n; r++) {
        f->world.outcomes[r].status = tg_reducer_wait(f->reducers[r], &f->world.outcomes[r].why);
    }
}

static void check_in_flight(size_t run, uint32_t n)
{
    test_setup setup = setup_of(run);
    test_flight f = test_take_off(&setup, n, group_of, run + n);
    test_world twin = test_world_new(n, &setup);
    for (uint64_t step = 0; step < STEPS; step++) {
        bool one_by_one = step == 1;
        test_world_fill(&f.world, step);
        if (one_by_one) {
            fly_one_by_one(&f, step);
        } else {
            test_fly(&f, step); /* in any order on any rank */
        }
        test_must_succeed(&f);
        test_world_step(&twin, step);
        assert_true(test_world_same(&f.world, &twin));
        uint64_t announced = f.world.ranks[0]->lengths.started;
        assert_in_range(announced, runs[run].rounds, (one_by_one ? 1 : n) * GROUPS * runs[run].rounds);
        for (uint32_t r = 0; r < n; r++) {
            const tg_lengths *l = &f.world.ranks[r]->lengths;
            assert_true(l->started == announced && l->heard == announced);
        }
    }
    test_world_free(&twin);
    test_land(&f);
}

static void groups_in_flight_are_announced_once_a_round(void **state)
{
    static const uint32_t worlds[] = {1, 2, 3, 8, 11};
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
            check_in_flight(run, worlds[i]);
        }
    }
}

/* ---- damage ------------------------------------------------------------------------------------------------------------------ */

typedef struct damage {
    uint64_t at, seen;
    uint32_t from, to;
} damage;

static void meddle(void *context, uint32_t channel, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    damage *d = context;
    bool announces = channel >= TG_LENGTHS_CHANNEL && channel < TG_GROUP_CHANNEL;
    if (announces && d->seen++ == d->at) {
        d->from = from;
        d->to = to;
        ((uint8_t *)data)[d->at * 7 % len] ^= (uint8_t)(1u << d->at % 8);
    }
}

/* Damages message number `at` of all announcements. False: there are fewer. */
static bool damage_one(size_t run, uint32_t n, uint64_t at)
{
    test_setup setup = setup_of(run);
    test_flight f = test_take_off(&setup, n, group_of, run);
    test_world twin = test_world_new(n, &setup);
    damage d = {.at = at};
    char sentence[64];
    test_loose_meddle(f.link, (test_meddler){meddle, &d});
    test_world_fill(&f.world, 0);
    test_world_fill(&twin, 0);
    test_fly(&f, 0);
    bool happened = d.seen > at;
    (void)snprintf(sentence, sizeof sentence, "what came from rank %u at step 0 is damaged", d.from);
    for (uint32_t r = 0; happened && r < n; r++) {
        assert_int_equal(f.world.outcomes[r].status, TG_E_LINK);
        assert_non_null(strstr(f.world.outcomes[r].why.text, sentence));
    }
    assert_true(!happened || test_world_same(&f.world, &twin));
    test_world_free(&twin);
    test_land(&f);
    return happened;
}

static void any_message_of_an_announcement_may_be_damaged(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        uint64_t n3 = 0, n11 = 0;
        while (damage_one(run, 3, n3)) {
            n3++;
        }
        while (damage_one(run, 11, n11)) {
            n11 += 5;
        }
        assert_int_equal(n3 > 0 && n11 > 0, runs[run].rounds > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_groups_in_turn_are_announced_at_once),
        cmocka_unit_test(many_ranks_announce_in_hops),
        cmocka_unit_test(groups_in_flight_are_announced_once_a_round),
        cmocka_unit_test(any_message_of_an_announcement_may_be_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
