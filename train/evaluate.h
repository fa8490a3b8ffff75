/* What is found out about the weights between steps: the score on test data, to which every worker contributes, and hashes. */
#ifndef TR_EVALUATE_H
#define TR_EVALUATE_H

#include "team.h"

/* Tests this worker's share of the samples; the score is in its report. All workers call it. -1: the link has failed. */
int tr_test_share(tr_worker *w);

/* The hash of this worker's weights is in its report. */
void tr_hash_weights(tr_worker *w);

#endif
