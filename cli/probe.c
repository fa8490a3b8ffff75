/* `tersegrad probe`: measures this machine, and the network of an MPI job, into a file that `tersegrad plan` reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "fail.h"
#include "file.h"
#include "model.h"
#include "presets.h"
#include "probe_machine.h"
#include "probe_network.h"
#include "table.h"
#include "text.h"
#include "world.h"

/* ---- what to measure ------------------------------------------------------------------------------------------------- */

typedef struct choice {
    const char *recipes[CLI_PRESET_MAX];
    char canonical[CLI_PRESET_MAX][TG_RECIPE_CAP];
    size_t recipe_n;
    uint32_t threads[2];
    size_t thread_n;
    uint64_t sizes[3];
    size_t size_n;
} choice;

static int add_recipe(choice *c, const char *recipe)
{
    tg_detail why = {""};
    if (c->recipe_n == CLI_PRESET_MAX) {
        return cli_fail(CLI_MISUSE, "there are more than %d recipes", CLI_PRESET_MAX);
    }
    char *canonical = c->canonical[c->recipe_n];
    tg_status status = tg_recipe_canonical(canonical, recipe, &why);
    if (status != TG_OK) {
        return cli_fail_status(NULL, status, &why);
    }
    for (size_t i = 0; i < c->recipe_n; i++) {
        if (strcmp(c->recipes[i], canonical) == 0) {
            return CLI_OK;
        }
    }
    c->recipes[c->recipe_n++] = canonical;
    return CLI_OK;
}

static int choose(choice *c, const cli_args *args)
{
    const char *names[CLI_PRESET_MAX];
    size_t n = args->recipes.n > 0 ? args->recipes.n : cli_presets_list(names);
    const char *const *recipes = args->recipes.n > 0 ? (const char *const *)args->recipes.items : names;
    *c = (choice){.sizes = {1 << 16, 1 << 20, 1 << 23}, .size_n = 3};
    c->threads[c->thread_n++] = 1;
    if (args->threads > 1) {
        c->threads[c->thread_n++] = args->threads;
    }
    if (cli_args_has(args, CLI_FLAG_N)) {
        c->sizes[0] = args->n;
        c->size_n = 1;
    }
    int code = add_recipe(c, "dense");
    for (size_t i = 0; i < n && code == CLI_OK; i++) {
        code = add_recipe(c, recipes[i]);
    }
    return code;
}

/* The machine, and the GPU if there is one; what is known already is not measured again. */
static int measure_machine(cli_probe_data *out, const cli_args *args, const choice *c, const cli_device *device)
{
    cli_model model = {.tensor_n = 0};
    cli_measuring how = {.recipes = c->recipes,
                         .recipe_n = c->recipe_n,
                         .threads = c->threads,
                         .thread_n = c->thread_n,
                         .sizes = c->sizes,
                         .size_n = c->size_n,
                         .seconds = args->seconds,
                         .device = device};
    int code = args->input != NULL ? cli_model_load_one(&model, args->input) : CLI_OK;
    if (code == CLI_OK && args->input != NULL && model.tensors[0].dtype != TG_FP32) {
        code = cli_fail(CLI_MISUSE, "%s is not in fp32", args->input);
    }
    if (code == CLI_OK && args->input != NULL) {
        how.values = model.grads[0];
        how.value_n = (size_t)model.element_n;
    }
    if (code == CLI_OK && out->machine.costs.n == 0) {
        code = cli_machine_measure(&out->machine, &how);
    }
    if (code == CLI_OK && device->gpu != NULL && out->gpu.costs.n == 0) {
        code = cli_gpu_measure(&out->gpu, &how);
    }
    cli_model_free(&model);
    return code;
}

/* ---- what was measured ------------------------------------------------------------------------------------------------- */

/* The pass that stands for encoding: products of PowerSGD, and what all ranks do with LGC. */
static tg_pass first_pass(const cli_recipe_cost *r)
{
    return r->passes[TG_PASS_MULTIPLY].element > 0 ? TG_PASS_MULTIPLY
           : r->passes[TG_PASS_FOLLOW].element > 0 ? TG_PASS_FOLLOW
                                                   : TG_PASS_ENCODE;
}

