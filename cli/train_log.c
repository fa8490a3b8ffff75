/* The log of a training run, and its checkpoints; see train_log.h. */
#include "train_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"
#include "json.h"
#include "settings.h"

/* Cuts the log of a run that goes on to the length that it had when the run was saved. */
static int cut(FILE *log, uint64_t len, const cli_args *args)
{
    struct stat about;
    if (fstat(fileno(log), &about) != 0 || !S_ISREG(about.st_mode)) {
        return cli_fail(CLI_FAILED, "cannot go on with %s: it is not a regular file", args->log);
    }
    if ((uint64_t)about.st_size < len) {
        return cli_fail(CLI_FAILED,
                        "cannot go on with %s: it has %" PRIu64 " bytes, and had %" PRIu64 " when %s was saved",
                        args->log, (uint64_t)about.st_size, len, args->checkpoint);
    }
    if (ftruncate(fileno(log), (off_t)len) != 0 || fseek(log, 0, SEEK_END) != 0) {
        return cli_fail(CLI_FAILED, "cannot write %s: %s", args->log, strerror(errno));
    }
    return CLI_OK;
}

int cli_train_open(cli_train_log *out, const cli_args *args, const cli_checkpoint *from)
{
    *out = (cli_train_log){.log_path = args->log, .checkpoint_path = args->checkpoint, .start = cli_clock_now()};
    if (args->log == NULL) {
        return CLI_OK;
    }
    struct stat about;
    int goes_on = from->run != NULL && from->log_len != CLI_NO_LOG, exists = stat(args->log, &about) == 0;
    if (!args->resume && exists) {
        return cli_fail(CLI_FAILED, "cannot write %s: it exists already; remove it, name another, or --resume",
                        args->log);
    }
    if (from->run != NULL && !goes_on && exists && about.st_size > 0) {
        return cli_fail(CLI_FAILED, "cannot write %s: it exists already, and %s was saved by a run without a log",
                        args->log, args->checkpoint);
    }
    out->log = fopen(args->log, goes_on ? "r+" : "w");
    if (out->log == NULL) {
        return cli_fail(CLI_FAILED, "cannot %s %s: %s", goes_on ? "go on with" : "write", args->log, strerror(errno));
    }
    int code = goes_on ? cut(out->log, from->log_len, args) : CLI_OK;
    if (code != CLI_OK) {
        (void)fclose(out->log);
        out->log = NULL;
    }
    out->is_new = !goes_on;
    return code;
}

int cli_train_save(cli_train_log *l, const void *bytes, size_t len, char why[TR_WHY])
{
    cli_checkpoint c = {(uint8_t *)(uintptr_t)bytes, len, CLI_NO_LOG}; /* only read */
    if (l->log != NULL) {
        /* What the checkpoint counts on must be on the disk before it is. */
        long log_len = fflush(l->log) == 0 && fsync(fileno(l->log)) == 0 ? ftell(l->log) : -1;
        if (log_len < 0) {
            (void)snprintf(why, TR_WHY, "cannot write %s: %s", l->log_path, strerror(errno));
            return -1;
        }
        c.log_len = (uint64_t)log_len;
    }
    if (cli_checkpoint_write(l->checkpoint_path, &c) != CLI_OK) {
        why[0] = '\0'; /* has been reported */
        return -1;
    }
    return 0;
}

int cli_train_close(cli_train_log *l)
{
    if (l->log != NULL && fclose(l->log) != 0) {
        return cli_fail(CLI_FAILED, "cannot write %s: %s", l->log_path, strerror(errno));
    }
    return CLI_OK;
}

static int check_log(const cli_train_log *l, char why[TR_WHY])
{
    if (fflush(l->log) != 0 || ferror(l->log)) {
        (void)snprintf(why, TR_WHY, "cannot write %s: %s", l->log_path, strerror(errno));
        return -1;
    }
    return 0;
}

int cli_train_log_settings(cli_train_log *l, const tr_settings *s, const char *data, char why[TR_WHY])
{
    if (!l->is_new) {
        return 0;
    }
    cli_json j;
    cli_json_begin(&j, l->log);
    cli_json_text(&j, "version", tg_version());
    cli_json_text(&j, "model", s->model);
    cli_json_text(&j, "data", data);
    cli_json_text(&j, "recipe", s->recipe);
    cli_json_count(&j, "workers", s->workers);
    cli_json_count(&j, "batch", s->batch);
    cli_json_count(&j, "steps", s->steps);
    cli_json_count(&j, "seed", s->seed);
    char rounds[TR_ROUNDS_CAP];
    tr_settings_rounds(rounds, s);
    cli_json_text(&j, "local_steps", rounds);
    cli_json_text(&j, "optimizer", s->optimizer.rule == TR_SGD ? "sgd" : "adam");
    cli_json_number(&j, "rate", s->optimizer.rate);
    cli_json_finish(&j);
    return check_log(l, why);
}

