/* `tersegrad similarity`: trains a built-in model uncompressed, and says how much the workers' gradients share. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "fail.h"
#include "gradients.h"
#include "json.h"
#include "page.h"
#include "progress.h"
#include "similarity_run.h"
#include "table.h"
#include "text.h"
#include "train_settings.h"

/* A weight tensor, or all of them end to end. */
typedef struct part {
    char name[64];
    const char *kind;
    size_t from;     /* in the model's array */
    size_t at, n, k; /* its place in `values`, and how many are its largest */
} part;

typedef struct study {
    const cli_args *args;
    const tr_settings *settings;
    uint64_t diverged; /* as in tr_result */
    uint64_t every;
    part *parts; /* the weight tensors, and behind them the whole of them */
    size_t part_n;
    float **values; /* each worker's gradients of the parts, end to end */
    cli_similarity_room *room;
    cli_similarity_row *rows; /* one a comparison and part, comparison by comparison */
    size_t done_n, due_n;     /* comparisons */
} study;

/* ---- the parts ------------------------------------------------------------------------------------------------------- */

/* Norms and biases are left out, as they are of compression. */
static int is_weight(const tr_param *param)
{
    return param->kind != TG_NORM && param->kind != TG_BIAS && param->n > 0;
}

static int list_parts(study *s, const tr_model *model)
{
    size_t param_n = tr_model_param_n(model), at = 0;
    double ratio = s->args->ratio;
    s->parts = calloc(param_n + 1, sizeof *s->parts);
    if (s->parts == NULL) {
        return cli_fail_memory();
    }
    for (size_t p = 0; p < param_n; p++) {
        const tr_param *param = tr_model_param(model, p);
        if (is_weight(param)) {
            part *to = &s->parts[s->part_n++];
            *to = (part){.kind = tg_kind_name(param->kind), .from = param->at, .at = at, .n = param->n};
            to->k = cli_similarity_k(to->n, ratio);
            snprintf(to->name, sizeof to->name, "%s", param->name);
            at += param->n;
        }
    }
    s->parts[s->part_n++] = (part){.name = "all of them", .kind = "all", .n = at, .k = cli_similarity_k(at, ratio)};
    return CLI_OK;
}

/* At the first comparison: before it there is no model to ask. */
static int prepare(study *s, const tr_model *model, uint32_t workers)
{
    int code = list_parts(s, model);
    if (code != CLI_OK) {
        return code;
    }
    size_t n = s->parts[s->part_n - 1].n;
    s->due_n = (size_t)((s->settings->steps + s->every - 1) / s->every);
    s->rows = calloc(s->due_n, s->part_n * sizeof *s->rows);
    s->values = calloc(workers, sizeof(float *));
    int sound = s->rows != NULL && s->values != NULL;
    for (uint32_t w = 0; w < workers && sound; w++) {
        s->values[w] = malloc(n * sizeof **s->values);
        sound = s->values[w] != NULL;
    }
    return sound ? cli_similarity_room_new(&s->room, workers, n) : cli_fail_memory();
}

static void free_study(study *s)
{
    for (uint32_t w = 0; w < s->args->workers && s->values != NULL; w++) {
        free(s->values[w]);
    }
    free(s->values);
    cli_similarity_room_free(s->room);
    free(s->rows);
    free(s->parts);
}

/* ---- hooks ----------------------------------------------------------------------------------------------------------- */

static void copy_parts(study *s, tr_model *const *models, uint32_t workers)
{
    for (uint32_t w = 0; w < workers; w++) {
        size_t n = 0;
        const float *grads = tr_model_grads(models[w], &n);
        for (size_t i = 0; i + 1 < s->part_n; i++) {
            const part *p = &s->parts[i];
            memcpy(s->values[w] + p->at, grads + p->from, p->n * sizeof *grads);
        }
    }
}

static int on_gradients(void *context, uint64_t step, tr_model *const *models, uint32_t n, char why[TR_WHY])
{
    study *s = context;
    why[0] = '\0'; /* whatever goes wrong here is reported */
    if (step % s->every != 0) {
        return 0;
    }
    if (s->parts == NULL && prepare(s, models[0], n) != CLI_OK) {
        return -1;
    }
    copy_parts(s, models, n);
    for (size_t i = 0; i < s->part_n; i++) {
        const part *p = &s->parts[i];
        s->rows[s->done_n * s->part_n + i] =
            cli_similarity_measure(s->room, (const float *const *)s->values, p->at, p->n, p->k);
    }
    s->done_n++;
    return s->args->gradients != NULL ? cli_gradients_save_all(s->args->gradients, step, models, n, why) : 0;
}

static int on_step(void *context, const tr_step *step, char why[TR_WHY])
{
    study *s = context;
    char text[120];
    (void)why;
    snprintf(text, sizeof text, "step %" PRIu64 "/%" PRIu64 ", loss %.4f", step->step + 1, s->settings->steps,
             step->loss);
    cli_progress_show(text, (double)step->step + 1, (double)s->settings->steps);
    return 0;
}

