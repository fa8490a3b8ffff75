/* Runs a step: rounds of ballots and messages, until it has succeeded on all ranks or failed on all ranks.
 *
 *     SENDING -> VOTING -> TALKING -> SENDING ...  once a round
 *             -> CLOSING -> (AUDIT) -> IDLE        all ranks are well: finish
 *     any ballot that tells of a failure -> REASONING -> IDLE */
#include "exchange/exchange.h"

#include "base/fields.h"
#include "kernels/hash.h"

#include <inttypes.h>
#include <string.h>

/* ---- ballots: ranks tell each other that they are well before anything changes ----------------------------------------- */

/* A ballot: status u32, zero u32, agreement u64, step u64, number u64, hash of these 32 bytes. `number` is the length of the
 * message to come, or the hash of the averages in an audit. */
enum { AGREEMENT = 8, STEP = 16, NUMBER = 24, HASH = 32 };

/* What the ballots of a round say. */
typedef enum verdict { ALL_WELL, RANK_FAILED, RANKS_DISAGREE, NOT_A_BALLOT } verdict;

typedef struct ballot {
    tg_status status;
    uint64_t agreement, step, number;
} ballot;

/* Fills in the ballots to all ranks, with this rank's status; `number` for all, or NULL: the length of each rank's message. */
static void cast_ballots(tg_exchange *x, const uint64_t *number)
{
    tg_ballots *ballots = &x->ballots;
    for (uint32_t p = 0; p < x->world; p++) {
        uint8_t *at = ballots->out + (size_t)p * TG_BALLOT_LEN;
        uint64_t len = p == x->rank ? 0 : TG_BALLOT_LEN;
        tg_put_field(at, 8, (uint32_t)-x->step.status);
        tg_put_field(at + AGREEMENT, 8, x->agreement);
        tg_put_field(at + STEP, 8, x->step.number);
        tg_put_field(at + NUMBER, 8, number != NULL ? *number : x->mail.sends[p].len);
        tg_put_field(at + HASH, 8, tg_hash(at, HASH));
        ballots->sends[p] = (tg_span){at, len};
        ballots->recvs[p] = (tg_span){ballots->in + (size_t)p * TG_BALLOT_LEN, len};
    }
}

/* The ballot of rank p; false: what came is none. */
static bool read_ballot(ballot *b, const tg_exchange *x, uint32_t p)
{
    const uint8_t *at = (p == x->rank ? x->ballots.out : x->ballots.in) + (size_t)p * TG_BALLOT_LEN;
    uint64_t status = tg_get_field(at, 8);
    *b = (ballot){.status = -(int)(status & 0xff),
                  .agreement = tg_get_field(at + AGREEMENT, 8),
                  .step = tg_get_field(at + STEP, 8),
                  .number = tg_get_field(at + NUMBER, 8)};
    return status <= (uint64_t)-TG_E_NO_EFFECT && tg_get_field(at + HASH, 8) == tg_hash(at, HASH);
}

/* Every rank sees the same ballots but for their numbers, and so comes to the same verdict. Of a failed rank,
 * x->step.failed_rank is set; of the last two, the sentence. */
static verdict judge(tg_exchange *x, tg_detail *why)
{
    verdict v = ALL_WELL;
    ballot first = {TG_OK, 0, 0, 0}, b;
    for (uint32_t p = 0; p < x->world; p++) {
        if (!read_ballot(&b, x, p)) {
            (void)tg_fail(TG_E_LINK, why, "what came from rank %u at step %" PRIu64 " is damaged", p, x->step.number);
            return NOT_A_BALLOT;
        }
        first = p == 0 ? b : first;
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
            x->step.failed_rank = p;
        }
    }
    return v;
}

/* The number on rank p's ballot. */
static uint64_t number_of(const tg_exchange *x, uint32_t p)
{
    return tg_get_field((p == x->rank ? x->ballots.out : x->ballots.in) + (size_t)p * TG_BALLOT_LEN + NUMBER, 8);
}

