/* Hosts: ranks of a host sum first, and one rank a host exchanges with other hosts. Two exchanges do the work:
 *
 *     inside     of the ranks of a host: gradients up to the leader, averages down (inside.c)
 *     between    of the leaders: the host's mean, by the recipe, as a flat exchange of as many ranks as there are hosts
 *
 *     hosts of 2    rank 0, leader     rank 1          rank 2, leader     rank 3
 *     up            A <--------------- B               C <--------------- D          inside
 *     across        (A+B)/2 <-------------------------> (C+D)/2                      between, by the recipe
 *     down          M ---------------> M               M ---------------> M          inside
 *
 * Both hand out operations over ranks of their own, which are renumbered to ranks of the job here. All ranks take part in the
 * same number of operations on a group's channel. So other ranks than leaders have an operation without messages in each round
 * between leaders. An operation without messages is done at once. Leaders alone announce lengths, on channels that other ranks
 * do not use.
 *
 * In turn there are no channels: all ranks have the same operations in the same order. Other ranks do not know whether leaders
 * announce lengths before a round. So all have the operations of an announcement before each round of all groups, some of them
 * without messages.
 *
 * With `inside=` in the recipe, gradients and averages inside a host are encoded, too. All ranks, leaders included, then hold what
 * the frame of the averages decodes to, so that they hold the same.
 *
 * A rank fares as both of its exchanges do: one that fails in one of them sends messages that say so in the other. */
#include "exchange/exchange.h"

#include "kernels/hash.h"
#include "recipe/policy.h"

#include <string.h>

static bool is_leader(const tg_exchange *x)
{
    return x->rank % x->host_size == 0;
}

/* ---- making them ------------------------------------------------------------------------------------------------------- */

/* The exchange inside a host, and that ranks agree on its recipe. */
static tg_status seat_inside(tg_exchange *x, const tg_seat *seat, const char *recipe, const tg_tensor *tensors,
                             size_t tensor_n, const tg_options *opt, tg_detail *why)
{
    char inside[TG_RECIPE_CAP];
    tg_policy_inside(inside, recipe);
    x->hosts->is_lossy = strcmp(inside, "dense") != 0;
    tg_status status = tg_exchange_seat(&x->hosts->inside, seat, inside, tensors, tensor_n, opt, why);
    if (status == TG_E_NO_EFFECT) { /* all tensors are exempt, but for rules */
        x->hosts->is_lossy = false;
        status = tg_exchange_seat(&x->hosts->inside, seat, "dense", tensors, tensor_n, opt, why);
    }
    if (status == TG_OK && x->hosts->is_lossy) {
        uint64_t both[2] = {x->agreement, x->hosts->inside->codec->layout->description.fingerprint};
        x->agreement = tg_hash_words(both, 2);
    }
    return status;
}

static tg_status open_inside(tg_exchange *x, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                             const tg_options *opt, tg_detail *why)
{
    uint32_t place = x->rank % x->host_size, *group_of = NULL;
    const tg_seat seat = {.rank = place,
                          .world = x->host_size,
                          .first_rank = x->rank - place,
                          .rank_step = 1,
                          .host_size = x->host_size,
                          .protocol = &tg_protocol_inside,
                          .own = x->hosts};
    tg_options dense = *opt;
    dense.rules = NULL;
    dense.rule_n = 0;
    dense.group_len = 0;
    TG_TRY(tg_acquire(&group_of, &x->allocator, tensor_n, sizeof *group_of, why));
    for (size_t t = 0; t < tensor_n; t++) {
        group_of[t] = (uint32_t)tg_exchange_group(x, t);
    }
    dense.group_of = group_of;
    tg_status status = seat_inside(x, &seat, recipe, tensors, tensor_n, &dense, why);
    tg_release(&x->allocator, group_of);
    return status;
}

static tg_status open_between(tg_exchange *x, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                              const tg_options *opt, tg_detail *why)
{
    tg_hosts *h = x->hosts;
    const tg_seat seat = {
        .rank = x->rank / x->host_size, .world = x->world / x->host_size, .rank_step = x->host_size, .host_size = 1};
    TG_TRY(tg_carrier_buffers(&h->means, &h->mean_space, x->codec, &x->allocator, why));
    TG_TRY(tg_carrier_buffers(&h->averages, &h->average_space, x->codec, &x->allocator, why));
    return tg_exchange_seat(&h->between, &seat, recipe, tensors, tensor_n, opt, why);
}

static tg_status acquire_spans(tg_host_lane *lane, const tg_exchange *x, tg_detail *why)
{
    TG_TRY(tg_acquire(&lane->sends, &x->allocator, x->world, sizeof *lane->sends, why));
    return tg_acquire(&lane->recvs, &x->allocator, x->world, sizeof *lane->recvs, why);
}

