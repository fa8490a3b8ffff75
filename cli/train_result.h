/* What `tersegrad train` knows of its run, and how it tells the result. */
#ifndef CLI_TRAIN_RESULT_H
#define CLI_TRAIN_RESULT_H

#include "args.h"
#include "train_advice.h"
#include "train_log.h"

/* A run, for the hooks. */
typedef struct cli_training {
    cli_train_log files;
    const char *gradients; /* where to keep them; NULL: nowhere */
    const tr_settings *settings;
    double start;
    uint64_t first_step;
    int is_saved;                         /* there is something to resume from */
    double loss, accuracy, test_accuracy; /* as far as they are known */
    uint64_t dense, sent;
    tg_learning learning;           /* of exchanges that learn ... */
    uint64_t code_dense, code_sent; /* ... and what they take once they have, ... */
    double code_up, code_down;      /* ... of workers other than worker 0 each, ... */
    uint64_t code_steps;            /* ... in so many steps */
    cli_advice advice;
} cli_training;

/* One JSON object, or CSV if the flags say so. */
int cli_train_print_json(const cli_args *args, const cli_training *t, const tr_result *r, double seconds);

/* The same for a run that was ended by divergence: a script gets its object for that, too. */
void cli_train_print_ended(const cli_args *args, const cli_training *t, const tr_result *r);

/* A table for people. */
int cli_train_print_text(const cli_args *args, const cli_training *t, const tr_result *r, double seconds);

#endif
