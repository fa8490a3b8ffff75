/* Tests of the MPI link with several operations at once: mpirun -n N mpi_channels SCENE MODE [FOLDER]. The mode is "funneled" (MPI is
 * called by one thread, and the link is polled), "polled" (MPI_THREAD_MULTIPLE, polled) or "listen". Every rank prints "well" if
 * the scene went as expected; in the scene "killed" it writes that to a file in the folder, as launchers may drop the output of ranks
 * that they end. Scenes in which the link fails end without MPI_Finalize, as a program would. */
#include "rank.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_MS = 1500, CHANNEL_N = 7, OP_N = 40, WORLD_MAX = 8, IN_FLIGHT = 3 };

static tg_mpi *mpi;
static tg_link *link_of;
static bool listens;

/* ---- callbacks --------------------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static bool has_news;

static void notify(void *context)
{
    HOLDS(context == &news);
    pthread_mutex_lock(&lock);
    has_news = true;
    pthread_cond_signal(&news);
    pthread_mutex_unlock(&lock);
}

/* Waits for a callback, or a moment if the link is polled. */
static void pause_until_news(void)
{
    if (!listens) {
        const struct timespec moment = {0, 20000};
        nanosleep(&moment, NULL);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    int code = 0;
    pthread_mutex_lock(&lock);
    while (!has_news && code == 0) {
        code = pthread_cond_timedwait(&news, &lock, &until);
    }
    has_news = false;
    pthread_mutex_unlock(&lock);
    HOLDS(code == 0);
}

static void listen_again(bool on)
{
    listens = on;
    link_of->listen(link_of, on ? notify : NULL, on ? &news : NULL);
}

/* ---- operations -------------------------------------------------------------------------------------------------------- */

static uint64_t state;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* A number of this rank's own, and one that all ranks agree on. */
static uint64_t draw(void)
{
    return mix(state += UINT64_C(0x9e3779b97f4a7c15));
}

static uint64_t agreed(uint64_t n, uint32_t channel, uint32_t from, uint32_t to)
{
    return mix(mix(n * 1000 + channel) + from * 31 + to + 1);
}

static uint64_t len_of(uint64_t n, uint32_t channel, uint32_t from, uint32_t to)
{
    uint64_t bits = agreed(n, channel, from, to);
    return from == to || bits % 3 == 0 ? 0 : 1 + (bits >> 8) % (bits % 5 == 0 ? 200000 : 100);
}

typedef struct operation {
    tg_op op;
    tg_span sends[WORLD_MAX], recvs[WORLD_MAX];
    bool is_busy;
    uint64_t n;
} operation;

static operation operations[CHANNEL_N];

static void prepare(uint32_t channel)
{
    operation *o = &operations[channel];
    for (uint32_t p = 0; p < world; p++) {
        o->sends[p] = (tg_span){NULL, len_of(o->n, channel, rank, p)};
        o->recvs[p] = (tg_span){NULL, len_of(o->n, channel, p, rank)};
        o->sends[p].data = malloc((size_t)o->sends[p].len + 1);
        o->recvs[p].data = calloc(1, (size_t)o->recvs[p].len + 1);
        HOLDS(o->sends[p].data != NULL && o->recvs[p].data != NULL);
        memset(o->sends[p].data, (int)(agreed(o->n, channel, rank, p) >> 40 & 255), (size_t)o->sends[p].len);
    }
    o->op = (tg_op){.kind = TG_ALLTOALLV, .rank = rank, .world = world, .sends = o->sends, .recvs = o->recvs};
    o->is_busy = true;
}

static void complete(uint32_t channel)
{
    operation *o = &operations[channel];
    for (uint32_t p = 0; p < world; p++) {
        for (uint64_t i = 0; i < o->recvs[p].len; i++) {
            HOLDS(((uint8_t *)o->recvs[p].data)[i] == (agreed(o->n, channel, p, rank) >> 40 & 255));
        }
        free(o->sends[p].data);
        free(o->recvs[p].data);
    }
    o->is_busy = false;
    o->n++;
}

static void start_one(uint32_t channel, uint64_t *sent_len)
{
    tg_detail why = {""};
    operation *o = &operations[channel];
    prepare(channel);
    for (uint32_t p = 0; p < world; p++) {
        *sent_len += o->sends[p].len;
    }
    if (channel == 0) {
        HOLDS(link_of->carry(link_of, &o->op, &why) == TG_OK);
        complete(channel);
    } else {
        HOLDS(link_of->start(link_of, channel, &o->op, &why) == TG_OK);
        HOLDS(link_of->start(link_of, channel, &o->op, &why) == TG_E_ARGUMENT);
    }
}

/* Channel 0 is used by `carry`, the others by `start` and `test`, in an order of each rank's own. */
static void any_order_of_starts_is_right(bool changes_mode)
{
    tg_detail why = {""};
    uint64_t sent_len = 0;
    for (bool is_left = true; is_left;) {
        bool moved = false;
        is_left = false;
        if (changes_mode && draw() % 16 == 0) {
            listen_again(!listens); /* operations are under way */
        }
        for (uint32_t i = 0, first = (uint32_t)(draw() % CHANNEL_N); i < CHANNEL_N; i++) {
            uint32_t channel = (first + i) % CHANNEL_N;
            operation *o = &operations[channel];
            if (o->is_busy) {
                tg_status status = link_of->test(link_of, channel, &why);
                HOLDS(status == TG_OK || status == TG_MORE);
                if (status == TG_OK) {
                    complete(channel);
                    moved = true;
                }
            } else if (o->n < OP_N && draw() % 2 == 0) {
                start_one(channel, &sent_len);
                moved = true;
            } else {
                moved = moved || o->n < OP_N; /* it may be started in the next round */
            }
            is_left = is_left || o->is_busy || o->n < OP_N;
        }
        if (!moved && is_left) {
            pause_until_news();
        }
    }
    HOLDS(link_of->sent_len == sent_len);
    HOLDS(tg_mpi_awaited(mpi) == -1);
    HOLDS(link_of->test(link_of, CHANNEL_N, &why) == TG_OK); /* nothing is under way there */
    HOLDS(link_of->test(link_of, link_of->channel_n, &why) == TG_E_ARGUMENT);
}

/* ---- failures ---------------------------------------------------------------------------------------------------------- */

static void end_failed(void)
{
    tg_mpi_free(mpi); /* must not block */
    printf("rank %u: well\n", rank);
    fflush(stdout);
    const struct timespec moment = {3, 0}; /* so that all have printed before the launcher kills them */
    nanosleep(&moment, NULL);
    MPI_Abort(MPI_COMM_WORLD, 0);
}

static uint8_t bytes[2][IN_FLIGHT + 1][WORLD_MAX][100];

/* Starts operations on channels 1 to IN_FLIGHT, from one channel on: everyone sends something to everyone. */
static void start_three(uint32_t first)
{
    tg_detail why = {""};
    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        uint32_t channel = 1 + (first + i) % IN_FLIGHT;
        operation *o = &operations[channel];
        for (uint32_t p = 0; p < world; p++) {
            o->sends[p] = (tg_span){bytes[0][channel][p], p == rank ? 0 : 100};
            o->recvs[p] = (tg_span){bytes[1][channel][p], p == rank ? 0 : 100};
        }
        o->op = (tg_op){.kind = TG_ALLTOALLV, .rank = rank, .world = world, .sends = o->sends, .recvs = o->recvs};
        tg_status status = link_of->start(link_of, channel, &o->op, &why);
        HOLDS(status == TG_OK || status == TG_E_LINK); /* another rank may have aborted already */
    }
}

