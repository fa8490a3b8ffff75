/* `tersegrad compare`: the same training run by several recipes and seeds, as one table. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "clock.h"
#include "commands.h"
#include "fail.h"
#include "json.h"
#include "progress.h"
#include "table.h"
#include "text.h"
#include "train_settings.h"

static const char *const standard_recipes[] = {"dense", "fp16", "ef-topk@0.01", "random-k@0.1", "random-block@0.1"};

static const double links[] = {100e6, 1e9, 10e9}; /* bits a second */
enum { LINK_N = sizeof links / sizeof *links };

/* What the runs of one recipe came to: means over seeds, but for the spread. */
typedef struct row {
    const char *recipe;
    char canonical[TG_RECIPE_CAP], exchange[16];
    double accuracy, spread; /* of the test; spread is the largest less the smallest */
    double loss, train_loss;
    double dense_bytes, wire_bytes, busiest_bytes;
    tr_times times;
    double seconds;
} row;

/* The run in progress, for its progress line. */
typedef struct watch {
    const char *recipe;
    uint64_t done, total; /* steps of all runs */
    double last_line;
} watch;

static int on_step(void *context, const tr_step *step, char why[TR_WHY])
{
    watch *w = context;
    double now = cli_clock_now();
    (void)why;
    w->done++;
    if (now - w->last_line >= 0.1) {
        char text[120];
        snprintf(text, sizeof text, "%s, step %" PRIu64 ", loss %.4f", w->recipe, step->step + 1, step->loss);
        cli_progress_show(text, w->done, w->total);
        w->last_line = now;
    }
    return 0;
}

