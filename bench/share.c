/* The share of averaging in a training step: real gradients of a model, several recipes, all ranks in one thread.
 *
 *     bench_share MODEL WORKERS STEPS [EXCHANGE:]RECIPE...      such as: bench_share resnet20 4 30 gather:ef+topk@0.01
 *
 * In every step each worker computes its gradient from a batch of 32 (glyphs), then all are averaged in lockstep, then SGD updates the
 * weights once. Times are CPU times of the thread, because machines are shared; the averaging time of a worker is the total divided
 * by the number of workers. Prints medians by phase (recipes that learn have several), the minimum of the averaging, and its share of
 * the whole step. */
#include <tersegrad/experimental.h>

#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 32, TENSOR_MAX = 200, WORKERS_MAX = 64, STEP_MAX = 10000, PHASES = 4 };

typedef struct times {
    double compute[STEP_MAX], average[STEP_MAX]; /* of one worker */
    size_t n;
} times;

typedef struct job {
    tr_data *data;
    tr_loader *loader;
    tr_model *model; /* shared by all workers, whose weights are equal */
    uint32_t workers;
    tg_exchange *ranks[WORKERS_MAX];
    float *flat[WORKERS_MAX]; /* gradients, tensors concatenated */
    void *grads[WORKERS_MAX][TENSOR_MAX];
    times phases[PHASES];
} job;

static void stop(const char *sentence)
{
    fprintf(stderr, "bench_share: %s\n", sentence);
    exit(1);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void start(job *j, const char *model, uint32_t workers, const char *recipe)
{
    char why[TR_WHY] = "";
    if (tr_data_open(&j->data, "glyphs", why) != 0 || tr_loader_new(&j->loader, j->data, BATCH, why) != 0) {
        stop(why);
    }
    tr_shape shape = tr_data_shape(j->data);
    if (tr_model_new(&j->model, model, &shape, BATCH, 1, why) != 0) {
        stop(why);
    }
    j->workers = workers;
    tg_tensor tensors[TENSOR_MAX];
    size_t tensor_n = tr_model_param_n(j->model), n = 0;
    (void)tr_model_grads(j->model, &n);
    for (size_t t = 0; t < tensor_n; t++) {
        const tr_param *p = tr_model_param(j->model, t);
        tensors[t] = (tg_tensor){p->name, p->dims, p->dim_n, p->kind, TG_FP32};
    }
    tg_options opt = TG_OPTIONS_INIT;
    const char *colon = strchr(recipe, ':');
    char exchange[32] = "";
    if (colon != NULL) {
        (void)snprintf(exchange, sizeof exchange, "%.*s", (int)(colon - recipe), recipe);
        opt.exchange = exchange;
        recipe = colon + 1;
    }
    opt.has_seed = 1;
    opt.seed = 1;
    for (uint32_t r = 0; r < workers; r++) {
        tg_detail detail;
        if (tg_exchange_new(&j->ranks[r], recipe, tensors, tensor_n, r, workers, &opt, &detail) != TG_OK) {
            stop(detail.text);
        }
        j->flat[r] = calloc(n, sizeof *j->flat[r]);
        if (j->flat[r] == NULL) {
            stop("there is not enough memory");
        }
        for (size_t t = 0; t < tensor_n; t++) {
            j->grads[r][t] = j->flat[r] + tr_model_param(j->model, t)->at;
        }
    }
}

static void step(job *j, uint64_t number)
{
    size_t n = 0;
    float *own = tr_model_grads(j->model, &n), *weights = tr_model_weights(j->model, &n);
    void *const *grads[WORKERS_MAX];
    tg_learning before;
    tg_exchange_learning(&before, j->ranks[0]);
    times *of = &j->phases[before.phase];
    double begun = seconds();
    for (uint32_t r = 0; r < j->workers; r++) {
        tr_draw draw = {.seed = 1, .step = number, .worker = r, .workers = j->workers, .batch = BATCH};
        tr_batch batch = tr_loader_train(j->loader, &draw);
        (void)tr_model_train(j->model, &batch, NULL);
        memcpy(j->flat[r], own, n * sizeof *own);
        grads[r] = j->grads[r];
    }
    double computed = seconds();
    tg_detail why;
    if (tg_lockstep_reduce(NULL, j->ranks, j->workers, number, grads, NULL, &why) != TG_OK) {
        stop(why.text);
    }
    double averaged = seconds();
    for (size_t i = 0; i < n; i++) {
        weights[i] -= 0.01f * j->flat[0][i];
    }
    of->compute[of->n] = (computed - begun) / j->workers;
    of->average[of->n++] = (averaged - computed) / j->workers;
}

static void finish(job *j)
{
    for (uint32_t r = 0; r < j->workers; r++) {
        tg_exchange_free(j->ranks[r]);
        free(j->flat[r]);
    }
    tr_model_free(j->model);
    tr_loader_free(j->loader);
    tr_data_free(j->data);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *recipe, times phases[PHASES])
{
    static const char *const names[PHASES] = {"all steps", "dense", "learning", "codes"};
    for (int p = 0; p < PHASES; p++) {
        times *t = &phases[p];
        if (t->n == 0) {
            continue;
        }
        qsort(t->compute, t->n, sizeof(double), by_value);
        qsort(t->average, t->n, sizeof(double), by_value);
        double compute = t->compute[t->n / 2], average = t->average[t->n / 2];
        printf("| `%s` | %s | %zu | %.2f | %.2f | %.2f | %.1f%% |\n", recipe, names[p], t->n, 1e3 * compute,
               1e3 * average, 1e3 * t->average[0], 100 * average / (compute + average));
    }
}

int main(int argc, char **argv)
{
    uint32_t workers = argc > 4 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    uint64_t steps = argc > 4 ? strtoull(argv[3], NULL, 10) : 0;
    if (workers < 1 || workers > WORKERS_MAX || steps < 1 || steps > STEP_MAX) {
        stop("usage: bench_share MODEL WORKERS STEPS [EXCHANGE:]RECIPE...      with 1 to 64 workers and 1 to 10000 "
             "steps");
    }
    printf("%s, %" PRIu32 " workers, batch %d, milliseconds of a worker's own time, medians\n\n", argv[1], workers,
           BATCH);
    printf("| recipe | phase | steps | compute | average | at least | share of the step "
           "|\n|---|---|---|---|---|---|---|\n");
    static job j;
    for (int r = 4; r < argc; r++) {
        memset(&j, 0, sizeof j);
        start(&j, argv[1], workers, argv[r]);
        for (uint64_t s = 0; s < steps; s++) {
            step(&j, s);
        }
        print(argv[r], j.phases);
        fflush(stdout);
        finish(&j);
    }
    return 0;
}
