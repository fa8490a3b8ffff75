/* What worker 0 does with the reports of all workers: calls the hooks, compares weights, saves, and computes the result. Functions
 * return 0, or -1 and an error. */
#ifndef TR_REPORT_H
#define TR_REPORT_H

#include "team.h"

/* Whether an action that is due every `every` steps, and at the end of the run, became due after more than `since` and at most
 * `done` steps. */
int tr_is_due(uint64_t since, uint64_t done, uint64_t every, uint64_t steps);

int tr_tell_gradients(tr_team *t, char why[TR_WHY]);
int tr_finish_round(tr_team *t, char why[TR_WHY]); /* counts the steps as done, and compares weights if due */
int tr_finish_part(tr_team *t, char why[TR_WHY]);  /* the same inside a round, where weights differ */
int tr_tell_test(tr_team *t, char why[TR_WHY]);
int tr_save(tr_team *t, char why[TR_WHY]); /* needs t->parts of all workers */
void tr_conclude(tr_result *out, tr_team *t);

#endif
