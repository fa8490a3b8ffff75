/* Lockstep link: runs all ranks in one thread, one operation at a time. For tests with any number of ranks and for virtual
 * workers. Its tap sees every message and can damage or drop it, to test faults. */
#include "exchange/exchange.h"
#include "tersegrad/experimental.h"

#include <inttypes.h>
#include <string.h>

/* Copies every rank's messages into the buffers of their receivers. */
static tg_status deliver(tg_exchange *const *ranks, uint32_t world, const tg_tap *tap, tg_detail *why)
{
    for (uint32_t to = 0; to < world; to++) {
        const tg_op *receiver = &ranks[to]->step.pending;
        for (uint32_t from = 0; from < world; from++) {
            const tg_op *sender = &ranks[from]->step.pending;
            const tg_span *sent = &sender->sends[to], *expected = &receiver->recvs[from];
            if (sender->kind != receiver->kind || sent->len != expected->len) {
                return tg_fail(TG_E_LINK, why, "rank %u sends %" PRIu64 " bytes, but rank %u expects %" PRIu64, from,
                               sent->len, to, expected->len);
            }
            if (sent->len == 0) {
                continue;
            }
            memcpy(expected->data, sent->data, (size_t)sent->len);
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

/* A step to begin. */
typedef struct start {
    uint64_t step;
    void *const *const *grads;
} start;

/* Advances every rank to its next operation, from the beginning of the step if `from` is not NULL. *waiting is how many have an
 * operation to carry out. */
static tg_status advance_all(uint32_t *waiting, tg_outcome *outcomes, tg_exchange *const *ranks, uint32_t world,
                             const start *from, tg_detail *why)
{
    tg_status first_failure = TG_OK;
    *waiting = 0;
    for (uint32_t r = 0; r < world; r++) {
        tg_outcome outcome = {TG_OK, {""}};
        tg_op op;
        if (from != NULL) {
            outcome.status = tg_exchange_begin(ranks[r], from->step, from->grads[r], &outcome.why);
        }
        if (outcome.status == TG_OK) {
            outcome.status = tg_exchange_next(ranks[r], &op, &outcome.why);
        }
        if (outcome.status == TG_MORE) {
            (*waiting)++;
            continue;
        }
        if (outcomes != NULL) {
            outcomes[r] = outcome;
        }
        if (outcome.status != TG_OK && first_failure == TG_OK) {
            first_failure = tg_fail(outcome.status, why, "%s", outcome.why.text);
        }
    }
    return first_failure;
}

/* A step from its beginning to its end. */
static tg_status run_step(tg_outcome *outcomes, tg_exchange *const *ranks, uint32_t world, const start *from,
                          const tg_tap *tap, tg_detail *why)
{
    for (;; from = NULL) {
        uint32_t waiting = 0;
        tg_detail reason = {""};
        tg_status status = advance_all(&waiting, outcomes, ranks, world, from, &reason);
        if (waiting == 0) {
            return status == TG_OK ? TG_OK : tg_fail(status, why, "%s", reason.text);
        }
        if (waiting == world) {
            status = deliver(ranks, world, tap, &reason);
        } else if (status == TG_OK) {
            status = tg_fail(TG_E_LINK, &reason, "some ranks have ended the step and others have not");
        }
        if (status != TG_OK) {
            cancel_waiting(outcomes, ranks, world, &reason);
            return tg_fail(status, why, "%s", reason.text);
        }
    }
}

tg_status tg_lockstep_reduce(tg_outcome *outcomes, tg_exchange *const *ranks, uint32_t world, uint64_t step,
                             void *const *const *grads, const tg_tap *tap, tg_detail *why)
{
    if (world > 0) {
        TG_NEED(ranks, why);
        TG_NEED(grads, why);
    }
    if (tap != NULL) {
        TG_NEED(tap->message, why);
    }
    for (uint32_t r = 0; r < world; r++) {
        TG_NEED(ranks[r], why);
        if (ranks[r]->step.phase != TG_IDLE) {
            return tg_fail(TG_E_ARGUMENT, why, "step %" PRIu64 " has not ended on rank %u; finish or cancel it first",
                           ranks[r]->step.number, r);
        }
        if (ranks[r]->codec->layout->tensor_n > 0) {
            TG_NEED(grads[r], why);
        }
        if (ranks[r]->codec->device != NULL) {
            return tg_fail(TG_E_ARGUMENT, why, "ranks in lockstep copy in host memory, and rank %u has a device", r);
        }
        if (ranks[r]->world != world || ranks[r]->rank != r) {
            return tg_fail(TG_E_ARGUMENT, why, "exchange %u belongs to rank %u of %u, not to rank %u of %u", r,
                           ranks[r]->rank, ranks[r]->world, r, world);
        }
    }
    const start from = {step, grads};
    return run_step(outcomes, ranks, world, &from, tap, why);
}
