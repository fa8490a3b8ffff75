/* A step of one worker: learns from its batch, averages gradients with the others, updates its weights. With local steps it updates
 * its own weights, and at the end of a round averages their moves with the others. */
#ifndef TR_STEP_H
#define TR_STEP_H

#include "team.h"

/* Batch, forward and backward. Gradients that are complete are reported to the reducer, if there is one, which encodes and sends
 * them meanwhile. */
void tr_step_learn(tr_worker *w, uint64_t step);

/* The exchange, then the optimizer; with local steps the optimizer, and at the end of a round the exchange. */
tg_status tr_step_update(tr_worker *w, uint64_t step, tg_detail *why);

/* The parts of a round with a quorum, where another thread takes the steps: it calls tr_step_alone, which adds scores and times to a
 * tally; the worker begins its report, and at the end of the round exchanges w->moves. */
void tr_step_alone(tr_worker *w, uint64_t step, tr_report *tally);
void tr_step_begin_report(tr_report *r);
tg_status tr_step_reduce(tr_worker *w, uint64_t round, tg_detail *why);

#endif
