/* Tersegrad for local steps: a worker takes several optimizer steps on its own, and then all exchange how far their weights have
 * moved, as if that were a gradient (docs/local-steps.md). A round, for each tensor:
 *
 *     start = weights                              the same on all workers
 *     ... steps of the worker's own optimizer ...
 *     tg_local_move(move, start, weights, ...)     start - weights
 *     tg_reduce(..., move, ...)                    by any recipe; `move` becomes the average over the workers
 *     tg_local_outer(start, velocity, move, ...)   the outer step
 *     tg_local_mix(weights, start, 0, ...)         weights = start, the same bits on all workers
 *
 * All arithmetic is fp32 in the order given here, without fused operations. The rules of tersegrad.h apply. */
#ifndef TERSEGRAD_LOCAL_H
#define TERSEGRAD_LOCAL_H

#include <tersegrad/tersegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- schedules ------------------------------------------------------------------------------------------ */

#define TG_SCHEDULE_MAX 32

/* How many steps a round has: every[i] for rounds that begin at step from[i] or later. */
typedef struct tg_schedule {
    uint32_t n;
    uint64_t from[TG_SCHEDULE_MAX]; /* increasing; from[0] is 0 */
    uint64_t every[TG_SCHEDULE_MAX];
} tg_schedule;

/* Reads "H" or "H,STEP:H,STEP:H", such as "1,200:4,2000:8". Every H is at least 1, and steps increase. */
TG_API tg_status tg_schedule_read(tg_schedule *out, const char *text, tg_detail *why) TG_CHECKED;

/* A round: steps first to first + steps - 1. */
typedef struct tg_round {
    uint64_t number; /* from 0 */
    uint64_t first, steps;
} tg_round;

/* Writes the round that a step is in to *out. */
TG_API void tg_schedule_round(tg_round *out, const tg_schedule *s, uint64_t step);

/* Whether all rounds have one step: 1 or 0. */
TG_API int tg_schedule_is_one(const tg_schedule *s);

/* ---- the outer step ----------------------------------------------------------------------------------------- */

typedef struct tg_outer {
    float rate;     /* above 0 */
    float momentum; /* 0 to below 1 */
} tg_outer;

/* Reads "average" (rate 1, momentum 0), or "nesterov", "nesterov@lr=0.7,momentum=0.9" (these are the defaults). */
TG_API tg_status tg_outer_read(tg_outer *out, const char *text, tg_detail *why) TG_CHECKED;

/* move = start - weights, over n elements. `weights` are of `dtype`. If that is a half precision, `start` is rounded to it first. */
TG_API void tg_local_move(float *move, const float *start, const void *weights, tg_dtype dtype, size_t n);

/* velocity = momentum * velocity + average; start = start - rate * (average + momentum * velocity). With momentum 0, `velocity`
 * may be NULL: start = start - rate * average. */
TG_API void tg_local_outer(float *start, float *velocity, const float *average, const tg_outer *outer, size_t n);

/* weights = keep * weights + (1 - keep) * start, rounded to `dtype`. With keep 0, weights = start. */
TG_API void tg_local_mix(void *weights, tg_dtype dtype, const float *start, float keep, size_t n);

#ifdef __cplusplus
}
#endif

#endif
