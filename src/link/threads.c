/* Threads link: ranks are threads of one process. An operation has two barriers: after the first, every rank copies its data
 * straight from the senders' buffers; after the second, the buffers may be reused. */
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

typedef struct end {
    tg_link link; /* must be first: a tg_link pointer is cast to end */
    tg_threads *hub;
    const tg_op *op; /* the operation that the rank has entered, or NULL */
    uint32_t rank;
} end;

struct tg_threads {
    tg_allocator allocator;
    pthread_mutex_t lock;
    pthread_cond_t change;
    uint32_t world, timeout_ms;
    uint32_t arrived, copied; /* ranks at the first and at the second barrier */
    bool go;                  /* all ranks have arrived, and their operations match */
    uint64_t operation;       /* number of completed operations */
    bool failed;              /* permanently: where the other ranks are is unknown */
    tg_detail why;
    end *ends;
};

/* ---- failure ----------------------------------------------------------------------------------------------------------- */

/* Call with the lock held. */
static void fail_all(tg_threads *hub, const char *reason)
{
    if (!hub->failed) {
        hub->failed = true;
        (void)tg_fail(TG_E_LINK, &hub->why, "%s", reason);
    }
    pthread_cond_broadcast(&hub->change);
}

static void fail_missing(tg_threads *hub)
{
    for (uint32_t r = 0; r < hub->world; r++) {
        if (hub->ends[r].op == NULL) {
            tg_detail reason;
            (void)tg_fail(TG_E_LINK, &reason, "rank %u did not join an operation within %u ms", r, hub->timeout_ms);
            fail_all(hub, reason.text);
            return;
        }
    }
}

/* Checks that every rank sends as many bytes as the other expects; fails the link otherwise. */
static void check_ops(tg_threads *hub)
{
    for (uint32_t to = 0; to < hub->world; to++) {
        for (uint32_t from = 0; from < hub->world; from++) {
            const tg_op *sender = hub->ends[from].op, *receiver = hub->ends[to].op;
            if (sender->kind != receiver->kind || sender->sends[to].len != receiver->recvs[from].len) {
                tg_detail reason;
                (void)tg_fail(TG_E_LINK, &reason, "rank %u sends %" PRIu64 " bytes, but rank %u expects %" PRIu64, from,
                              sender->sends[to].len, to, receiver->recvs[from].len);
                fail_all(hub, reason.text);
                return;
            }
        }
    }
}

/* ---- an operation -------------------------------------------------------------------------------------------------------- */

static struct timespec deadline(uint32_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000L;
    if (t.tv_nsec >= 1000000000L) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000L;
    }
    return t;
}

/* The first barrier. Returns true if all ranks have arrived, false if the link has failed. Call with the lock held. */
static bool enter(tg_threads *hub)
{
    if (++hub->arrived == hub->world) {
        check_ops(hub);
        hub->go = !hub->failed;
        pthread_cond_broadcast(&hub->change);
    }
    struct timespec until = deadline(hub->timeout_ms);
    while (!hub->go && !hub->failed) {
        if (pthread_cond_timedwait(&hub->change, &hub->lock, &until) == ETIMEDOUT && !hub->go) {
            fail_missing(hub);
        }
    }
    return hub->go;
}

static void copy_in(const tg_threads *hub, const tg_op *op)
{
    for (uint32_t from = 0; from < op->world; from++) {
        if (op->recvs[from].len > 0) {
            memcpy(op->recvs[from].data, hub->ends[from].op->sends[op->rank].data, (size_t)op->recvs[from].len);
        }
    }
}

/* The second barrier: all ranks have finished copying. It needs no timeout, because all ranks have arrived and are copying.
 * Call with the lock held. */
static void leave(tg_threads *hub, const tg_op *op)
{
    uint64_t operation = hub->operation;
    for (uint32_t from = 0; from < op->world; from++) {
        hub->ends[from].link.sent_len += op->recvs[from].len;
    }
    if (++hub->copied == hub->world) {
        for (uint32_t r = 0; r < hub->world; r++) {
            hub->ends[r].op = NULL;
        }
        hub->arrived = hub->copied = 0;
        hub->go = false;
        hub->operation++;
        pthread_cond_broadcast(&hub->change);
    }
    while (hub->operation == operation) {
        pthread_cond_wait(&hub->change, &hub->lock);
    }
}

static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    end *e = (end *)(void *)self;
    tg_threads *hub = e->hub;
    if (op->world != hub->world || op->rank != e->rank) {
        return tg_fail(TG_E_ARGUMENT, why, "an operation of rank %u of %u was given to the link of rank %u of %u",
                       op->rank, op->world, e->rank, hub->world);
    }
    pthread_mutex_lock(&hub->lock);
    bool entered = false;
    if (!hub->failed) {
        e->op = op;
        entered = enter(hub);
    }
    if (entered) {
        pthread_mutex_unlock(&hub->lock);
        copy_in(hub, op);
        pthread_mutex_lock(&hub->lock);
        leave(hub, op);
    }
    tg_status status = entered ? TG_OK : tg_fail(TG_E_LINK, why, "%s", hub->why.text);
    pthread_mutex_unlock(&hub->lock);
    return status;
}

static void abort_link(tg_link *self, const char *reason)
{
    end *e = (end *)(void *)self;
    tg_detail full;
    (void)tg_fail(TG_E_LINK, &full, "rank %u: %.230s", e->rank, reason);
    pthread_mutex_lock(&e->hub->lock);
    fail_all(e->hub, full.text);
    pthread_mutex_unlock(&e->hub->lock);
}

/* ---- the hub --------------------------------------------------------------------------------------------------------------- */

tg_status tg_threads_new(tg_threads **out, uint32_t world, uint32_t timeout_ms, const tg_allocator *allocator,
                         tg_detail *why)
{
    TG_NEED(out, why);
    TG_TRY(tg_allocator_check(allocator, why));
    if (world == 0) {
        return tg_fail(TG_E_ARGUMENT, why, "a world has at least one rank");
    }
    tg_allocator a = tg_allocator_or_standard(allocator);
    tg_threads *hub = NULL;
    end *ends = NULL;
    TG_TRY(tg_acquire(&ends, &a, world, sizeof *ends, why));
    tg_status status = tg_acquire(&hub, &a, 1, sizeof *hub, why);
    if (status != TG_OK) {
        tg_release(&a, ends);
        return status;
    }
    *hub = (tg_threads){.allocator = a, .world = world, .timeout_ms = timeout_ms, .ends = ends};
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&hub->change, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&hub->lock, NULL);
    for (uint32_t r = 0; r < world; r++) {
        ends[r] = (end){.link = {.carry = carry, .abort = abort_link}, .hub = hub, .rank = r};
    }
    *out = hub;
    return TG_OK;
}

tg_link *tg_threads_link(tg_threads *hub, uint32_t rank)
{
    return hub != NULL && rank < hub->world ? &hub->ends[rank].link : NULL;
}

void tg_threads_free(tg_threads *hub)
{
    if (hub == NULL) {
        return;
    }
    pthread_mutex_destroy(&hub->lock);
    pthread_cond_destroy(&hub->change);
    tg_allocator a = hub->allocator;
    tg_release(&a, hub->ends);
    tg_release(&a, hub);
}
