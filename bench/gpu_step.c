/* A step of an exchange over device memory: ranks on one GPU, in lockstep, on one stream. First some steps beside ranks on the CPU, with
 * the same gradients: averages and saved states must have the same bits. Then the time of a step, and that of the CPU's.
 *
 *     bench_gpu_step [--ranks N] [--steps N] [--check N] [--skip N] [--threads N] [--values N] SHAPES RECIPE...
 *
 * SHAPES is a file as bench/shapes/resnet50.txt. With several ranks, the time is that of all of them, over their number; it has the
 * copies between ranks. Steps of LGC are timed by phase. --skip: steps before those that are timed; --values: elements of a tensor are cut to so many. */
#include "tersegrad/cuda.h"
#include "tersegrad/experimental.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TENSOR_MAX = 1024, DIM_MAX = 6, NAME_MAX_LEN = 64, RANK_MAX = 16 };

/* ---- arguments and the model ------------------------------------------------------------------------------------------- */

typedef struct settings {
    uint32_t ranks, threads;
    uint64_t steps, check, skip;
} settings;

static tg_tensor tensors[TENSOR_MAX];
static uint64_t dims[TENSOR_MAX][DIM_MAX], lens[TENSOR_MAX];
static char names[TENSOR_MAX][NAME_MAX_LEN];
static size_t tensor_n;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_gpu_step: %s: %s\n", what, why);
    exit(1);
}

static void must(tg_status status, const char *what, const tg_detail *why)
{
    if (status != TG_OK) {
        die(what, why->text);
    }
}

/* A line "name 64x3x7x7". */
static void add_tensor(char *line)
{
    char *name = strtok(line, " \n"), *shape = strtok(NULL, " \n");
    tg_tensor *t = &tensors[tensor_n];
    if (name == NULL || name[0] == '#' || shape == NULL) {
        return;
    }
    if (tensor_n == TENSOR_MAX) {
        die(name, "too many tensors");
    }
    snprintf(names[tensor_n], NAME_MAX_LEN, "%s", name);
    *t = (tg_tensor){.name = names[tensor_n], .dims = dims[tensor_n]};
    lens[tensor_n] = 1;
    for (char *at = shape; *at != '\0' && t->dim_n < DIM_MAX; at += *at == 'x') {
        uint64_t dim = strtoull(at, &at, 10);
        dims[tensor_n][t->dim_n++] = dim;
        lens[tensor_n] *= dim;
    }
    t->kind = t->dim_n > 2 ? TG_CONV : t->dim_n == 2 ? TG_DENSE : strstr(name, "bias") != NULL ? TG_BIAS : TG_NORM;
    tensor_n++;
}

static void read_shapes(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[256];
    if (file == NULL) {
        die(path, "cannot be read");
    }
    while (fgets(line, sizeof line, file) != NULL) {
        add_tensor(line);
    }
    fclose(file);
}

/* ---- gradients --------------------------------------------------------------------------------------------------------- */

/* Of a low rank plus noise, in part common to all ranks: a pure function of step, rank and element. */
static float noise(uint64_t seed)
{
    seed = (seed ^ seed >> 31) * UINT64_C(0x7fb5d329728ea185);
    seed = (seed ^ seed >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return (float)((double)(seed ^ seed >> 33) * 0x1p-63 - 1.0);
}

static void fill(float *out, size_t t, uint64_t step, uint32_t rank)
{
    uint64_t columns = lens[t] / dims[t][0];
    for (uint64_t i = 0; i < lens[t]; i++) {
        uint64_t of = (uint64_t)t << 40 | i;
        float common = noise(of * 3 + 1) * noise((uint64_t)t << 40 | i / columns) + noise(step << 52 ^ of) / 2;
        out[i] = 0.01f * (common + noise((uint64_t)(rank + 1) << 56 ^ step << 48 ^ of) / 4);
    }
}

/* ---- worlds ------------------------------------------------------------------------------------------------------------ */

typedef struct world {
    tg_device *device; /* NULL: the CPU */
    uint32_t n;
    tg_exchange *ranks[RANK_MAX];
    void **grads[RANK_MAX];
} world;

static void open_world(world *w, const settings *s, const char *recipe, tg_device *device)
{
    tg_detail why = {""};
    *w = (world){.device = device, .n = s->ranks};
    for (uint32_t r = 0; r < w->n; r++) {
        tg_options opt = TG_OPTIONS_INIT;
        opt.has_seed = 1;
        opt.seed = 1;
        opt.threads = s->threads;
        opt.device = device;
        must(tg_exchange_new(&w->ranks[r], recipe, tensors, tensor_n, r, w->n, &opt, &why), recipe, &why);
        w->grads[r] = calloc(tensor_n, sizeof *w->grads[r]);
        for (size_t t = 0; t < tensor_n; t++) {
            if (device == NULL) {
                w->grads[r][t] = malloc(lens[t] * sizeof(float));
            } else {
                must(tg_cuda_acquire(&w->grads[r][t], device, lens[t] * sizeof(float), &why), "memory", &why);
            }
        }
    }
}

static void close_world(world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        tg_exchange_free(w->ranks[r]);
        for (size_t t = 0; t < tensor_n; t++) {
            if (w->device == NULL) {
                free(w->grads[r][t]);
            } else {
                tg_cuda_release(w->device, w->grads[r][t]);
            }
        }
        free((void *)w->grads[r]);
    }
}

