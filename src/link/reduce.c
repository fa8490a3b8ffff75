/* Runs a whole step over any link: the link carries out the operations of the exchange until the step is done. */
#include "link/reduce.h"

#include "exchange/exchange.h"
#include "link/clock.h"
#include "tersegrad/scatter.h"

tg_status tg_carry_step(tg_exchange *x, tg_link *link, tg_detail *why)
{
    tg_detail reason = {""};
    tg_op op;
    for (;;) {
        tg_status status = tg_exchange_next(x, &op, &reason);
        bool peers_know =
            status != TG_E_LINK; /* an exchange fails on all ranks alike, unless the link itself has failed */
        if (status == TG_OK) {
            return TG_OK;
        }
        if (status == TG_MORE) {
            uint64_t begin = tg_now_ns();
            status = link->carry(link, &op, &reason);
            x->counts.last.wire_ns += tg_now_ns() - begin;
            peers_know = false;
        }
        if (status == TG_OK) {
            continue;
        }
        tg_exchange_cancel(x);
        if (!peers_know) {
            link->abort(link, reason.text);
        }
        return tg_fail(status, why, "%s", reason.text);
    }
}

tg_status tg_reduce_scatter(tg_exchange *x, tg_link *link, uint64_t step, void *const *out, const void *const *inputs,
                            float divisor, tg_detail *why)
{
    TG_NEED(x, why);
    TG_NEED(link, why);
    TG_NEED(link->carry, why);
    TG_NEED(link->abort, why);
    if (x->codec->layout->tensor_n > 0) {
        TG_NEED(out, why);
    }
    tg_detail reason = {""};
    tg_op op;
    uint64_t begin = tg_now_ns();
    x->now = tg_now_ns;
    tg_status status = tg_scatter_begin(&op, x, step, inputs, &reason);
    bool is_refused = x->step.status != TG_OK, peers_know = false; /* what this rank sends says so */
    if (status == TG_OK) {
        uint64_t sent = tg_now_ns();
        status = link->carry(link, &op, &reason);
        x->counts.last.wire_ns += tg_now_ns() - sent;
        if (status == TG_OK) {
            status = tg_scatter_end(x, out, divisor, &reason);
            peers_know = status == TG_E_PEER || is_refused;
        }
    }
    tg_exchange_cancel(x);
    tg_step_expose(x, tg_now_ns() - begin);
    if (status != TG_OK && !peers_know) {
        link->abort(link, reason.text);
    }
    return status == TG_OK ? TG_OK : tg_fail(status, why, "%s", reason.text);
}

tg_status tg_reduce(tg_exchange *x, tg_link *link, uint64_t step, void *const *grads, tg_detail *why)
{
    TG_NEED(x, why);
    TG_NEED(link, why);
    TG_NEED(link->carry, why);
    TG_NEED(link->abort, why);
    tg_detail reason = {""};
    tg_status status = tg_exchange_begin(x, step, grads, &reason);
    if (status != TG_OK) {
        link->abort(link, reason.text);
        return tg_fail(status, why, "%s", reason.text);
    }
    uint64_t begin = tg_now_ns();
    x->now = tg_now_ns;
    status = tg_carry_step(x, link, why);
    tg_step_expose(x, tg_now_ns() - begin);
    return status;
}
