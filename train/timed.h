/* Time measurement: seconds, and how long the phases of a step's exchange take, with tg_reduce and with a reducer. */
#ifndef TR_TIMED_H
#define TR_TIMED_H

#include "run.h"

#include <time.h>

/* Seconds of a monotonic clock. */
double tr_seconds(void);

/* tg_reduce, which adds the seconds that it took to times->encode, ->exchange and ->decode. */
tg_status tr_timed_reduce(tr_times *times, tg_exchange *x, tg_link *link, uint64_t step, void *const *grads,
                          tg_detail *why);

/* A link for a reducer that forwards to another one, and measures:
 *     exchange         the time in which at least one operation was under way
 *     encode, decode   CPU time of the reducer's thread between its calls of the link, because the thread sleeps in between. After
 *                      an operation that is done it counts as decoding, before one that starts as encoding. A thread that finishes
 *                      one group and encodes the next without a call in between counts both as decoding. NAN if the link cannot
 *                      listen, because the reducer then has no thread.
 */
typedef struct tr_timed {
    tg_link link; /* must be first: a tg_link pointer is cast to tr_timed */
    tg_link *inner;
    tr_times *times;
    clockid_t clock;    /* CPU time of the reducer's thread ... */
    int has_clock;      /* ... once it has called */
    double since;       /* by that clock: when the last call returned */
    int decodes;        /* what the thread has done since then */
    uint32_t under_way; /* operations */
    double began;       /* when the first of them was started */
} tr_timed;

/* `t` must stay where it is, and `inner` and `times` live as long. `inner` has `start`. */
void tr_timed_init(tr_timed *t, tg_link *inner, tr_times *times);

/* Around a step: before tg_reducer_begin, and after tg_reducer_wait. */
void tr_timed_begin(tr_timed *t);
void tr_timed_end(tr_timed *t);

#endif
