/* The way of a group through its rounds:
 *
 *     START -> (LENGTHS ->) MESSAGES -> START ...  once a round
 *           -> DONE
 *
 * Lengths go ahead of messages unless all ranks know them. Up to 8 ranks, each sends its lengths to all. With more, by Bruck's
 * algorithm: in hop k a rank hands on to rank + 2^k all lengths that still have that far to go, so that each rank sends
 * log2(world) messages.
 *
 * A rank that has failed sends the length FAILED or, where lengths are known, a message that begins with "TGER". */
#include "exchange/exchange.h"

#include "base/fields.h"
#include "kernels/hash.h"

#include <inttypes.h>
#include <string.h>

#define FAILED UINT64_MAX

static const uint8_t poison[4] = {'T', 'G', 'E', 'R'};

static tg_op op_of(const tg_exchange *x, tg_op_kind kind, const tg_span *sends, const tg_span *recvs)
{
    return (tg_op){
        .kind = kind, .root = x->lane->mail.root, .rank = x->rank, .world = x->world, .sends = sends, .recvs = recvs};
}

/* ---- failures -------------------------------------------------------------------------------------------------------- */

static void fail_by_peer(tg_exchange *x, uint32_t p)
{
    if (x->step.status == TG_OK) {
        x->step.is_peers = true;
        x->step.status = tg_fail(TG_E_PEER, &x->step.why, "rank %u has sent no data", tg_job_rank(x, p));
    }
}

/* In place of the messages of a rank that has failed. */
static void spoil_messages(tg_exchange *x)
{
    tg_mail *mail = &x->lane->mail;
    for (uint32_t p = 0; p < x->world; p++) {
        mail->payload[p] = 0;
        if (!mail->is_known) {
            mail->sends[p] = (tg_span){NULL, 0};
        } else if (mail->sends[p].len > 0) {
            memcpy(mail->sends[p].data, poison, sizeof poison);
        }
    }
}

static void heed_spoiled(tg_exchange *x)
{
    const tg_mail *mail = &x->lane->mail;
    for (uint32_t p = 0; p < x->world && mail->is_known; p++) {
        if (mail->recvs[p].len > 0 && memcmp(mail->recvs[p].data, poison, sizeof poison) == 0) {
            fail_by_peer(x, p);
        }
    }
}

/* ---- lengths --------------------------------------------------------------------------------------------------------- */

/* A length: u64, and a hash of it with the step and the group. */
static uint64_t seal_of(const tg_exchange *x, uint64_t len)
{
    uint64_t words[3] = {len, x->step.number, x->lane->group};
    return tg_hash_words(words, 3);
}

static uint8_t *entry(const tg_exchange *x, uint32_t p)
{
    return x->lane->lengths.table + (size_t)p * TG_LENGTH_LEN;
}

uint32_t tg_length_hops(uint32_t world)
{
    uint32_t hops = 0;
    while (world > TG_DIRECT_WORLD_MAX && UINT64_C(1) << hops < world) {
        hops++;
    }
    return hops > 0 ? hops : 1;
}

/* Everyone to everyone. */
static void send_lengths_directly(tg_exchange *x)
{
    tg_lengths *l = &x->lane->lengths;
    memcpy(l->out, l->table, (size_t)x->world * TG_LENGTH_LEN);
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t len = p == x->rank ? 0 : TG_LENGTH_LEN;
        l->sends[p] = (tg_span){l->out + (size_t)p * TG_LENGTH_LEN, len};
        l->recvs[p] = (tg_span){entry(x, p), len};
    }
}

/* A hop: entry i of the table has i ranks to go, and travels in the hops of its bits. */
static void send_lengths_on(tg_exchange *x)
{
    tg_lengths *l = &x->lane->lengths;
    uint32_t far = UINT32_C(1) << l->hop, n = 0;
    memset(l->sends, 0, x->world * sizeof *l->sends);
    memset(l->recvs, 0, x->world * sizeof *l->recvs);
    for (uint32_t i = 0; i < x->world; i++) {
        if ((i & far) != 0) {
            memcpy(l->out + (size_t)n++ * TG_LENGTH_LEN, entry(x, i), TG_LENGTH_LEN);
        }
    }
    uint64_t len = (uint64_t)n * TG_LENGTH_LEN;
    l->sends[(x->rank + far) % x->world] = (tg_span){l->out, len};
    l->recvs[(x->rank + x->world - far) % x->world] = (tg_span){l->in, len};
}

