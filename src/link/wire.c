/* A link that carries messages in device memory by a wire, such as NCCL, and the others by an inner link.
 *
 * Ranks start operations in different orders, and a wire needs one order for all. Rank 0 decides: it gives every operation of a group a
 * **turn**, in the order in which it starts them, and tells the others over the last channel of the inner link. A rank posts an operation
 * when its turn has come. Since every rank starts every operation sooner or later, whatever the others wait for, no rank waits for ever.
 *
 *     rank 0    start A   start B                    post A      post B
 *               turns: A, B  ----------------->
 *     rank 1    start B   start A                    post A      post B
 *
 * A turn is a channel. An operation without messages in device memory waits for its turn, too: so all ranks hear as many turns as they
 * start operations, and none is on its way when a step ends. Votes and lengths are in host memory and need none. Nor does `carry`, which
 * all ranks call in one order.
 *
 *     device's stream   encode .. ready                                           check ..
 *     wire's stream                      wait for ready .. messages .. mark
 *     host              start            post                          mark is passed: done
 */
#include "link/wire.h"

#include "link/reducer.h"

#include <stdio.h>
#include <time.h>

static tg_wire_link *link_of(tg_link *self)
{
    return (tg_wire_link *)(void *)self;
}

/* ---- the functions of tg_link -------------------------------------------------------------------------------------------- */

static void unlock(tg_wire_link *l)
{
    l->link.sent_len = l->inner->sent_len + l->wired_len;
    pthread_mutex_unlock(&l->lock);
}

static tg_status start_locked(tg_wire_link *l, uint32_t channel, const tg_op *op, tg_detail *why)
{
    tg_wire_operation *o = &l->operations[channel];
    if (o->is_under_way) {
        return tg_fail(TG_E_ARGUMENT, why, "an operation is already under way on channel %u", channel);
    }
    if (channel < TG_GROUP_CHANNEL) { /* votes and lengths: in host memory */
        TG_TRY(l->inner->start(l->inner, channel, op, why));
    } else {
        TG_TRY(tg_wire_prepare(o, l, op, why));
        TG_TRY(l->inner->start(l->inner, channel, &o->host, why));
        o->stage = l->world > 1 ? TG_WIRE_AWAITS_TURN : TG_WIRE_IDLE;
        TG_TRY(l->rank == 0 && l->world > 1 ? tg_wire_add_turn(l, channel, why) : TG_OK);
    }
    o->is_under_way = true;
    o->is_host_done = false;
    return TG_OK;
}

static tg_status tell(tg_status status, const tg_wire_link *l, tg_detail *why)
{
    return status == TG_OK ? TG_OK : tg_fail(status, why, "%s", l->reason.text);
}

static tg_status check_channel(const tg_wire_link *l, uint32_t number, tg_detail *why)
{
    return number < l->channel_n
               ? TG_OK
               : tg_fail(TG_E_ARGUMENT, why, "channel %u does not exist: there are %u", number, l->channel_n);
}

static tg_status start(tg_link *self, uint32_t channel, const tg_op *op, tg_detail *why)
{
    tg_wire_link *l = link_of(self);
    tg_detail reason = {""};
    TG_TRY(check_channel(l, channel, why));
    pthread_mutex_lock(&l->lock);
    tg_status status = l->failed;
    if (status == TG_OK) {
        status = start_locked(l, channel, op, &reason);
        if (status == TG_E_ARGUMENT) { /* of the caller's: the link is well */
            status = tg_fail(status, why, "%s", reason.text);
        } else {
            status = tell(status == TG_OK ? tg_wire_advance(l) : tg_wire_fail(l, status, &reason), l, why);
        }
    } else {
        status = tell(status, l, why);
    }
    unlock(l);
    return status;
}

static tg_status test_locked(tg_wire_link *l, tg_wire_operation *o, uint32_t channel)
{
    tg_detail reason = {""};
    TG_TRY(tg_wire_advance(l));
    if (!o->is_under_way) {
        return TG_OK;
    }
    if (!o->is_host_done) {
        tg_status status = l->inner->test(l->inner, channel, &reason);
        if (status < 0) {
            return tg_wire_fail(l, status, &reason);
        }
        o->is_host_done = status == TG_OK;
    }
    o->is_under_way = !o->is_host_done || o->stage != TG_WIRE_IDLE;
    return o->is_under_way ? TG_MORE : TG_OK;
}

