/* The encoder of rans_coder.h. */
#include "base/bytes.h"
#include "pack/rans_table.h"

#include <string.h>

enum { WORDS_LEN = 2 * TG_PACK_MAX }; /* the words of a chunk: at most two bytes a symbol */

/* One plan a symbol: what the encoder needs to know of it, in one word (kernels.h). */
static tg_rans_plans make_plans(uint64_t *plans, const tg_rans_table *t, uint32_t base)
{
    uint64_t start = 0;
    uint32_t first = base, last = 0;
    for (uint32_t s = 0; s < base; s++) {
        uint32_t f = t->frequency[s];
        plans[s] = 0;
        if (f == 0) {
            continue;
        }
        first = first < s ? first : s;
        last = s;
        uint32_t log = f == 1 ? 0 : 32 - (uint32_t)__builtin_clz(f - 1);
        uint64_t inverse = ((UINT64_C(1) << (31 + log)) + f - 1) / f;
        plans[s] =
            inverse | (uint64_t)(f - 1) << TG_PLAN_FREQUENCY | start << TG_PLAN_START | (uint64_t)log << TG_PLAN_LOG;
        start += f;
    }
    return (tg_rans_plans){.plans = plans, .bits = t->bits, .first = first, .span = last - first + 1};
}

/* How many states to use for `len` bytes of stream. A state adds about three bytes, which must stay small beside `len`.
 * 16 states are used from a few kilobytes on; a long table raises that limit. */
static uint32_t lanes_for(uint64_t len, size_t table_len)
{
    uint64_t sixteen_from = 128 * (16 * 3 + (uint64_t)table_len);
    return len >= 65536 ? 64 : len >= 16384 ? 32 : len >= sixteen_from ? 16 : len >= 4096 ? 4 : 1;
}

/* The form byte: `bits` in the upper half, the logarithm of the number of states in the lower. */
static uint8_t form_of(uint32_t bits, uint32_t lanes)
{
    return (uint8_t)(bits << 4 | (uint32_t)__builtin_ctz(lanes));
}

/* The encoder stores the words of a chunk, then one plan a symbol; the decoder stores its slots. */
uint64_t tg_rans_scratch_len(void)
{
    return WORDS_LEN + TG_BASE_MAX * sizeof(uint64_t);
}

/* As rans_push, for four states, which the CPU keeps in registers. Four states are used for short streams. If such a stream
 * has many symbols, they are so predictable that a state rarely emits a word. */
static void push_four(uint32_t *all, uint8_t **words, const uint16_t *symbols, size_t count, const tg_rans_plans *plans)
{
    const uint32_t bits = plans->bits, whole = 1u << bits;
    uint8_t *at = *words;
    uint32_t states[4];
    memcpy(states, all, sizeof states);
    for (size_t i = count; i > 0; i -= 4) {
        for (uint32_t l = 4; l-- > 0;) {
            uint64_t plan = plans->plans[symbols[i - 4 + l]];
            uint32_t frequency = (uint32_t)(plan >> TG_PLAN_FREQUENCY & TG_PLAN_MASK) + 1, x = states[l];
            if (x >= (uint64_t)frequency << (31 - bits)) {
                at -= 2;
                tg_put16(at, (uint16_t)x);
                x >>= 16;
            }
            uint32_t quotient = (uint32_t)((x * (plan & UINT32_MAX)) >> (31 + (plan >> TG_PLAN_LOG)));
            uint32_t start = (uint32_t)(plan >> TG_PLAN_START & TG_PLAN_MASK);
            states[l] = x + start + quotient * (whole - frequency);
        }
    }
    memcpy(all, states, sizeof states);
    *words = at;
}

