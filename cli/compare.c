/* `tersegrad compare`: the same training run by several recipes and seeds, as one table. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "compare_run.h"
#include "fail.h"
#include "settings.h"
#include "table.h"
#include "text.h"
#include "train_settings.h"

/* Every preset but those of LGC, whose phases are longer than a demonstration; and fp16. */
static const char *const standard_recipes[] = {
    "dense",      "fp16",     "ef-topk@0.01", "dgc@0.01",   "random-k@0.1", "random-block@0.1", "adacomp", "bingrad-b",
    "bingrad-pb", "terngrad", "signsgd",      "ef-signsgd", "onebit",       "powersgd@4",       "co3",     "co3@fp8",
};

/* ---- results --------------------------------------------------------------------------------------------------------- */

/* The remark at the end of a row: "diverged at step 41", "failed", or nothing. */
static const char *remark(char out[64], const cli_run *r, uint32_t seeds)
{
    out[0] = '\0';
    if (r->diverged > 0 && seeds > 1) {
        snprintf(out, 64, "diverged at step %" PRIu64 " (%u of %u seeds)", r->diverged, r->diverged_n, seeds);
    } else if (r->diverged > 0) {
        snprintf(out, 64, "diverged at step %" PRIu64, r->diverged);
    } else if (r->failed[0] != '\0') {
        snprintf(out, 64, "failed");
    }
    return out;
}

enum { COLUMN_MAX = 20 };

/* The cells of a row, collected: which columns there are depends on the flags. */
typedef struct cells {
    char text[COLUMN_MAX][64];
    size_t n;
} cells;

static void add(cells *c, const char *text)
{
    snprintf(c->text[c->n++], sizeof c->text[0], "%s", text);
}

static void add_number(cells *c, double value, int digits)
{
    char text[CLI_NUMBER_CAP];
    add(c, cli_text_number(text, value, digits));
}

/* What both kinds of table begin with. */
static void add_costs(cells *c, const cli_run *r, uint32_t seeds)
{
    char accuracy[32], bytes[CLI_NUMBER_CAP];
    if (seeds > 1) {
        snprintf(accuracy, sizeof accuracy, "%.2f ±%.2f", 100 * r->accuracy, 50 * r->spread);
    } else {
        snprintf(accuracy, sizeof accuracy, "%.2f", 100 * r->accuracy);
    }
    add(c, r->exchange);
    add(c, accuracy);
    add(c, cli_text_count(bytes, (uint64_t)(r->wire_bytes + 0.5)));
    add_number(c, r->wire_bytes > 0 ? r->dense_bytes / r->wire_bytes : NAN, 1);
    add_number(c, 1e3 * cli_run_step(&r->times), 1);
    add_number(c, 1e3 * r->times.exposed, 2);
    add_number(c, 1e3 * r->times.encode, 2);
    add_number(c, 1e3 * r->times.exchange, 2);
    add_number(c, 1e3 * r->times.decode, 2);
}

/* Seconds to the target, and how many times as fast as `measure` that is. */
static void add_aim(cells *c, const cli_run *r, const cli_run *measure, double target)
{
    const cli_point *own = cli_run_reach(r, target), *other = measure != NULL ? cli_run_reach(measure, target) : NULL;
    add_number(c, own != NULL ? own->seconds : NAN, 1);
    add_number(c, own != NULL && other != NULL ? other->seconds / own->seconds : NAN, 1);
}

static void add_row(cli_table *table, const cli_args *args, const cli_run *r, const cli_run *measure, double target)
{
    char note[64];
    cells c = {.n = 0};
    add(&c, r->recipe);
    if (r->failed[0] == '\0') {
        add_costs(&c, r, args->seeds);
        for (int i = 0; i < CLI_LINK_N && args->link.bits <= 0; i++) {
            add_number(&c, 1e3 * cli_run_predict(r, cli_run_links[i]), 1);
        }
        if (cli_run_aims(args)) {
            add_aim(&c, r, measure, target);
        }
    }
    size_t column_n = strlen(table->columns);
    c.n = column_n - 1;
    add(&c, remark(note, r, args->seeds));
    const char *list[COLUMN_MAX];
    for (size_t i = 0; i < column_n; i++) {
        list[i] = c.text[i];
    }
    cli_table_cells(table, list);
}

