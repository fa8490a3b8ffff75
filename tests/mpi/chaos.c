/* Steps in flight over MPI with faults that are mixed at random moments, from a fixed seed: mpirun -n N mpi_chaos SEED FOLDER STEP FAULTS.
 * A rank is killed, stopped for longer than the timeout and continued, or has a NaN; messages are damaged or late; groups get ready in
 * an order of each rank's own. Every rank saves its state to FOLDER before each step, and goes on from that of STEP, if it is not 0. With
 * FAULTS 0 there are none.
 *
 * A step that fails by vote is checked to have changed nothing, and done again without the fault. Where the link fails, the rank prints
 * "link: REASON" and ends. At the end it prints "hash X" of all averages. "not so" is printed where something does not hold. */
#include "rank.h"

#include "shaky.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TENSOR_N = 6, TIMEOUT_MS = 1000, STOP_MS = 1500, STEPS = 10, KILL = TEST_FAULT_N };

static const uint64_t lens[TENSOR_N] = {900, 40, 3000, 7, 512, 2000};
static const uint32_t group_of[TENSOR_N] = {3, 3, 2, 1, 1, 0};
static const char *const recipes[] = {"adacomp", "ef+topk@0.05+fp16", "ef+fp4+rans", "dense"};

static int waker; /* a process that continues this one */

static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u); /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void nap(uint64_t ms)
{
    const struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

/* ---- a rank that stops --------------------------------------------------------------------------------------------------------- */

/* Before MPI starts: a child that waits for a byte, and some time later continues its parent. */
static void start_waker(void)
{
    int ends[2];
    if (pipe(ends) != 0) {
        exit(1);
    }
    pid_t parent = getpid();
    if (fork() == 0) {
        char byte;
        close(ends[1]);
        while (read(ends[0], &byte, 1) == 1) {
            nap(STOP_MS);
            (void)kill(parent, SIGCONT);
        }
        _exit(0);
    }
    close(ends[0]);
    waker = ends[1];
}

static void stop(void)
{
    HOLDS(write(waker, "!", 1) == 1);
    raise(SIGSTOP);
}

static void die(void)
{
    raise(SIGKILL);
}

/* ---- a step -------------------------------------------------------------------------------------------------------------------- */

typedef struct job {
    tg_exchange *exchange;
    tg_mpi *mpi;
    test_shaky link;
    tg_reducer *reducer;
    float *grads[TENSOR_N];
    float *kept[TENSOR_N]; /* copies */
    uint8_t *saved;
    size_t saved_len;
} job;

static void fill(const job *j, uint64_t step)
{
    uint64_t state = step * 100 + rank;
    for (size_t t = 0; t < TENSOR_N; t++) {
        for (uint64_t i = 0; i < lens[t]; i++) {
            j->grads[t][i] = (float)((double)(int64_t)draw(&state) * 0x1p-63);
        }
        memcpy(j->kept[t], j->grads[t], lens[t] * sizeof(float));
    }
}

static void save(job *j, const char *folder, uint64_t step)
{
    tg_detail why = {""};
    char path[512], temporary[520];
    j->saved_len = tg_state_len(j->exchange);
    j->saved = realloc(j->saved, j->saved_len + 1);
    HOLDS(j->saved != NULL && tg_state_save(j->exchange, j->saved, j->saved_len, &why) == TG_OK);
    (void)snprintf(path, sizeof path, "%.400s/%u.%" PRIu64, folder, rank, step);
    (void)snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "wb");
    HOLDS(file != NULL && fwrite(j->saved, 1, j->saved_len, file) == j->saved_len && fclose(file) == 0);
    HOLDS(rename(temporary, path) == 0);
}

