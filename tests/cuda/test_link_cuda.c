/* The link that stages messages in host memory: ranks with and without a device that are threads, by tg_reduce and by reducers that have
 * a thread of their own. */
#include "mixed.h"

#include <pthread.h>
#include <string.h>

enum { STEPS = 3, TENSOR_N = 4, WORLD_MAX = 5, PATIENCE_MS = 60000 };
static const uint64_t lens[TENSOR_N] = {900, 0, 130, 17};
static const uint32_t groups[TENSOR_N] = {1, 1, 0, 0};

typedef struct worker {
    const mixed *mixed;
    uint32_t rank;
    tg_link *inner;
    bool reduces_in_flight;
    uint64_t link_len, inner_len; /* bytes sent, as each link has counted */
    tg_meter total;
} worker;

static void step_in_flight(tg_reducer *reducer, uint64_t step, void *const *grads)
{
    MUST(tg_reducer_begin(reducer, step, grads, why));
    for (size_t t = TENSOR_N; t-- > 0;) {
        MUST(tg_reducer_ready(reducer, t, why));
    }
    MUST(tg_reducer_wait(reducer, why));
}

/* The gradients of a step, a pure function of both, as test_world_fill has them. */
static void fill(const worker *w, uint64_t step)
{
    test_random random = {step * 1000 + w->rank};
    test_model_fill(&w->mixed->world.models[w->rank], &random);
    mixed_put(w->mixed, w->rank);
}

static void *work(void *argument)
{
    worker *w = argument;
    const test_world *world = &w->mixed->world;
    tg_exchange *x = world->ranks[w->rank];
    tg_link *link = mixed_link(w->mixed, w->rank, w->inner);
    tg_reducer *reducer = NULL;
    MUST(tg_handshake(x, link, NULL, why));
    uint64_t before = link->sent_len;
    if (w->reduces_in_flight) {
        MUST(tg_reducer_new(&reducer, x, link, why));
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        fill(w, step);
        if (reducer != NULL) {
            step_in_flight(reducer, step, world->grads[w->rank]);
        } else {
            MUST(tg_reduce(x, link, step, world->grads[w->rank], why));
        }
        mixed_get(w->mixed, w->rank);
    }
    w->link_len = link->sent_len - before;
    w->inner_len = w->inner->sent_len - before;
    tg_exchange_meter(x, NULL, &w->total);
    tg_reducer_free(reducer);
    mixed_unlink(w->mixed, w->rank, link);
    return NULL;
}

static void compare(const test_run *run, uint32_t n, mixed_kind kind, bool in_flight)
{
    test_setup setup = {
        .recipe = run->recipe, .exchange = run->exchange, .lens = lens, .tensor_n = TENSOR_N, .dtype = TG_FP32};
    test_world twin = test_world_new(n, &setup);
    mixed m = mixed_new(n, &setup, groups, kind);
    tg_threads *hub = NULL;
    worker workers[WORLD_MAX];
    pthread_t threads[WORLD_MAX];
    MUST(tg_threads_new(&hub, n, PATIENCE_MS, NULL, why));
    for (uint32_t r = 0; r < n; r++) {
        workers[r] = (worker){.mixed = &m, .rank = r, .inner = tg_threads_link(hub, r), .reduces_in_flight = in_flight};
        assert_int_equal(pthread_create(&threads[r], NULL, work, &workers[r]), 0);
    }
    for (uint32_t r = 0; r < n; r++) {
        pthread_join(threads[r], NULL);
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        test_world_step(&twin, step);
    }
    assert_true(test_world_same(&m.world, &twin));
    for (uint32_t r = 0; r < n; r++) {
        assert_int_equal(workers[r].link_len, workers[r].inner_len);
        assert_int_equal(workers[r].link_len, workers[r].total.payload + workers[r].total.header);
    }
    tg_threads_free(hub);
    mixed_free(&m);
    test_world_free(&twin);
}

static const test_run runs[] = {
    {"ef+fp16", "gather"}, {"ef+bf16", "shard"}, {"dense", "allreduce"}, {"fp16", "server"}};

static void threads_reduce_one_after_the_other(void **state)
{
    (void)state;
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        compare(&runs[run], 1, MIXED_ALL, false);
        compare(&runs[run], 2, MIXED_ODD, false);
        compare(&runs[run], 5, MIXED_EVEN, false);
    }
}

static void threads_reduce_in_flight(void **state)
{
    (void)state;
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        compare(&runs[run], 2, MIXED_ALL, true);
        compare(&runs[run], 3, MIXED_ODD, true);
        compare(&runs[run], 5, MIXED_EVEN, true);
    }
}

/* A link that performs one operation at a time, between two ranks: what one is to send is what the other is to receive. */
typedef struct pair {
    tg_link link;
    uint64_t carried;
} pair;

static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    pair *p = (pair *)(void *)self;
    (void)why;
    p->carried++;
    memcpy(op->recvs[1].data, op->sends[1].data, (size_t)op->sends[1].len);
    return TG_OK;
}

static void give_up(tg_link *self, const char *reason)
{
    (void)self;
    fail_msg("%s", reason);
}

