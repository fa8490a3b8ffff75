/* One step of a world in which one message has structure-aware damage and a repaired checksum: with every exchange, LGC in all its
 * phases. The input is a list of decisions: see mutate.h.
 *
 * What must hold: the step ends on every rank, with an error if it failed. If the message was a frame or one of LGC, the step succeeds
 * on all ranks with the same averages; or the ranks detect that they have diverged; or it fails on all ranks and leaves gradients and
 * states unchanged. A forged vote cannot be detected by other ranks, so that ranks may then end the step differently. */
#include "arenas.h"
#include "message_mutate.h"
#include "trial.h"

#include <string.h>

uint64_t fuzz_accepted_n, fuzz_refused_n;

enum { ARENA_MAX = 64, MESSAGE_MAX = 512 };

/* The messages of a step without damage. */
typedef struct script {
    fuzz_sealers sealers;
    uint8_t *messages[MESSAGE_MAX];
    uint64_t lens[MESSAGE_MAX];
    uint32_t n;
    uint32_t contents[MESSAGE_MAX]; /* numbers of those that are more than votes and lengths */
    uint32_t content_n;
} script;

static tg_status record(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    script *s = context;
    (void)kind;
    (void)from;
    (void)to;
    PROMISE(s->n < MESSAGE_MAX, "there is room for all messages of a step");
    if (fuzz_message_has_content(data, len)) {
        s->contents[s->content_n++] = s->n;
    }
    s->messages[s->n] = fuzz_room((size_t)len, 0);
    memcpy(s->messages[s->n], data, (size_t)len);
    s->lens[s->n++] = len;
    return TG_OK;
}

static const script *script_of(size_t index)
{
    static script scripts[ARENA_MAX];
    script *s = &scripts[index];
    const fuzz_arena *a = fuzz_arena_at(index);
    if (s->n == 0) {
        fuzz_grads grads[FUZZ_ARENA_RANKS];
        tg_outcome outcomes[FUZZ_ARENA_RANKS];
        tg_tap tap = {record, s};
        fuzz_sealers_make(&s->sealers, a);
        fuzz_arena_fill(grads, a);
        PROMISE(fuzz_arena_reduce(outcomes, a, grads, &tap) == TG_OK, "a step without damage succeeds");
        PROMISE(s->content_n > 0, "a step has messages");
        fuzz_arena_reset(a);
    }
    return s;
}

/* ---- the tap ------------------------------------------------------------------------------------------------------------- */

typedef struct damage {
    fuzz_input *input;
    const fuzz_arena *arena;
    const script *script;
    uint32_t left; /* messages until the one that is hit */
    uint32_t other;
    bool hit, has_content;
} damage;

static tg_status hit_message(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    damage *d = context;
    (void)kind;
    (void)from;
    if (!d->hit && d->left-- == 0) {
        d->hit = true;
        d->has_content = fuzz_message_has_content(data, len);
        fuzz_message_damage(d->input, &d->script->sealers, d->arena, to, data, len, d->script->messages[d->other],
                            d->script->lens[d->other]);
    } else if (!d->hit) {
        fuzz_message_follow(&d->script->sealers, data, len);
    } else if (len == sizeof(tg_detail) && fuzz_once_in(d->input, 4)) { /* the reason of a failure */
        fuzz_damage_byte(d->input, data, (size_t)len);
    }
    return TG_OK;
}

/* ---- what must hold ------------------------------------------------------------------------------------------------------ */

static void check_outcomes(const damage *d, const tg_outcome *outcomes, const fuzz_grads *after,
                           const fuzz_grads *before)
{
    const fuzz_arena *a = d->arena;
    uint32_t well = 0;
    for (uint32_t r = 0; r < a->n; r++) {
        PROMISE(outcomes[r].status != TG_MORE, "a step ends on every rank");
        well += outcomes[r].status == TG_OK ? 1 : 0;
        if (outcomes[r].status != TG_OK) {
            fuzz_check_sentence(outcomes[r].why.text, sizeof outcomes[r].why.text);
        }
    }
    *(well == a->n ? &fuzz_accepted_n : &fuzz_refused_n) += 1;
    for (uint32_t r = 0; d->has_content && r < a->n; r++) {
        PROMISE(well == 0 || well == a->n, "a step succeeds on all ranks or on none");
        if (well == a->n) {
            PROMISE(memcmp(after[r].elements, after[0].elements, sizeof after[0].elements) == 0,
                    "all ranks hold the same averages after a step that succeeded");
        } else if (outcomes[r].status != TG_E_DIVERGED) {
            PROMISE(memcmp(after[r].elements, before[r].elements, sizeof before[r].elements) == 0,
                    "a step that failed leaves the gradients as they were");
            PROMISE(fuzz_arena_is_reset(a, r), "a step that failed leaves the state as it was");
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    fuzz_input input = {data, len};
    size_t index = fuzz_pick(&input, (uint32_t)fuzz_arena_n);
    const fuzz_arena *a = fuzz_arena_at(index);
    PROMISE(fuzz_arena_n <= ARENA_MAX, "there is room for all worlds");
    if (a->n == 1) {
        return 0; /* a single rank sends nothing */
    }
    const script *s = script_of(index);
    damage d = {.input = &input, .arena = a, .script = s};
    d.left = fuzz_once_in(&input, 8) ? fuzz_pick(&input, s->n) : s->contents[fuzz_pick(&input, s->content_n)];
    d.other = fuzz_once_in(&input, 4) ? fuzz_pick(&input, s->n) : s->contents[fuzz_pick(&input, s->content_n)];
    fuzz_grads grads[FUZZ_ARENA_RANKS], before[FUZZ_ARENA_RANKS];
    tg_outcome outcomes[FUZZ_ARENA_RANKS];
    tg_tap tap = {hit_message, &d};
    fuzz_arena_fill(grads, a);
    fuzz_arena_fill(before, a);
    (void)!fuzz_arena_reduce(outcomes, a, grads, &tap);
    PROMISE(d.hit, "a step has as many messages each time, up to one that is damaged");
    check_outcomes(&d, outcomes, grads, before);
    fuzz_arena_reset(a);
    return 0;
}
