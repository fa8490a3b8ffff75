/* Chooses the protocol of an exchange: the one that the caller names, if it suits the recipe, or the one that sends least. */
#include "exchange/exchange.h"

#include "recipe/policy.h"

#include <string.h>

#define TG_PROTOCOL(name) extern const tg_protocol tg_protocol_##name;
#include "exchange/protocols.def"
#undef TG_PROTOCOL

static const tg_protocol *const protocols[] = {
#define TG_PROTOCOL(name) &tg_protocol_##name,
#include "exchange/protocols.def"
#undef TG_PROTOCOL
};

/* If all ranks use the same indices, all-reduce can add their values. Otherwise gather sends a rank's frame world - 1 times, and
 * shard sends 2 * (world - 1) / world times its length but encodes twice. So shard saves nothing with two ranks, and what it saves
 * grows with their number; and so does what an answer leaves out, because more ranks' entries compete for as many places. All-reduce saves
 * nothing with two ranks, either: of whole tensors gather sends as many bytes, in one round, and encodes no mean. */
enum { OWNED_FROM = 5 }; /* ranks for which owners average and answer */

const tg_protocol *tg_protocol_named(const char *name)
{
    const tg_protocol *found = NULL;
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
        found = strcmp(protocols[i]->name, name) == 0 ? protocols[i] : found;
    }
    return found;
}

uint32_t tg_protocol_slices(const tg_protocol *p, uint32_t world)
{
    return p->slices == NULL ? 1 : p->slices(world);
}

/* Whether every element of every tensor travels. */
static bool sends_all(const tg_layout *layout)
{
    for (size_t u = 0; u < layout->unit_n; u++) {
        if (tg_recipe_select(layout->units[u].recipe)->by != TG_BY_NOTHING) {
            return false;
        }
    }
    return true;
}

/* Bytes of the values of a unit in frames, or in answers, by a recipe; 0: they depend on the gradients. */
static uint64_t values_len(const tg_unit *unit, const tg_recipe *recipe)
{
    tg_format f = tg_recipe_format(recipe);
    bool is_known = tg_recipe_select(recipe)->by == TG_BY_NOTHING && !f.coded;
    return is_known ? tg_side_len(&f, unit->n) + tg_symbols_len(&f, unit->n) : 0;
}

/* Whether owners that answer with all values send less than gather, if that is known: (F + A) / world against F, with F bytes a frame and
 * A of all answers. */
static bool answers_pay(const tg_layout *layout, uint32_t world)
{
    double frame_len = 0, answers_len = 0;
    for (size_t u = 0; u < layout->unit_n; u++) {
        const tg_unit *unit = &layout->units[u];
        tg_recipe answer;
        (void)tg_recipe_answer(&answer, unit->recipe);
        uint64_t len = values_len(unit, unit->recipe);
        if (len == 0 && unit->n > 0) {
            return false;
        }
        frame_len += (double)len;
        answers_len += (double)values_len(unit, &answer);
    }
    return frame_len + answers_len < (double)world * frame_len;
}

/* Whether owners should average and answer, as `again` allows it. */
static bool prefers_owners(const tg_layout *layout, int again, uint32_t world)
{
    switch (again) {
    case TG_AGAIN_YES: return world >= OWNED_FROM;
    case TG_AGAIN_NO: return false;
    default: return answers_pay(layout, world);
    }
}

static const tg_protocol *preference(const tg_layout *layout, int again, uint32_t world)
{
    if (tg_layout_exchange(layout) != NULL) {
        return tg_protocol_named(tg_layout_exchange(layout));
    }
    if (tg_protocol_allreduce.suits(layout, NULL) == TG_OK && !(world == 2 && sends_all(layout))) {
        return &tg_protocol_allreduce;
    }
    if ((prefers_owners(layout, again, world) || tg_protocol_gather.suits(layout, NULL) != TG_OK) &&
        tg_protocol_shard.suits(layout, NULL) == TG_OK) {
        return &tg_protocol_shard;
    }
    return &tg_protocol_gather;
}

/* Whether a tensor travels as it is, in its own type. */
static bool is_uncompressed(const tg_recipe *recipe, tg_dtype dtype)
{
    const tg_recipe dense = tg_recipe_dense(dtype);
    return recipe->part[TG_STAGE_select] == dense.part[TG_STAGE_select] &&
           recipe->part[TG_STAGE_quantize] == dense.part[TG_STAGE_quantize] &&
           recipe->part[TG_STAGE_symbol] == dense.part[TG_STAGE_symbol];
}

/* Exchanges of `lowrank` and `autoencoder` send all other tensors uncompressed, so a recipe of theirs would have no effect. */
static tg_status refuse_beside(const tg_layout *layout, const tg_unit *unit, tg_detail *why)
{
    const tg_tensor *tensor = &layout->tensors[unit->pieces[0].tensor];
    char text[TG_RECIPE_CAP];
    if (is_uncompressed(unit->recipe, tensor->dtype)) {
        return TG_OK;
    }
    tg_recipe_write(text, unit->recipe);
    return tg_fail(TG_E_RECIPE, why, "tensor '%.100s' has the recipe '%s', but the exchange %s sends it uncompressed",
                   tensor->name, text, tg_layout_exchange(layout));
}

tg_status tg_protocol_choose(const tg_protocol **out, const char *name, const tg_layout *layout, const char *recipe,
                             uint32_t world, tg_detail *why)
{
    const tg_protocol *found =
        name != NULL ? tg_protocol_named(name) : preference(layout, tg_policy_again(recipe), world);
    if (found == NULL || found == &tg_protocol_scatter) { /* which tg_scatter_new makes */
        return tg_fail(
            TG_E_ARGUMENT, why,
            "there is no exchange '%.60s'; the exchanges are allreduce, gather, shard, server, lowrank, lgc-ring and"
            " lgc-server",
            name);
    }
    for (size_t u = 0; u < layout->unit_n; u++) {
        const tg_recipe *own_recipe = layout->units[u].recipe;
        const tg_quantize_part *quantize = tg_recipe_quantize(own_recipe);
        const char *own = quantize->exchange == NULL ? NULL : quantize->exchange(own_recipe->value[TG_STAGE_quantize]);
        if (own != NULL && strcmp(own, found->name) != 0) {
            return tg_fail(TG_E_RECIPE, why, "'%s' has an exchange of its own, %s, and cannot use '%s'",
                           quantize->part.name, own, found->name);
        }
        if (own == NULL && tg_layout_exchange(layout) != NULL) {
            TG_TRY(refuse_beside(layout, &layout->units[u], why));
        }
    }
    TG_TRY(found->suits(layout, why));
    *out = found;
    return TG_OK;
}
