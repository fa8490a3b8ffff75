/* When a run counts as diverged, by the course of its loss. */
#include "support.h"

#include "diverged.h"

#include <math.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_course)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
