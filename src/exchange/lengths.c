/* Lengths that go ahead of messages, where ranks cannot know them: one small operation, an announcement, for all groups that are ready.
 *
 *     rank 0   groups 0, 1 and 2 are encoded    announces 0 1 2 |           announces -  | messages of 1
 *     rank 1   group 0 is encoded               announces 0     | encodes 1, announces 1 | messages of 1
 *                                                                 messages of 0
 *
 * An announcement tells every rank the length of what it will be sent, for each group that has been encoded since the last one. A group's
 * messages go when all ranks have announced theirs. Ranks need not have the same groups ready. After each announcement all ranks know the
 * same: who has announced what. A rank starts the next one
 *
 *     if it has encoded a group since, and fewer than TG_ANNOUNCEMENT_MAX are under way;
 *     else, when none is under way, if some rank still has to announce a group, and this rank has announced all groups that any rank has.
 *
 * Otherwise it waits for its next group: it has nothing to say, and either no group waits for lengths, or one waits for this rank. So every
 * announcement has news, nobody waits for a rank that has nothing to do, and all agree which announcement was the last. Groups with several
 * rounds are announced again: nobody announces the next round before all have announced this one. Announcements are heard in their order.
 *
 * Several under way hide the latency: a group need not wait until the last announcement is over. While a rank has more groups to encode, it
 * starts no more than half of them, so that those encoded last can go at once, too.
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

static uint8_t *row(const tg_exchange *x, const tg_announcement *a, uint32_t i)
{
    return a->table + i * row_len(x);
}

static uint64_t *told_by(const tg_exchange *x, uint32_t group, uint32_t p)
{
    return &x->lengths.told[(size_t)group * x->world + p];
}

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

static tg_status open_slot(tg_announcement *s, const tg_exchange *x, tg_detail *why)
{
    const tg_allocator *a = &x->allocator;
    TG_TRY(tg_acquire(&s->sends, a, x->world, sizeof *s->sends, why));
    TG_TRY(tg_acquire(&s->recvs, a, x->world, sizeof *s->recvs, why));
    TG_TRY(tg_acquire(&s->table, a, x->world, row_len(x), why));
    TG_TRY(tg_acquire(&s->out, a, x->world, row_len(x) + TG_LENGTHS_SEAL_LEN, why));
    return tg_acquire(&s->in, a, x->world, row_len(x) + TG_LENGTHS_SEAL_LEN, why);
}

static void close_slot(const tg_announcement *s, const tg_allocator *a)
{
    tg_release(a, s->in);
    tg_release(a, s->out);
    tg_release(a, s->table);
    tg_release(a, s->recvs);
    tg_release(a, s->sends);
}

tg_status tg_lengths_open(tg_exchange *x, tg_detail *why)
{
    const tg_allocator *a = &x->allocator;
    for (uint32_t g = 0; g < x->lane_n; g++) {
        if (x->lanes[g].mail.in_cap > TG_LENGTH_MAX) {
            return tg_fail(TG_E_MEMORY, why, "a message of group %u may have %zu bytes, more than 1 TiB", g,
                           x->lanes[g].mail.in_cap);
        }
    }
    for (uint32_t i = 0; i < TG_ANNOUNCEMENT_MAX; i++) {
        TG_TRY(open_slot(&x->lengths.slots[i], x, why));
    }
    TG_TRY(tg_acquire(&x->lengths.told, a, (uint64_t)x->world * x->lane_n, sizeof *x->lengths.told, why));
    return tg_acquire(&x->lengths.told_n, a, x->lane_n, sizeof *x->lengths.told_n, why);
}

void tg_lengths_close(tg_exchange *x)
{
    const tg_allocator *a = &x->allocator;
    tg_release(a, x->lengths.told_n);
    tg_release(a, x->lengths.told);
    for (uint32_t i = 0; i < TG_ANNOUNCEMENT_MAX; i++) {
        close_slot(&x->lengths.slots[i], a);
    }
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
    x->lengths.started = x->lengths.heard = 0;
    for (uint32_t i = 0; i < TG_ANNOUNCEMENT_MAX; i++) {
        x->lengths.slots[i].state = TG_UNANNOUNCED;
    }
    for (uint32_t g = 0; g < x->lane_n; g++) {
        forget_group(x, g);
    }
}

/* ---- messages ---------------------------------------------------------------------------------------------------------- */