static int on_test(void *context, const tr_test *test, char why[TR_WHY])
{
    (void)context;
    (void)test;
    (void)why;
    return 0;
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

static double step_seconds(const tr_times *t)
{
    return t->compute + t->encode + t->exchange + t->decode + t->update;
}

/* A step over a link of so many bits a second: all but the threads' own exchange, and the bytes of the worker that sends
 * most on the wire, nothing at the same time as anything else. */
static double predict(const row *r, double bits)
{
    return r->times.compute + r->times.encode + r->times.decode + r->times.update + 8 * r->busiest_bytes / bits;
}

static void add_result(row *r, const tr_result *one, double share)
{
    r->accuracy += share * one->test.accuracy;
    r->loss += share * one->test.loss;
    r->train_loss += share * one->train_loss;
    r->dense_bytes += share * one->dense_bytes;
    r->wire_bytes += share * one->wire_bytes;
    r->busiest_bytes += share * one->busiest_bytes;
    r->times.compute += share * one->times.compute;
    r->times.encode += share * one->times.encode;
    r->times.exchange += share * one->times.exchange;
    r->times.decode += share * one->times.decode;
    r->times.update += share * one->times.update;
}

static int run_recipe(row *out, watch *w, const cli_args *args, const tr_data *data, const char *recipe)
{
    double lowest = INFINITY, highest = -INFINITY, start = cli_clock_now();
    *out = (row){.recipe = recipe};
    w->recipe = recipe;
    for (uint32_t k = 0; k < args->seeds; k++) {
        tr_settings settings = cli_train_settings(args, data, recipe, args->seed + k);
        settings.test_every = 0;
        tr_hooks hooks = {.context = w, .step = on_step, .test = on_test};
        tr_result result = {0};
        char why[TR_WHY] = "";
        if (tr_run(&result, &settings, data, &hooks, NULL, 0, why) != 0) {
            return cli_fail(CLI_FAILED, "%s: %s", recipe, why);
        }
        add_result(out, &result, 1.0 / args->seeds);
        lowest = fmin(lowest, result.test.accuracy);
        highest = fmax(highest, result.test.accuracy);
        snprintf(out->canonical, sizeof out->canonical, "%s", result.recipe);
        snprintf(out->exchange, sizeof out->exchange, "%s", result.exchange);
    }
    out->spread = highest - lowest;
    out->seconds = cli_clock_now() - start;
    return CLI_OK;
}

/* ---- results --------------------------------------------------------------------------------------------------------- */

static void add_row(cli_table *table, const row *r, uint32_t seeds)
{
    char accuracy[32], bytes[CLI_NUMBER_CAP], ratio[CLI_NUMBER_CAP], ms[8][CLI_NUMBER_CAP];
    if (seeds > 1) {
        snprintf(accuracy, sizeof accuracy, "%.2f ±%.2f", 100 * r->accuracy, 50 * r->spread);
    } else {
        snprintf(accuracy, sizeof accuracy, "%.2f", 100 * r->accuracy);
    }
    cli_text_number(ms[0], 1e3 * step_seconds(&r->times), 1);
    cli_text_number(ms[1], 1e3 * r->times.encode, 2);
    cli_text_number(ms[2], 1e3 * r->times.exchange, 2);
    cli_text_number(ms[3], 1e3 * r->times.decode, 2);
    for (int i = 0; i < LINK_N; i++) {
        cli_text_number(ms[4 + i], 1e3 * predict(r, links[i]), 1);
    }
    cli_table_row(table, r->recipe, r->exchange, accuracy, cli_text_count(bytes, (uint64_t)(r->wire_bytes + 0.5)),
                  cli_text_number(ratio, r->wire_bytes > 0 ? r->dense_bytes / r->wire_bytes : NAN, 1), ms[0], ms[1],
                  ms[2], ms[3], ms[4], ms[5], ms[6]);
}

static int print_text(const cli_args *args, const row *rows, size_t n, uint64_t steps)
{
    printf("%s on %s: %u workers, batch %" PRIu64 " each, %" PRIu64
           " steps, %u seed%s. Times are milliseconds a step.\n\n",
           args->model, args->data, args->workers, args->batch, steps, args->seeds, args->seeds == 1 ? "" : "s");
    cli_table table;
    cli_table_init(&table, "llrrrrrrrrrr");
    cli_table_row(&table, "recipe", "exchange", "test %", "bytes/step", "ratio", "step", "encode", "exch.", "decode",
                  "100 Mbit/s", "1 Gbit/s", "10 Gbit/s");
    for (size_t i = 0; i < n; i++) {
        add_row(&table, &rows[i], args->seeds);
    }
    int code = cli_table_print(&table, stdout, 0);
    cli_table_free(&table);
    puts("\n"
         "bytes/step  what one worker sends, headers included; ratio is against an uncompressed all-reduce\n"
         "step        measured here, workers being threads; exch. is copying and waiting for each other\n"
         "Mbit/s      predicted step if the busiest worker had to send its bytes over such a link, without overlap");
    return code;
}

static void print_json(const cli_args *args, const row *rows, size_t n, uint64_t steps)
{
    static const char *const names[LINK_N] = {"step_seconds_100mbit", "step_seconds_1gbit", "step_seconds_10gbit"};
    cli_json j;
    cli_json_begin(&j, stdout);
    cli_json_text(&j, "model", args->model);
    cli_json_text(&j, "data", args->data);
    cli_json_count(&j, "workers", args->workers);
    cli_json_count(&j, "batch", args->batch);
    cli_json_count(&j, "steps", steps);
    cli_json_count(&j, "seed", args->seed);
    cli_json_count(&j, "seeds", args->seeds);
    cli_json_array(&j, "results");
    for (size_t i = 0; i < n; i++) {
        const row *r = &rows[i];
        cli_json_object(&j, NULL);
        cli_json_text(&j, "recipe", r->recipe);
        cli_json_text(&j, "canonical", r->canonical);
        cli_json_text(&j, "exchange", r->exchange);
        cli_json_number(&j, "test_accuracy", r->accuracy);
        cli_json_number(&j, "test_accuracy_spread", r->spread);
        cli_json_number(&j, "test_loss", r->loss);
        cli_json_number(&j, "train_loss", r->train_loss);
        cli_json_number(&j, "dense_bytes_per_step", r->dense_bytes);
        cli_json_number(&j, "wire_bytes_per_step", r->wire_bytes);
        cli_json_number(&j, "ratio", r->wire_bytes > 0 ? r->dense_bytes / r->wire_bytes : NAN);
        cli_json_number(&j, "step_seconds", step_seconds(&r->times));
        cli_json_number(&j, "compute_seconds", r->times.compute);
        cli_json_number(&j, "encode_seconds", r->times.encode);
        cli_json_number(&j, "exchange_seconds", r->times.exchange);
        cli_json_number(&j, "decode_seconds", r->times.decode);
        for (int k = 0; k < LINK_N; k++) {
            cli_json_number(&j, names[k], predict(r, links[k]));
        }
        cli_json_bool(&j, "replicas_identical", 1); /* had they not been, the run would have failed */
        cli_json_number(&j, "seconds", r->seconds);
        cli_json_end(&j);
    }
    cli_json_end(&j);
    cli_json_finish(&j);
}

/* ---- the command ----------------------------------------------------------------------------------------------------- */

static int compare(const cli_args *args, const tr_data *data, const char *const *recipes, size_t n)
{
    row *rows = calloc(n, sizeof *rows);
    if (rows == NULL) {
        return cli_fail_memory();
    }
    uint64_t steps = cli_train_settings(args, data, recipes[0], args->seed).steps;
    watch w = {.total = steps * n * args->seeds};
    int code = CLI_OK;
    for (size_t i = 0; i < n && code == CLI_OK; i++) {
        code = run_recipe(&rows[i], &w, args, data, recipes[i]);
        if (code == CLI_OK && !isatty(STDERR_FILENO)) {
            fprintf(stderr, "%zu of %zu: %s, %.2f%%, %.0f s\n", i + 1, n, recipes[i], 100 * rows[i].accuracy,
                    rows[i].seconds);
        }
    }
    cli_progress_clear();
    if (code == CLI_OK && args->json) {
        print_json(args, rows, n, steps);
    } else if (code == CLI_OK) {
        code = print_text(args, rows, n, steps);
    }
    free(rows);
    return code;
}

static int run(const cli_args *args)
{
    int own = args->recipes.n > 0;
    size_t n = own ? args->recipes.n : sizeof standard_recipes / sizeof *standard_recipes;
    const char *const *recipes = own ? (const char *const *)args->recipes.items : standard_recipes;
    char why[TR_WHY] = "";
    tr_data *data = NULL;
    int code = cli_train_check(args, recipes, n);
    if (code != CLI_OK) {
        return code;
    }
    if (tr_data_open(&data, args->data, why) != 0) {
        return cli_fail(CLI_FAILED, "%s", why);
    }
    code = compare(args, data, recipes, n);
    tr_data_free(data);
    return code;
}

static const cli_flag_use flags[] = {
    {CLI_FLAG_RECIPES, NULL},      {CLI_FLAG_RECIPE, NULL},        {CLI_FLAG_SEEDS, "1"},
    {CLI_FLAG_MODEL, "lenet"},     {CLI_FLAG_DATA, "fashion"},     {CLI_FLAG_RULE, NULL},
    {CLI_FLAG_DENSE_BELOW, "0"},   {CLI_FLAG_EXCHANGE, NULL},      {CLI_FLAG_WORKERS, "4"},
    {CLI_FLAG_BATCH, "32"},        {CLI_FLAG_EPOCHS, "1"},         {CLI_FLAG_STEPS, NULL},
    {CLI_FLAG_SEED, "1"},          {CLI_FLAG_AUGMENT, NULL},       {CLI_FLAG_OPTIMIZER, "sgd"},
    {CLI_FLAG_RATE, NULL},         {CLI_FLAG_MOMENTUM, "0.9"},     {CLI_FLAG_NESTEROV, NULL},
    {CLI_FLAG_WEIGHT_DECAY, "0"},  {CLI_FLAG_SCHEDULE, "cosine"},  {CLI_FLAG_WARMUP, "0"},
    {CLI_FLAG_NONFINITE, "error"}, {CLI_FLAG_VERIFY_EVERY, "100"}, {CLI_FLAG_JSON, NULL},
};

const cli_command cli_compare = {
    .name = "compare",
    .summary = "the same training by several recipes, as a table",
    .usage = "[--recipes 'A;B;C'] [flags]",
    .about =
        "Trains the same model on the same data once for each recipe and seed, and shows accuracy, bytes and time\n"
        "side by side, with the step time to expect on slower links. --recipe may be repeated.",
    .examples = "tersegrad compare --steps 300\n"
                "tersegrad compare --recipes 'dense;ef+topk@0.01;ef+topk@0.001' --seeds 3 --epochs 2\n"
                "tersegrad compare --model mlp --data glyphs --workers 8 --json\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 0,
    .file_max = 0,
    .run = run,
};
