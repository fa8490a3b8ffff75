/* `train --advise`: what was measured in some steps, and whether another recipe or none would be faster. */
#ifndef CLI_TRAIN_ADVICE_H
#define CLI_TRAIN_ADVICE_H

#include "run.h"

typedef struct cli_advice {
    int is_wanted, is_given;
    uint64_t steps; /* so far, and those that count */
    uint64_t counted;
    tr_times times; /* sums over these */
    double bytes;   /* that a worker has sent in them */
} cli_advice;

/* Takes a step of worker 0 into account. After some steps, or with the last, says on stderr what follows. */
int cli_advice_step(cli_advice *a, const tr_settings *s, const tr_step *step);

#endif
