/* `tersegrad compare`: the same training run by several recipes and seeds, as one table. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "clock.h"
#include "commands.h"
#include "compare_run.h"
#include "fail.h"
#include "progress.h"
#include "table.h"
#include "text.h"
#include "train_settings.h"

/* Every preset but those of LGC, whose phases are longer than a demonstration; and fp16. */
static const char *const standard_recipes[] = {
    "dense",      "fp16",     "ef-topk@0.01", "dgc@0.01",   "random-k@0.1", "random-block@0.1", "adacomp", "bingrad-b",
    "bingrad-pb", "terngrad", "signsgd",      "ef-signsgd", "onebit",       "powersgd@4",       "co3",     "co3@fp8",
};

/* The run in progress: its progress line, and what it leaves for the page. */
typedef struct watch {
    const tr_settings *settings;
    cli_run *run;
    int keeps;            /* it is of the first seed */
    uint64_t done, total; /* steps of all runs */
    double last_line;
    double sent; /* bytes of one worker so far */
    double loss; /* summed over the stretch of steps that makes a point */
    uint64_t stretch_n;
} watch;

static void show(watch *w, const tr_step *step)
{
    double now = cli_clock_now();
    if (now - w->last_line >= 0.1) {
        char text[120];
        snprintf(text, sizeof text, "%s, step %" PRIu64 ", loss %.4f", w->run->recipe, step->step + 1, step->loss);
        cli_progress_show(text, w->done, w->total);
        w->last_line = now;
    }
}

static int start_layers(cli_run *r, const tr_step *step)
{
    r->layer_n = tr_model_param_n(step->model);
    r->layers = calloc(r->layer_n + 1, sizeof *r->layers);
    if (r->layers == NULL) {
        return -1;
    }
    for (size_t p = 0; p < r->layer_n; p++) {
        const tr_param *param = tr_model_param(step->model, p);
        snprintf(r->layers[p].name, sizeof r->layers[p].name, "%s", param->name);
        r->layers[p].elements = param->n;
    }
    return 0;
}

/* What each layer took in the step that makes a point, and what was learned. */
static void keep_layers(cli_run *r, const tr_step *step)
{
    bool known = step->learning.phase > 0 && step->learning.error >= 0;
    r->learned[r->curve_n] = known ? step->learning.error : NAN;
    for (size_t p = 0; p < r->layer_n; p++) {
        const tg_traffic *t = &step->traffic[p];
        r->layers[p].len = t->len;
        r->layers[p].rates[r->curve_n] = t->bins > 0 ? (double)t->entries / (double)t->bins : NAN;
    }
}

/* Steps make a point of the curve together, so that there are at most CLI_CURVE_MAX. */
static int keep_step(watch *w, const tr_step *step)
{
    uint64_t stretch = (w->settings->steps + CLI_CURVE_MAX - 1) / CLI_CURVE_MAX;
    cli_run *r = w->run;
    if (r->layers == NULL && start_layers(r, step) != 0) {
        return -1;
    }
    w->loss += step->loss;
    if (++w->stretch_n == stretch && r->curve_n < CLI_CURVE_MAX) {
        keep_layers(r, step);
        r->curve[r->curve_n++] = (cli_point){(double)step->step + 1, w->loss / (double)w->stretch_n, w->sent};
        w->loss = 0;
        w->stretch_n = 0;
    }
    return 0;
}

static int on_step(void *context, const tr_step *step, char why[TR_WHY])
{
    watch *w = context;
    w->done++;
    w->sent += (double)(step->bytes.payload + step->bytes.header) / w->settings->workers;
    show(w, step);
    if (w->keeps && keep_step(w, step) != 0) {
        snprintf(why, TR_WHY, "there is not enough memory");
        return -1;
    }
    return 0;
}

