/* Runs a step: votes, and all groups through their rounds, until it has succeeded on all ranks or failed on all ranks.
 *
 *     OPENING -> FLYING -> CLOSING -> (AUDIT) -> IDLE      OPENING: in the first step only
 *                       -> REASONING -> IDLE              if a rank has failed
 *
 * docs/steps.md describes it. */
#include "exchange/exchange.h"

#include "kernels/hash.h"

#include <inttypes.h>
#include <string.h>

/* ---- bookkeeping ------------------------------------------------------------------------------------------------------ */

void tg_step_add(tg_meter *meter, const tg_meter *more)
{
    meter->payload += more->payload;
    meter->header += more->header;
    meter->received += more->received;
    meter->between += more->between;
}

void tg_step_count(tg_exchange *x, tg_lane *lane, const tg_op *op, const size_t *payload)
{
    tg_meter bytes = {0};
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t payload_len = payload != NULL ? payload[p] : 0;
        bytes.payload += payload_len;
        bytes.header += op->sends[p].len - payload_len;
        bytes.received += op->recvs[p].len;
        bytes.between += p / x->host_size != x->rank / x->host_size ? op->sends[p].len : 0;
    }
    tg_step_add(&x->counts.last, &bytes);
    if (lane != NULL) {
        tg_step_add(&lane->counts.last, &bytes);
    }
}

/* Ends the count of a step. */
static void add_up(tg_counts *counts, bool is_well)
{
    tg_meter *total = &counts->total, *last = &counts->last;
    last->steps = is_well ? 1 : 0;
    total->steps += last->steps;
    total->logical += last->logical;
    total->dense += last->dense;
    tg_step_add(total, last);
    total->encode_ns += last->encode_ns;
    total->decode_ns += last->decode_ns;
    total->wire_ns += last->wire_ns;
    total->wait_ns += last->wait_ns;
    total->exposed_ns += last->exposed_ns;
}

/* Ends the count of a step, of all groups and of all of it. */
static void add_up_all(tg_exchange *x, bool is_well)
{
    for (uint32_t g = 0; g < x->lane_n; g++) {
        const tg_meter *lane = &x->lanes[g].counts.last;
        x->counts.last.encode_ns += lane->encode_ns;
        x->counts.last.decode_ns += lane->decode_ns;
        x->counts.last.wait_ns += lane->wait_ns;
        add_up(&x->lanes[g].counts, is_well);
    }
    add_up(&x->counts, is_well);
}

void tg_step_expose(tg_exchange *x, uint64_t ns)
{
    x->counts.last.exposed_ns += ns;
    x->counts.total.exposed_ns += ns;
}

void tg_step_fail(tg_exchange *x, tg_status status, const tg_detail *why)
{
    if (x->step.status == TG_OK) {
        x->step.status = tg_fail(status, &x->step.why, "%s", why->text);
    }
}

void tg_step_close(tg_exchange *x)
{
    x->step.phase = TG_CLOSING;
}

void tg_step_end(tg_exchange *x, tg_status status)
{
    if (x->hosts != NULL) {
        tg_hosts_end(x);
    }
    x->step.phase = TG_IDLE;
    x->votes.is_cast = false;
    add_up_all(x, status == TG_OK);
}

static tg_status end_step(tg_exchange *x, tg_status status)
{
    tg_step_end(x, status);
    return status;
}

/* ---- what a vote says -------------------------------------------------------------------------------------------------- */

static uint32_t later_rank(const tg_extreme e[2])
{
    return e[0].rank > e[1].rank ? e[0].rank : e[1].rank;
}

static uint32_t earlier_rank(const tg_extreme e[2])
{
    return e[0].rank < e[1].rank ? e[0].rank : e[1].rank;
}

/* The value of one of the two ranks. */
static uint64_t value_of(const tg_extreme e[2], uint32_t rank)
{
    return e[0].rank == rank ? e[0].value : e[1].value;
}

static uint32_t failed_rank(const tg_exchange *x)
{
    return x->votes.known.failed & ~(UINT32_C(1) << 31);
}