/* Bytes of fp32 a second; nothing where elements cost nothing that could be told, or there is no such pass. */
static const char *speed_text(char out[CLI_NUMBER_CAP], const cli_recipe_cost *r, tg_pass pass)
{
    return r->passes[pass].element > 0 ? cli_text_short(out, 4e-9 / r->passes[pass].element) : "";
}

/* On a GPU, a pass has a cost of its own in place of threads. */
static int print_costs(const cli_costs *c, int is_gpu)
{
    cli_table t;
    cli_table_init(&t, "lrrrrrr");
    t.has_head = 1;
    cli_table_row(&t, "recipe", is_gpu ? "us a pass" : "threads", "elements", "encode GB/s", "check and sum GB/s",
                  "us a tensor", "bits");
    for (size_t i = 0; i < c->n; i++) {
        const cli_recipe_cost *r = &c->rows[i];
        char cells[6][CLI_NUMBER_CAP];
        tg_pass pass = first_pass(r);
        snprintf(cells[0], sizeof cells[0], "%u", r->threads);
        cli_table_row(&t, r->recipe, is_gpu ? cli_text_short(cells[0], 1e6 * r->passes[pass].call) : cells[0],
                      cli_text_count(cells[1], r->n), speed_text(cells[2], r, pass),
                      speed_text(cells[3], r, TG_PASS_CHECK_SUM), cli_text_short(cells[4], 1e6 * r->passes[pass].chunk),
                      cli_text_short(cells[5], r->bits));
    }
    int code = cli_table_print(&t, stdout, 0);
    cli_table_free(&t);
    return code;
}

static int print_machine(const cli_machine *m)
{
    printf(
        "%s, %u cores: copies %.3g GB/s; TCP takes %.3g ns of CPU a byte and %.3g us a message; an operation between\n"
        "threads takes %.3g us.\n\n",
        m->kind, m->cores, 1e-9 / m->copy, 1e9 * m->tcp, 1e6 * m->message, 1e6 * m->op);
    return print_costs(&m->costs, 0);
}

static int print_gpu(const cli_gpu *g)
{
    printf("\n%s: copies %.3g GB/s; messages go to host memory at %.3g GB/s and come from it at %.3g, after %.3g and "
           "%.3g us.\n\n",
           g->kind, 1e-9 / g->copy, 1e-9 / g->down, 1e-9 / g->up, 1e6 * g->begin_down, 1e6 * g->begin_up);
    return print_costs(&g->costs, 1);
}

static int print_network(const cli_network *n)
{
    cli_table t;
    printf("\n%u ranks on %u hosts: latency %.3g us, %.3g us for each further message, %.4g Gbit/s a host.\n\n",
           n->ranks, n->hosts, 1e6 * n->latency, 1e6 * n->message, 8e-9 * n->rate);
    cli_table_init(&t, "rrrrrrrr");
    t.has_head = 1;
    cli_table_row(&t, "bytes", "exchange ms", "of a group", "fp32 all-reduce", "bf16 all-reduce",
                  "computing: of a group", "fp32", "bf16");
    for (size_t i = 0; i < CLI_SIZE_N; i++) {
        const cli_column *all = &n->talks[CLI_TALK_ALL], *fp32 = &n->talks[CLI_TALK_FP32],
                         *bf16 = &n->talks[CLI_TALK_BF16];
        const double *columns[] = {n->exchange, all->idle, fp32->idle, bf16->idle, all->busy, fp32->busy, bf16->busy};
        char cells[8][CLI_NUMBER_CAP];
        const char *row[8] = {cli_text_count(cells[0], (uint64_t)n->sizes[i])};
        for (size_t c = 0; c < 7; c++) {
            row[c + 1] = cli_text_short(cells[c + 1], 1e3 * columns[c][i]);
        }
        cli_table_cells(&t, row);
    }
    int code = cli_table_print(&t, stdout, 0);
    cli_table_free(&t);
    return code;
}

/* The object that is in the file. */
static int print_json(const char *path)
{
    uint8_t *bytes = NULL;
    size_t len = 0;
    int code = cli_file_read(&bytes, &len, path);
    if (code == CLI_OK) {
        fwrite(bytes, 1, len, stdout);
        free(bytes);
    }
    return code;
}

