/* What worker 0 does when it has the reports of all workers: it calls the hooks, compares weights, saves and sums up. All that may
 * fail give 0, or -1 and a sentence. */
#ifndef TR_REPORT_H
#define TR_REPORT_H

#include "team.h"

/* Whether something that happens every `every` steps, and at the end, happens after `done` steps. */
int tr_is_due(uint64_t done, uint64_t every, uint64_t steps);

int tr_tell_gradients(tr_team *t, char why[TR_WHY]);
int tr_finish_step(tr_team *t, char why[TR_WHY]); /* counts the step as done, and compares weights if that is due */
int tr_tell_test(tr_team *t, char why[TR_WHY]);
int tr_save(tr_team *t, char why[TR_WHY]); /* with all parts there */
void tr_conclude(tr_result *out, tr_team *t);

#endif
