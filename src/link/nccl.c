/* NCCL as a wire (tg_wire of cuda.h): messages in device memory between the ranks of a communicator.
 *
 * The communicator does not block: calls return at once, and ncclCommGetAsyncError tells when they are done. So a peer that does not
 * answer, when the communicator is made or when two ranks first connect, cannot hold up this rank for longer than the timeout.
 *
 * This file includes only public headers of the library, as a wire outside the library would. */
#include "tersegrad/nccl.h"
#include "link/nccl_calls.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct tg_nccl {
    tg_wire wire; /* must be first: a tg_wire pointer is cast to tg_nccl */
    tg_link *link;
    tg_nccl_calls calls;
    void *library, *comm;
    uint32_t rank, world, timeout_ms;
    int version;
};

static tg_status fail(tg_status status, tg_detail *why, const char *format, ...)
{
    if (why != NULL) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(why->text, sizeof why->text, format, arguments);
        va_end(arguments);
    }
    return status;
}

/* What NCCL says about a result. */
static tg_status explain(const tg_nccl *n, int result, const char *doing, tg_detail *why)
{
    const char *last = n->calls.last_error != NULL ? n->calls.last_error(n->comm) : NULL;
    bool has_last = last != NULL && last[0] != '\0';
    return fail(TG_E_LINK, why, "rank %u: NCCL failed %s: %s%s%s", n->rank, doing, n->calls.error_string(result),
                has_last ? ": " : "", has_last ? last : "");
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- the library --------------------------------------------------------------------------------------------------------- */

/* A function by its name. (ISO C has no cast from an object's address to a function's.) */
static bool find(void *out, void *library, const char *name)
{
    void *address = dlsym(library, name);
    memcpy(out, &address, sizeof address);
    return address != NULL;
}

static tg_status load(tg_nccl *n, tg_detail *why)
{
    const char *given = getenv("TG_NCCL"), *name = given != NULL && given[0] != '\0' ? given : "libnccl.so.2";
    tg_nccl_calls *c = &n->calls;
    n->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (n->library == NULL) {
        return fail(TG_E_ARGUMENT, why, "rank %u: NCCL cannot be loaded: %s", n->rank, dlerror());
    }
    const struct {
        void *out;
        const char *name;
    } needed[] = {{&c->get_version, "ncclGetVersion"},
                  {&c->get_unique_id, "ncclGetUniqueId"},
                  {&c->comm_init, "ncclCommInitRankConfig"},
                  {&c->comm_abort, "ncclCommAbort"},
                  {&c->comm_destroy, "ncclCommDestroy"},
                  {&c->async_error, "ncclCommGetAsyncError"},
                  {&c->group_start, "ncclGroupStart"},
                  {&c->group_end, "ncclGroupEnd"},
                  {&c->send, "ncclSend"},
                  {&c->recv, "ncclRecv"},
                  {&c->error_string, "ncclGetErrorString"}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (!find(needed[i].out, n->library, needed[i].name)) {
            return fail(TG_E_VERSION, why, "rank %u: %s has no %s; NCCL 2.14 or later is needed", n->rank, name,
                        needed[i].name);
        }
    }
    (void)find(&c->last_error, n->library, "ncclGetLastError");
    return c->get_version(&n->version) == TG_NCCL_SUCCESS
               ? TG_OK
               : fail(TG_E_VERSION, why, "rank %u: NCCL does not tell its version", n->rank);
}

/* ---- the wire ------------------------------------------------------------------------------------------------------------ */

static tg_nccl *nccl_of(tg_wire *self)
{
    return (tg_nccl *)(void *)self;
}

static bool is_well(int result)
{
    return result == TG_NCCL_SUCCESS || result == TG_NCCL_IN_PROGRESS;
}

static tg_status post(tg_wire *self, const tg_op *op, tg_detail *why)
{
    tg_nccl *n = nccl_of(self);
    int result = n->calls.group_start();
    if (result != TG_NCCL_SUCCESS) {
        return explain(n, result, "to begin a group of calls", why);
    }
    for (uint32_t p = 0; p < op->world && is_well(result); p++) {
        const tg_span *sent = &op->sends[p], *received = &op->recvs[p];
        if (sent->len > 0) {
            result = n->calls.send(sent->data, (size_t)sent->len, TG_NCCL_UINT8, (int)p, n->comm, self->stream);
        }
        if (received->len > 0 && is_well(result)) {
            result = n->calls.recv(received->data, (size_t)received->len, TG_NCCL_UINT8, (int)p, n->comm, self->stream);
        }
    }
    int ended = n->calls.group_end();
    result = is_well(result) ? ended : result;
    return is_well(result) ? TG_OK : explain(n, result, "to send and receive", why);
}

static tg_status test(tg_wire *self, tg_detail *why)
{
    const tg_nccl *n = nccl_of(self);
    int state = TG_NCCL_SUCCESS, result = n->calls.async_error(n->comm, &state);
    if (result != TG_NCCL_SUCCESS || !is_well(state)) {
        return explain(n, result != TG_NCCL_SUCCESS ? result : state, "in the middle of an operation", why);
    }
    return state == TG_NCCL_SUCCESS ? TG_OK : TG_MORE;
}

static void abort_comm(tg_wire *self)
{
    tg_nccl *n = nccl_of(self);
    if (n->comm != NULL) {
        (void)n->calls.comm_abort(n->comm);
        n->comm = NULL;
    }
}

/* ---- making one ---------------------------------------------------------------------------------------------------------- */

/* Tells all ranks what happened on each. If something failed, all fail with the sentence of the lowest rank that did; one that was late,
 * which is TG_MORE, may have waited for another that failed. */
static tg_status agree(const tg_nccl *n, tg_link *inner, tg_status own, tg_detail *why)
{
    typedef struct outcome {
        int32_t status;
        char text[sizeof why->text];
    } outcome;
    tg_detail local = {""};
    outcome *all = calloc(n->world, sizeof *all);
    tg_span *spans = calloc(2 * (size_t)n->world, sizeof *spans);
    tg_status status = TG_OK;
    if (all == NULL || spans == NULL) {
        free(all);
        free(spans);
        inner->abort(inner, "there is not enough memory for a link");
        return fail(TG_E_MEMORY, why, "there is not enough memory for a link of %u ranks", n->world);
    }
    all[n->rank].status = own;
    (void)snprintf(all[n->rank].text, sizeof all[n->rank].text, "%s", own == TG_OK ? "" : why->text);
    for (uint32_t p = 0; p < n->world; p++) {
        if (p != n->rank) {
            spans[p] = (tg_span){&all[n->rank], sizeof *all};
            spans[n->world + p] = (tg_span){&all[p], sizeof *all};
        }
    }
    const tg_op op = {
        .kind = TG_ALLGATHERV, .rank = n->rank, .world = n->world, .sends = spans, .recvs = spans + n->world};
    status = inner->carry(inner, &op, &local);
    const outcome *worst = all;
    for (uint32_t p = 1; p < n->world; p++) {
        bool is_worse =
            all[p].status < TG_OK ? worst->status >= TG_OK : all[p].status > worst->status && worst->status == TG_OK;
        worst = is_worse ? &all[p] : worst;
    }
    if (status == TG_OK && worst->status != TG_OK) {
        status = worst != &all[n->rank] ? TG_E_PEER : own == TG_MORE ? TG_E_LINK : own;
        (void)snprintf(local.text, sizeof local.text, "%.*s", (int)sizeof worst->text - 1, worst->text);
    }
    free(spans);
    free(all);
    return status == TG_OK ? TG_OK : fail(status, why, "%s", local.text);
}

/* The id of the communicator from rank 0 to all. */
static tg_status share_id(tg_nccl_id *id, const tg_nccl *n, tg_link *inner, tg_detail *why)
{
    tg_span *spans = calloc(2 * (size_t)n->world, sizeof *spans);
    if (spans == NULL) {
        inner->abort(inner, "there is not enough memory for a link");
        return fail(TG_E_MEMORY, why, "there is not enough memory for a link of %u ranks", n->world);
    }
    for (uint32_t p = 1; n->rank == 0 && p < n->world; p++) {
        spans[p] = (tg_span){id, sizeof *id};
    }
    if (n->rank != 0) {
        spans[n->world] = (tg_span){id, sizeof *id};
    }
    const tg_op op = {
        .kind = TG_BROADCAST, .rank = n->rank, .world = n->world, .sends = spans, .recvs = spans + n->world};
    tg_status status = inner->carry(inner, &op, why);
    free(spans);
    return status;
}

/* Makes the communicator. TG_MORE: not within the timeout. */
static tg_status connect_all(tg_nccl *n, tg_nccl_id id, tg_detail *why)
{
    tg_nccl_config config = {
        .size = sizeof config, .magic = TG_NCCL_MAGIC, .version = TG_NCCL_CONFIG_VERSION, .blocking = 0};
    int result = n->calls.comm_init(&n->comm, (int)n->world, id, (int)n->rank, &config);
    uint64_t until = now_ms() + n->timeout_ms;
    while (result == TG_NCCL_SUCCESS || result == TG_NCCL_IN_PROGRESS) {
        int asked = n->calls.async_error(n->comm, &result);
        result = asked != TG_NCCL_SUCCESS ? asked : result;
        if (result == TG_NCCL_SUCCESS) {
            return TG_OK;
        }
        if (now_ms() > until) {
            return fail(TG_MORE, why, "rank %u: NCCL did not connect %u ranks within %u ms", n->rank, n->world,
                        n->timeout_ms);
        }
        const struct timespec pause = {0, 1000000};
        (void)nanosleep(&pause, NULL);
    }
    return explain(n, result, "to make a communicator", why);
}

static tg_status open_all(tg_nccl *n, tg_device *device, tg_link *inner, tg_detail *why)
{
    tg_nccl_id id = {{0}};
    tg_status status = load(n, why);
    if (status == TG_OK && n->rank == 0) {
        int result = n->calls.get_unique_id(&id);
        status = result == TG_NCCL_SUCCESS ? TG_OK : explain(n, result, "to make the id of a communicator", why);
    }
    status = agree(n, inner, status, why);
    if (status == TG_OK) {
        status = share_id(&id, n, inner, why);
    }
    if (status == TG_OK) {
        /* The current GPU of this thread is the communicator's, which the link makes so. */
        status = tg_wire_link_new(&n->link, device, inner, &n->wire, n->rank, n->world, n->timeout_ms, why);
        status = status == TG_OK ? connect_all(n, id, why) : status;
        status = agree(n, inner, status, why);
    }
    return status;
}

tg_status tg_nccl_new(tg_nccl **out, tg_device *device, tg_link *inner, uint32_t rank, uint32_t world,
                      uint32_t timeout_ms, tg_detail *why)
{
    tg_detail local = {""};
    if (out == NULL || device == NULL || inner == NULL) {
        return fail(TG_E_ARGUMENT, why, "%s is NULL, and must be given",
                    out == NULL      ? "out"
                    : device == NULL ? "device"
                                     : "inner");
    }
    if (rank >= world || inner->carry == NULL || inner->abort == NULL) {
        return fail(TG_E_ARGUMENT, why,
                    "a link needs a rank below the number of ranks, and an inner link that carries");
    }
    tg_nccl *n = calloc(1, sizeof *n);
    if (n == NULL) {
        inner->abort(inner, "there is not enough memory for a link");
        return fail(TG_E_MEMORY, why, "there is not enough memory for a link");
    }
    n->wire = (tg_wire){.post = post, .test = test, .abort = abort_comm};
    n->rank = rank;
    n->world = world;
    n->timeout_ms = timeout_ms;
    tg_status status = open_all(n, device, inner, &local);
    if (status != TG_OK) {
        abort_comm(&n->wire);
        tg_nccl_free(n);
        return fail(status, why, "%s", local.text);
    }
    *out = n;
    return TG_OK;
}

void tg_nccl_free(tg_nccl *n)
{
    if (n == NULL) {
        return;
    }
    if (n->comm != NULL) {
        (void)n->calls.comm_destroy(n->comm);
    }
    tg_wire_link_free(n->link);
    free(n); /* NCCL stays loaded: it has threads of its own */
}

tg_link *tg_nccl_link(tg_nccl *n)
{
    return n == NULL ? NULL : n->link;
}

int tg_nccl_version(const tg_nccl *n)
{
    return n == NULL ? 0 : n->version;
}
