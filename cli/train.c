/* `tersegrad train`: trains a built-in model with N workers, compressed, and says what it cost and what it saved. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "commands.h"
#include "device.h"
#include "fail.h"
#include "gradients.h"
#include "json.h"
#include "progress.h"
#include "table.h"
#include "text.h"
#include "train_log.h"
#include "train_settings.h"
#include "world.h"

/* A run, for the hooks. */
typedef struct training {
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
} training;

/* ---- progress ------------------------------------------------------------------------------------------------------ */

static void show(const training *s, uint64_t done)
{
    char text[160], test[32] = "";
    if (s->test_accuracy >= 0) {
        snprintf(test, sizeof test, ", test %.2f%%", 100 * s->test_accuracy);
    }
    snprintf(text, sizeof text, "step %" PRIu64 "/%" PRIu64 "  loss %.4f, accuracy %.1f%%%s, ratio %.1f", done,
             s->settings->steps, s->loss, 100 * s->accuracy, test,
             s->sent == 0 ? 1.0 : (double)s->dense / (double)s->sent);
    cli_progress_show(text, (double)done, (double)s->settings->steps);
}

/* ---- hooks --------------------------------------------------------------------------------------------------------- */

/* Says when an exchange that learns enters another phase, or does not because it has not learned enough. */
static void tell_learning(training *s, const tr_step *step)
{
    const tg_learning *now = &step->learning, *before = &s->learning;
    char text[160] = "";
    if (now->extended > before->extended) {
        snprintf(text, sizeof text, "goes on learning: a relative error of %.2f is not enough", now->error);
    } else if (now->phase == 2 && before->phase != 2) {
        snprintf(text, sizeof text, "begins to learn");
    } else if (now->phase == 3 && before->phase == 2) {
        snprintf(text, sizeof text, "has learned, to a relative error of %.2f: codes from here on", now->error);
    }
    if (text[0] != '\0') {
        cli_progress_clear();
        fprintf(stderr, "step %" PRIu64 ": %s\n", step->step + 1, text);
    }
    if (before->phase == 3) { /* this step was by codes */
        s->code_dense += step->bytes.dense;
        s->code_sent += step->bytes.payload + step->bytes.header;
        s->code_up += step->up;
        s->code_down += step->down;
        s->code_steps++;
    }
    s->learning = *now;
}

static int on_step(void *context, const tr_step *step, char why[TR_WHY])
{
    training *s = context;
    double share = step->step == s->first_step ? 1 : 0.05; /* a little smoothed */
    s->loss += share * (step->loss - s->loss);
    s->accuracy += share * (step->accuracy - s->accuracy);
    s->dense += step->bytes.dense;
    s->sent += step->bytes.payload + step->bytes.header;
    show(s, step->step + 1);
    tell_learning(s, step);
    return cli_train_log_step(&s->files, step, why);
}

static int on_gradients(void *context, uint64_t step, tr_model *const *models, uint32_t n, char why[TR_WHY])
{
    const training *s = context;
    (void)n;
    return cli_gradients_save(s->gradients, step, models[0], why);
}

static int on_test(void *context, const tr_test *test, char why[TR_WHY])
{
    training *s = context;
    s->test_accuracy = test->accuracy;
    return cli_train_log_test(&s->files, test, why);
}

static int on_save(void *context, uint64_t steps, const void *bytes, size_t len, char why[TR_WHY])
{
    training *s = context;
    (void)steps;
    return cli_train_save(&s->files, bytes, len, why);
}

static void on_saved(void *context)
{
    training *s = context;
    s->is_saved = 1;
    cli_world_saved();
}

/* ---- flags --------------------------------------------------------------------------------------------------------- */

static int check_flags(const cli_args *args)
{
    if (args->recipes.n == 0) {
        return cli_fail(CLI_MISUSE,
                        "train needs --recipe; 'dense' sends everything, 'tersegrad recipes' lists the rest");
    }
    if (args->resume && args->checkpoint == NULL) {
        return cli_fail(CLI_MISUSE, "--resume needs --checkpoint, which says where to go on from");
    }
    return cli_train_check(args, (const char *const *)args->recipes.items, args->recipes.n);
}

/* ---- results ------------------------------------------------------------------------------------------------------- */

/* Bytes of fp32 gradients over `len`; NAN if there is no such length. */
static double ratio_of(uint64_t elements, uint64_t steps, uint64_t len)
{
    return len > 0 ? 4.0 * (double)elements * (double)steps / (double)len : NAN;
}

