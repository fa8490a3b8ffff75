/* Reducers over the threads link: the bits of lockstep, meters, and what the caller does wrong. */
#include "flight.h"

#include "exchange/exchange.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 5, LATE_MS = 2000 };

typedef struct worker {
    pthread_t thread;
    tg_reducer *reducer;
    test_model *model;
    uint32_t rank;
    uint64_t steps;
    size_t twice; /* a tensor that is reported twice in the last step; TEST_RUN_TENSOR_N: none */
    size_t never; /* a tensor that is not reported in the last step; TEST_RUN_TENSOR_N: none */
    size_t late;  /* a tensor that is reported LATE_MS after the others in the last step; TEST_RUN_TENSOR_N: none */
    bool is_surprised; /* `ready` returned something unexpected */
    tg_outcome outcome;
} worker;

static void *work(void *argument)
{
    const struct timespec late = {LATE_MS / 1000, LATE_MS % 1000 * 1000000L};
    worker *w = argument;
    test_random random = {w->rank + 1};
    for (uint64_t step = 0; step < w->steps; step++) {
        bool is_last = step + 1 == w->steps;
        test_random values = {step * 1000 + w->rank};
        test_model_fill(w->model, &values);
        size_t first = (size_t)(test_bits(&random) % TEST_RUN_TENSOR_N);
        w->outcome.status = tg_reducer_begin(w->reducer, step, w->model->grads, &w->outcome.why);
        for (size_t i = 0; i < TEST_RUN_TENSOR_N && w->outcome.status == TG_OK; i++) {
            size_t t = (first + i) % TEST_RUN_TENSOR_N;
            bool is_left_out = is_last && (t == w->never || t == w->late);
            tg_status status = is_left_out ? TG_OK : tg_reducer_ready(w->reducer, t, NULL);
            if (is_last && t == w->twice) {
                status = tg_reducer_ready(w->reducer, t, NULL) == TG_E_ARGUMENT ? TG_OK : TG_E_LINK;
            }
            w->is_surprised = w->is_surprised || status != TG_OK;
        }
        if (is_last && w->late < TEST_RUN_TENSOR_N) {
            (void)nanosleep(&late, NULL);
            w->is_surprised = w->is_surprised || tg_reducer_ready(w->reducer, w->late, NULL) != TG_OK;
        }
        if (w->outcome.status == TG_OK) {
            w->outcome.status = tg_reducer_wait(w->reducer, &w->outcome.why);
        }
        if (w->outcome.status != TG_OK) {
            return NULL;
        }
    }
    return NULL;
}

enum { GROUPS = 3, ANNOUNCEMENT_LEN = GROUPS * TG_LENGTH_LEN + TG_LENGTHS_SEAL_LEN };

typedef struct crew {
    test_world world;
    tg_threads *hub;
    worker *workers;
} crew;

static crew hire(const char *recipe, uint32_t n, uint32_t timeout_ms)
{
    test_setup setup = {.recipe = recipe, .lens = test_run_lens, .tensor_n = TEST_RUN_TENSOR_N, .verify_every = 2};
    crew c = {.world = test_world_new_grouped(n, &setup, test_run_groups), .workers = calloc(n, sizeof *c.workers)};
    assert_non_null(c.workers);
    MUST(tg_threads_new(&c.hub, n, timeout_ms, NULL, why));
    for (uint32_t r = 0; r < n; r++) {
        c.workers[r] = (worker){.model = &c.world.models[r],
                                .rank = r,
                                .steps = STEPS,
                                .twice = TEST_RUN_TENSOR_N,
                                .never = TEST_RUN_TENSOR_N,
                                .late = TEST_RUN_TENSOR_N};
        MUST(tg_reducer_new(&c.workers[r].reducer, c.world.ranks[r], tg_threads_link(c.hub, r), why));
    }
    return c;
}

static void run_crew(const crew *c, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        assert_int_equal(pthread_create(&c->workers[r].thread, NULL, work, &c->workers[r]), 0);
    }
    for (uint32_t r = 0; r < n; r++) {
        pthread_join(c->workers[r].thread, NULL);
        assert_false(c->workers[r].is_surprised);
    }
}

static void dismiss(crew *c)
{
    for (uint32_t r = 0; r < c->world.n; r++) {
        tg_reducer_free(c->workers[r].reducer);
    }
    tg_threads_free(c->hub);
    test_world_free(&c->world);
    free(c->workers);
}

/* The gradients of a crew in a step. */
static void fill_twin(const test_world *twin, uint64_t step)
{
    for (uint32_t r = 0; r < twin->n; r++) {
        test_random values = {step * 1000 + r};
        test_model_fill(&twin->models[r], &values);
    }
}

/* A world in lockstep that has taken the first steps of a crew. */
static test_world twin_of(const char *recipe, uint32_t n, uint64_t steps)
{
    test_setup setup = {.recipe = recipe, .lens = test_run_lens, .tensor_n = TEST_RUN_TENSOR_N, .verify_every = 2};
    test_world twin = test_world_new(n, &setup);
    for (uint64_t step = 0; step < steps; step++) {
        fill_twin(&twin, step);
        MUST(test_world_reduce(&twin, step, NULL, why));
    }
    return twin;
}

/* The last step has failed: gradients are those that ranks had, and residuals those of the step before. */
static void check_unchanged(const crew *c, const char *recipe)
{
    test_world twin = twin_of(recipe, c->world.n, STEPS - 1);
    fill_twin(&twin, STEPS - 1);
    assert_true(test_world_same(&c->world, &twin));
    test_world_free(&twin);
}

