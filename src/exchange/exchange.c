/* Runs a step: rounds of ballots and messages, until it has succeeded on all ranks or failed on all ranks.
 *
 *     SENDING -> VOTING -> TALKING -> SENDING ...  once a round
 *             -> CLOSING -> (AUDIT) -> IDLE        all ranks are well: finish
 *     any ballot that tells of a failure -> REASONING -> IDLE */
#include "exchange/exchange.h"

#include "base/hash.h"
#include "exchange/ballots.h"

#include <inttypes.h>
#include <string.h>

/* Hands out an operation and counts what it sends. */
static tg_status hand_out(tg_exchange *x, tg_op *op, tg_phase phase, tg_op_kind kind, const tg_span *sends,
                          const tg_span *recvs)
{
    x->step.phase = phase;
    *op =
        (tg_op){.kind = kind, .root = x->mail.root, .rank = x->rank, .world = x->world, .sends = sends, .recvs = recvs};
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t payload = phase == TG_TALKING ? x->mail.payload[p] : 0;
        x->last.payload += payload;
        x->last.header += sends[p].len - payload;
        x->last.received += recvs[p].len;
    }
    x->step.pending = *op;
    return TG_MORE;
}

static tg_status vote(tg_exchange *x, tg_op *op, tg_phase phase, const uint64_t *number)
{
    tg_ballots_cast(x, number);
    return hand_out(x, op, phase, TG_ALLTOALLV, x->ballots.sends, x->ballots.recvs);
}

/* ---- the end of a step ----------------------------------------------------------------------------------------------- */

static tg_status end_step(tg_exchange *x, tg_status status)
{
    tg_meter *total = &x->total;
    x->step.phase = TG_IDLE;
    x->last.steps = status == TG_OK ? 1 : 0;
    total->steps += x->last.steps;
    total->logical += x->last.logical;
    total->dense += x->last.dense;
    total->payload += x->last.payload;
    total->header += x->last.header;
    total->received += x->last.received;
    return status;
}

static tg_status give_reason(tg_exchange *x, tg_detail *why)
{
    char *reason = x->ballots.reason;
    reason[sizeof x->ballots.reason - 1] = '\0';
    if (x->rank == x->step.failed_rank) {
        return end_step(x, tg_fail(x->step.status, why, "%s", x->step.why.text));
    }
    return end_step(x, tg_fail(TG_E_PEER, why, "rank %u: %.230s", x->step.failed_rank, reason));
}

/* Leaves a step that a ballot has ended, or returns TG_OK if all ranks are well. */
static tg_status heed_ballots(tg_exchange *x, tg_op *op, tg_detail *why)
{
    switch (tg_ballots_judge(x, why)) {
    case TG_ALL_WELL: return TG_OK;
    case TG_RANK_FAILED:
        tg_ballots_ask_reason(x);
        return hand_out(x, op, TG_REASONING, TG_BROADCAST, x->ballots.sends, x->ballots.recvs);
    case TG_RANKS_DISAGREE: return end_step(x, TG_E_MISMATCH);
    case TG_NOT_A_BALLOT: break;
    }
    return end_step(x, TG_E_LINK);
}

static uint64_t hash_averages(const tg_exchange *x)
{
    const tg_layout *l = x->codec->layout;
    tg_hash_list hashes;
    tg_hash_list_start(&hashes);
    for (size_t t = 0; t < l->tensor_n; t++) {
        size_t len = (size_t)l->tensor_elements[t] * tg_dtype_len(l->tensors[t].dtype);
        tg_hash_list_append(&hashes, x->codec->executor->hash(x->step.grads[t], len));
    }
    return tg_hash_list_end(&hashes);
}

static tg_status compare_averages(tg_exchange *x, tg_detail *why)
{
    uint64_t first = tg_ballots_number(x, 0);
    for (uint32_t p = 1; p < x->world; p++) {
        if (tg_ballots_number(x, p) != first) {
            return end_step(x, tg_fail(TG_E_DIVERGED, why,
                                       "after step %" PRIu64 " rank %u holds other averages than rank 0",
                                       x->step.number, p));
        }
    }
    return end_step(x, TG_OK);
}

static tg_status finish_step(tg_exchange *x, tg_op *op)
{
    x->protocol->finish(x);
    x->done_step = x->step.number;
    x->any_done = true;
    if (x->verify_every != 0 && x->step.number % x->verify_every == 0) {
        uint64_t hash = hash_averages(x);
        return vote(x, op, TG_AUDIT, &hash);
    }
    return end_step(x, TG_OK);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------------ */

static tg_status begin_round(tg_exchange *x, tg_op *op)
{
    tg_mail *mail = &x->mail;
    memset(mail->sends, 0, x->world * sizeof *mail->sends);
    memset(mail->payload, 0, x->world * sizeof *mail->payload);
    mail->self = NULL;
    mail->self_len = 0;
    if (x->step.round == x->protocol->rounds(x)) {
        return vote(x, op, TG_CLOSING, NULL);
    }
    if (x->step.status == TG_OK) {
        x->step.status = x->protocol->send(x, x->step.round, &x->step.why);
    }
    return vote(x, op, TG_VOTING, NULL);
}

static tg_status send_messages(tg_exchange *x, tg_op *op, tg_detail *why)
{
    tg_mail *mail = &x->mail;
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t len = p == x->rank ? 0 : tg_ballots_number(x, p);
        if (len > mail->in_cap) {
            return end_step(x, tg_fail(TG_E_LINK, why,
                                       "rank %u announces a message of %" PRIu64 " bytes, more than any can have", p,
                                       len));
        }
        mail->in[p].len = (size_t)len;
        mail->recvs[p] = (tg_span){mail->in[p].data, len};
    }
    return hand_out(x, op, TG_TALKING, mail->kind, mail->sends, mail->recvs);
}

