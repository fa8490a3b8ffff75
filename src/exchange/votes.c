/* Votes: ranks tell each other how they fare, and all come to know the same. Up to 8 ranks, everyone tells everyone. With more,
 * votes spread: in hop k a rank sends what it knows to rank + 2^k, and after log2(world) hops everyone knows of everyone.
 *
 * A vote, which docs/steps.md has as a table:
 *     0    "TGVO", u16 version, u16 phase
 *     8    u32 failed rank, u32 its status, negated
 *     16   6 x (u64 value, u32 rank): smallest and largest agreement, step and number
 *     88   hash of the bytes before */
#include "exchange/exchange.h"

#include "base/fields.h"
#include "kernels/hash.h"

#include <inttypes.h>
#include <string.h>

enum { VERSION = 1, FAILED = 8, EXTREMES = 16, EXTREME_LEN = 12, HASH = 88 };

/* ---- bytes ----------------------------------------------------------------------------------------------------------- */

static uint8_t *put_extreme(uint8_t *at, const tg_extreme *e)
{
    tg_put_field(at, 8, e->value);
    tg_put_field(at + 8, 4, e->rank);
    return at + EXTREME_LEN;
}

static const uint8_t *get_extreme(tg_extreme *e, const uint8_t *at)
{
    *e = (tg_extreme){tg_get_field(at, 8), (uint32_t)tg_get_field(at + 8, 4)};
    return at + EXTREME_LEN;
}

static void put_vote(uint8_t *out, const tg_vote *v, tg_phase phase)
{
    memcpy(out, "TGVO", 4);
    tg_put_field(out + 4, 2, VERSION);
    tg_put_field(out + 6, 2, (uint64_t)phase);
    tg_put_field(out + FAILED, 4, v->failed);
    tg_put_field(out + FAILED + 4, 4, (uint32_t)-v->status);
    uint8_t *at = out + EXTREMES;
    for (int i = 0; i < 2; i++) {
        at = put_extreme(at, &v->agreement[i]);
        at = put_extreme(at, &v->step[i]);
        at = put_extreme(at, &v->number[i]);
    }
    tg_put_field(out + HASH, 8, tg_hash(out, HASH));
}

/* False: these bytes are no vote of this phase. */
static bool get_vote(tg_vote *v, const uint8_t *in, tg_phase phase)
{
    uint64_t status = tg_get_field(in + FAILED + 4, 4);
    *v = (tg_vote){.failed = (uint32_t)tg_get_field(in + FAILED, 4), .status = -(int)(status & 0xff)};
    const uint8_t *at = in + EXTREMES;
    for (int i = 0; i < 2; i++) {
        at = get_extreme(&v->agreement[i], at);
        at = get_extreme(&v->step[i], at);
        at = get_extreme(&v->number[i], at);
    }
    return memcmp(in, "TGVO", 4) == 0 && tg_get_field(in + 4, 2) == VERSION &&
           tg_get_field(in + 6, 2) == (uint64_t)phase && status <= (uint64_t)-TG_E_NO_EFFECT &&
           tg_get_field(in + HASH, 8) == tg_hash(in, HASH);
}

/* ---- merging: idempotent, and in any order the same -------------------------------------------------------------------- */

static void merge_extremes(tg_extreme known[2], const tg_extreme other[2])
{
    for (int i = 0; i < 2; i++) {
        bool is_further = i == 0 ? other[i].value < known[i].value : other[i].value > known[i].value;
        if (is_further || (other[i].value == known[i].value && other[i].rank < known[i].rank)) {
            known[i] = other[i];
        }
    }
}

static void merge(tg_vote *known, const tg_vote *other)
{
    if (other->failed < known->failed) {
        known->failed = other->failed;
        known->status = other->status;
    }
    merge_extremes(known->agreement, other->agreement);
    merge_extremes(known->step, other->step);
    merge_extremes(known->number, other->number);
}

/* ---- on the way ------------------------------------------------------------------------------------------------------ */

/* This rank's vote. */
static void cast(tg_exchange *x, uint64_t number)
{
    tg_votes *votes = &x->votes;
    bool failed = x->step.status != TG_OK && x->step.phase == TG_CLOSING;
    tg_extreme agreement = {x->agreement, x->rank}, step = {x->step.number, x->rank}, hash = {number, x->rank};
    votes->is_cast = true;
    votes->hop = 0;
    votes->known = (tg_vote){.failed = failed ? x->rank | (x->step.is_peers ? UINT32_C(1) << 31 : 0) : TG_NOBODY_FAILED,
                             .status = failed ? x->step.status : TG_OK,
                             .agreement = {agreement, agreement},
                             .step = {step, step},
                             .number = {hash, hash}};
}

static bool is_over(const tg_exchange *x)
{
    return tg_is_direct(x) ? x->votes.hop == 1 : (UINT64_C(1) << x->votes.hop) >= x->world;
}

/* The rank that this hop's vote comes from, if it does not come from all. */
static uint32_t sender(const tg_exchange *x)
{
    return (uint32_t)((x->rank + (uint64_t)x->world - (UINT64_C(1) << x->votes.hop)) % x->world);
}

static tg_status send(tg_exchange *x, tg_op *op)
{
    tg_votes *votes = &x->votes;
    uint32_t to = (uint32_t)((x->rank + (UINT64_C(1) << votes->hop)) % x->world), from = sender(x);
    put_vote(votes->out, &votes->known, x->step.phase);
    for (uint32_t p = 0; p < x->world; p++) {
        bool sends = tg_is_direct(x) ? p != x->rank : p == to, receives = tg_is_direct(x) ? p != x->rank : p == from;
        votes->sends[p] = (tg_span){votes->out, sends ? TG_VOTE_LEN : 0};
        votes->recvs[p] = (tg_span){votes->in[tg_is_direct(x) ? p : 0], receives ? TG_VOTE_LEN : 0};
    }
    *op =
        (tg_op){.kind = TG_ALLTOALLV, .rank = x->rank, .world = x->world, .sends = votes->sends, .recvs = votes->recvs};
    tg_step_count(x, NULL, op, NULL);
    return TG_MORE;
}

static tg_status receive(tg_exchange *x, tg_detail *why)
{
    tg_votes *votes = &x->votes;
    for (uint32_t p = 0; p < x->world; p++) {
        tg_vote other;
        if (votes->recvs[p].len == 0) {
            continue;
        }
        if (!get_vote(&other, votes->recvs[p].data, x->step.phase)) {
            return tg_fail(TG_E_LINK, why, "what came from rank %u at step %" PRIu64 " is damaged", p, x->step.number);
        }
        merge(&votes->known, &other);
    }
    votes->hop++;
    return TG_OK;
}

tg_status tg_vote_next(tg_exchange *x, tg_op *op, uint64_t number, tg_detail *why)
{
    if (!x->votes.is_cast) {
        cast(x, number);
    } else {
        TG_TRY(receive(x, why));
    }
    if (!is_over(x)) {
        return send(x, op);
    }
    x->votes.is_cast = false;
    return TG_OK;
}
