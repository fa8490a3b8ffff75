/* The link over NCCL, without a GPU: ranks are threads, the GPU is emulated, and the stand-in of this folder is in the place of NCCL. */
#include "cuda/mixed.h"
#include "standin.h"
#include "tersegrad/nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, TENSOR_N = 6, WORLD_MAX = 5, PATIENCE_MS = 60000, SHORT_MS = 300, TURNS_LEN = 64 };
static const uint64_t lens[TENSOR_N] = {900, 0, 130, 17, 64, 2000};
static const uint32_t groups[TENSOR_N] = {3, 3, 2, 1, 1, 0};

typedef enum mode { BY_REDUCE, IN_FLIGHT } mode;

typedef struct worker {
    const mixed *mixed;
    uint32_t rank, timeout_ms;
    tg_link *inner;
    mode how;
    tg_outcome made, reduced; /* of tg_nccl_new, and of the first step that has failed */
    uint64_t link_len;
    tg_meter total;
} worker;

static standin_plan_fn *plan;

static int load_standin(void **state)
{
    void *library = dlopen(getenv("TG_NCCL"), RTLD_NOW | RTLD_LOCAL);
    void *address = library != NULL ? dlsym(library, "standin_plan") : NULL;
    (void)state;
    memcpy(&plan, &address, sizeof plan);
    return plan == NULL;
}

/* Each rank reports its tensors in an order of its own, so that groups start in different orders. */
static tg_status step_in_flight(tg_reducer *reducer, uint32_t rank, uint64_t step, void *const *grads, tg_detail *why)
{
    tg_status status = tg_reducer_begin(reducer, step, grads, why);
    for (size_t i = 0; i < TENSOR_N && status == TG_OK; i++) {
        size_t t = (rank % 2 == 0 ? i : TENSOR_N - 1 - i) + (rank + step) % TENSOR_N;
        status = tg_reducer_ready(reducer, t % TENSOR_N, why);
    }
    return status == TG_OK ? tg_reducer_wait(reducer, why) : status;
}

static void fill(const worker *w, uint64_t step)
{
    test_random random = {step * 1000 + w->rank};
    test_model_fill(&w->mixed->world.models[w->rank], &random);
    mixed_put(w->mixed, w->rank);
}

static void run_steps(worker *w, tg_link *link)
{
    const test_world *world = &w->mixed->world;
    tg_exchange *x = world->ranks[w->rank];
    tg_reducer *reducer = NULL;
    tg_outcome *o = &w->reduced;
    o->status = tg_handshake(x, link, NULL, &o->why);
    uint64_t before = link->sent_len;
    if (w->how == IN_FLIGHT) {
        MUST(tg_reducer_new(&reducer, x, link, why));
    }
    for (uint64_t step = 0; step < STEPS && o->status == TG_OK; step++) {
        fill(w, step);
        o->status = reducer != NULL ? step_in_flight(reducer, w->rank, step, world->grads[w->rank], &o->why)
                                    : tg_reduce(x, link, step, world->grads[w->rank], &o->why);
        mixed_get(w->mixed, w->rank);
    }
    w->link_len = link->sent_len - before;
    tg_exchange_meter(x, NULL, &w->total);
    tg_reducer_free(reducer);
}

static void *work(void *argument)
{
    worker *w = argument;
    tg_nccl *nccl = NULL;
    w->made.status =
        tg_nccl_new(&nccl, w->mixed->device, w->inner, w->rank, w->mixed->world.n, w->timeout_ms, &w->made.why);
    if (w->made.status == TG_OK) {
        assert_int_equal(tg_nccl_version(nccl), 22803);
        run_steps(w, tg_nccl_link(nccl));
    }
    tg_nccl_free(nccl);
    return NULL;
}

static void run(worker *workers, mixed *m, mode how, uint32_t timeout_ms)
{
    pthread_t threads[WORLD_MAX];
    tg_threads *hub = NULL;
    MUST(tg_threads_new(&hub, m->world.n, PATIENCE_MS, NULL, why));
    for (uint32_t r = 0; r < m->world.n; r++) {
        workers[r] =
            (worker){.mixed = m, .rank = r, .timeout_ms = timeout_ms, .inner = tg_threads_link(hub, r), .how = how};
        assert_int_equal(pthread_create(&threads[r], NULL, work, &workers[r]), 0);
    }
    for (uint32_t r = 0; r < m->world.n; r++) {
        pthread_join(threads[r], NULL);
    }
    tg_threads_free(hub);
}

