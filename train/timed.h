/* Time measurement: seconds, and how long the phases of tg_reduce take. */
#ifndef TR_TIMED_H
#define TR_TIMED_H

#include "run.h"

/* Seconds of a monotonic clock. */
double tr_seconds(void);

/* tg_reduce, which adds the seconds that it took to times->encode, ->exchange and ->decode. */
tg_status tr_timed_reduce(tr_times *times, tg_exchange *x, tg_link *link, uint64_t step, void *const *grads,
                          tg_detail *why);

#endif