static tg_status test(tg_link *self, uint32_t channel, tg_detail *why)
{
    tg_wire_link *l = link_of(self);
    TG_TRY(check_channel(l, channel, why));
    pthread_mutex_lock(&l->lock);
    tg_status status = test_locked(l, &l->operations[channel], channel);
    if (status < 0) {
        status = tell(status, l, why);
    }
    unlock(l);
    return status;
}

static void pause_poll(void)
{
    const struct timespec t = {0, TG_WIRE_POLL_NS};
    (void)nanosleep(&t, NULL);
}

/* All ranks carry operations in one order, and have none under way on channels. */
static tg_status carry_locked(tg_wire_link *l, const tg_op *op, tg_detail *why)
{
    tg_wire_operation *o = &l->operations[l->channel_n];
    TG_TRY(tg_wire_prepare(o, l, op, why));
    TG_TRY(o->has_wired ? tg_wire_post(l, o, why) : TG_OK);
    TG_TRY(l->inner->carry(l->inner, &o->host, why));
    while (o->stage != TG_WIRE_IDLE && tg_wire_advance(l) == TG_OK) {
        pause_poll();
    }
    return l->failed == TG_OK ? TG_OK : tg_fail(l->failed, why, "%s", l->reason.text);
}

static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    tg_wire_link *l = link_of(self);
    tg_detail reason = {""};
    pthread_mutex_lock(&l->lock);
    tg_status status = l->failed != TG_OK ? l->failed : carry_locked(l, op, &reason);
    if (status < 0 && status != TG_E_ARGUMENT) {
        status = tell(tg_wire_fail(l, status, &reason), l, why);
    } else if (status < 0) {
        status = tg_fail(status, why, "%s", reason.text);
    }
    unlock(l);
    return status;
}

static void *poll_marks(void *argument)
{
    tg_wire_link *l = argument;
    pthread_mutex_lock(&l->lock);
    while (!l->ends) {
        if (l->on_wire_n == 0 || l->failed != TG_OK) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        uint64_t before = l->passed_n;
        bool has_news = tg_wire_advance(l) != TG_OK || l->passed_n != before;
        pthread_mutex_unlock(&l->lock);
        if (has_news) {
            l->notify(l->context);
        }
        pause_poll();
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void end_poller(tg_wire_link *l)
{
    if (l->has_poller) {
        pthread_mutex_lock(&l->lock);
        l->ends = true;
        pthread_cond_signal(&l->work);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->poller, NULL);
        l->has_poller = l->ends = false;
    }
}

static void listen(tg_link *self, void (*notify)(void *context), void *context)
{
    tg_wire_link *l = link_of(self);
    end_poller(l);
    l->notify = notify;
    l->context = context;
    l->inner->listen(l->inner, notify, context);
    if (notify != NULL) {
        tg_detail why = {"no thread can be started that looks at messages in device memory"};
        pthread_mutex_lock(&l->lock);
        l->has_poller = pthread_create(&l->poller, NULL, poll_marks, l) == 0;
        if (!l->has_poller) {
            (void)tg_wire_fail(l, TG_E_LINK, &why);
        }
        pthread_mutex_unlock(&l->lock);
    }
}

static void abort_link(tg_link *self, const char *reason)
{
    tg_wire_link *l = link_of(self);
    tg_detail why;
    (void)snprintf(why.text, sizeof why.text, "%s", reason);
    pthread_mutex_lock(&l->lock);
    (void)tg_wire_fail(l, TG_E_LINK, &why);
    pthread_mutex_unlock(&l->lock);
    l->inner->abort(l->inner, reason);
}

/* ---- making one ---------------------------------------------------------------------------------------------------------- */

static tg_status open_operation(tg_wire_operation *o, const tg_wire_link *l, tg_detail *why)
{
    TG_TRY(tg_acquire(&o->host_sends, &l->allocator, 4 * (uint64_t)l->world, sizeof *o->host_sends, why));
    o->host_recvs = o->host_sends + l->world;
    o->wire_sends = o->host_recvs + l->world;
    o->wire_recvs = o->wire_sends + l->world;
    o->host = (tg_op){
        .kind = TG_ALLTOALLV, .rank = l->rank, .world = l->world, .sends = o->host_sends, .recvs = o->host_recvs};
    o->wired = o->host;
    o->wired.sends = o->wire_sends;
    o->wired.recvs = o->wire_recvs;
    TG_TRY(tg_acquire(&o->known, &l->allocator, 2 * (uint64_t)l->world, sizeof *o->known, why));
    TG_TRY(tg_gpu_new_mark(&o->ready, l->gpu, why));
    return tg_gpu_new_mark(&o->mark, l->gpu, why);
}

static tg_status open_all(tg_wire_link *l, tg_detail *why)
{
    tg_gpu_enter(l->gpu);
    TG_TRY(tg_acquire(&l->operations, &l->allocator, (uint64_t)l->channel_n + 1, sizeof *l->operations, why));
    for (uint32_t c = 0; c <= l->channel_n; c++) {
        TG_TRY(open_operation(&l->operations[c], l, why));
    }
    TG_TRY(tg_acquire(&l->message_sends, &l->allocator, 2 * (uint64_t)l->world, sizeof *l->message_sends, why));
    l->message_recvs = l->message_sends + l->world;
    const tg_span message = {l->message, sizeof l->message};
    for (uint32_t p = 1; l->rank == 0 && p < l->world; p++) {
        l->message_sends[p] = message;
    }
    if (l->rank != 0) {
        l->message_recvs[0] = message;
    }
    l->message_op = (tg_op){
        .kind = TG_BROADCAST, .rank = l->rank, .world = l->world, .sends = l->message_sends, .recvs = l->message_recvs};
    if (l->wire->stream == NULL) {
        TG_TRY(tg_gpu_new_stream(&l->wire->stream, l->gpu, why));
        l->owns_stream = true;
    }
    return TG_OK;
}

static tg_status check(const tg_link *inner, const tg_wire *wire, uint32_t rank, uint32_t world, tg_detail *why)
{
    if (wire->post == NULL || wire->test == NULL || wire->abort == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "a wire must have post, test and abort");
    }
    if (inner->carry == NULL || inner->abort == NULL || inner->start == NULL || inner->test == NULL ||
        inner->channel_n < 2) {
        return tg_fail(TG_E_ARGUMENT, why, "the inner link cannot perform several operations at once");
    }
    return rank < world ? TG_OK : tg_fail(TG_E_ARGUMENT, why, "rank %u is not below world %u", rank, world);
}

