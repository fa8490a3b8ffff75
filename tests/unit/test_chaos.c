/* Steps in flight over threads, with faults that are mixed at random moments, from fixed seeds: messages that are damaged, late or lost,
 * ranks that die or stop, a NaN, groups in any order on any rank. Nobody hangs; all ranks commit or none, except where the closing vote is
 * lost; every rank that fails knows why; a failed step changes nothing; and the run goes on from a saved state in the same bits. */
#include "flight.h"
#include "shaky.h"

#include "link/clock.h"
#include "link/reducer.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4, SEEDS = 40, TIMEOUT_MS = 400, STOP_MS = 600, LIMIT_MS = 10000 };

static void nap(uint64_t ms)
{
    const struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

static void stop(void)
{
    nap(STOP_MS);
}

/* ---- a world of threads ------------------------------------------------------------------------------------------------------ */

typedef struct crew {
    test_world world;
    tg_threads *hub;
    test_shaky links[N];
    tg_reducer *reducers[N];
    test_random orders[N];
    uint64_t step;
} crew;

static test_setup setup_of(size_t run)
{
    return (test_setup){.recipe = test_runs[run].recipe,
                        .exchange = test_runs[run].exchange,
                        .lens = test_run_lens,
                        .tensor_n = TEST_RUN_TENSOR_N};
}

static void hire(crew *c, size_t run, uint64_t seed)
{
    test_setup setup = setup_of(run);
    *c = (crew){.world = test_world_new_grouped(N, &setup, test_run_groups)};
    MUST(tg_threads_new(&c->hub, N, TIMEOUT_MS, NULL, why));
    for (uint32_t r = 0; r < N; r++) {
        test_shaky_init(&c->links[r], tg_threads_link(c->hub, r), r, N, stop);
        c->orders[r].state = seed * N + r;
        MUST(tg_reducer_new(&c->reducers[r], c->world.ranks[r], &c->links[r].link, why));
    }
}

static void dismiss(crew *c)
{
    for (uint32_t r = 0; r < N; r++) {
        tg_reducer_free(c->reducers[r]);
    }
    tg_threads_free(c->hub);
    test_world_free(&c->world);
}

typedef struct seat {
    crew *c;
    uint32_t rank;
} seat;

/* A rank's part of a step: tensors get ready in an order of its own, with pauses. */
static void *work(void *argument)
{
    const seat *s = argument;
    crew *c = s->c;
    test_random *random = &c->orders[s->rank];
    tg_outcome *outcome = &c->world.outcomes[s->rank];
    size_t first = (size_t)(test_bits(random) % TEST_RUN_TENSOR_N);
    outcome->status = tg_reducer_begin(c->reducers[s->rank], c->step, c->world.models[s->rank].grads, &outcome->why);
    for (size_t i = 0; i < TEST_RUN_TENSOR_N && outcome->status == TG_OK; i++) {
        outcome->status = tg_reducer_ready(c->reducers[s->rank], (first + i) % TEST_RUN_TENSOR_N, &outcome->why);
        nap(test_bits(random) % 3);
    }
    if (outcome->status == TG_OK) {
        outcome->status = tg_reducer_wait(c->reducers[s->rank], &outcome->why);
    }
    return NULL;
}

static void step_all(crew *c, uint64_t step)
{
    pthread_t threads[N];
    seat seats[N];
    uint64_t begin = tg_now_ms();
    c->step = step;
    for (uint32_t r = 0; r < N; r++) {
        c->links[r].started = 0;
        seats[r] = (seat){c, r};
        assert_int_equal(pthread_create(&threads[r], NULL, work, &seats[r]), 0);
    }
    for (uint32_t r = 0; r < N; r++) {
        pthread_join(threads[r], NULL);
    }
    assert_in_range(tg_now_ms() - begin, 0, LIMIT_MS);
}

static void must_all_succeed(const crew *c)
{
    for (uint32_t r = 0; r < N; r++) {
        if (c->world.outcomes[r].status != TG_OK) {
            fail_msg("rank %u: %s", r, c->world.outcomes[r].why.text);
        }
    }
}

/* ---- what must hold ---------------------------------------------------------------------------------------------------------- */

/* Without a failure of the link, exactly one rank fails by itself, and all others give its name and its reason. */
static void check_names(const crew *c, uint64_t seed)
{
    uint32_t bad = N;
    char name[512];
    for (uint32_t r = 0; r < N; r++) {
        bad = c->world.outcomes[r].status != TG_E_PEER && bad == N ? r : bad;
    }
    assert_true(bad < N);
    (void)snprintf(name, sizeof name, "rank %u: %.200s", bad, c->world.outcomes[bad].why.text);
    for (uint32_t r = 0; r < N; r++) {
        const tg_outcome *o = &c->world.outcomes[r];
        if (r != bad && (o->status != TG_E_PEER || strncmp(o->why.text, name, strlen(name)) != 0)) {
            fail_msg("seed %d: rank %u says '%s', and not '%s'", (int)seed, r, o->why.text, name);
        }
    }
}

/* Ranks that die or stop alone are named by all others. */
static void check_lost(const crew *c, uint64_t seed)
{
    uint32_t lost = N, faults = 0;
    char name[32];
    for (uint32_t r = 0; r < N; r++) {
        bool is_lost = c->links[r].kind == TEST_DEATH || c->links[r].kind == TEST_STOP || c->links[r].kind == TEST_LOSS;
        lost = is_lost ? r : lost;
        faults += c->links[r].kind != TEST_CALM ? 1 : 0;
    }
    (void)snprintf(name, sizeof name, "rank %u did not join", lost);
    for (uint32_t r = 0; r < N && faults == 1 && lost < N; r++) {
        const tg_outcome *o = &c->world.outcomes[r];
        if (o->status == TG_E_LINK && strstr(o->why.text, name) == NULL) {
            fail_msg("seed %d: rank %u says '%s', and not '%s'", (int)seed, r, o->why.text, name);
        }
    }
}

typedef struct tally {
    uint32_t committed, failed, lost,
        split; /* steps: on all ranks; by vote; by the link; by a closing vote that was lost */
} tally;

/* `before` has the gradients and residuals from before the step, `after` from after it. */
static void check_outcomes(tally *t, const crew *c, const test_world *before, const test_world *after, uint64_t seed)
{
    uint32_t well = 0, by_link = 0;
    bool may_lose_vote = false;
    for (uint32_t r = 0; r < N; r++) {
        const tg_outcome *o = &c->world.outcomes[r];
        const test_shaky *s = &c->links[r];
        well += o->status == TG_OK ? 1 : 0;
        by_link += o->status == TG_E_LINK ? 1 : 0;
        may_lose_vote =
            may_lose_vote || s->kind == TEST_LOSS || s->kind == TEST_DEATH || s->kind == TEST_STOP || s->hits_vote;
        assert_true(o->status == TG_OK || (o->status < 0 && o->why.text[0] != '\0'));
    }
    if (well == N) {
        assert_true(test_world_same(&c->world, after));
    } else if (well == 0) {
        assert_true(test_world_same(&c->world, before));
    } else {
        assert_true(may_lose_vote && well + by_link == N);
    }
    if (well == 0 && by_link == 0) {
        check_names(c, seed);
    }
    check_lost(c, seed);
    t->committed += well == N ? 1 : 0;
    t->failed += well == 0 && by_link == 0 ? 1 : 0;
    t->lost += well == 0 && by_link > 0 ? 1 : 0;
    t->split += well > 0 && well < N ? 1 : 0;
}

static void save_all(tg_span *out, const crew *c)
{
    for (uint32_t r = 0; r < N; r++) {
        size_t len = tg_state_len(c->world.ranks[r]);
        out[r] = (tg_span){test_room(len), len};
        MUST(tg_state_save(c->world.ranks[r], out[r].data, len, why));
    }
}

static void load_all(const crew *c, const tg_span *saved)
{
    for (uint32_t r = 0; r < N; r++) {
        MUST(tg_state_load(c->world.ranks[r], &saved[r], 1, why));
        free(saved[r].data);
    }
}

/* One or two ranks with a fault each, and sometimes a NaN. */
static void choose_faults(crew *c, test_random *random)
{
    for (uint64_t k = 0; k < 1 + test_bits(random) % 2; k++) {
        test_shaky *s = &c->links[test_bits(random) % N];
        s->kind = (test_fault)(test_bits(random) % TEST_FAULT_N);
        s->at = test_bits(random) % 7;
        s->bit = test_bits(random) % 4096;
    }
    if (test_bits(random) % 4 == 0) {
        test_model_set(&c->world.models[test_bits(random) % N], 3, 39, NAN);
    }
}

typedef void chooser(crew *c, test_random *random);

/* A step without faults, one with, and that one again from a saved state. */
static void run_seed(tally *t, size_t run, uint64_t seed, chooser *choose)
{
    test_random random = {seed};
    test_setup setup = setup_of(run);
    test_world before = test_world_new(N, &setup), after = test_world_new(N, &setup);
    tg_span saved[N];
    crew c, next;
    hire(&c, run, seed);
    test_world_fill(&c.world, 0);
    step_all(&c, 0);
    must_all_succeed(&c);
    save_all(saved, &c);
    test_world_step(&before, 0);
    test_world_step(&after, 0);
    test_world_fill(&c.world, 1);
    choose(&c, &random);
    test_world_fill(&before, 1);
    for (uint32_t r = 0; r < N; r++) { /* a NaN, too, must stay */
        memcpy(before.models[r].grads[3], c.world.models[r].grads[3], (size_t)test_run_lens[3] * sizeof(float));
    }
    test_world_step(&after, 1);
    step_all(&c, 1);
    check_outcomes(t, &c, &before, &after, seed);
    hire(&next, run, seed + 1000);
    load_all(&next, saved);
    test_world_fill(&next.world, 1);
    step_all(&next, 1);
    must_all_succeed(&next);
    assert_true(test_world_same(&next.world, &after));
    dismiss(&next);
    dismiss(&c);
    test_world_free(&after);
    test_world_free(&before);
}

static void faults_of_all_kinds_are_mixed(void **state)
{
    tally t = {0};
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        run_seed(&t, (size_t)(seed * 7 % TEST_RUN_N), seed, choose_faults);
    }
    assert_true(t.committed >= 5 && t.failed >= 5 && t.lost >= 5);
}

