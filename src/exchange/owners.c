/* Frames between ranks, and owners: slices have owners, who average what all ranks send of them, in rank order and in fp32,
 * and answer with the mean encoded once more. Shared by allreduce, gather, shard, server and lowrank. */
#include "exchange/exchange.h"

/* ---- messages --------------------------------------------------------------------------------------------------------- */

void tg_exchange_send(tg_exchange *x, uint32_t p, const uint8_t *frame, const tg_framed *framed)
{
    if (p == x->rank) {
        x->lane->mail.self = frame;
        x->lane->mail.self_len = framed->len;
        return;
    }
    x->lane->mail.sends[p] = (tg_span){(void *)(uintptr_t)frame, framed->len}; /* a span that is only read */
    x->lane->mail.payload[p] = framed->payload_len;
}

void tg_exchange_send_all(tg_exchange *x, const uint8_t *frame, const tg_framed *framed)
{
    for (uint32_t p = 0; p < x->world; p++) {
        tg_exchange_send(x, p, frame, framed);
    }
}

tg_message tg_exchange_received(const tg_exchange *x, uint32_t p)
{
    if (p == x->rank) {
        return (tg_message){(uint8_t *)(uintptr_t)x->lane->mail.self, x->lane->mail.self_len};
    }
    return x->lane->mail.in[p];
}

/* ---- frames ----------------------------------------------------------------------------------------------------------- */

/* Whether this rank's own frame is the first of a private sum, so that it is added while it is written. */
static bool adds_own_first(const tg_exchange *x, const tg_carrier *c)
{
    return x->rank == 0 && tg_carrier_adds(x, c) && !x->step.is_spared;
}

tg_status tg_carrier_write(tg_exchange *x, tg_carrier *c, void *const *grads, tg_detail *why)
{
    tg_codec *codec = c->codec;
    tg_source source = {.grads = (const void *const *)grads, .is_first = adds_own_first(x, c)};
    uint32_t group = x->lane->group, from = tg_carrier_cell(x, c, 0), to = from + codec->grid->slices;
    if (c->leader == NULL) {
        TG_TRY(codec->executor->select(codec->run, group, x->step.number, &source, why));
    } else {
        codec->executor->clip(codec->run, group, &source); /* coordinates are the leader's */
    }
    return tg_frame_write(c->framed + from, codec, codec->plan, c->frames + from, from, to, x->step.number, &source,
                          why);
}

/* ---- frames that arrive ----------------------------------------------------------------------------------------------- */

/* The group's bodies. */
static tg_body_view *bodies_of(const tg_exchange *x, const tg_carrier *c)
{
    return c->bodies + x->lane->group * c->group_bodies;
}

tg_status tg_carrier_read(tg_exchange *x, const tg_carrier *c, tg_codec *codec, size_t number, uint32_t p,
                          const tg_plan *plan, uint32_t cell, tg_detail *why)
{
    tg_message message = tg_exchange_received(x, p);
    tg_expected expected = {.plan = plan, .slice = cell, .check_author = true, .rank = p, .step = x->step.number};
    tg_detail reason = {""};
    tg_status status =
        tg_frame_read(&bodies_of(x, c)[number], NULL, codec, &expected, message.data, message.len, &reason);
    return status == TG_OK ? TG_OK : tg_fail(status, why, "from rank %u: %.200s", tg_job_rank(x, p), reason.text);
}

static tg_expected expect(const tg_exchange *x, const tg_carrier *c, const tg_arrived *a, uint32_t p)
{
    return (tg_expected){.plan = a->codec->plan,
                         .slice = tg_carrier_cell(x, c, a->slice),
                         .check_author = true,
                         .rank = p,
                         .step = x->step.number};
}

/* Where the views and hashes of frames go. */
static void place_frames(const tg_exchange *x, const tg_carrier *c, const tg_arrived *a)
{
    const tg_grid *grid = c->codec->grid;
    uint32_t cell = tg_carrier_cell(x, c, a->slice);
    size_t chunks = grid->first[cell + 1] - grid->first[cell], at = c->view_first[x->lane->group] + a->views;
    size_t body = x->lane->group * c->group_bodies + a->from;
    for (uint32_t p = a->from; p < a->to; p++, at += chunks, body++) {
        c->bodies[body] = (tg_body_view){.chunks = c->views + at, .hashes = c->hashes + at + 2 * body};
    }
}

