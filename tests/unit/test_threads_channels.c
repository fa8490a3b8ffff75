/* The threads link with several operations at once: any order of starts, polled and with callbacks, and how they fail. */
#include "support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHANNEL_N = 6, WORLD_MAX = 16, LEN_MAX = 3000 };

/* ---- operations -------------------------------------------------------------------------------------------------------- */

/* A number that all ranks agree on. */
static uint64_t mixed(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    test_random random = {a * 1000003 + b * 10007 + c * 101 + d};
    (void)test_bits(&random);
    return test_bits(&random);
}

/* Bytes that a rank sends to another one in the nth operation on a channel: often none, seldom many. */
static uint64_t len_of(uint64_t n, uint32_t channel, uint32_t from, uint32_t to)
{
    uint64_t bits = mixed(n, channel, from, to);
    bool is_idle = mixed(n, channel, 77, from) % 5 == 0 || mixed(n, channel, 77, to) % 5 == 0;
    return from == to || is_idle || bits % 3 == 0 ? 0 : 1 + (bits >> 8) % (bits % 7 == 0 ? LEN_MAX : 40);
}

/* One rank's operation on one channel, with buffers of its own. */
typedef struct operation {
    tg_op op;
    tg_span sends[WORLD_MAX], recvs[WORLD_MAX];
    bool is_busy;
    uint64_t started_n;
} operation;

static void prepare(operation *o, uint32_t channel, uint32_t rank, uint32_t world)
{
    uint64_t n = o->started_n;
    for (uint32_t p = 0; p < world; p++) {
        o->sends[p] = (tg_span){NULL, len_of(n, channel, rank, p)};
        o->recvs[p] = (tg_span){NULL, len_of(n, channel, p, rank)};
        o->sends[p].data = test_room((size_t)o->sends[p].len);
        o->recvs[p].data = test_room((size_t)o->recvs[p].len);
        memset(o->sends[p].data, (int)(mixed(n, channel, rank, p) & 255), (size_t)o->sends[p].len);
        memset(o->recvs[p].data, 0, (size_t)o->recvs[p].len);
    }
    o->op = (tg_op){.kind = TG_ALLTOALLV, .rank = rank, .world = world, .sends = o->sends, .recvs = o->recvs};
}

/* Frees the buffers; false if other bytes have arrived than were sent. */
static bool complete(operation *o, uint32_t channel, uint32_t rank, uint32_t world)
{
    bool is_right = true;
    for (uint32_t p = 0; p < world; p++) {
        const uint8_t *bytes = o->recvs[p].data;
        for (uint64_t i = 0; i < o->recvs[p].len; i++) {
            is_right = is_right && bytes[i] == (mixed(o->started_n, channel, p, rank) & 255);
        }
        free(o->sends[p].data);
        free(o->recvs[p].data);
    }
    o->is_busy = false;
    o->started_n++;
    return is_right;
}

/* ---- ranks ------------------------------------------------------------------------------------------------------------- */

/* Channel 0 is used by `carry`, the others by `start` and `test`. */
typedef struct worker {
    pthread_t thread;
    tg_link *link;
    uint32_t rank, world;
    uint64_t op_n;         /* on each channel */
    uint64_t aborts_after; /* so many starts; 0: never */
    bool listens;
    test_random random;
    operation operations[CHANNEL_N];
    uint64_t sent_len;
    const char *wrong; /* what was not as expected, or NULL */
    tg_detail why;
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool has_news;
} worker;

static void notify(void *context)
{
    worker *w = context;
    pthread_mutex_lock(&w->lock);
    w->has_news = true;
    pthread_cond_signal(&w->news);
    pthread_mutex_unlock(&w->lock);
}

/* Waits until the link has called notify since the last time. */
static bool await_news(worker *w)
{
    struct timespec until;
    int code = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    pthread_mutex_lock(&w->lock);
    while (!w->has_news && code == 0) {
        code = pthread_cond_timedwait(&w->news, &w->lock, &until);
    }
    w->has_news = false;
    pthread_mutex_unlock(&w->lock);
    return code == 0;
}

static void start_one(worker *w, uint32_t channel)
{
    operation *o = &w->operations[channel];
    if (w->aborts_after > 0 && --w->aborts_after == 0) {
        w->link->abort(w->link, "enough");
    }
    prepare(o, channel, w->rank, w->world);
    for (uint32_t p = 0; p < w->world; p++) {
        w->sent_len += o->sends[p].len;
    }
    o->is_busy = true;
    if (channel != 0) {
        if (w->link->start(w->link, channel, &o->op, &w->why) != TG_OK) {
            w->wrong = "start";
        }
    } else if (w->link->carry(w->link, &o->op, &w->why) != TG_OK) {
        w->wrong = "carry";
    } else if (!complete(o, channel, w->rank, w->world)) {
        w->wrong = "bytes of carry";
    }
}

