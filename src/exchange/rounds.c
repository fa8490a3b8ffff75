/* The way of a group through its rounds:
 *
 *     START -> (ENCODED -> ANNOUNCED -> CLEARED ->) MESSAGES -> START ...  once a round
 *           -> DONE
 *
 * Lengths go ahead of messages unless all ranks know them: lengths.c announces them, for all groups that are ready.
 *
 * A rank that has failed announces that or, where lengths are known, sends a message that begins with "TGER". No frame begins like
 * that, so it is looked for only when a check has failed. */
#include "exchange/exchange.h"

#include <string.h>

static const uint8_t poison[4] = {'T', 'G', 'E', 'R'};

/* ---- failures -------------------------------------------------------------------------------------------------------- */

void tg_step_fail_by(tg_exchange *x, uint32_t p)
{
    if (x->step.status == TG_OK) {
        x->step.is_peers = true;
        x->step.status = tg_fail(TG_E_PEER, &x->step.why, "rank %u has sent no data", tg_job_rank(x, p));
    }
}

void tg_lane_spoil(const tg_exchange *x, tg_lane *lane)
{
    tg_mail *mail = &lane->mail;
    for (uint32_t p = 0; p < x->world; p++) {
        mail->payload[p] = 0;
        if (!mail->is_known) {
            mail->sends[p] = (tg_span){NULL, 0};
        } else if (mail->sends[p].len > 0) {
            x->codec->executor->store(x->codec->device, mail->sends[p].data, poison, sizeof poison);
        }
    }
}

static bool is_spoiled(const tg_exchange *x, const tg_span *message)
{
    uint8_t space[sizeof poison];
    const uint8_t *start = NULL;
    return message->len >= sizeof poison &&
           x->codec->executor->fetch(&start, space, x->codec->device, NULL, message->data, sizeof poison, NULL) ==
               TG_OK &&
           memcmp(start, poison, sizeof poison) == 0;
}

/* Notes that a round has failed: because of a rank that has failed, if one has, and only else because of what was received. */
static void fail_round(tg_exchange *x, tg_status status, const tg_detail *why)
{
    const tg_mail *mail = &x->lane->mail;
    for (uint32_t p = 0; p < x->world && mail->is_known; p++) {
        if (is_spoiled(x, &mail->recvs[p])) {
            tg_step_fail_by(x, p);
        }
    }
    tg_step_fail(x, status, why);
}

/* ---- messages -------------------------------------------------------------------------------------------------------- */

static tg_status send_messages(tg_exchange *x, tg_op *op)
{
    const tg_mail *mail = &x->lane->mail;
    x->lane->phase = TG_LANE_MESSAGES;
    *op = (tg_op){.kind = mail->kind,
                  .root = mail->root,
                  .rank = x->rank,
                  .world = x->world,
                  .sends = mail->sends,
                  .recvs = mail->recvs};
    tg_step_count(x, x->lane, op, mail->payload);
    return TG_MORE;
}

static tg_status start_round(tg_exchange *x, tg_op *op)
{
    tg_mail *mail = &x->lane->mail;
    if (x->lane->round == x->protocol->rounds(x)) {
        x->lane->phase = TG_LANE_DONE;
        return TG_OK;
    }
    memset(mail->sends, 0, x->world * sizeof *mail->sends);
    memset(mail->recvs, 0, x->world * sizeof *mail->recvs);
    memset(mail->payload, 0, x->world * sizeof *mail->payload);
    mail->self = NULL;
    mail->self_len = 0;
    mail->root = 0;
    mail->is_known = false;
    uint64_t begin = tg_step_now(x);
    x->protocol->shape(x, x->lane->round);
    if (x->step.status == TG_OK) {
        x->step.status = x->protocol->send(x, x->lane->round, &x->step.why);
    }
    x->lane->counts.last.encode_ns += tg_step_now(x) - begin;
    if (x->step.status != TG_OK) {
        tg_lane_spoil(x, x->lane);
    }
    if (mail->is_known) {
        return send_messages(x, op);
    }
    x->lane->phase = TG_LANE_ENCODED;
    return TG_OK;
}

bool tg_lane_is_spared(const tg_exchange *x, const tg_lane *lane)
{
    return x->step.is_spared && x->protocol->shows_last && lane->round + 1 == x->protocol->rounds(x);
}

static tg_status receive_messages(tg_exchange *x, tg_op *op)
{
    uint64_t begin = tg_step_now(x);
    tg_detail why = {""};
    bool looks = x->step.status == TG_OK && !tg_lane_is_spared(x, x->lane);
    tg_status status = looks ? x->protocol->receive(x, x->lane->round, &why) : TG_OK;
    if (status != TG_OK) {
        fail_round(x, status, &why);
    }
    x->lane->counts.last.decode_ns += tg_step_now(x) - begin;
    x->lane->round++;
    return start_round(x, op);
}

tg_status tg_lane_next(tg_exchange *x, uint32_t group, tg_op *op, tg_detail *why)
{
    if (x->hosts != NULL) {
        return tg_hosts_next(x, group, op, why);
    }
    x->lane = &x->lanes[group];
    switch (x->lane->phase) {
    case TG_LANE_START: return start_round(x, op);
    case TG_LANE_CLEARED: return send_messages(x, op);
    case TG_LANE_MESSAGES: return receive_messages(x, op);
    case TG_LANE_ENCODED:
    case TG_LANE_ANNOUNCED:
    case TG_LANE_DONE: break;
    }
    return TG_OK;
}

bool tg_lane_is_done(const tg_exchange *x, uint32_t group)
{
    return x->hosts != NULL ? tg_hosts_is_done(x, group) : x->lanes[group].phase == TG_LANE_DONE;
}

bool tg_lane_is_cleared(const tg_exchange *x, uint32_t group)
{
    const tg_exchange *sends = tg_keeper(x);
    return sends != NULL && sends->lanes[group].phase == TG_LANE_CLEARED;
}