/* Over all parameters for which the scheme's paper has a count of its own. */
static double paper_ratio(const tr_settings *s, const tr_result *r)
{
    uint64_t elements = 0, len = 0;
    for (int kind = 0; kind < TR_KIND_N; kind++) {
        elements += r->kinds[kind].paper_len > 0 ? r->kinds[kind].elements : 0;
        len += r->kinds[kind].paper_len;
    }
    return ratio_of(elements, s->steps, len);
}

static double entries_per_bin(const tg_traffic *t)
{
    return t->bins > 0 ? (double)t->entries / (double)t->bins : NAN;
}

static void put_kinds(cli_json *j, const tr_settings *s, const tr_result *r)
{
    cli_json_array(j, "kinds");
    for (int kind = 0; kind < TR_KIND_N; kind++) {
        const tr_kind_traffic *k = &r->kinds[kind];
        if (k->elements > 0) {
            cli_json_object(j, NULL);
            cli_json_text(j, "kind", tg_kind_name((tg_kind)kind));
            cli_json_count(j, "elements", k->elements);
            cli_json_number(j, "ratio", ratio_of(k->elements, s->steps, k->sum.len));
            cli_json_number(j, "paper_ratio", ratio_of(k->elements, s->steps, k->paper_len));
            cli_json_number(j, "entries_per_step", (double)k->sum.entries / (double)s->steps);
            cli_json_number(j, "entries_per_bin", entries_per_bin(&k->sum));
            cli_json_end(j);
        }
    }
    cli_json_end(j);
}

/* Of steps whose values travelled as codes. */
static double code_ratio(const training *t)
{
    return t->code_sent > 0 ? (double)t->code_dense / (double)t->code_sent : NAN;
}

static double code_bytes(const training *t, double sum)
{
    return t->code_steps > 0 ? sum / (double)t->code_steps : NAN;
}

static void put_diverged(cli_json *j, const tr_result *r)
{
    if (r->diverged > 0) {
        cli_json_count(j, "diverged", r->diverged);
    } else {
        cli_json_null(j, "diverged");
    }
}

/* A script gets its object for a run that was ended by divergence as well. */
static void print_ended(const cli_args *args, const training *t, const tr_result *r)
{
    cli_json j;
    cli_json_begin_as(&j, stdout, args->csv, NULL);
    cli_json_text(&j, "recipe", t->settings->recipe);
    cli_json_text(&j, "model", t->settings->model);
    cli_json_text(&j, "data", args->data);
    put_diverged(&j, r);
    (void)cli_json_finish(&j);
}

static int print_json(const cli_args *args, const training *t, const tr_result *r, double seconds)
{
    const tr_settings *s = t->settings;
    cli_json j;
    cli_json_begin_as(&j, stdout, args->csv, NULL);
    cli_json_text(&j, "recipe", r->recipe);
    cli_json_text(&j, "exchange", r->exchange);
    cli_json_text(&j, "model", s->model);
    cli_json_text(&j, "data", args->data);
    cli_json_count(&j, "workers", s->workers);
    cli_json_count(&j, "host_size", s->host_size > 1 ? s->host_size : 1);
    cli_json_count(&j, "batch", s->batch);
    cli_json_count(&j, "steps", s->steps);
    cli_json_count(&j, "seed", s->seed);
    cli_json_count(&j, "group_size", s->group_len);
    cli_json_count(&j, "groups", r->groups);
    put_diverged(&j, r);
    cli_json_number(&j, "train_loss", r->train_loss);
    cli_json_number(&j, "test_loss", r->test.loss);
    cli_json_number(&j, "test_accuracy", r->test.accuracy);
    cli_json_number(&j, "dense_bytes_per_step", r->dense_bytes);
    cli_json_number(&j, "wire_bytes_per_step", r->wire_bytes);
    cli_json_number(&j, "between_bytes_per_step", r->host_bytes);
    cli_json_number(&j, "ratio", r->wire_bytes > 0 ? r->dense_bytes / r->wire_bytes : NAN);
    cli_json_number(&j, "paper_ratio", paper_ratio(s, r));
    put_kinds(&j, s, r);
    if (t->learning.phase > 0) {
        cli_json_number(&j, "code_ratio", code_ratio(t));
        cli_json_number(&j, "code_up_bytes_per_step", code_bytes(t, t->code_up));
        cli_json_number(&j, "code_down_bytes_per_step", code_bytes(t, t->code_down));
        cli_json_number(&j, "learned_error", t->learning.error >= 0 ? t->learning.error : NAN);
        cli_json_count(&j, "learning_extended", t->learning.extended);
    }
    cli_json_bool(&j, "replicas_identical", 1); /* had they not been, the run would have failed */
    cli_json_hex(&j, "weights_hash", r->weights_hash);
    cli_json_number(&j, "seconds", seconds);
    cli_json_number(&j, "compute_seconds_per_step", r->times.compute);
    cli_json_number(&j, "encode_seconds_per_step", r->times.encode);
    cli_json_number(&j, "exchange_seconds_per_step", r->times.exchange);
    cli_json_number(&j, "decode_seconds_per_step", r->times.decode);
    cli_json_number(&j, "exposed_seconds_per_step", r->times.exposed);
    cli_json_number(&j, "update_seconds_per_step", r->times.update);
    return cli_json_finish(&j);
}