static uint64_t seal_of(const tg_exchange *x, const tg_announcement *a, const uint8_t *rows, size_t len)
{
    uint64_t words[4] = {tg_hash(rows, len), x->step.number, a->number, a->hop};
    return tg_hash_words(words, 4);
}

/* Completes a message of `n` rows. */
static tg_span seal(const tg_exchange *x, const tg_announcement *a, uint8_t *rows, uint32_t n)
{
    size_t len = n * row_len(x);
    tg_put_field(rows + len, TG_LENGTHS_SEAL_LEN, seal_of(x, a, rows, len));
    return (tg_span){rows, len + TG_LENGTHS_SEAL_LEN};
}

static tg_status check_seals(const tg_exchange *x, const tg_announcement *a, tg_detail *why)
{
    for (uint32_t p = 0; p < x->world; p++) {
        const uint8_t *rows = a->recvs[p].data;
        size_t len = (size_t)a->recvs[p].len - TG_LENGTHS_SEAL_LEN;
        if (a->recvs[p].len > 0 && tg_get_field(rows + len, TG_LENGTHS_SEAL_LEN) != seal_of(x, a, rows, len)) {
            return tg_fail(TG_E_LINK, why, "what came from rank %u at step %" PRIu64 " is damaged", tg_job_rank(x, p),
                           x->step.number);
        }
    }
    return TG_OK;
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
static void send_directly(const tg_exchange *x, tg_announcement *a)
{
    size_t len = row_len(x), message_len = len + TG_LENGTHS_SEAL_LEN;
    for (uint32_t p = 0; p < x->world; p++) {
        uint8_t *out = a->out + p * message_len;
        memcpy(out, row(x, a, p), len);
        a->sends[p] = p == x->rank ? (tg_span){out, 0} : seal(x, a, out, 1);
        a->recvs[p] = (tg_span){a->in + p * message_len, a->sends[p].len};
    }
}

/* A hop: row i of the table has i ranks to go, and travels in the hops of its bits. */
static void send_on(const tg_exchange *x, tg_announcement *a)
{
    uint32_t far = UINT32_C(1) << a->hop, n = 0;
    memset(a->sends, 0, x->world * sizeof *a->sends);
    memset(a->recvs, 0, x->world * sizeof *a->recvs);
    for (uint32_t i = 0; i < x->world; i++) {
        if ((i & far) != 0) {
            memcpy(a->out + n++ * row_len(x), row(x, a, i), row_len(x));
        }
    }
    tg_span message = seal(x, a, a->out, n);
    a->sends[(x->rank + far) % x->world] = message;
    a->recvs[(x->rank + x->world - far) % x->world] = (tg_span){a->in, message.len};
}

static void take_on(const tg_exchange *x, const tg_announcement *a)
{
    uint32_t far = UINT32_C(1) << a->hop, n = 0;
    for (uint32_t i = 0; i < x->world; i++) {
        if ((i & far) != 0) {
            memcpy(row(x, a, i), a->in + n++ * row_len(x), row_len(x));
        }
    }
}

static tg_status send(tg_exchange *x, tg_announcement *a, tg_op *op)
{
    if (tg_is_direct(x)) {
        send_directly(x, a);
    } else {
        send_on(x, a);
    }
    *op = (tg_op){.kind = TG_ALLTOALLV, .rank = x->rank, .world = x->world, .sends = a->sends, .recvs = a->recvs};
    tg_step_count(x, NULL, op, NULL);
    return TG_MORE;
}

/* ---- what is said ---------------------------------------------------------------------------------------------------------- */

/* Where the row to rank p is in the table before it travels, and where that from rank p is afterwards. */
static uint32_t place_to(const tg_exchange *x, uint32_t p)
{
    return tg_is_direct(x) ? p : (p + x->world - x->rank) % x->world;
}

static const uint8_t *row_from(const tg_exchange *x, const tg_announcement *a, uint32_t p)
{
    return tg_is_direct(x) ? a->recvs[p].data : row(x, a, (x->rank + x->world - p) % x->world);
}

/* What this rank says of a group. A rank that has failed says so. */
static void put_group(tg_exchange *x, const tg_announcement *a, tg_lane *lane)
{
    bool is_new = lane->phase == TG_LANE_ENCODED, failed = x->step.status != TG_OK;
    if (is_new && failed) {
        tg_lane_spoil(x, lane);
    }
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t len = failed ? FAILED : lane->mail.sends[p].len;
        tg_put_field(row(x, a, place_to(x, p)) + (size_t)lane->group * TG_LENGTH_LEN, TG_LENGTH_LEN,
                     is_new ? len : NONE);
    }
}

