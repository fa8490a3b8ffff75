/* Operations of the threads link. Two ranks exchange their messages as soon as both have started the operation; they wait for
 * nobody else. The rank that starts later copies the messages of both, straight from the buffer of one into the buffer of the
 * other:
 *
 *     rank 0   start ................................. done
 *     rank 1             start, copies 0-1 ......................... done
 *     rank 2                              start, copies 0-2 and 1-2, done
 *
 * So no rank has to do anything for the others once it has started, and one that waits is woken once, when it is done.
 *
 * Copies are made without the lock. Meanwhile `copies` of the other rank is not 0, and no call tells that rank that the link
 * has failed: its caller would then be free to release the buffers. */
#include "link/threads.h"

#include "link/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

static tg_threads_slot *slot_of(const tg_threads *hub, uint32_t channel, uint32_t rank)
{
    return &hub->slots[(size_t)channel * hub->world + rank];
}

/* ---- time -------------------------------------------------------------------------------------------------------------- */

static bool is_late(const tg_threads *hub, const tg_threads_slot *s, uint64_t now_ms)
{
    return now_ms > s->began_ms + hub->timeout_ms;
}

/* ---- failure ----------------------------------------------------------------------------------------------------------- */

/* In this section, call with the lock held. */

static void make_due(tg_threads_end *e)
{
    if (e->listens && !e->is_due) {
        e->is_due = true;
        e->calls++;
        e->next_due = e->hub->due;
        e->hub->due = e;
    }
}

static void fail_all(tg_threads *hub, const char *reason)
{
    if (hub->failed) {
        return;
    }
    (void)tg_fail(TG_E_LINK, &hub->why, "%s", reason);
    hub->failed = true;
    for (uint32_t r = 0; r < hub->world; r++) {
        pthread_cond_broadcast(&hub->ends[r].wake);
        make_due(&hub->ends[r]);
    }
}

/* The lowest rank that the operation of `rank` waits for, and that has not joined it; `world` if there is none. */
static uint32_t missing_rank(const tg_threads *hub, uint32_t channel, uint32_t rank)
{
    const tg_threads_slot *s = slot_of(hub, channel, rank);
    for (uint32_t p = 0; s->op != NULL && p < hub->world; p++) {
        if (p != rank && s->op->sends[p].len + s->op->recvs[p].len > 0 &&
            slot_of(hub, channel, p)->number < s->number) {
            return p;
        }
    }
    return hub->world;
}

/* The rank for which `rank` itself has waited for at least half the timeout, on any channel; `world` if there is none. */
static uint32_t awaited_by(const tg_threads *hub, uint32_t rank, uint64_t now_ms)
{
    for (uint32_t c = 0; c < TG_THREADS_CHANNELS; c++) {
        uint32_t p = missing_rank(hub, c, rank);
        if (p != hub->world && now_ms > slot_of(hub, c, rank)->began_ms + hub->timeout_ms / 2) {
            return p;
        }
    }
    return hub->world;
}

void tg_threads_check_timeout(tg_threads *hub, uint32_t channel, uint32_t rank)
{
    const tg_threads_slot *s = slot_of(hub, channel, rank);
    uint64_t now_ms = tg_now_ms();
    if (hub->failed || s->op == NULL || !is_late(hub, s, now_ms)) {
        return;
    }
    uint32_t missing = missing_rank(hub, channel, rank);
    if (missing == hub->world) {
        return; /* others are still copying */
    }
    /* A rank that is missing because it waits for another one is not to blame. Ranks that wait in a circle all are. */
    uint32_t named = missing, hop_n = 0;
    for (uint32_t next = missing; next != hub->world && hop_n < hub->world; hop_n++) {
        named = next;
        next = awaited_by(hub, named, now_ms);
    }
    tg_detail reason;
    (void)tg_fail(TG_E_LINK, &reason, "rank %u did not join an operation within %u ms",
                  hop_n < hub->world ? named : missing, hub->timeout_ms);
    fail_all(hub, reason.text);
}

static void fail_lengths(tg_threads *hub, uint32_t from, uint64_t sent, uint32_t to, uint64_t expected)
{
    tg_detail reason;
    (void)tg_fail(TG_E_LINK, &reason, "rank %u sends %" PRIu64 " bytes, but rank %u expects %" PRIu64, from, sent, to,
                  expected);
    fail_all(hub, reason.text);
}

/* Returns the status of an operation that is not done and of a link that has failed. */
static tg_status fail_end(tg_threads_end *e, tg_detail *why)
{
    while (e->copies > 0) {
        pthread_cond_wait(&e->wake, &e->hub->lock);
    }
    return tg_fail(TG_E_LINK, why, "%s", e->hub->why.text);
}

