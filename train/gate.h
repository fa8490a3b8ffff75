/* A barrier for the threads of a run. All wait for each other, or all learn that one of them has failed. */
#ifndef TR_GATE_H
#define TR_GATE_H

#include "data.h"

#include <pthread.h>

typedef struct tr_gate {
    pthread_mutex_t lock;
    pthread_cond_t change;
    uint32_t workers, arrived;
    uint64_t passed; /* number of times that all have passed the barrier */
    int failed;
    char why[TR_WHY];
} tr_gate;

void tr_gate_init(tr_gate *g, uint32_t workers);
void tr_gate_destroy(tr_gate *g);

/* Waits for all workers. Returns 0, or -1 if any worker has failed, now or before. */
int tr_gate_meet(tr_gate *g);

/* Fails the barrier permanently: nobody waits any more. Only the first reason is kept. */
void tr_gate_fail(tr_gate *g, const char *why);

#endif
