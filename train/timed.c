/* Measures tg_reduce with a link that forwards every call to another link and takes the time. What happens before the first
 * operation is encoding, what happens inside an operation is exchange, and what happens after one is decoding. */
#include "timed.h"

#include <time.h>

typedef struct timed_link {
    tg_link link; /* must be first: a tg_link pointer is cast to timed_link */
    tg_link *inner;
    tr_times *times;
    double *phase; /* the member of `times` that the codec's time is added to */
    double since;  /* when this phase began */
} timed_link;

double tr_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    timed_link *t = (timed_link *)(void *)self;
    double start = tr_seconds();
    *t->phase += start - t->since;
    tg_status status = t->inner->carry(t->inner, op, why);
    t->phase = &t->times->decode;
    t->since = tr_seconds();
    t->times->exchange += t->since - start;
    return status;
}

static void abort_inner(tg_link *self, const char *reason)
{
    timed_link *t = (timed_link *)(void *)self;
    t->inner->abort(t->inner, reason);
}

tg_status tr_timed_reduce(tr_times *times, tg_exchange *x, tg_link *link, uint64_t step, void *const *grads,
                          tg_detail *why)
{
    timed_link t = {.link = {.carry = carry, .abort = abort_inner},
                    .inner = link,
                    .times = times,
                    .phase = &times->encode,
                    .since = tr_seconds()};
    tg_status status = tg_reduce(x, &t.link, step, grads, why);
    *t.phase += tr_seconds() - t.since;
    return status;
}
