/* Progress of a reducer: votes, lengths, and groups that can start or whose operation is done. Whoever calls tg_reducer_pump is the only one who
 * touches the exchange while a step is under way. */
#include "link/reducer.h"

#include "link/clock.h"

/* ---- failures ---------------------------------------------------------------------------------------------------------- */

static void end(tg_reducer *r, tg_status status, const tg_detail *why)
{
    r->is_over = true;
    r->outcome = (tg_outcome){status, *why};
}

/* Tells the caller that the step has ended. From then on the exchange is the caller's, who may begin the next step at once. */
static void tell_end(tg_reducer *r)
{
    pthread_mutex_lock(&r->lock);
    r->is_ended = true;
    pthread_cond_broadcast(&r->end);
    pthread_mutex_unlock(&r->lock);
}

/* The link has failed, or what came cannot be understood. Other ranks learn of it. */
static void give_up(tg_reducer *r, tg_status status, const tg_detail *why)
{
    tg_exchange_cancel(r->x);
    r->link->abort(r->link, why->text);
    end(r, status, why);
}

/* ---- progress ---------------------------------------------------------------------------------------------------------- */

/* Starts an operation, or gives up. */
static void start(tg_reducer *r, uint32_t channel, const tg_op *op)
{
    tg_detail why = {""};
    if (r->under_way++ == 0) {
        r->since_ns = tg_now_ns();
    }
    tg_status status = r->link->start(r->link, channel, op, &why);
    if (status != TG_OK) {
        give_up(r, status, &why);
    }
}

/* Whether the operation on a channel is done. Gives up if the link has failed. */
static bool is_done(tg_reducer *r, uint32_t channel)
{
    tg_detail why = {""};
    tg_status status = r->link->test(r->link, channel, &why);
    if (status == TG_OK && --r->under_way == 0) {
        r->x->counts.last.wire_ns += tg_now_ns() - r->since_ns;
    }
    if (status != TG_OK && status != TG_MORE) {
        give_up(r, status, &why);
    }
    return status == TG_OK;
}

static void advance_group(tg_reducer *r, uint32_t g)
{
    tg_group_state *group = &r->groups[g];
    tg_meter *last = &r->x->lanes[g].counts.last;
    tg_detail why = {""};
    uint64_t now = tg_now_ns();
    if (group->flight != TG_GROUNDED) {
        last->wire_ns += now - group->started_ns;
    } else if (group->ready_ns != 0) {
        last->wait_ns += now - group->ready_ns;
    }
    tg_status status = tg_lane_next(r->x, g, &group->op, &why);
    group->started_ns = tg_now_ns();
    if (status == TG_OK) {
        group->flight = tg_lane_is_done(r->x, g) ? TG_LANDED : TG_AWAITS_LENGTHS;
    } else if (status == TG_MORE) {
        group->flight = TG_IN_FLIGHT;
        start(r, TG_GROUP_CHANNEL + g, &group->op);
    } else {
        give_up(r, status, &why);
    }
}

/* The vote that is due. Returns whether there was something to do. */
static bool pump_vote(tg_reducer *r)
{
    tg_detail why = {""};
    if (r->votes && !is_done(r, TG_CONTROL_CHANNEL)) {
        return false;
    }
    r->votes = false;
    tg_status status = tg_step_vote(r->x, &r->control, &why);
    if (status == TG_MORE) {
        r->votes = true;
        start(r, TG_CONTROL_CHANNEL, &r->control);
    } else if (status == TG_E_LINK) {
        give_up(r, status, &why);
    } else if (status != TG_OK || r->x->step.phase == TG_IDLE) {
        end(r, status, &why);
    }
    return true;
}

/* Whether all gradients of a group are there, or nothing waits for them any more. */
static bool may_start(tg_reducer *r, uint32_t g)
{
    pthread_mutex_lock(&r->lock);
    bool may = r->groups[g].missing == 0 || r->is_awaited;
    pthread_mutex_unlock(&r->lock);
    return may;
}

/* Whether what a group waits for has happened. Gives up if the link has failed. */
static bool can_advance(tg_reducer *r, uint32_t g)
{
    switch (r->groups[g].flight) {
    case TG_GROUNDED: return may_start(r, g);
    case TG_AWAITS_LENGTHS: return tg_lane_is_cleared(r->x, g);
    case TG_IN_FLIGHT: return is_done(r, TG_GROUP_CHANNEL + g);
    case TG_LANDED: break;
    }
    return false;
}

