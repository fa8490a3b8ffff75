/* One synthetic training run with real exchanges; see demo_run.h. Every step: the workers draw their gradients,
 * note the true average, reduce through the library, and compare, each phase with one thread per worker.
 */
#include "demo_run.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "clock.h"
#include "fail.h"
#include "progress.h"
#include "synth.h"

/* ---- the model ------------------------------------------------------------------------------------- */

enum { TENSOR_N = 12, DIM_MAX = 4 };

/* A small network for images: two convolutions with norms, two dense layers. */
static const struct layer {
    const char *name;
    tg_kind kind;
    uint32_t dim_n;
    uint64_t dims[DIM_MAX];
    float scale; /* gradients differ in size from layer to layer */
} layers[TENSOR_N] = {
    {"conv1.weight", TG_CONV, 4, {32, 1, 3, 3}, 1e-1f},  {"conv1.bias", TG_BIAS, 1, {32}, 2e-1f},
    {"norm1.weight", TG_NORM, 1, {32}, 1e-1f},           {"norm1.bias", TG_NORM, 1, {32}, 1e-1f},
    {"conv2.weight", TG_CONV, 4, {64, 32, 3, 3}, 3e-2f}, {"conv2.bias", TG_BIAS, 1, {64}, 1e-1f},
    {"norm2.weight", TG_NORM, 1, {64}, 5e-2f},           {"norm2.bias", TG_NORM, 1, {64}, 5e-2f},
    {"dense1.weight", TG_DENSE, 2, {128, 9216}, 2e-3f},  {"dense1.bias", TG_BIAS, 1, {128}, 1e-2f},
    {"dense2.weight", TG_DENSE, 2, {10, 128}, 5e-2f},    {"dense2.bias", TG_BIAS, 1, {10}, 1e-1f},
};

/* The noise is looked up among 4096 heavy-tailed values: a table that stays in cache, and five draws from one
 * mixed number. The common direction, drawn once, makes the sums differ all the same. */
enum { DRAW_BITS = 12, DRAW_N = 1 << DRAW_BITS, DRAWS_PER_WORD = 64 / DRAW_BITS };

typedef struct worker {
    float *flat;           /* its gradient, all tensors end to end */
    void *grads[TENSOR_N]; /* the tensors in it */
    tg_exchange *exchange;
    tg_link *link;
    tg_status status; /* of the last step */
    tg_detail why;
    int differs;                    /* some bit was not as worker 0's */
    double step_error, step_energy; /* over its share of the elements */
    double sum_error, sum_energy;
} worker;

struct cli_demo_run {
    uint32_t world;
    uint64_t seed;
    uint64_t step_n;
    uint64_t step;            /* the one in progress */
    uint64_t before_n, all_n; /* steps of the recipes before this one, and of all */
    tg_tensor tensors[TENSOR_N];
    uint64_t sizes[TENSOR_N];
    size_t n; /* elements of the model */
    float *draws;
    float *direction;            /* what all workers agree on, every step */
    float *truth;                /* the average of this step, before anything was compressed */
    double *sum_truth, *sum_got; /* over the steps so far */
    worker *workers;
};

/* ---- what the workers do, each in its thread ----------------------------------------------------------- */

typedef void (*phase)(cli_demo_run *d, uint32_t rank);

typedef struct job {
    cli_demo_run *run;
    uint32_t rank;
    phase phase;
} job;

static void *run_job(void *argument)
{
    job *j = argument;
    j->phase(j->run, j->rank);
    return NULL;
}

/* Has every worker do the phase, in parallel, and waits for all. */
static int run_phase(cli_demo_run *d, phase p)
{
    pthread_t threads[CLI_WORKER_MAX];
    job jobs[CLI_WORKER_MAX];
    uint32_t started = 0;
    while (started < d->world) {
        jobs[started] = (job){d, started, p};
        if (pthread_create(&threads[started], NULL, run_job, &jobs[started]) != 0) {
            break;
        }
        started++;
    }
    /* Those that run may be waiting for one that could not be started. */
    if (started < d->world && started > 0) {
        d->workers[0].link->abort(d->workers[0].link, "no more threads");
    }
    for (uint32_t r = 0; r < started; r++) {
        pthread_join(threads[r], NULL);
    }
    if (started < d->world) {
        return cli_fail(CLI_FAILED, "cannot start %u threads; try fewer --workers", d->world);
    }
    return CLI_OK;
}

