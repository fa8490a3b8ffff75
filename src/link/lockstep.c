/* Lockstep link: runs all ranks in one thread, one operation at a time. For tests with any number of ranks and for virtual
 * workers. Its tap sees every message and can damage or drop it, to test faults. Frames of ranks with a device are in its memory, and
 * are copied there; votes and lengths are in host memory. */
#include "exchange/exchange.h"
#include "tersegrad/experimental.h"

#include <inttypes.h>
#include <string.h>

/* The group whose frames the operation that a rank waits for carries, which are where its executor works; NULL: votes or lengths. */
static const tg_lane *lane_of(const tg_exchange *x)
{
    for (uint32_t g = 0; g < x->lane_n; g++) {
        if (x->step.pending.sends == x->lanes[g].mail.sends) {
            return &x->lanes[g];
        }
    }
    return NULL;
}

/* Whether a rank looks at what it receives. */
static bool looks(const tg_exchange *x)
{
    const tg_lane *lane = lane_of(x);
    return lane == NULL || !tg_lane_is_spared(x, lane);
}

/* Whether some rank with another device than this one reads frames. */
static bool is_read_by_others(tg_exchange *const *ranks, uint32_t world, const tg_device *device)
{
    for (uint32_t r = 0; r < world; r++) {
        if (ranks[r]->codec->device != device && lane_of(ranks[r]) != NULL && looks(ranks[r])) {
            return true;
        }
    }
    return false;
}

/* Frames that a rank sends are complete before another one's device reads them. */
static void complete_frames(tg_exchange *const *ranks, uint32_t world)
{
    for (uint32_t r = 0; r < world; r++) {
        const tg_codec *codec = ranks[r]->codec;
        if (codec->device != NULL && lane_of(ranks[r]) != NULL && is_read_by_others(ranks, world, codec->device)) {
            codec->executor->wait(codec->run);
        }
    }
}

/* Copies a message to where its receiver wants it. */
static tg_status copy(void *to, const tg_exchange *receiver, const void *from, const tg_exchange *sender, uint64_t len,
                      tg_detail *why)
{
    const tg_codec *in = receiver->codec, *out = sender->codec;
    const uint8_t *copied = NULL;
    bool is_frame = lane_of(sender) != NULL;
    if (is_frame && in->device != NULL) { /* from memory of any kind */
        in->executor->store(in->device, to, from, (size_t)len);
    } else if (is_frame && out->device != NULL) {
        return out->executor->fetch(&copied, to, out->device, NULL, from, (size_t)len, why);
    } else {
        memcpy(to, from, (size_t)len);
    }
    return TG_OK;
}

/* Copies every rank's messages into the buffers of their receivers. */
static tg_status deliver(tg_exchange *const *ranks, uint32_t world, const tg_tap *tap, tg_detail *why)
{
    complete_frames(ranks, world);
    for (uint32_t to = 0; to < world; to++) {
        const tg_op *receiver = &ranks[to]->step.pending;
        for (uint32_t from = 0; from < world; from++) {
            const tg_op *sender = &ranks[from]->step.pending;
            const tg_span *sent = &sender->sends[to], *expected = &receiver->recvs[from];
            if (sender->kind != receiver->kind || sent->len != expected->len) {
                return tg_fail(TG_E_LINK, why, "rank %u sends %" PRIu64 " bytes, but rank %u expects %" PRIu64, from,
                               sent->len, to, expected->len);
            }
            if (sent->len == 0 || !looks(ranks[to])) {
                continue;
            }
            TG_TRY(copy(expected->data, ranks[to], sent->data, ranks[from], sent->len, why));
            if (tap != NULL && tap->message(tap->context, sender->kind, from, to, expected->data, expected->len) < 0) {
                return tg_fail(TG_E_LINK, why, "the message from rank %u to rank %u was lost", from, to);
            }
        }
    }
    return TG_OK;
}

/* Cancels the step on all ranks that still wait for an operation. */
static void cancel_waiting(tg_outcome *outcomes, tg_exchange *const *ranks, uint32_t world, const tg_detail *reason)
{
    for (uint32_t r = 0; r < world; r++) {
        if (ranks[r]->step.phase != TG_IDLE) {
            tg_exchange_cancel(ranks[r]);
            if (outcomes != NULL) {
                outcomes[r] = (tg_outcome){TG_E_LINK, *reason};
            }
        }
    }
}

/* What has come of the step on the ranks. */
typedef struct progress {
    tg_outcome *outcomes; /* NULL: nobody asks */
    uint32_t waiting;     /* ranks that have an operation to carry out */
    tg_status status;     /* of the first rank that has failed ... */
    tg_detail why;        /* ... and its reason */
} progress;