/* Once all ranks have announced their lengths of a group, its messages can go. */
static void clear_group(tg_exchange *x, uint32_t group)
{
    tg_lane *lane = &x->lanes[group];
    tg_mail *mail = &lane->mail;
    if (x->lengths.told_n[group] < x->world) {
        return;
    }
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
static tg_status hear_rank(tg_exchange *x, const tg_announcement *a, uint32_t p, tg_detail *why)
{
    const uint8_t *at = row_from(x, a, p);
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

static tg_status hear(tg_exchange *x, const tg_announcement *a, tg_detail *why)
{
    for (uint32_t p = 0; p < x->world; p++) {
        if (p != x->rank) {
            TG_TRY(hear_rank(x, a, p, why));
        }
    }
    for (uint32_t g = 0; g < x->lane_n; g++) {
        clear_group(x, g);
    }
    return TG_OK;
}

/* ---- when ------------------------------------------------------------------------------------------------------------------ */

static bool is_due(const tg_exchange *x, bool more_to_come)
{
    uint64_t under_way = x->lengths.started - x->lengths.heard;
    bool has_news = false, some_owe = false, owes = false;
    for (uint32_t g = 0; g < x->lane_n; g++) {
        bool is_open = x->lengths.told_n[g] > 0;
        has_news = has_news || x->lanes[g].phase == TG_LANE_ENCODED;
        some_owe = some_owe || is_open;
        owes = owes || (is_open && *told_by(x, g, x->rank) == NONE);
    }
    if (has_news) {
        return under_way < (more_to_come ? TG_ANNOUNCEMENT_MAX / 2 : TG_ANNOUNCEMENT_MAX);
    }
    return under_way == 0 && some_owe && !owes;
}

tg_status tg_lengths_start(tg_exchange *x, uint32_t *slot, tg_op *op, bool more_to_come)
{
    tg_lengths *l = &x->lengths;
    if (x->hosts != NULL) {
        return tg_hosts_start_lengths(x, slot, op, more_to_come);
    }
    if (!is_due(x, more_to_come)) {
        return TG_OK;
    }
    *slot = (uint32_t)(l->started % TG_ANNOUNCEMENT_MAX);
    tg_announcement *a = &l->slots[*slot];
    a->state = TG_ANNOUNCED;
    a->number = l->started++;
    a->hop = 0;
    for (uint32_t g = 0; g < x->lane_n; g++) {
        put_group(x, a, &x->lanes[g]);
    }
    for (uint32_t g = 0; g < x->lane_n; g++) {
        if (x->lanes[g].phase == TG_LANE_ENCODED) {
            x->lanes[g].phase = TG_LANE_ANNOUNCED;
            *told_by(x, g, x->rank) = 0; /* what it sends to itself does not travel */
            l->told_n[g]++;
            clear_group(x, g); /* this rank may be the last */
        }
    }
    return send(x, a, op);
}

tg_status tg_lengths_next(tg_exchange *x, uint32_t slot, tg_op *op, tg_detail *why)
{
    tg_lengths *l = &x->lengths;
    if (x->hosts != NULL) {
        return tg_hosts_next_lengths(x, slot, op, why);
    }
    tg_announcement *a = &l->slots[slot];
    TG_TRY(check_seals(x, a, why));
    if (!tg_is_direct(x)) {
        take_on(x, a);
        if (UINT64_C(1) << ++a->hop < x->world) {
            return send(x, a, op);
        }
    }
    a->state = TG_ARRIVED;
    for (a = &l->slots[l->heard % TG_ANNOUNCEMENT_MAX]; a->state == TG_ARRIVED;
         a = &l->slots[++l->heard % TG_ANNOUNCEMENT_MAX]) {
        a->state = TG_UNANNOUNCED;
        TG_TRY(hear(x, a, why));
    }
    return TG_OK;
}
