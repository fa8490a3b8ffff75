/* Gather: every frame to every rank, and every rank averages them all in rank order.
 *
 *              rank 0        rank 1        rank 2
 *     send     A             B             C            each has encoded its gradient
 *     receive  A B C         A B C         A B C        allgatherv
 *              A+B+C         A+B+C         A+B+C        here, privately, on a GPU or if decoding costs more than a copy
 *     deliver  A+B+C / 3     A+B+C / 3     A+B+C / 3    else here
 *
 * A rank sends its frame world - 1 times: best for few ranks, or frames that are very small. */
#include "exchange/exchange.h"

static uint32_t rounds(const tg_exchange *x)
{
    (void)x;
    return 1;
}

static tg_status suits(const tg_layout *layout, tg_detail *why)
{
    for (size_t u = 0; u < layout->unit_n; u++) {
        if (tg_recipe_scale_is(layout->units[u].recipe, TG_SCALE_ONE)) {
            return tg_fail(TG_E_RECIPE, why,
                           "'sign' with scale=one is a vote, which an owner counts: by shard or server");
        }
        if (tg_recipe_follows_leader(layout->units[u].recipe)) {
            return tg_fail(TG_E_RECIPE, why, "'%s' with coords=shared follows a leader, which only allreduce can",
                           layout->units[u].recipe->part[TG_STAGE_select]->name);
        }
    }
    return TG_OK;
}

static void shape(tg_exchange *x, uint32_t round)
{
    (void)round;
    tg_carrier_shape_gather(x, x->carrier);
}

static tg_status send(tg_exchange *x, uint32_t round, tg_detail *why)
{
    tg_carrier *c = x->carrier;
    (void)round;
    TG_TRY(tg_carrier_write(x, c, x->step.grads, why));
    tg_exchange_send_all(x, c->frames[x->lane->group], &c->framed[x->lane->group]);
    return TG_OK;
}

static tg_status receive(tg_exchange *x, uint32_t round, tg_detail *why)
{
    tg_arrived all = {.codec = x->codec, .to = x->world};
    (void)round;
    return tg_carrier_receive(x, x->carrier, &all, why);
}

/* Groups [from, to); where sums were taken before, all at once. */
static void deliver_groups(tg_exchange *x, uint32_t from, uint32_t to, void *const *grads)
{
    const tg_carrier *c = x->carrier;
    const tg_executor *executor = c->codec->executor;
    tg_sink sink = {.averages = grads, .divisor = (float)x->world};
    if (tg_carrier_adds(x, c)) {
        executor->deliver(c->codec->run, from, to, c->bodies, c->group_bodies, x->world, &sink);
        return;
    }
    for (uint32_t group = from; group < to; group++) {
        if (c->averages != NULL) {
            executor->copy(c->codec->run, group, grads, c->averages);
        } else {
            executor->sum(c->codec->run, group, c->bodies + group * c->group_bodies, x->world, &sink);
        }
    }
}

static void deliver(tg_exchange *x, uint32_t group, void *const *grads)
{
    deliver_groups(x, group, group + 1, grads);
}

static void finish(tg_exchange *x)
{
    if (!x->step.is_spared) {
        deliver_groups(x, 0, x->lane_n, x->step.grads);
    }
    tg_owners_commit_own(x);
}

const tg_protocol tg_protocol_gather = {
    .name = "gather",
    .suits = suits,
    .holds = TG_HAS_INDICES | TG_HAS_VALUES,
    .sums_all = true,
    .shows_last = true,
    .open = tg_carrier_open_own,
    .close = tg_carrier_close_own,
    .rounds = rounds,
    .shape = shape,
    .send = send,
    .receive = receive,
    .deliver = deliver,
    .commit = tg_owners_commit_own,
    .finish = finish,
};
