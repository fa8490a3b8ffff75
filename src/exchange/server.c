/* Server: rank 0 gathers all frames, takes the mean, and answers with it encoded once more; what the answer loses stays
 * in rank 0's own residual.
 *
 *                 rank 0        rank 1        rank 2
 *     send 0      A             B             C           each has encoded its gradient
 *     receive 0   A B C                                   gatherv to rank 0, which takes the mean
 *     send 1      M                                       the mean, encoded with rank 0's residual
 *     receive 1   M             M             M           broadcast from rank 0
 */
#include "exchange/exchange.h"

static bool answers(uint32_t rank)
{
    return rank == 0;
}

static void shape(tg_exchange *x, uint32_t round)
{
    const tg_carrier *c = x->carrier;
    uint32_t group = x->lane->group;
    tg_carrier_shape_server(x, c, round == 1 ? c->answers[group] : c->frames[group], round == 1);
}

static tg_status send(tg_exchange *x, uint32_t round, tg_detail *why)
{
    tg_carrier *c = x->carrier;
    if (round == 1) {
        return tg_owners_answer(x, c, why);
    }
    TG_TRY(tg_carrier_write(x, c, x->step.grads, why));
    tg_exchange_send(x, 0, c->frames[x->lane->group], &c->framed[x->lane->group]);
    return TG_OK;
}

const tg_protocol tg_protocol_server = {
    .name = "server",
    .suits = tg_owners_suit,
    .holds = TG_HAS_INDICES | TG_HAS_VALUES,
    .answers = answers,
    .answer_has_feedback = true,
    .open = tg_carrier_open_own,
    .close = tg_carrier_close_own,
    .shows_last = true,
    .rounds = tg_owners_rounds,
    .shape = shape,
    .send = send,
    .receive = tg_owners_receive,
    .deliver = tg_owners_deliver_own,
    .commit = tg_owners_commit_own,
};
