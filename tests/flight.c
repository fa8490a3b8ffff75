/* A world whose ranks are reducers. */
#include "flight.h"

#include <stdlib.h>

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
    f.link = test_loose_new(n, CHANNELS, seed);
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
    for (uint32_t r = 0; r < n; r++) {
        for (size_t t = 0; t < tensor_n; t++) {
            size_t at = (size_t)(test_bits(&f->random) % (t + 1));
            order[r * tensor_n + t] = order[r * tensor_n + at];
            order[r * tensor_n + at] = t;
        }
        MUST(tg_reducer_begin(f->reducers[r], step, f->world.models[r].grads, why));
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
    free(ended);
    free(next);
    free(order);
}

void test_must_succeed(const test_flight *f)
{
    for (uint32_t r = 0; r < f->world.n; r++) {
        if (f->world.outcomes[r].status != TG_OK) {
            fail_msg("rank %u: %s", r, f->world.outcomes[r].why.text);
        }
    }
}
