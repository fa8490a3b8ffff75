/* Runs a step: rounds of ballots and messages, until it has succeeded on all ranks or failed on all ranks.
 *
 *     SAYING -> VOTING -> TALKING -> SAYING ...  once a round
 *            -> CLOSING -> (AUDIT) -> IDLE       all ranks are well: finish
 *     any ballot that tells of a failure -> REASON -> IDLE */
#include "exchange/exchange.h"
#include "exchange/lgc.h"
#include "exchange/lowrank.h"

#include "base/bytes.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- ballots ----------------------------------------------------------------------------------------------------------- */

/* status u32, zero u32, agreement u64, step u64, number u64, XXH64 of these 32 bytes. `number` is the length of the
 * message to come, or the hash of the averages in an audit. */
typedef struct ballot {
    tg_status status;
    uint64_t agreement, step, number;
} ballot;

static void put_ballot(uint8_t *at, const ballot *b)
{
    tg_put32(at, (uint32_t)-b->status);
    tg_put32(at + 4, 0);
    tg_put64(at + 8, b->agreement);
    tg_put64(at + 16, b->step);
    tg_put64(at + 24, b->number);
    tg_put64(at + 32, tg_hash(at, 32));
}

static bool get_ballot(ballot *b, const uint8_t *at)
{
    uint32_t status = tg_get32(at);
    *b = (ballot){.status = -(int)(status & 0xff),
                  .agreement = tg_get64(at + 8),
                  .step = tg_get64(at + 16),
                  .number = tg_get64(at + 24)};
    return status <= (uint32_t)-TG_E_NO_EFFECT && tg_get32(at + 4) == 0 && tg_get64(at + 32) == tg_hash(at, 32);
}

/* Hands out an operation and counts what it sends. */
static tg_status hand_out(tg_exchange *x, tg_op *op, tg_phase phase, tg_op_kind kind, const tg_span *sends,
                          const tg_span *recvs)
{
    x->phase = phase;
    *op = (tg_op){.kind = kind, .root = x->root, .rank = x->rank, .world = x->world, .sends = sends, .recvs = recvs};
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t payload = phase == TG_TALKING ? x->send_payload[p] : 0;
        x->last.payload += payload;
        x->last.header += sends[p].len - payload;
        x->last.received += recvs[p].len;
    }
    x->pending = *op;
    return TG_MORE;
}

/* Tells every rank how this one fares, with a number for each. */
static tg_status cast_ballots(tg_exchange *x, tg_op *op, tg_phase phase, const uint64_t *same_number)
{
    for (uint32_t p = 0; p < x->world; p++) {
        ballot b = {.status = x->status, .agreement = x->agreement, .step = x->step};
        b.number = same_number != NULL ? *same_number : x->sends[p].len;
        put_ballot(x->ballots_out + (size_t)p * TG_BALLOT_LEN, &b);
        uint64_t len = p == x->rank ? 0 : TG_BALLOT_LEN;
        x->small_sends[p] = (tg_span){x->ballots_out + (size_t)p * TG_BALLOT_LEN, len};
        x->small_recvs[p] = (tg_span){x->ballots_in + (size_t)p * TG_BALLOT_LEN, len};
    }
    return hand_out(x, op, phase, TG_ALLTOALLV, x->small_sends, x->small_recvs);
}

/* What the ballots say. `number` receives that of each rank. */
typedef enum verdict { ALL_WELL, RANK_FAILED, RANKS_DISAGREE, NOT_A_BALLOT } verdict;

static ballot ballot_of(const tg_exchange *x, uint32_t p, bool *intact)
{
    const uint8_t *from = p == x->rank ? x->ballots_out : x->ballots_in;
    ballot b;
    *intact = get_ballot(&b, from + (size_t)p * TG_BALLOT_LEN);
    return b;
}