static void put_times(cli_json *j, const tr_times *t)
{
    cli_json_object(j, "seconds");
    cli_json_number(j, "compute", t->compute);
    cli_json_number(j, "encode", t->encode);
    cli_json_number(j, "exchange", t->exchange);
    cli_json_number(j, "decode", t->decode);
    cli_json_number(j, "exposed", t->exposed);
    cli_json_number(j, "update", t->update);
    cli_json_end(j);
}

/* What a parameter's traffic tells, NAN where it tells nothing. */
static double entries_per_bin(const tg_traffic *t)
{
    return t->bins > 0 ? (double)t->entries / (double)t->bins : NAN;
}

static double shape(const tg_traffic *t)
{
    return t->scale > 0 ? t->shape : NAN;
}

static double scale(const tg_traffic *t)
{
    return t->scale > 0 ? t->scale : NAN;
}

/* An object with a number for each parameter that has one; none if no parameter has. */
static void put_numbers(cli_json *j, const char *key, double (*number)(const tg_traffic *), const tr_step *step)
{
    int begun = 0;
    for (size_t p = 0; p < tr_model_param_n(step->model); p++) {
        double value = number(&step->traffic[p]);
        if (isnan(value)) {
            continue;
        }
        if (!begun) {
            cli_json_object(j, key);
            begun = 1;
        }
        cli_json_number(j, tr_model_param(step->model, p)->name, value);
    }
    if (begun) {
        cli_json_end(j);
    }
}

/* What each parameter sent, where it is chosen in bins how much of each, and what was fitted to it. */
static void put_traffic(cli_json *j, const tr_step *step)
{
    cli_json_object(j, "entries");
    for (size_t p = 0; p < tr_model_param_n(step->model); p++) {
        cli_json_count(j, tr_model_param(step->model, p)->name, step->traffic[p].entries);
    }
    cli_json_end(j);
    put_numbers(j, "entries_per_bin", entries_per_bin, step);
    put_numbers(j, "shape", shape, step);
    put_numbers(j, "scale", scale, step);
}

int cli_train_log_step(cli_train_log *l, const tr_step *step, char why[TR_WHY])
{
    if (l->log == NULL) {
        return 0;
    }
    cli_json j;
    cli_json_begin(&j, l->log);
    cli_json_count(&j, "step", step->step);
    if (step->steps > 1 || !step->exchanged) {
        cli_json_count(&j, "steps", step->steps);
    }
    cli_json_number(&j, "loss", step->loss);
    cli_json_number(&j, "accuracy", step->accuracy);
    cli_json_number(&j, "rate", step->rate);
    cli_json_count(&j, "logical_bytes", step->bytes.logical);
    cli_json_count(&j, "payload_bytes", step->bytes.payload);
    cli_json_count(&j, "header_bytes", step->bytes.header);
    put_times(&j, &step->times);
    if (step->absent > 0) {
        cli_json_count(&j, "absent", step->absent);
    }
    if (!step->exchanged) { /* the part of a round before a checkpoint */
        cli_json_finish(&j);
        return check_log(l, why);
    }
    cli_json_object(&j, "residual");
    for (size_t p = 0; p < tr_model_param_n(step->model); p++) {
        cli_json_number(&j, tr_model_param(step->model, p)->name, step->residual[p]);
    }
    cli_json_end(&j);
    put_traffic(&j, step);
    if (step->learning.phase > 0) {
        cli_json_object(&j, "learning");
        cli_json_count(&j, "phase", step->learning.phase);
        cli_json_count(&j, "extended", step->learning.extended);
        cli_json_number(&j, "error", step->learning.error >= 0 ? step->learning.error : NAN);
        cli_json_end(&j);
    }
    cli_json_finish(&j);
    return check_log(l, why);
}

int cli_train_log_test(cli_train_log *l, const tr_test *test, char why[TR_WHY])
{
    if (l->log == NULL) {
        return 0;
    }
    cli_json j;
    cli_json_begin(&j, l->log);
    cli_json_count(&j, "step", test->step);
    cli_json_number(&j, "test_loss", test->loss);
    cli_json_number(&j, "test_accuracy", test->accuracy);
    cli_json_number(&j, "seconds", cli_clock_now() - l->start);
    cli_json_finish(&j);
    return check_log(l, why);
}