static void load(const job *j, const char *folder, uint64_t step)
{
    tg_detail why = {""};
    char path[512];
    size_t len = tg_state_len(j->exchange);
    void *bytes = malloc(len + 1);
    (void)snprintf(path, sizeof path, "%.400s/%u.%" PRIu64, folder, rank, step);
    FILE *file = fopen(path, "rb");
    HOLDS(file != NULL && bytes != NULL);
    len = fread(bytes, 1, len, file);
    HOLDS(fclose(file) == 0 && tg_state_load(j->exchange, &(tg_span){bytes, len}, 1, &why) == TG_OK);
    free(bytes);
}

/* Gradients and state are those from before the step. */
static void check_unchanged(const job *j)
{
    tg_detail why = {""};
    uint8_t *now = malloc(j->saved_len + 1);
    HOLDS(now != NULL && tg_state_len(j->exchange) == j->saved_len);
    HOLDS(tg_state_save(j->exchange, now, j->saved_len, &why) == TG_OK && memcmp(now, j->saved, j->saved_len) == 0);
    for (size_t t = 0; t < TENSOR_N; t++) {
        HOLDS(memcmp(j->grads[t], j->kept[t], lens[t] * sizeof(float)) == 0);
    }
    free(now);
}

static tg_status reduce(job *j, uint64_t step, uint64_t *order, tg_detail *why)
{
    uint64_t first = draw(order) % TENSOR_N;
    j->link.started = 0;
    tg_status status = tg_reducer_begin(j->reducer, step, (void *const *)j->grads, why);
    for (size_t i = 0; i < TENSOR_N && status == TG_OK; i++) {
        status = tg_reducer_ready(j->reducer, (first + i) % TENSOR_N, why);
        nap(draw(order) % 3);
    }
    return status == TG_OK ? tg_reducer_wait(j->reducer, why) : status;
}

/* The link has failed: says why, and ends as a program would. */
static void end_lost(const job *j, const tg_detail *why)
{
    HOLDS(why->text[0] != '\0');
    check_unchanged(j);
    printf("rank %u: link: %s\n", rank, why->text);
    fflush(stdout);
    nap(STOP_MS + 500); /* so that all have printed before the launcher ends them */
    MPI_Abort(MPI_COMM_WORLD, 0);
}

/* Chooses the fault of a step, the same on all ranks. Returns the rank that has a NaN; `world`: none has. */
static uint32_t choose(job *j, uint64_t seed, uint64_t step)
{
    uint64_t state = seed * 1000 + step;
    uint32_t bad = (uint32_t)(draw(&state) % world), kind = (uint32_t)(draw(&state) % (3 * (KILL + 1)));
    uint64_t at = draw(&state) % 7, bit = draw(&state) % 4096;
    uint32_t nan = draw(&state) % 4 == 0 ? (uint32_t)(draw(&state) % world) : world;
    j->link.kind = TEST_CALM;
    if (kind <= KILL && rank == bad) {
        j->link.kind = kind == KILL ? TEST_STOP : (test_fault)kind;
        j->link.stop = kind == KILL ? die : stop;
        j->link.at = at;
        j->link.bit = bit;
    }
    return nan;
}

