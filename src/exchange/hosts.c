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
 * same number of operations on a channel. So other ranks than leaders have operations without messages while leaders exchange;
 * and leaders have them where lengths are known, because other ranks do not keep what it takes to know that. An operation
 * without messages is done at once.
 *
 * A rank fares as both of its exchanges do: one that fails in one of them sends messages that say so in the other. */
#include "exchange/exchange.h"

#include <string.h>

static bool is_leader(const tg_exchange *x)
{
    return x->rank % x->host_size == 0;
}

/* ---- making them ------------------------------------------------------------------------------------------------------- */

static tg_status open_inside(tg_exchange *x, const tg_tensor *tensors, size_t tensor_n, const tg_options *opt,
                             tg_detail *why)
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
    tg_status status = tg_exchange_seat(&x->hosts->inside, &seat, "dense", tensors, tensor_n, &dense, why);
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

tg_status tg_hosts_open(tg_exchange *x, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                        const tg_options *opt, tg_detail *why)
{
    const tg_allocator *a = &x->allocator;
    TG_TRY(tg_acquire(&x->hosts, a, 1, sizeof *x->hosts, why));
    tg_hosts *h = x->hosts; /* closed with the exchange, whatever happens here */
    h->crossings = x->protocol->rounds(x) * (tg_length_hops(x->world / x->host_size) + 1);
    TG_TRY(tg_acquire(&h->lanes, a, x->lane_n, sizeof *h->lanes, why));
    for (uint32_t g = 0; g < x->lane_n; g++) {
        TG_TRY(tg_acquire(&h->lanes[g].sends, a, x->world, sizeof(tg_span), why));
        TG_TRY(tg_acquire(&h->lanes[g].recvs, a, x->world, sizeof(tg_span), why));
    }
    TG_TRY(open_inside(x, tensors, tensor_n, opt, why));
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
    for (uint32_t g = 0; h->lanes != NULL && g < x->lane_n; g++) {
        tg_release(a, h->lanes[g].recvs);
        tg_release(a, h->lanes[g].sends);
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

/* Continues a group in one of the two exchanges. */
static tg_status go_on(tg_exchange *x, tg_exchange *in, uint32_t group, tg_op *op, tg_detail *why)
{
    const tg_host_lane *lane = &x->hosts->lanes[group];
    tg_op own;
    in->step.status = x->step.status;
    in->step.why = x->step.why;
    in->step.is_peers = x->step.is_peers;
    tg_status status = tg_lane_next(in, group, &own, why);
    x->step.status = in->step.status;
    x->step.why = in->step.why;
    x->step.is_peers = in->step.is_peers;
    if (status == TG_MORE) {
        *op = empty_op(x, lane);
        for (uint32_t p = 0; p < in->world; p++) {
            lane->sends[tg_job_rank(in, p)] = own.sends[p];
            lane->recvs[tg_job_rank(in, p)] = own.recvs[p];
        }
    }
    return status;
}

/* Continues a group between hosts. */
static tg_status cross(tg_exchange *x, uint32_t group, tg_op *op, tg_detail *why)
{
    tg_hosts *h = x->hosts;
    tg_host_lane *lane = &h->lanes[group];
    tg_status status = h->between != NULL ? go_on(x, h->between, group, op, why) : TG_OK;
    if (status == TG_OK && lane->crossed < h->crossings) {
        *op = empty_op(x, lane);
        status = TG_MORE;
    }
    lane->crossed += status == TG_MORE ? 1 : 0;
    return status;
}

tg_status tg_hosts_next(tg_exchange *x, uint32_t group, tg_op *op, tg_detail *why)
{
    tg_hosts *h = x->hosts;
    tg_host_lane *lane = &h->lanes[group];
    while (lane->leg != TG_LEG_DONE) {
        bool crosses = lane->leg == TG_LEG_ACROSS;
        tg_status status = crosses ? cross(x, group, op, why) : go_on(x, h->inside, group, op, why);
        if (status != TG_OK) {
            return status;
        }
        lane->leg++;
        if (lane->leg == TG_LEG_DOWN) {
            h->inside->lanes[group].phase = TG_LANE_START; /* of its second round */
        }
    }
    return TG_OK;
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
    for (uint32_t g = 0; g < x->lane_n; g++) {
        h->lanes[g].leg = TG_LEG_UP;
        h->lanes[g].crossed = 0;
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
