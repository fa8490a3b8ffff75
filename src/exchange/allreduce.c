/* All-reduce: every rank sends the same coordinates, so values travel without indices and add up. It is the two halves of
 * a ring's work, done so that sums are taken in rank order: each rank sums a slice, then shows it to all.
 *
 *               rank 0          rank 1          rank 2
 *     lead                      L                              only where coordinates follow a leader (step mod world):
 *               L               L               L              broadcast of its indices
 *     say       A0 A1 A2        B0 B1 B2        C0 C1 C2       values at the shared coordinates, in slices
 *     hear      A0 B0 C0        A1 B1 C1        A2 B2 C2       alltoallv; the owner takes the mean, in fp32
 *     say       M0              M1              M2             the mean, in the type that values travel in
 *     hear      M0 M1 M2        M0 M1 M2        M0 M1 M2       allgatherv
 */
#include "exchange/exchange.h"

enum { LEAD, SUM, SHOW };

static bool has_led(const tg_exchange *x)
{
    return x->whole != NULL;
}

/* The first round is skipped where nothing is led. */
static int stage_of(const tg_exchange *x, uint32_t round)
{
    return (int)round + (has_led(x) ? LEAD : SUM);
}

static uint32_t rounds(const tg_exchange *x)
{
    return has_led(x) ? 3 : 2;
}

static tg_status suits(const tg_layout *layout, tg_detail *why)
{
    for (size_t u = 0; u < layout->unit_n; u++) {
        const tg_recipe *recipe = layout->units[u].recipe;
        const tg_select_part *select = tg_recipe_select(recipe);
        if (select->by != TG_BY_NOTHING && recipe->value[TG_STAGE_select][TG_SELECT_COORDS] != TG_COORDS_SHARED) {
            return tg_fail(
                TG_E_RECIPE, why,
                "allreduce needs coordinates that all ranks share, but '%s' of tensor '%.60s' has each rank's own",
                select->part.name, layout->tensors[layout->units[u].pieces[0].tensor].name);
        }
        if (!tg_recipe_quantize(recipe)->adds_up) {
            return tg_fail(TG_E_RECIPE, why, "allreduce needs values that add up, and '%s' does not",
                           recipe->part[TG_STAGE_quantize]->name);
        }
    }
    return TG_OK;
}

static uint32_t slices(uint32_t world)
{
    return world;
}

static bool answers(uint32_t rank)
{
    (void)rank;
    return true;
}

static tg_status say_lead(tg_exchange *x, tg_detail *why)
{
    x->op_kind = TG_BROADCAST;
    x->root = (uint32_t)(x->step % x->world);
    x->codec->led_given = false;
    if (x->rank != x->root) {
        return TG_OK;
    }
    tg_source source = {.grads = (const void *const *)x->grads};
    tg_framed framed;
    TG_TRY(tg_codec_select(x->codec, x->step, &source, why));
    TG_TRY(tg_frame_write(&framed, x->codec, &x->answer_out, x->whole, 0, 1, TG_HAS_INDICES, x->step, &source, why));
    tg_exchange_send_all(x, x->answer_out, &framed);
    return TG_OK;
}

static tg_status hear_lead(tg_exchange *x, tg_detail *why)
{
    TG_TRY(tg_exchange_read(x->views, x, x->root, x->whole, 0, TG_HAS_INDICES, why));
    tg_codec_draw_shared(x->codec, x->step);
    tg_codec_take_led(x->codec, x->whole, x->views);
    return TG_OK;
}

static tg_status say(tg_exchange *x, uint32_t round, tg_detail *why)
{
    switch (stage_of(x, round)) {
    case LEAD: return say_lead(x, why);
    case SHOW: x->op_kind = TG_ALLGATHERV; return tg_owners_answer(x, why);
    default: return tg_owners_send_slices(x, why);
    }
}

static tg_status hear(tg_exchange *x, uint32_t round, tg_detail *why)
{
    switch (stage_of(x, round)) {
    case LEAD: return hear_lead(x, why);
    case SHOW: return tg_owners_hear_answers(x, why);
    default: return tg_owners_take(x, why);
    }
}

const tg_protocol tg_protocol_allreduce = {
    .name = "allreduce",
    .rounds = rounds,
    .suits = suits,
    .slices = slices,
    .answers = answers,
    .answer_remembers = false,
    .holds = TG_HAS_VALUES,
    .say = say,
    .hear = hear,
    .finish = tg_owners_finish,
};