static int on_test(void *context, const tr_test *test, char why[TR_WHY])
{
    (void)context;
    (void)test;
    (void)why;
    return 0;
}

/* ---- results --------------------------------------------------------------------------------------------------------- */

/* What a part came to over the run. */
static cli_similarity_row mean_row(const study *s, size_t part_at)
{
    return cli_similarity_mean(s->rows + part_at, s->done_n, s->part_n);
}

/* What two random sets of k would share. */
static double chance(const part *p)
{
    return (double)p->k / (double)p->n;
}

static void put_part(cli_json *j, const char *key, const study *s, size_t part_at)
{
    const part *p = &s->parts[part_at];
    cli_similarity_row row = mean_row(s, part_at);
    cli_json_object(j, key);
    if (key == NULL) {
        cli_json_text(j, "name", p->name);
        cli_json_text(j, "kind", p->kind);
    }
    cli_json_count(j, "n", p->n);
    cli_json_number(j, "cosine", row.cosine);
    cli_json_number(j, "overlap", row.overlap);
    cli_json_number(j, "chance", chance(p));
    cli_json_number(j, "information", row.information);
    cli_json_end(j);
}

static double number_at(const cli_similarity_row *row, int which)
{
    return which == 0 ? row->cosine : which == 1 ? row->overlap : row->information;
}

/* One comparison: each number by the name of the tensor, and those of the whole. */
static void put_comparison(cli_json *j, const study *s, size_t at)
{
    static const char *const names[] = {"cosine", "overlap", "information"};
    const cli_similarity_row *rows = s->rows + at * s->part_n, *whole = rows + s->part_n - 1;
    cli_json_object(j, NULL);
    cli_json_count(j, "step", at * s->every);
    for (int which = 0; which < 3; which++) {
        cli_json_object(j, names[which]);
        for (size_t i = 0; i + 1 < s->part_n; i++) {
            cli_json_number(j, s->parts[i].name, number_at(&rows[i], which));
        }
        cli_json_end(j);
    }
    cli_json_object(j, "whole");
    for (int which = 0; which < 3; which++) {
        cli_json_number(j, names[which], number_at(whole, which));
    }
    cli_json_end(j);
    cli_json_end(j);
}

static int put_json(FILE *out, const study *s, int csv)
{
    const tr_settings *t = s->settings;
    cli_json j;
    cli_json_begin_as(&j, out, csv, "tensors");
    cli_json_text(&j, "version", tg_version());
    cli_json_text(&j, "model", t->model);
    cli_json_text(&j, "data", s->args->data);
    cli_json_count(&j, "workers", t->workers);
    cli_json_count(&j, "batch", t->batch);
    cli_json_count(&j, "steps", t->steps);
    cli_json_count(&j, "every", s->every);
    cli_json_count(&j, "seed", t->seed);
    cli_json_number(&j, "ratio", s->args->ratio);
    if (s->diverged > 0) {
        cli_json_count(&j, "diverged", s->diverged);
    } else {
        cli_json_null(&j, "diverged");
    }
    cli_json_array(&j, "tensors");
    for (size_t i = 0; i + 1 < s->part_n; i++) {
        put_part(&j, NULL, s, i);
    }
    if (csv) { /* the last row of the table, too */
        put_part(&j, NULL, s, s->part_n - 1);
    }
    cli_json_end(&j);
    put_part(&j, "whole", s, s->part_n - 1);
    cli_json_array(&j, "over_time");
    for (size_t i = 0; i < s->done_n; i++) {
        put_comparison(&j, s, i);
    }
    cli_json_end(&j);
    return cli_json_finish(&j);
}

static int write_page(const study *s)
{
    cli_page page;
    int code = cli_page_open(&page, CLI_PAGE_SIMILARITY);
    if (code != CLI_OK) {
        return code;
    }
    code = put_json(page.data, s, 0);
    int closed = cli_page_close(&page, s->args->page);
    return code != CLI_OK ? code : closed;
}

static int print_table(const study *s)
{
    cli_table table;
    cli_table_init(&table, "lrrrrr");
    table.has_head = 1;
    cli_table_row(&table, "tensor", "values", "cosine", "overlap", "by chance", "information");
    for (size_t i = 0; i < s->part_n; i++) {
        const part *p = &s->parts[i];
        cli_similarity_row row = mean_row(s, i);
        char n[CLI_NUMBER_CAP], cells[4][CLI_NUMBER_CAP];
        cli_table_row(&table, p->name, cli_text_count(n, p->n), cli_text_number(cells[0], row.cosine, 3),
                      cli_text_number(cells[1], row.overlap, 3), cli_text_number(cells[2], chance(p), 3),
                      cli_text_number(cells[3], row.information, 3));
    }
    int code = cli_table_print(&table, stdout, 0);
    cli_table_free(&table);
    return code;
}