/* Notes how far rank r has come. */
static void note(progress *p, uint32_t r, const tg_outcome *outcome)
{
    if (outcome->status == TG_MORE) {
        p->waiting++;
        return;
    }
    if (p->outcomes != NULL) {
        p->outcomes[r] = *outcome;
    }
    if (outcome->status != TG_OK && p->status == TG_OK) {
        p->status = outcome->status;
        p->why = outcome->why;
    }
}

/* Advances a rank to its next operation. */
static tg_outcome advance(tg_exchange *x)
{
    tg_outcome outcome = {TG_OK, {""}};
    tg_op op;
    outcome.status = tg_exchange_next(x, &op, &outcome.why);
    return outcome;
}

/* Carries out operations until the step has ended. `p` has the ranks that wait for one. */
static tg_status run_step(progress *p, tg_exchange *const *ranks, uint32_t world, const tg_tap *tap, tg_detail *why)
{
    while (p->waiting > 0) {
        if (p->waiting == world) {
            p->status = deliver(ranks, world, tap, &p->why);
        } else if (p->status == TG_OK) {
            p->status = tg_fail(TG_E_LINK, &p->why, "some ranks have ended the step and others have not");
        }
        if (p->status != TG_OK) {
            cancel_waiting(p->outcomes, ranks, world, &p->why);
            break;
        }
        p->waiting = 0;
        for (uint32_t r = 0; r < world; r++) {
            tg_outcome outcome = advance(ranks[r]);
            note(p, r, &outcome);
        }
    }
    return p->status == TG_OK ? TG_OK : tg_fail(p->status, why, "%s", p->why.text);
}

/* ---- the public functions ----------------------------------------------------------------------------------------------- */

static tg_status check_ranks(tg_exchange *const *ranks, uint32_t world, const tg_tap *tap, tg_detail *why)
{
    if (world > 0) {
        TG_NEED(ranks, why);
    }
    if (tap != NULL) {
        TG_NEED(tap->message, why);
    }
    for (uint32_t r = 0; r < world; r++) {
        TG_NEED(ranks[r], why);
        if (tap != NULL && ranks[r]->codec->device != NULL) {
            return tg_fail(TG_E_ARGUMENT, why, "a tap sees messages in host memory, and rank %u has a device", r);
        }
        if (ranks[r]->world != world || ranks[r]->rank != r) {
            return tg_fail(TG_E_ARGUMENT, why, "exchange %u belongs to rank %u of %u, not to rank %u of %u", r,
                           ranks[r]->rank, ranks[r]->world, r, world);
        }
    }
    return TG_OK;
}

tg_status tg_lockstep_reduce(tg_outcome *outcomes, tg_exchange *const *ranks, uint32_t world, uint64_t step,
                             void *const *const *grads, const tg_tap *tap, tg_detail *why)
{
    TG_TRY(check_ranks(ranks, world, tap, why));
    if (world > 0) {
        TG_NEED(grads, why);
    }
    for (uint32_t r = 0; r < world; r++) {
        if (ranks[r]->step.phase != TG_IDLE) {
            return tg_fail(TG_E_ARGUMENT, why, "step %" PRIu64 " has not ended on rank %u; finish or cancel it first",
                           ranks[r]->step.number, r);
        }
        if (ranks[r]->codec->layout->tensor_n > 0) {
            TG_NEED(grads[r], why);
        }
    }
    progress p = {.outcomes = outcomes};
    for (uint32_t r = 0; r < world; r++) {
        tg_outcome outcome = {TG_OK, {""}};
        outcome.status = tg_exchange_begin(ranks[r], step, grads[r], &outcome.why);
        if (outcome.status == TG_OK) {
            outcome = advance(ranks[r]);
        }
        note(&p, r, &outcome);
    }
    return run_step(&p, ranks, world, tap, why);
}

tg_status tg_lockstep_begin(tg_exchange *x, uint64_t step, void *const *grads, uint32_t takes, tg_detail *why)
{
    tg_op op;
    TG_TRY(tg_exchange_begin(x, step, grads, why));
    if (takes == 0) {
        tg_step_spare(x);
    }
    tg_status status = tg_exchange_next(x, &op, why);
    return status == TG_MORE ? TG_OK : status;
}

tg_status tg_lockstep_end(tg_outcome *outcomes, tg_exchange *const *ranks, uint32_t world, const tg_tap *tap,
                          tg_detail *why)
{
    TG_TRY(check_ranks(ranks, world, tap, why));
    progress p = {.outcomes = outcomes};
    for (uint32_t r = 0; r < world; r++) {
        const tg_outcome outcome = {ranks[r]->step.phase == TG_IDLE ? TG_OK : TG_MORE, {""}};
        note(&p, r, &outcome);
    }
    return run_step(&p, ranks, world, tap, why);
}
