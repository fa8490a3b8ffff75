/* The threads link: the same bits and bytes as in lockstep, and no rank waits forever. */
#include "world.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t lens[] = {3000, 5, 0, 77};
enum { TENSOR_N = 4 };

/* One rank's thread: some steps, then how the last of them ended. */
typedef struct worker {
    pthread_t thread;
    tg_exchange *exchange;
    tg_link *link;
    test_model *model;
    uint32_t rank;
    uint64_t steps, first_step;
    float poison; /* put into the gradient of the last step unless 0 */
    tg_outcome outcome;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    for (uint64_t step = w->first_step; step < w->steps; step++) {
        test_random random = {step * 1000 + w->rank};
        test_model_fill(w->model, &random);
        if (w->poison != 0 && step + 1 == w->steps) {
            test_model_set(w->model, 0, 10, w->poison);
        }
        w->outcome.status = tg_reduce(w->exchange, w->link, step, w->model->grads, &w->outcome.why);
        if (w->outcome.status != TG_OK) {
            return NULL;
        }
    }
    return NULL;
}

static worker *start(test_world *world, tg_threads *hub, uint64_t steps)
{
    worker *workers = calloc(world->n, sizeof *workers);
    assert_non_null(workers);
    for (uint32_t r = 0; r < world->n; r++) {
        workers[r] = (worker){.exchange = world->ranks[r],
                              .link = tg_threads_link(hub, r),
                              .model = &world->models[r],
                              .rank = r,
                              .steps = steps};
    }
    return workers;
}

static void run(worker *workers, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        assert_int_equal(pthread_create(&workers[r].thread, NULL, work, &workers[r]), 0);
    }
    for (uint32_t r = 0; r < n; r++) {
        pthread_join(workers[r].thread, NULL);
    }
}

static void threads_give_the_bits_of_lockstep(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *exchange;
        uint32_t world;
    } runs[] = {{"ef+topk@0.05+fp16", "gather", 3},
                {"ef+topk@0.05", "shard", 5},
                {"ef+topk@0.05+bf16", "server", 4},
                {"ef+randomblock@0.05", "allreduce", 8},
                {"ef+topk@0.05,coords=shared", NULL, 3},
                {"dense", NULL, 1},
                {"adacomp", "gather", 3},
                {"adacomp@20", "shard", 4},
                {"ef@again=fp16+adabins@20+sign@scale=meanmax", "shard", 4},
                {"dgc@0.05+fp16", "gather", 3}};
    for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
        test_setup setup = {.recipe = runs[k].recipe,
                            .exchange = runs[k].exchange,
                            .lens = lens,
                            .tensor_n = TENSOR_N,
                            .verify_every = 2,
                            .threads = 2};
        test_world lockstep = test_world_new(runs[k].world, &setup), threaded = test_world_new(runs[k].world, &setup);
        tg_threads *hub = NULL;
        MUST(tg_threads_new(&hub, runs[k].world, 60000, NULL, why));
        for (uint64_t step = 0; step < 5; step++) {
            test_world_step(&lockstep, step);
        }
        worker *workers = start(&threaded, hub, 5);
        run(workers, runs[k].world);
        for (uint32_t r = 0; r < runs[k].world; r++) {
            assert_int_equal(workers[r].outcome.status, TG_OK);
            tg_meter total;
            tg_exchange_meter(threaded.ranks[r], NULL, &total);
            assert_int_equal(total.steps, 5);
            assert_int_equal(total.payload + total.header, workers[r].link->sent_len);
            assert_int_equal(lockstep.sent[r], workers[r].link->sent_len);
        }
        assert_true(test_world_same(&lockstep, &threaded));
        free(workers);
        tg_threads_free(hub);
        test_world_free(&threaded);
        test_world_free(&lockstep);
    }
}