/* The failed rank sends its reason to all. */
static tg_status ask_reason(tg_exchange *x, tg_op *op)
{
    tg_votes *votes = &x->votes;
    uint32_t failed = failed_rank(x);
    memset(votes->reason, 0, sizeof votes->reason);
    if (x->rank == failed) {
        memcpy(votes->reason, x->step.why.text, sizeof votes->reason);
    }
    for (uint32_t p = 0; p < x->world; p++) {
        bool sends = x->rank == failed && p != failed, receives = x->rank != failed && p == failed;
        votes->sends[p] = (tg_span){votes->reason, sends ? sizeof votes->reason : 0};
        votes->recvs[p] = (tg_span){votes->reason, receives ? sizeof votes->reason : 0};
    }
    x->step.phase = TG_REASONING;
    *op = (tg_op){.kind = TG_BROADCAST,
                  .root = failed,
                  .rank = x->rank,
                  .world = x->world,
                  .sends = votes->sends,
                  .recvs = votes->recvs};
    tg_step_count(x, NULL, op, NULL);
    return TG_MORE;
}

static tg_status give_reason(tg_exchange *x, tg_detail *why)
{
    uint32_t failed = failed_rank(x);
    x->votes.reason[sizeof x->votes.reason - 1] = '\0';
    if (failed == x->rank) {
        return tg_fail(x->step.status, why, "%s", x->step.why.text);
    }
    return tg_fail(TG_E_PEER, why, "rank %u: %.230s", failed, x->votes.reason);
}

/* Every rank knows the same, and so comes to the same verdict. */
static tg_status judge(const tg_exchange *x, tg_detail *why)
{
    const tg_vote *v = &x->votes.known;
    if (v->agreement[0].value != v->agreement[1].value) {
        return tg_fail(TG_E_MISMATCH, why,
                       "rank %u was set up with other tensors, another recipe, seed or options than rank %u",
                       later_rank(v->agreement), earlier_rank(v->agreement));
    }
    if (v->step[0].value != v->step[1].value) {
        uint32_t later = later_rank(v->step), earlier = earlier_rank(v->step);
        return tg_fail(TG_E_MISMATCH, why, "rank %u is at step %" PRIu64 ", but rank %u at step %" PRIu64, later,
                       value_of(v->step, later), earlier, value_of(v->step, earlier));
    }
    if (v->number[0].value != v->number[1].value) {
        return tg_fail(TG_E_DIVERGED, why, "after step %" PRIu64 " rank %u holds other averages than rank %u",
                       x->step.number, later_rank(v->number), earlier_rank(v->number));
    }
    return TG_OK;
}

static uint64_t hash_averages(const tg_exchange *x)
{
    const tg_layout *l = x->codec->layout;
    uint64_t hashes[2] = {0, 0}; /* of all tensors before, and of the next */
    for (size_t t = 0; t < l->tensor_n; t++) {
        size_t len = (size_t)l->tensor_elements[t] * tg_dtype_len(l->tensors[t].dtype);
        hashes[1] = x->codec->executor->hash(x->codec->run, x->step.grads[t], len);
        hashes[0] = tg_hash_words(hashes, 2);
    }
    return hashes[0];
}

static bool has_audit(const tg_exchange *x)
{
    return x->verify_every != 0 && x->step.number % x->verify_every == 0;
}

/* ---- a step ------------------------------------------------------------------------------------------------------------ */

/* All ranks are well. */
static void finish(tg_exchange *x)
{
    if (x->hosts != NULL) {
        tg_hosts_finish(x);
        return;
    }
    if (x->protocol->finish != NULL) {
        x->protocol->finish(x);
        return;
    }
    for (uint32_t g = 0; g < x->lane_n && !x->step.is_spared; g++) {
        x->protocol->deliver(x, g, x->step.grads);
    }
    x->protocol->commit(x);
}