/* The share of the elements that a worker looks after when all compare. */
static void share_of(size_t *from, size_t *to, const cli_demo_run *d, uint32_t rank)
{
    *from = d->n / d->world * rank;
    *to = rank + 1 == d->world ? d->n : d->n / d->world * (rank + 1);
}

/* This step's gradient: the common direction, and noise of the worker's own. */
static void draw_gradient(cli_demo_run *d, uint32_t rank)
{
    uint64_t seed = cli_synth_bits(d->seed, (d->step + 1) << 8 | (rank + 1));
    float *flat = d->workers[rank].flat;
    size_t at = 0;
    for (size_t t = 0; t < TENSOR_N; t++) {
        float scale = layers[t].scale;
        for (size_t end = at + (size_t)d->sizes[t]; at < end;) {
            uint64_t bits = cli_synth_bits(seed, at);
            for (int i = 0; i < DRAWS_PER_WORD && at < end; i++, at++, bits >>= DRAW_BITS) {
                flat[at] = scale * (d->direction[at] + d->draws[bits % DRAW_N]);
            }
        }
    }
}

static void average(cli_demo_run *d, uint32_t rank)
{
    size_t from, to;
    share_of(&from, &to, d, rank);
    for (size_t i = from; i < to; i++) {
        double sum = 0;
        for (uint32_t r = 0; r < d->world; r++) {
            sum += (double)d->workers[r].flat[i];
        }
        d->truth[i] = (float)(sum / d->world);
        d->sum_truth[i] += sum / d->world;
    }
}

static void reduce(cli_demo_run *d, uint32_t rank)
{
    worker *w = &d->workers[rank];
    w->status = tg_reduce(w->exchange, w->link, d->step, w->grads, &w->why);
}

static void compare(cli_demo_run *d, uint32_t rank)
{
    worker *w = &d->workers[rank];
    const float *got = d->workers[0].flat;
    size_t from, to;
    share_of(&from, &to, d, rank);
    for (uint32_t r = 1; r < d->world; r++) {
        w->differs |= memcmp(d->workers[r].flat + from, got + from, (to - from) * sizeof *got) != 0;
    }
    for (size_t i = from; i < to; i++) {
        d->sum_got[i] += (double)got[i];
    }
}

/* After the last step: errors of that step and of all steps added up, over the worker's share. */
static void measure(cli_demo_run *d, uint32_t rank)
{
    worker *w = &d->workers[rank];
    const float *got = d->workers[0].flat;
    size_t from, to;
    share_of(&from, &to, d, rank);
    w->step_error = w->step_energy = w->sum_error = w->sum_energy = 0;
    for (size_t i = from; i < to; i++) {
        double truth = (double)d->truth[i];
        double step_off = (double)got[i] - truth;
        double sum_off = d->sum_got[i] - d->sum_truth[i];
        w->step_error += step_off * step_off;
        w->step_energy += truth * truth;
        w->sum_error += sum_off * sum_off;
        w->sum_energy += d->sum_truth[i] * d->sum_truth[i];
    }
}

/* ---- one recipe ------------------------------------------------------------------------------------ */

static int run_step(cli_demo_run *d)
{
    int code = run_phase(d, draw_gradient);
    if (code == CLI_OK) {
        code = run_phase(d, average);
    }
    if (code == CLI_OK) {
        code = run_phase(d, reduce);
    }
    for (uint32_t r = 0; r < d->world && code == CLI_OK; r++) {
        worker *w = &d->workers[r];
        if (w->status != TG_OK) {
            code = cli_fail_status(NULL, w->status, &w->why);
        }
    }
    if (code == CLI_OK) {
        code = run_phase(d, compare);
    }
    for (uint32_t r = 0; r < d->world && code == CLI_OK; r++) {
        if (d->workers[r].differs) {
            code = cli_fail(CLI_FAILED, "the workers hold different gradients after step %" PRIu64, d->step);
        }
    }
    return code;
}