static void release_spans(const tg_host_lane *lane, const tg_exchange *x)
{
    tg_release(&x->allocator, lane->recvs);
    tg_release(&x->allocator, lane->sends);
}

tg_status tg_hosts_open(tg_exchange *x, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                        const tg_options *opt, tg_detail *why)
{
    const tg_allocator *a = &x->allocator;
    TG_TRY(tg_acquire(&x->hosts, a, 1, sizeof *x->hosts, why));
    tg_hosts *h = x->hosts; /* closed with the exchange, whatever happens here */
    h->crossings = x->protocol->rounds(x);
    TG_TRY(tg_acquire(&h->lanes, a, x->lane_n, sizeof *h->lanes, why));
    for (uint32_t g = 0; g < x->lane_n; g++) {
        TG_TRY(acquire_spans(&h->lanes[g], x, why));
    }
    for (uint32_t i = 0; i < TG_ANNOUNCEMENT_MAX; i++) {
        TG_TRY(acquire_spans(&h->lengths[i], x, why));
    }
    TG_TRY(open_inside(x, recipe, tensors, tensor_n, opt, why));
    return is_leader(x) ? open_between(x, recipe, tensors, tensor_n, opt, why) : TG_OK;
}

void tg_hosts_close(tg_exchange *x)
{
    tg_hosts *h = x->hosts;
    const tg_allocator *a = &x->allocator;
    if (h == NULL) {
        return;
    }
    tg_exchange_free(h->between);
    tg_release(a, h->averages);
    x->codec->executor->release(x->codec->device, a, h->average_space);
    tg_release(a, h->means);
    x->codec->executor->release(x->codec->device, a, h->mean_space);
    tg_exchange_free(h->inside);
    for (uint32_t i = 0; i < TG_ANNOUNCEMENT_MAX; i++) {
        release_spans(&h->lengths[i], x);
    }
    for (uint32_t g = 0; h->lanes != NULL && g < x->lane_n; g++) {
        release_spans(&h->lanes[g], x);
    }
    tg_release(a, h->lanes);
    tg_release(a, h);
}

/* ---- the way of a group --------------------------------------------------------------------------------------------------- */

/* An operation of all ranks, without messages so far. */
static tg_op empty_op(const tg_exchange *x, const tg_host_lane *lane)
{
    memset(lane->sends, 0, x->world * sizeof *lane->sends);
    memset(lane->recvs, 0, x->world * sizeof *lane->recvs);
    return (tg_op){
        .kind = TG_ALLTOALLV, .rank = x->rank, .world = x->world, .sends = lane->sends, .recvs = lane->recvs};
}

/* How a rank fares, from one exchange to another. */
static void fare_as(tg_exchange *to, const tg_exchange *from)
{
    to->step.status = from->step.status;
    to->step.why = from->step.why;
    to->step.is_peers = from->step.is_peers;
}

/* An operation of one of the two exchanges, as one of all ranks. */
static tg_op renumber(const tg_exchange *x, const tg_exchange *in, const tg_host_lane *lane, const tg_op *own)
{
    tg_op op = empty_op(x, lane);
    for (uint32_t p = 0; p < in->world; p++) {
        lane->sends[tg_job_rank(in, p)] = own->sends[p];
        lane->recvs[tg_job_rank(in, p)] = own->recvs[p];
    }
    return op;
}

/* Continues a group in one of the two exchanges. */
static tg_status go_on(tg_exchange *x, tg_exchange *in, uint32_t group, tg_op *op, tg_detail *why)
{
    tg_op own;
    fare_as(in, x);
    tg_status status = tg_lane_next(in, group, &own, why);
    fare_as(x, in);
    if (status == TG_MORE) {
        *op = renumber(x, in, &x->hosts->lanes[group], &own);
    }
    return status;
}

/* Continues a group between hosts. In turn, what needs no lengths waits for those that do. */
static tg_status cross(tg_exchange *x, uint32_t group, tg_op *op, tg_detail *why)
{
    tg_hosts *h = x->hosts;
    tg_host_lane *lane = &h->lanes[group];
    bool is_cleared = tg_lane_is_cleared(x, group);
    tg_status status = TG_OK;
    if (lane->is_held) {
        lane->is_held = false;
        *op = lane->held;
        return TG_MORE;
    }
    if (h->between != NULL) {
        status = go_on(x, h->between, group, op, why);
    } else if (lane->crossed < h->crossings) {
        *op = empty_op(x, lane);
        status = TG_MORE;
    }
    lane->crossed += status == TG_MORE ? 1 : 0;
    if (status == TG_MORE && x->step.is_in_turn && !is_cleared) {
        lane->is_held = true;
        lane->held = *op;
        return TG_OK;
    }
    return status;
}

