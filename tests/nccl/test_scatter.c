/* Reduce-scatter over NCCL: slices, residuals and bytes are those of ranks on the CPU over threads.
 *
 * On a GPU, NCCL is the real one, and ranks are processes that share the GPU, or have one each: NCCL takes two ranks on one GPU if they
 * seem to be on different hosts. Without a GPU, ranks are threads, and the stand-in of this folder is in the place of NCCL. */
#include "support.h"

#include "tersegrad/nccl.h"
#include "tersegrad/scatter.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 3, TENSORS = 3, WORLD_MAX = 8, TIMEOUT_MS = 30000, SKIPPED = 77 };
static const uint64_t lens[TENSORS] = {3, 1003, 5003};

#ifdef TG_TEST_ON_GPU
static const uint32_t worlds[] = {1, 2, 4};
#else
static const uint32_t worlds[] = {1, 2, 3, WORLD_MAX};
#endif

/* Recipes of fixed length. */
static const char *const recipes[] = {"dense",
                                      "bf16",
                                      "fp16",
                                      "ef+bf16",
                                      "momentum@0.9+bf16",
                                      "ef+mxfp8",
                                      "ef+mxfp4@hadamard=64",
                                      "nvfp4@round=random",
                                      "ef+fp8",
                                      "ef+sign",
                                      "ef+qsgd@16",
                                      "terngrad",
                                      "orq@9",
                                      "ef+randomk@0.1"};
static const tg_dtype dtypes[] = {TG_FP32, TG_BF16, TG_FP16};
enum { RECIPES = sizeof recipes / sizeof *recipes, DTYPES = 3, RUNS = RECIPES * DTYPES };

typedef struct run {
    const char *recipe;
    tg_dtype dtype;
    tg_nonfinite policy; /* nothing waits for the device unless data is refused */
} run;

static run run_of(size_t i)
{
    return (run){recipes[i / DTYPES], dtypes[i % DTYPES], i % 2 == 0 ? TG_NONFINITE_ERROR : TG_NONFINITE_PASS};
}

/* What a rank has after its steps. */
typedef struct result {
    uint8_t slices[STEPS][TENSORS][5003 * sizeof(float)];
    float residuals[TENSORS][5003];
    uint64_t sent_len; /* of steps */
} result;

/* ---- one rank, on the CPU or on a device ------------------------------------------------------------------------------------ */

static tg_exchange *new_rank(const run *r, uint32_t rank, uint32_t world, tg_device *device, tg_detail *why)
{
    tg_options opt = TG_OPTIONS_INIT;
    tg_exchange *x = NULL;
    test_model shape = test_model_new(lens, TENSORS, r->dtype);
    opt.has_seed = 1;
    opt.seed = 7;
    opt.nonfinite = r->policy;
    opt.device = device;
    tg_status status = tg_scatter_new(&x, r->recipe, shape.tensors, TENSORS, rank, world, &opt, why);
    test_model_free(&shape);
    return status == TG_OK ? x : NULL;
}

static uint64_t len_of(uint64_t n, tg_dtype dtype)
{
    return n * (dtype == TG_FP32 ? 4 : 2);
}

static void fill(test_model *m, uint32_t rank, uint64_t step)
{
    test_random random = {1000 * step + rank + 1};
    test_model_fill(m, &random);
}

/* Gradients and slices of a rank, where its exchange wants them. */
typedef struct place {
    tg_device *device;
    void *in[TENSORS], *out[TENSORS];
} place;

static tg_status open_place(place *p, tg_device *device, tg_dtype dtype, tg_detail *why)
{
    tg_status status = TG_OK;
    *p = (place){.device = device};
    for (size_t t = 0; t < TENSORS && status == TG_OK; t++) {
        if (device == NULL) {
            p->in[t] = test_room(len_of(lens[t], dtype));
            p->out[t] = test_room(len_of(lens[t], dtype));
        } else {
            status = tg_cuda_acquire(&p->in[t], device, len_of(lens[t], dtype), why);
            status = status == TG_OK ? tg_cuda_acquire(&p->out[t], device, len_of(lens[t], dtype), why) : status;
        }
    }
    return status;
}

static void close_place(place *p)
{
    for (size_t t = 0; t < TENSORS; t++) {
        if (p->device == NULL) {
            free(p->in[t]);
            free(p->out[t]);
        } else {
            tg_cuda_release(p->device, p->in[t]);
            tg_cuda_release(p->device, p->out[t]);
        }
    }
}

