/* Saved state: residuals and the last step, as docs/format.md section 9 lays them out. Everything that is random is a
 * pure function of seed and step, so nothing else needs saving. Residuals pass through a small buffer on the host.
 *
 * Where ranks of a host sum first, leaders have residuals, and other ranks have none. What follows calls ranks that exchange by
 * the recipe parties: all ranks, or the leaders. */
#include "base/bytes.h"
#include "base/half.h"
#include "exchange/exchange.h"
#include "kernels/hash.h"

#include <inttypes.h>
#include <string.h>

enum { STATE_VERSION = 2, STATE_HEADER = 72, STATE_CHECKSUM = 8, NAME_LEN = 16 };

static const uint8_t magic[4] = {'T', 'G', 'S', 'T'};

typedef struct state {
    uint64_t fingerprint, done_step, memory_n, answer_n;
    uint32_t rank, world, host_size;
    bool any_done;
    char name[NAME_LEN + 1];
    const tg_protocol *by;          /* the protocol of that name, NULL if there is none */
    const uint8_t *memory, *answer; /* fp32, little-endian */
} state;

/* ---- parties ---------------------------------------------------------------------------------------------------------- */

static bool is_party(const state *s)
{
    return s->rank % s->host_size == 0;
}

static uint32_t party_of(const state *s)
{
    return s->rank / s->host_size;
}

static uint32_t parties_of(const state *s)
{
    return s->world / s->host_size;
}

/* Whether a state was saved with as many ranks and hosts as there are. */
static bool is_same_world(const state *s, const tg_exchange *x)
{
    return s->world == x->world && s->host_size == x->host_size;
}

/* ---- residual state as floats ---------------------------------------------------------------------------------------- */

enum { SOME = 1024 }; /* floats that pass at a time */

/* Numbers that are saved: what a codec keeps, or a protocol with state of its own. */
typedef struct store {
    const tg_codec *codec;
    const tg_exchange *own; /* if `codec` is NULL */
    uint64_t n;
    uint64_t fit_n; /* of these, the last ones: fits of chunks, which depend on the number of ranks */
} store;

static store codec_store(const tg_codec *c)
{
    if (c == NULL) {
        return (store){0};
    }
    return (store){.codec = c, .n = c->plan->residual_n, .fit_n = c->plan->fit_n};
}

/* All that this rank keeps of its own gradients. */
static store rank_store(const tg_exchange *x)
{
    x = tg_keeper(x);
    if (x == NULL) {
        return (store){0};
    }
    if (x->protocol->state == NULL) {
        return codec_store(x->codec);
    }
    return (store){.own = x, .n = x->protocol->state->saved_n(x)};
}

/* All that this rank keeps as an owner. */
static store owner_store(const tg_exchange *x)
{
    x = tg_keeper(x);
    return codec_store(x == NULL || x->carrier == NULL ? NULL : x->carrier->answer);
}

static void get_some(float *out, const store *s, uint64_t at, uint64_t n)
{
    if (s->codec != NULL) {
        s->codec->executor->save(out, s->codec->run, at, n);
    } else {
        s->own->protocol->state->save(out, s->own, at, n);
    }
}

static void set_some(const store *s, uint64_t at, const float *values, uint64_t n)
{
    if (s->codec != NULL) {
        s->codec->executor->load(s->codec->run, at, values, n);
    } else {
        s->own->protocol->state->load(s->own, at, values, n);
    }
}

size_t tg_state_len(const tg_exchange *x)
{
    if (x == NULL) {
        return 0;
    }
    return (size_t)(STATE_HEADER + 4 * (rank_store(x).n + owner_store(x).n) + STATE_CHECKSUM);
}

static uint8_t *put_store(uint8_t *out, const store *s)
{
    float some[SOME];
    for (uint64_t at = 0, n = 0; at < s->n; at += n) {
        n = s->n - at < SOME ? s->n - at : SOME;
        get_some(some, s, at, n);
        for (uint64_t i = 0; i < n; i++, out += 4) {
            tg_put32(out, tg_float_bits(some[i]));
        }
    }
    return out;
}

/* ---- saving ---------------------------------------------------------------------------------------------------------- */

