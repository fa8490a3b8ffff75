/* A recipe as a struct: defaults, values that depend on the tensor, and questions that other folders ask of it. */
#include "recipe/parsing.h"

#include <string.h>

void tg_recipe_set_part(tg_recipe *r, tg_stage stage, const tg_part *part)
{
    r->part[stage] = part;
    for (size_t i = 0; i < TG_PARAM_CAP; i++) {
        r->value[stage][i] = i < part->param_n ? part->params[i].standard : 0.0;
    }
}

tg_recipe tg_recipe_standard(void)
{
    tg_recipe r = {.inside = NULL};
    for (tg_stage stage = 0; stage < TG_STAGE_N; stage++) {
        tg_recipe_set_part(&r, stage, tg_part_standard(stage));
    }
    return r;
}

double tg_recipe_value(const tg_recipe *r, tg_stage stage, const char *name)
{
    const tg_part *part = r->part[stage];
    for (size_t i = 0; i < part->param_n; i++) {
        if (strcmp(part->params[i].name, name) == 0) {
            return r->value[stage][i];
        }
    }
    return 0.0;
}

void tg_recipe_set_value(tg_recipe *r, tg_stage stage, const char *name, double value)
{
    const tg_part *part = r->part[stage];
    for (size_t i = 0; i < part->param_n; i++) {
        r->value[stage][i] = strcmp(part->params[i].name, name) == 0 ? value : r->value[stage][i];
    }
}

bool tg_recipe_has_rans_indices(const tg_recipe *r)
{
    return tg_recipe_symbol(r) == &tg_symbol_rans && tg_recipe_index(r)->read_rans != NULL;
}

/* What was said for the whole model is not part of a tensor's recipe. */
static void forget_model(tg_recipe *r)
{
    r->inside = NULL;
    for (tg_stage stage = 0; stage < TG_STAGE_N; stage++) {
        for (size_t i = 0; i < r->part[stage]->param_n; i++) {
            const tg_param *param = &r->part[stage]->params[i];
            bool is_own = param->of_tensor > 0 && r->value[stage][i] >= param->of_tensor;
            r->value[stage][i] = param->of_model && !is_own ? param->standard : r->value[stage][i];
        }
    }
}

tg_status tg_recipe_resolve(tg_recipe *r, bool has_seed, tg_kind kind, tg_detail *why)
{
    forget_model(r);
    const tg_select_part *select = tg_recipe_select(r);
    if (select->resolve != NULL) {
        select->resolve(r->value[TG_STAGE_select], kind);
    }
    uint32_t cell_max = tg_recipe_index(r)->cell_max;
    uint32_t bin = tg_recipe_bin(r);
    if (cell_max != 0 && bin > cell_max) {
        return tg_fail(TG_E_RECIPE, why,
                       "'%s' supports bins of at most %u elements, but tensors of kind '%s' have bins of %u",
                       r->part[TG_STAGE_index]->name, cell_max, tg_kind_name(kind), bin);
    }
    if (select->by != TG_BY_SEED) {
        return TG_OK;
    }
    double *coords = &r->value[TG_STAGE_select][TG_SELECT_COORDS];
    if (*coords == TG_COORDS_AUTO) {
        *coords = has_seed ? TG_COORDS_SHARED : TG_COORDS_OWN;
    }
    if (*coords == TG_COORDS_SHARED && !has_seed) {
        return tg_fail(TG_E_RECIPE, why,
                       "'%s' with coords=shared needs a seed that all ranks share, but no seed is given",
                       r->part[TG_STAGE_select]->name);
    }
    return TG_OK;
}

tg_recipe tg_recipe_dense(tg_dtype dtype)
{
    tg_recipe r = tg_recipe_standard();
    const tg_part_row *row = tg_part_find(tg_dtype_name(dtype), strlen(tg_dtype_name(dtype)));
    tg_recipe_set_part(&r, TG_STAGE_quantize, row->part); /* every dtype is also the name of a quantizer */
    return r;
}

tg_index_read tg_recipe_index_read(const tg_recipe *r)
{
    return tg_recipe_has_rans_indices(r) ? tg_recipe_index(r)->read_rans : tg_recipe_index(r)->read;
}

tg_index_write tg_recipe_index_write(const tg_recipe *r)
{
    return tg_recipe_has_rans_indices(r) ? tg_recipe_index(r)->write_rans : tg_recipe_index(r)->write;
}

bool tg_recipe_scale_is(const tg_recipe *r, tg_scale_rule rule)
{
    const tg_quantize_part *quantize = tg_recipe_quantize(r);
    return quantize->has_scale && quantize->scale(r->value[TG_STAGE_quantize]) == rule;
}

uint32_t tg_recipe_bin(const tg_recipe *r)
{
    const tg_select_part *select = tg_recipe_select(r);
    return select->bin == NULL ? 0 : select->bin(r->value[TG_STAGE_select]);
}

bool tg_recipe_spans_model(const tg_recipe *r)
{
    return tg_recipe_select(r)->by != TG_BY_NOTHING && r->value[TG_STAGE_select][TG_SELECT_SCOPE] == TG_SCOPE_MODEL;
}

bool tg_recipe_answer(tg_recipe *out, const tg_recipe *r)
{
    int again = (int)tg_recipe_value(r, TG_STAGE_feedback, "again");
    *out = *r;
    if (again < TG_AGAIN_FP32) {
        return false;
    }
    const char *name = tg_again_choices[again];
    *out = tg_recipe_standard();
    tg_recipe_set_part(out, TG_STAGE_quantize, tg_part_find(name, strlen(name))->part);
    if (again != TG_AGAIN_FP32) { /* which rounds */
        out->part[TG_STAGE_feedback] = r->part[TG_STAGE_feedback];
        memcpy(out->value[TG_STAGE_feedback], r->value[TG_STAGE_feedback], sizeof out->value[TG_STAGE_feedback]);
    }
    return true;
}

bool tg_recipe_follows_leader(const tg_recipe *r)
{
    return tg_recipe_select(r)->by == TG_BY_DATA && r->value[TG_STAGE_select][TG_SELECT_COORDS] == TG_COORDS_SHARED;
}