static int start_workers(cli_demo_run *d, tg_threads *threads, const char *recipe)
{
    tg_detail why;
    tg_options opt = TG_OPTIONS_INIT;
    opt.seed = d->seed;
    opt.has_seed = 1;
    memset(d->sum_truth, 0, d->n * sizeof *d->sum_truth);
    memset(d->sum_got, 0, d->n * sizeof *d->sum_got);
    for (uint32_t r = 0; r < d->world; r++) {
        worker *w = &d->workers[r];
        tg_status status = tg_exchange_new(&w->exchange, recipe, d->tensors, TENSOR_N, r, d->world, &opt, &why);
        if (status != TG_OK) {
            return cli_fail_status(NULL, status, &why);
        }
        w->link = tg_threads_link(threads, r);
        w->differs = 0;
    }
    return CLI_OK;
}

/* Bytes by the meter, which must be those that the link has carried. */
static int read_meters(cli_demo_outcome *out, const cli_demo_run *d)
{
    uint64_t sent = 0, payload = 0, dense = 0;
    for (uint32_t r = 0; r < d->world; r++) {
        const worker *w = &d->workers[r];
        tg_meter last, total;
        tg_exchange_meter(w->exchange, &last, &total);
        if (total.payload + total.header != w->link->sent_len) {
            return cli_fail(CLI_FAILED,
                            "worker %u reports %" PRIu64 " bytes, but the link has carried %" PRIu64 " of its", r,
                            total.payload + total.header, w->link->sent_len);
        }
        sent += total.payload + total.header;
        payload += total.payload;
        dense += total.dense;
    }
    double shares = (double)d->world * (double)d->step_n;
    out->bytes = (double)sent / shares;
    out->payload = (double)payload / shares;
    out->dense = (double)dense / shares;
    return CLI_OK;
}

static void read_errors(cli_demo_outcome *out, const cli_demo_run *d)
{
    double step_error = 0, step_energy = 0, sum_error = 0, sum_energy = 0;
    for (uint32_t r = 0; r < d->world; r++) {
        step_error += d->workers[r].step_error;
        step_energy += d->workers[r].step_energy;
        sum_error += d->workers[r].sum_error;
        sum_energy += d->workers[r].sum_energy;
    }
    out->step_nmse = step_error / step_energy;
    out->sum_nmse = sum_error / sum_energy;
}

static void read_names(cli_demo_outcome *out, const cli_demo_run *d)
{
    const tg_exchange *first = d->workers[0].exchange;
    size_t largest = 0;
    for (size_t t = 0; t < TENSOR_N; t++) {
        largest = d->sizes[t] > d->sizes[largest] ? t : largest;
    }
    snprintf(out->exchange, sizeof out->exchange, "%s", tg_exchange_name(first));
    snprintf(out->canonical, sizeof out->canonical, "%s", tg_exchange_recipe(first, largest));
}

static int run_steps(cli_demo_outcome *out, cli_demo_run *d)
{
    int code = CLI_OK;
    double start = cli_clock_now();
    for (d->step = 0; d->step < d->step_n && code == CLI_OK; d->step++) {
        cli_progress_show(out->recipe, (double)(d->before_n + d->step), (double)d->all_n);
        code = run_step(d);
    }
    if (code == CLI_OK) {
        code = run_phase(d, measure);
    }
    if (code != CLI_OK) {
        return code;
    }
    out->seconds = cli_clock_now() - start;
    read_names(out, d);
    read_errors(out, d);
    return read_meters(out, d);
}

