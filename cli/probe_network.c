/* The network of an MPI job, measured; see probe_network.h. Messages go by the operations that exchanges use, all ranks at the same
 * time: one by one, and as those of a reducer, over a link that listens. Before each there is a pause, as between the steps of a
 * training. The slowest rank's time counts, and the median of a few. */
#include "probe_network.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "fail.h"
#include "probe_parts.h"

#ifdef TG_WITH_MPI

#include "tersegrad/mpi.h"

enum { SMALL = 256, REPEATS = 5, ROUNDS_MIN = 3 };
/* Below a megabyte, all-reduces of MPI change their algorithm with the size. */
static const double size_least = 1 << 20, size_max = 32e6, pause = 0.02;

typedef struct bench {
    const cli_world *world;
    char *out, *in;
    size_t cap;
    tg_span *sends, *recvs;
    uint32_t host_size; /* ranks of a host */
    MPI_Op add_bf16;
    /* Of a link that listens. */
    pthread_mutex_t lock;
    pthread_cond_t change;
    int has_news;
    clockid_t spinner;  /* the clock of the thread that computes ... */
    double spun, spent; /* ... and what it has run in operations, and how long these took */
    int is_spinning;
} bench;

/* ---- operations ---------------------------------------------------------------------------------------------------- */

static void add_halves(void *from, void *to, int *n, MPI_Datatype *type)
{
    (void)type;
    cli_add_halves(to, from, (size_t)*n);
}

/* Besides cli_talk: one operation at a time, a rank sends as many bytes to each other, or all to the next rank. */
enum { EXCHANGE = CLI_TALK_N, SHIFT };

/* What a rank sends to another if `len` bytes are exchanged. */
static size_t len_of(const bench *b, int talk, uint32_t from, uint32_t to, size_t len)
{
    uint32_t world = b->world->size, size = b->host_size;
    int is_remote = from / size != to / size;
    if (from == to) {
        return 0;
    }
    switch (talk) {
    case CLI_TALK_LEADERS: return is_remote && from % size == 0 && to % size == 0 ? len / (world / size - 1) : 0;
    case CLI_TALK_LOCAL: return !is_remote && to % size == 0 ? len / (size - 1) : 0;
    case SHIFT: return to == (from + 1) % world ? len : 0;
    default: return len / (world - 1);
    }
}

static void notify(void *context)
{
    bench *b = context;
    pthread_mutex_lock(&b->lock);
    b->has_news = 1;
    pthread_cond_signal(&b->change);
    pthread_mutex_unlock(&b->lock);
}

static int can_listen(const bench *b)
{
    return b->world->link->start != NULL && b->world->link->listen != NULL;
}

/* As a reducer waits for the operation of a group. */
static tg_status start_and_wait(bench *b, const tg_op *op)
{
    tg_link *link = b->world->link;
    tg_status status = link->start(link, 0, op, NULL);
    status = status == TG_OK ? TG_MORE : status;
    while (status == TG_MORE) {
        pthread_mutex_lock(&b->lock);
        while (!b->has_news) {
            pthread_cond_wait(&b->change, &b->lock);
        }
        b->has_news = 0;
        pthread_mutex_unlock(&b->lock);
        status = link->test(link, 0, NULL);
    }
    return status;
}

static tg_status carry(bench *b, int talk, size_t len)
{
    const cli_world *w = b->world;
    size_t sent = 0, received = 0;
    for (uint32_t p = 0; p < w->size; p++) {
        b->sends[p] = (tg_span){b->out + sent, len_of(b, talk, w->rank, p, len)};
        b->recvs[p] = (tg_span){b->in + received, len_of(b, talk, p, w->rank, len)};
        sent += b->sends[p].len;
        received += b->recvs[p].len;
    }
    const tg_op op = {TG_ALLTOALLV, 0, w->rank, w->size, b->sends, b->recvs};
    if (talk >= EXCHANGE || !can_listen(b)) {
        return w->link->carry(w->link, &op, NULL);
    }
    return sent + received > 0 ? start_and_wait(b, &op) : TG_OK;
}