static void spans_are_staged_where_they_must_be(void **state)
{
    enum { LEN = 300 };
    uint8_t sent[LEN], back[LEN], host[LEN];
    void *device_out = NULL, *device_in = NULL;
    tg_device *device = NULL;
    tg_link *link = NULL;
    pair p = {.link = {.carry = carry, .abort = give_up}};
    (void)state;
    MUST(tg_cuda_open(&device, 0, NULL, why));
    MUST(tg_cuda_acquire(&device_out, device, LEN, why));
    MUST(tg_cuda_acquire(&device_in, device, LEN, why));
    MUST(tg_cuda_link_new(&link, device, &p.link, 2, why));
    assert_true(link->start == NULL && link->test == NULL && link->listen == NULL);
    for (int i = 0; i < LEN; i++) {
        sent[i] = (uint8_t)(i * 7);
    }
    MUST(tg_cuda_copy(device, device_out, sent, LEN, why));
    const tg_span outs[2] = {{sent, LEN}, {device_out, LEN}}, ins[2] = {{host, LEN}, {device_in, LEN}};
    for (uint64_t i = 0; i < 8; i++) { /* from host or device memory to host or device memory, at first and again */
        const tg_span sends[2] = {{NULL, 0}, outs[i % 2]}, recvs[2] = {{NULL, 0}, ins[i / 2 % 2]};
        const tg_op op = {.kind = TG_ALLTOALLV, .rank = 0, .world = 2, .sends = sends, .recvs = recvs};
        memset(host, 0, LEN);
        MUST(tg_cuda_copy(device, device_in, host, LEN, why));
        MUST(link->carry(link, &op, why));
        assert_int_equal(p.carried, i + 1);
        MUST(tg_cuda_copy(device, back, recvs[1].data, LEN, why));
        assert_memory_equal(back, sent, LEN);
    }
    const tg_op wrong = {.world = 3};
    MUST_FAIL(TG_E_ARGUMENT, "an operation of 3 ranks was given to a link of 2", link->carry(link, &wrong, why));
    tg_cuda_link_free(link);
    tg_cuda_release(device, device_in);
    tg_cuda_release(device, device_out);
    tg_cuda_close(device);
}

static void channels_are_checked(void **state)
{
    tg_device *device = NULL;
    tg_threads *hub = NULL;
    tg_link *link = NULL;
    const tg_span sends[2] = {{0}}, recvs[2] = {{0}};
    const tg_op op = {.kind = TG_ALLTOALLV, .rank = 0, .world = 2, .sends = sends, .recvs = recvs};
    (void)state;
    MUST(tg_cuda_open(&device, 0, NULL, why));
    MUST(tg_threads_new(&hub, 2, PATIENCE_MS, NULL, why));
    MUST(tg_cuda_link_new(&link, device, tg_threads_link(hub, 0), 2, why));
    assert_int_equal(link->channel_n, tg_threads_link(hub, 0)->channel_n);
    MUST_FAIL(TG_E_ARGUMENT, "channel 64 does not exist: there are 64", link->start(link, 64, &op, why));
    MUST_FAIL(TG_E_ARGUMENT, "channel 64 does not exist: there are 64", link->test(link, 64, why));
    MUST(link->start(link, 3, &op, why));
    MUST_FAIL(TG_E_ARGUMENT, "an operation is already under way on channel 3", link->start(link, 3, &op, why));
    MUST(link->test(link, 3, why));
    link->abort(link, "the test is over");
    MUST_FAIL(TG_E_LINK, "the test is over", link->start(link, 3, &op, why));
    tg_cuda_link_free(link);
    tg_threads_free(hub);
    tg_cuda_close(device);
}

/* The default stream stands for the caller's; gpu_torch.py has others. */
static void streams_are_put_in_order(void **state)
{
    enum { LEN = 300 };
    uint8_t sent[LEN], back[LEN] = {0};
    tg_device *device = NULL;
    void *block = NULL;
    (void)state;
    MUST(tg_cuda_open(&device, 0, NULL, why));
    MUST(tg_cuda_acquire(&block, device, LEN, why));
    memset(sent, 7, LEN);
    for (int i = 0; i < 3; i++) {
        MUST(tg_cuda_follow(device, NULL, why));
        MUST(tg_cuda_copy(device, block, sent, LEN, why));
        MUST(tg_cuda_copy(device, back, block, LEN, why));
        MUST(tg_cuda_lead(device, NULL, why));
        MUST(tg_cuda_move(device, NULL, why));
    }
    MUST(tg_cuda_wait(device, why));
    assert_memory_equal(back, sent, LEN);
    MUST_FAIL(TG_E_ARGUMENT, "device is NULL", tg_cuda_follow(NULL, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "device is NULL", tg_cuda_lead(NULL, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "device is NULL", tg_cuda_move(NULL, NULL, why));
    tg_cuda_release(device, block);
    tg_cuda_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_reduce_one_after_the_other),
        cmocka_unit_test(threads_reduce_in_flight),
        cmocka_unit_test(spans_are_staged_where_they_must_be),
        cmocka_unit_test(channels_are_checked),
        cmocka_unit_test(streams_are_put_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