static int print_text(const study *s)
{
    const tr_settings *t = s->settings;
    printf("%s on %s: %u workers, batch %zu each, %" PRIu64 " steps, seed %" PRIu64 ", uncompressed. "
           "Means over pairs of workers and %zu step%s.\n\n",
           t->model, s->args->data, t->workers, t->batch, t->steps, t->seed, s->done_n, s->done_n == 1 ? "" : "s");
    int code = print_table(s);
    printf("\n"
           "cosine       of the angle between two workers' gradients: 1 the same direction, 0 unrelated ones\n"
           "overlap      share of the largest values (%g of all) that two workers have in common\n"
           "by chance    what it would be for sets drawn at random; all of them together share more than that already\n"
           "             because values of some layers are larger than those of others\n"
           "information  bits that a worker's largest values tell about another's at the same places, each value as\n"
           "             one of four quantiles: from 0 to 2; '-' for fewer than %d values\n",
           s->args->ratio, CLI_SIMILARITY_LEAST);
    if (s->diverged > 0) {
        printf("\nTraining diverged at step %" PRIu64
               ", so these gradients are not those of a model that learns; %s.\n",
               s->diverged, cli_train_hint(t));
    }
    if (s->args->page != NULL) {
        printf("\nThe page, with the curves: %s\n", s->args->page);
    }
    return code;
}

/* ---- the command ----------------------------------------------------------------------------------------------------- */

static int train(study *s, const tr_data *data)
{
    tr_hooks hooks = {.context = s, .gradients = on_gradients, .step = on_step, .test = on_test};
    tr_result result = {0};
    char why[TR_WHY] = "";
    int failed = tr_run(&result, s->settings, data, &hooks, NULL, 0, why);
    cli_progress_clear();
    s->diverged = result.diverged;
    if (failed != 0) {
        int code = failed == TR_MISUSE ? CLI_MISUSE : CLI_FAILED;
        return why[0] != '\0' ? cli_fail(code, "%s", why) : code;
    }
    return CLI_OK;
}

static int report(const study *s)
{
    int code = s->args->page != NULL ? write_page(s) : CLI_OK;
    if (code == CLI_OK && (s->args->json || s->args->csv)) {
        code = put_json(stdout, s, s->args->csv);
    } else if (code == CLI_OK) {
        code = print_text(s);
    }
    return code;
}

static int run(const cli_args *args)
{
    static const char *const recipe = "dense";
    enum { COMPARISONS = 20 }; /* about, unless --every says otherwise */
    if (args->workers < 2) {
        return cli_fail(CLI_MISUSE, "similarity compares workers with each other, so it needs at least 2 --workers");
    }
    tr_data *data = NULL;
    int code = cli_train_check(args, &recipe, 1);
    if (code == CLI_OK) {
        code = cli_train_data(&data, args);
    }
    if (code != CLI_OK) {
        return code;
    }
    tr_settings settings = cli_train_settings(args, data, recipe, args->seed);
    settings.test_every = 0; /* nothing here depends on tests */
    study s = {.args = args, .settings = &settings, .every = (settings.steps + COMPARISONS / 2) / COMPARISONS};
    if (cli_args_has(args, CLI_FLAG_EVERY)) {
        s.every = args->every;
    } else if (s.every == 0) {
        s.every = 1;
    }
    code = train(&s, data);
    if (code == CLI_OK) {
        code = report(&s);
    }
    free_study(&s);
    tr_data_free(data);
    return code;
}

static const cli_flag_use flags[] = {
    {CLI_FLAG_MODEL, "lenet"},  {CLI_FLAG_DATA, "fashion"}, {CLI_FLAG_WORKERS, "4"},      {CLI_FLAG_BATCH, "32"},
    {CLI_FLAG_EPOCHS, "1"},     {CLI_FLAG_STEPS, NULL},     {CLI_FLAG_EVERY, NULL},       {CLI_FLAG_RATIO, "0.01"},
    {CLI_FLAG_SEED, "1"},       {CLI_FLAG_AUGMENT, NULL},   {CLI_FLAG_OPTIMIZER, "sgd"},  {CLI_FLAG_RATE, NULL},
    {CLI_FLAG_MOMENTUM, "0.9"}, {CLI_FLAG_NESTEROV, NULL},  {CLI_FLAG_WEIGHT_DECAY, "0"}, {CLI_FLAG_SCHEDULE, "cosine"},
    {CLI_FLAG_WARMUP, "0"},     {CLI_FLAG_GRADIENTS, NULL}, {CLI_FLAG_PAGE, NULL},        {CLI_FLAG_JSON, NULL},
    {CLI_FLAG_CSV, NULL},
};

const cli_command cli_similarity = {
    .name = "similarity",
    .summary = "how much the gradients of workers share, by layer and over time",
    .usage = "[flags]",
    .about = "Trains a model with N workers that average their gradients uncompressed. Periodically compares the\n"
             "gradients of each pair of workers before they are averaged: the cosine, the overlap of the largest\n"
             "values, and the mutual information of the values there. Norms and biases are left out. The same seed\n"
             "gives the same numbers.",
    .examples = "tersegrad similarity --steps 200 --page similarity.html\n"
                "tersegrad similarity --model resnet8 --workers 8 --ratio 0.001 --steps 400 --every 50\n"
                "tersegrad similarity --model mlp --data glyphs --epochs 2 --json\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 0,
    .file_max = 0,
    .run = run,
};