/* All ranks that failed by vote have one sentence: that of the rank that failed by itself. */
static void check_reason(tg_status status, const tg_detail *why, uint32_t nan)
{
    char all[8 * sizeof(tg_detail)] = "";
    int codes[8] = {0}, mine = status;
    uint32_t bad = world;
    HOLDS(world <= 8 && status < 0);
    MPI_Allgather(&mine, 1, MPI_INT, codes, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Allgather(why->text, (int)sizeof why->text, MPI_BYTE, all, (int)sizeof why->text, MPI_BYTE, MPI_COMM_WORLD);
    for (uint32_t p = 0; p < world; p++) {
        bad = codes[p] != TG_E_PEER && bad == world ? p : bad;
    }
    HOLDS(bad < world);
    const char *own = all + bad * sizeof why->text;
    char expected[300];
    (void)snprintf(expected, sizeof expected, "rank %u: %.200s", bad, own);
    HOLDS(rank == bad || (status == TG_E_PEER && strncmp(why->text, expected, strlen(expected)) == 0));
    HOLDS(codes[bad] != TG_E_NONFINITE || (bad == nan && strstr(own, "NaN or Inf") != NULL));
}

static void step_with_faults(job *j, uint64_t seed, uint64_t step, int has_faults)
{
    tg_detail why = {""};
    uint64_t order = seed * 7777 + step * 10 + rank;
    uint32_t nan = world;
    fill(j, step);
    if (has_faults) {
        nan = choose(j, seed, step);
    }
    if (nan == rank) {
        j->grads[2][77] = j->kept[2][77] = NAN;
    }
    tg_status status = reduce(j, step, &order, &why);
    j->link.kind = TEST_CALM;
    if (status == TG_E_LINK) {
        end_lost(j, &why);
    }
    if (status != TG_OK) {
        check_unchanged(j);
        check_reason(status, &why, nan);
        fill(j, step);
        status = reduce(j, step, &order, &why);
        if (status == TG_E_LINK) {
            end_lost(j, &why);
        }
    }
    HOLDS(status == TG_OK);
}

static void open_job(job *j, uint64_t seed)
{
    tg_detail why = {""};
    tg_tensor tensors[TENSOR_N] = {{0}};
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 5;
    opt.group_of = group_of;
    for (size_t t = 0; t < TENSOR_N; t++) {
        static const char *const names[TENSOR_N] = {"a", "b", "c", "d", "e", "f"};
        tensors[t] = (tg_tensor){.name = names[t], .kind = TG_DENSE, .dtype = TG_FP32, .dims = &lens[t], .dim_n = 1};
        j->grads[t] = calloc(lens[t], sizeof(float));
        j->kept[t] = calloc(lens[t], sizeof(float));
        HOLDS(j->grads[t] != NULL && j->kept[t] != NULL);
    }
    HOLDS(tg_exchange_new(&j->exchange, recipes[seed % 4], tensors, TENSOR_N, rank, world, &opt, &why) == TG_OK);
    HOLDS(tg_mpi_new(&j->mpi, MPI_COMM_WORLD, TIMEOUT_MS, NULL, &why) == TG_OK);
    test_shaky_init(&j->link, tg_mpi_link(j->mpi), rank, world, stop);
    HOLDS(tg_reducer_new(&j->reducer, j->exchange, &j->link.link, &why) == TG_OK);
}

int main(int argc, char **argv)
{
    job j = {0};
    int level = 0, r = 0, n = 0;
    uint64_t hash = 0;
    start_waker();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    rank = (uint32_t)r;
    world = (uint32_t)n;
    HOLDS(argc == 5 && level == MPI_THREAD_MULTIPLE);
    uint64_t seed = strtoull(argv[1], NULL, 10), first = strtoull(argv[3], NULL, 10);
    open_job(&j, seed);
    if (first > 0) {
        load(&j, argv[2], first);
    }
    for (uint64_t step = first; step < STEPS; step++) {
        save(&j, argv[2], step);
        step_with_faults(&j, seed, step, argv[4][0] == '1' && step > 0 && (first == 0 || step > first));
    }
    for (size_t t = 0; t < TENSOR_N; t++) { /* averages of the last step, and residuals of all */
        for (size_t i = 0; i < lens[t] * sizeof(float); i++) {
            hash = hash * UINT64_C(1099511628211) + ((const uint8_t *)j.grads[t])[i];
        }
    }
    save(&j, argv[2], STEPS);
    for (size_t i = 0; i < j.saved_len; i++) {
        hash = hash * UINT64_C(1099511628211) + j.saved[i];
    }
    printf("rank %u: hash %016" PRIx64 "\n", rank, hash);
    tg_reducer_free(j.reducer);
    tg_mpi_free(j.mpi);
    tg_exchange_free(j.exchange);
    return MPI_Finalize();
}
