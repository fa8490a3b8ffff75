/* Runs a whole step over any link: the link carries out the operations of the exchange until the step is done. */
#include "base/status.h"

#include <stdbool.h>

tg_status tg_reduce(tg_exchange *x, tg_link *link, uint64_t step, void *const *grads, tg_detail *why)
{
    TG_NEED(x, why);
    TG_NEED(link, why);
    TG_NEED(link->carry, why);
    TG_NEED(link->abort, why);
    tg_detail reason = {""};
    tg_op op;
    tg_status status = tg_exchange_begin(x, step, grads, &reason);
    bool peers_know = false;
    while (status == TG_OK || status == TG_MORE) {
        status = tg_exchange_next(x, &op, &reason);
        if (status != TG_MORE) {
            /* An exchange fails on all ranks alike, unless the link itself has failed. */
            peers_know = status != TG_E_LINK;
            break;
        }
        status = link->carry(link, &op, &reason);
        if (status != TG_OK) {
            tg_exchange_cancel(x);
            break;
        }
    }
    if (status == TG_OK) {
        return TG_OK;
    }
    if (!peers_know) {
        link->abort(link, reason.text);
    }
    return tg_fail(status, why, "%s", reason.text);
}