static test_setup setup_of(const char *recipe, const char *exchange)
{
    return (test_setup){.recipe = recipe, .exchange = exchange, .lens = lens, .tensor_n = TENSOR_N, .dtype = TG_FP32};
}

/* The bits of the host codec in lockstep, and the bytes that the exchange counts. */
static void compare(const test_run *which, uint32_t n, mode how)
{
    test_setup setup = setup_of(which->recipe, which->exchange);
    test_world twin = test_world_new(n, &setup);
    mixed m = mixed_new(n, &setup, groups, MIXED_ALL);
    worker workers[WORLD_MAX];
    run(workers, &m, how, PATIENCE_MS);
    for (uint64_t step = 0; step < STEPS; step++) {
        test_world_step(&twin, step);
    }
    for (uint32_t r = 0; r < n; r++) {
        if (workers[r].made.status != TG_OK || workers[r].reduced.status != TG_OK) {
            fail_msg("%s by %s, rank %u: %s %s", which->recipe, which->exchange, r, workers[r].made.why.text,
                     workers[r].reduced.why.text);
        }
        uint64_t turns_len = workers[r].link_len - workers[r].total.payload - workers[r].total.header;
        assert_true(r == 0 && how == IN_FLIGHT ? turns_len % ((uint64_t)TURNS_LEN * (n - 1) + (n == 1)) == 0
                                               : turns_len == 0);
    }
    assert_true(test_world_same(&m.world, &twin));
    assert_int_equal(plan(0, STANDIN_WELL, 0), 0); /* all communicators are gone */
    mixed_free(&m);
    test_world_free(&twin);
}

static const test_run runs[] = {{"ef+topk@0.1", "gather"}, {"adacomp", "gather"}, {"ef+bf16", "shard"},
                                {"dense", "allreduce"},    {"fp16", "server"},    {"powersgd@2", "lowrank"}};

static void ranks_reduce_one_operation_at_a_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        compare(&runs[i], 3, BY_REDUCE);
    }
    compare(&runs[0], 1, BY_REDUCE);
}

static void groups_start_in_different_orders(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        compare(&runs[i], i % 2 == 0 ? 2 : 5, IN_FLIGHT);
    }
    compare(&runs[0], 1, IN_FLIGHT);
}

/* What fails on one rank fails on all, with the reason; gradients stay as they are. */
static void expect(standin_fault fault, uint32_t nth, mode how, const char *made, const char *reduced)
{
    enum { N = 3, BAD = 1 };
    test_setup setup = setup_of("ef+topk@0.1", "gather");
    mixed m = mixed_new(N, &setup, groups, MIXED_ALL);
    worker workers[WORLD_MAX];
    (void)plan(BAD, fault, nth);
    run(workers, &m, how, SHORT_MS);
    (void)plan(BAD, STANDIN_WELL, 0);
    for (uint32_t r = 0; r < N; r++) {
        const tg_outcome *o = made != NULL ? &workers[r].made : &workers[r].reduced;
        const char *part = made != NULL ? made : reduced;
        if (o->status == TG_OK || strstr(o->why.text, part) == NULL) {
            fail_msg("fault %d, rank %u: '%s', expected '%s'", (int)fault, r, o->why.text, part);
        }
        if (made == NULL) { /* no step was done, so gradients are those that were filled in */
            test_model filled = test_model_new(lens, TENSOR_N, TG_FP32);
            test_random random = {workers[r].total.steps * 1000 + r};
            test_model_fill(&filled, &random);
            assert_true(test_model_equal(&filled, &m.world.models[r]));
            test_model_free(&filled);
        }
    }
    mixed_free(&m);
}

static void failures_have_a_reason_on_every_rank(void **state)
{
    (void)state;
    expect(STANDIN_NO_INIT, 0, BY_REDUCE, "rank 1: NCCL failed to make a communicator: unhandled system error", NULL);
    expect(STANDIN_LATE_INIT, 0, BY_REDUCE, "NCCL did not connect 3 ranks within 300 ms", NULL);
    for (mode how = BY_REDUCE; how <= IN_FLIGHT; how++) {
        expect(STANDIN_REFUSES, 2, how, NULL,
               "rank 1: NCCL failed to send and receive: internal error: refused on purpose");
        expect(STANDIN_BREAKS, 1, how, NULL,
               "rank 1: NCCL failed in the middle of an operation: unhandled system error: the connection");
        expect(STANDIN_HANGS, 3, how, NULL, "were not done within 300 ms");
    }
}