/* Every rank sees the same ballots but for the numbers, and so comes to the same verdict. */
static verdict judge(tg_exchange *x, tg_detail *why)
{
    bool intact = true;
    ballot first = ballot_of(x, 0, &intact);
    verdict v = ALL_WELL;
    for (uint32_t p = 0; p < x->world; p++) {
        ballot b = ballot_of(x, p, &intact);
        if (!intact) {
            (void)tg_fail(TG_E_LINK, why, "what came from rank %u at step %" PRIu64 " is damaged", p, x->step);
            return NOT_A_BALLOT;
        }
        if (b.agreement != first.agreement) {
            (void)tg_fail(TG_E_MISMATCH, why,
                          "rank %u was set up with other tensors, another recipe, seed or options than rank 0", p);
            return RANKS_DISAGREE;
        }
        if (b.step != first.step) {
            (void)tg_fail(TG_E_MISMATCH, why, "rank %u is at step %" PRIu64 ", but rank 0 at step %" PRIu64, p, b.step,
                          first.step);
            return RANKS_DISAGREE;
        }
        if (b.status != TG_OK && v == ALL_WELL) {
            v = RANK_FAILED;
            x->failed_rank = p;
        }
    }
    return v;
}

/* ---- the end of a step ----------------------------------------------------------------------------------------------- */

static void add_to_total(tg_exchange *x)
{
    x->total.steps += x->last.steps;
    x->total.logical += x->last.logical;
    x->total.dense += x->last.dense;
    x->total.payload += x->last.payload;
    x->total.header += x->last.header;
    x->total.received += x->last.received;
}

static tg_status end_step(tg_exchange *x, tg_status status)
{
    x->phase = TG_IDLE;
    x->last.steps = status == TG_OK ? 1 : 0;
    add_to_total(x);
    return status;
}

static tg_status ask_reason(tg_exchange *x, tg_op *op)
{
    memset(x->reason, 0, sizeof x->reason);
    if (x->rank == x->failed_rank) {
        memcpy(x->reason, x->why.text, sizeof x->reason);
    }
    x->root = x->failed_rank;
    for (uint32_t p = 0; p < x->world; p++) {
        bool send = x->rank == x->root && p != x->rank;
        bool receive = x->rank != x->root && p == x->root;
        x->small_sends[p] = (tg_span){x->reason, send ? sizeof x->reason : 0};
        x->small_recvs[p] = (tg_span){x->reason, receive ? sizeof x->reason : 0};
    }
    return hand_out(x, op, TG_REASON, TG_BROADCAST, x->small_sends, x->small_recvs);
}

static tg_status give_reason(tg_exchange *x, tg_detail *why)
{
    x->reason[sizeof x->reason - 1] = '\0';
    if (x->rank == x->failed_rank) {
        return end_step(x, tg_fail(x->status, why, "%s", x->why.text));
    }
    return end_step(x, tg_fail(TG_E_PEER, why, "rank %u: %.230s", x->failed_rank, x->reason));
}

/* Leaves a step that a ballot has ended, or returns TG_OK if all ranks are well. */
static tg_status heed_ballots(tg_exchange *x, tg_op *op, tg_detail *why)
{
    switch (judge(x, why)) {
    case ALL_WELL: return TG_OK;
    case RANK_FAILED: return ask_reason(x, op);
    case RANKS_DISAGREE: return end_step(x, TG_E_MISMATCH);
    case NOT_A_BALLOT: break;
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
        tg_hash_list_append(&hashes, tg_hash(x->grads[t], len));
    }
    return tg_hash_list_end(&hashes);
}

static tg_status compare_averages(tg_exchange *x, tg_detail *why)
{
    bool intact = true;
    ballot first = ballot_of(x, 0, &intact);
    for (uint32_t p = 1; p < x->world; p++) {
        if (ballot_of(x, p, &intact).number != first.number) {
            return end_step(x, tg_fail(TG_E_DIVERGED, why,
                                       "after step %" PRIu64 " rank %u holds other averages than rank 0", x->step, p));
        }
    }
    return end_step(x, TG_OK);
}