static bool test_one(worker *w, uint32_t channel)
{
    operation *o = &w->operations[channel];
    tg_status status = w->link->test(w->link, channel, &w->why);
    if (status == TG_OK && !complete(o, channel, w->rank, w->world)) {
        w->wrong = "bytes";
    } else if (status != TG_OK && status != TG_MORE) {
        w->wrong = "test";
    }
    return status == TG_OK;
}

/* Starts and tests in an order of the rank's own until all operations are done. */
static void *work(void *argument)
{
    worker *w = argument;
    for (bool is_left = true; is_left && w->wrong == NULL;) {
        bool moved = false;
        is_left = false;
        for (uint32_t i = 0, first = (uint32_t)(test_bits(&w->random) % CHANNEL_N); i < CHANNEL_N && w->wrong == NULL;
             i++) {
            uint32_t channel = (first + i) % CHANNEL_N;
            operation *o = &w->operations[channel];
            is_left = is_left || o->is_busy || o->started_n < w->op_n;
            if (o->is_busy) {
                moved = test_one(w, channel) || moved;
            } else if (o->started_n < w->op_n && test_bits(&w->random) % 2 == 0) {
                start_one(w, channel);
                moved = true;
            } else {
                moved = moved || o->started_n < w->op_n; /* it may be started in the next round */
            }
        }
        if (w->listens && is_left && !moved && w->wrong == NULL && !await_news(w)) {
            w->wrong = "no call of notify";
        }
    }
    for (uint32_t channel = 0; channel < CHANNEL_N; channel++) { /* after a failure, buffers may be released at once */
        if (w->operations[channel].is_busy) {
            (void)complete(&w->operations[channel], channel, w->rank, w->world);
        }
    }
    return NULL;
}

/* The rank's second thread does the work; this one only listens. */
static void *listen_and_work(void *argument)
{
    worker *w = argument;
    pthread_t second;
    w->link->listen(w->link, notify, w);
    if (pthread_create(&second, NULL, work, w) == 0) {
        pthread_join(second, NULL);
    } else {
        w->wrong = "no second thread";
    }
    w->link->listen(w->link, NULL, NULL);
    return NULL;
}

static worker workers[WORLD_MAX];

static void run_world(uint32_t world, uint64_t op_n, uint64_t seed, unsigned listeners, uint64_t aborts_after)
{
    tg_threads *hub = NULL;
    MUST(tg_threads_new(&hub, world, 60000, NULL, why));
    memset(workers, 0, sizeof workers);
    for (uint32_t r = 0; r < world; r++) {
        worker *w = &workers[r];
        w->link = tg_threads_link(hub, r);
        w->rank = r;
        w->world = world;
        w->op_n = op_n;
        w->aborts_after = r == world / 2 ? aborts_after : 0;
        w->random.state = seed * 100 + r;
        w->listens = (listeners >> (r % 8) & 1) != 0;
        pthread_mutex_init(&w->lock, NULL);
        pthread_cond_init(&w->news, NULL);
        assert_int_equal(pthread_create(&w->thread, NULL, w->listens ? listen_and_work : work, w), 0);
    }
    for (uint32_t r = 0; r < world; r++) {
        worker *w = &workers[r];
        pthread_join(w->thread, NULL);
        if (w->wrong != NULL && (aborts_after == 0 || strstr(w->why.text, ": enough") == NULL)) {
            fail_msg("rank %u of %u: %s: %s", r, world, w->wrong, w->why.text);
        }
        assert_true(w->wrong != NULL || w->link->sent_len == w->sent_len);
        assert_true(aborts_after == 0 || r != world / 2 || w->wrong != NULL);
    }
    for (uint32_t r = 0; r < world; r++) {
        pthread_mutex_destroy(&workers[r].lock);
        pthread_cond_destroy(&workers[r].news);
    }
    tg_threads_free(hub);
}

static void any_order_of_starts_is_right(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 8, 11};
    for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++) {
        run_world(worlds[k], 60, k, 0, 0);
    }
}

static void listeners_are_told(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 8, 11};
    for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++) {
        run_world(worlds[k], 60, k, 0xFF, 0);
        run_world(worlds[k], 30, k, 0x5A, 0); /* some listen, others poll */
    }
}

static void buffers_are_free_after_an_abort(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 60; k++) {
        run_world(2 + (uint32_t)(k % 9), 60, k, k % 2 == 0 ? 0 : 0xFF, 1 + k * 3);
    }
}