/* Waits until all three are done or one has failed. */
static tg_status finish_three(tg_detail *why)
{
    for (;;) {
        unsigned done_n = 0;
        for (uint32_t channel = 1; channel <= IN_FLIGHT; channel++) {
            tg_status status = link_of->test(link_of, channel, why);
            if (status != TG_OK && status != TG_MORE) {
                return status;
            }
            done_n += status == TG_OK;
        }
        if (done_n == IN_FLIGHT) {
            return TG_OK;
        }
        pause_until_news();
    }
}

static void expect_failure(const char *sentence)
{
    tg_detail why = {""};
    HOLDS(finish_three(&why) == TG_E_LINK);
    if (strstr(why.text, sentence) == NULL) {
        printf("rank %u: '%s'\n", rank, why.text);
    }
    HOLDS(strstr(why.text, sentence) != NULL);
    for (uint32_t channel = 0; channel <= IN_FLIGHT; channel++) { /* permanently, and on all channels */
        tg_detail again = {""};
        HOLDS(link_of->start(link_of, channel + 10, &operations[1].op, &again) == TG_E_LINK);
        HOLDS(strcmp(again.text, why.text) == 0);
    }
    link_of->abort(link_of, why.text);
}

static void a_reason_reaches_all_operations(void)
{
    tg_detail why = {""};
    start_three(rank);
    HOLDS(finish_three(&why) == TG_OK);
    if (rank == 1) {
        link_of->abort(link_of, "no more");
    } else {
        start_three(rank);
    }
    expect_failure("rank 1: no more");
    end_failed();
}

