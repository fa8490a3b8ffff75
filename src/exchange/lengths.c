/* Lengths that go ahead of messages, where ranks cannot know them: one small operation, an announcement, for all groups that are ready.
 *
 *     rank 0   groups 0, 1 and 2 are encoded    announces 0 1 2 |           announces -  | messages of 1
 *     rank 1   group 0 is encoded               announces 0     | encodes 1, announces 1 | messages of 1
 *                                                                 messages of 0
 *
 * An announcement tells every rank the length of what it will be sent, for each group that has been encoded since the last one. A group's
 * messages go when all ranks have announced theirs. Ranks need not have the same groups ready. After each announcement all ranks know the
 * same: who has announced what. Then a rank starts the next one
 *
 *     if it has encoded a group since;
 *     else, at once, if some rank still has to announce a group, and this rank has announced all groups that any rank has.
 *
 * Otherwise it waits for its next group: it has nothing to say, and either no group waits for lengths, or one waits for this rank. So every
 * announcement has news, nobody waits for a rank that has nothing to do, and all agree which announcement was the last. Groups with several
 * rounds are announced again: nobody announces the next round before all have announced this one.
 *
 * A row has TG_LENGTH_LEN bytes a group: the length, NONE or FAILED. A message has rows and a hash of them with step, announcement and
 * hop. Up to 8 ranks each sends one row to all. With more, by Bruck's algorithm: in hop k a rank hands on to rank + 2^k all rows that
 * still have that far to go, so that each rank sends log2(world) messages. */
#include "exchange/exchange.h"

#include "base/bytes.h"
#include "base/fields.h"
#include "kernels/hash.h"

#include <inttypes.h>
#include <string.h>

#define NONE (TG_LENGTH_MAX + 1)   /* nothing new */
#define FAILED (TG_LENGTH_MAX + 2) /* no message follows */

static size_t row_len(const tg_exchange *x)
{
    return (size_t)x->lane_n * TG_LENGTH_LEN;
}

static uint8_t *row(const tg_exchange *x, uint32_t i)
{
    return x->lengths.table + i * row_len(x);
}

static uint64_t *told_by(const tg_exchange *x, uint32_t group, uint32_t p)
{
    return &x->lengths.told[(size_t)group * x->world + p];
}

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

tg_status tg_lengths_open(tg_exchange *x, tg_detail *why)
{
    const tg_allocator *a = &x->allocator;
    tg_lengths *l = &x->lengths;
    for (uint32_t g = 0; g < x->lane_n; g++) {
        if (x->lanes[g].mail.in_cap > TG_LENGTH_MAX) {
            return tg_fail(TG_E_MEMORY, why, "a message of group %u may have %zu bytes, more than 1 TiB", g,
                           x->lanes[g].mail.in_cap);
        }
    }
    TG_TRY(tg_acquire(&l->sends, a, x->world, sizeof *l->sends, why));
    TG_TRY(tg_acquire(&l->recvs, a, x->world, sizeof *l->recvs, why));
    TG_TRY(tg_acquire(&l->table, a, x->world, row_len(x), why));
    TG_TRY(tg_acquire(&l->out, a, x->world, row_len(x) + TG_LENGTHS_SEAL_LEN, why));
    TG_TRY(tg_acquire(&l->in, a, x->world, row_len(x) + TG_LENGTHS_SEAL_LEN, why));
    TG_TRY(tg_acquire(&l->told, a, (uint64_t)x->world * x->lane_n, sizeof *l->told, why));
    return tg_acquire(&l->told_n, a, x->lane_n, sizeof *l->told_n, why);
}

void tg_lengths_close(tg_exchange *x)
{
    const tg_allocator *a = &x->allocator;
    tg_lengths *l = &x->lengths;
    tg_release(a, l->told_n);
    tg_release(a, l->told);
    tg_release(a, l->in);
    tg_release(a, l->out);
    tg_release(a, l->table);
    tg_release(a, l->recvs);
    tg_release(a, l->sends);
}

static void forget_group(const tg_exchange *x, uint32_t group)
{
    x->lengths.told_n[group] = 0;
    for (uint32_t p = 0; p < x->world; p++) {
        *told_by(x, group, p) = NONE;
    }
}

void tg_lengths_begin(tg_exchange *x)
{
    x->lengths.is_out = false;
    x->lengths.number = 0;
    for (uint32_t g = 0; g < x->lane_n; g++) {
        forget_group(x, g);
    }
}

