/* Hosts: a failure on any rank, of any message, is named on all ranks and changes nothing on any. */
#include "hosts.h"

#include <stdio.h>
#include <string.h>

/* A NaN on a leader or another rank: all ranks name it, nothing changes, and the next step gives the bits that it would have given. */
static void a_rank_that_fails_is_named_everywhere(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_HOSTS_RUN_N; run++) {
        for (uint32_t bad = 0; bad < 6; bad++) {
            test_setup setup = test_hosts_setup(run);
            test_flight f = test_take_off_hosted(&setup, 6, test_run_groups, 2, run * 6 + bad);
            test_world twin = test_world_new_hosted(6, &setup, NULL, 2);
            test_fail_and_go_on(&f, &twin, bad);
            test_world_free(&twin);
            test_land(&f);
        }
    }
}

static void any_message_may_be_damaged(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_HOSTS_RUN_N; run++) {
        for (uint64_t at = 0; at < 80; at += 5) {
            test_setup setup = test_hosts_setup(run);
            test_flight f = test_take_off_hosted(&setup, 4, test_run_groups, 2, run * 100 + at);
            test_world twin = test_world_new_hosted(4, &setup, NULL, 2);
            test_fail_by_damage(&f, &twin, at);
            test_world_free(&twin);
            test_land(&f);
        }
    }
}

/* Damages the first message from a rank to another. */
typedef struct hit {
    uint32_t from, to;
    uint64_t len_min;
    bool done;
} hit;

static tg_status strike(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    hit *h = context;
    (void)kind;
    if (from == h->from && to == h->to && len > h->len_min && !h->done) {
        h->done = true;
        ((uint8_t *)data)[len / 2] ^= 1;
    }
    return TG_OK;
}

/* Sentences name ranks of the job: inside a host, and between leaders. */
static void a_damaged_frame_names_its_sender(void **state)
{
    static const hit hits[] = {{3, 2, 1000, false}, {2, 0, 1000, false}, {0, 4, 1000, false}, {4, 5, 1000, false}};
    (void)state;
    for (size_t i = 0; i < sizeof hits / sizeof *hits; i++) {
        test_setup setup = test_hosts_setup(0);
        test_world w = test_world_new_hosted(6, &setup, NULL, 2);
        test_world_fill(&w, 0);
        hit h = hits[i];
        tg_tap tap = {strike, &h};
        tg_detail why;
        char expected[32];
        (void)snprintf(expected, sizeof expected, "from rank %u: ", h.from);
        assert_true(test_world_reduce(&w, 0, &tap, &why) < 0);
        assert_true(h.done);
        for (uint32_t r = 0; r < 6; r++) {
            assert_int_equal(w.outcomes[r].status, r == h.to ? TG_E_FRAME : TG_E_PEER);
            assert_non_null(strstr(w.outcomes[r].why.text, expected));
        }
        test_world_free(&w);
    }
}

static void a_rank_that_dies_ends_the_step(void **state)
{
    (void)state;
    for (uint32_t dead = 0; dead < 4; dead++) {
        test_setup setup = test_hosts_setup(3);
        test_flight f = test_take_off_hosted(&setup, 4, test_run_groups, 2, dead);
        test_world twin = test_world_new_hosted(4, &setup, NULL, 2);
        test_world_fill(&f.world, 0);
        test_world_fill(&twin, 0);
        f.dead = dead;
        test_loose_kill(f.link, dead);
        test_fly(&f, 0);
        for (uint32_t r = 0; r < 4; r++) {
            assert_true(r == dead || f.world.outcomes[r].status == TG_E_LINK);
        }
        assert_true(test_world_same(&f.world, &twin));
        test_land(&f);
        test_world_free(&twin);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_fails_is_named_everywhere),
        cmocka_unit_test(any_message_may_be_damaged),
        cmocka_unit_test(a_damaged_frame_names_its_sender),
        cmocka_unit_test(a_rank_that_dies_ends_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