/* The same for one state, as short streams have it. Nothing branches on whether it emits a word. */
static void push_one(uint32_t *state, uint8_t **words, const uint16_t *symbols, size_t count,
                     const tg_rans_plans *plans)
{
    const uint32_t bits = plans->bits, whole = 1u << bits;
    uint8_t *at = *words;
    uint32_t x = *state;
    for (size_t i = count; i-- > 0;) {
        uint64_t plan = plans->plans[symbols[i]];
        uint32_t frequency = (uint32_t)(plan >> TG_PLAN_FREQUENCY & TG_PLAN_MASK) + 1;
        bool emits = x >= (uint64_t)frequency << (31 - bits);
        tg_put16(at - 2, (uint16_t)x); /* there is space for a word per symbol */
        at -= emits ? 2 : 0;
        x = emits ? x >> 16 : x;
        uint32_t quotient = (uint32_t)((x * (plan & UINT32_MAX)) >> (31 + (plan >> TG_PLAN_LOG)));
        uint32_t start = (uint32_t)(plan >> TG_PLAN_START & TG_PLAN_MASK);
        x += start + quotient * (whole - frequency);
    }
    *state = x;
    *words = at;
}

/* A candidate for the table, with its cost. */
typedef struct draft {
    tg_rans_table t;
    size_t head_len;
    uint64_t body_len; /* estimate of the bytes after the table */
} draft;

static void make_draft(draft *d, uint32_t bits, const uint32_t *counts, size_t count, uint32_t base)
{
    d->t.bits = bits;
    tg_rans_normalise(&d->t, counts, count, base);
    d->head_len = tg_rans_table_len(&d->t, base);
    d->body_len = tg_rans_cost(&d->t, counts, base);
}

/* Chooses the precision, and returns its draft. Finer frequencies make the symbols shorter and the table longer. Frequencies out
 * of 2^12 decode fastest, so they are kept unless another precision saves more than 1/256. */
static const draft *choose_draft(draft drafts[2], const uint32_t *counts, size_t count, uint32_t base)
{
    draft *best = &drafts[0], *other = &drafts[1];
    make_draft(best, 12, counts, count, base);
    for (uint32_t bits = 10; bits <= 14; bits += 4) {
        if (1u << bits < 2 * base) {
            continue;
        }
        make_draft(other, bits, counts, count, base);
        uint64_t len = best->body_len + best->head_len, other_len = other->body_len + other->head_len;
        if (other_len + (best->t.bits == 12 ? len / 256 : 0) < len) {
            draft *worse = best;
            best = other;
            other = worse;
        }
    }
    return best;
}

size_t tg_rans_encode(uint8_t *out, uint8_t *form, size_t cap, const uint16_t *symbols, size_t count, uint32_t base,
                      void *scratch)
{
    uint32_t counts[TG_BASE_MAX];
    tg_count_symbols(counts, symbols, count, base);
    draft drafts[2];
    const draft *d = choose_draft(drafts, counts, count, base);
    const tg_rans_table *t = &d->t;
    uint32_t lane_n = lanes_for(d->body_len, d->head_len);
    if (d->body_len + d->head_len > cap) {
        return 0;
    }
    uint8_t *end = (uint8_t *)scratch + WORDS_LEN, *words = end;
    tg_rans_plans plans = make_plans((uint64_t *)(void *)end, t, base);
    uint32_t states[TG_RANS_LANES_MAX];
    for (uint32_t l = 0; l < lane_n; l++) {
        states[l] = TG_RANS_START;
    }
    if (lane_n == 1) {
        push_one(states, &words, symbols, count, &plans);
    } else {
        size_t fours = lane_n == 4 ? count - count % 4 : 0;
        tg_kernels_best()->coders.rans_push(states, lane_n, &words, symbols + fours, count - fours, &plans);
        push_four(states, &words, symbols, fours, &plans);
    }
    size_t words_len = (size_t)(end - words), states_len = 4 * (size_t)lane_n;
    if (d->head_len + states_len + words_len > cap) {
        return 0;
    }
    tg_rans_table_write(out, t, base);
    for (uint32_t l = 0; l < lane_n; l++) {
        tg_put32(out + d->head_len + 4 * (size_t)l, states[l]);
    }
    memcpy(out + d->head_len + states_len, words, words_len);
    *form = form_of(t->bits, lane_n);
    return d->head_len + states_len + words_len;
}
