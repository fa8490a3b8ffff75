/* Times the averaging of gradients across the ranks of an MPI job: with recipes, and with MPI_Allreduce in fp32 and bf16.
 *
 *     mpirun -n 4 bench_links [FLAGS] MODEL STEPS RECIPE...
 *     bench_links describe MODEL SHAPES.json GRADIENT.npy
 *
 * MODEL is lenet, resnet20, resnet50, gpt (a GPT of 10 M parameters) or small (200 tensors, 1 M parameters). RECIPE may also be
 * mpi:fp32 or mpi:bf16.
 *
 * With --compute MS, a step begins with so many milliseconds of computing that stand for a backward pass: they finish tensors from the
 * last to the first, by their sizes. They are CPU time of one thread, or, with --compute-on device, a timed wait: an accelerator computes
 * and leaves the cores free. With --group BYTES, gradients are averaged while the rest computes, in groups of so many bytes, by a
 * tg_reducer, or by a thread that calls MPI_Allreduce; otherwise all of them afterwards. With --hosts SIZE, each SIZE ranks average among
 * themselves first, and one of them exchanges by the recipe. --warm STEPS is the number of steps before those that are timed, 3 unless
 * given.
 *
 * `describe` runs nothing: it writes the model's tensors, for `tersegrad plan --shapes`, and a gradient of the kind that is averaged, for
 * `tersegrad probe --input`.
 *
 * With --latency MS or --rate MBIT, the link of recipes is an emulated one of that latency and rate (train/slow.h), over MPI.
 *
 * Prints a line of JSON for each: the mean over steps of the slowest rank's time, and a worker's bytes by the meter and by
 * the counter of the interface eth0, if there is one. Gradients are random and heavy-tailed; half of each is the same on all ranks. */
#include <tersegrad/experimental.h>
#include <tersegrad/mpi.h>

#include "links_gradients.h"
#include "links_models.h"
#include "slow.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GROUP_MAX = 400, STEP_MAX = 1000 };

static int rank, world;
static double compute_ms;  /* --compute */
static int is_on_device;   /* --compute-on device */
static uint64_t group_len; /* --group */
static double latency_ms;  /* --latency */
static double rate_mbit;   /* --rate */
static uint32_t host_size; /* --hosts */
static uint64_t warm = 3;  /* --warm */

