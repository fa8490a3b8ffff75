/* `tersegrad train`: trains a built-in model with N workers, compressed, and says what it cost and what it saved. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "commands.h"
#include "device.h"
#include "fail.h"
#include "gradients.h"
#include "progress.h"
#include "train_result.h"
#include "train_settings.h"
#include "world.h"

/* ---- progress ------------------------------------------------------------------------------------------------------ */

static void show(const cli_training *s, uint64_t done)
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
static void tell_learning(cli_training *s, const tr_step *step)
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
    cli_training *s = context;
    double share = step->step + 1 - step->steps == s->first_step ? 1 : 0.05; /* a little smoothed */
    s->loss += share * (step->loss - s->loss);
    s->accuracy += share * (step->accuracy - s->accuracy);
    s->dense += step->bytes.dense;
    s->sent += step->bytes.payload + step->bytes.header;
    show(s, step->step + 1);
    tell_learning(s, step);
    if (cli_advice_step(&s->advice, s->settings, step) != CLI_OK) {
        snprintf(why, TR_WHY, "the advice of --advise failed");
        return -1;
    }
    return cli_train_log_step(&s->files, step, why);
}

static int on_gradients(void *context, uint64_t step, tr_model *const *models, uint32_t n, char why[TR_WHY])
{
    const cli_training *s = context;
    (void)n;
    return cli_gradients_save(s->gradients, step, models[0], why);
}

static int on_test(void *context, const tr_test *test, char why[TR_WHY])
{
    cli_training *s = context;
    s->test_accuracy = test->accuracy;
    return cli_train_log_test(&s->files, test, why);
}

static int on_save(void *context, uint64_t steps, const void *bytes, size_t len, char why[TR_WHY])
{
    cli_training *s = context;
    (void)steps;
    return cli_train_save(&s->files, bytes, len, why);
}

static void on_saved(void *context)
{
    cli_training *s = context;
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
    if (strchr(args->recipes.items[0], ':') != NULL) {
        return cli_fail(CLI_MISUSE,
                        "train takes one recipe; --local-steps says how many steps workers take between exchanges");
    }
    if (args->quorum > 0 && tg_schedule_is_one(&args->local)) {
        return cli_fail(CLI_MISUSE, "--quorum is for rounds of local steps; give --local-steps, too");
    }
    if (args->quorum > 0 && args->gradients != NULL) {
        return cli_fail(CLI_MISUSE, "--gradients shows those of all workers in every step, and --quorum does not wait");
    }
    return cli_train_check(args, (const char *const *)args->recipes.items, args->recipes.n);
}

/* Flags that name workers, whose number is known now. */
static int check_workers(const cli_args *args)
{
    if (args->quorum > args->workers) {
        return cli_fail(CLI_MISUSE, "--quorum %u of %u workers can never be there", args->quorum, args->workers);
    }
    if (args->late.seconds > 0 && args->late.rank >= args->workers) {
        return cli_fail(CLI_MISUSE, "--late names worker %u, and there are %u, from 0", args->late.rank, args->workers);
    }
    return CLI_OK;
}

/* ---- the command --------------------------------------------------------------------------------------------------- */

/* Reads the checkpoint and opens the log, which worker 0 alone has. */
static int open_files(cli_checkpoint *from, cli_training *s, const cli_args *args, const tr_data *data)
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
static int train(tr_result *result, int *alone, cli_training *s, const cli_args *args, const tr_data *data)
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
    if (world->rank == 0) {
        cli_train_warn(&settings);
    }
    tr_result result = {0};
    cli_training s = {
        .settings = &settings, .start = cli_clock_now(), .test_accuracy = -1, .gradients = args->gradients};
    s.advice.is_wanted = args->advise;
    code = train(&result, alone, &s, args, data);
    if (code == CLI_OK && world->rank == 0 && (args->json || args->csv)) {
        code = cli_train_print_json(args, &s, &result, cli_clock_now() - s.start);
    } else if (code == CLI_OK && world->rank == 0) {
        code = cli_train_print_text(args, &s, &result, cli_clock_now() - s.start);
    }
    if (code == CLI_FAILED && result.diverged > 0 && world->rank == 0 && (args->json || args->csv)) {
        cli_train_print_ended(args, &s, &result);
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
    code = check_workers(&here);
    alone = code != CLI_OK;
    code = code == CLI_OK ? run_in(&world, &alone, &here) : code;
    return cli_world_close(&world, code, alone);
}

