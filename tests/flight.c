/* A world whose ranks are reducers. */
#include "flight.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 64 };

test_flight test_take_off(const test_setup *setup, uint32_t n, const uint32_t *group_of, uint64_t seed)
{
    return test_take_off_hosted(setup, n, group_of, 0, seed);
}

test_flight test_take_off_hosted(const test_setup *setup, uint32_t n, const uint32_t *group_of, uint32_t host_size,
                                 uint64_t seed)
{
    test_flight f = {.world = test_world_new_hosted(n, setup, group_of, host_size), .random = {seed}, .dead = n};
    f.reducers = calloc(n, sizeof(tg_reducer *));
    assert_non_null(f.reducers);
    f.link = test_loose_new(n, CHANNELS, ~seed); /* with the same numbers, one rank might never make progress */
    for (uint32_t r = 0; r < n && test_world_exists(&f.world); r++) {
        MUST(tg_reducer_new(&f.reducers[r], f.world.ranks[r], test_loose_link(f.link, r), why));
    }
    return f;
}

void test_land(test_flight *f)
{
    for (uint32_t r = 0; r < f->world.n; r++) {
        tg_reducer_free(f->reducers[r]);
    }
    free(f->reducers);
    test_loose_free(f->link);
    test_world_free(&f->world);
}

void test_fly(test_flight *f, uint64_t step)
{
    uint32_t n = f->world.n;
    size_t tensor_n = f->world.models[0].tensor_n;
    size_t *order = calloc(n * tensor_n, sizeof *order);
    size_t *next = calloc(n, sizeof *next);
    bool *ended = calloc(n, sizeof *ended);
    uint32_t left = f->dead < n ? n - 1 : n;
    assert_true(order != NULL && next != NULL && ended != NULL);
    if (f->around.before != NULL) {
        f->around.before(f->around.context, &f->world);
    }
    for (uint32_t r = 0; r < n; r++) {
        for (size_t t = 0; t < tensor_n; t++) {
            size_t at = (size_t)(test_bits(&f->random) % (t + 1));
            order[r * tensor_n + t] = order[r * tensor_n + at];
            order[r * tensor_n + at] = t;
        }
        MUST(tg_reducer_begin(f->reducers[r], step, f->world.grads[r], why));
    }
    while (left > 0) {
        uint32_t r = (uint32_t)(test_bits(&f->random) % n);
        if (r == f->dead || ended[r]) {
            continue;
        }
        if (next[r] < tensor_n) {
            size_t several = 1 + (size_t)(test_bits(&f->random) % (tensor_n - next[r]));
            MUST(tg_reducer_ready_all(f->reducers[r], order + r * tensor_n + next[r], several, why));
            next[r] += several;
        } else {
            tg_detail why;
            tg_status status = tg_reducer_test(f->reducers[r], &why);
            assert_true(status == TG_OK || status == TG_MORE);
            ended[r] = status == TG_OK;
            left -= ended[r] ? 1 : 0;
        }
    }
    for (uint32_t r = 0; r < n; r++) {
        if (r != f->dead) {
            f->world.outcomes[r].status = tg_reducer_wait(f->reducers[r], &f->world.outcomes[r].why);
        }
    }
    if (f->around.after != NULL) {
        f->around.after(f->around.context, &f->world);
    }
    free(ended);
    free(next);
    free(order);
}

void test_must_succeed(const test_flight *f)
{
    for (uint32_t r = 0; r < f->world.n; r++) {
        if (f->world.outcomes[r].status != TG_OK) {
            fail_msg("rank %u of %u, %s: %s", r, f->world.n, tg_exchange_recipe(f->world.ranks[0], 0),
                     f->world.outcomes[r].why.text);
        }
    }
}

/* ---- what tests of steps in flight share --------------------------------------------------------------------------------- */

const uint64_t test_run_lens[TEST_RUN_TENSOR_N] = {3000, 5, 0, 770, 1, 64, 2000};
const uint32_t test_run_groups[TEST_RUN_TENSOR_N] = {2, 2, 1, 1, 0, 1, 0};

const test_run test_runs[TEST_RUN_N] = {
    {"dense", NULL},
    {"fp16", "gather"},
    {"bf16", "shard"},
    {"terngrad", "server"},
    {"qsgd@16", "shard"},
    {"ef+topk@0.05+fp16", "gather"},
    {"ef+topk@0.05", "shard"},
    {"ef+topk@0.05,coords=shared", "allreduce"},
    {"ef+randomblock@0.1", "allreduce"},
    {"ef+randomk@0.1+fp16", "allreduce"},
    {"randomk@0.1,coords=own", "gather"},
    {"adacomp", "gather"},
    {"adacomp@20", "shard"},
    {"ef+fp4+rans", "gather"},
    {"orq@9+huffman", "shard"},
    {"bingrad@b", "gather"},
    {"ef+sign", "shard"},
    {"dgc@0.05", "gather"},
    {"powersgd@2", NULL},
    {"ef@again=fp16+adabins@20+sign@scale=meanmax", "shard"},
    {"ef@again=fp32+topk@0.05", "shard"},
};

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

void test_fail_and_go_on(test_flight *f, test_world *twin, uint32_t bad)
{
    test_world_fill(&f->world, 0);
    test_fly(f, 0);
    test_must_succeed(f);
    test_world_step(twin, 0);
    test_world_fill(&f->world, 1);
    test_world_fill(twin, 1);
    float kept = test_model_get(&f->world.models[bad], 3, 39);
    test_model_set(&f->world.models[bad], 3, 39, NAN);
    test_fly(f, 1);
    must_name(&f->world, bad);
    test_model_set(&f->world.models[bad], 3, 39, kept);
    assert_true(test_world_same(&f->world, twin));
    test_fly(f, 1);
    test_must_succeed(f);
    MUST(test_world_reduce(twin, 1, NULL, why));
    assert_true(test_world_same(&f->world, twin));
}

typedef struct damage {
    uint64_t at, seen;
    bool in_vote;
} damage;

static void meddle(void *context, uint32_t channel, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    damage *d = context;
    (void)from;
    (void)to;
    if (d->seen++ == d->at) {
        uint64_t bit = d->at * 77;
        d->in_vote = channel == 0;
        ((uint8_t *)data)[bit / 8 % len] ^= (uint8_t)(1u << bit % 8);
    }
}

void test_fail_by_damage(test_flight *f, test_world *twin, uint64_t at)
{
    damage d = {.at = at};
    test_loose_meddle(f->link, (test_meddler){meddle, &d});
    test_world_fill(&f->world, 0);
    test_world_fill(twin, 0);
    test_fly(f, 0);
    if (d.seen <= at || d.in_vote) {
        return;
    }
    for (uint32_t r = 0; r < f->world.n; r++) {
        assert_true(f->world.outcomes[r].status < 0);
        assert_true(f->world.outcomes[r].why.text[0] != '\0');
    }
    assert_true(test_world_same(&f->world, twin));
}
