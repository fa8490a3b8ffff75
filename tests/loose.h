/* A link between ranks in one thread that performs operations in any order: each call of `test` may or may not make progress. For
 * tests of steps in flight with any number of ranks, faults included. */
#ifndef TG_TESTS_LOOSE_H
#define TG_TESTS_LOOSE_H

#include "support.h"

typedef struct test_loose test_loose;

/* `seed` decides which call makes progress. */
test_loose *test_loose_new(uint32_t world, uint32_t channels, uint64_t seed);
void test_loose_free(test_loose *l);
tg_link *test_loose_link(test_loose *l, uint32_t rank);

/* What happens to a message that is about to be delivered. */
typedef struct test_meddler {
    void (*meddle)(void *context, uint32_t channel, uint32_t from, uint32_t to, void *data, uint64_t len);
    void *context;
} test_meddler;
void test_loose_meddle(test_loose *l, test_meddler meddler);

/* From now on this rank neither starts nor takes anything; the others find that out after some calls of `test`. */
void test_loose_kill(test_loose *l, uint32_t rank);

/* The same as soon as this rank has operations of so many groups under way; until then, none of them ends. */
void test_loose_kill_in_flight(test_loose *l, uint32_t rank, uint32_t groups);
bool test_loose_is_dead(const test_loose *l, uint32_t rank);

/* Messages that a rank has sent. */
uint64_t test_loose_messages(const test_loose *l, uint32_t rank);

#endif
