/* Progress of the link over a wire: turns, and operations on the wire. */
#include "link/clock.h"
#include "link/reducer.h"
#include "link/wire.h"

#include <stdio.h>
#include <string.h>

/* ---- operations -------------------------------------------------------------------------------------------------------- */

static bool is_device(const tg_wire_link *l, const void **known, const tg_span *message)
{
    if (message->len > 0 && *known != message->data && tg_gpu_can_use(l->gpu, message->data)) {
        *known = message->data;
    }
    return message->len > 0 && *known == message->data;
}

/* Splits messages into those in host memory and those in device memory. Returns whether there are any of the latter. */
static bool split(tg_span *host, tg_span *wired, const tg_wire_link *l, const void **known, const tg_span *messages)
{
    const tg_span none = {NULL, 0};
    bool any = false;
    for (uint32_t p = 0; p < l->world; p++) {
        bool is_wired = is_device(l, &known[p], &messages[p]);
        host[p] = is_wired ? none : messages[p];
        wired[p] = is_wired ? messages[p] : none;
        any = any || is_wired;
    }
    return any;
}

/* Prepares an operation, after all that is on the device's stream now. */
tg_status tg_wire_prepare(tg_wire_operation *o, const tg_wire_link *l, const tg_op *op, tg_detail *why)
{
    if (op->world != l->world || op->rank != l->rank) {
        return tg_fail(TG_E_ARGUMENT, why, "an operation of rank %u of %u was given to a link of rank %u of %u",
                       op->rank, op->world, l->rank, l->world);
    }
    tg_gpu_enter(l->gpu);
    bool sends = split(o->host_sends, o->wire_sends, l, o->known, op->sends);
    bool receives = split(o->host_recvs, o->wire_recvs, l, o->known + l->world, op->recvs);
    o->has_wired = sends || receives;
    return o->has_wired ? tg_gpu_mark(l->gpu, o->ready, l->gpu->stream, why) : TG_OK;
}

tg_status tg_wire_add_turn(tg_wire_link *l, uint32_t channel, tg_detail *why)
{
    uint64_t kept = l->rank == 0 && l->told < l->taken ? l->told : l->taken;
    if (l->added - kept == TG_WIRE_TURN_MAX) {
        return tg_fail(TG_E_LINK, why, "%d operations were started that other ranks have not heard of",
                       TG_WIRE_TURN_MAX);
    }
    l->turns[l->added++ % TG_WIRE_TURN_MAX] = channel;
    return TG_OK;
}

tg_status tg_wire_post(tg_wire_link *l, tg_wire_operation *o, tg_detail *why)
{
    TG_TRY(tg_gpu_wait_for(l->gpu, l->wire->stream, o->ready, why));
    o->stage = TG_WIRE_POSTED;
    o->posted_ms = l->checked_ms = tg_now_ms();
    l->posted = o;
    l->on_wire_n++;
    for (uint32_t p = 0; p < l->world; p++) {
        l->wired_len += o->wire_sends[p].len;
    }
    return l->wire->post(l->wire, &o->wired, why);
}

/* ---- turns ------------------------------------------------------------------------------------------------------------- */

static bool awaits_turn(const tg_wire_link *l)
{
    for (uint32_t c = TG_GROUP_CHANNEL; c < l->channel_n; c++) {
        if (l->operations[c].stage == TG_WIRE_AWAITS_TURN) {
            return true;
        }
    }
    return false;
}

/* Rank 0: the message that is due; others: a receive, if one is. Returns whether there is one. */
static bool next_message(tg_wire_link *l)
{
    if (l->rank != 0) {
        return l->added == l->taken && awaits_turn(l);
    }
    memset(l->message, 0, sizeof l->message);
    while (l->told < l->added && l->message[0] + 1 < TG_WIRE_MESSAGE_WORDS) {
        l->message[1 + l->message[0]++] = l->turns[l->told++ % TG_WIRE_TURN_MAX];
    }
    return l->message[0] > 0;
}

static tg_status take_message(tg_wire_link *l, tg_detail *why)
{
    if (l->message[0] >= TG_WIRE_MESSAGE_WORDS) {
        return tg_fail(TG_E_LINK, why, "what rank 0 says of the order of operations cannot be understood");
    }
    for (uint32_t i = 0; l->rank != 0 && i < l->message[0]; i++) {
        if (l->message[1 + i] < TG_GROUP_CHANNEL || l->message[1 + i] >= l->channel_n) {
            return tg_fail(TG_E_LINK, why, "rank 0 gives a turn to a channel that does not exist");
        }
        TG_TRY(tg_wire_add_turn(l, l->message[1 + i], why));
    }
    return TG_OK;
}

