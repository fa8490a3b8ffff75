/* Which parts go together in one recipe. Combinations that would be meaningless are refused with the reason. */
#include "recipe/parsing.h"

static tg_status check_symbol_pack(const tg_recipe *r, tg_detail *why)
{
    const tg_symbol_part *pack = tg_recipe_symbol(r);
    const tg_quantize_part *quantize = tg_recipe_quantize(r);
    bool is_plain = quantize->plain_len != 0, has_gaps = tg_recipe_select(r)->by != TG_BY_NOTHING;
    if (!pack->codes_symbols && !pack->codes_words) {
        return TG_OK;
    }
    if (is_plain && !pack->codes_words && !(tg_recipe_has_rans_indices(r) && has_gaps)) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs symbols, and '%s' makes none; 'lossless' packs floats",
                       pack->part.name, quantize->part.name);
    }
    if (!is_plain && !pack->codes_symbols) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs floats, and '%s' makes symbols", pack->part.name,
                       quantize->part.name);
    }
    if (tg_recipe_index(r)->cell_max != 0) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs signs itself, and leaves nothing to '%s'",
                       tg_recipe_index(r)->part.name, pack->part.name);
    }
    if (tg_recipe_value(r, TG_STAGE_symbol, "table") != 0.0 && quantize->lengths == NULL) {
        return tg_fail(TG_E_RECIPE, why,
                       "'%s' with table=model needs a quantizer that fits one, as 'fp4' does, and not '%s'",
                       pack->part.name, quantize->part.name);
    }
    return TG_OK;
}

tg_status tg_recipe_check(const tg_recipe *r, const bool *named, tg_detail *why)
{
    TG_TRY(check_symbol_pack(r, why));
    if (named[TG_STAGE_index] && tg_recipe_select(r)->by == TG_BY_NOTHING) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs indices, but '%s' sends none", r->part[TG_STAGE_index]->name,
                       r->part[TG_STAGE_select]->name);
    }
    if (tg_recipe_feedback(r)->planes > 0 && tg_recipe_value(r, TG_STAGE_select, "unbiased") != 0.0) {
        return tg_fail(TG_E_RECIPE, why, "'unbiased' is for recipes without feedback: '%s' sends the rest later",
                       r->part[TG_STAGE_feedback]->name);
    }
    if (tg_recipe_scale_is(r, TG_SCALE_BINS) && tg_recipe_select(r)->bin == NULL) {
        return tg_fail(TG_E_RECIPE, why, "'%s' takes its scale from bins, and '%s' has none",
                       r->part[TG_STAGE_quantize]->name, r->part[TG_STAGE_select]->name);
    }
    const tg_quantize_part *quantize = tg_recipe_quantize(r);
    const char *refused = quantize->refuses == NULL ? NULL : quantize->refuses(r->value[TG_STAGE_quantize]);
    if (refused != NULL) {
        return tg_fail(TG_E_RECIPE, why, "'%s': %s", quantize->part.name, refused);
    }
    if (tg_recipe_scale_is(r, TG_SCALE_ONE) && tg_recipe_feedback(r)->planes > 0) {
        return tg_fail(TG_E_RECIPE, why, "'%s' with scale=one is a vote, of which no rest can be sent later",
                       quantize->part.name);
    }
    bool plain_else = tg_recipe_select(r)->by == TG_BY_NOTHING && !named[TG_STAGE_index] && !named[TG_STAGE_symbol];
    if (quantize->needs_leader) {
        bool led = r->part[TG_STAGE_select] == &tg_select_topk.part && tg_recipe_is_led(r) && !tg_recipe_spans_model(r);
        if (!led || tg_recipe_value(r, TG_STAGE_select, "warmup") != 0.0 || named[TG_STAGE_index] ||
            named[TG_STAGE_symbol]) {
            return tg_fail(TG_E_RECIPE, why,
                           "'%s' goes with 'topk' by coords=shared alone: a leader tells its coordinates",
                           quantize->part.name);
        }
    } else if (quantize->exchange != NULL && (!plain_else || tg_recipe_feedback(r)->planes > 1)) {
        return tg_fail(TG_E_RECIPE, why, "'%s' goes with 'ef' or 'none' alone: it sends whole matrices, in factors",
                       quantize->part.name);
    }
    if (tg_recipe_index(r)->cell_max != 0 && (!tg_recipe_quantize(r)->has_scale || tg_recipe_select(r)->bin == NULL)) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs signs in bins, as of 'adabins' with 'sign'",
                       r->part[TG_STAGE_index]->name);
    }
    return TG_OK;
}
