/* What allreduce, shard and server share: slices have owners, who sum what all ranks say of them, in rank order and in
 * fp32, and answer with the mean encoded once more. */
#include "exchange/exchange.h"

tg_status tg_owners_can_answer(const tg_layout *layout, tg_detail *why)
{
    for (size_t u = 0; u < layout->unit_n; u++) {
        const tg_recipe *recipe = layout->units[u].recipe;
        const char *name = recipe->part[TG_STAGE_select]->name;
        if (tg_recipe_is_led(recipe)) {
            return tg_fail(TG_E_RECIPE, why, "'%s' with coords=shared follows a leader, which only allreduce can",
                           name);
        }
        if (tg_recipe_select(recipe)->by == TG_BY_SEED &&
            recipe->value[TG_STAGE_select][TG_SELECT_COORDS] == TG_COORDS_OWN) {
            return tg_fail(TG_E_RECIPE, why,
                           "'%s' with coords=own goes by gather: an owner's own random coordinates would drop the sum",
                           name);
        }
    }
    return TG_OK;
}

uint32_t tg_owners_rounds(const tg_exchange *x)
{
    (void)x;
    return 2;
}

tg_status tg_owners_write(tg_exchange *x, tg_detail *why)
{
    tg_source source = {.grads = (const void *const *)x->grads};
    tg_codec *c = x->codec;
    if (!c->led_given) {
        TG_TRY(tg_codec_select(c, x->step, &source, why));
    } else {
        tg_codec_bound_norms(c, &source); /* of a rank that does not lead, too */
    }
    return tg_frame_write(x->framed, c, x->out_frames, c->grid, 0, c->grid->slices, x->protocol->holds, x->step,
                          &source, why);
}

tg_status tg_owners_send_slices(tg_exchange *x, tg_detail *why)
{
    TG_TRY(tg_owners_write(x, why));
    x->op_kind = TG_ALLTOALLV;
    for (uint32_t p = 0; p < x->world; p++) {
        tg_exchange_send(x, p, x->out_frames[p], &x->framed[p]);
    }
    return TG_OK;
}

tg_status tg_owners_take(tg_exchange *x, tg_detail *why)
{
    if (x->answer == NULL) {
        return TG_OK;
    }
    uint32_t slice = x->answer->slice;
    size_t chunks = tg_grid_chunks(x->codec->grid, slice);
    for (uint32_t p = 0; p < x->world; p++) {
        TG_TRY(tg_exchange_read(x->views + p * chunks, x, p, x->codec->grid, slice, x->protocol->holds, why));
    }
    tg_sink sink = {.flat = x->mean, .divisor = (float)x->world};
    tg_codec_sum(x->answer, slice, x->views, x->world, &sink);
    return TG_OK;
}

tg_status tg_owners_answer(tg_exchange *x, tg_detail *why)
{
    if (x->answer == NULL) {
        return TG_OK;
    }
    tg_source source = {.flat = x->mean};
    uint32_t slice = x->answer->slice;
    tg_framed framed;
    TG_TRY(tg_codec_select(x->answer, x->step, &source, why));
    TG_TRY(tg_frame_write(&framed, x->answer, &x->answer_out, x->codec->grid, slice, slice + 1, x->protocol->holds,
                          x->step, &source, why));
    tg_exchange_send_all(x, x->answer_out, &framed);
    return TG_OK;
}

tg_status tg_owners_hear_answers(tg_exchange *x, tg_detail *why)
{
    const tg_grid *grid = x->codec->grid;
    for (uint32_t s = 0; s < grid->slices; s++) {
        TG_TRY(tg_exchange_read(x->views + grid->first[s], x, s, grid, s, x->protocol->holds, why));
    }
    return TG_OK;
}

tg_status tg_owners_hear(tg_exchange *x, uint32_t round, tg_detail *why)
{
    return round == 0 ? tg_owners_take(x, why) : tg_owners_hear_answers(x, why);
}

void tg_owners_finish(tg_exchange *x)
{
    const tg_grid *grid = x->codec->grid;
    tg_sink sink = {.averages = x->grads, .divisor = 1.0f};
    for (uint32_t s = 0; s < grid->slices; s++) {
        tg_codec_sum(x->codec, s, x->views + grid->first[s], 1, &sink);
    }
    tg_codec_commit(x->codec);
    if (x->answer != NULL) {
        tg_codec_commit(x->answer);
    }
}
