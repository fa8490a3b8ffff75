/* A world whose ranks are reducers, over a link that performs operations in any order. */
#ifndef TG_TESTS_FLIGHT_H
#define TG_TESTS_FLIGHT_H

#include "loose.h"
#include "world.h"

typedef struct test_flight {
    test_world world;
    test_loose *link;
    tg_reducer **reducers;
    test_random random;
    uint32_t dead; /* a rank that does nothing; the world's size: none */
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

#endif
