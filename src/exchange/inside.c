/* Inside: the ranks of a host, and its lowest rank, the leader, which exchanges with other hosts in between (hosts.c).
 *
 *                 rank 0, the leader     rank 1        rank 2
 *     send 0      A                      B             C           each writes its gradient as it is
 *     receive 0   A B C                                            gatherv to the leader, which takes the mean, in fp32
 *                 M                                                the average over all hosts, by the recipe
 *     send 1      M                                                as it is
 *     receive 1   M                      M             M           broadcast from the leader
 *
 * "As it is" means by the quantizer that `inside=` names, if the recipe has one. The leader then reads its own frame of M, too.
 *
 * The mean of a host is a gradient like any other: it has the tensor's dtype. */
#include "exchange/exchange.h"

static uint32_t rounds(const tg_exchange *x)
{
    const tg_hosts *h = x->own;
    return h->lanes[x->lane->group].leg == TG_LEG_UP ? 1 : 2; /* the second waits for other hosts */
}

/* Both frames are written to the same place: when the second is, the first has been summed. */
static uint8_t *frame_of(const tg_exchange *x)
{
    return x->carrier->frames[x->lane->group];
}

static void shape(tg_exchange *x, uint32_t round)
{
    tg_carrier_shape_server(x, x->carrier, frame_of(x), round == 1);
}

static tg_status send_up(tg_exchange *x, tg_detail *why)
{
    TG_TRY(tg_carrier_write(x, x->carrier, x->step.grads, why));
    tg_exchange_send(x, 0, frame_of(x), &x->carrier->framed[x->lane->group]);
    return TG_OK;
}

static tg_status send_down(tg_exchange *x, tg_detail *why)
{
    const tg_hosts *h = x->own;
    if (x->rank != 0) {
        return TG_OK;
    }
    h->between->protocol->deliver(h->between, x->lane->group, h->averages);
    TG_TRY(tg_carrier_write(x, x->carrier, h->averages, why));
    tg_exchange_send_all(x, frame_of(x), &x->carrier->framed[x->lane->group]);
    return TG_OK;
}

static tg_status send(tg_exchange *x, uint32_t round, tg_detail *why)
{
    return round == 0 ? send_up(x, why) : send_down(x, why);
}

static tg_status receive(tg_exchange *x, uint32_t round, tg_detail *why)
{
    const tg_hosts *h = x->own;
    bool is_leader = x->rank == 0;
    if (is_leader && round == 0) {
        tg_arrived all = {.codec = x->codec, .to = x->world};
        tg_sink sink = {.averages = h->means, .divisor = (float)x->world};
        return tg_carrier_sum(x, x->carrier, x->codec->run, &all, &sink, why);
    }
    if ((!is_leader || h->is_lossy) && round == 1) {
        tg_arrived one = {.codec = x->codec, .to = 1};
        return tg_carrier_receive(x, x->carrier, &one, why);
    }
    return TG_OK;
}

static void deliver(tg_exchange *x, uint32_t group, void *const *grads)
{
    const tg_hosts *h = x->own;
    if (x->rank == 0 && !h->is_lossy) {
        x->codec->executor->copy(x->codec->run, group, grads, h->averages);
    } else {
        tg_owners_deliver(x->carrier, group, grads);
    }
}

const tg_protocol tg_protocol_inside = {
    .name = "inside",
    .holds = TG_HAS_VALUES,
    .open = tg_carrier_open_own,
    .close = tg_carrier_close_own,
    .rounds = rounds,
    .shape = shape,
    .send = send,
    .receive = receive,
    .deliver = deliver,
};