/* Tells turns, or hears them. *any: there was something to do. */
static tg_status exchange_turns(tg_wire_link *l, bool *any, tg_detail *why)
{
    if (l->is_message_under_way) {
        tg_status status = l->inner->test(l->inner, l->channel_n, why);
        if (status != TG_OK) {
            return status == TG_MORE ? TG_OK : status;
        }
        l->is_message_under_way = false;
        *any = true;
        TG_TRY(take_message(l, why));
    }
    if (next_message(l)) {
        TG_TRY(l->inner->start(l->inner, l->channel_n, &l->message_op, why));
        l->is_message_under_way = *any = true;
    }
    return TG_OK;
}

/* The operation whose turn it is, which this rank has started; NULL: there is none yet. Rank 0 tells a turn before it takes it: a wire may
 * block in `post` until the other ranks have posted, too. */
static tg_wire_operation *next_turn(tg_wire_link *l)
{
    uint64_t known = l->rank == 0 ? l->told : l->added;
    tg_wire_operation *o = l->taken < known ? &l->operations[l->turns[l->taken % TG_WIRE_TURN_MAX]] : NULL;
    if (o == NULL || o->stage != TG_WIRE_AWAITS_TURN) {
        return NULL;
    }
    l->taken++;
    return o;
}

/* ---- progress; all with the lock held ---------------------------------------------------------------------------------- */

static tg_status fail_late(const tg_wire_link *l, const tg_wire_operation *o, tg_detail *why)
{
    char ranks[64] = "";
    size_t len = 0;
    for (uint32_t p = 0; p < l->world && len + 12 < sizeof ranks; p++) {
        if (o->wire_sends[p].len > 0 || o->wire_recvs[p].len > 0) {
            int written = snprintf(ranks + len, sizeof ranks - len, "%s%u", len > 0 ? ", " : "", p);
            len += written > 0 ? (size_t)written : 0;
        }
    }
    return tg_fail(TG_E_LINK, why, "rank %u: messages in device memory to and from ranks %s were not done within %u ms",
                   l->rank, ranks, l->timeout_ms);
}

/* Messages that have arrived and left, or are late. */
static tg_status look_at_marks(tg_wire_link *l, bool *any, tg_detail *why)
{
    uint64_t now = tg_now_ms();
    for (uint32_t c = 0; c <= l->channel_n && l->on_wire_n > 0; c++) {
        tg_wire_operation *o = &l->operations[c];
        tg_status passed = TG_MORE;
        if (o->stage == TG_WIRE_ON_STREAM) {
            passed = tg_gpu_passed(l->gpu, o->mark, why);
            TG_TRY(passed);
        }
        if (passed == TG_OK) {
            o->stage = TG_WIRE_IDLE;
            l->on_wire_n--;
            l->passed_n++;
            *any = true;
        } else if ((o->stage == TG_WIRE_POSTED || o->stage == TG_WIRE_ON_STREAM) &&
                   now - o->posted_ms > l->timeout_ms) {
            return fail_late(l, o, why);
        }
    }
    if (l->on_wire_n > 0 && now - l->checked_ms >= TG_WIRE_CHECK_MS) {
        l->checked_ms = now;
        TG_TRY(l->posted == NULL ? l->wire->test(l->wire, why) : TG_OK);
        if (!l->is_message_under_way) { /* another rank may have aborted the inner link, which has nothing under way to tell it by */
            TG_TRY(l->inner->test(l->inner, l->channel_n, why));
        }
    }
    return TG_OK;
}

static tg_status advance_once(tg_wire_link *l, bool *any, tg_detail *why)
{
    TG_TRY(exchange_turns(l, any, why));
    if (l->posted != NULL) {
        tg_status status = l->wire->test(l->wire, why);
        TG_TRY(status);
        if (status == TG_OK) {
            TG_TRY(tg_gpu_mark(l->gpu, l->posted->mark, l->wire->stream, why));
            l->posted->stage = TG_WIRE_ON_STREAM;
            l->posted = NULL;
            *any = true;
        }
    }
    tg_wire_operation *o = l->posted == NULL ? next_turn(l) : NULL;
    if (o != NULL) {
        *any = true;
        o->stage = TG_WIRE_IDLE;
        TG_TRY(o->has_wired ? tg_wire_post(l, o, why) : TG_OK);
    }
    return look_at_marks(l, any, why);
}

static void abort_wire(tg_wire_link *l)
{
    if (!l->is_aborted) {
        l->is_aborted = true;
        l->wire->abort(l->wire);
    }
}

tg_status tg_wire_fail(tg_wire_link *l, tg_status status, const tg_detail *why)
{
    if (l->failed == TG_OK) {
        l->failed = status;
        l->reason = *why;
        abort_wire(l);
    }
    return l->failed;
}

tg_status tg_wire_advance(tg_wire_link *l)
{
    tg_detail why = {""};
    tg_gpu_enter(l->gpu);
    for (bool any = true; any && l->failed == TG_OK;) {
        any = false;
        tg_status status = advance_once(l, &any, &why);
        if (status < 0) {
            (void)tg_wire_fail(l, status, &why);
        }
    }
    if (l->has_poller && l->on_wire_n > 0) {
        pthread_cond_signal(&l->work);
    }
    return l->failed;
}
