/* When a run counts as diverged, by the course of its loss; and that an emulated link holds back for as long as it says. */
#include "support.h"

#include "diverged.h"
#include "slow.h"

#include <math.h>
#include <time.h>

static uint64_t verdict(double (*loss)(int), int n)
{
    tr_losses l;
    tr_losses_begin(&l, 10);
    for (int i = 0; i < n; i++) {
        tr_losses_add(&l, (uint64_t)i + 1, loss(i));
    }
    return tr_losses_diverged(&l);
}

static double learns(int i)
{
    return 2.4 * exp(-i / 40.0);
}

static double wavers(int i)
{
    return i < 30 ? 8 : 1.0;
}

static double never_learns(int i)
{
    (void)i;
    return log(10);
}

static double bursts(int i)
{
    return i < 20 ? 2.0 : 9.0;
}

static double collapses(int i)
{
    return i < 20 ? 2.0 : i < 40 ? 9.0 : log(10);
}

static double one_spike(int i)
{
    return i == 25 ? 12 : log(10);
}

static void test_course(void **state)
{
    (void)state;
    assert_int_equal(verdict(learns, 100), 0);
    assert_int_equal(verdict(wavers, 100), 0); /* starts at 8 and never rises above */
    assert_int_equal(verdict(never_learns, 100), 0);
    assert_int_equal(verdict(one_spike, 100), 0);
    assert_int_equal(verdict(bursts, 22), 0); /* not yet */
    uint64_t at = verdict(bursts, 100);
    assert_in_range(at, 21, 30); /* the mean of ten steps is above 1.5 * ln 10 */
    assert_int_equal(verdict(collapses, 100), at);
    assert_int_equal(verdict(bursts, 15), 0);
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_course), cmocka_unit_test(test_slow_link)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