static int verdict; /* a file, of the scene "killed" */

/* Launchers end all ranks when one has been killed. */
static void on_end(int number)
{
    static char line[] = "rank ?: waited for rank ?: well\n";
    (void)number;
    line[5] = (char)('0' + rank);
    line[24] = (char)('0' + tg_mpi_awaited(mpi));
    ssize_t written = write(verdict, line, sizeof line - 1);
    _exit(written < 0);
}

static void open_verdict(const char *folder)
{
    char path[4096];
    HOLDS(snprintf(path, sizeof path, "%s/rank%u", folder, rank) < (int)sizeof path);
    verdict = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    HOLDS(verdict >= 0);
}

/* Rank 2 stops, or is killed, with its three operations under way; the others wait for its next three. */
static void a_rank_is_lost(int signal_number)
{
    tg_detail why = {""};
    HOLDS(world > 2);
    start_three(rank);
    if (rank == 2) {
        const struct timespec moment = {
            0, 800000000}; /* in which the others come to wait for it, on a loaded machine too */
        nanosleep(&moment, NULL);
        raise(signal_number);
        for (;;) { /* a launcher may continue it before it kills it */
            pause();
        }
    }
    HOLDS(finish_three(&why) == TG_OK);
    start_three(rank);
    expect_failure("rank 2 is lost: rank ");
    HOLDS(tg_mpi_awaited(mpi) == 2);
    if (signal_number == SIGKILL) { /* the timeout was shorter than the launcher took */
        signal(SIGTERM, SIG_IGN);
        on_end(SIGTERM);
    }
    end_failed();
}

/* Rank 1 replies to probes, but its three operations are on other channels. */
static void a_rank_that_responds_is_not_lost(void)
{
    tg_detail why = {""};
    if (rank == 1) {
        static uint8_t byte[1];
        tg_span nothing[WORLD_MAX] = {{NULL, 0}}, expected[WORLD_MAX] = {{NULL, 0}};
        expected[0] = (tg_span){byte, 1};
        tg_op op = {.kind = TG_ALLTOALLV, .rank = rank, .world = world, .sends = nothing, .recvs = expected};
        const struct timespec moment = {0, TIMEOUT_MS / 3 * 1000000L}; /* so that the others' timeout ends first */
        nanosleep(&moment, NULL);
        HOLDS(link_of->carry(link_of, &op, &why) == TG_E_LINK);
        HOLDS(strstr(why.text, "rank 1 responds, but rank ") != NULL);
    } else {
        start_three(rank);
        expect_failure("rank 1 responds, but rank ");
    }
    end_failed();
}

int main(int argc, char **argv)
{
    const char *scene = argc > 1 ? argv[1] : "", *mode = argc > 2 ? argv[2] : "";
    bool is_funneled = strcmp(mode, "funneled") == 0;
    int level = 0, r = 0, n = 0;
    tg_detail why = {""};
    MPI_Init_thread(&argc, &argv, is_funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    rank = (uint32_t)r;
    world = (uint32_t)n;
    state = rank * 7 + 1;
    HOLDS(world <= WORLD_MAX && level >= (is_funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE));
    HOLDS(tg_mpi_new(&mpi, MPI_COMM_WORLD, TIMEOUT_MS, NULL, &why) == TG_OK);
    link_of = tg_mpi_link(mpi);
    HOLDS((link_of->listen != NULL) == (level >= MPI_THREAD_MULTIPLE));
    if (strcmp(mode, "listen") == 0) {
        listen_again(true);
    }
    if (strcmp(scene, "orders") == 0) {
        any_order_of_starts_is_right(false);
    } else if (strcmp(scene, "switch") == 0) {
        any_order_of_starts_is_right(true);
    } else if (strcmp(scene, "abort") == 0) {
        a_reason_reaches_all_operations();
    } else if (strcmp(scene, "stopped") == 0) {
        a_rank_is_lost(SIGSTOP);
    } else if (strcmp(scene, "killed") == 0) {
        open_verdict(argc > 3 ? argv[3] : ".");
        signal(SIGTERM, on_end);
        a_rank_is_lost(SIGKILL);
    } else if (strcmp(scene, "responds") == 0) {
        a_rank_that_responds_is_not_lost();
    } else {
        HOLDS(!"a known scene");
    }
    tg_mpi_free(mpi);
    printf("rank %u: well\n", rank);
    return MPI_Finalize();
}
