/* What a training run leaves behind: a log of JSON lines and a checkpoint. Both survive a kill at any moment: a checkpoint
 * is written to a new file, synced and renamed, and knows how long the log was when it was made, so that a resumed run cuts
 * off what was written after it. */
#ifndef CLI_TRAIN_LOG_H
#define CLI_TRAIN_LOG_H

#include <stdio.h>

#include "args.h"
#include "run.h"

typedef struct cli_train_log {
    FILE *log; /* NULL: none is kept */
    const char *log_path;
    const char *checkpoint_path;
    double start; /* since when seconds in the log count */
} cli_train_log;

/* Reads the checkpoint if the flags ask for it and it is there; *saved is NULL otherwise, and to be freed. Reports. */
int cli_train_load(uint8_t **saved, size_t *saved_len, uint64_t *log_len, const cli_args *args);

/* Opens the log: a new file, or the old one cut to log_len if the run goes on. Reports. */
int cli_train_open(cli_train_log *out, const cli_args *args, int goes_on, uint64_t log_len);
int cli_train_close(cli_train_log *l);

/* The first line, and one for each step and test. 0, or -1 and a sentence. */
int cli_train_log_settings(cli_train_log *l, const tr_settings *s, const char *data, char why[TR_WHY]);
int cli_train_log_step(cli_train_log *l, const tr_step *step, char why[TR_WHY]);
int cli_train_log_test(cli_train_log *l, const tr_test *test, char why[TR_WHY]);

/* Writes the checkpoint, all of it or nothing. */
int cli_train_save(cli_train_log *l, const void *bytes, size_t len, char why[TR_WHY]);

#endif