/* Checks frames whole, in order. */
static tg_status check_frames(tg_exchange *x, tg_carrier *c, const tg_arrived *a, tg_detail *why)
{
    for (uint32_t p = a->from; p < a->to; p++) {
        TG_TRY(tg_carrier_read(x, c, a->codec, p, p, a->codec->plan, tg_carrier_cell(x, c, a->slice), why));
    }
    return TG_OK;
}

/* The same, and keeps coordinates for the sum, or takes it privately. Of what all ranks have sent, this rank's own frame, which is in the
 * first place, needs no check. */
static tg_status check_and_keep(tg_exchange *x, tg_carrier *c, const tg_arrived *a, tg_detail *why)
{
    tg_body_view *bodies = bodies_of(x, c);
    uint32_t cell = tg_carrier_cell(x, c, a->slice);
    for (uint32_t p = a->from; p < a->to; p++) {
        if (x->protocol->sums_all && p == x->rank) {
            tg_message own = tg_exchange_received(x, p);
            tg_expected expected = expect(x, c, a, p);
            TG_TRY(tg_frame_recall(&bodies[p], a->codec, &expected, own.data, own.len, why));
        } else {
            bodies[p].keeps = x->protocol->sums_all ? 1 + (p + x->world - x->rank) % x->world : 1;
            TG_TRY(tg_carrier_read(x, c, a->codec, p, p, a->codec->plan, cell, why));
        }
        if (tg_carrier_adds(x, c) && (p != x->rank || !adds_own_first(x, c))) {
            a->codec->executor->add(a->codec->run, cell, &bodies[p], p == a->from);
        }
    }
    return TG_OK;
}

bool tg_carrier_adds(const tg_exchange *x, const tg_carrier *c)
{
    return x->protocol->sums_all && c->averages == NULL && c->codec->executor->add != NULL;
}

/* Sums frames; false: one of them is bad. */
static bool sum_frames(const tg_exchange *x, tg_carrier *c, tg_run *run, const tg_arrived *a, const tg_sink *sink)
{
    tg_codec *codec = a->codec;
    tg_body_view *bodies = bodies_of(x, c);
    for (uint32_t p = a->from; p < a->to; p++) {
        tg_message message = tg_exchange_received(x, p);
        tg_expected expected = expect(x, c, a, p);
        if (tg_frame_find(&bodies[p], codec, &expected, message.data, message.len, NULL) != TG_OK) {
            return false;
        }
    }
    uint32_t cell = tg_carrier_cell(x, c, a->slice);
    bool sound = codec->executor->sum_unchecked(run, cell, &bodies[a->from], a->to - a->from, sink);
    for (uint32_t p = a->from; p < a->to && sound; p++) {
        tg_message message = tg_exchange_received(x, p);
        tg_expected expected = expect(x, c, a, p);
        sound = tg_frame_is_intact(&bodies[p], codec, &expected, message.data, message.len);
    }
    return sound;
}

bool tg_carrier_sum_later(tg_exchange *x, tg_carrier *c, const tg_arrived *a, const tg_sink *sink)
{
    tg_codec *codec = a->codec;
    tg_body_view *bodies = bodies_of(x, c);
    if (codec->executor->sum_later == NULL || codec->plan->nonfinite == TG_NONFINITE_ERROR || codec->plan->has_draws) {
        return false;
    }
    place_frames(x, c, a);
    for (uint32_t p = a->from; p < a->to; p++) {
        tg_message message = tg_exchange_received(x, p);
        tg_expected expected = expect(x, c, a, p);
        if (tg_frame_foresee(&bodies[p], codec, &expected, message.data, message.len, NULL) != TG_OK) {
            return false;
        }
    }
    uint32_t cell = tg_carrier_cell(x, c, a->slice);
    return codec->executor->sum_later(codec->run, cell, &bodies[a->from], a->to - a->from, sink);
}

tg_status tg_carrier_sum(tg_exchange *x, tg_carrier *c, tg_run *run, const tg_arrived *a, const tg_sink *sink,
                         tg_detail *why)
{
    place_frames(x, c, a);
    if (sum_frames(x, c, run, a, sink)) {
        return TG_OK;
    }
    TG_TRY(check_frames(x, c, a, why)); /* says which rank's frame is bad, and why */
    return tg_fail(TG_E_FRAME, why, TG_FRAME_CHANGED);
}

tg_status tg_carrier_receive(tg_exchange *x, tg_carrier *c, const tg_arrived *a, tg_detail *why)
{
    if (c->averages == NULL) {
        place_frames(x, c, a);
        return check_and_keep(x, c, a, why);
    }
    tg_sink sink = {.averages = c->averages, .divisor = (float)(a->to - a->from)};
    return tg_carrier_sum(x, c, a->codec->run, a, &sink, why);
}