static int print(const cli_probe_data *p, const cli_args *args)
{
    if (args->json) {
        return print_json(args->files.items[0]);
    }
    int code = print_machine(&p->machine);
    code = code == CLI_OK && p->gpu.kind[0] != '\0' ? print_gpu(&p->gpu) : code;
    code = code == CLI_OK && p->network.ranks > 0 ? print_network(&p->network) : code;
    printf("\nWritten to %s; 'tersegrad plan --probe %s' reads it.\n", args->files.items[0], args->files.items[0]);
    return code;
}

/* ---- the command --------------------------------------------------------------------------------------------------------- */

/* Processes of a job measure their machine at the same time, as they would work; that of rank 0 counts. */
static int measure(cli_probe_data *out, const cli_args *args, const choice *c, const cli_world *world,
                   const cli_device *device)
{
    int is_known = args->probe != NULL, code = CLI_OK;
    if (is_known && world->rank == 0) {
        code = cli_probe_read(out, args->probe);
        if (code == CLI_OK && device->gpu != NULL && out->gpu.costs.n > 0) {
            code = cli_probe_suits(out, args->probe, cli_device_name(device));
        }
    }
    if (code == CLI_OK && is_known && world->link == NULL && (device->gpu == NULL || out->gpu.costs.n > 0)) {
        return cli_fail(CLI_MISUSE,
                        "--probe has measured a machine; start this with mpirun, to measure a network as well");
    }
    if (code == CLI_OK && (!is_known || world->rank == 0)) {
        code = measure_machine(out, args, c, device);
    }
    if (code == CLI_OK && world->link != NULL) {
        code = cli_network_measure(&out->network, world, 4 * args->seconds);
    }
    if (code == CLI_OK && world->rank == 0) {
        code = cli_probe_write(out, args->files.items[0]);
    }
    return code == CLI_OK && world->rank == 0 ? print(out, args) : code;
}

static int run(const cli_args *args)
{
    static choice c;
    cli_world world;
    cli_device device = {NULL};
    cli_probe_data probe = {.network.ranks = 0};
    int code = choose(&c, args);
    code = code == CLI_OK ? cli_world_open(&world, args) : code;
    if (code != CLI_OK) {
        return code;
    }
    code = cli_device_open(&device, args);
    code = code == CLI_OK ? measure(&probe, args, &c, &world, &device) : code;
    cli_device_close(&device);
    cli_probe_data_free(&probe);
    return cli_world_close(&world, code, code != CLI_OK);
}

static const cli_flag_use flags[] = {
    {CLI_FLAG_RECIPES, NULL}, {CLI_FLAG_RECIPE, NULL},  {CLI_FLAG_THREADS, "1"}, {CLI_FLAG_DEVICE, "cpu"},
    {CLI_FLAG_N, NULL},       {CLI_FLAG_INPUT, NULL},   {CLI_FLAG_KNOWN, NULL},  {CLI_FLAG_SECONDS, "0.1"},
    {CLI_FLAG_LINK, NULL},    {CLI_FLAG_TIMEOUT, "60"}, {CLI_FLAG_JSON, NULL},
};

const cli_command cli_probe_command = {
    .name = "probe",
    .summary = "measure a machine and its network, for plan",
    .usage = "[flags] FILE",
    .about =
        "Measures what it costs to encode, check and sum gradients, and writes that to FILE, for\n"
        "'tersegrad plan --probe FILE': for every preset (or --recipes), for 65 thousand, 1 million and 8 million\n"
        "elements (or --n), with one thread and with --threads. --device cuda measures the GPU as well, and copies\n"
        "of messages between it and the host. --input uses that gradient.\n"
        "Started by mpirun, it also measures the network between the processes: latency, bandwidth by size of\n"
        "message, and all-reduces in fp32 and bf16. With --probe, it measures only what that file does not have.",
    .examples = "tersegrad probe machine.json\n"
                "tersegrad probe --recipes 'bf16;adacomp' --threads 4 machine.json\n"
                "tersegrad probe --device cuda machine.json\n"
                "mpirun -n 8 --hostfile hosts tersegrad probe cluster.json\n"
                "mpirun -n 8 --hostfile hosts tersegrad probe --probe machine.json cluster.json\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 1,
    .file_max = 1,
    .run = run,
};