static void threads_give_the_bits_of_lockstep(void **state)
{
    static const uint32_t worlds[] = {1, 2, 3, 8};
    (void)state;
    for (size_t run = 0; run < TEST_RUN_N; run++) {
        for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
            crew c = hire(test_runs[run].recipe, worlds[i], 60000);
            test_world twin = twin_of(test_runs[run].recipe, worlds[i], STEPS);
            run_crew(&c, worlds[i]);
            for (uint32_t r = 0; r < worlds[i]; r++) {
                if (c.workers[r].outcome.status != TG_OK) {
                    fail_msg("%s, rank %u: %s", test_runs[run].recipe, r, c.workers[r].outcome.why.text);
                }
            }
            assert_true(test_world_same(&c.world, &twin));
            test_world_free(&twin);
            dismiss(&c);
        }
    }
}

/* The meters of groups add up to that of the step, but for votes and announcements of lengths; times are taken. */
static void groups_are_metered(void **state)
{
    (void)state;
    crew c = hire("ef+topk@0.05+fp16", 3, 60000);
    run_crew(&c, 3);
    for (uint32_t r = 0; r < 3; r++) {
        tg_meter total, last, sum = {0}, group;
        tg_exchange_meter(c.world.ranks[r], &last, &total);
        for (size_t g = 0; g < tg_exchange_groups(c.world.ranks[r]); g++) {
            tg_exchange_group_meter(c.world.ranks[r], g, NULL, &group);
            assert_int_equal(group.steps, total.steps);
            assert_true(group.encode_ns > 0 && group.decode_ns > 0 && group.wire_ns > 0 && group.wait_ns > 0);
            sum.payload += group.payload;
            sum.header += group.header;
            sum.logical += group.logical;
            sum.encode_ns += group.encode_ns;
        }
        assert_int_equal(sum.payload, total.payload);
        assert_int_equal(sum.logical, total.logical);
        assert_int_equal(sum.encode_ns, total.encode_ns);
        /* Two peers: an opening vote, five closing ones, and three audits; and in each step one to three announcements. */
        uint64_t announced = total.header - sum.header - 2 * (1 + 5 + 3) * TG_VOTE_LEN;
        assert_int_equal(announced % (2 * ANNOUNCEMENT_LEN), 0);
        assert_in_range(announced / (2 * ANNOUNCEMENT_LEN), 5, 5 * GROUPS);
        assert_true(total.exposed_ns > last.exposed_ns && last.exposed_ns > 0 && total.wire_ns > 0);
    }
    dismiss(&c);
}

/* Every rank fails in the last step, and rank 1 because of itself. */
static void check_misuse(const crew *c, uint32_t n, const char *sentence)
{
    for (uint32_t r = 0; r < n; r++) {
        const tg_outcome *outcome = &c->workers[r].outcome;
        assert_int_equal(outcome->status, r == 1 ? TG_E_ARGUMENT : TG_E_PEER);
        assert_non_null(strstr(outcome->why.text, sentence));
        assert_true(r == 1 || strstr(outcome->why.text, "rank 1: ") != NULL);
    }
}

static void misuse_fails_on_all_ranks(void **state)
{
    (void)state;
    crew c = hire("ef+topk@0.05", 3, 60000);
    c.workers[1].never = 3;
    run_crew(&c, 3);
    check_misuse(&c, 3, "tensor 't3' was not reported ready");
    check_unchanged(&c, "ef+topk@0.05");
    dismiss(&c);
    c = hire("fp16", 3, 60000);
    c.workers[1].twice = 0;
    c.workers[1].never = 6; /* or the step might succeed before the second report */
    run_crew(&c, 3);
    check_misuse(&c, 3, "tensor 't0' was reported ready twice");
    check_unchanged(&c, "fp16");
    dismiss(&c);
}

/* The next step begins as soon as wait returns, while the reducer's thread may still be on its way out of the last one. The thread
 * sanitizer watches. */
static void steps_follow_at_once(void **state)
{
    (void)state;
    crew c = hire("fp16", 3, 60000);
    for (uint32_t r = 0; r < 3; r++) {
        c.workers[r].steps = 300;
    }
    run_crew(&c, 3);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(c.workers[r].outcome.status, TG_OK);
    }
    dismiss(&c);
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    crew c = hire("adacomp", 3, 200);
    run_crew(&c, 2);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(c.workers[r].outcome.status, TG_E_LINK);
        assert_non_null(strstr(c.workers[r].outcome.why.text, "rank 2 "));
    }
    dismiss(&c);
}

/* Two groups of the last step travel, and rank 2 has the third one only when the others have lost patience. */
static void a_timeout_inside_one_group_ends_the_step(void **state)
{
    static const char *const recipes[] = {"ef+topk@0.05", "fp16"};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        crew c = hire(recipes[k], 3, LATE_MS / 3);
        c.workers[2].late = 3;
        run_crew(&c, 3);
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(c.workers[r].outcome.status, TG_E_LINK);
            assert_non_null(strstr(c.workers[r].outcome.why.text, "rank 2 "));
        }
        check_unchanged(&c, recipes[k]);
        dismiss(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_give_the_bits_of_lockstep),
        cmocka_unit_test(groups_are_metered),
        cmocka_unit_test(misuse_fails_on_all_ranks),
        cmocka_unit_test(steps_follow_at_once),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(a_timeout_inside_one_group_ends_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