static tg_status receive_messages(tg_exchange *x, tg_op *op)
{
    x->step.status = x->protocol->receive(x, x->step.round, &x->step.why);
    x->step.round++;
    return begin_round(x, op);
}

tg_status tg_exchange_begin(tg_exchange *x, uint64_t step, void *const *grads, tg_detail *why)
{
    TG_NEED(x, why);
    if (x->codec->layout->tensor_n > 0) {
        TG_NEED(grads, why);
    }
    if (x->step.phase != TG_IDLE) {
        return tg_fail(TG_E_ARGUMENT, why, "step %" PRIu64 " has not ended; finish or cancel it first", x->step.number);
    }
    x->step = (tg_step){.phase = TG_SENDING, .number = step, .grads = grads};
    x->mail.root = 0;
    x->last = (tg_meter){.logical = x->logical, .dense = x->dense};
    x->step.status = tg_check_grads(x->codec, (const void *const *)grads, &x->step.why);
    return TG_OK;
}

tg_status tg_exchange_next(tg_exchange *x, tg_op *op, tg_detail *why)
{
    tg_status status = TG_OK;
    TG_NEED(x, why);
    TG_NEED(op, why);
    switch (x->step.phase) {
    case TG_SENDING: return begin_round(x, op);
    case TG_VOTING: status = heed_ballots(x, op, why); return status == TG_OK ? send_messages(x, op, why) : status;
    case TG_TALKING: return receive_messages(x, op);
    case TG_CLOSING: status = heed_ballots(x, op, why); return status == TG_OK ? finish_step(x, op) : status;
    case TG_AUDIT: status = heed_ballots(x, op, why); return status == TG_OK ? compare_averages(x, why) : status;
    case TG_REASONING: return give_reason(x, why);
    case TG_IDLE: break;
    }
    return tg_fail(TG_E_ARGUMENT, why, "no step has begun");
}

void tg_exchange_cancel(tg_exchange *x)
{
    if (x != NULL && x->step.phase != TG_IDLE) {
        (void)end_step(x, TG_E_LINK);
    }
}

/* ---- for protocols ------------------------------------------------------------------------------------------------------- */

void tg_exchange_send(tg_exchange *x, uint32_t p, const uint8_t *frame, const tg_framed *framed)
{
    if (p == x->rank) {
        x->mail.self = frame;
        x->mail.self_len = framed->len;
        return;
    }
    x->mail.sends[p] = (tg_span){(void *)(uintptr_t)frame, framed->len}; /* a span that is only read */
    x->mail.payload[p] = framed->payload_len;
}

void tg_exchange_send_all(tg_exchange *x, const uint8_t *frame, const tg_framed *framed)
{
    for (uint32_t p = 0; p < x->world; p++) {
        tg_exchange_send(x, p, frame, framed);
    }
}

tg_message tg_exchange_received(const tg_exchange *x, uint32_t p)
{
    if (p == x->rank) {
        return (tg_message){(uint8_t *)(uintptr_t)x->mail.self, x->mail.self_len};
    }
    return x->mail.in[p];
}

/* ---- facts --------------------------------------------------------------------------------------------------------------- */

const char *tg_exchange_name(const tg_exchange *x)
{
    return x == NULL ? NULL : x->protocol->name;
}

const char *tg_exchange_recipe(const tg_exchange *x, size_t tensor)
{
    return x == NULL ? NULL : tg_codec_recipe(x->codec, tensor);
}

void tg_exchange_meter(const tg_exchange *x, tg_meter *last, tg_meter *total)
{
    const tg_meter nothing = {0};
    if (last != NULL) {
        *last = x == NULL ? nothing : x->last;
    }
    if (total != NULL) {
        *total = x == NULL ? nothing : x->total;
    }
}

tg_status tg_exchange_traffic(tg_traffic *out, const tg_exchange *x, size_t tensor, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(x, why);
    if (x->protocol->state != NULL && tensor < x->codec->layout->tensor_n) {
        return x->protocol->state->traffic(out, x, tensor, why);
    }
    return tg_codec_traffic(out, x->codec, tensor, why);
}

tg_status tg_exchange_residual(const tg_exchange *x, float *out, size_t tensor, tg_detail *why)
{
    TG_NEED(x, why);
    if (x->protocol->state != NULL && tensor < x->codec->layout->tensor_n) {
        if (x->codec->layout->tensor_elements[tensor] > 0) {
            TG_NEED(out, why);
        }
        x->protocol->state->residual(x, out, tensor);
        return TG_OK;
    }
    return tg_codec_residual(x->codec, out, tensor, why);
}

void tg_exchange_learning(tg_learning *out, const tg_exchange *x)
{
    if (out == NULL) {
        return;
    }
    *out = (tg_learning){0};
    if (x != NULL && x->protocol->state != NULL && x->protocol->state->learning != NULL) {
        x->protocol->state->learning(out, x);
    }
}
