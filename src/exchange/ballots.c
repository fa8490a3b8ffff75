/* Writes, reads and judges ballots. */
#include "exchange/ballots.h"

#include "base/fields.h"
#include "base/hash.h"

#include <inttypes.h>
#include <string.h>

/* A ballot: status u32, zero u32, agreement u64, step u64, number u64, XXH64 of these 32 bytes. `number` is the length of the
 * message to come, or the hash of the averages in an audit. */
enum { AGREEMENT = 8, STEP = 16, NUMBER = 24, HASH = 32 };

typedef struct ballot {
    tg_status status;
    uint64_t agreement, step, number;
} ballot;

void tg_ballots_cast(tg_exchange *x, const uint64_t *number)
{
    tg_ballots *ballots = &x->ballots;
    for (uint32_t p = 0; p < x->world; p++) {
        uint8_t *at = ballots->out + (size_t)p * TG_BALLOT_LEN;
        uint64_t len = p == x->rank ? 0 : TG_BALLOT_LEN;
        tg_put_field(at, 8, (uint32_t)-x->step.status);
        tg_put_field(at + AGREEMENT, 8, x->agreement);
        tg_put_field(at + STEP, 8, x->step.number);
        tg_put_field(at + NUMBER, 8, number != NULL ? *number : x->mail.sends[p].len);
        tg_put_field(at + HASH, 8, tg_hash(at, HASH));
        ballots->sends[p] = (tg_span){at, len};
        ballots->recvs[p] = (tg_span){ballots->in + (size_t)p * TG_BALLOT_LEN, len};
    }
}

/* The ballot of rank p; false: what came is none. */
static bool read_ballot(ballot *b, const tg_exchange *x, uint32_t p)
{
    const uint8_t *at = (p == x->rank ? x->ballots.out : x->ballots.in) + (size_t)p * TG_BALLOT_LEN;
    uint64_t status = tg_get_field(at, 8);
    *b = (ballot){.status = -(int)(status & 0xff),
                  .agreement = tg_get_field(at + AGREEMENT, 8),
                  .step = tg_get_field(at + STEP, 8),
                  .number = tg_get_field(at + NUMBER, 8)};
    return status <= (uint64_t)-TG_E_NO_EFFECT && tg_get_field(at + HASH, 8) == tg_hash(at, HASH);
}

tg_verdict tg_ballots_judge(tg_exchange *x, tg_detail *why)
{
    tg_verdict v = TG_ALL_WELL;
    ballot first = {TG_OK, 0, 0, 0}, b;
    for (uint32_t p = 0; p < x->world; p++) {
        if (!read_ballot(&b, x, p)) {
            (void)tg_fail(TG_E_LINK, why, "what came from rank %u at step %" PRIu64 " is damaged", p, x->step.number);
            return TG_NOT_A_BALLOT;
        }
        first = p == 0 ? b : first;
        if (b.agreement != first.agreement) {
            (void)tg_fail(TG_E_MISMATCH, why,
                          "rank %u was set up with other tensors, another recipe, seed or options than rank 0", p);
            return TG_RANKS_DISAGREE;
        }
        if (b.step != first.step) {
            (void)tg_fail(TG_E_MISMATCH, why, "rank %u is at step %" PRIu64 ", but rank 0 at step %" PRIu64, p, b.step,
                          first.step);
            return TG_RANKS_DISAGREE;
        }
        if (b.status != TG_OK && v == TG_ALL_WELL) {
            v = TG_RANK_FAILED;
            x->step.failed_rank = p;
        }
    }
    return v;
}

uint64_t tg_ballots_number(const tg_exchange *x, uint32_t p)
{
    return tg_get_field((p == x->rank ? x->ballots.out : x->ballots.in) + (size_t)p * TG_BALLOT_LEN + NUMBER, 8);
}

void tg_ballots_ask_reason(tg_exchange *x)
{
    tg_ballots *ballots = &x->ballots;
    memset(ballots->reason, 0, sizeof ballots->reason);
    if (x->rank == x->step.failed_rank) {
        memcpy(ballots->reason, x->step.why.text, sizeof ballots->reason);
    }
    x->mail.root = x->step.failed_rank;
    for (uint32_t p = 0; p < x->world; p++) {
        bool sends = x->rank == x->mail.root && p != x->rank;
        bool receives = x->rank != x->mail.root && p == x->mail.root;
        ballots->sends[p] = (tg_span){ballots->reason, sends ? sizeof ballots->reason : 0};
        ballots->recvs[p] = (tg_span){ballots->reason, receives ? sizeof ballots->reason : 0};
    }
}
