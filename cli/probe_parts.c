/* Copies, sums, TCP, operations between threads; see probe_parts.h. */
#include "probe_parts.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"

/* ---- memory -------------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 7 };

static void add_all(float *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

void cli_add_halves(uint16_t *to, const uint16_t *from, size_t n)
{
    enum { BLOCK = 1024 };
    float a[BLOCK], b[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = n - at < BLOCK ? n - at : BLOCK;
        tg_widen(a, from + at, TG_BF16, len);
        tg_widen(b, to + at, TG_BF16, len);
        add_all(b, a, len);
        tg_narrow(to + at, b, TG_BF16, len);
    }
}

static void measure_memory(cli_machine *out, const float *values, float *scratch, size_t n)
{
    double copy = INFINITY, add = INFINITY, halves = INFINITY, convert = INFINITY;
    uint16_t *half = (uint16_t *)(void *)scratch; /* n halves, and n of another sum */
    for (int round = 0; round < ROUNDS; round++) {
        double a = cli_clock_thread();
        memcpy(scratch, values, n * sizeof *values);
        double b = cli_clock_thread();
        add_all(scratch, values, n);
        double c = cli_clock_thread();
        tg_narrow(half, values, TG_BF16, n);
        tg_narrow(half + n, values, TG_BF16, n);
        double d = cli_clock_thread();
        cli_add_halves(half, half + n, n);
        double e = cli_clock_thread();
        tg_widen(scratch, (const uint16_t *)(const void *)values, TG_BF16, n);
        double f = cli_clock_thread();
        copy = fmin(copy, b - a);
        add = fmin(add, c - b);
        halves = fmin(halves, e - d);
        convert = fmin(convert, (d - c) / 2 + f - e);
    }
    out->copy = copy / (double)(n * sizeof *values);
    out->add = add / (double)n;
    out->add_bf16 = halves / (double)n;
    out->convert = convert / (double)n;
}

/* ---- TCP ----------------------------------------------------------------------------------------------------------- */

enum { PIECE = 1 << 18, PIECES = 96, SHORT = 64, SHORTS = 2000 };

static void *drain(void *context)
{
    static char piece[PIECE];
    int from = *(const int *)context;
    while (read(from, piece, sizeof piece) > 0) {
    }
    return NULL;
}

/* Both ends of a connection over the loopback; 0: there is none. */
static int connect_ends(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    ends[1] = -1;
    if (listener >= 0 && ends[0] >= 0 && bind(listener, (struct sockaddr *)(void *)&address, len) == 0 &&
        listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)(void *)&address, &len) == 0 &&
        connect(ends[0], (struct sockaddr *)(void *)&address, len) == 0) {
        ends[1] = accept(listener, NULL, NULL);
    }
    if (listener >= 0) {
        close(listener);
    }
    return ends[1] >= 0;
}

static double cpu_now(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* CPU time of both ends for a message of `len` bytes; negative if it cannot be told. */
static double time_messages(size_t len, int n)
{
    static char piece[PIECE];
    double seconds = -1;
    int ends[2];
    pthread_t reader;
    int sound = connect_ends(ends) && pthread_create(&reader, NULL, drain, &ends[1]) == 0;
    if (sound) {
        double begin = cpu_now();
        for (int i = 0; i < n && sound; i++) {
            sound = write(ends[0], piece, len) == (ssize_t)len;
        }
        (void)shutdown(ends[0], SHUT_WR);
        (void)pthread_join(reader, NULL);
        seconds = sound ? (cpu_now() - begin) / n : -1;
    }
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            close(ends[i]);
        }
    }
    return seconds;
}

static int measure_tcp(cli_machine *out)
{
    double piece = time_messages(PIECE, PIECES), message = time_messages(SHORT, SHORTS);
    if (piece < 0 || message < 0) {
        return cli_fail(CLI_FAILED, "there is no TCP on this machine's loopback, and it cannot be timed");
    }
    out->tcp = piece / PIECE;
    out->message = message;
    return CLI_OK;
}

/* ---- operations ------------------------------------------------------------------------------------------------------ */

enum { OPS = 400 };

typedef struct talker {
    tg_link *link;
    uint32_t rank;
    tg_status status;
} talker;

static void *talk(void *context)
{
    talker *t = context;
    char out[8] = "", in[8];
    tg_span sends[2] = {{NULL, 0}, {NULL, 0}}, recvs[2] = {{NULL, 0}, {NULL, 0}};
    sends[1 - t->rank] = (tg_span){out, sizeof out};
    recvs[1 - t->rank] = (tg_span){in, sizeof in};
    const tg_op op = {TG_ALLTOALLV, 0, t->rank, 2, sends, recvs};
    for (int i = 0; i < OPS && t->status == TG_OK; i++) {
        t->status = t->link->carry(t->link, &op, NULL);
    }
    return NULL;
}

static int measure_op(cli_machine *out)
{
    tg_threads *link = NULL;
    tg_detail why = {""};
    tg_status status = tg_threads_new(&link, 2, 10000, NULL, &why);
    talker ends[2] = {{tg_threads_link(link, 0), 0, status}, {tg_threads_link(link, 1), 1, status}};
    pthread_t other;
    if (status == TG_OK && pthread_create(&other, NULL, talk, &ends[1]) == 0) {
        double begin = cli_clock_now();
        (void)talk(&ends[0]);
        (void)pthread_join(other, NULL);
        out->op = (cli_clock_now() - begin) / OPS;
        status = ends[0].status;
    }
    tg_threads_free(link);
    return status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
}

int cli_parts_measure(cli_machine *out, const float *values, float *scratch, size_t n)
{
    measure_memory(out, values, scratch, n);
    int code = measure_tcp(out);
    return code == CLI_OK ? measure_op(out) : code;
}

/* ---- one rank ---------------------------------------------------------------------------------------------------------- */

static void count_products(void *context, size_t group, const tg_work *work)
{
    cli_solo *s = context;
    (void)group;
    s->products += work->pass == TG_PASS_MULTIPLY;
}

static void ignore_op(void *context, size_t group, tg_talk talk_of, const tg_op *op)
{
    (void)context;
    (void)group;
    (void)talk_of;
    (void)op;
}

int cli_solo_open(cli_solo *out, const char *recipe, const tg_tensor *tensors, size_t tensor_n, uint32_t threads,
                  tg_device *device)
{
    tg_detail why = {""};
    tg_options opt = TG_OPTIONS_INIT;
    tg_outline outline;
    *out = (cli_solo){.products = 0};
    opt.threads = threads;
    opt.has_seed = 1;
    const tg_outline_visitor visitor = {count_products, ignore_op, out};
    tg_status status = tg_exchange_outline(&outline, &visitor, recipe, tensors, tensor_n, 0, 1, &opt, NULL, &why);
    opt.device = device;
    status = status == TG_OK ? tg_exchange_new(&out->exchange, recipe, tensors, tensor_n, 0, 1, &opt, &why) : status;
    return status == TG_OK ? CLI_OK : cli_fail_status(recipe, status, &why);
}

int cli_solo_step(cli_solo *s, uint64_t step, void *const *grads)
{
    tg_detail why = {""};
    tg_status status = tg_lockstep_reduce(NULL, &s->exchange, 1, step, &grads, NULL, &why);
    return status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
}

double cli_solo_products(const cli_solo *s)
{
    return s->products > 0 ? s->products : 1;
}

void cli_solo_close(cli_solo *s)
{
    tg_exchange_free(s->exchange);
    s->exchange = NULL;
}