static bool any_may_start(tg_reducer *r)
{
    for (uint32_t g = 0; g < r->x->lane_n; g++) {
        if (r->groups[g].flight == TG_GROUNDED && may_start(r, g)) {
            return true;
        }
    }
    return false;
}

/* Performs what a call for lengths has returned. */
static void carry_lengths(tg_reducer *r, uint32_t slot, tg_status status, const tg_detail *why)
{
    r->announces[slot] = status == TG_MORE;
    if (status == TG_MORE) {
        start(r, TG_LENGTHS_CHANNEL + slot, &r->lengths[slot]);
    } else if (status != TG_OK) {
        give_up(r, status, why);
    }
}

/* Announcements of lengths that have arrived. Returns whether there were any. */
static bool pump_lengths(tg_reducer *r)
{
    bool any = false;
    for (uint32_t slot = 0; slot < TG_ANNOUNCEMENT_MAX && tg_reducer_is_busy(r); slot++) {
        if (r->announces[slot] && is_done(r, TG_LENGTHS_CHANNEL + slot)) {
            tg_detail why = {""};
            carry_lengths(r, slot, tg_lengths_next(r->x, slot, &r->lengths[slot], &why), &why);
            any = true;
        }
    }
    return any;
}

/* The last rank to announce a group need not wait for the others, and may be done with the group before that announcement is over. */
static bool announces_any(const tg_reducer *r)
{
    bool any = false;
    for (uint32_t slot = 0; slot < TG_ANNOUNCEMENT_MAX; slot++) {
        any = any || r->announces[slot];
    }
    return any;
}

/* The announcement that is due. Returns whether there was one. */
static bool start_lengths(tg_reducer *r)
{
    tg_op op;
    uint32_t slot = 0;
    if (!tg_reducer_is_busy(r) || tg_lengths_start(r->x, &slot, &op, any_may_start(r)) != TG_MORE) {
        return false;
    }
    r->lengths[slot] = op;
    r->announces[slot] = true;
    start(r, TG_LENGTHS_CHANNEL + slot, &r->lengths[slot]);
    return true;
}

void tg_reducer_heed_misuse(tg_reducer *r)
{
    pthread_mutex_lock(&r->lock);
    if (r->misuse.status != TG_OK) {
        tg_step_fail(r->x, r->misuse.status, &r->misuse.why);
    }
    pthread_mutex_unlock(&r->lock);
}

bool tg_reducer_is_busy(const tg_reducer *r)
{
    return r->x->step.phase != TG_IDLE;
}

/* Advances the first group in this state that can. Returns whether there was one. */
static bool advance_any(tg_reducer *r, tg_flight flight)
{
    for (uint32_t g = 0; g < r->x->lane_n && tg_reducer_is_busy(r); g++) {
        if (r->groups[g].flight == flight && can_advance(r, g)) {
            advance_group(r, g);
            (void)start_lengths(r);
            return true;
        }
    }
    return false;
}

static bool have_all_landed(const tg_reducer *r)
{
    uint32_t landed = 0;
    for (uint32_t g = 0; g < r->x->lane_n; g++) {
        landed += r->groups[g].flight == TG_LANDED ? 1 : 0;
    }
    return landed == r->x->lane_n;
}

/* What can be done next, so that the link has work early: lengths, messages that only wait for them, encoding, and checking last. */
static bool pump_groups(tg_reducer *r)
{
    tg_reducer_heed_misuse(r);
    bool any = pump_lengths(r);
    any = start_lengths(r) || any;
    any = advance_any(r, TG_AWAITS_LENGTHS) || advance_any(r, TG_GROUNDED) || advance_any(r, TG_IN_FLIGHT) || any;
    if (tg_reducer_is_busy(r) && have_all_landed(r) && !announces_any(r)) {
        tg_reducer_heed_misuse(r);
        tg_step_close(r->x);
        any = true;
    }
    return any;
}

bool tg_reducer_pump(tg_reducer *r)
{
    bool any = false;
    for (bool more = true; more && tg_reducer_is_busy(r);) {
        more = r->x->step.phase == TG_FLYING ? pump_groups(r) : pump_vote(r);
        any = any || more;
    }
    if (r->is_over) {
        tell_end(r);
    }
    return any;
}

void tg_reducer_end(tg_reducer *r, tg_status status, const tg_detail *why)
{
    end(r, status, why);
    tell_end(r);
}
