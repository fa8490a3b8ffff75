/* Which parts go together in one recipe. Combinations that would be meaningless are refused with the reason. */
#include "recipe/parsing.h"

static tg_status check_symbol_pack(const tg_recipe *r, tg_detail *why)
{
    const tg_symbol_part *pack = tg_recipe_symbol(r);
    const tg_quantize_part *quantize = tg_recipe_quantize(r);
    bool is_plain = quantize->plain_len != 0, has_indices = tg_recipe_select(r)->by != TG_BY_NOTHING;
    if (!pack->codes_symbols && !pack->codes_words) {
        return TG_OK;
    }
    if (is_plain && !pack->codes_words && !(tg_recipe_has_rans_indices(r) && has_indices)) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs symbols, but '%s' makes none; use 'lossless' to pack floats",
                       pack->part.name, quantize->part.name);
    }
    if (!is_plain && !pack->codes_symbols) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs floats, but '%s' makes symbols", pack->part.name,
                       quantize->part.name);
    }
    if (tg_recipe_index(r)->cell_max != 0) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs the signs together with the indices, so '%s' has nothing to pack",
                       tg_recipe_index(r)->part.name, pack->part.name);
    }
    if (tg_recipe_value(r, TG_STAGE_symbol, "table") != 0.0 && quantize->lengths == NULL) {
        return tg_fail(TG_E_RECIPE, why,
                       "'%s' with table=model needs a quantizer that fits a distribution, such as 'fp4'; '%s' does not",
                       pack->part.name, quantize->part.name);
    }
    return TG_OK;
}

static tg_status check_indices(const tg_recipe *r, const bool *named, tg_detail *why)
{
    const tg_index_part *pack = tg_recipe_index(r);
    if (named[TG_STAGE_index] && tg_recipe_select(r)->by == TG_BY_NOTHING) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs indices, but '%s' sends none", pack->part.name,
                       r->part[TG_STAGE_select]->name);
    }
    return TG_OK;
}

/* Index packs that pack signs too: `adacomp8` and `adacomp16`. */
static tg_status check_joint_pack(const tg_recipe *r, tg_detail *why)
{
    const tg_index_part *pack = tg_recipe_index(r);
    if (pack->cell_max != 0 && (!tg_recipe_quantize(r)->has_scale || tg_recipe_select(r)->bin == NULL)) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs signs in bins; it needs 'adabins' and 'sign'", pack->part.name);
    }
    return TG_OK;
}

static tg_status check_quantizer(const tg_recipe *r, tg_detail *why)
{
    const tg_quantize_part *quantize = tg_recipe_quantize(r);
    if (tg_recipe_scale_is(r, TG_SCALE_BINS) && tg_recipe_select(r)->bin == NULL) {
        return tg_fail(TG_E_RECIPE, why, "'%s' takes its scale from bins, but '%s' has no bins", quantize->part.name,
                       r->part[TG_STAGE_select]->name);
    }
    const char *refused = quantize->refuses == NULL ? NULL : quantize->refuses(r->value[TG_STAGE_quantize]);
    if (refused != NULL) {
        return tg_fail(TG_E_RECIPE, why, "'%s': %s", quantize->part.name, refused);
    }
    if (tg_recipe_scale_is(r, TG_SCALE_ONE) && tg_recipe_feedback(r)->planes > 0) {
        return tg_fail(TG_E_RECIPE, why,
                       "'%s' with scale=one is a vote, which has no residual; use it without feedback",
                       quantize->part.name);
    }
    return TG_OK;
}

/* Quantizers with an exchange of their own: `lowrank` and `autoencoder`. */
static tg_status check_own_exchange(const tg_recipe *r, const bool *named, tg_detail *why)
{
    const tg_quantize_part *quantize = tg_recipe_quantize(r);
    tg_recipe answer;
    if (tg_recipe_answer(&answer, r)) {
        return tg_fail(TG_E_RECIPE, why, "'%s' has an exchange of its own, in which no owner answers with all values",
                       quantize->part.name);
    }
    bool names_pack = named[TG_STAGE_index] || named[TG_STAGE_symbol];
    if (quantize->needs_leader) {
        bool is_topk = r->part[TG_STAGE_select] == &tg_select_topk.part;
        bool has_warmup = tg_recipe_value(r, TG_STAGE_select, "warmup") != 0.0;
        if (!is_topk || !tg_recipe_follows_leader(r) || tg_recipe_spans_model(r) || has_warmup || names_pack) {
            return tg_fail(TG_E_RECIPE, why,
                           "'%s' needs 'topk' with coords=shared, without warmup, scope=model or a pack, because a "
                           "leader sends its coordinates",
                           quantize->part.name);
        }
        return TG_OK;
    }
    bool sends_all = tg_recipe_select(r)->by == TG_BY_NOTHING;
    if (!sends_all || names_pack || tg_recipe_feedback(r)->planes > 1) {
        return tg_fail(TG_E_RECIPE, why, "'%s' goes only with 'ef' or 'none': it sends whole matrices as two factors",
                       quantize->part.name);
    }
    return TG_OK;
}

tg_status tg_recipe_check(const tg_recipe *r, const bool *named, tg_detail *why)
{
    TG_TRY(check_symbol_pack(r, why));
    TG_TRY(check_indices(r, named, why));
    if (tg_recipe_feedback(r)->planes > 0 && tg_recipe_value(r, TG_STAGE_select, "unbiased") != 0.0) {
        return tg_fail(TG_E_RECIPE, why,
                       "'unbiased' is for recipes without feedback: '%s' already sends the remainder in later steps",
                       r->part[TG_STAGE_feedback]->name);
    }
    TG_TRY(check_quantizer(r, why));
    if (r->inside != NULL && tg_recipe_quantize(r)->needs_leader) {
        return tg_fail(TG_E_RECIPE, why, "'%s' learns from the gradients of ranks, not of hosts, so it has no 'inside'",
                       r->part[TG_STAGE_quantize]->name);
    }
    if (tg_recipe_quantize(r)->exchange != NULL) {
        TG_TRY(check_own_exchange(r, named, why));
    }
    return check_joint_pack(r, why);
}
