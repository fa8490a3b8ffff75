/* A world whose ranks are reducers, over a link that performs operations in any order. */
#ifndef TG_TESTS_FLIGHT_H
#define TG_TESTS_FLIGHT_H

#include "loose.h"
#include "world.h"

/* What is done around a step, where gradients are not in host memory; see tests/cuda/mixed.h. */
typedef struct test_around {
    void (*before)(void *context, const test_world *w);
    void (*after)(void *context, const test_world *w);
    void *context;
} test_around;

typedef struct test_flight {
    test_world world;
    test_loose *link;
    tg_reducer **reducers;
    test_random random;
    uint32_t dead; /* a rank that does nothing; the world's size: none */
    test_around around;
} test_flight;

test_flight test_take_off(const test_setup *setup, uint32_t n, const uint32_t *group_of, uint64_t seed);
/* The same, with ranks in hosts of so many. */
test_flight test_take_off_hosted(const test_setup *setup, uint32_t n, const uint32_t *group_of, uint32_t host_size,
                                 uint64_t seed);
void test_land(test_flight *f);

/* Reports all tensors of all ranks ready, some at a time and in an order of each rank's own, and tests reducers in between, until
 * all have ended. */
void test_fly(test_flight *f, uint64_t step);

void test_must_succeed(const test_flight *f);

/* ---- what tests of steps in flight share --------------------------------------------------------------------------------- */

enum { TEST_RUN_N = 21, TEST_RUN_TENSOR_N = 7 };

typedef struct test_run {
    const char *recipe, *exchange;
} test_run;

extern const test_run test_runs[TEST_RUN_N]; /* every route, every protocol */
extern const uint64_t test_run_lens[TEST_RUN_TENSOR_N];
extern const uint32_t test_run_groups[TEST_RUN_TENSOR_N]; /* three of them */

/* Two steps, the second at first with a NaN on rank `bad`. All ranks must name it, nothing may change, and the step without the NaN
 * must give the bits of `twin`, which runs in lockstep. */
void test_fail_and_go_on(test_flight *f, test_world *twin, uint32_t bad);

/* One step in which one bit of message number `at` is flipped. All ranks must fail, and `twin`, filled with the same gradients,
 * shows that nothing has changed; unless the step has no such message, or it is a vote: a rank whose votes were all sound may
 * then have finished. */
void test_fail_by_damage(test_flight *f, test_world *twin, uint64_t at);

#endif
