/* Saved states of every exchange (docs/format.md, section 9) with structure-aware damage and a repaired checksum. The input is a list
 * of decisions: see mutate.h.
 *
 * What must hold: a refused load gives an error and changes nothing. After an accepted one, the rank saves a state that loads again to
 * the same bytes, and its next step succeeds or fails with an error on every rank. */
#include "arenas.h"
#include "base/bytes.h"
#include "exchange/lgc.h"
#include "kernels/hash.h"
#include "mutate.h"
#include "trial.h"

#include <string.h>

uint64_t fuzz_accepted_n, fuzz_refused_n;

enum { HEADER_LEN = 72, CHECKSUM_LEN = 8, NAME_AT = 24, NAME_LEN = 16, MEMORY_N_AT = 48, ANSWER_N_AT = 56 };
enum { OTHER, NAME, MEMORY, COUNTER, ANSWER }; /* roles of fields */
enum { COUNTER_N = 5 };

/* ---- cutting and sealing ----------------------------------------------------------------------------------------------- */

static void cut(fuzz_mutant *m, const tg_exchange *x)
{
    static const uint8_t lens[] = {4, 1, 1, 2, 8, 4, 4, NAME_LEN, 8, 8, 8, 8};
    size_t at = 0;
    for (size_t i = 0; i < sizeof lens; i++) {
        bool is_name = at == NAME_AT;
        at = fuzz_mutant_add(m, is_name ? FUZZ_BYTES : FUZZ_NUMBER, is_name ? NAME : OTHER, 0, at, lens[i]);
    }
    size_t memory_len = 4 * (size_t)tg_get64(m->bytes + MEMORY_N_AT), end = at + memory_len;
    if (strncmp(tg_exchange_name(x), "lgc", 3) == 0) { /* LGC has counters among the floats */
        const tg_lgc *l = ((const tg_lgc_exchange *)x->own)->lgc;
        size_t before = 4 * ((size_t)l->size.feedback_n + l->layout->tensor_n);
        at = fuzz_mutant_add(m, FUZZ_FLOATS, MEMORY, 0, at, before);
        for (int i = 0; i < COUNTER_N; i++) {
            at = fuzz_mutant_add(m, FUZZ_NUMBER, COUNTER, 0, at, 4);
        }
    }
    at = fuzz_mutant_add(m, FUZZ_FLOATS, MEMORY, 0, at, end - at);
    (void)fuzz_mutant_add(m, FUZZ_FLOATS, ANSWER, 0, at, m->len - CHECKSUM_LEN - at);
}

static void fix_counts(fuzz_mutant *m)
{
    uint64_t memory_len = 0, answer_len = 0;
    for (size_t i = 0; i < m->field_n; i++) {
        memory_len += m->fields[i].role == MEMORY || m->fields[i].role == COUNTER ? m->fields[i].len : 0;
        answer_len += m->fields[i].role == ANSWER ? m->fields[i].len : 0;
    }
    tg_put64(m->bytes + MEMORY_N_AT, memory_len / 4);
    tg_put64(m->bytes + ANSWER_N_AT, answer_len / 4);
}

static void seal(uint8_t *state, size_t len)
{
    if (len >= CHECKSUM_LEN) {
        tg_put64(state + len - CHECKSUM_LEN, tg_hash(state, len - CHECKSUM_LEN));
    }
}

/* ---- mutants ----------------------------------------------------------------------------------------------------------- */

static void damage_name(fuzz_input *input, uint8_t *name)
{
    static const char *const names[] = {"allreduce", "gather", "shard", "server", "lowrank", "lgc-ring", "lgc-server"};
    const char *chosen = names[fuzz_pick(input, sizeof names / sizeof *names)];
    memset(name, 0, NAME_LEN);
    memcpy(name, chosen, strlen(chosen));
}

