/* Hosts: a failure on any rank, of any message, is named on all ranks and changes nothing on any. */
#include "hosts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void must_name(const test_world *w, uint32_t bad)
{
    char name[16];
    (void)snprintf(name, sizeof name, "rank %u:", bad);
    for (uint32_t r = 0; r < w->n; r++) {
        const tg_outcome *o = &w->outcomes[r];
        assert_int_equal(o->status, r == bad ? TG_E_NONFINITE : TG_E_PEER);
        if (strstr(o->why.text, "'t3' holds NaN or Inf") == NULL || (r != bad && strstr(o->why.text, name) == NULL)) {
            fail_msg("rank %u says: %s", r, o->why.text);
        }
    }
}

/* A NaN on a leader or another rank: all ranks name it, nothing changes, and the next step gives the bits that it would have given. */
static void a_rank_that_fails_is_named_everywhere(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_HOSTS_RUN_N; run++) {
        for (uint32_t bad = 0; bad < 6; bad++) {
            test_setup setup = test_hosts_setup(run);
            test_flight f = test_take_off_hosted(&setup, 6, test_hosts_groups, 2, run * 6 + bad);
            test_world twin = test_world_new_hosted(6, &setup, NULL, 2);
            test_world_fill(&f.world, 0);
            test_fly(&f, 0);
            test_must_succeed(&f);
            test_world_step(&twin, 0);
            test_world_fill(&f.world, 1);
            test_world_fill(&twin, 1);
            float kept = test_model_get(&f.world.models[bad], 3, 39);
            test_model_set(&f.world.models[bad], 3, 39, NAN);
            test_fly(&f, 1);
            must_name(&f.world, bad);
            test_model_set(&f.world.models[bad], 3, 39, kept);
            assert_true(test_world_same(&f.world, &twin));
            test_fly(&f, 1);
            test_must_succeed(&f);
            MUST(test_world_reduce(&twin, 1, NULL, why));
            assert_true(test_world_same(&f.world, &twin));
            test_world_free(&twin);
            test_land(&f);
        }
    }
}

/* Damages one message. */
typedef struct damage {
    uint64_t at, seen, bit;
    bool in_closing; /* it was one of a vote */
} damage;

static void meddle(void *context, uint32_t channel, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    damage *d = context;
    (void)from;
    (void)to;
    if (d->seen++ == d->at) {
        d->in_closing = channel == 0;
        ((uint8_t *)data)[d->bit / 8 % len] ^= (uint8_t)(1u << d->bit % 8);
    }
}

static void any_message_may_be_damaged(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_HOSTS_RUN_N; run++) {
        for (uint64_t at = 0; at < 80; at += 5) {
            test_setup setup = test_hosts_setup(run);
            test_flight f = test_take_off_hosted(&setup, 4, test_hosts_groups, 2, run * 100 + at);
            test_world twin = test_world_new_hosted(4, &setup, NULL, 2);
            damage d = {.at = at, .bit = at * 77};
            test_loose_meddle(f.link, (test_meddler){meddle, &d});
            test_world_fill(&f.world, 0);
            test_world_fill(&twin, 0);
            test_fly(&f, 0);
            bool hit = d.seen > at;
            for (uint32_t r = 0; r < 4 && hit && !d.in_closing; r++) {
                assert_true(f.world.outcomes[r].status < 0);
                assert_true(f.world.outcomes[r].why.text[0] != '\0');
            }
            assert_true(!hit || d.in_closing || test_world_same(&f.world, &twin));
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
        test_flight f = test_take_off_hosted(&setup, 4, test_hosts_groups, 2, dead);
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