static tg_status finish_step(tg_exchange *x, tg_op *op)
{
    x->protocol->finish(x);
    x->done_step = x->step;
    x->any_done = true;
    if (x->verify_every != 0 && x->step % x->verify_every == 0) {
        uint64_t hash = hash_averages(x);
        return cast_ballots(x, op, TG_AUDIT, &hash);
    }
    return end_step(x, TG_OK);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------------ */

static tg_status begin_round(tg_exchange *x, tg_op *op)
{
    for (uint32_t p = 0; p < x->world; p++) {
        x->sends[p] = (tg_span){NULL, 0};
        x->send_payload[p] = 0;
    }
    x->self = NULL;
    x->self_len = 0;
    if (x->round == x->protocol->rounds(x)) {
        return cast_ballots(x, op, TG_CLOSING, NULL);
    }
    if (x->status == TG_OK) {
        x->status = x->protocol->say(x, x->round, &x->why);
    }
    return cast_ballots(x, op, TG_VOTING, NULL);
}

static tg_status send_messages(tg_exchange *x, tg_op *op, tg_detail *why)
{
    for (uint32_t p = 0; p < x->world; p++) {
        bool intact = true;
        uint64_t len = p == x->rank ? 0 : ballot_of(x, p, &intact).number;
        if (len > x->in_cap) {
            return end_step(x, tg_fail(TG_E_LINK, why,
                                       "rank %u announces a message of %" PRIu64 " bytes, more than any can have", p,
                                       len));
        }
        x->in[p].len = (size_t)len;
        x->recvs[p] = (tg_span){x->in[p].data, len};
    }
    return hand_out(x, op, TG_TALKING, x->op_kind, x->sends, x->recvs);
}

static tg_status hear_messages(tg_exchange *x, tg_op *op)
{
    x->status = x->protocol->hear(x, x->round, &x->why);
    x->round++;
    return begin_round(x, op);
}

/* What a rank sends to all-reduce the gradients as they are: every slice but its own once on its way to the owner, and
 * its own to all others. */
static uint64_t dense_bytes(const tg_exchange *x)
{
    return x->logical / x->world * 2 * (x->world - 1) + x->logical % x->world * 2 * (x->world - 1) / x->world;
}

tg_status tg_exchange_begin(tg_exchange *x, uint64_t step, void *const *grads, tg_detail *why)
{
    TG_NEED(x, why);
    if (x->codec->layout->tensor_n > 0) {
        TG_NEED(grads, why);
    }
    if (x->phase != TG_IDLE) {
        return tg_fail(TG_E_ARGUMENT, why, "step %" PRIu64 " has not ended; finish or cancel it first", x->step);
    }
    x->step = step;
    x->grads = grads;
    x->round = 0;
    x->root = 0;
    x->last = (tg_meter){.logical = x->logical, .dense = dense_bytes(x)};
    x->status = tg_check_grads(x->codec, (const void *const *)grads, &x->why);
    if (x->lowrank != NULL) {
        TG_TRY(tg_lowrank_begin(x->lowrank, step, grads, x->status, &x->why, why));
    }
    x->phase = TG_SAYING;
    return TG_OK;
}

/* The exchanges inside do it all, but for what this one counts. */
static tg_status advance_lowrank(tg_exchange *x, tg_op *op, tg_detail *why)
{
    tg_status status = tg_lowrank_next(x->lowrank, op, why);
    if (status == TG_OK) {
        x->done_step = x->step;
        x->any_done = true;
    }
    if (status == TG_MORE) {
        x->pending = *op;
        return TG_MORE;
    }
    return end_step(x, status);
}

static tg_status advance(tg_exchange *x, tg_op *op, tg_detail *why)
{
    tg_status status = TG_OK;
    if (x->lowrank != NULL && x->phase != TG_IDLE) {
        return advance_lowrank(x, op, why);
    }
    switch (x->phase) {
    case TG_SAYING: return begin_round(x, op);
    case TG_VOTING: status = heed_ballots(x, op, why); return status == TG_OK ? send_messages(x, op, why) : status;
    case TG_TALKING: return hear_messages(x, op);
    case TG_CLOSING: status = heed_ballots(x, op, why); return status == TG_OK ? finish_step(x, op) : status;
    case TG_AUDIT: status = heed_ballots(x, op, why); return status == TG_OK ? compare_averages(x, why) : status;
    case TG_REASON: return give_reason(x, why);
    case TG_IDLE: break;
    }
    return tg_fail(TG_E_ARGUMENT, why, "no step has begun");
}

tg_status tg_exchange_next(tg_exchange *x, tg_op *op, tg_detail *why)
{
    TG_NEED(x, why);
    TG_NEED(op, why);
    x->ended = advance(x, op, why);
    return x->ended;
}

void tg_exchange_cancel(tg_exchange *x)
{
    if (x == NULL) {
        return;
    }
    if (x->lowrank != NULL) {
        tg_lowrank_cancel(x->lowrank);
    }
    if (x->phase != TG_IDLE) {
        (void)end_step(x, TG_E_LINK);
    }
}

/* ---- for protocols ------------------------------------------------------------------------------------------------------- */

void tg_exchange_send(tg_exchange *x, uint32_t p, const uint8_t *frame, const tg_framed *framed)
{
    if (p == x->rank) {
        x->self = frame;
        x->self_len = framed->len;
        return;
    }
    x->sends[p] = (tg_span){(void *)(uintptr_t)frame, framed->len}; /* a span that is only read */
    x->send_payload[p] = framed->payload_len;
}

void tg_exchange_send_all(tg_exchange *x, const uint8_t *frame, const tg_framed *framed)
{
    for (uint32_t p = 0; p < x->world; p++) {
        tg_exchange_send(x, p, frame, framed);
    }
}

tg_message tg_exchange_heard(const tg_exchange *x, uint32_t p)
{
    if (p == x->rank) {
        return (tg_message){(uint8_t *)(uintptr_t)x->self, x->self_len};
    }
    return x->in[p];
}

tg_status tg_exchange_read(tg_view *views, tg_exchange *x, uint32_t p, const tg_grid *grid, uint32_t slice,
                           unsigned holds, tg_detail *why)
{
    tg_message message = tg_exchange_heard(x, p);
    tg_expected expected = {
        .grid = grid, .slice = slice, .holds = holds, .check_author = true, .rank = p, .step = x->step};
    tg_detail reason = {""};
    tg_status status = tg_frame_read(views, NULL, x->codec, &expected, message.data, message.len, &reason);
    return status == TG_OK ? TG_OK : tg_fail(status, why, "from rank %u: %.200s", p, reason.text);
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
    tg_meter step = {0}, all = {0};
    if (x != NULL) {
        step = x->last;
        all = x->total;
    }
    if (x != NULL && x->lowrank != NULL) {
        tg_lowrank_meter(x->lowrank, &step, &all);
    }
    if (last != NULL) {
        *last = step;
    }
    if (total != NULL) {
        *total = all;
    }
}

tg_status tg_exchange_traffic(tg_traffic *out, const tg_exchange *x, size_t tensor, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(x, why);
    if (x->protocol->traffic != NULL && tensor < x->codec->layout->tensor_n) {
        return x->protocol->traffic(out, x, tensor, why);
    }
    return tg_codec_traffic(out, x->codec, tensor, why);
}

tg_status tg_exchange_residual(const tg_exchange *x, float *out, size_t tensor, tg_detail *why)
{
    TG_NEED(x, why);
    if (x->protocol->residual != NULL && tensor < x->codec->layout->tensor_n) {
        if (x->codec->layout->tensor_elements[tensor] > 0) {
            TG_NEED(out, why);
        }
        x->protocol->residual(x, out, tensor);
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
    if (x != NULL && x->lgc != NULL) {
        tg_lgc_learning(out, x->lgc);
    }
}