/* A copy of exactly its length. */
static tg_span mutant_of(fuzz_input *input, const uint8_t *saved, size_t saved_len, const tg_exchange *x,
                         const uint8_t *other, size_t other_len)
{
    fuzz_mutant m;
    fuzz_mutant_start(&m, saved, saved_len);
    cut(&m, x);
    for (uint32_t i = fuzz_pick(input, 4); i > 0; i--) {
        size_t field = fuzz_pick(input, (uint32_t)m.field_n);
        if (m.fields[field].role == NAME && !fuzz_once_in(input, 4)) {
            damage_name(input, m.bytes + NAME_AT);
        } else {
            fuzz_damage_field(input, &m, field, other, other_len);
        }
    }
    if (fuzz_once_in(input, 2)) {
        fix_counts(&m);
    }
    if (fuzz_once_in(input, 16)) {
        m.len -= fuzz_pick(input, (uint32_t)m.len);
    }
    tg_span state = {fuzz_room(m.len, 0), m.len};
    memcpy(state.data, m.bytes, m.len);
    seal(state.data, m.len);
    fuzz_mutant_free(&m);
    return state;
}

/* ---- what must hold ---------------------------------------------------------------------------------------------------- */

static void check_accepted(fuzz_input *input, const fuzz_arena *a, uint32_t rank)
{
    tg_exchange *x = a->ranks[rank];
    tg_span state = {fuzz_room(a->saved_len[rank], 0), a->saved_len[rank]};
    uint8_t *again = fuzz_room(a->saved_len[rank], 0);
    tg_detail why = {""};
    PROMISE(tg_state_len(x) == a->saved_len[rank], "loading does not change the size of a state");
    PROMISE(tg_state_save(x, state.data, (size_t)state.len, NULL) == TG_OK, "a state can be saved");
    PROMISE(tg_state_load(x, &state, 1, &why) == TG_OK, "what was saved behind a load can be loaded");
    PROMISE(tg_state_save(x, again, a->saved_len[rank], NULL) == TG_OK &&
                memcmp(again, state.data, a->saved_len[rank]) == 0,
            "what was loaded is what is saved, to the byte");
    if (!fuzz_once_in(input, 4)) {
        fuzz_grads grads[FUZZ_ARENA_RANKS];
        tg_outcome outcomes[FUZZ_ARENA_RANKS];
        fuzz_arena_fill(grads, a);
        (void)!fuzz_arena_reduce(outcomes, a, grads, NULL);
        for (uint32_t r = 0; r < a->n; r++) {
            PROMISE(outcomes[r].status != TG_MORE, "a step ends on every rank");
            if (outcomes[r].status != TG_OK) {
                fuzz_check_sentence(outcomes[r].why.text, sizeof outcomes[r].why.text);
            }
        }
    }
    free(again);
    free(state.data);
    fuzz_arena_reset(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    fuzz_input input = {data, len};
    size_t index = fuzz_pick(&input, (uint32_t)fuzz_arena_n);
    const fuzz_arena *a = fuzz_arena_at(index), *from = a;
    uint32_t rank = fuzz_pick(&input, a->n), state_n = 1, damaged = 0;
    if (fuzz_once_in(&input, 4)) { /* the states of another world, or of other steps */
        from = fuzz_arena_at(index + 1 < fuzz_arena_n ? index + 1 : index - 1);
    }
    if (from->n != a->n || fuzz_once_in(&input, 4)) {
        state_n = from->n;
        damaged = fuzz_pick(&input, state_n);
    }
    tg_span states[FUZZ_ARENA_RANKS];
    for (uint32_t s = 0; s < state_n; s++) {
        uint32_t r = state_n == 1 ? rank % from->n : s;
        fuzz_input none = {NULL, 0};
        states[s] = mutant_of(s == damaged ? &input : &none, from->saved[r], from->saved_len[r], from->ranks[r],
                              a->saved[rank], a->saved_len[rank]);
    }
    tg_detail why;
    memset(&why, 'x', sizeof why);
    tg_status status = tg_state_load(a->ranks[rank], states, state_n, &why);
    if (status == TG_OK) {
        fuzz_accepted_n++;
        check_accepted(&input, a, rank);
    } else {
        fuzz_refused_n++;
        PROMISE(status < 0, "a refusal is a failure");
        fuzz_check_sentence(why.text, sizeof why.text);
        PROMISE(fuzz_arena_is_reset(a, rank), "a load that is refused changes nothing");
    }
    for (uint32_t s = 0; s < state_n; s++) {
        free(states[s].data);
    }
    return 0;
}
