/* `tersegrad quality`: error, bias and bits per value of quantizers on known distributions, or on one gradient. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "distribution.h"
#include "fail.h"
#include "json.h"
#include "model.h"
#include "page.h"
#include "progress.h"
#include "quality_run.h"
#include "table.h"
#include "text.h"

static const char *const standard_recipes[] = {
    "fp16",
    "bf16",
    "fp8@e4m3",
    "fp8@e5m2",
    "fp4",
    "fp4+huffman",
    "fp4+rans",
    "mxfp8",
    "mxfp8@e5m2",
    "mxfp4",
    "mxfp4@round=random",
    "hadamard@64+mxfp4",
    "nvfp4",
    "natural",
    "sign",
    "bingrad@b",
    "bingrad@pb",
    "bingrad@zero",
    "ternary",
    "ternary@clip=2.5",
    "orq@3",
    "orq@5",
    "orq@9",
    "orq@17",
    "orq@9,levels=exact",
    "orq@9+rans",
    "linear@3",
    "linear@5",
    "linear@9",
    "qsgd@1",
    "qsgd@2",
    "qsgd@4",
    "qsgd@16",
};

typedef struct report {
    const cli_args *args;
    const char *const *recipes;
    size_t recipe_n;
    uint64_t n;            /* values of each distribution */
    cli_quality_row *rows; /* distribution by distribution, those of few bits first */
    size_t row_n, row_cap;
} report;

/* ---- measuring ------------------------------------------------------------------------------------- */

/* By bits, then by error, then as they were given. */
static int by_bits(const void *a, const void *b)
{
    const cli_quality_row *x = a, *y = b;
    if (x->bits != y->bits) {
        return x->bits > y->bits ? 1 : -1;
    }
    if (x->nmse < y->nmse || x->nmse > y->nmse) {
        return x->nmse > y->nmse ? 1 : -1;
    }
    return (x->place > y->place) - (x->place < y->place);
}

/* The rows of one distribution, whose values are the elements of `tensor`. */
static int measure(report *r, const char *distribution, const tg_tensor *tensor, const float *values)
{
    tg_options opt = cli_args_options(r->args);
    cli_quality_row *rows = r->rows + r->row_n;
    for (size_t i = 0; i < r->recipe_n; i++) {
        char label[TG_RECIPE_CAP + 64];
        snprintf(label, sizeof label, "%s, %s", distribution, r->recipes[i]);
        cli_progress_show(label, (double)r->row_n, (double)r->row_cap);
        rows[i] = (cli_quality_row){.distribution = distribution, .recipe = r->recipes[i], .place = i};
        int code = cli_quality_run(&rows[i], tensor, values, (size_t)r->n, &opt);
        if (code != CLI_OK) {
            return code;
        }
        r->row_n++;
    }
    qsort(rows, r->recipe_n, sizeof *rows, by_bits);
    return CLI_OK;
}

static float *new_values(uint64_t n)
{
    return n <= SIZE_MAX / sizeof(float) ? malloc((size_t)n * sizeof(float)) : NULL;
}

static int measure_known(report *r)
{
    int code = CLI_OK;
    r->n = r->args->n;
    float *values = new_values(r->n);
    if (values == NULL) {
        return cli_fail_memory();
    }
    for (size_t i = 0; i < CLI_DISTRIBUTION_N && code == CLI_OK; i++) {
        const cli_distribution *d = &cli_distributions[i];
        cli_distribution_draw(values, (size_t)r->n, d, r->args->seed);
        code = measure(r, d->name, &(tg_tensor){d->name, &r->n, 1, TG_OTHER, TG_FP32}, values);
    }
    free(values);
    return code;
}

static int measure_input(report *r)
{
    cli_model model;
    int code = cli_model_load_one(&model, r->args->input);
    if (code != CLI_OK) {
        return code;
    }
    r->n = model.element_n;
    float *values = new_values(r->n);
    if (values == NULL) {
        code = cli_fail_memory();
    } else {
        tg_widen(values, model.grads[0], model.tensors[0].dtype, (size_t)r->n);
        code = measure(r, "input", &model.tensors[0], values);
    }
    free(values);
    cli_model_free(&model);
    return code;
}

/* ---- results --------------------------------------------------------------------------------------- */

/* `whole` adds where the values are from, for the page. */
static int put_json(FILE *out, const report *r, int whole)
{
    cli_json j;
    cli_json_begin_as(&j, out, r->args->csv && !whole, "rows");
    if (whole) {
        cli_json_text(&j, "version", tg_version());
        cli_json_text(&j, "input", r->args->input);
        cli_json_count(&j, "steps", CLI_QUALITY_STEPS);
    }
    cli_json_count(&j, "n", r->n);
    cli_json_count(&j, "seed", r->args->seed);
    cli_json_array(&j, "rows");
    for (size_t i = 0; i < r->row_n; i++) {
        const cli_quality_row *q = &r->rows[i];
        cli_json_object(&j, NULL);
        cli_json_text(&j, "distribution", q->distribution);
        cli_json_text(&j, "recipe", q->recipe);
        cli_json_number(&j, "nmse", q->nmse);
        cli_json_number(&j, "bias", q->bias);
        cli_json_number(&j, "bits_per_value", q->bits);
        cli_json_end(&j);
    }
    return cli_json_finish(&j);
}