tg_status tg_step_vote(tg_exchange *x, tg_op *op, tg_detail *why)
{
    if (x->step.phase == TG_REASONING) {
        return end_step(x, give_reason(x, why));
    }
    for (;;) {
        uint64_t number = x->step.phase == TG_AUDIT && !x->votes.is_cast ? hash_averages(x) : 0;
        tg_status status = tg_vote_next(x, op, number, why);
        if (status == TG_MORE) {
            return TG_MORE;
        }
        status = status == TG_OK ? judge(x, why) : status;
        if (status != TG_OK) {
            return end_step(x, status);
        }
        if (x->votes.known.failed != TG_NOBODY_FAILED) {
            return ask_reason(x, op);
        }
        if (x->step.phase == TG_OPENING) {
            x->step.phase = TG_FLYING;
            return TG_OK;
        }
        if (x->step.phase == TG_CLOSING) {
            uint64_t begin = tg_step_now(x);
            finish(x);
            x->counts.last.decode_ns += tg_step_now(x) - begin;
            x->is_open = true;
            x->done.step = x->step.number;
            x->done.any = true;
        }
        if (x->step.phase == TG_AUDIT || !has_audit(x)) {
            return end_step(x, TG_OK);
        }
        x->step.phase = TG_AUDIT;
    }
}

static bool all_done(const tg_exchange *x)
{
    for (uint32_t g = 0; g < x->lane_n; g++) {
        if (!tg_lane_is_done(x, g)) {
            return false;
        }
    }
    return true;
}

/* All groups, one after the other, until they are done or wait for lengths. */
static tg_status sweep_groups(tg_exchange *x, tg_op *op, tg_detail *why)
{
    for (; x->step.group < x->lane_n; x->step.group++) {
        tg_status status = tg_lane_next(x, x->step.group, op, why);
        if (status != TG_OK) {
            return status;
        }
    }
    x->step.group = 0;
    return TG_OK;
}

/* One announcement, of all groups that wait for lengths. */
static tg_status announce(tg_exchange *x, tg_op *op, tg_detail *why)
{
    tg_step *step = &x->step;
    tg_status status =
        step->is_announcing ? tg_lengths_next(x, step->slot, op, why) : tg_lengths_start(x, &step->slot, op, false);
    step->is_announcing = status == TG_MORE;
    return status;
}

/* Sweeps, with announcements in between. */
static tg_status fly_in_turn(tg_exchange *x, tg_op *op, tg_detail *why)
{
    tg_status status = TG_OK;
    x->step.is_in_turn = true;
    while (status == TG_OK) {
        status = x->step.is_announcing ? TG_OK : sweep_groups(x, op, why);
        if (status == TG_OK && all_done(x)) {
            tg_step_close(x);
            return TG_OK;
        }
        status = status == TG_OK ? announce(x, op, why) : status;
    }
    return status == TG_MORE ? TG_MORE : end_step(x, status);
}

void tg_step_begin(tg_exchange *x, tg_phase phase, uint64_t number, void *const *grads)
{
    x->step = (tg_step){.phase = phase, .number = number, .grads = grads};
    for (uint32_t g = 0; g < x->lane_n; g++) {
        tg_lane *lane = &x->lanes[g];
        lane->phase = TG_LANE_START;
        lane->round = 0;
        lane->counts.last = (tg_meter){.logical = lane->counts.logical, .dense = lane->counts.dense};
    }
    x->counts.last = (tg_meter){.logical = x->counts.logical, .dense = x->counts.dense};
    if (x->hosts != NULL) {
        tg_hosts_begin(x);
    } else {
        tg_lengths_begin(x);
    }
}

void tg_step_spare(tg_exchange *x)
{
    x->step.is_spared = !has_audit(x); /* which compares the averages of all ranks */
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
    if (x->protocol->deliver == NULL && x->protocol->finish == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "the exchange scatters: its steps are those of tg_reduce_scatter");
    }
    tg_step_begin(x, x->is_open ? TG_FLYING : TG_OPENING, step, grads);
    return TG_OK;
}

tg_status tg_exchange_next(tg_exchange *x, tg_op *op, tg_detail *why)
{
    tg_status status = TG_OK;
    TG_NEED(x, why);
    TG_NEED(op, why);
    if (x->step.phase == TG_IDLE) {
        return tg_fail(TG_E_ARGUMENT, why, "no step has begun");
    }
    while (status == TG_OK && x->step.phase != TG_IDLE) {
        status = x->step.phase == TG_FLYING ? fly_in_turn(x, op, why) : tg_step_vote(x, op, why);
    }
    if (status == TG_MORE) {
        x->step.pending = *op;
    }
    return status;
}

void tg_exchange_cancel(tg_exchange *x)
{
    if (x != NULL && x->step.phase != TG_IDLE) {
        (void)end_step(x, TG_E_LINK);
    }
}