static void receive_lengths_on(tg_exchange *x)
{
    const tg_lengths *l = &x->lane->lengths;
    uint32_t far = UINT32_C(1) << l->hop, n = 0;
    for (uint32_t i = 0; i < x->world; i++) {
        if ((i & far) != 0) {
            memcpy(entry(x, i), l->in + (size_t)n++ * TG_LENGTH_LEN, TG_LENGTH_LEN);
        }
    }
}

static tg_status send_lengths(tg_exchange *x, tg_op *op)
{
    tg_lengths *l = &x->lane->lengths;
    if (tg_is_direct(x)) {
        send_lengths_directly(x);
    } else {
        send_lengths_on(x);
    }
    x->lane->phase = TG_LANE_LENGTHS;
    *op = op_of(x, TG_ALLTOALLV, l->sends, l->recvs);
    tg_step_count(x, x->lane, op, NULL);
    return TG_MORE;
}

/* Where the length to rank p is in the table before it travels, and where that from rank p is afterwards. */
static uint32_t place_to(const tg_exchange *x, uint32_t p)
{
    return tg_is_direct(x) ? p : (p + x->world - x->rank) % x->world;
}

static uint32_t place_from(const tg_exchange *x, uint32_t p)
{
    return tg_is_direct(x) ? p : (x->rank + x->world - p) % x->world;
}

static tg_status start_lengths(tg_exchange *x, tg_op *op)
{
    x->lane->lengths.hop = 0;
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t len = x->step.status == TG_OK ? x->lane->mail.sends[p].len : FAILED;
        uint8_t *at = entry(x, place_to(x, p));
        tg_put_field(at, 8, len);
        tg_put_field(at + 8, 8, seal_of(x, len));
    }
    return send_lengths(x, op);
}

/* ---- messages -------------------------------------------------------------------------------------------------------- */

static tg_status send_messages(tg_exchange *x, tg_op *op)
{
    const tg_mail *mail = &x->lane->mail;
    x->lane->phase = TG_LANE_MESSAGES;
    *op = op_of(x, mail->kind, mail->sends, mail->recvs);
    tg_step_count(x, x->lane, op, mail->payload);
    return TG_MORE;
}

/* Lengths have arrived, or the next hop is due. */
static tg_status receive_lengths(tg_exchange *x, tg_op *op, tg_detail *why)
{
    tg_lengths *l = &x->lane->lengths;
    tg_mail *mail = &x->lane->mail;
    if (!tg_is_direct(x)) {
        receive_lengths_on(x);
        if (UINT64_C(1) << ++l->hop < x->world) {
            return send_lengths(x, op);
        }
    }
    for (uint32_t p = 0; p < x->world; p++) {
        const uint8_t *at = entry(x, place_from(x, p));
        uint64_t len = p == x->rank ? 0 : tg_get_field(at, 8);
        if (p != x->rank && tg_get_field(at + 8, 8) != seal_of(x, len)) {
            return tg_fail(TG_E_LINK, why, "what came from rank %u at step %" PRIu64 " is damaged", tg_job_rank(x, p),
                           x->step.number);
        }
        if (len == FAILED) {
            fail_by_peer(x, p);
            len = 0;
        }
        if (len > mail->in_cap) {
            return tg_fail(TG_E_LINK, why, "rank %u announces a message of %" PRIu64 " bytes, more than any can have",
                           tg_job_rank(x, p), len);
        }
        mail->in[p].len = (size_t)len;
        mail->recvs[p] = (tg_span){mail->in[p].data, len};
    }
    return send_messages(x, op);
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
        spoil_messages(x);
    }
    return mail->is_known ? send_messages(x, op) : start_lengths(x, op);
}

static tg_status receive_messages(tg_exchange *x, tg_op *op)
{
    uint64_t begin = tg_step_now(x);
    heed_spoiled(x);
    if (x->step.status == TG_OK) {
        x->step.status = x->protocol->receive(x, x->lane->round, &x->step.why);
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
    case TG_LANE_LENGTHS: return receive_lengths(x, op, why);
    case TG_LANE_MESSAGES: return receive_messages(x, op);
    case TG_LANE_DONE: break;
    }
    return TG_OK;
}
