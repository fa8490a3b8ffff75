/* The log and the checkpoint of a training run; see train_log.h.
 *
 *     checkpoint: "TGCK", u32 version, u64 length of the log, then the run as tr_hooks.save gives it */
#include "train_log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"
#include "file.h"
#include "json.h"

enum { VERSION = 1, HEADER_LEN = 16 };
static const uint8_t magic[4] = {'T', 'G', 'C', 'K'};

/* ---- the checkpoint ---------------------------------------------------------------------------------------------- */

static void put(uint8_t *to, uint64_t value, int len)
{
    for (int i = 0; i < len; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint64_t get(const uint8_t *from, int len)
{
    uint64_t value = 0;
    for (int i = len; i-- > 0;) {
        value = value << 8 | from[i];
    }
    return value;
}

int cli_train_load(uint8_t **saved, size_t *saved_len, uint64_t *log_len, const cli_args *args)
{
    *saved = NULL;
    if (!args->resume || access(args->checkpoint, F_OK) != 0) {
        return CLI_OK; /* nothing was saved yet: the run starts from the beginning */
    }
    uint8_t *bytes = NULL;
    size_t len = 0;
    int code = cli_file_read(&bytes, &len, args->checkpoint);
    if (code != CLI_OK) {
        return code;
    }
    if (len < HEADER_LEN || memcmp(bytes, magic, sizeof magic) != 0 || get(bytes + 4, 4) != VERSION) {
        free(bytes);
        return cli_fail(CLI_FAILED, "cannot go on from %s: it is not a checkpoint of this version", args->checkpoint);
    }
    *log_len = get(bytes + 8, 8);
    *saved_len = len - HEADER_LEN;
    memmove(bytes, bytes + HEADER_LEN, *saved_len);
    *saved = bytes;
    return CLI_OK;
}

int cli_train_save(cli_train_log *l, const void *bytes, size_t len, char why[TR_WHY])
{
    uint8_t header[HEADER_LEN];
    long log_len = 0;
    if (l->log != NULL) {
        /* What the checkpoint counts on must be on the disk before it is. */
        log_len = fflush(l->log) == 0 && fsync(fileno(l->log)) == 0 ? ftell(l->log) : -1;
    }
    if (log_len < 0) {
        (void)snprintf(why, TR_WHY, "cannot write %s: %s", l->log_path, strerror(errno));
        return -1;
    }
    memcpy(header, magic, sizeof magic);
    put(header + 4, VERSION, 4);
    put(header + 8, (uint64_t)log_len, 8);
    cli_piece pieces[2] = {{header, sizeof header}, {bytes, len}};
    if (cli_file_write(l->checkpoint_path, pieces, 2) != CLI_OK) {
        why[0] = '\0'; /* has been reported */
        return -1;
    }
    return 0;
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

int cli_train_open(cli_train_log *out, const cli_args *args, int goes_on, uint64_t log_len)
{
    *out = (cli_train_log){.log_path = args->log, .checkpoint_path = args->checkpoint, .start = cli_clock_now()};
    if (args->log == NULL) {
        return CLI_OK;
    }
    if (!goes_on && !args->resume && access(args->log, F_OK) == 0) {
        return cli_fail(CLI_FAILED, "cannot write %s: it exists already; remove it, name another, or --resume",
                        args->log);
    }
    out->log = fopen(args->log, goes_on ? "r+" : "w");
    if (out->log == NULL) {
        return cli_fail(CLI_FAILED, "cannot write %s: %s", args->log, strerror(errno));
    }
    if (goes_on && (ftruncate(fileno(out->log), (off_t)log_len) != 0 || fseek(out->log, 0, SEEK_END) != 0 ||
                    (uint64_t)ftell(out->log) != log_len)) {
        fclose(out->log);
        return cli_fail(CLI_FAILED, "cannot go on with %s: it is not the log of this checkpoint", args->log);
    }
    return CLI_OK;
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
    if (l->log == NULL) {
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
    cli_json_number(&j, "loss", step->loss);
    cli_json_number(&j, "accuracy", step->accuracy);
    cli_json_number(&j, "rate", step->rate);
    cli_json_count(&j, "logical_bytes", step->bytes.logical);
    cli_json_count(&j, "payload_bytes", step->bytes.payload);
    cli_json_count(&j, "header_bytes", step->bytes.header);
    put_times(&j, &step->times);
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