static const cli_flag_use flags[] = {
    {CLI_FLAG_MODEL, "lenet"},    {CLI_FLAG_DATA, "fashion"},
    {CLI_FLAG_RECIPE, NULL},      {CLI_FLAG_RULE, NULL},
    {CLI_FLAG_DENSE_BELOW, "0"},  {CLI_FLAG_EXCHANGE, NULL},
    {CLI_FLAG_LINK, NULL},        {CLI_FLAG_HOSTS, NULL},
    {CLI_FLAG_TIMEOUT, "300"},    {CLI_FLAG_GROUP_SIZE, CLI_GROUP_SIZE},
    {CLI_FLAG_DEVICE, "cpu"},     {CLI_FLAG_WORKERS, "4"},
    {CLI_FLAG_BATCH, "32"},       {CLI_FLAG_EPOCHS, "1"},
    {CLI_FLAG_STEPS, NULL},       {CLI_FLAG_SEED, "1"},
    {CLI_FLAG_AUGMENT, NULL},     {CLI_FLAG_LOCAL_STEPS, "1"},
    {CLI_FLAG_OUTER, "average"},  {CLI_FLAG_QUORUM, NULL},
    {CLI_FLAG_GRACE, "1"},        {CLI_FLAG_LATE, NULL},
    {CLI_FLAG_OPTIMIZER, "sgd"},  {CLI_FLAG_RATE, NULL},
    {CLI_FLAG_MOMENTUM, "0.9"},   {CLI_FLAG_NESTEROV, NULL},
    {CLI_FLAG_WEIGHT_DECAY, "0"}, {CLI_FLAG_SCHEDULE, "cosine"},
    {CLI_FLAG_WARMUP, "0"},       {CLI_FLAG_NONFINITE, "error"},
    {CLI_FLAG_TEST_EVERY, NULL},  {CLI_FLAG_VERIFY_EVERY, "100"},
    {CLI_FLAG_LOG, NULL},         {CLI_FLAG_GRADIENTS, NULL},
    {CLI_FLAG_CHECKPOINT, NULL},  {CLI_FLAG_CHECKPOINT_EVERY, "100"},
    {CLI_FLAG_RESUME, NULL},      {CLI_FLAG_ADVISE, NULL},
    {CLI_FLAG_CONFIG, NULL},      {CLI_FLAG_JSON, NULL},
    {CLI_FLAG_CSV, NULL},
};

const cli_command cli_train = {
    .name = "train",
    .summary = "a built-in model with N workers, compressed",
    .usage = "--recipe R [flags]",
    .about = "Trains a model with N workers. Each has its own share of the data, and all average their gradients by\n"
             "a recipe. Workers are threads, or processes started by mpirun on one machine or many. All hold the\n"
             "same weights to the bit, or the run fails. A run that is killed and continued with --resume ends in\n"
             "the same bits as one that was not; it can also continue with another number of workers. With\n"
             "--local-steps workers take several steps on their own, then exchange how far their weights moved.",
    .examples = "tersegrad train --recipe dense\n"
                "tersegrad train --recipe ef+topk@0.01+fp16 --workers 8 --epochs 3\n"
                "tersegrad train --recipe random-block@0.1 --data glyphs --log run.jsonl --checkpoint run.ck --resume\n"
                "tersegrad train --recipe adacomp --local-steps 4 --rate 0.05\n"
                "mpirun -n 4 tersegrad train --recipe adacomp\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 0,
    .file_max = 0,
    .run = run,
};