static void add_line(cli_table *table, const char *name, const char *format, ...) CLI_PRINTF(3, 4);

static void add_line(cli_table *table, const char *name, const char *format, ...)
{
    char text[240];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cli_table_row(table, name, text);
}

static int print_text(const cli_args *args, const training *t, const tr_result *r, double seconds)
{
    const tr_settings *s = t->settings;
    char a[CLI_NUMBER_CAP], b[CLI_NUMBER_CAP];
    double ms = 1e3;
    cli_table table;
    cli_table_init(&table, "ll");
    add_line(&table, "trained", "%s on %s: %u workers, batch %zu each, %" PRIu64 " steps, seed %" PRIu64, s->model,
             args->data, s->workers, s->batch, s->steps, s->seed);
    add_line(&table, "recipe", "%s, by %s", r->recipe, r->exchange);
    add_line(&table, "loss", "%.4f training, %.4f test", r->train_loss, r->test.loss);
    add_line(&table, "accuracy", "%.2f%% test", 100 * r->test.accuracy);
    if (r->diverged > 0) {
        add_line(&table, "diverged", "at step %" PRIu64 ": the loss rose and did not come back", r->diverged);
        add_line(&table, "", "%s", cli_train_hint(s));
    }
    if (s->workers > 1) {
        add_line(&table, "sent", "%s bytes a worker and step, of %s uncompressed: ratio %.1f",
                 cli_text_count(a, (uint64_t)(r->wire_bytes + 0.5)),
                 cli_text_count(b, (uint64_t)(r->dense_bytes + 0.5)), r->dense_bytes / r->wire_bytes);
    }
    if (s->host_size > 1) {
        add_line(&table, "hosts", "of %u workers each, of which one sends to other hosts: %s bytes a worker and step",
                 s->host_size, cli_text_count(a, (uint64_t)(r->host_bytes + 0.5)));
    }
    for (int kind = 0; kind < TR_KIND_N; kind++) {
        const tr_kind_traffic *k = &r->kinds[kind];
        char paper[64] = "", rate[64] = "";
        if (k->paper_len > 0) {
            snprintf(paper, sizeof paper, " (%.1f as the paper counts)", ratio_of(k->elements, s->steps, k->paper_len));
        }
        if (k->sum.bins > 0) {
            snprintf(rate, sizeof rate, ", %.2f entries a bin", entries_per_bin(&k->sum));
        }
        if (k->sum.len > 0) {
            snprintf(b, sizeof b, "  %s", tg_kind_name((tg_kind)kind));
            add_line(&table, b, "%s values, ratio %.1f in a frame%s%s", cli_text_count(a, k->elements),
                     ratio_of(k->elements, s->steps, k->sum.len), paper, rate);
        }
    }
    if (t->learning.phase > 0) {
        char error[64] = "nothing yet";
        if (t->learning.error >= 0) {
            snprintf(error, sizeof error, "to a relative error of %.2f%s", t->learning.error,
                     t->learning.extended > 0 ? ", for longer than asked" : "");
        }
        add_line(&table, "learned", "%s", error);
        if (t->code_sent > 0) {
            add_line(&table, "codes", "ratio %.1f while they travel: %s bytes up and %s down a worker", code_ratio(t),
                     cli_text_count(a, (uint64_t)(code_bytes(t, t->code_up) + 0.5)),
                     cli_text_count(b, (uint64_t)(code_bytes(t, t->code_down) + 0.5)));
        }
    }
    if (s->group_len == 0) {
        add_line(&table, "step", "%.1f ms compute, %.1f encode, %.1f exchange, %.1f decode, %.1f update",
                 ms * r->times.compute, ms * r->times.encode, ms * r->times.exchange, ms * r->times.decode,
                 ms * r->times.update);
    } else {
        add_line(&table, "step", "%.1f ms compute, %.1f exposed exchange, %.1f update", ms * r->times.compute,
                 ms * r->times.exposed, ms * r->times.update);
        add_line(&table, "overlap", "%zu group%s: %.1f ms encode, %.1f exchange, %.1f decode beside the backward pass",
                 r->groups, r->groups == 1 ? "" : "s", ms * r->times.encode, ms * r->times.exchange,
                 ms * r->times.decode);
    }
    add_line(&table, "weights", "%016" PRIx64 ", the same on all workers", r->weights_hash);
    add_line(&table, "time", "%.1f s", seconds);
    int code = cli_table_print(&table, stdout, 0);
    cli_table_free(&table);
    return code;
}