tg_status tg_wire_link_new(tg_link **out, tg_device *device, tg_link *inner, tg_wire *wire, uint32_t rank,
                           uint32_t world, uint32_t timeout_ms, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(device, why);
    TG_NEED(inner, why);
    TG_NEED(wire, why);
    TG_TRY(check(inner, wire, rank, world, why));
    tg_allocator a = tg_allocator_or_standard(NULL);
    tg_wire_link *l = NULL;
    TG_TRY(tg_acquire(&l, &a, 1, sizeof *l, why));
    l->link = (tg_link){.carry = carry,
                        .abort = abort_link,
                        .sent_len = inner->sent_len,
                        .start = start,
                        .test = test,
                        .listen = inner->listen != NULL ? listen : NULL,
                        .channel_n = inner->channel_n - 1,
                        .host_size = inner->host_size};
    l->inner = inner;
    l->wire = wire;
    l->gpu = (const tg_gpu *)(const void *)device; /* which begins with a tg_device */
    l->allocator = a;
    l->rank = rank;
    l->world = world;
    l->channel_n = inner->channel_n - 1;
    l->timeout_ms = timeout_ms;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    tg_status status = open_all(l, why);
    if (status != TG_OK) {
        tg_wire_link_free(&l->link);
        return status;
    }
    *out = &l->link;
    return TG_OK;
}

void tg_wire_link_free(tg_link *link)
{
    if (link == NULL) {
        return;
    }
    tg_wire_link *l = link_of(link);
    tg_allocator a = l->allocator;
    end_poller(l);
    tg_gpu_enter(l->gpu);
    for (uint32_t c = 0; l->operations != NULL && c <= l->channel_n; c++) {
        tg_wire_operation *o = &l->operations[c];
        tg_gpu_free_mark(o->mark);
        tg_gpu_free_mark(o->ready);
        tg_release(&a, (void *)o->known);
        tg_release(&a, o->host_sends);
    }
    if (l->owns_stream) {
        tg_gpu_free_stream(l->wire->stream);
        l->wire->stream = NULL;
    }
    tg_release(&a, l->message_sends);
    tg_release(&a, l->operations);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    tg_release(&a, l);
}