static tg_status copy(const place *p, void *to, const void *from, uint64_t len, tg_detail *why)
{
    if (p->device == NULL) {
        memcpy(to, from, len);
        return TG_OK;
    }
    return tg_cuda_copy(p->device, to, from, len, why);
}

/* One step; the rank `bad` has a NaN. */
static tg_status step_once(result *out, tg_exchange *x, tg_link *link, const place *p, const run *r, uint32_t rank,
                           uint32_t world, uint64_t step, uint32_t bad, tg_detail *why)
{
    tg_status status = TG_OK;
    test_model m = test_model_new(lens, TENSORS, r->dtype);
    fill(&m, rank, step);
    if (rank == bad) {
        test_model_set(&m, 1, 5, NAN);
    }
    for (size_t t = 0; t < TENSORS && status == TG_OK; t++) {
        status = copy(p, p->in[t], m.grads[t], len_of(lens[t], r->dtype), why);
    }
    if (status == TG_OK) {
        float divisor = step == 0 ? (float)world : 1;
        status = tg_reduce_scatter(x, link, step, p->out, (const void *const *)p->in, divisor, why);
    }
    for (size_t t = 0; t < TENSORS && status == TG_OK; t++) {
        uint64_t n = 0;
        tg_slice(NULL, &n, lens[t], rank, world);
        status = n > 0 ? copy(p, out->slices[step][t], p->out[t], len_of(n, r->dtype), why) : TG_OK;
    }
    if (p->device != NULL && status == TG_OK) {
        status = tg_cuda_wait(p->device, why);
    }
    test_model_free(&m);
    return status;
}

/* A step that is refused, if the run refuses anything, and then all steps. */
static tg_status run_rank(result *out, const run *r, tg_link *link, uint32_t rank, uint32_t world, tg_device *device,
                          tg_detail *why)
{
    enum { BAD = 1 };
    place p;
    memset(out, 0, sizeof *out);
    tg_exchange *x = new_rank(r, rank, world, device, why);
    tg_status status = x == NULL ? TG_E_RECIPE : open_place(&p, device, r->dtype, why);
    if (status != TG_OK) {
        tg_exchange_free(x);
        return status;
    }
    status = tg_handshake(x, link, NULL, why);
    if (status == TG_OK && r->policy == TG_NONFINITE_ERROR && world > BAD) {
        tg_status expected = rank == BAD ? TG_E_NONFINITE : TG_E_PEER;
        tg_status got = step_once(out, x, link, &p, r, rank, world, 0, BAD, why);
        status = got == expected ? TG_OK : TG_E_ARGUMENT;
    }
    uint64_t before = link->sent_len;
    for (uint64_t step = 0; step < STEPS && status == TG_OK; step++) {
        status = step_once(out, x, link, &p, r, rank, world, step, WORLD_MAX, why);
    }
    out->sent_len = link->sent_len - before;
    for (size_t t = 0; t < TENSORS && status == TG_OK; t++) {
        status = tg_exchange_residual(x, out->residuals[t], t, why);
    }
    close_place(&p);
    tg_exchange_free(x);
    return status;
}

/* ---- what is expected: ranks on the CPU, over threads ------------------------------------------------------------------------ */

typedef struct worker {
    const run *run;
    result *out;
    tg_link *link;
    uint32_t rank, world;
} worker;

static void *expect_rank(void *argument)
{
    const worker *w = argument;
    tg_detail why = {""};
    if (run_rank(w->out, w->run, w->link, w->rank, w->world, NULL, &why) != TG_OK) {
        (void)fprintf(stderr, "%s, rank %u of %u on the CPU: %s\n", w->run->recipe, w->rank, w->world, why.text);
        abort();
    }
    return NULL;
}

/* The results of all runs: [run][rank]. */
static result *expect(uint32_t world)
{
    result *out = test_room(sizeof *out * RUNS * world);
    for (size_t i = 0; i < RUNS; i++) {
        const run r = run_of(i);
        worker workers[WORLD_MAX];
        pthread_t ids[WORLD_MAX];
        tg_threads *hub = NULL;
        MUST(tg_threads_new(&hub, world, TIMEOUT_MS, NULL, why));
        for (uint32_t k = 0; k < world; k++) {
            workers[k] = (worker){&r, &out[i * world + k], tg_threads_link(hub, k), k, world};
            assert_int_equal(pthread_create(&ids[k], NULL, expect_rank, &workers[k]), 0);
        }
        for (uint32_t k = 0; k < world; k++) {
            assert_int_equal(pthread_join(ids[k], NULL), 0);
        }
        tg_threads_free(hub);
    }
    return out;
}