static int perform(bench *b, int talk, size_t len)
{
    if (talk == CLI_TALK_FP32) {
        return MPI_Allreduce(MPI_IN_PLACE, b->out, (int)(len / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS;
    }
    if (talk == CLI_TALK_BF16) {
        return MPI_Allreduce(MPI_IN_PLACE, b->out, (int)(len / 2), MPI_UINT16_T, b->add_bf16, MPI_COMM_WORLD) ==
               MPI_SUCCESS;
    }
    return carry(b, talk, len) == TG_OK;
}

/* ---- computing ------------------------------------------------------------------------------------------------------- */

static void *spin(void *context)
{
    const atomic_int *goes_on = context;
    volatile float x = 1;
    while (atomic_load(goes_on)) {
        for (int i = 0; i < 2000; i++) {
            x = x * 0.9999F + 0.1F;
        }
    }
    return NULL;
}

static double spun_now(const bench *b)
{
    struct timespec t = {0, 0};
    if (b->is_spinning) {
        (void)clock_gettime(b->spinner, &t);
    }
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_for(double seconds)
{
    const struct timespec t = {0, (long)(seconds * 1e9)};
    (void)nanosleep(&t, NULL);
}

/* ---- timing ---------------------------------------------------------------------------------------------------------- */

/* Seconds of the slowest rank, after a pause; negative: the job has failed. */
static double time_once(bench *b, int talk, size_t len, double before)
{
    double slowest = -1;
    sleep_for(before);
    if (MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS) {
        return -1;
    }
    double begin = cli_clock_now(), spun = spun_now(b);
    int sound = perform(b, talk, len);
    double spent = sound ? cli_clock_now() - begin : INFINITY;
    b->spun += spun_now(b) - spun;
    b->spent += spent;
    return MPI_Allreduce(&spent, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS && isfinite(slowest)
               ? slowest
               : -1;
}

static double time_talk(bench *b, int talk, size_t len, double seconds)
{
    double times[REPEATS], all = 0;
    int n = 0;
    while (n < REPEATS && (n < ROUNDS_MIN || all < seconds)) {
        times[n] = time_once(b, talk, len, pause);
        if (times[n] < 0) {
            return -1;
        }
        all += times[n++];
    }
    return cli_median(times, (size_t)n);
}

/* ---- sizes ----------------------------------------------------------------------------------------------------------- */

/* The largest message: one that takes about a third of the time, but not less than size_least nor more than size_max. */
static double find_largest(bench *b, double seconds)
{
    double size = 32768, spent = 0;
    while (size < size_max && spent >= 0 && (spent < seconds / 3 || size < size_least)) {
        size = fmin(size_max, 2 * size);
        spent = time_once(b, EXCHANGE, (size_t)size, pause);
    }
    return spent < 0 ? -1 : size;
}

/* Seconds of an exchange that follows another without a pause; the best of three. */
static double time_sustained(bench *b, size_t len)
{
    enum { ROUNDS = 3 };
    double best = INFINITY;
    for (int i = 0; i < ROUNDS; i++) {
        double first = time_once(b, EXCHANGE, len, pause), next = first < 0 ? -1 : time_once(b, EXCHANGE, len, 0);
        if (next < 0) {
            return -1;
        }
        best = fmin(best, next);
    }
    return best;
}

/* Bytes a second that a rank sends in exchanges without a pause: the best of the three largest sizes, because on slow links the largest
 * may take longer a byte than smaller ones. -1: the job has failed. */
static double sustained_rate(bench *b, const double *sizes)
{
    enum { TRIED = 3 };
    double best = 0;
    for (size_t i = CLI_SIZE_N - TRIED; i < CLI_SIZE_N; i++) {
        double seconds = time_sustained(b, (size_t)sizes[i]);
        if (seconds < 0) {
            return -1;
        }
        best = fmax(best, sizes[i] / fmax(1e-9, seconds));
    }
    return best;
}

static void fit(cli_network *n, double shift, double sustained, const cli_world *w)
{
    double size = w->size / n->hosts, remote = size * (w->size - size) / (w->size - 1);
    double last = n->sizes[CLI_SIZE_N - 1] / fmax(1e-9, n->exchange[CLI_SIZE_N - 1]);
    n->latency = fmin(shift, n->exchange[0]);
    n->message = w->size > 2 ? fmax(0, n->exchange[0] - shift) / (w->size - 2) : 0;
    n->rate = fmax(last, sustained) * (n->hosts > 1 ? remote : w->size);
}

/* The share of a core that computing gets while nothing is sent. */
static double share_alone(const bench *b)
{
    double begin = cli_clock_now(), spun = spun_now(b);
    sleep_for(10 * pause);
    return (spun_now(b) - spun) / (cli_clock_now() - begin);
}

/* A column of the table; 0: the job has failed. Beside computing, which gets a share `alone` of a core by itself, also what the
 * operations take of it; `load` is NULL without. */
static int time_column(double *column, double *load, double alone, const double *sizes, bench *b, int talk,
                       double seconds)
{
    for (size_t i = 0; i < CLI_SIZE_N; i++) {
        b->spun = b->spent = 0;
        column[i] = time_talk(b, talk, (size_t)sizes[i], seconds);
        if (column[i] < 0) {
            return 0;
        }
        if (load != NULL) {
            load[i] = b->spun > 0 ? fmin(100, fmax(0, alone * b->spent / b->spun - 1)) : 0;
        }
    }
    return 1;
}

/* Whether ranks can talk so: leaders only where there are several hosts, and ranks of a host only where there are several. */
static int is_possible(const bench *b, int talk)
{
    return b->host_size > 1 ? talk != CLI_TALK_LEADERS || b->host_size < b->world->size
                            : talk != CLI_TALK_LEADERS && talk != CLI_TALK_LOCAL;
}

/* All talks, idle or beside computing. The link listens only while groups talk. */
static int time_talks(cli_network *out, bench *b, int is_busy, double alone, double seconds)
{
    int sound = 1;
    for (int t = CLI_TALK_N; t-- > 0 && sound;) {
        cli_column *c = &out->talks[t];
        if (t == CLI_TALK_LOCAL && can_listen(b)) { /* the first of groups */
            b->world->link->listen(b->world->link, notify, b);
        }
        sound = !is_possible(b, t) ||
                time_column(is_busy ? c->busy : c->idle, is_busy ? c->load : NULL, alone, out->sizes, b, t, seconds);
    }
    if (can_listen(b)) {
        b->world->link->listen(b->world->link, NULL, NULL);
    }
    return sound;
}

static int time_busy(cli_network *out, bench *b, double seconds)
{
    atomic_int goes_on = 1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, spin, &goes_on) != 0) {
        return 0;
    }
    b->is_spinning = pthread_getcpuclockid(thread, &b->spinner) == 0;
    int sound = time_talks(out, b, 1, share_alone(b), seconds);
    b->is_spinning = 0;
    atomic_store(&goes_on, 0);
    (void)pthread_join(thread, NULL);
    return sound;
}

static int measure(cli_network *out, bench *b, double seconds)
{
    const cli_world *w = b->world;
    double warm = time_talk(b, EXCHANGE, SMALL, seconds / 8); /* connections are made */
    double shift = time_talk(b, SHIFT, SMALL, seconds / 8), largest = find_largest(b, seconds);
    int sound = shift >= 0 && warm >= 0 && largest > 0;
    for (size_t i = 0; i < CLI_SIZE_N && sound; i++) {
        out->sizes[i] = floor(SMALL * pow(largest / SMALL, (double)i / (CLI_SIZE_N - 1)) / 64) * 64;
    }
    sound = sound && time_busy(out, b, seconds) && time_talks(out, b, 0, 1, seconds) &&
            time_column(out->exchange, NULL, 1, out->sizes, b, EXCHANGE, seconds);
    double sustained = sound ? sustained_rate(b, out->sizes) : -1;
    if (sustained < 0) {
        return cli_fail(CLI_FAILED, "the processes of the job do not reach each other");
    }
    out->ranks = w->size;
    out->hosts = w->size / b->host_size;
    fit(out, shift, sustained, w);
    return CLI_OK;
}

int cli_network_measure(cli_network *out, const cli_world *w, double seconds)
{
    bench b = {.world = w,
               .cap = (size_t)size_max + 65536,
               .host_size = w->link != NULL && w->link->host_size > 1 ? w->link->host_size : 1};
    *out = (cli_network){.ranks = 0};
    b.out = calloc(b.cap, 1);
    b.in = calloc(b.cap, 1);
    b.sends = calloc(w->size, sizeof *b.sends);
    b.recvs = calloc(w->size, sizeof *b.recvs);
    int code = b.out != NULL && b.in != NULL && b.sends != NULL && b.recvs != NULL ? CLI_OK : cli_fail_memory();
    if (code == CLI_OK && w->size < 2) {
        code = cli_fail(CLI_MISUSE, "a network needs two processes; mpirun -n 2 tersegrad probe");
    }
    if (code == CLI_OK) {
        MPI_Op_create(add_halves, 1, &b.add_bf16);
        pthread_mutex_init(&b.lock, NULL);
        pthread_cond_init(&b.change, NULL);
        code = measure(out, &b, seconds);
        pthread_cond_destroy(&b.change);
        pthread_mutex_destroy(&b.lock);
        MPI_Op_free(&b.add_bf16);
    }
    free(b.recvs);
    free(b.sends);
    free(b.in);
    free(b.out);
    return code;
}

#else

int cli_network_measure(cli_network *out, const cli_world *w, double seconds)
{
    (void)out;
    (void)w;
    (void)seconds;
    return cli_fail(CLI_MISUSE, "this program was built without MPI; 'make mpi' builds one with it");
}

#endif
