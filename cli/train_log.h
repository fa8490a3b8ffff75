/* What a training run leaves behind: a log of JSON lines, and a checkpoint, which knows how long the log was when it was saved. */
#ifndef CLI_TRAIN_LOG_H
#define CLI_TRAIN_LOG_H

#include <stdio.h>

#include "args.h"
#include "checkpoint.h"
#include "run.h"

typedef struct cli_train_log {
    FILE *log;  /* NULL: none is kept */
    int is_new; /* it is to begin with a line of settings */
    const char *log_path;
    const char *checkpoint_path;
    double start; /* since when seconds in the log count */
} cli_train_log;

/* Opens the log: a new file, or, if the run goes on from a checkpoint, its log, cut to the length that it had then. One that is
 * shorter is refused, and so is a file that exists where no log is to be there yet. Reports. */
int cli_train_open(cli_train_log *out, const cli_args *args, const cli_checkpoint *from);
int cli_train_close(cli_train_log *l);

/* The first line of a new log, and one for each step and test. 0, or -1 and a sentence. */
int cli_train_log_settings(cli_train_log *l, const tr_settings *s, const char *data, char why[TR_WHY]);
int cli_train_log_step(cli_train_log *l, const tr_step *step, char why[TR_WHY]);
int cli_train_log_test(cli_train_log *l, const tr_test *test, char why[TR_WHY]);

/* Writes a checkpoint of the run and of the log so far. 0, or -1 and a sentence, which is empty if it was reported. */
int cli_train_save(cli_train_log *l, const void *bytes, size_t len, char why[TR_WHY]);

#endif