/* ---- the inner link: sockets between all pairs, of threads or processes ------------------------------------------------------ */

/* Messages are written before any is read: those of a handshake and of a new link, far shorter than what a socket holds. */
typedef struct sockets {
    tg_link link; /* must be first */
    int peers[WORLD_MAX];
    uint32_t world;
} sockets;

static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    const sockets *s = (const sockets *)(const void *)self;
    bool is_well = true;
    for (uint32_t p = 0; p < op->world; p++) {
        const tg_span sent = op->sends[p];
        is_well =
            is_well && (sent.len == 0 || send(s->peers[p], sent.data, sent.len, MSG_NOSIGNAL) == (ssize_t)sent.len);
        self->sent_len += sent.len;
    }
    for (uint32_t p = 0; p < op->world; p++) {
        const tg_span got = op->recvs[p];
        is_well = is_well && (got.len == 0 || recv(s->peers[p], got.data, got.len, MSG_WAITALL) == (ssize_t)got.len);
    }
    if (!is_well) {
        (void)snprintf(why->text, sizeof why->text, "a socket was closed");
    }
    return is_well ? TG_OK : TG_E_LINK;
}

static void hang_up(tg_link *self, const char *reason)
{
    const sockets *s = (const sockets *)(const void *)self;
    (void)reason;
    for (uint32_t p = 0; p < s->world; p++) {
        if (s->peers[p] >= 0) {
            (void)shutdown(s->peers[p], SHUT_RDWR);
        }
    }
}

/* A reduce-scatter is carried whole, so channels are not used. */
static tg_status start(tg_link *self, uint32_t channel, const tg_op *op, tg_detail *why)
{
    (void)self, (void)channel, (void)op;
    (void)snprintf(why->text, sizeof why->text, "only whole operations are expected");
    return TG_E_LINK;
}