static int write_page(const report *r)
{
    cli_page page;
    int code = cli_page_open(&page, CLI_PAGE_QUALITY);
    if (code != CLI_OK) {
        return code;
    }
    code = put_json(page.data, r, 1);
    int closed = cli_page_close(&page, r->args->page);
    return code != CLI_OK ? code : closed;
}

static int print_table(const report *r)
{
    cli_table table;
    cli_table_init(&table, "llrrr");
    table.has_head = 1;
    cli_table_row(&table, "distribution", "recipe", "nmse", "bias", "bits per value");
    for (size_t i = 0; i < r->row_n; i++) {
        const cli_quality_row *q = &r->rows[i];
        char nmse[CLI_NUMBER_CAP], bias[CLI_NUMBER_CAP], bits[CLI_NUMBER_CAP];
        if (i > 0 && i % r->recipe_n == 0 && r->recipe_n > 1) {
            cli_table_row(&table, "", "", "", "", ""); /* between distributions */
        }
        cli_table_row(&table, q->distribution, q->recipe, cli_text_short(nmse, q->nmse), cli_text_short(bias, q->bias),
                      cli_text_number(bits, q->bits, 3));
    }
    int code = cli_table_print(&table, stdout, 0);
    cli_table_free(&table);
    return code;
}

static int print_text(const report *r)
{
    char count[CLI_NUMBER_CAP];
    printf("%s value%s %s, seed %" PRIu64 ", encoded %d times with other randomness each time.\n\n",
           cli_text_count(count, r->n), r->n == 1 ? "" : "s",
           r->args->input != NULL ? "from the file" : "of each distribution", r->args->seed, CLI_QUALITY_STEPS);
    int code = print_table(r);
    puts("\n"
         "nmse            squared error of one step, as a share of the values' energy\n"
         "bias            the part of it that does not average out over steps: about 0, on either side of it, for a\n"
         "                recipe without bias, and all of it where nothing is left to chance\n"
         "bits per value  of the whole frame, headers included");
    if (r->args->page != NULL) {
        printf("\nThe page, with charts: %s\n", r->args->page);
    }
    return code;
}

/* ---- the command ----------------------------------------------------------------------------------- */

static int report_all(report *r)
{
    int code = r->args->input != NULL ? measure_input(r) : measure_known(r);
    cli_progress_clear();
    if (code == CLI_OK && r->args->page != NULL) {
        code = write_page(r);
    }
    if (code == CLI_OK && (r->args->json || r->args->csv)) {
        code = put_json(stdout, r, 0);
    } else if (code == CLI_OK) {
        code = print_text(r);
    }
    return code;
}

static int run(const cli_args *args)
{
    report r = {.args = args, .recipes = standard_recipes};
    r.recipe_n = sizeof standard_recipes / sizeof *standard_recipes;
    if (args->recipes.n > 0) {
        r.recipes = (const char *const *)args->recipes.items;
        r.recipe_n = args->recipes.n;
    }
    if (args->input != NULL && cli_args_has(args, CLI_FLAG_N)) {
        return cli_fail(CLI_MISUSE, "--input brings its own size; leave --n out");
    }
    int code = cli_quality_check(r.recipes, r.recipe_n);
    if (code != CLI_OK) {
        return code;
    }
    r.row_cap = r.recipe_n * (args->input != NULL ? 1 : CLI_DISTRIBUTION_N);
    r.rows = calloc(r.row_cap, sizeof *r.rows);
    code = r.rows != NULL ? report_all(&r) : cli_fail_memory();
    free(r.rows);
    return code;
}

static const cli_flag_use flags[] = {
    {CLI_FLAG_RECIPES, NULL}, {CLI_FLAG_RECIPE, NULL}, {CLI_FLAG_N, "600000"},
    {CLI_FLAG_INPUT, NULL},   {CLI_FLAG_SEED, "1"},    {CLI_FLAG_THREADS, "1"},
    {CLI_FLAG_PAGE, NULL},    {CLI_FLAG_JSON, NULL},   {CLI_FLAG_CSV, NULL},
};

const cli_command cli_quality = {
    .name = "quality",
    .summary = "error, bias and bits of quantizers on known distributions",
    .usage = "[--recipes 'A;B;C'] [--n N | --input FILE.npy] [flags]",
    .about = "Measures recipes on N values each of three distributions: gaussian (N(0, 1)), laplace (scale 1) and\n"
             "cubed (the cube of a Gaussian); with --input, only on the gradient in FILE.npy. Without recipes, it\n"
             "measures the library's quantizers, with few levels and with many. Recipes with feedback are refused,\n"
             "because their error is not that of one step. --recipe may be repeated.",
    .examples = "tersegrad quality --page quality.html\n"
                "tersegrad quality --recipes 'orq@3,bucket=300;linear@3,bucket=300' --n 1000000\n"
                "tersegrad quality --input gradient.npy --json\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 0,
    .file_max = 0,
    .run = run,
};