/* ---- the command --------------------------------------------------------------------------------------------------- */

/* Reads the checkpoint and opens the log, which worker 0 alone has. */
static int open_files(cli_checkpoint *from, training *s, const cli_args *args, const tr_data *data)
{
    char why[TR_WHY] = "";
    int code = args->checkpoint != NULL ? cli_checkpoint_prepare(args->checkpoint) : CLI_OK;
    if (code == CLI_OK && args->resume) {
        code = cli_checkpoint_read(from, args->checkpoint);
    }
    if (code == CLI_OK && from->run != NULL &&
        tr_saved_steps(&s->first_step, s->settings, data, from->run, from->run_len, why) != 0) {
        code = cli_fail(CLI_FAILED, "cannot go on from %s: %s", args->checkpoint, why);
    }
    if (code == CLI_OK) {
        code = cli_train_open(&s->files, args, from);
    }
    if (code == CLI_OK && cli_train_log_settings(&s->files, s->settings, args->data, why) != 0) {
        code = cli_fail(CLI_FAILED, "%s", why);
    }
    return code;
}

/* *alone: other workers may not know of the failure. */
static int train(tr_result *result, int *alone, training *s, const cli_args *args, const tr_data *data)
{
    cli_checkpoint from = {.log_len = CLI_NO_LOG};
    char why[TR_WHY] = "";
    int code = s->settings->rank == 0 ? open_files(&from, s, args, data) : CLI_OK;
    if (code != CLI_OK) {
        *alone = 1;
        free(from.run);
        return code;
    }
    cli_progress_start((double)s->first_step);
    tr_hooks hooks = {.context = s, .step = on_step, .test = on_test, .save = on_save, .saved = on_saved};
    hooks.gradients = s->gradients != NULL ? on_gradients : NULL;
    int failed = tr_run(result, s->settings, data, &hooks, from.run, from.run_len, why);
    cli_progress_clear();
    *alone = failed == TR_LOST;
    if (failed == TR_LOST && strstr(why, CLI_SAYS_ITSELF) != NULL) {
        code = CLI_FAILED; /* and another worker has said why */
    } else if (failed == TR_LOST && s->is_saved) {
        code = cli_fail(CLI_FAILED, "%s; --resume goes on from %s", why, args->checkpoint);
    } else if (failed != 0) {
        code = failed == TR_MISUSE ? CLI_MISUSE : CLI_FAILED;
        if (why[0] != '\0' && (s->settings->rank == 0 || *alone)) {
            (void)cli_fail(code, "%s", why);
        }
    }
    free(from.run);
    int closed = cli_train_close(&s->files);
    return code != CLI_OK ? code : closed;
}