/* Whether a group that has no operation now has crossed. */
static bool has_crossed(const tg_exchange *x, uint32_t group)
{
    const tg_hosts *h = x->hosts;
    return !h->lanes[group].is_held && (h->between == NULL || tg_lane_is_done(h->between, group));
}

tg_status tg_hosts_next(tg_exchange *x, uint32_t group, tg_op *op, tg_detail *why)
{
    tg_hosts *h = x->hosts;
    tg_host_lane *lane = &h->lanes[group];
    while (lane->leg != TG_LEG_DONE) {
        bool crosses = lane->leg == TG_LEG_ACROSS;
        tg_status status = crosses ? cross(x, group, op, why) : go_on(x, h->inside, group, op, why);
        if (status != TG_OK || (crosses && !has_crossed(x, group))) {
            return status;
        }
        lane->leg++;
        if (lane->leg == TG_LEG_DOWN) {
            h->inside->lanes[group].phase = TG_LANE_START; /* of its second round */
        }
    }
    return TG_OK;
}

bool tg_hosts_is_done(const tg_exchange *x, uint32_t group)
{
    return x->hosts->lanes[group].leg == TG_LEG_DONE;
}

/* An announcement between leaders. In turn, other ranks have as many operations, and leaders with nothing to announce have them, too. */
static tg_status announce(tg_exchange *x, uint32_t slot, tg_op *op, const tg_op *own, tg_status status)
{
    tg_hosts *h = x->hosts;
    tg_host_lane *lane = &h->lengths[slot];
    if (status == TG_MORE) {
        *op = renumber(x, h->between, lane, own);
    } else if (status == TG_OK && x->step.is_in_turn && lane->crossed < tg_lengths_hops(x->world / x->host_size)) {
        *op = empty_op(x, lane);
        status = TG_MORE;
    }
    lane->crossed = status == TG_MORE ? lane->crossed + 1 : 0;
    return status;
}

tg_status tg_hosts_start_lengths(tg_exchange *x, uint32_t *slot, tg_op *op, bool more_to_come)
{
    tg_exchange *between = x->hosts->between;
    tg_op own;
    tg_status status = TG_OK;
    *slot = 0;
    if (between != NULL) {
        fare_as(between, x);
        status = tg_lengths_start(between, slot, &own, more_to_come);
        fare_as(x, between);
    }
    return announce(x, *slot, op, &own, status);
}

tg_status tg_hosts_next_lengths(tg_exchange *x, uint32_t slot, tg_op *op, tg_detail *why)
{
    tg_exchange *between = x->hosts->between;
    tg_op own;
    tg_status status = TG_OK;
    if (between != NULL && between->lengths.slots[slot].state == TG_ANNOUNCED) {
        fare_as(between, x);
        status = tg_lengths_next(between, slot, &own, why);
        fare_as(x, between);
    }
    return announce(x, slot, op, &own, status);
}

/* ---- a step ------------------------------------------------------------------------------------------------------------------ */

void tg_hosts_begin(tg_exchange *x)
{
    tg_hosts *h = x->hosts;
    h->inside->now = x->now;
    tg_step_begin(h->inside, TG_FLYING, x->step.number, x->step.grads);
    if (h->between != NULL) {
        h->between->now = x->now;
        tg_step_begin(h->between, TG_FLYING, x->step.number, h->means);
    }
    for (uint32_t i = 0; i < TG_ANNOUNCEMENT_MAX; i++) {
        h->lengths[i].crossed = 0;
    }
    for (uint32_t g = 0; g < x->lane_n; g++) {
        h->lanes[g].leg = TG_LEG_UP;
        h->lanes[g].crossed = 0;
        h->lanes[g].is_held = false;
    }
}

void tg_hosts_finish(tg_exchange *x)
{
    const tg_hosts *h = x->hosts;
    for (uint32_t g = 0; g < x->lane_n; g++) {
        h->inside->protocol->deliver(h->inside, g, x->step.grads);
    }
    if (h->between != NULL) {
        h->between->protocol->commit(h->between);
    }
}

/* Bytes, and times by group, which end_step adds up. */
static void end_one(tg_exchange *x, tg_exchange *in)
{
    in->step.phase = TG_IDLE;
    tg_step_add(&x->counts.last, &in->counts.last);
    for (uint32_t g = 0; g < x->lane_n; g++) {
        tg_meter *lane = &x->lanes[g].counts.last;
        const tg_meter *own = &in->lanes[g].counts.last;
        tg_step_add(lane, own);
        lane->encode_ns += own->encode_ns;
        lane->decode_ns += own->decode_ns;
    }
}

void tg_hosts_end(tg_exchange *x)
{
    end_one(x, x->hosts->inside);
    if (x->hosts->between != NULL) {
        end_one(x, x->hosts->between);
    }
}