/* ---- owners ----------------------------------------------------------------------------------------------------------- */

tg_status tg_owners_suit(const tg_layout *layout, tg_detail *why)
{
    for (size_t u = 0; u < layout->unit_n; u++) {
        const tg_recipe *recipe = layout->units[u].recipe;
        const char *name = recipe->part[TG_STAGE_select]->name;
        if (tg_recipe_follows_leader(recipe)) {
            return tg_fail(TG_E_RECIPE, why, "'%s' with coords=shared follows a leader, which only allreduce can",
                           name);
        }
        tg_recipe answer;
        bool has_all = tg_recipe_answer(&answer, recipe);
        if (!has_all && tg_recipe_select(recipe)->by == TG_BY_SEED &&
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

tg_status tg_owners_send_slices(tg_exchange *x, tg_carrier *c, void *const *grads, tg_detail *why)
{
    TG_TRY(tg_carrier_write(x, c, grads, why));
    for (uint32_t p = 0; p < x->world; p++) {
        uint32_t cell = tg_carrier_cell(x, c, p);
        tg_exchange_send(x, p, c->frames[cell], &c->framed[cell]);
    }
    return TG_OK;
}

tg_status tg_owners_average(tg_exchange *x, tg_carrier *c, tg_detail *why)
{
    if (c->answer == NULL) {
        return TG_OK;
    }
    tg_arrived all = {.codec = c->codec, .slice = c->answer->plan->slice, .to = x->world};
    tg_sink sink = {.flat = c->mean, .divisor = (float)x->world};
    return tg_carrier_sum(x, c, tg_carrier_averager(c)->run, &all, &sink, why);
}

tg_status tg_owners_answer(tg_exchange *x, tg_carrier *c, tg_detail *why)
{
    if (c->answer == NULL) {
        return TG_OK;
    }
    tg_source source = {.flat = c->mean};
    const tg_plan *plan = c->answer->plan;
    uint32_t group = x->lane->group, cell = tg_carrier_cell(x, c, plan->slice);
    tg_framed framed;
    TG_TRY(c->answer->executor->select(c->answer->run, group, x->step.number, &source, why));
    TG_TRY(tg_frame_write(&framed, c->answer, plan, &c->answers[group], cell, cell + 1, x->step.number, &source, why));
    tg_exchange_send_all(x, c->answers[group], &framed);
    return TG_OK;
}

tg_status tg_owners_receive_answers(tg_exchange *x, tg_carrier *c, tg_detail *why)
{
    const tg_grid *grid = c->codec->grid;
    for (uint32_t s = 0; s < grid->slices; s++) {
        size_t views = grid->first[tg_carrier_cell(x, c, s)] - grid->first[tg_carrier_cell(x, c, 0)];
        tg_arrived one = {.codec = tg_carrier_reader(c), .slice = s, .from = s, .to = s + 1, .views = views};
        TG_TRY(tg_carrier_receive(x, c, &one, why));
    }
    return TG_OK;
}

void tg_owners_deliver(const tg_carrier *c, uint32_t group, void *const *grads)
{
    tg_codec *codec = tg_carrier_reader(c);
    tg_sink sink = {.averages = grads, .divisor = 1.0f};
    const tg_body_view *bodies = c->bodies + group * c->group_bodies;
    if (c->averages != NULL) {
        codec->executor->copy(codec->run, group, grads, c->averages);
        return;
    }
    for (uint32_t s = 0; s < codec->grid->slices; s++) {
        codec->executor->sum(codec->run, group * codec->grid->slices + s, &bodies[s], 1, &sink);
    }
}

void tg_owners_commit(const tg_carrier *c)
{
    c->codec->executor->commit(c->codec->run);
    if (c->answer != NULL) {
        c->answer->executor->commit(c->answer->run);
    }
}

tg_status tg_owners_receive(tg_exchange *x, uint32_t round, tg_detail *why)
{
    return round == 0 ? tg_owners_average(x, x->carrier, why) : tg_owners_receive_answers(x, x->carrier, why);
}

void tg_owners_deliver_own(tg_exchange *x, uint32_t group, void *const *grads)
{
    tg_owners_deliver(x->carrier, group, grads);
}

void tg_owners_commit_own(tg_exchange *x)
{
    tg_owners_commit(x->carrier);
}