static void arguments_are_checked(void **state)
{
    tg_device *device = NULL;
    tg_nccl *nccl = NULL;
    tg_threads *hub = NULL;
    (void)state;
    MUST(tg_cuda_open(&device, 0, NULL, why));
    MUST(tg_threads_new(&hub, 1, PATIENCE_MS, NULL, why));
    tg_link *inner = tg_threads_link(hub, 0);
    MUST_FAIL(TG_E_ARGUMENT, "out is NULL", tg_nccl_new(NULL, device, inner, 0, 1, 100, why));
    MUST_FAIL(TG_E_ARGUMENT, "device is NULL", tg_nccl_new(&nccl, NULL, inner, 0, 1, 100, why));
    MUST_FAIL(TG_E_ARGUMENT, "inner is NULL", tg_nccl_new(&nccl, device, NULL, 0, 1, 100, why));
    MUST_FAIL(TG_E_ARGUMENT, "a rank below", tg_nccl_new(&nccl, device, inner, 1, 1, 100, why));
    tg_wire wire = {0};
    tg_link *link = NULL;
    MUST_FAIL(TG_E_ARGUMENT, "post, test and abort", tg_wire_link_new(&link, device, inner, &wire, 0, 1, 100, why));
    MUST(tg_nccl_new(&nccl, device, inner, 0, 1, 100, why));
    tg_link *made = tg_nccl_link(nccl);
    assert_int_equal(made->channel_n, inner->channel_n - 1);
    const tg_span none[2] = {{0}};
    const tg_op op = {.world = 1, .sends = none, .recvs = none}, wrong = {.world = 2, .sends = none, .recvs = none};
    MUST_FAIL(TG_E_ARGUMENT, "channel 63 does not exist", made->start(made, 63, &op, why));
    MUST_FAIL(TG_E_ARGUMENT, "rank 0 of 2", made->start(made, 7, &wrong, why));
    MUST(made->start(made, 7, &op, why));
    MUST_FAIL(TG_E_ARGUMENT, "already under way on channel 7", made->start(made, 7, &op, why));
    MUST(made->test(made, 7, why));
    made->abort(made, "the test is over");
    MUST_FAIL(TG_E_LINK, "the test is over", made->carry(made, &op, why));
    tg_nccl_free(nccl);
    tg_nccl_free(NULL);
    assert_null(tg_nccl_link(NULL));
    assert_int_equal(tg_nccl_version(NULL), 0);
    tg_threads_free(hub);
    tg_cuda_close(device);
}

static void a_library_that_is_not_there(void **state)
{
    char *before = strdup(getenv("TG_NCCL"));
    tg_device *device = NULL;
    tg_nccl *nccl = NULL;
    tg_threads *hub = NULL;
    (void)state;
    MUST(tg_cuda_open(&device, 0, NULL, why));
    MUST(tg_threads_new(&hub, 1, PATIENCE_MS, NULL, why));
    assert_int_equal(setenv("TG_NCCL", "libno-such-nccl.so", 1), 0);
    MUST_FAIL(TG_E_ARGUMENT, "rank 0: NCCL cannot be loaded",
              tg_nccl_new(&nccl, device, tg_threads_link(hub, 0), 0, 1, 100, why));
    assert_int_equal(setenv("TG_NCCL", "libc.so.6", 1), 0);
    MUST_FAIL(TG_E_VERSION, "has no nccl", tg_nccl_new(&nccl, device, tg_threads_link(hub, 0), 0, 1, 100, why));
    assert_int_equal(setenv("TG_NCCL", before, 1), 0);
    free(before);
    tg_threads_free(hub);
    tg_cuda_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_reduce_one_operation_at_a_time), cmocka_unit_test(groups_start_in_different_orders),
        cmocka_unit_test(failures_have_a_reason_on_every_rank), cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(a_library_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, load_standin, NULL);
}
