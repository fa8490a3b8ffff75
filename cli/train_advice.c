/* Advice while training; see train_advice.h. The plan is that of the run: its model, its workers, the times that it has measured, and
 * the link that it is on, by its flags or by how fast its bytes have moved. */
#include "train_advice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "plan_costs.h"
#include "probe_machine.h"
#include "progress.h"
#include "text.h"

enum { FIRST = 3, LAST = 20 }; /* steps that count: caches and allocations of the first do not */

/* ---- the plan of the run ---------------------------------------------------------------------------------------------- */

static tg_tensor *list_tensors(uint64_t *n, const tr_model *model)
{
    size_t tensor_n = tr_model_param_n(model);
    tg_tensor *tensors = calloc(tensor_n, sizeof *tensors);
    *n = 0;
    for (size_t t = 0; t < tensor_n && tensors != NULL; t++) {
        const tr_param *p = tr_model_param(model, t);
        tensors[t] = (tg_tensor){p->name, p->dims, p->dim_n, p->kind, TG_FP32};
        *n += p->n;
    }
    return tensors;
}

/* Workers that are threads share this machine's cores and need no network, unless one is emulated. */
static void place(cli_setting *s, const tr_settings *run, double bytes, double wire)
{
    int is_linked = run->slow_bits > 0 || run->link != NULL;
    uint32_t size = run->host_size > 1 ? run->host_size : is_linked ? 1 : run->workers;
    s->workers = run->workers;
    s->hosts = run->workers / size;
    s->cores = fmax(size, cli_machine_cores()); /* the time of computing has been measured among all of them */
    s->latency = run->slow_latency;
    s->rate = run->slow_bits > 0 ? run->slow_bits / 8 : wire > 0 && bytes > 0 ? bytes / wire : 1e12;
}

static int make_plan(cli_plan *p, cli_probe_data *probe, const cli_advice *a, const tr_settings *run)
{
    const char *recipes[64] = {run->recipe};
    double n = (double)a->counted, compute = (a->times.compute + a->times.update) / n;
    cli_setting *s = &p->setting;
    s->threads = 1;
    s->probe = probe;
    s->compute = compute;
    s->backward = 2 * compute / 3;
    s->group_len = run->group_len;
    p->local_steps = 1;
    place(s, run, a->bytes / n, a->times.exchange / n);
    int code = cli_plan_list(p, NULL, 0);
    if (code != CLI_OK) {
        return code;
    }
    size_t recipe_n = 1;
    char own[TG_RECIPE_CAP] = "";
    (void)!tg_recipe_canonical(own, run->recipe, NULL);
    for (size_t i = 0; i < p->row_n; i++) {
        if (strcmp(p->rows[i].canonical, own) != 0) {
            recipes[recipe_n++] = p->rows[i].recipe;
        }
    }
    free(p->rows);
    p->rows = NULL;
    code = cli_plan_list(p, recipes, recipe_n); /* the run's own first */
    const cli_device device = {run->device != NULL ? run->device->device : NULL};
    s->encodes_on_device = device.gpu != NULL;
    code = code == CLI_OK ? cli_plan_measure(probe, p, &device) : code;
    s->message = probe->machine.message;
    return code == CLI_OK ? cli_plan_run(p) : code;
}

/* ---- words ------------------------------------------------------------------------------------------------------------ */

static void tell(const cli_advice *a, const cli_plan *p, const tr_settings *run)
{
    double n = (double)a->counted;
    const tr_times *t = &a->times;
    char bytes[CLI_NUMBER_CAP];
    cli_progress_clear();
    cli_note("in %llu steps, one took %.3g ms: computing %.3g, exposed %.3g (encoding %.3g, messages %.3g, decoding "
             "%.3g); a worker sent "
             "%s bytes",
             (unsigned long long)a->counted, 1e3 * (t->compute + t->exposed + t->update) / n,
             1e3 * (t->compute + t->update) / n, 1e3 * t->exposed / n, 1e3 * t->encode / n, 1e3 * t->exchange / n,
             1e3 * t->decode / n, cli_text_count(bytes, (uint64_t)(a->bytes / n)));
    if (p->recommended == &p->rows[0]) {
        cli_note("stay with %s: no recipe of those that cost little accuracy is predicted to be faster", run->recipe);
    } else {
        char link[64] = "threads of this machine";
        if (p->setting.hosts > 1) {
            snprintf(link, sizeof link, "%s%.3g Gbit/s", run->slow_bits > 0 ? "" : "at least ", 8e-9 * p->setting.rate);
        }
        cli_note("predicted for this model, %u workers and %s: %s", run->workers, link, p->recommendation);
    }
}

static int advise(const cli_advice *a, const tr_settings *run, const tr_model *model)
{
    cli_plan p = {.row_n = 0};
    cli_probe_data probe = {.network.ranks = 0};
    tg_tensor *tensors = list_tensors(&p.setting.n, model);
    p.setting.tensors = tensors;
    p.setting.tensor_n = tr_model_param_n(model);
    int code = tensors != NULL ? make_plan(&p, &probe, a, run) : cli_fail_memory();
    if (code == CLI_OK) {
        tell(a, &p, run);
    }
    free(p.rows);
    free(tensors);
    cli_probe_data_free(&probe);
    return code;
}

static void add_times(tr_times *sum, const tr_times *t, double n)
{
    sum->compute += n * t->compute;
    sum->encode += n * t->encode;
    sum->exchange += n * t->exchange;
    sum->decode += n * t->decode;
    sum->exposed += n * t->exposed;
    sum->update += n * t->update;
}

int cli_advice_step(cli_advice *a, const tr_settings *s, const tr_step *step)
{
    if (!a->is_wanted || a->is_given) {
        return CLI_OK;
    }
    a->steps += step->steps;
    if (a->steps > FIRST || step->step + 1 == s->steps) {
        a->counted += step->steps;
        add_times(&a->times, &step->times, (double)step->steps);
        a->bytes += (double)(step->bytes.payload + step->bytes.header) / s->workers;
    }
    if (a->steps < LAST && step->step + 1 < s->steps) {
        return CLI_OK;
    }
    a->is_given = 1;
    return advise(a, s, step->model);
}
