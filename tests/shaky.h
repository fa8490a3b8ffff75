/* A link that hands operations to another one, and damages, delays or loses messages. For tests of steps in flight. */
#ifndef TG_TESTS_SHAKY_H
#define TG_TESTS_SHAKY_H

#include "tersegrad/tersegrad.h"

#include <stdbool.h>

enum { TEST_SHAKY_CHANNELS = 64, TEST_SHAKY_WORLD = 8, TEST_LATE_MS = 40 };

typedef enum test_fault {
    TEST_CALM,
    TEST_DAMAGE, /* one bit of what is received in the operation */
    TEST_LATE,   /* the operation ends TEST_LATE_MS later */
    TEST_LOSS,   /* the rank does not join the operation */
    TEST_DEATH,  /* nor any later one */
    TEST_STOP,   /* `stop` is called when the operation starts */
    TEST_FAULT_N
} test_fault;

typedef struct test_shaky {
    tg_link link; /* must be first: a tg_link pointer is cast to test_shaky */
    tg_link *inner;
    uint32_t rank, world;
    void (*stop)(void);
    test_fault kind;
    uint64_t at;      /* the operation, among those that this rank starts in a step */
    uint64_t started; /* operations; set to 0 before a step */
    uint64_t bit;     /* that is flipped */
    bool hits_vote;   /* what was damaged */
    struct {
        const tg_op *op;
        bool is_lost, is_damaged;
        uint64_t until_ms; /* it is held back */
    } channels[TEST_SHAKY_CHANNELS];
} test_shaky;

/* Calm at first. `inner` must perform several operations at once. */
void test_shaky_init(test_shaky *s, tg_link *inner, uint32_t rank, uint32_t world, void (*stop)(void));

#endif
