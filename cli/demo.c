/* `tersegrad demo`: what recipes cost in bytes and in error, as a table, on a synthetic model whose gradients
 * go through real exchanges (demo_run.h).
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "demo_run.h"
#include "fail.h"
#include "json.h"
#include "progress.h"
#include "table.h"
#include "text.h"

static const char *const standard_recipes[] = {
    "dense",
    "fp16",
    "bf16",
    "ef+topk@0.01",
    "ef+topk@0.01+fp16",
    "ef+topk@0.001,scope=model",
    "ef+randomk@0.01",
    "ef+randomblock@0.01",
    "randomblock@0.01",
};

static void add_row(cli_table *table, const cli_demo_outcome *o)
{
    char a[CLI_NUMBER_CAP], b[CLI_NUMBER_CAP], c[CLI_NUMBER_CAP], e[CLI_NUMBER_CAP];
    /* "identical" without a question: had any bit differed, the run would have failed. */
    cli_table_row(table, o->recipe, o->exchange, cli_text_count(a, (uint64_t)(o->bytes + 0.5)),
                  cli_text_number(b, o->dense / o->bytes, 1), cli_text_short(c, o->step_nmse),
                  cli_text_short(e, o->sum_nmse), "identical");
}

static int print_text(const cli_args *args, const cli_demo_run *d, const cli_demo_outcome *outcomes, size_t n)
{
    char count[CLI_NUMBER_CAP];
    printf("%u worker%s the gradients of a synthetic model (%zu tensors, %s parameters) for %" PRIu64
           " steps,\nonce per recipe. Bytes are what one worker sends in a step, counted by the link.\n\n",
           args->workers, args->workers == 1 ? " averages" : "s average", cli_demo_run_tensors(d),
           cli_text_count(count, cli_demo_run_elements(d)), args->steps);
    cli_table table;
    cli_table_init(&table, "llrrrrl");
    table.has_head = 1;
    cli_table_row(&table, "recipe", "exchange", "bytes/step", "ratio", "step error", "sum error", "replicas");
    for (size_t i = 0; i < n; i++) {
        add_row(&table, &outcomes[i]);
    }
    int code = cli_table_print(&table, stdout, 0);
    cli_table_free(&table);
    puts("\n"
         "ratio       bytes of an uncompressed all-reduce over bytes sent, headers included\n"
         "step error  error of the last averaged gradient over its energy (NMSE); above 1 where feedback (ef)\n"
         "            delivers values of earlier steps\n"
         "sum error   the same for the sum of all steps, which is what moves the model: here feedback helps\n"
         "\n"
         "Try next:");
    printf("  %s recipes                              the parts that a recipe is made of\n", args->program);
    printf("  %s demo --recipe ef+topk@0.05+fp16      a recipe of your own\n", args->program);
    printf("  %s bench --recipe ef+topk@0.01+fp16     how fast it is on this machine\n", args->program);
    return code;
}

static int print_json(const cli_args *args, const cli_demo_run *d, const cli_demo_outcome *outcomes, size_t n)
{
    cli_json json;
    double seconds = 0;
    cli_json_begin_as(&json, stdout, args->csv, "results");
    cli_json_count(&json, "workers", args->workers);
    cli_json_count(&json, "steps", args->steps);
    cli_json_count(&json, "seed", args->seed);
    cli_json_count(&json, "tensors", cli_demo_run_tensors(d));
    cli_json_count(&json, "elements", cli_demo_run_elements(d));
    cli_json_array(&json, "results");
    for (size_t i = 0; i < n; i++) {
        const cli_demo_outcome *o = &outcomes[i];
        cli_json_object(&json, NULL);
        cli_json_text(&json, "recipe", o->recipe);
        cli_json_text(&json, "canonical", o->canonical);
        cli_json_text(&json, "exchange", o->exchange);
        cli_json_number(&json, "dense_bytes_per_step", o->dense);
        cli_json_number(&json, "wire_bytes_per_step", o->bytes);
        cli_json_number(&json, "payload_bytes_per_step", o->payload);
        cli_json_number(&json, "ratio", o->dense / o->bytes);
        cli_json_number(&json, "step_nmse", o->step_nmse);
        cli_json_number(&json, "sum_nmse", o->sum_nmse);
        cli_json_bool(&json, "replicas_identical", 1);
        cli_json_number(&json, "seconds", o->seconds);
        cli_json_end(&json);
        seconds += o->seconds;
    }
    cli_json_end(&json);
    cli_json_bool(&json, "replicas_identical", 1);
    cli_json_number(&json, "seconds", seconds);
    return cli_json_finish(&json);
}

/* All of them before the first is run: a typo in the last should not cost the time of the others. */
static int check_recipes(const char *const *recipes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char canonical[TG_RECIPE_CAP];
        tg_detail why;
        tg_status status = tg_recipe_canonical(canonical, recipes[i], &why);
        if (status != TG_OK) {
            return cli_fail_status(NULL, status, &why);
        }
    }
    return CLI_OK;
}

static int run(const cli_args *args)
{
    int own = args->recipes.n > 0;
    size_t n = own ? args->recipes.n : sizeof standard_recipes / sizeof *standard_recipes;
    const char *const *recipes = own ? (const char *const *)args->recipes.items : standard_recipes;
    int code = check_recipes(recipes, n);
    if (code != CLI_OK) {
        return code;
    }
    cli_demo_run *d = NULL;
    cli_demo_outcome *outcomes = calloc(n, sizeof *outcomes);
    if (outcomes == NULL) {
        return cli_fail_memory();
    }
    code = cli_demo_run_new(&d, args->workers, args->steps, args->seed);
    for (size_t i = 0; i < n && code == CLI_OK; i++) {
        code = cli_demo_run_recipe(&outcomes[i], d, recipes[i], i, n);
    }
    cli_progress_clear();
    if (code == CLI_OK) {
        code = (args->json || args->csv ? print_json : print_text)(args, d, outcomes, n);
    }
    cli_demo_run_free(d);
    free(outcomes);
    return code;
}

static const cli_flag_use flags[] = {
    {CLI_FLAG_WORKERS, "4"}, {CLI_FLAG_STEPS, "30"}, {CLI_FLAG_RECIPE, NULL}, {CLI_FLAG_RECIPES, NULL},
    {CLI_FLAG_SEED, "1"},    {CLI_FLAG_JSON, NULL},  {CLI_FLAG_CSV, NULL},
};

const cli_command cli_demo = {
    .name = "demo",
    .summary = "a synthetic model through the exchange, recipe by recipe",
    .usage = "[flags]",
    .about = "Exchanges the gradients of a synthetic model, with one thread per worker, once for each recipe, and\n"
             "shows bytes, ratio and error. Fails if workers end with different bits, or if the link counts other\n"
             "bytes than the meter. --recipe may be repeated.",
    .examples = "tersegrad demo\n"
                "tersegrad demo --workers 8 --recipe ef+topk@0.05+fp16 --recipe ef+randomblock@0.05\n"
                "tersegrad demo --recipes 'dense;ef+topk@0.01,scope=model' --steps 100 --json\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 0,
    .file_max = 0,
    .run = run,
};