static int on_test(void *context, const tr_test *test, char why[TR_WHY])
{
    watch *w = context;
    (void)why;
    if (w->keeps && w->run->test_n < CLI_TEST_MAX) {
        w->run->tests[w->run->test_n++] = (cli_point){(double)test->step, test->accuracy, w->sent};
    }
    return 0;
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

static void add_result(cli_run *r, const tr_result *one, double share)
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

static void run_recipe(cli_run *out, watch *w, const cli_args *args, const tr_data *data, const char *recipe)
{
    double lowest = INFINITY, highest = -INFINITY, start = cli_clock_now();
    *out = (cli_run){.recipe = recipe};
    w->run = out;
    for (uint32_t k = 0; k < args->seeds; k++) {
        tr_settings settings = cli_train_settings(args, data, recipe, args->seed + k);
        settings.test_every = k == 0 ? settings.steps / 5 + 1 : 0; /* tests take longer than steps */
        w->settings = &settings;
        w->keeps = k == 0;
        w->sent = w->loss = 0;
        w->stretch_n = 0;
        tr_hooks hooks = {.context = w, .step = on_step, .test = on_test};
        tr_result result = {0};
        char why[TR_WHY] = "";
        int code = tr_run(&result, &settings, data, &hooks, NULL, 0, why);
        if (code != 0) {
            out->misuse = code == TR_MISUSE;
            snprintf(out->failed, sizeof out->failed, "%s", why);
            return;
        }
        add_result(out, &result, 1.0 / args->seeds);
        lowest = fmin(lowest, result.test.accuracy);
        highest = fmax(highest, result.test.accuracy);
        snprintf(out->canonical, sizeof out->canonical, "%s", result.recipe);
        snprintf(out->exchange, sizeof out->exchange, "%s", result.exchange);
    }
    out->spread = highest - lowest;
    out->seconds = cli_clock_now() - start;
}

/* ---- results --------------------------------------------------------------------------------------------------------- */

static void add_row(cli_table *table, const cli_run *r, uint32_t seeds)
{
    if (r->failed[0] != '\0') {
        cli_table_row(table, r->recipe, "", "failed", "", "", "", "", "", "", "", "", "");
        return;
    }
    char accuracy[32], bytes[CLI_NUMBER_CAP], ratio[CLI_NUMBER_CAP], ms[8][CLI_NUMBER_CAP];
    if (seeds > 1) {
        snprintf(accuracy, sizeof accuracy, "%.2f ±%.2f", 100 * r->accuracy, 50 * r->spread);
    } else {
        snprintf(accuracy, sizeof accuracy, "%.2f", 100 * r->accuracy);
    }
    cli_text_number(ms[0], 1e3 * cli_run_step(&r->times), 1);
    cli_text_number(ms[1], 1e3 * r->times.encode, 2);
    cli_text_number(ms[2], 1e3 * r->times.exchange, 2);
    cli_text_number(ms[3], 1e3 * r->times.decode, 2);
    for (int i = 0; i < CLI_LINK_N; i++) {
        cli_text_number(ms[4 + i], 1e3 * cli_run_predict(r, cli_run_links[i]), 1);
    }
    cli_table_row(table, r->recipe, r->exchange, accuracy, cli_text_count(bytes, (uint64_t)(r->wire_bytes + 0.5)),
                  cli_text_number(ratio, r->wire_bytes > 0 ? r->dense_bytes / r->wire_bytes : NAN, 1), ms[0], ms[1],
                  ms[2], ms[3], ms[4], ms[5], ms[6]);
}

static int print_text(const cli_args *args, const cli_run *rows, size_t n, uint64_t steps)
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
    if (args->page != NULL) {
        printf("\nThe page, with the curves: %s\n", args->page);
    }
    return code;
}

/* ---- the command ----------------------------------------------------------------------------------------------------- */

static void run_all(cli_run *runs, const cli_args *args, const tr_data *data, const char *const *recipes, size_t n,
                    uint64_t steps)
{
    watch w = {.total = steps * n * args->seeds};
    for (size_t i = 0; i < n; i++) {
        run_recipe(&runs[i], &w, args, data, recipes[i]);
        w.done = steps * args->seeds * (i + 1); /* one that failed has not done them all */
        if (!isatty(STDERR_FILENO) && runs[i].failed[0] == '\0') {
            fprintf(stderr, "%zu of %zu: %s, %.2f%%, %.0f s\n", i + 1, n, recipes[i], 100 * runs[i].accuracy,
                    runs[i].seconds);
        }
    }
    cli_progress_clear();
}

/* A recipe that failed does not keep the others from being shown, but it is a failure all the same. */
static int report_failures(const cli_run *runs, size_t n)
{
    int code = CLI_OK;
    for (size_t i = 0; i < n && code == CLI_OK; i++) {
        if (runs[i].failed[0] != '\0') {
            code = cli_fail(runs[i].misuse ? CLI_MISUSE : CLI_FAILED, "%s: %s", runs[i].recipe, runs[i].failed);
        }
    }
    return code;
}

static int compare(const cli_args *args, const tr_data *data, const char *const *recipes, size_t n)
{
    tr_settings settings = cli_train_settings(args, data, recipes[0], args->seed);
    cli_run *runs = calloc(n, sizeof *runs);
    if (runs == NULL) {
        return cli_fail_memory();
    }
    run_all(runs, args, data, recipes, n, settings.steps);
    int code = CLI_OK;
    if (args->page != NULL) {
        code = cli_run_page(args->page, args, runs, n, &settings);
    }
    if (code == CLI_OK && (args->json || args->csv)) {
        code = cli_run_json(stdout, args, runs, n, &settings, 0);
    } else if (code == CLI_OK) {
        code = print_text(args, runs, n, settings.steps);
    }
    code = code != CLI_OK ? code : report_failures(runs, n);
    for (size_t i = 0; i < n; i++) {
        free(runs[i].layers);
    }
    free(runs);
    return code;
}

static int run(const cli_args *args)
{
    int own = args->recipes.n > 0;
    size_t n = own ? args->recipes.n : sizeof standard_recipes / sizeof *standard_recipes;
    const char *const *recipes = own ? (const char *const *)args->recipes.items : standard_recipes;
    tr_data *data = NULL;
    int code = cli_train_check(args, recipes, n);
    if (code != CLI_OK) {
        return code;
    }
    code = cli_train_data(&data, args);
    if (code != CLI_OK) {
        return code;
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
    {CLI_FLAG_NONFINITE, "error"}, {CLI_FLAG_VERIFY_EVERY, "100"}, {CLI_FLAG_PAGE, NULL},
    {CLI_FLAG_CONFIG, NULL},       {CLI_FLAG_JSON, NULL},          {CLI_FLAG_CSV, NULL},
};

const cli_command cli_compare = {
    .name = "compare",
    .summary = "the same training by several recipes, as a table",
    .usage = "[--recipes 'A;B;C'] [flags]",
    .about =
        "Trains the same model on the same data once for each recipe and seed, and shows accuracy, bytes and time\n"
        "side by side, with the step time to expect on slower links. --recipe may be repeated.",
    .examples = "tersegrad compare --steps 300 --page compare.html\n"
                "tersegrad compare --recipes 'dense;ef+topk@0.01;ef+topk@0.001' --seeds 3 --epochs 2\n"
                "tersegrad compare --model mlp --data glyphs --workers 8 --json\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 0,
    .file_max = 0,
    .run = run,
};