/* ---- messages ---------------------------------------------------------------------------------------------------------- */

static uint64_t seal_of(const tg_exchange *x, const uint8_t *rows, size_t len)
{
    uint64_t words[4] = {tg_hash(rows, len), x->step.number, x->lengths.number, x->lengths.hop};
    return tg_hash_words(words, 4);
}

/* Completes a message of `n` rows. */
static tg_span seal(const tg_exchange *x, uint8_t *rows, uint32_t n)
{
    size_t len = n * row_len(x);
    tg_put_field(rows + len, TG_LENGTHS_SEAL_LEN, seal_of(x, rows, len));
    return (tg_span){rows, len + TG_LENGTHS_SEAL_LEN};
}

static bool is_sealed(const tg_exchange *x, const tg_span *message)
{
    const uint8_t *rows = message->data;
    size_t len = (size_t)message->len - TG_LENGTHS_SEAL_LEN;
    return tg_get_field(rows + len, TG_LENGTHS_SEAL_LEN) == seal_of(x, rows, len);
}

uint32_t tg_lengths_hops(uint32_t world)
{
    uint32_t hops = 0;
    while (world > TG_DIRECT_WORLD_MAX && UINT64_C(1) << hops < world) {
        hops++;
    }
    return hops > 0 ? hops : 1;
}

/* Everyone to everyone. */
static void send_directly(tg_exchange *x)
{
    tg_lengths *l = &x->lengths;
    size_t len = row_len(x), message_len = len + TG_LENGTHS_SEAL_LEN;
    for (uint32_t p = 0; p < x->world; p++) {
        uint8_t *out = l->out + p * message_len;
        memcpy(out, row(x, p), len);
        l->sends[p] = p == x->rank ? (tg_span){out, 0} : seal(x, out, 1);
        l->recvs[p] = (tg_span){l->in + p * message_len, l->sends[p].len};
    }
}

/* A hop: row i of the table has i ranks to go, and travels in the hops of its bits. */
static void send_on(tg_exchange *x)
{
    tg_lengths *l = &x->lengths;
    uint32_t far = UINT32_C(1) << l->hop, n = 0;
    memset(l->sends, 0, x->world * sizeof *l->sends);
    memset(l->recvs, 0, x->world * sizeof *l->recvs);
    for (uint32_t i = 0; i < x->world; i++) {
        if ((i & far) != 0) {
            memcpy(l->out + n++ * row_len(x), row(x, i), row_len(x));
        }
    }
    tg_span message = seal(x, l->out, n);
    l->sends[(x->rank + far) % x->world] = message;
    l->recvs[(x->rank + x->world - far) % x->world] = (tg_span){l->in, message.len};
}

static void take_on(tg_exchange *x)
{
    const tg_lengths *l = &x->lengths;
    uint32_t far = UINT32_C(1) << l->hop, n = 0;
    for (uint32_t i = 0; i < x->world; i++) {
        if ((i & far) != 0) {
            memcpy(row(x, i), l->in + n++ * row_len(x), row_len(x));
        }
    }
}

static tg_status send(tg_exchange *x, tg_op *op)
{
    const tg_lengths *l = &x->lengths;
    if (tg_is_direct(x)) {
        send_directly(x);
    } else {
        send_on(x);
    }
    *op = (tg_op){.kind = TG_ALLTOALLV, .rank = x->rank, .world = x->world, .sends = l->sends, .recvs = l->recvs};
    tg_step_count(x, NULL, op, NULL);
    return TG_MORE;
}

/* ---- an announcement ----------------------------------------------------------------------------------------------------- */

/* Where the row to rank p is in the table before it travels, and where that from rank p is afterwards. */
static uint32_t place_to(const tg_exchange *x, uint32_t p)
{
    return tg_is_direct(x) ? p : (p + x->world - x->rank) % x->world;
}

static const uint8_t *row_from(const tg_exchange *x, uint32_t p)
{
    return tg_is_direct(x) ? x->lengths.recvs[p].data : row(x, (x->rank + x->world - p) % x->world);
}

static bool is_due(const tg_exchange *x)
{
    bool some_owe = false, owes = false;
    for (uint32_t g = 0; g < x->lane_n; g++) {
        if (x->lanes[g].phase == TG_LANE_ENCODED) {
            return true;
        }
        bool is_open = x->lengths.told_n[g] > 0;
        some_owe = some_owe || is_open;
        owes = owes || (is_open && *told_by(x, g, x->rank) == NONE);
    }
    return some_owe && !owes;
}

