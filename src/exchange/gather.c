/* Gather: every frame to every rank, and every rank sums them all in rank order.
 *
 *              rank 0        rank 1        rank 2
 *     say      A             B             C            each has encoded its gradient
 *     hear     A B C         A B C         A B C        allgatherv
 *     finish   A+B+C / 3     A+B+C / 3     A+B+C / 3
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
        if (tg_recipe_is_led(layout->units[u].recipe)) {
            return tg_fail(TG_E_RECIPE, why, "'%s' with coords=shared follows a leader, which only allreduce can",
                           layout->units[u].recipe->part[TG_STAGE_select]->name);
        }
    }
    return TG_OK;
}

static tg_status say(tg_exchange *x, uint32_t round, tg_detail *why)
{
    (void)round;
    TG_TRY(tg_owners_write(x, why));
    x->op_kind = TG_ALLGATHERV;
    tg_exchange_send_all(x, x->out_frames[0], &x->framed[0]);
    return TG_OK;
}

static tg_status hear(tg_exchange *x, uint32_t round, tg_detail *why)
{
    (void)round;
    size_t chunks = tg_grid_chunks(x->codec->grid, 0);
    for (uint32_t p = 0; p < x->world; p++) {
        TG_TRY(tg_exchange_read(x->views + p * chunks, x, p, x->codec->grid, 0, x->protocol->holds, why));
    }
    return TG_OK;
}

static void finish(tg_exchange *x)
{
    tg_sink sink = {.averages = x->grads, .divisor = (float)x->world};
    tg_codec_sum(x->codec, 0, x->views, x->world, &sink);
    tg_codec_commit(x->codec);
}

const tg_protocol tg_protocol_gather = {
    .name = "gather",
    .rounds = rounds,
    .suits = suits,
    .holds = TG_HAS_INDICES | TG_HAS_VALUES,
    .say = say,
    .hear = hear,
    .finish = finish,
};