/* Whether all other ranks are there. */
static tg_status test(tg_link *self, uint32_t channel, tg_detail *why)
{
    const sockets *s = (const sockets *)(const void *)self;
    char byte;
    (void)channel;
    for (uint32_t p = 0; p < s->world; p++) {
        if (s->peers[p] >= 0 && recv(s->peers[p], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
            (void)snprintf(why->text, sizeof why->text, "rank %u has hung up", p);
            return TG_E_LINK;
        }
    }
    return TG_OK;
}

static void connect_all(sockets *s, uint32_t world)
{
    for (uint32_t a = 0; a < world; a++) {
        s[a] = (sockets){.link = {.carry = carry, .abort = hang_up, .start = start, .test = test, .channel_n = 2},
                         .world = world};
        s[a].peers[a] = -1;
        for (uint32_t b = 0; b < a; b++) {
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            s[a].peers[b] = pair[0];
            s[b].peers[a] = pair[1];
        }
    }
}

/* Returns when all ranks have come here, or TG_E_LINK. */
static tg_status meet(sockets *s, uint32_t rank, tg_detail *why)
{
    char sent = 0, got[WORLD_MAX];
    tg_span sends[WORLD_MAX], recvs[WORLD_MAX];
    for (uint32_t p = 0; p < s->world; p++) {
        sends[p] = (tg_span){&sent, p == rank ? 0 : 1};
        recvs[p] = (tg_span){&got[p], p == rank ? 0 : 1};
    }
    const tg_op op = {.kind = TG_ALLGATHERV, .rank = rank, .world = s->world, .sends = sends, .recvs = recvs};
    return carry(&s->link, &op, why);
}

static void disconnect(const sockets *s)
{
    for (uint32_t p = 0; p < s->world; p++) {
        if (s->peers[p] >= 0) {
            (void)close(s->peers[p]);
        }
    }
}

/* ---- ranks over NCCL ---------------------------------------------------------------------------------------------------------- */

typedef struct seat {
    sockets *inner;
    const result *expected;
    uint32_t rank, world;
    bool is_well;
} seat;

/* Rank r has GPU r, or shares the first one. */
static tg_status open_device(tg_device **out, uint32_t rank, tg_detail *why)
{
#ifdef TG_TEST_ON_GPU
    char name[32];
    if (rank > 0 && tg_cuda_open(out, (int)rank, NULL, why) == TG_OK) {
        return TG_OK;
    }
    (void)snprintf(name, sizeof name, "rank%u", rank);
    (void)setenv("NCCL_HOSTID", name, 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 0);
#endif
    (void)rank;
    return tg_cuda_open(out, 0, NULL, why);
}

static bool check_runs(const seat *s, tg_link *link, tg_device *device)
{
    result *got = test_room(sizeof *got);
    bool is_well = true;
    for (size_t i = 0; i < RUNS && is_well; i++) {
        const run r = run_of(i);
        const result *expected = &s->expected[i * s->world + s->rank];
        tg_detail why = {""};
        tg_status status = run_rank(got, &r, link, s->rank, s->world, device, &why);
        is_well = status == TG_OK && memcmp(got, expected, sizeof *got) == 0;
        if (!is_well) {
            (void)fprintf(stderr, "%s, dtype %d, rank %u of %u: %s\n", r.recipe, (int)r.dtype, s->rank, s->world,
                          status == TG_OK ? "other bits or bytes than over threads" : why.text);
        }
    }
    free(got);
    return is_well;
}

static void *run_seat(void *argument)
{
    seat *s = argument;
    tg_device *device = NULL;
    tg_nccl *nccl = NULL;
    tg_detail why = {""};
    tg_status status = open_device(&device, s->rank, &why);
    if (status == TG_OK) {
        status = tg_nccl_new(&nccl, device, &s->inner->link, s->rank, s->world, TIMEOUT_MS, &why);
    }
    if (status == TG_OK) {
        s->is_well = check_runs(s, tg_nccl_link(nccl), device) && meet(s->inner, s->rank, &why) == TG_OK;
    } else {
        (void)fprintf(stderr, "rank %u of %u: %s\n", s->rank, s->world, why.text);
    }
    if (!s->is_well) {
        hang_up(&s->inner->link, "");
    }
    tg_nccl_free(nccl);
    tg_cuda_close(device);
    return NULL;
}

#ifdef TG_TEST_ON_GPU
static bool run_seats(seat *seats, sockets *inner, uint32_t world)
{
    pid_t ids[WORLD_MAX];
    bool is_well = true;
    for (uint32_t r = 0; r < world; r++) {
        ids[r] = fork();
        assert_true(ids[r] >= 0);
        if (ids[r] == 0) {
            for (uint32_t p = 0; p < world; p++) { /* so that the sockets of a rank that ends are closed */
                if (p != r) {
                    disconnect(&inner[p]);
                }
            }
            (void)run_seat(&seats[r]);
            _exit(seats[r].is_well ? 0 : 1);
        }
    }
    for (uint32_t r = 0; r < world; r++) {
        disconnect(&inner[r]);
    }
    for (uint32_t r = 0; r < world; r++) {
        int how = 1;
        is_well = waitpid(ids[r], &how, 0) == ids[r] && how == 0 && is_well;
    }
    return is_well;
}
#else
static bool run_seats(seat *seats, sockets *inner, uint32_t world)
{
    pthread_t ids[WORLD_MAX];
    bool is_well = true;
    for (uint32_t r = 0; r < world; r++) {
        assert_int_equal(pthread_create(&ids[r], NULL, run_seat, &seats[r]), 0);
    }
    for (uint32_t r = 0; r < world; r++) {
        assert_int_equal(pthread_join(ids[r], NULL), 0);
        is_well = is_well && seats[r].is_well;
    }
    for (uint32_t r = 0; r < world; r++) {
        disconnect(&inner[r]);
    }
    return is_well;
}
#endif

static void nccl_changes_no_bits(void **state)
{
    (void)state;
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        sockets inner[WORLD_MAX];
        seat seats[WORLD_MAX];
        result *expected = expect(worlds[w]);
        connect_all(inner, worlds[w]);
        for (uint32_t r = 0; r < worlds[w]; r++) {
            seats[r] = (seat){&inner[r], expected, r, worlds[w], false};
        }
        bool is_well = run_seats(seats, inner, worlds[w]);
        free(expected);
        if (!is_well) {
            fail_msg("%u ranks over NCCL failed, or have other bits than over threads", worlds[w]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nccl_changes_no_bits)};
    const char *given = getenv("TG_NCCL");
    if (dlopen(given != NULL && given[0] != '\0' ? given : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL) == NULL) {
        (void)printf("skipped: %s\n", dlerror());
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