static void put(world *w, uint32_t r, size_t t, const float *values)
{
    tg_detail why = {""};
    if (w->device == NULL) {
        memcpy(w->grads[r][t], values, lens[t] * sizeof *values);
        return;
    }
    must(tg_cuda_copy(w->device, w->grads[r][t], values, lens[t] * sizeof *values, &why), "copy", &why);
    must(tg_cuda_wait(w->device, &why), "copy", &why);
}

/* Moves the messages of an operation between ranks. */
static void carry(world *w, const tg_op *ops)
{
    tg_detail why = {""};
    for (uint32_t from = 0; from < w->n; from++) {
        for (uint32_t to = 0; to < w->n; to++) {
            const tg_span *sent = &ops[from].sends[to], *wanted = &ops[to].recvs[from];
            if (sent->len != wanted->len) {
                die("an operation", "lengths differ");
            }
            if (from == to || sent->len == 0) {
                continue;
            }
            if (w->device == NULL) {
                memcpy(wanted->data, sent->data, sent->len);
            } else {
                must(tg_cuda_copy(w->device, wanted->data, sent->data, sent->len, &why), "copy", &why);
            }
        }
    }
    if (w->device != NULL && w->n > 1) {
        must(tg_cuda_wait(w->device, &why), "copies", &why);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A step of all ranks. Returns the milliseconds of one. */
static double reduce(world *w, uint64_t step)
{
    tg_op ops[RANK_MAX];
    tg_detail why = {""};
    double begin = now();
    tg_status status = TG_MORE;
    for (uint32_t r = 0; r < w->n; r++) {
        must(tg_exchange_begin(w->ranks[r], step, w->grads[r], &why), "a step", &why);
    }
    while (status == TG_MORE) {
        for (uint32_t r = 0; r < w->n; r++) {
            status = tg_exchange_next(w->ranks[r], &ops[r], &why);
            if (status != TG_MORE) {
                must(status, "a step", &why);
            }
        }
        if (status == TG_MORE) {
            carry(w, ops);
        }
    }
    if (w->device != NULL) {
        must(tg_cuda_wait(w->device, &why), "a step", &why);
    }
    return 1e3 * (now() - begin) / w->n;
}

/* ---- comparison and times ---------------------------------------------------------------------------------------------- */

/* Whether both have the same averages. */
static bool same_averages(world *a, world *b)
{
    bool same = true;
    tg_detail why = {""};
    for (uint32_t r = 0; r < a->n; r++) {
        for (size_t t = 0; t < tensor_n && same; t++) {
            float *here = malloc(lens[t] * sizeof *here);
            must(tg_cuda_copy(a->device, here, a->grads[r][t], lens[t] * sizeof *here, &why), "copy", &why);
            must(tg_cuda_wait(a->device, &why), "copy", &why);
            same = memcmp(here, b->grads[r][t], lens[t] * sizeof *here) == 0;
            free(here);
        }
    }
    return same;
}

static bool same_states(world *a, world *b)
{
    bool same = true;
    tg_detail why = {""};
    for (uint32_t r = 0; r < a->n && same; r++) {
        size_t len = tg_state_len(a->ranks[r]);
        char *of_a = malloc(len), *of_b = malloc(len);
        must(tg_state_save(a->ranks[r], of_a, len, &why), "state", &why);
        must(tg_state_save(b->ranks[r], of_b, len, &why), "state", &why);
        same = memcmp(of_a, of_b, len) == 0;
        free(of_b);
        free(of_a);
    }
    return same;
}

static void give(world *w, world *twin, uint64_t step)
{
    for (size_t t = 0; t < tensor_n; t++) {
        float *values = malloc(lens[t] * sizeof *values);
        for (uint32_t r = 0; r < w->n; r++) {
            fill(values, t, step, r);
            put(w, r, t, values);
            if (twin != NULL) {
                put(twin, r, t, values);
            }
        }
        free(values);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Times of steps, by phase of what learns. */
typedef struct timing {
    double *of[4];
    uint64_t n[4];
} timing;

static uint32_t phase_of(const world *w)
{
    tg_learning learning = {0};
    tg_exchange_learning(&learning, w->ranks[0]);
    return learning.phase;
}

static void print_times(timing *t)
{
    for (uint32_t phase = 0; phase < 4; phase++) {
        if (t->n[phase] > 0) {
            qsort(t->of[phase], t->n[phase], sizeof *t->of[phase], by_size);
            if (phase > 0) {
                printf(" phase %u:", phase);
            }
            printf(" %.3f median, %.3f least;", t->of[phase][t->n[phase] / 2], t->of[phase][0]);
        }
        free(t->of[phase]);
    }
}

static void measure(const settings *s, const char *recipe, tg_device *device)
{
    world gpu, cpu;
    timing on_gpu = {.n = {0}};
    double host[4] = {0};
    for (int phase = 0; phase < 4; phase++) {
        on_gpu.of[phase] = calloc(s->steps + 1, sizeof *on_gpu.of[phase]);
    }
    open_world(&gpu, s, recipe, device);
    open_world(&cpu, s, recipe, NULL);
    for (uint64_t step = 0; step < s->check; step++) {
        give(&gpu, &cpu, step);
        uint32_t phase = phase_of(&cpu);
        (void)reduce(&gpu, step);
        double took = reduce(&cpu, step);
        host[phase] = host[phase] == 0 || took < host[phase] ? took : host[phase];
        if (!same_averages(&gpu, &cpu) || (step + 1 == s->check && !same_states(&gpu, &cpu))) {
            die(recipe, "the GPU's averages or states are not those of the CPU");
        }
    }
    give(&gpu, NULL, s->check);
    for (uint64_t i = 0; i < s->skip + s->steps; i++) { /* then on averages: their values do not matter any more */
        uint32_t phase = phase_of(&gpu);
        double took = reduce(&gpu, s->check + i);
        if (i >= s->skip) {
            on_gpu.of[phase][on_gpu.n[phase]++] = took;
        }
    }
    printf("%-40s %u ranks: %llu steps as on the CPU; ms a step:", recipe, s->ranks, (unsigned long long)s->check);
    print_times(&on_gpu);
    printf(" CPU, %u threads, least:", s->threads);
    for (uint32_t phase = 0; phase < 4; phase++) {
        if (host[phase] > 0) {
            printf(" %.1f", host[phase]);
        }
        if (host[phase] > 0 && phase > 0) {
            printf(" in phase %u", phase);
        }
    }
    printf("\n");
    fflush(stdout);
    close_world(&cpu);
    close_world(&gpu);
}

int main(int argc, char **argv)
{
    settings s = {.ranks = 1, .threads = 1, .steps = 50, .check = 2};
    uint64_t most = UINT64_MAX;
    int at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        uint64_t value = strtoull(argv[at + 1], NULL, 10);
        const char *name = argv[at] + 2;
        if (strcmp(name, "ranks") == 0 && value >= 1 && value <= RANK_MAX) {
            s.ranks = (uint32_t)value;
        } else if (strcmp(name, "steps") == 0 && value >= 1) {
            s.steps = value;
        } else if (strcmp(name, "check") == 0) {
            s.check = value;
        } else if (strcmp(name, "skip") == 0) {
            s.skip = value;
        } else if (strcmp(name, "threads") == 0 && value >= 1) {
            s.threads = (uint32_t)value;
        } else if (strcmp(name, "values") == 0 && value >= 1) {
            most = value;
        } else {
            die(argv[at], "unknown, or out of range");
        }
    }
    if (argc - at < 2) {
        die("usage", "[--ranks N] [--steps N] [--check N] [--skip N] [--threads N] [--values N] SHAPES RECIPE...");
    }
    read_shapes(argv[at++]);
    for (size_t t = 0; t < tensor_n; t++) {
        while (lens[t] > most && dims[t][0] > 1) { /* fewer rows */
            lens[t] /= dims[t][0];
            dims[t][0] = (dims[t][0] + 1) / 2;
            lens[t] *= dims[t][0];
        }
    }
    tg_device *device = NULL;
    tg_detail why = {""};
    must(tg_cuda_open(&device, 0, NULL, &why), "GPU", &why);
    for (; at < argc; at++) {
        measure(&s, argv[at], device);
    }
    tg_cuda_close(device);
    return 0;
}