/* Spans in which the failed rank sends its reason to all. */
static void ask_reason(tg_exchange *x)
{
    tg_ballots *ballots = &x->ballots;
    memset(ballots->reason, 0, sizeof ballots->reason);
    if (x->rank == x->step.failed_rank) {
        memcpy(ballots->reason, x->step.why.text, sizeof ballots->reason);
    }
    x->mail.root = x->step.failed_rank;
    for (uint32_t p = 0; p < x->world; p++) {
        bool sends = x->rank == x->mail.root && p != x->rank;
        bool receives = x->rank != x->mail.root && p == x->mail.root;
        ballots->sends[p] = (tg_span){ballots->reason, sends ? sizeof ballots->reason : 0};
        ballots->recvs[p] = (tg_span){ballots->reason, receives ? sizeof ballots->reason : 0};
    }
}

/* ---- operations ------------------------------------------------------------------------------------------------------- */

/* Hands out an operation and counts what it sends. */
static tg_status hand_out(tg_exchange *x, tg_op *op, tg_phase phase, tg_op_kind kind, const tg_span *sends,
                          const tg_span *recvs)
{
    x->step.phase = phase;
    *op =
        (tg_op){.kind = kind, .root = x->mail.root, .rank = x->rank, .world = x->world, .sends = sends, .recvs = recvs};
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t payload = phase == TG_TALKING ? x->mail.payload[p] : 0;
        x->counts.last.payload += payload;
        x->counts.last.header += sends[p].len - payload;
        x->counts.last.received += recvs[p].len;
    }
    x->step.pending = *op;
    return TG_MORE;
}

static tg_status vote(tg_exchange *x, tg_op *op, tg_phase phase, const uint64_t *number)
{
    cast_ballots(x, number);
    return hand_out(x, op, phase, TG_ALLTOALLV, x->ballots.sends, x->ballots.recvs);
}

/* ---- the end of a step ----------------------------------------------------------------------------------------------- */

static tg_status end_step(tg_exchange *x, tg_status status)
{
    tg_meter *total = &x->counts.total;
    x->step.phase = TG_IDLE;
    x->counts.last.steps = status == TG_OK ? 1 : 0;
    total->steps += x->counts.last.steps;
    total->logical += x->counts.last.logical;
    total->dense += x->counts.last.dense;
    total->payload += x->counts.last.payload;
    total->header += x->counts.last.header;
    total->received += x->counts.last.received;
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
    switch (judge(x, why)) {
    case ALL_WELL: return TG_OK;
    case RANK_FAILED:
        ask_reason(x);
        return hand_out(x, op, TG_REASONING, TG_BROADCAST, x->ballots.sends, x->ballots.recvs);
    case RANKS_DISAGREE: return end_step(x, TG_E_MISMATCH);
    case NOT_A_BALLOT: break;
    }
    return end_step(x, TG_E_LINK);
}

static uint64_t hash_averages(const tg_exchange *x)
{
    const tg_layout *l = x->codec->layout;
    uint64_t hashes[2] = {0, 0}; /* of all tensors before, and of the next */
    for (size_t t = 0; t < l->tensor_n; t++) {
        size_t len = (size_t)l->tensor_elements[t] * tg_dtype_len(l->tensors[t].dtype);
        hashes[1] = x->codec->executor->hash(x->step.grads[t], len);
        hashes[0] = tg_hash_words(hashes, 2);
    }
    return hashes[0];
}

static tg_status compare_averages(tg_exchange *x, tg_detail *why)
{
    uint64_t first = number_of(x, 0);
    for (uint32_t p = 1; p < x->world; p++) {
        if (number_of(x, p) != first) {
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
    x->done.step = x->step.number;
    x->done.any = true;
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
        uint64_t len = p == x->rank ? 0 : number_of(x, p);
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
    x->counts.last = (tg_meter){.logical = x->counts.logical, .dense = x->counts.dense};
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
