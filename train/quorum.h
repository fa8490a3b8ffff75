/* A quorum: the end of a round does not wait for workers that are late (docs/local-steps.md).
 *
 * A learner, a thread of its own, takes the worker's steps. The worker itself meets the others at every round's end, also when its
 * learner is late: then its move is zero. The learner's move, from the weights with which it began, comes with the first round's end
 * that it reaches; after it the worker is as the others again. So every exchange has all workers, the average is over all, and every
 * move counts once. What takes part is decided by votes that all workers see.
 *
 *     worker 0    | steps  [x]  steps  [x]  steps  [x]           [x] exchange
 *     worker 1    | steps ------- late ->[x]  steps  [x]         missed the first one: its zero move was there
 *     shared W    0        1          2          3               the same on both
 */
#ifndef TR_QUORUM_H
#define TR_QUORUM_H

#include "team.h"

/* Who takes part in an exchange with a move. */
typedef struct tr_members {
    int is_one;  /* this worker does */
    int are_all; /* all workers do */
} tr_members;

/* Takes memory and starts the learner. Does nothing for runs without a quorum. */
int tr_quorum_open(tr_worker *w, char why[TR_WHY]);
void tr_quorum_close(tr_worker *w);

/* Has the learner take these steps, unless it is still in an earlier round. */
void tr_quorum_begin(tr_worker *w, uint64_t first, uint64_t end);

/* Waits until all learners have taken their steps; unless `needs_all`, until so many have as the quorum says, and the grace is over.
 * All workers call this, and get the same answer. -1: the link has failed. */
int tr_quorum_wait(tr_members *out, tr_worker *w, int needs_all);

/* The exchange of moves and the outer step. A member then begins the next round with the shared weights. */
tg_status tr_quorum_exchange(tr_worker *w, const tr_members *members, uint64_t round, tg_detail *why);

#endif