static int print_table(const cli_args *args, const cli_run *rows, size_t n)
{
    static const char *const costs[] = {"recipe", "exchange", "test %", "bytes/step", "ratio",
                                        "step",   "exposed",  "encode", "exch.",      "decode"};
    static const char *const links[CLI_LINK_N] = {"100 Mbit/s", "1 Gbit/s", "10 Gbit/s"};
    double target = cli_run_target(args, rows, n);
    const cli_run *measure = cli_run_measure(rows, n);
    char columns[COLUMN_MAX + 1] = "llrrrrrrrr", aim[32];
    const char *head[COLUMN_MAX];
    size_t head_n = sizeof costs / sizeof *costs;
    memcpy(head, costs, sizeof costs);
    for (int i = 0; i < CLI_LINK_N && args->link.bits <= 0; i++) {
        head[head_n] = links[i];
        columns[head_n++] = 'r';
    }
    if (cli_run_aims(args)) {
        snprintf(aim, sizeof aim, "s to %.1f%%", 100 * target);
        head[head_n] = aim;
        columns[head_n++] = 'r';
        head[head_n] = "times as fast";
        columns[head_n++] = 'r';
    }
    head[head_n] = "";
    columns[head_n++] = 'l';
    columns[head_n] = '\0';
    cli_table table;
    cli_table_init(&table, columns);
    table.has_head = 1;
    cli_table_cells(&table, head);
    for (size_t i = 0; i < n; i++) {
        add_row(&table, args, &rows[i], measure, target);
    }
    int code = cli_table_print(&table, stdout, 0);
    cli_table_free(&table);
    return code;
}

static void print_legend(const cli_args *args, const cli_run *rows, size_t n)
{
    puts("\n"
         "bytes/step  bytes that one worker sends, headers included\n"
         "ratio       bytes of an fp32 all-reduce in every step, local steps included, over bytes/step\n"
         "step        measured: computing, the exposed part of the exchange, and the update of weights");
    if (args->group_size > 0) {
        puts("exposed     the part of encode, exch. and decode that the backward pass does not hide (--group-size)");
    } else {
        puts("exposed     encode, exch. and decode, all after the backward pass (--group-size 0)");
    }
    if (args->link.bits > 0) {
        printf(
            "exch.       copying, waiting for each other, and the emulated link of %g Mbit/s and %g ms, which delays\n"
            "            messages by the time that their bytes would take ('tersegrad help link')\n",
            args->link.bits / 1e6, args->link.latency * 1e3);
    } else {
        puts(
            "exch.       copying and waiting for each other\n"
            "Mbit/s      predicted step if the busiest worker had to send its bytes over such a link, without overlap");
    }
    if (cli_run_aims(args)) {
        printf("s to %.1f%%  seconds of training, without tests, until a test first reached that accuracy%s\n",
               100 * cli_run_target(args, rows, n), args->seeds > 1 ? ", first seed" : "");
    }
    for (size_t i = 0; i < n; i++) {
        if (rows[i].diverged > 0) {
            printf("\n%s diverged: its accuracy means nothing; %s.\n", rows[i].recipe, rows[i].hint);
        }
    }
}

static int print_text(const cli_args *args, const cli_run *rows, size_t n, const tr_settings *s)
{
    char link[96] = "";
    if (args->link.bits > 0) {
        snprintf(link, sizeof link, ", over an emulated link of %g Mbit/s and %g ms", args->link.bits / 1e6,
                 args->link.latency * 1e3);
    }
    printf("%s on %s: %u workers, batch %" PRIu64 " each, %" PRIu64 " steps, %s with rate %g, %u seed%s%s.\n"
           "Times are milliseconds a step.\n\n",
           args->model, args->data, args->workers, args->batch, s->steps, s->optimizer.rule == TR_SGD ? "sgd" : "adam",
           s->optimizer.rate, args->seeds, args->seeds == 1 ? "" : "s", link);
    int code = print_table(args, rows, n);
    print_legend(args, rows, n);
    if (args->page != NULL) {
        printf("\nThe page, with the curves: %s\n", args->page);
    }
    return code;
}

/* ---- the command ----------------------------------------------------------------------------------------------------- */

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

/* A row's recipe and local steps, and what it is called: "adacomp", "adacomp, 4 local steps". */
static int name_run(cli_run *r, const char *text, const cli_args *args, const tr_data *data)
{
    int code = cli_train_rounds(&r->local, r->bare, text, args);
    char rounds[TR_ROUNDS_CAP];
    tr_settings s = cli_train_settings(args, data, r->bare, args->seed);
    cli_train_local(&s, args, &r->local);
    tr_settings_rounds(rounds, &s);
    if (tg_schedule_is_one(&r->local)) {
        snprintf(r->name, sizeof r->name, "%s", r->bare);
    } else {
        snprintf(r->name, sizeof r->name, "%s, %.32s local steps", r->bare, rounds);
    }
    r->recipe = r->name;
    if (code == CLI_OK) {
        cli_train_warn(&s);
    }
    return code;
}