void tg_threads_abort(tg_link *self, const char *reason)
{
    tg_threads_end *e = (tg_threads_end *)(void *)self;
    tg_detail full;
    (void)tg_fail(TG_E_LINK, &full, "rank %u: %.230s", e->rank, reason);
    pthread_mutex_lock(&e->hub->lock);
    fail_all(e->hub, full.text);
    tg_threads_notify_due(e->hub);
    (void)fail_end(e, NULL);
    pthread_mutex_unlock(&e->hub->lock);
}

/* ---- an operation -------------------------------------------------------------------------------------------------------- */

/* In this section, call with the lock held, unless said otherwise. */

/* Compares the operation that a rank has started with those of the ranks that were there before. A rank that has already done
 * its operation had nothing to send to this one, and nothing to receive from it. */
static void check_lengths(tg_threads *hub, uint32_t channel, uint32_t rank)
{
    const tg_threads_slot *s = slot_of(hub, channel, rank);
    const tg_op *op = s->op;
    for (uint32_t p = 0; p < hub->world && !hub->failed; p++) {
        const tg_threads_slot *other = slot_of(hub, channel, p);
        if (p == rank || other->number < s->number) {
            continue;
        }
        const tg_op *theirs = other->number == s->number ? other->op : NULL;
        uint64_t sent = theirs != NULL ? theirs->sends[rank].len : 0;
        uint64_t expected = theirs != NULL ? theirs->recvs[rank].len : 0;
        if (op->recvs[p].len != sent || (theirs != NULL && theirs->kind != op->kind)) {
            fail_lengths(hub, p, sent, rank, op->recvs[p].len);
        } else if (op->sends[p].len != expected) {
            fail_lengths(hub, rank, op->sends[p].len, p, expected);
        }
    }
}

/* n of the messages with another rank have been copied. */
static void settle(tg_threads_end *e, tg_threads_slot *s, uint32_t n)
{
    s->left -= n;
    if (s->left == 0) {
        s->op = NULL;
        atomic_store_explicit(&s->state, TG_THREADS_DONE, memory_order_release);
        pthread_cond_broadcast(&e->wake);
        make_due(e);
    }
}

/* Copies what two ranks send to each other. Call without the lock. */
static void copy_both(const tg_op *a, const tg_op *b)
{
    const tg_span *to_a = &a->recvs[b->rank], *to_b = &b->recvs[a->rank];
    if (to_a->len > 0) {
        memcpy(to_a->data, b->sends[a->rank].data, (size_t)to_a->len);
    }
    if (to_b->len > 0) {
        memcpy(to_b->data, a->sends[b->rank].data, (size_t)to_b->len);
    }
}

/* Copies the messages between this rank and all that started before it. The ranks of a batch are told together. */
static void copy_all(tg_threads_end *e, uint32_t channel, const tg_op *op)
{
    enum { BATCH_N = 64, BATCH_LEN = 1 << 18 };
    tg_threads *hub = e->hub;
    tg_threads_slot *s = slot_of(hub, channel, e->rank);
    const tg_op *batch[BATCH_N];
    for (uint32_t i = 1; i < hub->world && s->left > 0 && !hub->failed;) {
        uint64_t len = 0;
        uint32_t n = 0;
        for (; i < hub->world && n < BATCH_N && len < BATCH_LEN; i++) {
            uint32_t p = (uint32_t)(((uint64_t)e->rank + i) % hub->world);
            const tg_threads_slot *other = slot_of(hub, channel, p);
            uint64_t pair_len = op->sends[p].len + op->recvs[p].len;
            if (pair_len > 0 && other->op != NULL && other->number == s->number && other->sequence < s->sequence) {
                hub->ends[p].copies++;
                batch[n++] = other->op;
                len += pair_len;
            }
        }
        if (n == 0) {
            continue;
        }
        pthread_mutex_unlock(&hub->lock);
        for (uint32_t k = 0; k < n; k++) {
            copy_both(op, batch[k]);
        }
        pthread_mutex_lock(&hub->lock);
        for (uint32_t k = 0; k < n; k++) {
            tg_threads_end *other = &hub->ends[batch[k]->rank];
            if (--other->copies == 0 && hub->failed) {
                pthread_cond_broadcast(&other->wake);
            }
            settle(other, slot_of(hub, channel, other->rank), 1);
        }
        settle(e, s, n);
        tg_threads_notify_due(hub);
    }
}