/* ---- one fault ------------------------------------------------------------------------------------------------------------ */

/* Rank 1 does not join one operation: of lengths, or of a group. */
static void lose_one(crew *c, test_random *random)
{
    c->links[1].kind = TEST_LOSS;
    c->links[1].at = test_bits(random) % 3;
}

static void a_timeout_inside_one_group_fails_all(void **state)
{
    static const size_t some[] = {0, 1, 5, 11, 12, 18};
    tally t = {0};
    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        run_seed(&t, some[i], i, lose_one);
    }
    assert_int_equal(t.lost, sizeof some / sizeof *some);
}

/* Rank 2 dies when it has started an operation of each of its groups. */
static void die_in_flight(crew *c, test_random *random)
{
    (void)random;
    c->links[2].kind = TEST_DEATH;
    c->links[2].at = 3;
}

static void a_rank_that_dies_with_groups_in_flight_fails_all(void **state)
{
    static const size_t known[] = {1, 2, 3, 4}; /* lengths: one operation a group at first */
    tally t = {0};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        run_seed(&t, known[i], i, die_in_flight);
    }
    assert_int_equal(t.lost, sizeof known / sizeof *known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_of_all_kinds_are_mixed),
        cmocka_unit_test(a_timeout_inside_one_group_fails_all),
        cmocka_unit_test(a_rank_that_dies_with_groups_in_flight_fails_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
