/* A barrier that can fail; see gate.h. */
#include "gate.h"

#include <stdio.h>

void tr_gate_init(tr_gate *g, uint32_t workers)
{
    *g = (tr_gate){.workers = workers};
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->change, NULL);
}

void tr_gate_destroy(tr_gate *g)
{
    pthread_cond_destroy(&g->change);
    pthread_mutex_destroy(&g->lock);
}

int tr_gate_meet(tr_gate *g)
{
    pthread_mutex_lock(&g->lock);
    uint64_t passed = g->passed;
    if (++g->arrived == g->workers) {
        g->arrived = 0;
        g->passed++;
        pthread_cond_broadcast(&g->change);
    }
    while (g->passed == passed && !g->failed) {
        pthread_cond_wait(&g->change, &g->lock);
    }
    int failed = g->failed;
    pthread_mutex_unlock(&g->lock);
    return failed ? -1 : 0;
}

void tr_gate_fail(tr_gate *g, const char *why)
{
    pthread_mutex_lock(&g->lock);
    if (!g->failed) {
        g->failed = 1;
        (void)snprintf(g->why, sizeof g->why, "%s", why);
    }
    pthread_cond_broadcast(&g->change);
    pthread_mutex_unlock(&g->lock);
}