/* ---- failures, step by step in one thread ------------------------------------------------------------------------------ */

enum { WORLD = 3, LEN = 100 };

typedef struct table {
    tg_threads *hub;
    uint8_t bytes[4][WORLD][2][LEN]; /* of a channel and a rank: sent, received */
    tg_span sends[4][WORLD][WORLD], recvs[4][WORLD][WORLD];
    tg_op ops[4][WORLD];
} table;

/* On every channel, a rank sends LEN bytes to the next one. */
static table *table_new(uint32_t timeout_ms)
{
    table *t = calloc(1, sizeof *t);
    assert_non_null(t);
    MUST(tg_threads_new(&t->hub, WORLD, timeout_ms, NULL, why));
    for (uint32_t c = 0; c < 4; c++) {
        for (uint32_t r = 0; r < WORLD; r++) {
            t->sends[c][r][(r + 1) % WORLD] = (tg_span){t->bytes[c][r][0], LEN};
            t->recvs[c][r][(r + 2) % WORLD] = (tg_span){t->bytes[c][r][1], LEN};
            t->ops[c][r] = (tg_op){
                .kind = TG_ALLTOALLV, .rank = r, .world = WORLD, .sends = t->sends[c][r], .recvs = t->recvs[c][r]};
            memset(t->bytes[c][r][0], (int)(1 + c * 10 + r), LEN);
        }
    }
    return t;
}

static void table_free(table *t)
{
    tg_threads_free(t->hub);
    free(t);
}

static tg_status start_on(table *t, uint32_t channel, uint32_t rank, tg_detail *why)
{
    tg_link *link = tg_threads_link(t->hub, rank);
    return link->start(link, channel, &t->ops[channel][rank], why);
}

static tg_status test_on(table *t, uint32_t channel, uint32_t rank, tg_detail *why)
{
    tg_link *link = tg_threads_link(t->hub, rank);
    return link->test(link, channel, why);
}

static void assert_status(tg_status found, tg_status expected)
{
    assert_int_equal(found, expected);
}

static void a_rank_waits_only_for_its_own_messages(void **state)
{
    (void)state;
    table *t = table_new(60000);
    tg_link *link = tg_threads_link(t->hub, 0);
    assert_int_equal(link->channel_n, 64);
    assert_status(test_on(t, 3, 0, NULL), TG_OK); /* nothing is under way */
    /* Channel 1: rank 2 sends to nobody, and rank 1 receives from rank 0 alone. */
    t->sends[1][2][0].len = t->recvs[1][0][2].len = 0;
    t->sends[1][1][2].len = t->recvs[1][2][1].len = 0;
    MUST(start_on(t, 1, 2, why));
    assert_status(test_on(t, 1, 2, NULL), TG_OK);
    MUST(start_on(t, 1, 2, why)); /* its second, before the others' first */
    assert_status(test_on(t, 1, 2, NULL), TG_OK);
    MUST(start_on(t, 1, 0, why));
    assert_status(test_on(t, 1, 0, NULL), TG_MORE);
    MUST_FAIL(TG_E_ARGUMENT, "already under way on channel 1", start_on(t, 1, 0, why));
    MUST(start_on(t, 1, 1, why));
    assert_status(test_on(t, 1, 1, NULL), TG_OK);
    assert_status(test_on(t, 1, 0, NULL), TG_OK);
    assert_memory_equal(t->bytes[1][0][0], t->bytes[1][1][1], LEN);
    MUST_FAIL(TG_E_ARGUMENT, "channel 64 does not exist", link->start(link, 64, &t->ops[0][0], why));
    MUST_FAIL(TG_E_ARGUMENT, "channel 64 does not exist", link->test(link, 64, why));
    MUST_FAIL(TG_E_ARGUMENT, "was given to the link of rank 0 of 3", link->start(link, 2, &t->ops[2][1], why));
    table_free(t);
}

