/* All-reduce: every rank sends the same coordinates, so values travel without indices and add up. It is the two halves of
 * a ring's work, done so that sums are taken in rank order: each rank averages a slice, then sends it to all.
 *
 *               rank 0          rank 1          rank 2
 *     lead                      L                              only where coordinates follow a leader (step mod world):
 *               L               L               L              broadcast of its indices
 *     send      A0 A1 A2        B0 B1 B2        C0 C1 C2       values at the shared coordinates, in slices
 *     receive   A0 B0 C0        A1 B1 C1        A2 B2 C2       alltoallv; the owner takes the mean, in fp32
 *     send      M0              M1              M2             the mean, in the type that values travel in
 *     receive   M0 M1 M2        M0 M1 M2        M0 M1 M2       allgatherv
 */
#include "exchange/exchange.h"

/* Rounds; the first is skipped where nothing follows a leader. */
enum { LEAD, SUM, SHOW };

static uint32_t rounds(const tg_exchange *x)
{
    return tg_carrier_follows(x->codec->layout) ? 3 : 2;
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

static tg_status send_lead(tg_exchange *x, tg_detail *why)
{
    tg_carrier *c = x->carrier;
    uint32_t group = x->lane->group;
    if (x->rank != x->lane->mail.root) {
        return TG_OK;
    }
    tg_source source = {.grads = (const void *const *)x->step.grads};
    tg_framed framed;
    TG_TRY(c->codec->executor->select(c->codec->run, group, x->step.number, &source, why));
    TG_TRY(tg_frame_write(&framed, c->codec, c->leader, &c->answers[group], group, group + 1, x->step.number, &source,
                          why));
    tg_exchange_send_all(x, c->answers[group], &framed);
    return TG_OK;
}

static tg_status receive_lead(tg_exchange *x, tg_detail *why)
{
    tg_carrier *c = x->carrier;
    uint32_t group = x->lane->group;
    tg_body_view *body = &c->bodies[group * c->group_bodies];
    body->chunks = c->views + c->view_first[group];
    TG_TRY(tg_carrier_read(x, c, c->codec, 0, x->lane->mail.root, c->leader, group, why));
    c->codec->executor->draw(c->codec->run, group, x->step.number);
    c->codec->executor->follow(c->codec->run, c->leader, group, body);
    return TG_OK;
}

static void shape(tg_exchange *x, uint32_t round)
{
    switch (round + (x->carrier->leader != NULL ? LEAD : SUM)) {
    case LEAD:
        x->lane->mail.kind = TG_BROADCAST;
        x->lane->mail.root = (uint32_t)(x->step.number % x->world);
        break;
    case SHOW: tg_carrier_shape_answers(x, x->carrier); break;
    default: tg_carrier_shape_slices(x, x->carrier); break;
    }
}

static tg_status send(tg_exchange *x, uint32_t round, tg_detail *why)
{
    switch (round + (x->carrier->leader != NULL ? LEAD : SUM)) {
    case LEAD: return send_lead(x, why);
    case SHOW: return tg_owners_answer(x, x->carrier, why);
    default: return tg_owners_send_slices(x, x->carrier, x->step.grads, why);
    }
}

static tg_status receive(tg_exchange *x, uint32_t round, tg_detail *why)
{
    switch (round + (x->carrier->leader != NULL ? LEAD : SUM)) {
    case LEAD: return receive_lead(x, why);
    case SHOW: return tg_owners_receive_answers(x, x->carrier, why);
    default: return tg_owners_average(x, x->carrier, why);
    }
}

const tg_protocol tg_protocol_allreduce = {
    .name = "allreduce",
    .suits = suits,
    .holds = TG_HAS_VALUES,
    .slices = slices,
    .answers = answers,
    .open = tg_carrier_open_own,
    .close = tg_carrier_close_own,
    .shows_last = true,
    .rounds = rounds,
    .shape = shape,
    .send = send,
    .receive = receive,
    .deliver = tg_owners_deliver_own,
    .commit = tg_owners_commit_own,
};