static void a_failure_reaches_every_thread(void **state)
{
    (void)state;
    test_setup setup = {.recipe = "ef+topk@0.05", .exchange = "shard", .lens = lens, .tensor_n = TENSOR_N};
    test_world w = test_world_new(4, &setup);
    tg_threads *hub = NULL;
    MUST(tg_threads_new(&hub, 4, 60000, NULL, why));
    worker *workers = start(&w, hub, 3);
    workers[2].poison = NAN;
    run(workers, 4);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(workers[r].outcome.status, r == 2 ? TG_E_NONFINITE : TG_E_PEER);
        assert_true(r == 2 || strstr(workers[r].outcome.why.text, "rank 2: ") != NULL);
    }
    /* The link still works: the next steps succeed. */
    for (uint32_t r = 0; r < 4; r++) {
        workers[r].poison = 0;
        workers[r].first_step = 2;
        workers[r].steps = 4;
    }
    run(workers, 4);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(workers[r].outcome.status, TG_OK);
    }
    assert_true(test_world_identical(&w));
    free(workers);
    tg_threads_free(hub);
    test_world_free(&w);
}

/* A rank that does not join an operation is named, and fails the step for all. */
static void a_rank_that_dies_is_named(void **state)
{
    (void)state;
    test_setup setup = {.recipe = "ef+topk@0.05", .exchange = "gather", .lens = lens, .tensor_n = TENSOR_N};
    test_world w = test_world_new(3, &setup);
    tg_threads *hub = NULL;
    MUST(tg_threads_new(&hub, 3, 300, NULL, why));
    worker *workers = start(&w, hub, 3);
    workers[1].steps = 2; /* is gone before the others' third step */
    run(workers, 3);
    assert_int_equal(workers[1].outcome.status, TG_OK);
    for (uint32_t r = 0; r < 3; r += 2) {
        assert_int_equal(workers[r].outcome.status, TG_E_LINK);
        assert_non_null(strstr(workers[r].outcome.why.text, "rank 1 did not join"));
    }
    /* The link has failed permanently, also for a rank that arrives late. */
    tg_detail late = {""};
    assert_int_equal(tg_reduce(w.ranks[1], tg_threads_link(hub, 1), 2, w.models[1].grads, &late), TG_E_LINK);
    assert_non_null(strstr(late.text, "rank 1 did not join"));
    free(workers);
    tg_threads_free(hub);
    test_world_free(&w);
}

static void ranks_at_different_steps_are_detected(void **state)
{
    (void)state;
    test_setup setup = {.recipe = "ef+topk@0.05", .exchange = "gather", .lens = lens, .tensor_n = TENSOR_N};
    test_world w = test_world_new(3, &setup);
    tg_threads *hub = NULL;
    MUST(tg_threads_new(&hub, 3, 60000, NULL, why));
    worker *workers = start(&w, hub, 1);
    workers[2].first_step = 8;
    workers[2].steps = 9;
    run(workers, 3);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(workers[r].outcome.status, TG_E_MISMATCH);
        assert_non_null(strstr(workers[r].outcome.why.text, "rank 2 is at step 8, but rank 0 at step 0"));
    }
    free(workers);
    tg_threads_free(hub);
    test_world_free(&w);
}

static void *give_up(void *argument)
{
    worker *w = argument;
    w->link->abort(w->link, "the user pressed the button");
    return NULL;
}

static void giving_up_ends_the_wait(void **state)
{
    (void)state;
    test_setup setup = {.recipe = "dense", .lens = lens, .tensor_n = TENSOR_N};
    test_world w = test_world_new(2, &setup);
    tg_threads *hub = NULL;
    MUST(tg_threads_new(&hub, 2, 60000, NULL, why));
    worker *workers = start(&w, hub, 1);
    assert_int_equal(pthread_create(&workers[0].thread, NULL, work, &workers[0]), 0);
    assert_int_equal(pthread_create(&workers[1].thread, NULL, give_up, &workers[1]), 0);
    pthread_join(workers[0].thread, NULL);
    pthread_join(workers[1].thread, NULL);
    assert_int_equal(workers[0].outcome.status, TG_E_LINK);
    assert_non_null(strstr(workers[0].outcome.why.text, "rank 1: the user pressed the button"));
    assert_null(tg_threads_link(hub, 2));
    free(workers);
    tg_threads_free(hub);
    tg_threads_free(NULL);
    MUST_FAIL(TG_E_ARGUMENT, "at least one rank", tg_threads_new(&hub, 0, 1, NULL, why));
    test_world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_give_the_bits_of_lockstep), cmocka_unit_test(a_failure_reaches_every_thread),
        cmocka_unit_test(a_rank_that_dies_is_named),         cmocka_unit_test(ranks_at_different_steps_are_detected),
        cmocka_unit_test(giving_up_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