static void wrong_lengths_fail_all_channels(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        table *t = table_new(60000);
        const char *sentence = "rank 0 sends 100 bytes, but rank 1 expects 99";
        MUST(start_on(t, 1, 2, why));
        MUST(start_on(t, 2, 0, why));
        if (variant == 0) {
            t->recvs[2][1][0].len = LEN - 1;
        } else if (variant == 1) {
            t->sends[2][1][0] = (tg_span){t->bytes[2][1][0], 7}; /* which rank 0 does not expect */
            sentence = "rank 1 sends 7 bytes, but rank 0 expects 0";
        } else if (variant == 2) {
            t->ops[2][1].kind = TG_ALLGATHERV;
            sentence = "rank 0 sends 100 bytes, but rank 1 expects 100";
        } else { /* rank 2 has done its operation on channel 3 when rank 0 expects something of it */
            t->sends[3][2][0].len = t->recvs[3][2][1].len = 0;
            MUST(start_on(t, 3, 2, why));
            MUST_FAIL(TG_E_LINK, "rank 2 sends 0 bytes, but rank 0 expects 100", start_on(t, 3, 0, why));
            sentence = "rank 2 sends 0 bytes, but rank 0 expects 100";
        }
        MUST_FAIL(TG_E_LINK, sentence, start_on(t, 2, 1, why));
        MUST_FAIL(TG_E_LINK, sentence, test_on(t, 1, 2, why));
        MUST_FAIL(TG_E_LINK, sentence, test_on(t, 2, 0, why));
        table_free(t);
    }
}

static void count(void *context)
{
    (*(int *)context)++;
}

/* Three operations are in flight when rank 1 gives up; a fourth is done. */
static void a_reason_reaches_all_operations(void **state)
{
    (void)state;
    table *t = table_new(60000);
    tg_link *first = tg_threads_link(t->hub, 0), *second = tg_threads_link(t->hub, 1);
    int calls = 0;
    for (uint32_t r = 0; r < WORLD; r++) {
        MUST(start_on(t, 0, r, why));
    }
    first->listen(first, count, &calls);
    for (uint32_t c = 1; c < 4; c++) {
        MUST(start_on(t, c, 0, why));
    }
    MUST(start_on(t, 2, 1, why));
    assert_int_equal(calls, 0);
    second->abort(second, "no more");
    assert_int_equal(calls, 1);
    for (uint32_t c = 1; c < 4; c++) {
        MUST_FAIL(TG_E_LINK, "rank 1: no more", test_on(t, c, 0, why));
    }
    MUST_FAIL(TG_E_LINK, "rank 1: no more", test_on(t, 2, 1, why));
    MUST_FAIL(TG_E_LINK, "rank 1: no more", start_on(t, 3, 2, why));
    MUST_FAIL(TG_E_LINK, "rank 1: no more", start_on(t, 0, 2, why));
    assert_status(test_on(t, 0, 0, NULL), TG_OK); /* it was done before */
    first->listen(first, NULL, NULL);
    table_free(t);
}

/* Rank 1 waits for rank 2 on channel 1, and rank 0 for rank 1 on three channels: the error names rank 2. */
static void a_rank_that_does_not_join_is_named(void **state)
{
    (void)state;
    enum { TIMEOUT_MS = 150 };
    const char *sentence = "rank 2 did not join an operation within 150 ms";
    for (int listens = 0; listens < 2; listens++) {
        static worker w;
        table *t = table_new(TIMEOUT_MS);
        tg_link *link = tg_threads_link(t->hub, 0);
        memset(&w, 0, sizeof w);
        pthread_mutex_init(&w.lock, NULL);
        pthread_cond_init(&w.news, NULL);
        if (listens) {
            link->listen(link, notify, &w);
        }
        for (uint32_t c = 0; c < 4; c++) {
            t->recvs[c][0][2].len = t->sends[c][2][0].len = 0;
        }
        for (uint32_t c = 1; c < 4; c++) {
            MUST(start_on(t, c, 0, why));
        }
        t->recvs[0][1][0].len = t->sends[0][0][1].len = 0;
        MUST(start_on(t, 0, 1, why));
        if (listens) {
            assert_true(await_news(&w));
        } else {
            const struct timespec long_time = {0, (TIMEOUT_MS + 20) * 1000000L};
            assert_status(test_on(t, 1, 0, NULL), TG_MORE);
            nanosleep(&long_time, NULL);
        }
        for (uint32_t c = 1; c < 4; c++) {
            MUST_FAIL(TG_E_LINK, sentence, test_on(t, c, 0, why));
        }
        MUST_FAIL(TG_E_LINK, sentence, test_on(t, 0, 1, why));
        link->listen(link, NULL, NULL);
        pthread_mutex_destroy(&w.lock);
        pthread_cond_destroy(&w.news);
        table_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_of_starts_is_right),       cmocka_unit_test(listeners_are_told),
        cmocka_unit_test(buffers_are_free_after_an_abort),    cmocka_unit_test(a_rank_waits_only_for_its_own_messages),
        cmocka_unit_test(wrong_lengths_fail_all_channels),    cmocka_unit_test(a_reason_reaches_all_operations),
        cmocka_unit_test(a_rank_that_does_not_join_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