/* Takes data, trains, and tells; as worker `world->rank`, or as all of them. */
static int run_in(const cli_world *world, int *alone, const cli_args *args)
{
    tr_data *data = NULL;
    int code = cli_train_data(&data, args);
    if (code != CLI_OK) {
        *alone = 1;
        return code;
    }
    cli_device device;
    tr_device of_training;
    code = cli_device_open(&device, args);
    if (code != CLI_OK) {
        tr_data_free(data);
        *alone = 1;
        return code;
    }
    tr_settings settings = cli_train_settings(args, data, args->recipes.items[0], args->seed);
    settings.device = cli_device_of_training(&of_training, &device);
    cli_train_place(&settings, world->link, world->rank);
    tr_result result = {0};
    training s = {.settings = &settings, .start = cli_clock_now(), .test_accuracy = -1, .gradients = args->gradients};
    code = train(&result, alone, &s, args, data);
    if (code == CLI_OK && world->rank == 0 && (args->json || args->csv)) {
        code = print_json(args, &s, &result, cli_clock_now() - s.start);
    } else if (code == CLI_OK && world->rank == 0) {
        code = print_text(args, &s, &result, cli_clock_now() - s.start);
    }
    if (code == CLI_FAILED && result.diverged > 0 && world->rank == 0 && (args->json || args->csv)) {
        print_ended(args, &s, &result);
    }
    cli_device_close(&device);
    tr_data_free(data);
    return code;
}

static int run(const cli_args *args)
{
    cli_world world;
    int alone = 0, code = check_flags(args);
    if (code == CLI_OK) {
        code = cli_world_open(&world, args);
    }
    if (code != CLI_OK) {
        return code;
    }
    cli_args here = *args;
    here.workers = world.size;
    code = run_in(&world, &alone, &here);
    return cli_world_close(&world, code, alone);
}

static const cli_flag_use flags[] = {
    {CLI_FLAG_MODEL, "lenet"},
    {CLI_FLAG_DATA, "fashion"},
    {CLI_FLAG_RECIPE, NULL},
    {CLI_FLAG_RULE, NULL},
    {CLI_FLAG_DENSE_BELOW, "0"},
    {CLI_FLAG_EXCHANGE, NULL},
    {CLI_FLAG_LINK, NULL},
    {CLI_FLAG_HOSTS, NULL},
    {CLI_FLAG_TIMEOUT, "300"},
    {CLI_FLAG_GROUP_SIZE, CLI_GROUP_SIZE},
    {CLI_FLAG_DEVICE, "cpu"},
    {CLI_FLAG_WORKERS, "4"},
    {CLI_FLAG_BATCH, "32"},
    {CLI_FLAG_EPOCHS, "1"},
    {CLI_FLAG_STEPS, NULL},
    {CLI_FLAG_SEED, "1"},
    {CLI_FLAG_AUGMENT, NULL},
    {CLI_FLAG_OPTIMIZER, "sgd"},
    {CLI_FLAG_RATE, NULL},
    {CLI_FLAG_MOMENTUM, "0.9"},
    {CLI_FLAG_NESTEROV, NULL},
    {CLI_FLAG_WEIGHT_DECAY, "0"},
    {CLI_FLAG_SCHEDULE, "cosine"},
    {CLI_FLAG_WARMUP, "0"},
    {CLI_FLAG_NONFINITE, "error"},
    {CLI_FLAG_TEST_EVERY, NULL},
    {CLI_FLAG_VERIFY_EVERY, "100"},
    {CLI_FLAG_LOG, NULL},
    {CLI_FLAG_GRADIENTS, NULL},
    {CLI_FLAG_CHECKPOINT, NULL},
    {CLI_FLAG_CHECKPOINT_EVERY, "100"},
    {CLI_FLAG_RESUME, NULL},
    {CLI_FLAG_CONFIG, NULL},
    {CLI_FLAG_JSON, NULL},
    {CLI_FLAG_CSV, NULL},
};

const cli_command cli_train = {
    .name = "train",
    .summary = "a built-in model with N workers, compressed",
    .usage = "--recipe R [flags]",
    .about = "Trains a model with N workers, each with its own share of the data, that average their gradients by a\n"
             "recipe. Workers are threads, or processes that mpirun has started, on one machine or many. All hold\n"
             "the same weights to the bit, or the run fails. A run that is killed and started again with --resume\n"
             "ends in the same bits as one that was not; with another number of workers it goes on as well.",
    .examples = "tersegrad train --recipe dense\n"
                "tersegrad train --recipe ef+topk@0.01+fp16 --workers 8 --epochs 3\n"
                "tersegrad train --recipe random-block@0.1 --data glyphs --log run.jsonl --checkpoint run.ck --resume\n"
                "mpirun -n 4 tersegrad train --recipe adacomp\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 0,
    .file_max = 0,
    .run = run,
};