static tg_status start(tg_exchange *x, tg_op *op)
{
    tg_lengths *l = &x->lengths;
    l->is_out = true;
    l->number++;
    l->hop = 0;
    for (uint32_t g = 0; g < x->lane_n; g++) {
        tg_lane *lane = &x->lanes[g];
        bool is_new = lane->phase == TG_LANE_ENCODED, failed = x->step.status != TG_OK;
        if (is_new && failed) {
            tg_lane_spoil(x, lane);
        }
        for (uint32_t p = 0; p < x->world; p++) {
            uint64_t len = failed ? FAILED : lane->mail.sends[p].len;
            tg_put_field(row(x, place_to(x, p)) + (size_t)g * TG_LENGTH_LEN, TG_LENGTH_LEN, is_new ? len : NONE);
        }
        if (is_new) {
            *told_by(x, g, x->rank) = 0; /* what it sends to itself does not travel */
            l->told_n[g]++;
            lane->phase = TG_LANE_ANNOUNCED;
        }
    }
    return send(x, op);
}

/* All ranks have announced their lengths of a group: its messages can go. */
static void clear_group(tg_exchange *x, uint32_t group)
{
    tg_lane *lane = &x->lanes[group];
    tg_mail *mail = &lane->mail;
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t len = *told_by(x, group, p);
        if (len == FAILED) {
            tg_step_fail_by(x, p);
            len = 0;
        }
        mail->in[p].len = (size_t)len;
        mail->recvs[p] = (tg_span){mail->in[p].data, len};
    }
    lane->phase = TG_LANE_CLEARED;
    forget_group(x, group);
}

/* What rank p has announced. */
static tg_status hear(tg_exchange *x, uint32_t p, tg_detail *why)
{
    const uint8_t *at = row_from(x, p);
    for (uint32_t g = 0; g < x->lane_n; g++, at += TG_LENGTH_LEN) {
        uint64_t len = tg_get_field(at, TG_LENGTH_LEN);
        if (len == NONE) {
            continue;
        }
        if (*told_by(x, g, p) != NONE) {
            return tg_fail(TG_E_LINK, why, "rank %u announces messages of group %u twice", tg_job_rank(x, p), g);
        }
        if (len != FAILED && len > x->lanes[g].mail.in_cap) {
            return tg_fail(TG_E_LINK, why, "rank %u announces a message of %" PRIu64 " bytes, more than any can have",
                           tg_job_rank(x, p), len);
        }
        *told_by(x, g, p) = len;
        x->lengths.told_n[g]++;
    }
    return TG_OK;
}

static tg_status check_seals(const tg_exchange *x, tg_detail *why)
{
    for (uint32_t p = 0; p < x->world; p++) {
        const tg_span *message = &x->lengths.recvs[p];
        if (message->len > 0 && !is_sealed(x, message)) {
            return tg_fail(TG_E_LINK, why, "what came from rank %u at step %" PRIu64 " is damaged", tg_job_rank(x, p),
                           x->step.number);
        }
    }
    return TG_OK;
}

/* An operation is done. TG_MORE: the next hop is due. */
static tg_status receive(tg_exchange *x, tg_op *op, tg_detail *why)
{
    tg_lengths *l = &x->lengths;
    TG_TRY(check_seals(x, why));
    if (!tg_is_direct(x)) {
        take_on(x);
        if (UINT64_C(1) << ++l->hop < x->world) {
            return send(x, op);
        }
    }
    l->is_out = false;
    for (uint32_t p = 0; p < x->world; p++) {
        if (p != x->rank) {
            TG_TRY(hear(x, p, why));
        }
    }
    for (uint32_t g = 0; g < x->lane_n; g++) {
        if (l->told_n[g] == x->world) {
            clear_group(x, g);
        }
    }
    return TG_OK;
}

tg_status tg_lengths_next(tg_exchange *x, tg_op *op, tg_detail *why)
{
    if (x->hosts != NULL) {
        return tg_hosts_lengths(x, op, why);
    }
    if (x->lengths.is_out) {
        tg_status status = receive(x, op, why);
        if (status != TG_OK) {
            return status;
        }
    }
    return is_due(x) ? start(x, op) : TG_OK;
}