tg_status tg_state_save(const tg_exchange *x, void *dst, size_t dst_cap, tg_detail *why)
{
    TG_NEED(x, why);
    TG_NEED(dst, why);
    if (x->step.phase != TG_IDLE) {
        return tg_fail(TG_E_ARGUMENT, why, "state is saved between steps, and step %" PRIu64 " has not ended",
                       x->step.number);
    }
    if (dst_cap < tg_state_len(x)) {
        return tg_fail(TG_E_SPACE, why, "the destination has %zu bytes, and the state %zu", dst_cap, tg_state_len(x));
    }
    uint8_t *at = dst;
    memset(at, 0, STATE_HEADER);
    memcpy(at, magic, sizeof magic);
    at[4] = STATE_VERSION;
    at[5] = x->done.any ? 1 : 0;
    tg_put64(at + 8, x->codec->layout->description.fingerprint);
    tg_put32(at + 16, x->rank);
    tg_put32(at + 20, x->world);
    memcpy(at + 24, x->protocol->name, strlen(x->protocol->name));
    tg_put64(at + 40, x->done.any ? x->done.step : 0);
    store of_rank = rank_store(x), of_owner = owner_store(x);
    tg_put64(at + 48, of_rank.n);
    tg_put64(at + 56, of_owner.n);
    tg_put32(at + 64, x->host_size > 1 ? x->host_size : 0);
    at = put_store(at + STATE_HEADER, &of_rank);
    at = put_store(at, &of_owner);
    tg_put64(at, tg_hash(dst, (size_t)(at - (uint8_t *)dst)));
    return TG_OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

static tg_status parse(state *out, const tg_span *span, tg_detail *why)
{
    const uint8_t *at = span->data;
    TG_NEED(at, why);
    if (span->len < 5 || memcmp(at, magic, sizeof magic) != 0) {
        return tg_fail(TG_E_STATE, why, "this is not a saved state of Tersegrad");
    }
    if (at[4] != STATE_VERSION) {
        return tg_fail(TG_E_VERSION, why, "the state has version %u, and this library reads version %d", at[4],
                       STATE_VERSION);
    }
    uint64_t memory_n = 0, answer_n = 0;
    if (span->len >= STATE_HEADER + STATE_CHECKSUM) {
        memory_n = tg_get64(at + 48);
        answer_n = tg_get64(at + 56);
    }
    uint64_t floats = (span->len - STATE_HEADER - STATE_CHECKSUM) / 4; /* of no use if that wrapped around */
    if (span->len < STATE_HEADER + STATE_CHECKSUM || memory_n > floats || answer_n != floats - memory_n ||
        span->len != STATE_HEADER + 4 * floats + STATE_CHECKSUM ||
        tg_get64(at + span->len - STATE_CHECKSUM) != tg_hash(at, (size_t)(span->len - STATE_CHECKSUM))) {
        return tg_fail(TG_E_STATE, why, "the saved state is damaged");
    }
    *out = (state){.fingerprint = tg_get64(at + 8),
                   .rank = tg_get32(at + 16),
                   .world = tg_get32(at + 20),
                   .host_size = tg_get32(at + 64) == 0 ? 1 : tg_get32(at + 64),
                   .done_step = tg_get64(at + 40),
                   .memory_n = memory_n,
                   .answer_n = answer_n,
                   .any_done = at[5] == 1,
                   .memory = at + STATE_HEADER,
                   .answer = at + STATE_HEADER + 4 * memory_n};
    memcpy(out->name, at + 24, NAME_LEN);
    out->by = tg_protocol_named(out->name);
    if (at[5] > 1 || tg_get16(at + 6) != 0 || tg_get32(at + 64) == 1 || tg_get32(at + 68) != 0 ||
        (at[5] == 0 && out->done_step != 0)) {
        return tg_fail(TG_E_STATE, why, "the saved state is damaged: its header makes no sense");
    }
    return TG_OK;
}

/* Numbers that an owner keeps, as one of so many parties, by a protocol. */
static uint64_t expected_answer(const tg_exchange *x, const tg_protocol *by, uint32_t rank, uint32_t world)
{
    uint32_t slices = tg_protocol_slices(by, world);
    uint64_t n = 0;
    for (size_t u = 0; u < x->codec->layout->unit_n; u++) {
        const tg_unit *unit = &x->codec->layout->units[u];
        bool answers = by->answers != NULL && by->answers(rank);
        if (answers && tg_carrier_answer_planes(by, unit->recipe) > 0) {
            uint32_t slice = slices == 1 ? 0 : rank;
            n += tg_slice_start(unit->n, slice + 1, slices) - tg_slice_start(unit->n, slice, slices);
        }
    }
    return n;
}

/* Whether one protocol's state makes sense to another: where it is the codec's. Asked only of worlds that differ, for which
 * another protocol may be the best one. */
static bool may_move(const tg_exchange *x, const state *s)
{
    return s->by != NULL && s->by->state == NULL && x->protocol->state == NULL && !is_same_world(s, x);
}

/* Whether there are `residual_n` residuals in n numbers, and fits after them: as many as given, or if `is_exact` is false, any number
 * where some are expected. */
static bool has_numbers(uint64_t n, uint64_t residual_n, uint64_t fit_n, bool is_exact)
{
    bool may_differ = !is_exact && fit_n > 0;
    return may_differ ? n >= residual_n && (n - residual_n) % 2 == 0 : n == residual_n + fit_n;
}

/* Whether a state has the numbers of its rank. A rank that has no residuals cannot tell how many others have. How many fits another
 * rank keeps depends on its slices; there is an even number of them. */
static tg_status check_size(const tg_exchange *x, const state *s, tg_detail *why)
{
    store of_rank = rank_store(x), of_owner = owner_store(x);
    bool is_own = is_same_world(s, x) && s->rank == x->rank && s->by == x->protocol;
    uint64_t memory_n = is_party(s) ? of_rank.n - of_rank.fit_n : 0;
    uint64_t answer_n = is_party(s) ? expected_answer(x, s->by, party_of(s), parties_of(s)) : 0;
    bool is_unknown = is_party(s) && tg_keeper(x) == NULL;
    if (!is_unknown && (!has_numbers(s->memory_n, memory_n, of_rank.fit_n, is_own) ||
                        !has_numbers(s->answer_n, answer_n, is_own ? of_owner.fit_n : of_rank.fit_n, is_own))) {
        return tg_fail(TG_E_STATE, why, "the saved state is damaged: it does not fit its own tensors");
    }
    return TG_OK;
}

/* Whether a state fits this exchange and the first of the states that are given with it. */
static tg_status check(const tg_exchange *x, const state *s, const state *first, tg_detail *why)
{
    char name[NAME_LEN + 1] = {0}; /* with trailing zeros, which are compared too */
    memcpy(name, x->protocol->name, strlen(x->protocol->name));
    if (s->fingerprint != x->codec->layout->description.fingerprint) {
        return tg_fail(TG_E_MISMATCH, why, "the state was saved with other tensors, another recipe or another seed");
    }
    if (memcmp(s->name, name, NAME_LEN) != 0 && !may_move(x, s)) {
        return tg_fail(TG_E_MISMATCH, why, "the state was saved by another exchange than '%s', which this one is",
                       x->protocol->name);
    }
    if (s->rank >= s->world || s->world > TG_WORLD_MAX || s->world % s->host_size != 0) {
        return tg_fail(TG_E_STATE, why, "the saved state is damaged: it is of rank %u of %u, in hosts of %u", s->rank,
                       s->world, s->host_size);
    }
    if (s->world != first->world) {
        return tg_fail(TG_E_MISMATCH, why, "the states are of worlds of %u and of %u ranks", first->world, s->world);
    }
    if (s->host_size != first->host_size) {
        return tg_fail(TG_E_MISMATCH, why, "the states are of hosts of %u and of %u ranks", first->host_size,
                       s->host_size);
    }
    if (s->any_done != first->any_done || s->done_step != first->done_step) {
        return tg_fail(TG_E_MISMATCH, why,
                       "the states of ranks %u and %u were saved after steps %" PRIu64 " and %" PRIu64, first->rank,
                       s->rank, first->done_step, s->done_step);
    }
    const char *of_world = x->protocol->state == NULL ? NULL : x->protocol->state->of_world;
    if (of_world != NULL && !is_same_world(s, x)) {
        return tg_fail(TG_E_MISMATCH, why, "the state has %s for %u ranks, and there are %u", of_world, s->world,
                       x->world);
    }
    return check_size(x, s, why);
}

static float get_float(const uint8_t *floats, uint64_t i)
{
    return tg_bits_float(tg_get32(floats + 4 * i));
}

/* ---- another world --------------------------------------------------------------------------------------------------- */

/* Every party takes the mean of all old parties' residuals, so that their mean is what it was. */
static void share_residuals(const store *to, const state *states, size_t state_n)
{
    const uint64_t residual_n = to->n - to->fit_n;
    float some[SOME];
    for (uint64_t at = 0, n = 0; at < residual_n; at += n) {
        n = residual_n - at < SOME ? residual_n - at : SOME;
        for (uint64_t i = 0; i < n; i++) {
            double sum = 0;
            for (size_t s = 0; s < state_n; s++) {
                sum += is_party(&states[s]) ? (double)get_float(states[s].memory, at + i) : 0;
            }
            some[i] = (float)(sum / (double)parties_of(&states[0]));
        }
        set_some(to, at, some, n);
    }
}

/* Adds n saved numbers. */
static void add_saved(const store *to, uint64_t to_at, const uint8_t *floats, uint64_t from, uint64_t n)
{
    float some[SOME];
    for (uint64_t done = 0, m = 0; done < n; done += m) {
        m = n - done < SOME ? n - done : SOME;
        get_some(some, to, to_at + done, m);
        for (uint64_t i = 0; i < m; i++) {
            some[i] += get_float(floats, from + done + i);
        }
        set_some(to, to_at + done, some, m);
    }
}

/* Adds what an old owner kept: to what this rank keeps as an owner of the same elements, or where owners keep nothing any
 * more, to what every rank keeps of them, so that the mean has it once. */
static void move_answer(const tg_exchange *x, const state *from)
{
    store to = x->protocol->answer_has_feedback ? owner_store(x) : rank_store(x);
    uint32_t slices = tg_protocol_slices(from->by, parties_of(from));
    uint32_t slice = slices == 1 ? 0 : party_of(from);
    uint64_t at = 0; /* in what the old owner kept */
    for (size_t i = 0; to.codec != NULL && i < x->codec->layout->unit_n; i++) {
        const tg_unit_plan *u = &to.codec->plan->units[i];
        if (tg_carrier_answer_planes(from->by, u->unit->recipe) == 0) {
            continue;
        }
        uint64_t lo = tg_slice_start(u->unit->n, slice, slices), hi = tg_slice_start(u->unit->n, slice + 1, slices);
        uint64_t first = lo > u->lo ? lo : u->lo, end = hi < u->hi ? hi : u->hi;
        if (first < end) {
            add_saved(&to, u->residual_at + (first - u->lo), from->answer, at + (first - lo), end - first);
        }
        at += hi - lo;
    }
}

static tg_status check_complete(const state *states, size_t state_n, uint32_t world, tg_detail *why)
{
    if (state_n != world) {
        return tg_fail(TG_E_MISMATCH, why,
                       "the state is of a world of %u ranks; to go on with another number, or other hosts, give all %u"
                       " states, not %zu",
                       world, world, state_n);
    }
    for (size_t i = 0; i < state_n; i++) {
        for (size_t j = 0; j < i; j++) {
            if (states[i].rank == states[j].rank) {
                return tg_fail(TG_E_MISMATCH, why, "the state of rank %u is given twice", states[i].rank);
            }
        }
    }
    return TG_OK;
}

/* ---- loading ----------------------------------------------------------------------------------------------------------- */

static void restore_store(const store *to, const uint8_t *floats)
{
    float some[SOME];
    for (uint64_t at = 0, n = 0; at < to->n; at += n) {
        n = to->n - at < SOME ? to->n - at : SOME;
        for (uint64_t i = 0; i < n; i++) {
            some[i] = get_float(floats, at + i);
        }
        set_some(to, at, some, n);
    }
}

static void clear_store(const store *to)
{
    const float zeros[SOME] = {0};
    for (uint64_t at = 0; at < to->n; at += SOME) {
        set_some(to, at, zeros, to->n - at < SOME ? to->n - at : SOME);
    }
}

static tg_status load(tg_exchange *x, state *states, const tg_span *spans, size_t state_n, tg_detail *why)
{
    store of_rank = rank_store(x), of_owner = owner_store(x);
    const state *own = NULL;
    for (size_t i = 0; i < state_n; i++) {
        TG_TRY(parse(&states[i], &spans[i], why));
        TG_TRY(check(x, &states[i], &states[0], why));
        own = is_same_world(&states[i], x) && states[i].rank == x->rank ? &states[i] : own;
    }
    if (is_same_world(&states[0], x)) {
        if (own == NULL) {
            return tg_fail(TG_E_MISMATCH, why, "the state is of rank %u, and this is rank %u", states[0].rank, x->rank);
        }
        restore_store(&of_rank, own->memory);
        restore_store(&of_owner, own->answer);
    } else {
        TG_TRY(check_complete(states, state_n, states[0].world, why));
        if (of_rank.fit_n > 0) {
            clear_store(&of_rank); /* the next step makes new fits */
        }
        share_residuals(&of_rank, states, state_n);
        clear_store(&of_owner);
        for (size_t i = 0; i < state_n && tg_keeper(x) != NULL; i++) {
            if (states[i].answer_n > 0) {
                move_answer(x, &states[i]);
            }
        }
    }
    const tg_exchange *keeper = tg_keeper(x);
    if (keeper != NULL && x->protocol->state != NULL && x->protocol->state->restored != NULL) {
        x->protocol->state->restored(keeper);
    }
    x->done.any = states[0].any_done;
    x->done.step = states[0].done_step;
    x->is_open = false; /* others may have loaded something else */
    return TG_OK;
}

tg_status tg_state_load(tg_exchange *x, const tg_span *spans, size_t state_n, tg_detail *why)
{
    TG_NEED(x, why);
    if (x->step.phase != TG_IDLE || state_n == 0 || spans == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "states are loaded between steps, at least one");
    }
    state *states = NULL;
    TG_TRY(tg_acquire(&states, &x->allocator, state_n, sizeof *states, why));
    tg_status status = load(x, states, spans, state_n, why);
    tg_release(&x->allocator, states);
    return status;
}
