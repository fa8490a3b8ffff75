/* Server: rank 0 gathers all frames, takes the mean, and answers with it encoded once more; what the answer loses stays
 * in rank 0's own residual.
 *
 *               rank 0        rank 1        rank 2
 *     say 0     A             B             C           each has encoded its gradient
 *     hear 0    A B C                                   gatherv to rank 0, which takes the mean
 *     say 1     M                                       the mean, encoded with rank 0's residual
 *     hear 1    M             M             M           broadcast from rank 0
 */
#include "exchange/exchange.h"

static bool answers(uint32_t rank)
{
    return rank == 0;
}

static tg_status say(tg_exchange *x, uint32_t round, tg_detail *why)
{
    x->root = 0;
    if (round == 1) {
        x->op_kind = TG_BROADCAST;
        return tg_owners_answer(x, why);
    }
    TG_TRY(tg_owners_write(x, why));
    x->op_kind = TG_GATHERV;
    tg_exchange_send(x, 0, x->out_frames[0], &x->framed[0]);
    return TG_OK;
}

const tg_protocol tg_protocol_server = {
    .name = "server",
    .rounds = tg_owners_rounds,
    .suits = tg_owners_can_answer,
    .answers = answers,
    .answer_remembers = true,
    .holds = TG_HAS_INDICES | TG_HAS_VALUES,
    .say = say,
    .hear = tg_owners_hear,
    .finish = tg_owners_finish,
};
