/* Shard: each rank owns a slice of every unit, averages it for all, and answers with it encoded once more. What the answer
 * loses stays in the owner's own residual. A rank sends about twice its frame's size however many ranks there are. With again=fp16,
 * bf16 or fp32 the answer has all values, so that no owner chooses a second time.
 *
 *                 rank 0          rank 1          rank 2
 *     send 0      A0 A1 A2        B0 B1 B2        C0 C1 C2       each has encoded its gradient in slices
 *     receive 0   A0 B0 C0        A1 B1 C1        A2 B2 C2       alltoallv; the owner takes the mean
 *     send 1      M0              M1              M2             the mean, encoded with the owner's residual
 *     receive 1   M0 M1 M2        M0 M1 M2        M0 M1 M2       allgatherv
 */
#include "exchange/exchange.h"

static uint32_t slices(uint32_t world)
{
    return world;
}

static bool answers(uint32_t rank)
{
    (void)rank;
    return true;
}

static void shape(tg_exchange *x, uint32_t round)
{
    if (round == 1) {
        tg_carrier_shape_answers(x, x->carrier);
    } else {
        tg_carrier_shape_slices(x, x->carrier);
    }
}

static tg_status send(tg_exchange *x, uint32_t round, tg_detail *why)
{
    if (round == 1) {
        return tg_owners_answer(x, x->carrier, why);
    }
    return tg_owners_send_slices(x, x->carrier, x->step.grads, why);
}

const tg_protocol tg_protocol_shard = {
    .name = "shard",
    .suits = tg_owners_suit,
    .holds = TG_HAS_INDICES | TG_HAS_VALUES,
    .slices = slices,
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