static void stop(const char *sentence)
{
    fprintf(stderr, "bench_links: %s\n", sentence);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ---- counters ------------------------------------------------------------------------------------------------------------ */

/* Bytes that eth0 has sent, 0 where there is no such interface. */
static uint64_t interface_sent(void)
{
    FILE *file = fopen("/proc/net/dev", "r");
    char line[512];
    uint64_t sent = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        uint64_t column[9];
        if (sscanf(line,
                   " eth0: %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                   " %" SCNu64,
                   &column[0], &column[1], &column[2], &column[3], &column[4], &column[5], &column[6], &column[7],
                   &column[8]) == 9) {
            sent = column[8];
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return sent;
}

/* ---- averaging --------------------------------------------------------------------------------------------------------- */

static void add_bf16(void *in, void *sum, int *n, MPI_Datatype *type)
{
    enum { BLOCK = 1024 };
    float a[BLOCK], b[BLOCK];
    (void)type;
    for (int at = 0; at < *n; at += BLOCK) {
        size_t len = (size_t)(*n - at < BLOCK ? *n - at : BLOCK);
        tg_widen(a, (const uint16_t *)in + at, TG_BF16, len);
        tg_widen(b, (const uint16_t *)sum + at, TG_BF16, len);
        for (size_t i = 0; i < len; i++) {
            b[i] += a[i];
        }
        tg_narrow((uint16_t *)sum + at, b, TG_BF16, len);
    }
}

/* Consecutive tensors, from the last to the first. */
typedef struct group {
    size_t first; /* tensor */
    float *grads;
    int n;
} group;

typedef struct job {
    const shapes *model;
    float *grads;
    void **rows;
    const char *recipe;
    tg_exchange *exchange; /* of recipes */
    tg_mpi *mpi;
    tg_link *link;
    tr_slow slow;        /* with --latency or --rate */
    tg_reducer *reducer; /* with --group */
    MPI_Op sum;          /* of mpi:bf16 */
    uint16_t *halves;
    group groups[GROUP_MAX]; /* of MPI_Allreduce */
    int group_n;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t change;
    int ready_n; /* groups whose gradients are complete */
} job;

static void check(tg_status status, const tg_detail *why)
{
    if (status != TG_OK) {
        stop(why->text);
    }
}

/* ---- computing --------------------------------------------------------------------------------------------------------- */

static double done_ms; /* by MPI's clock: when the device is done with all that it was given in this step */

static void begin_computing(void)
{
    done_ms = 1e3 * MPI_Wtime();
}

/* Waits for the device, which goes on also while this thread is late. */
static void wait_for_device(double ms)
{
    done_ms += ms;
    double left = done_ms - 1e3 * MPI_Wtime();
    if (left > 0) {
        const struct timespec t = {(time_t)(left / 1e3), (long)(fmod(left, 1e3) * 1e6)};
        (void)nanosleep(&t, NULL);
    }
}

/* Computes for so many milliseconds, of this thread's CPU time or of a device. */
static void compute(double ms)
{
    struct timespec t;
    if (is_on_device) {
        wait_for_device(ms);
        return;
    }
    volatile float x = 1;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    double begin = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6, now = begin;
    while (now - begin < ms) {
        for (int i = 0; i < 2000; i++) {
            x = x * 0.9999F + 0.1F;
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        now = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
    }
}

static double compute_of(const job *j, size_t t)
{
    uint64_t n = 0;
    (void)!tg_tensor_elements(&n, &j->model->tensors[t], NULL);
    return compute_ms * (double)n / (double)j->model->n;
}

/* ---- MPI's own ------------------------------------------------------------------------------------------------------------- */

static void reduce_group(const job *j, const group *g)
{
    if (j->halves != NULL) {
        uint16_t *halves = j->halves + (g->grads - j->grads);
        tg_narrow(halves, g->grads, TG_BF16, (size_t)g->n);
        MPI_Allreduce(MPI_IN_PLACE, halves, g->n, MPI_UINT16_T, j->sum, MPI_COMM_WORLD);
        tg_widen(g->grads, halves, TG_BF16, (size_t)g->n);
    } else {
        MPI_Allreduce(MPI_IN_PLACE, g->grads, g->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    for (int i = 0; i < g->n; i++) {
        g->grads[i] *= 1.0F / (float)world;
    }
}

/* Group after group, as they get ready. */
static void *reduce_groups(void *context)
{
    job *j = context;
    for (int g = 0; g < j->group_n; g++) {
        pthread_mutex_lock(&j->lock);
        while (j->ready_n <= g) {
            pthread_cond_wait(&j->change, &j->lock);
        }
        pthread_mutex_unlock(&j->lock);
        reduce_group(j, &j->groups[g]);
    }
    return NULL;
}

static void allreduce(job *j)
{
    size_t t = j->model->tensor_n;
    pthread_t thread;
    if (j->group_n == 1) {
        compute(compute_ms);
        reduce_group(j, &j->groups[0]);
        return;
    }
    j->ready_n = 0;
    if (pthread_create(&thread, NULL, reduce_groups, j) != 0) {
        stop("the system starts no further thread");
    }
    for (int g = 0; g < j->group_n; g++) {
        while (t > j->groups[g].first) {
            compute(compute_of(j, --t));
        }
        pthread_mutex_lock(&j->lock);
        j->ready_n = g + 1;
        pthread_cond_signal(&j->change);
        pthread_mutex_unlock(&j->lock);
    }
    (void)pthread_join(thread, NULL);
}

/* Groups as those of an exchange of the same tensors; without --group, one. */
static void cut_groups(job *j)
{
    tg_options opt = TG_OPTIONS_INIT;
    tg_exchange *x = NULL;
    tg_detail why = {""};
    uint64_t filled = 0;
    opt.group_len = group_len;
    opt.exchange = "gather";
    check(tg_exchange_new(&x, "fp32", j->model->tensors, j->model->tensor_n, 0, 2, &opt, &why), &why);
    for (size_t t = j->model->tensor_n; t-- > 0;) {
        uint64_t n = 0;
        (void)!tg_tensor_elements(&n, &j->model->tensors[t], NULL);
        filled += n;
        if (t == 0 || tg_exchange_group(x, t - 1) != tg_exchange_group(x, t)) {
            j->groups[j->group_n++] = (group){.first = t, .grads = j->rows[t], .n = (int)filled};
            filled = 0;
        }
    }
    tg_exchange_free(x);
}

/* ---- recipes ----------------------------------------------------------------------------------------------------------------- */

static void reduce(job *j, uint64_t step)
{
    tg_detail why = {""};
    if (j->reducer == NULL) {
        compute(compute_ms);
        check(tg_reduce(j->exchange, j->link, step, j->rows, &why), &why);
        return;
    }
    check(tg_reducer_begin(j->reducer, step, j->rows, &why), &why);
    for (size_t t = j->model->tensor_n; t-- > 0;) {
        compute(compute_of(j, t));
        check(tg_reducer_ready(j->reducer, t, &why), &why);
    }
    check(tg_reducer_wait(j->reducer, &why), &why);
}

static void average(job *j, uint64_t step)
{
    begin_computing();
    if (j->exchange != NULL) {
        reduce(j, step);
    } else {
        allreduce(j);
    }
}

static void open_link(job *j)
{
    tg_detail why = {""};
    j->link = tg_mpi_link(j->mpi);
    if (latency_ms > 0 || rate_mbit > 0) {
        tr_slow_init(&j->slow, j->link, rate_mbit > 0 ? rate_mbit * 1e6 : 1e15, latency_ms * 1e-3);
        j->link = &j->slow.link;
    }
    if (group_len != 0) {
        check(tg_reducer_new(&j->reducer, j->exchange, j->link, &why), &why);
    }
}

static void open_job(job *j)
{
    tg_detail why = {""};
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 1;
    opt.group_len = group_len;
    opt.host_size = host_size;
    cut_groups(j);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->change, NULL);
    if (strcmp(j->recipe, "mpi:fp32") == 0) {
        return;
    }
    if (strcmp(j->recipe, "mpi:bf16") == 0) {
        MPI_Op_create(add_bf16, 1, &j->sum);
        j->halves = malloc(j->model->n * sizeof *j->halves);
    } else if (tg_exchange_new(&j->exchange, j->recipe, j->model->tensors, j->model->tensor_n, (uint32_t)rank,
                               (uint32_t)world, &opt, &why) != TG_OK ||
               tg_mpi_new(&j->mpi, MPI_COMM_WORLD, 300000, NULL, &why) != TG_OK) {
        stop(why.text);
    } else {
        open_link(j);
    }
}

static void close_job(job *j)
{
    pthread_cond_destroy(&j->change);
    pthread_mutex_destroy(&j->lock);
    tg_reducer_free(j->reducer);
    if (j->link == &j->slow.link) {
        tr_slow_destroy(&j->slow);
    }
    tg_exchange_free(j->exchange);
    tg_mpi_free(j->mpi);
    if (j->halves != NULL) {
        MPI_Op_free(&j->sum);
        free(j->halves);
    }
}

/* An exchange that learns is timed in its last phase. */
static int is_warm(const job *j, uint64_t step)
{
    tg_learning learning = {0};
    if (j->exchange != NULL) {
        tg_exchange_learning(&learning, j->exchange);
    }
    return step >= warm && learning.phase != 1 && learning.phase != 2;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void time_job(job *j, const char *model, int steps, const float *common, const float *own)
{
    double sum = 0, all_times[STEP_MAX];
    uint64_t wire = 0, meter = 0;
    tg_meter times = {0};
    int done = 0;
    open_job(j);
    for (uint64_t step = 0; done < steps; step++) {
        fill(j->grads, j->model->n, common, own, step);
        int timed = is_warm(j, step);
        MPI_Barrier(MPI_COMM_WORLD);
        uint64_t before = interface_sent();
        double start = MPI_Wtime();
        average(j, step);
        double spent = MPI_Wtime() - start, slowest = 0;
        MPI_Allreduce(&spent, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        wire += timed ? interface_sent() - before : 0; /* all messages have been sent by now */
        if (timed) {
            tg_meter last = {0};
            if (j->exchange != NULL) {
                tg_exchange_meter(j->exchange, &last, NULL);
            }
            sum += slowest;
            all_times[done] = slowest;
            meter += last.payload + last.header;
            times.encode_ns += last.encode_ns;
            times.decode_ns += last.decode_ns;
            times.exposed_ns += last.exposed_ns;
            done++;
        }
    }
    uint64_t mine[2] = {wire, meter}, all[2] = {0, 0};
    MPI_Allreduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        double shares = (double)steps * world;
        qsort(all_times, (size_t)steps, sizeof *all_times, by_value);
        printf("{\"model\":\"%s\",\"recipe\":\"%s\",\"ranks\":%d,\"ms\":%.3f,\"least_ms\":%.3f,\"median_ms\":%.3f,"
               "\"meter_bytes\":%.0f,"
               "\"interface_bytes\":%.0f,\"compute_ms\":%g,\"groups\":%zu,\"encode_ms\":%.3f,\"decode_ms\":%.3f,"
               "\"exposed_ms\":%.3f}\n",
               model, j->recipe, world, 1e3 * sum / steps, 1e3 * all_times[0], 1e3 * all_times[steps / 2],
               (double)all[1] / shares, (double)all[0] / shares, compute_ms,
               j->exchange != NULL ? tg_exchange_groups(j->exchange) : (size_t)j->group_n,
               (double)times.encode_ns / 1e6 / steps, (double)times.decode_ns / 1e6 / steps,
               (double)times.exposed_ns / 1e6 / steps);
        fflush(stdout);
    }
    close_job(j);
}

/* ---- descriptions -------------------------------------------------------------------------------------------------------------- */

/* Without MPI. */
static int describe(char **argv)
{
    shapes *model = calloc(1, sizeof *model);
    if (model == NULL || !add_model(model, argv[2])) {
        fprintf(stderr, "bench_links: the models are lenet, resnet20, resnet50, gpt and small\n");
        return 1;
    }
    int is_written = write_shapes(model, argv[3]) && write_gradient(argv[4]);
    if (!is_written) {
        fprintf(stderr, "bench_links: the shapes or the gradient cannot be written\n");
    }
    free(model);
    return is_written ? 0 : 1;
}

int main(int argc, char **argv)
{
    int given = 0, at_argument = 1;
    if (argc == 5 && strcmp(argv[1], "describe") == 0) {
        return describe(argv);
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    for (; at_argument + 1 < argc && strncmp(argv[at_argument], "--", 2) == 0; at_argument += 2) {
        if (strcmp(argv[at_argument], "--compute") == 0) {
            compute_ms = atof(argv[at_argument + 1]);
        } else if (strcmp(argv[at_argument], "--compute-on") == 0) {
            is_on_device = strcmp(argv[at_argument + 1], "device") == 0;
            if (!is_on_device && strcmp(argv[at_argument + 1], "host") != 0) {
                stop("--compute-on is host or device");
            }
        } else if (strcmp(argv[at_argument], "--group") == 0) {
            group_len = strtoull(argv[at_argument + 1], NULL, 10);
        } else if (strcmp(argv[at_argument], "--hosts") == 0) {
            host_size = (uint32_t)atoi(argv[at_argument + 1]);
        } else if (strcmp(argv[at_argument], "--warm") == 0) {
            warm = strtoull(argv[at_argument + 1], NULL, 10);
        } else if (strcmp(argv[at_argument], "--latency") == 0) {
            latency_ms = atof(argv[at_argument + 1]);
        } else if (strcmp(argv[at_argument], "--rate") == 0) {
            rate_mbit = atof(argv[at_argument + 1]);
        } else {
            stop("the flags are --compute, --compute-on, --group, --hosts, --warm, --latency and --rate");
        }
    }
    argc -= at_argument - 1;
    argv += at_argument - 1;
    if (argc < 4 || atoi(argv[2]) < 1 || atoi(argv[2]) > STEP_MAX) {
        stop("usage: mpirun -n N bench_links [FLAGS] lenet|resnet20|resnet50|gpt|small STEPS RECIPE...");
    }
    shapes *model = calloc(1, sizeof *model);
    if (model == NULL || !add_model(model, argv[1])) {
        stop("the models are lenet, resnet20, resnet50, gpt and small");
    }
    float *common = pool_new(1), *own = pool_new(100 + (uint64_t)rank), *grads = malloc(model->n * sizeof *grads);
    void **rows = calloc(model->tensor_n, sizeof(void *));
    uint64_t at = 0;
    if (common == NULL || own == NULL || grads == NULL || rows == NULL) {
        stop("there is not enough memory");
    }
    for (size_t t = 0; t < model->tensor_n; t++) {
        uint64_t n = 0;
        rows[t] = grads + at;
        if (tg_tensor_elements(&n, &model->tensors[t], NULL) != TG_OK) {
            stop("a tensor is too large");
        }
        at += n;
    }
    for (int r = 3; r < argc; r++) {
        job j = {.model = model, .grads = grads, .rows = rows, .recipe = argv[r]};
        time_job(&j, argv[1], atoi(argv[2]), common, own);
    }
    free(rows);
    free(grads);
    free(own);
    free(common);
    free(model);
    return MPI_Finalize();
}
