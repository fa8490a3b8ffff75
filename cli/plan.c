/* `tersegrad plan`: predicts the step of every recipe on a link, and says whether compression pays. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "commands.h"
#include "fail.h"
#include "plan_costs.h"
#include "plan_model.h"
#include "plan_report.h"

/* ---- the setting --------------------------------------------------------------------------------------------------- */

static int set_link(cli_setting *s, const cli_args *args, const cli_network *n)
{
    if (!cli_args_has(args, CLI_FLAG_LINK_RATE) && n->ranks == 0) {
        return cli_fail(CLI_MISUSE, "plan needs --rate, or a --probe that has measured a network");
    }
    s->is_measured = !cli_args_has(args, CLI_FLAG_LINK_RATE) && !cli_args_has(args, CLI_FLAG_LATENCY);
    s->rate = cli_args_has(args, CLI_FLAG_LINK_RATE) ? args->link_rate / 8 : n->rate;
    s->latency = cli_args_has(args, CLI_FLAG_LATENCY) ? args->latency : n->latency;
    s->message = n->ranks > 0 ? n->message : s->probe->machine.message;
    return CLI_OK;
}

static int set_compute(cli_setting *s, const cli_args *args)
{
    if (cli_args_has(args, CLI_FLAG_COMPUTE)) {
        s->compute = args->compute;
        s->backward = cli_args_has(args, CLI_FLAG_BACKWARD) ? args->backward : 2 * args->compute / 3;
        return s->backward <= s->compute
                   ? CLI_OK
                   : cli_fail(CLI_MISUSE, "--backward is longer than --compute, which it is part of");
    }
    if (args->model == NULL) {
        return cli_fail(CLI_MISUSE, "plan needs --compute, the time of a forward and backward pass, such as 120ms");
    }
    if (s->computes_on_device) {
        return cli_fail(CLI_MISUSE, "plan needs --compute with --compute-on device: --model is timed on this CPU");
    }
    return cli_plan_compute(&s->compute, &s->backward, args->model, (size_t)args->batch);
}

static int set_ranks(cli_setting *s, const cli_args *args, const cli_network *n)
{
    s->workers = cli_args_has(args, CLI_FLAG_RANKS) || n->ranks == 0 ? args->ranks : n->ranks;
    s->hosts = cli_args_has(args, CLI_FLAG_HOST_COUNT)               ? args->host_count
               : cli_args_has(args, CLI_FLAG_RANKS) || n->ranks == 0 ? s->workers
                                                                     : n->hosts;
    if (s->hosts > s->workers) {
        return cli_fail(CLI_MISUSE, "there are %u hosts for %u workers; a host has at least one", s->hosts, s->workers);
    }
    if (s->workers % s->hosts != 0) {
        return cli_fail(CLI_MISUSE, "%u workers are not divided evenly by %u hosts", s->workers, s->hosts);
    }
    return CLI_OK;
}

/* An eighth of the model makes a group, but not less than the trainer's groups have. */
static uint64_t group_len_of(const cli_setting *s, const cli_args *args)
{
    uint64_t share = 4 * s->n / 8;
    return cli_args_has(args, CLI_FLAG_MODEL_GROUPS) ? args->group_size : share > 131072 ? share : 131072;
}

static int make_setting(cli_setting *s, const cli_args *args, const cli_shapes *model, const cli_probe_data *probe)
{
    *s = (cli_setting){.tensors = model->tensors,
                       .tensor_n = model->tensor_n,
                       .n = model->element_n,
                       .exchange = args->exchange,
                       .threads = args->threads,
                       .computes_on_device = cli_args_has(args, CLI_FLAG_COMPUTE_ON) ? args->compute_on == CLI_ON_DEVICE
                                                                                     : args->device == CLI_DEVICE_CUDA,
                       .encodes_on_device = args->device == CLI_DEVICE_CUDA,
                       .probe = probe};
    s->group_len = group_len_of(s, args);
    return set_ranks(s, args, &probe->network);
}

/* ---- the command ----------------------------------------------------------------------------------------------------- */

static void name_model(char *out, size_t cap, const cli_args *args)
{
    snprintf(out, cap, "%.200s", args->model != NULL ? args->model : args->shapes != NULL ? args->shapes : "a model");
}

static int report(const cli_args *args, const cli_plan *p, const cli_plan_facts *f)
{
    int code = args->page != NULL ? cli_plan_page(args, p, f) : CLI_OK;
    if (code == CLI_OK && (args->json || args->csv)) {
        return cli_plan_json(stdout, args, p, f);
    }
    if (code == CLI_OK) {
        code = cli_plan_print(p, f);
    }
    if (code == CLI_OK && args->page != NULL) {
        printf("\nThe page, with curves: %s\n", args->page);
    }
    return code;
}

