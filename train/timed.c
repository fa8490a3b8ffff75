/* Measures the exchange with links that forward every call to another link and take the time; see timed.h. With tg_reduce, what
 * happens before the first operation is encoding, what happens inside an operation is exchange, and what happens after one is
 * decoding. */
#include "timed.h"

#include <math.h>
#include <pthread.h>

static double seconds_by(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double tr_seconds(void)
{
    return seconds_by(CLOCK_MONOTONIC);
}

/* ---- tg_reduce ----------------------------------------------------------------------------------------------------------- */

typedef struct timed_link {
    tg_link link; /* must be first: a tg_link pointer is cast to timed_link */
    tg_link *inner;
    tr_times *times;
    double *phase; /* the member of `times` that the codec's time is added to */
    double since;  /* when this phase began */
} timed_link;

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

/* ---- a reducer ----------------------------------------------------------------------------------------------------------- */

/* The reducer's thread calls the link, or `start` would be called by the caller's. Adds what the thread has done since its last
 * call to `phase`. */
static void enter(tr_timed *t, double *phase)
{
    if (t->link.listen == NULL) {
        return;
    }
    if (!t->has_clock) {
        t->has_clock = pthread_getcpuclockid(pthread_self(), &t->clock) == 0;
        t->since = 0; /* the thread has done nothing else before */
    }
    if (t->has_clock && phase != NULL) {
        *phase += seconds_by(t->clock) - t->since;
    }
}

static void leave(tr_timed *t, int decodes)
{
    t->decodes = decodes;
    if (t->has_clock) {
        t->since = seconds_by(t->clock);
    }
}

static tg_status start_timed(tg_link *self, uint32_t channel, const tg_op *op, tg_detail *why)
{
    tr_timed *t = (tr_timed *)(void *)self;
    enter(t, t->decodes ? &t->times->decode : &t->times->encode);
    if (t->under_way++ == 0) {
        t->began = tr_seconds();
    }
    tg_status status = t->inner->start(t->inner, channel, op, why);
    leave(t, 0);
    return status;
}

static tg_status test_timed(tg_link *self, uint32_t channel, tg_detail *why)
{
    tr_timed *t = (tr_timed *)(void *)self;
    enter(t, t->decodes ? &t->times->decode : NULL);
    tg_status status = t->inner->test(t->inner, channel, why);
    if (status == TG_OK && --t->under_way == 0) {
        t->times->exchange += tr_seconds() - t->began;
    }
    leave(t, status == TG_OK);
    return status;
}

static tg_status carry_timed(tg_link *self, const tg_op *op, tg_detail *why)
{
    tr_timed *t = (tr_timed *)(void *)self;
    return t->inner->carry(t->inner, op, why);
}

static void abort_timed(tg_link *self, const char *reason)
{
    tr_timed *t = (tr_timed *)(void *)self;
    t->inner->abort(t->inner, reason);
}

static void listen_timed(tg_link *self, void (*notify)(void *context), void *context)
{
    tr_timed *t = (tr_timed *)(void *)self;
    t->inner->listen(t->inner, notify, context);
}

void tr_timed_init(tr_timed *t, tg_link *inner, tr_times *times)
{
    *t = (tr_timed){.link = {.carry = carry_timed,
                             .abort = abort_timed,
                             .start = start_timed,
                             .test = test_timed,
                             .listen = inner->listen != NULL ? listen_timed : NULL,
                             .channel_n = inner->channel_n},
                    .inner = inner,
                    .times = times};
}

void tr_timed_begin(tr_timed *t)
{
    t->under_way = 0;
    t->decodes = 0;
    if (t->has_clock) { /* what the thread did between steps is nobody's */
        t->since = seconds_by(t->clock);
    }
}

/* The thread has written the averages after its last call. */
void tr_timed_end(tr_timed *t)
{
    if (t->has_clock) {
        t->times->decode += seconds_by(t->clock) - t->since;
    } else if (t->link.listen == NULL) {
        t->times->encode = t->times->decode = NAN;
    }
}