/* Enters the operation into the rank's slot. */
static void join(tg_threads_end *e, tg_threads_slot *s, const tg_op *op)
{
    s->op = op;
    s->number++;
    s->sequence = ++e->hub->sequence;
    s->began_ms = tg_now_ms();
    s->sent_len = 0;
    s->left = 0;
    for (uint32_t p = 0; p < op->world; p++) {
        if (p != e->rank) {
            s->sent_len += op->sends[p].len;
            s->left += op->sends[p].len > 0 || op->recvs[p].len > 0;
        }
    }
    atomic_store_explicit(&s->state, TG_THREADS_UNDER_WAY, memory_order_relaxed);
}

/* An operation that is done becomes history. Call by the rank itself, without the lock or with it. */
static bool took_done(tg_threads_end *e, tg_threads_slot *s)
{
    if (atomic_load_explicit(&s->state, memory_order_acquire) != TG_THREADS_DONE) {
        return false;
    }
    atomic_store_explicit(&s->state, TG_THREADS_IDLE, memory_order_relaxed);
    e->link.sent_len += s->sent_len;
    return true;
}

/* ---- the functions of tg_link -------------------------------------------------------------------------------------------- */

tg_status tg_threads_start(tg_link *self, uint32_t channel, const tg_op *op, tg_detail *why)
{
    tg_threads_end *e = (tg_threads_end *)(void *)self;
    tg_threads *hub = e->hub;
    if (op->world != hub->world || op->rank != e->rank) {
        return tg_fail(TG_E_ARGUMENT, why, "an operation of rank %u of %u was given to the link of rank %u of %u",
                       op->rank, op->world, e->rank, hub->world);
    }
    if (channel >= TG_THREADS_CHANNELS) {
        return tg_fail(TG_E_ARGUMENT, why, "channel %u does not exist: there are %d", channel, TG_THREADS_CHANNELS);
    }
    tg_threads_slot *s = slot_of(hub, channel, e->rank);
    if (atomic_load_explicit(&s->state, memory_order_relaxed) != TG_THREADS_IDLE && !hub->failed) {
        return tg_fail(TG_E_ARGUMENT, why, "an operation is already under way on channel %u", channel);
    }
    pthread_mutex_lock(&hub->lock);
    bool is_joined = !hub->failed;
    if (is_joined) {
        join(e, s, op);
        check_lengths(hub, channel, e->rank);
        if (s->left == 0 && !hub->failed) {
            settle(e, s, 0);
        }
        copy_all(e, channel, op);
        tg_threads_notify_due(hub);
    }
    bool is_well = is_joined && (!hub->failed || s->state == TG_THREADS_DONE);
    tg_status status = is_well ? TG_OK : fail_end(e, why);
    pthread_mutex_unlock(&hub->lock);
    return status;
}

tg_status tg_threads_test(tg_link *self, uint32_t channel, tg_detail *why)
{
    tg_threads_end *e = (tg_threads_end *)(void *)self;
    tg_threads *hub = e->hub;
    if (channel >= TG_THREADS_CHANNELS) {
        return tg_fail(TG_E_ARGUMENT, why, "channel %u does not exist: there are %d", channel, TG_THREADS_CHANNELS);
    }
    tg_threads_slot *s = slot_of(hub, channel, e->rank);
    if (took_done(e, s)) {
        return TG_OK;
    }
    bool is_idle = atomic_load_explicit(&s->state, memory_order_relaxed) == TG_THREADS_IDLE;
    if (!hub->failed && (is_idle || !is_late(hub, s, tg_now_ms()))) {
        return is_idle ? TG_OK : TG_MORE;
    }
    pthread_mutex_lock(&hub->lock);
    tg_threads_check_timeout(hub, channel, e->rank);
    tg_threads_notify_due(hub);
    tg_status status = took_done(e, s) ? TG_OK : hub->failed ? fail_end(e, why) : TG_MORE;
    pthread_mutex_unlock(&hub->lock);
    return status;
}

tg_status tg_threads_carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    tg_threads_end *e = (tg_threads_end *)(void *)self;
    tg_threads *hub = e->hub;
    TG_TRY(tg_threads_start(self, 0, op, why));
    tg_threads_slot *s = slot_of(hub, 0, e->rank);
    struct timespec until = tg_time_of_ms(s->began_ms + hub->timeout_ms + 1);
    bool is_waited_out = false;
    pthread_mutex_lock(&hub->lock);
    while (s->state != TG_THREADS_DONE && !hub->failed) {
        int code = is_waited_out ? pthread_cond_wait(&e->wake, &hub->lock)
                                 : pthread_cond_timedwait(&e->wake, &hub->lock, &until);
        if (code == ETIMEDOUT) {
            is_waited_out = true;
            tg_threads_check_timeout(hub, 0, e->rank);
            tg_threads_notify_due(hub);
        }
    }
    tg_status status = took_done(e, s) ? TG_OK : fail_end(e, why);
    pthread_mutex_unlock(&hub->lock);
    return status;
}