static int plan(const cli_args *args, const cli_shapes *model, cli_probe_data *probe, const cli_device *device)
{
    cli_plan p = {.local_steps = (uint32_t)args->local.every[args->local.n - 1]};
    char name[224], from[300];
    int code = make_setting(&p.setting, args, model, probe);
    code = code == CLI_OK ? cli_plan_list(&p, (const char *const *)args->recipes.items, args->recipes.n) : code;
    code = code == CLI_OK && args->probe == NULL && !cli_args_has(args, CLI_FLAG_LINK_RATE)
               ? cli_fail(CLI_MISUSE, "plan needs --rate, or a --probe that has measured a network")
               : code;
    double begin = cli_clock_now();
    code = code == CLI_OK && args->probe == NULL ? cli_plan_measure(probe, &p, device) : code;
    if (args->probe == NULL) {
        snprintf(from, sizeof from, "measured on this machine, in %.1f s", cli_clock_now() - begin);
    } else {
        snprintf(from, sizeof from, "measured, %.200s", args->probe);
    }
    code = code == CLI_OK ? set_link(&p.setting, args, &probe->network) : code;
    code = code == CLI_OK ? set_compute(&p.setting, args) : code;
    p.setting.cores = cli_args_has(args, CLI_FLAG_CORES) ? args->cores : probe->machine.cores;
    name_model(name, sizeof name, args);
    code = code == CLI_OK ? cli_plan_run(&p) : code;
    const cli_plan_facts facts = {.model = name, .from = from};
    code = code == CLI_OK ? report(args, &p, &facts) : code;
    free(p.rows);
    return code;
}

static int run(const cli_args *args)
{
    cli_probe_data probe = {.network.ranks = 0};
    cli_device device = {NULL};
    cli_shapes model;
    int code = cli_plan_model(&model, args);
    code = code == CLI_OK ? cli_device_open(&device, args) : code;
    code = code == CLI_OK && args->probe != NULL ? cli_probe_read(&probe, args->probe) : code;
    if (code == CLI_OK && args->probe != NULL && device.gpu != NULL) {
        code = cli_probe_suits(&probe, args->probe, cli_device_name(&device));
    }
    code = code == CLI_OK ? plan(args, &model, &probe, &device) : code;
    cli_device_close(&device);
    cli_probe_data_free(&probe);
    cli_shapes_free(&model);
    return code;
}

static const cli_flag_use flags[] = {
    {CLI_FLAG_PARAMS, NULL},     {CLI_FLAG_MODEL, NULL},     {CLI_FLAG_MODEL_SHAPES, NULL}, {CLI_FLAG_RANKS, "4"},
    {CLI_FLAG_HOST_COUNT, NULL}, {CLI_FLAG_LINK_RATE, NULL}, {CLI_FLAG_LATENCY, NULL},      {CLI_FLAG_COMPUTE, NULL},
    {CLI_FLAG_BACKWARD, NULL},   {CLI_FLAG_DEVICE, "cpu"},   {CLI_FLAG_COMPUTE_ON, NULL},   {CLI_FLAG_BATCH, "32"},
    {CLI_FLAG_CORES, NULL},      {CLI_FLAG_THREADS, "1"},    {CLI_FLAG_PROBE, NULL},        {CLI_FLAG_RECIPES, NULL},
    {CLI_FLAG_RECIPE, NULL},     {CLI_FLAG_EXCHANGE, NULL},  {CLI_FLAG_MODEL_GROUPS, NULL}, {CLI_FLAG_LOCAL_STEPS, "1"},
    {CLI_FLAG_PAGE, NULL},       {CLI_FLAG_JSON, NULL},      {CLI_FLAG_CSV, NULL},
};

const cli_command cli_plan_command = {
    .name = "plan",
    .summary = "does compression pay on a link, and which recipe",
    .usage = "(--params N | --model NAME | --shapes FILE) --workers W --rate RATE --compute TIME [flags]",
    .about =
        "Predicts a training step with every preset, or with --recipes, and with plain all-reduces in fp32 and\n"
        "bf16: without and with overlap, and with hosts that average first. Says which recipe pays, or that none\n"
        "does. It simulates groups, codecs and links, with costs measured by 'tersegrad probe' or right now; with\n"
        "--device cuda, costs of a GPU. Without --compute, it times a step of --model. 'tersegrad help planning'\n"
        "says what is simulated.",
    .examples =
        "tersegrad plan --params 25e6 --workers 8 --hosts 8 --rate 1gbit --latency 50us --compute 120ms\n"
        "tersegrad plan --shapes gpt.json --workers 64 --hosts 8 --rate 10gbit --compute 300ms --compute-on device\n"
        "tersegrad plan --model resnet20 --workers 4 --rate 100mbit --page plan.html\n"
        "tersegrad plan --probe cluster.json --params 1e9 --compute 900ms --local-steps 8 --recipes 'bf16;terse'\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 0,
    .file_max = 0,
    .run = run,
};