int cli_demo_run_recipe(cli_demo_outcome *out, cli_demo_run *d, const char *recipe, size_t at, size_t recipe_n)
{
    d->before_n = d->step_n * at;
    d->all_n = d->step_n * recipe_n;
    enum { PATIENCE_MS = 60000 };
    tg_threads *threads = NULL;
    tg_detail why;
    *out = (cli_demo_outcome){.recipe = recipe};
    tg_status status = tg_threads_new(&threads, d->world, PATIENCE_MS, NULL, &why);
    if (status != TG_OK) {
        return cli_fail_status(NULL, status, &why);
    }
    int code = start_workers(d, threads, recipe);
    if (code == CLI_OK) {
        code = run_steps(out, d);
    }
    for (uint32_t r = 0; r < d->world; r++) {
        tg_exchange_free(d->workers[r].exchange);
        d->workers[r].exchange = NULL;
        d->workers[r].link = NULL;
    }
    tg_threads_free(threads);
    return code;
}

/* ---- the model and its workers --------------------------------------------------------------------- */

static void draw_direction(cli_demo_run *d)
{
    for (size_t i = 0; i < DRAW_N; i++) {
        d->draws[i] = cli_synth_value(d->seed, i);
    }
    uint64_t seed = cli_synth_bits(d->seed, DRAW_N);
    for (size_t i = 0; i < d->n; i++) {
        d->direction[i] = cli_synth_value(seed, i);
    }
}

static int describe_model(cli_demo_run *d)
{
    for (size_t t = 0; t < TENSOR_N; t++) {
        const struct layer *l = &layers[t];
        tg_detail why;
        d->tensors[t] = (tg_tensor){l->name, l->dims, l->dim_n, l->kind, TG_FP32};
        tg_status status = tg_tensor_elements(&d->sizes[t], &d->tensors[t], &why);
        if (status != TG_OK) {
            return cli_fail_status(NULL, status, &why);
        }
        d->n += (size_t)d->sizes[t];
    }
    return CLI_OK;
}

static int reserve(cli_demo_run *d)
{
    d->draws = malloc(DRAW_N * sizeof *d->draws);
    d->direction = malloc(d->n * sizeof *d->direction);
    d->truth = malloc(d->n * sizeof *d->truth);
    d->sum_truth = malloc(d->n * sizeof *d->sum_truth);
    d->sum_got = malloc(d->n * sizeof *d->sum_got);
    d->workers = calloc(d->world, sizeof *d->workers);
    int sound = d->draws != NULL && d->direction != NULL && d->truth != NULL && d->sum_truth != NULL &&
                d->sum_got != NULL && d->workers != NULL;
    for (uint32_t r = 0; r < d->world && sound; r++) {
        worker *w = &d->workers[r];
        w->flat = malloc(d->n * sizeof *w->flat);
        sound = w->flat != NULL;
        float *at = w->flat;
        for (size_t t = 0; t < TENSOR_N && sound; at += d->sizes[t++]) {
            w->grads[t] = at;
        }
    }
    return sound ? CLI_OK : cli_fail_memory();
}

int cli_demo_run_new(cli_demo_run **out, uint32_t workers, uint64_t step_n, uint64_t seed)
{
    cli_demo_run *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return cli_fail_memory();
    }
    d->world = workers;
    d->step_n = step_n;
    d->seed = seed;
    int code = describe_model(d);
    if (code == CLI_OK) {
        code = reserve(d);
    }
    if (code != CLI_OK) {
        cli_demo_run_free(d);
        return code;
    }
    draw_direction(d);
    *out = d;
    return CLI_OK;
}

void cli_demo_run_free(cli_demo_run *d)
{
    if (d == NULL) {
        return;
    }
    for (uint32_t r = 0; r < d->world && d->workers != NULL; r++) {
        free(d->workers[r].flat);
    }
    free(d->workers);
    free(d->draws);
    free(d->direction);
    free(d->truth);
    free(d->sum_truth);
    free(d->sum_got);
    free(d);
}

size_t cli_demo_run_tensors(const cli_demo_run *d)
{
    (void)d;
    return TENSOR_N;
}

uint64_t cli_demo_run_elements(const cli_demo_run *d)
{
    return d->n;
}
