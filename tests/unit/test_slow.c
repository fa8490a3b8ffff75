/* The emulated slow link: no operation is done before its bytes could have travelled, whether one is under way or several. */
#include "slow.h"
#include "support.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static tg_status carry_nothing(tg_link *self, const tg_op *op, tg_detail *why)
{
    (void)why;
    for (uint32_t r = 0; r < op->world; r++) {
        self->sent_len += op->sends[r].len;
    }
    return TG_OK;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double carried(uint64_t sent, uint64_t received, double bits, double latency)
{
    tg_link inner = {.carry = carry_nothing};
    tg_span sends[3] = {{NULL, 0}, {NULL, sent / 2}, {NULL, sent - sent / 2}}, recvs[3] = {{NULL, 0}, {NULL, received}};
    tg_op op = {.kind = TG_ALLTOALLV, .world = 3, .sends = sends, .recvs = recvs};
    tr_slow slow;
    tr_slow_init(&slow, &inner, bits, latency);
    double start = seconds();
    assert_int_equal(slow.link.carry(&slow.link, &op, NULL), TG_OK);
    assert_int_equal(slow.link.sent_len, sent);
    assert_null(slow.link.start); /* the inner link has none */
    tr_slow_destroy(&slow);
    return seconds() - start;
}

/* Never less than it says; how much more depends on who else uses the machine. */
static void test_slow_link(void **state)
{
    (void)state;
    assert_true(carried(125000, 1000, 10e6, 0) >= 0.1);
    assert_true(carried(1000, 250000, 10e6, 0) >= 0.2);
    assert_true(carried(40, 40, 1e9, 0.05) >= 0.05);
    assert_true(carried(0, 0, 1e3, 5) < 2.5); /* nothing to hold back */
}

/* ---- several operations at once, over the threads link ------------------------------------------------------------------- */

enum { CHANNEL_N = 3, LEN = 50000 };

/* Both ranks, driven by one thread. */
typedef struct pair {
    tg_threads *hub;
    tr_slow slow[2];
    uint8_t from[2][LEN], to[2][CHANNEL_N][LEN];
    tg_span sends[2][2], recvs[2][CHANNEL_N][2];
    tg_op ops[2][CHANNEL_N];
    pthread_mutex_t lock;
    uint64_t calls;
} pair;

static pair *pair_new(double bits, double latency, uint64_t len)
{
    pair *p = test_room(sizeof *p);
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    assert_int_equal(tg_threads_new(&p->hub, 2, 60000, NULL, NULL), TG_OK);
    for (uint32_t r = 0; r < 2; r++) {
        tr_slow_init(&p->slow[r], tg_threads_link(p->hub, r), bits, latency);
        memset(p->from[r], (int)r + 1, LEN);
        p->sends[r][1 - r] = (tg_span){p->from[r], len};
        for (uint32_t c = 0; c < CHANNEL_N; c++) {
            p->recvs[r][c][1 - r] = (tg_span){p->to[r][c], len};
            p->ops[r][c] =
                (tg_op){.kind = TG_ALLTOALLV, .rank = r, .world = 2, .sends = p->sends[r], .recvs = p->recvs[r][c]};
        }
    }
    return p;
}

static void pair_free(pair *p)
{
    for (uint32_t r = 0; r < 2; r++) {
        tr_slow_destroy(&p->slow[r]);
    }
    tg_threads_free(p->hub);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static void start_all(pair *p)
{
    for (uint32_t r = 0; r < 2; r++) {
        for (uint32_t c = 0; c < CHANNEL_N; c++) {
            assert_int_equal(p->slow[r].link.start(&p->slow[r].link, c, &p->ops[r][c], NULL), TG_OK);
        }
    }
}

/* Tests all operations of both ranks; those that are done get the time of that, once. Returns how many are under way. */
static uint32_t test_all(pair *p, double done[2][CHANNEL_N])
{
    uint32_t left = 0;
    for (uint32_t r = 0; r < 2; r++) {
        for (uint32_t c = 0; c < CHANNEL_N; c++) {
            tg_status status = done[r][c] > 0 ? TG_OK : p->slow[r].link.test(&p->slow[r].link, c, NULL);
            assert_true(status == TG_OK || status == TG_MORE);
            done[r][c] = status == TG_OK && done[r][c] <= 0 ? seconds() : done[r][c];
            left += status == TG_MORE;
        }
    }
    return left;
}

static void channels_share_the_rate(void **state)
{
    (void)state;
    pair *p = pair_new(8e6, 0.01, LEN); /* 0.05 s for each operation alone */
    double done[2][CHANNEL_N] = {{0}}, start = seconds();
    start_all(p);
    while (test_all(p, done) > 0) {
        (void)sched_yield();
    }
    for (uint32_t r = 0; r < 2; r++) {
        double last = 0;
        for (uint32_t c = 0; c < CHANNEL_N; c++) {
            last = done[r][c] > last ? done[r][c] : last;
            assert_true(done[r][c] - start >= 0.06);
            assert_int_equal(p->to[r][c][LEN - 1], 2 - r);
        }
        assert_true(last - start >= 0.05 * CHANNEL_N + 0.01);
        assert_int_equal(p->slow[r].link.sent_len, LEN * CHANNEL_N);
    }
    pair_free(p);
}

static void latencies_overlap(void **state)
{
    (void)state;
    pair *p = pair_new(1e12, 1, 8);
    double done[2][CHANNEL_N] = {{0}}, start = seconds();
    start_all(p);
    while (test_all(p, done) > 0) {
        (void)sched_yield();
    }
    assert_true(seconds() - start >= 1 && seconds() - start < 1.9);
    pair_free(p);
}

static void count_call(void *context)
{
    pair *p = context;
    pthread_mutex_lock(&p->lock);
    p->calls++;
    pthread_mutex_unlock(&p->lock);
}

static uint64_t calls(pair *p)
{
    pthread_mutex_lock(&p->lock);
    uint64_t n = p->calls;
    pthread_mutex_unlock(&p->lock);
    return n;
}

/* Tests only after calls: so a call must follow each moment at which an operation can be done. */
static void listeners_are_called_when_it_is_time(void **state)
{
    (void)state;
    pair *p = pair_new(8e6, 0.01, LEN / 5);
    double done[2][CHANNEL_N] = {{0}}, start = seconds();
    for (uint32_t r = 0; r < 2; r++) {
        p->slow[r].link.listen(&p->slow[r].link, count_call, p);
    }
    start_all(p);
    uint64_t seen = calls(p);
    while (test_all(p, done) > 0) {
        while (calls(p) == seen) {
            assert_true(seconds() - start < 30);
            (void)sched_yield();
        }
        seen = calls(p); /* before the next test, so that no call is missed */
    }
    assert_true(seconds() - start >= 0.04);
    for (uint32_t r = 0; r < 2; r++) {
        p->slow[r].link.listen(&p->slow[r].link, NULL, NULL);
    }
    pair_free(p);
}

static void wrong_channels_are_refused(void **state)
{
    (void)state;
    tg_detail why = {""};
    pair *p = pair_new(8e6, 0.01, 8);
    assert_int_equal(p->slow[0].link.start(&p->slow[0].link, 64, &p->ops[0][0], &why), TG_E_ARGUMENT);
    assert_string_equal(why.text, "channel 64 does not exist: there are 64");
    assert_int_equal(p->slow[0].link.test(&p->slow[0].link, 64, &why), TG_E_ARGUMENT);
    pair_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_link),
        cmocka_unit_test(channels_share_the_rate),
        cmocka_unit_test(latencies_overlap),
        cmocka_unit_test(listeners_are_called_when_it_is_time),
        cmocka_unit_test(wrong_channels_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
