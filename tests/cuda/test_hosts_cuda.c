/* Hosts of ranks with and without a device, which sum first: the same averages, residuals and saved states, to the bit, as on the CPU
 * alone. Leaders have residuals; a failure on any rank changes nothing on any. */
#include "hosts.h"
#include "mixed.h"

#include <stdlib.h>
#include <string.h>

/* Ranks, and ranks of a host. */
static const struct {
    uint32_t n, size;
} worlds[] = {{4, 2}, {6, 3}, {2, 2}};

static test_setup setup_of(size_t run, uint32_t size, tg_dtype dtype)
{
    test_setup setup = test_hosts_setup(run);
    setup.host_size = size;
    setup.dtype = dtype;
    setup.verify_every = 2;
    return setup;
}

static void must_be_same(const mixed_flight *f, const test_world *twin, const test_setup *setup)
{
    if (!test_world_same(&f->flight.world, twin) || !test_world_identical(&f->flight.world)) {
        fail_msg("%s, %u ranks in hosts of %u", setup->recipe, twin->n, setup->host_size);
    }
}

static void compare(const test_setup *setup, uint32_t n, mixed_kind kind)
{
    test_world twin = test_world_new(n, setup);
    mixed_flight f;
    assert_true(test_world_exists(&twin));
    mixed_take_off(&f, n, setup, test_run_groups, kind, n);
    for (uint64_t step = 0; step < 2; step++) {
        mixed_fly(&f, step, step + 1);
        test_world_step(&twin, step);
        must_be_same(&f, &twin, setup);
    }
    mixed_land(&f);
    test_world_free(&twin);
}

static void devices_change_no_bits(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_HOSTS_RUN_N; run++) {
        size_t world = run % 3;
        test_setup setup = setup_of(run, worlds[world].size, run % 4 == 1 ? TG_BF16 : TG_FP32);
        compare(&setup, worlds[world].n, run % 2 == 0 ? MIXED_EVEN : MIXED_ODD);
    }
    test_setup dense = setup_of(0, 2, TG_FP16), sparse = setup_of(3, 2, TG_FP32);
    compare(&dense, 4, MIXED_ALL);
    compare(&sparse, 4, MIXED_ALL);
}

static void failures_change_nothing(void **state)
{
    test_setup setup = setup_of(4, 2, TG_FP32);
    (void)state;
    for (uint32_t bad = 0; bad < 4; bad++) { /* leaders and others, with a device and without */
        test_world twin = test_world_new(4, &setup);
        mixed_flight f;
        mixed_take_off(&f, 4, &setup, test_run_groups, bad < 2 ? MIXED_EVEN : MIXED_ODD, bad);
        test_fail_and_go_on(&f.flight, &twin, bad);
        mixed_land(&f);
        test_world_free(&twin);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_change_no_bits),
        cmocka_unit_test(failures_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