static int compare(const cli_args *args, const tr_data *data, const char *const *recipes, size_t n)
{
    cli_run *runs = calloc(n, sizeof *runs);
    if (runs == NULL) {
        return cli_fail_memory();
    }
    int code = CLI_OK;
    for (size_t i = 0; i < n && code == CLI_OK; i++) {
        code = name_run(&runs[i], recipes[i], args, data);
    }
    tr_settings settings = cli_train_settings(args, data, runs[0].bare, args->seed);
    code = code == CLI_OK ? cli_run_all(runs, n, args, data, settings.steps) : code;
    if (code == CLI_OK && args->page != NULL) {
        code = cli_run_page(args->page, args, runs, n, &settings);
    }
    if (code == CLI_OK && (args->json || args->csv)) {
        code = cli_run_json(stdout, args, runs, n, &settings, 0);
    } else if (code == CLI_OK) {
        code = print_text(args, runs, n, &settings);
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
    if (args->link.kind == CLI_LINK_MPI) {
        return cli_fail(CLI_MISUSE, "compare runs its workers as threads; --link takes threads or a rate here");
    }
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
    {CLI_FLAG_RECIPES, NULL},
    {CLI_FLAG_RECIPE, NULL},
    {CLI_FLAG_SEEDS, "1"},
    {CLI_FLAG_MODEL, "lenet"},
    {CLI_FLAG_DATA, "fashion"},
    {CLI_FLAG_RULE, NULL},
    {CLI_FLAG_DENSE_BELOW, "0"},
    {CLI_FLAG_EXCHANGE, NULL},
    {CLI_FLAG_LINK, NULL},
    {CLI_FLAG_HOSTS, NULL},
    {CLI_FLAG_GROUP_SIZE, CLI_GROUP_SIZE},
    {CLI_FLAG_TARGET, NULL},
    {CLI_FLAG_TEST_EVERY, NULL},
    {CLI_FLAG_WORKERS, "4"},
    {CLI_FLAG_BATCH, "32"},
    {CLI_FLAG_EPOCHS, "1"},
    {CLI_FLAG_STEPS, NULL},
    {CLI_FLAG_SEED, "1"},
    {CLI_FLAG_AUGMENT, NULL},
    {CLI_FLAG_LOCAL_STEPS, "1"},
    {CLI_FLAG_OUTER, "average"},
    {CLI_FLAG_OPTIMIZER, "sgd"},
    {CLI_FLAG_RATE, NULL},
    {CLI_FLAG_MOMENTUM, "0.9"},
    {CLI_FLAG_NESTEROV, NULL},
    {CLI_FLAG_WEIGHT_DECAY, "0"},
    {CLI_FLAG_SCHEDULE, "cosine"},
    {CLI_FLAG_WARMUP, "0"},
    {CLI_FLAG_NONFINITE, "error"},
    {CLI_FLAG_VERIFY_EVERY, "100"},
    {CLI_FLAG_PAGE, NULL},
    {CLI_FLAG_CONFIG, NULL},
    {CLI_FLAG_JSON, NULL},
    {CLI_FLAG_CSV, NULL},
};

const cli_command cli_compare = {
    .name = "compare",
    .summary = "the same training by several recipes, as a table",
    .usage = "[--recipes 'A;B;C'] [flags]",
    .about =
        "Trains the same model on the same data once for each recipe and seed, and shows accuracy, bytes and time\n"
        "side by side, with the step time to expect on slower links. With --link RATE, trains over an emulated slow\n"
        "link and prints the time to an accuracy (--target). A run that diverged is marked ('tersegrad help\n"
        "diverged'). --recipe may be repeated. RECIPE:H trains with H local steps ('tersegrad help local-steps').",
    .examples = "tersegrad compare --steps 300 --page compare.html\n"
                "tersegrad compare --recipes 'dense;bf16;adacomp' --link 100mbit,1ms --target 80 --steps 300\n"
                "tersegrad compare --recipes 'dense;ef+topk@0.01;ef+topk@0.001' --seeds 3 --epochs 2\n"
                "tersegrad compare --recipes 'dense;adacomp;adacomp:4' --link 10mbit,5ms --steps 300\n"
                "tersegrad compare --model mlp --data glyphs --workers 8 --json\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 0,
    .file_max = 0,
    .run = run,
};
