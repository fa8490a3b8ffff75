/* Local steps (docs/local-steps.md): rounds in which every worker updates its own weights, and the exchange at their end. */
#ifndef TR_LOCAL_H
#define TR_LOCAL_H

#include "team.h"

/* Whether a run has rounds of more than one step. */
int tr_is_local(const tr_settings *s);

/* The round that a step is in; the last one ends with the run. Without local steps, every step is a round. */
tg_round tr_round_of(const tr_settings *s, uint64_t step);

/* Whether workers are between two rounds after so many steps. */
int tr_is_between_rounds(const tr_settings *s, uint64_t done);

/* Takes memory for the shared weights, which the model's are at first; only sets `moves` for runs without local steps. */
int tr_local_open(tr_worker *w, char why[TR_WHY]);
void tr_local_close(tr_worker *w);

/* Before the exchange: the move in place of the gradients. After it: the outer step with the average, and the weights as it says. */
void tr_local_before(tr_worker *w);
void tr_local_after(tr_worker *w);

#endif
