/* The encoder of rans_coder.h. */
#include "base/bytes.h"
#include "pack/rans_table.h"

#include <string.h>

/* The words of two segments: at most two bytes a symbol, and two bytes a state. */
enum { WORDS_LEN = 2 * 2 * TG_RANS_LANES * (TG_RANS_ROUNDS_MAX + 1) };

/* How a stream is cut. */
typedef struct cut {
    uint32_t lane_n, segment_n;
} cut;

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

/* As many states as `spare` bytes allow, but enough that no state takes more than TG_RANS_ROUNDS_MAX symbols, and not so many that
 * one takes less than a quarter of that. A state costs 21 bits, a segment two bytes more. */
static cut cut_for(size_t count, uint64_t spare)
{
    const size_t most = TG_RANS_ROUNDS_MAX, lanes = TG_RANS_LANES;
    size_t least = (count + most - 1) / most, states = (size_t)(spare * 8 / 21);
    if (least > 16 || states >= lanes) {
        size_t segments = (size_t)(spare / (2 + lanes * 21 / 8)), least_n = (least + lanes - 1) / lanes;
        size_t most_n = 4 * count / (most * lanes);
        segments = (segments < most_n ? segments : most_n) / 2 * 2; /* even, since CPUs take two at a time */
        least_n = least_n > 1 ? (least_n + 1) / 2 * 2 : 1;
        segments = segments > least_n ? segments : least_n;
        return (cut){TG_RANS_LANES, (uint32_t)segments};
    }
    states = states > least ? states : least;
    return (cut){states > 4 && (states >= 16 || least > 4) ? 16 : states >= 4 || least > 1 ? 4 : 1, 1};
}

/* The form byte: `bits` in the upper half, the logarithm of the number of states of a segment in the lower. */
static uint8_t form_of(uint32_t bits, uint32_t lanes)
{
    return (uint8_t)(bits << 4 | (uint32_t)__builtin_ctz(lanes));
}

/* The encoder stores the words of two segments, then one plan a symbol; the decoder stores its slots. */
uint64_t tg_rans_scratch_len(void)
{
    return WORDS_LEN + TG_BASE_MAX * sizeof(uint64_t);
}

/* As rans_push, for four states, which the CPU keeps in registers. Four states are used for short streams. If such a stream
 * has many symbols, they are so predictable that a state rarely emits a word. */
static void push_four(tg_rans_writer *w, const tg_rans_plans *plans)
{
    const uint32_t whole = 1u << plans->bits;
    uint8_t *at = w->at;
    uint32_t states[4];
    memcpy(states, w->states, sizeof states);
    for (size_t i = w->count; i > 0; i -= 4) {
        for (uint32_t l = 4; l-- > 0;) {
            uint64_t plan = plans->plans[w->symbols[i - 4 + l]];
            uint32_t frequency = (uint32_t)(plan >> TG_PLAN_FREQUENCY & TG_PLAN_MASK) + 1, x = states[l];
            if (x >> 17 >= frequency) {
                at -= 2;
                tg_put16(at, (uint16_t)x);
                x >>= 16;
            }
            uint32_t quotient = (uint32_t)((x * (plan & UINT32_MAX)) >> (31 + (plan >> TG_PLAN_LOG)));
            uint32_t start = (uint32_t)(plan >> TG_PLAN_START & TG_PLAN_MASK);
            states[l] = x + start + quotient * (whole - frequency);
        }
    }
    memcpy(w->states, states, sizeof states);
    w->at = at;
}

/* The same for one state, as short streams have it. Nothing branches on whether it emits a word. */
static void push_one(tg_rans_writer *w, const tg_rans_plans *plans)
{
    const uint32_t whole = 1u << plans->bits;
    uint8_t *at = w->at;
    uint32_t x = w->states[0];
    for (size_t i = w->count; i-- > 0;) {
        uint64_t plan = plans->plans[w->symbols[i]];
        uint32_t frequency = (uint32_t)(plan >> TG_PLAN_FREQUENCY & TG_PLAN_MASK) + 1;
        bool emits = x >> 17 >= frequency;
        tg_put16(at - 2, (uint16_t)x); /* there is space for a word per symbol */
        at -= emits ? 2 : 0;
        x = emits ? x >> 16 : x;
        uint32_t quotient = (uint32_t)((x * (plan & UINT32_MAX)) >> (31 + (plan >> TG_PLAN_LOG)));
        uint32_t start = (uint32_t)(plan >> TG_PLAN_START & TG_PLAN_MASK);
        x += start + quotient * (whole - frequency);
    }
    w->states[0] = x;
    w->at = at;
}

/* Encodes one segment, or two at a time. */
static void push(tg_rans_writer *w, size_t writer_n, uint32_t lane_n, const tg_rans_plans *plans)
{
    if (lane_n == 1) {
        push_one(w, plans);
    } else if (lane_n == 4) {
        tg_rans_push_rest(w, 4, 4, plans);
        push_four(w, plans);
    } else {
        tg_kernels_best()->coders.rans_push(w, writer_n, lane_n, plans);
    }
}

/* States become 16 bits, as they are stored: those that are longer emit a word. */
static void shorten_states(tg_rans_writer *w, uint32_t lane_n)
{
    for (uint32_t l = lane_n; l-- > 0;) {
        if (w->states[l] >> 16 != 0) {
            w->at -= 2;
            tg_put16(w->at, (uint16_t)w->states[l]);
            w->states[l] >>= 16;
        }
    }
}

/* ---- the table -------------------------------------------------------------------------------------------------------------- */

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
 * of 2^12 decode fastest, so they are kept unless another precision saves more than 1/512. *least: of all drafts, the fewest bytes
 * without the table. */
static const draft *choose_draft(draft drafts[2], uint64_t *least, const uint32_t *counts, size_t count, uint32_t base)
{
    draft *best = &drafts[0], *other = &drafts[1];
    make_draft(best, 12, counts, count, base);
    *least = best->body_len;
    for (uint32_t bits = 10; bits <= 14; bits += 4) {
        if (1u << bits < 2 * base) {
            continue;
        }
        make_draft(other, bits, counts, count, base);
        *least = other->body_len < *least ? other->body_len : *least;
        uint64_t len = best->body_len + best->head_len, other_len = other->body_len + other->head_len;
        if (other_len + (best->t.bits == 12 ? len / 512 : 0) < len) {
            draft *worse = best;
            best = other;
            other = worse;
        }
    }
    return best;
}

/* ---- segments --------------------------------------------------------------------------------------------------------------- */

/* Where the segments of a stream are written: form and number of segments, table, lengths, segments. */
typedef struct writing {
    uint8_t *lengths, *at, *end;
    uint32_t number; /* of the next segment */
} writing;

/* Appends an encoded segment, whose words end at `end`. False if there is no space. */
static bool append(writing *o, const tg_rans_writer *w, const uint8_t *end, cut c)
{
    size_t words_len = (size_t)(end - w->at), states_len = 2 * (size_t)c.lane_n;
    if ((size_t)(o->end - o->at) < states_len + words_len) {
        return false;
    }
    if (o->number + 1 < c.segment_n) {
        tg_put16(o->lengths + 2 * (size_t)o->number, (uint16_t)(words_len / 2));
    }
    for (uint32_t l = 0; l < c.lane_n; l++) {
        tg_put16(o->at + 2 * (size_t)l, (uint16_t)w->states[l]);
    }
    memcpy(o->at + states_len, w->at, words_len);
    o->at += states_len + words_len;
    o->number++;
    return true;
}

/* Encodes and writes all segments, two at a time. False if there is no space. */
static bool write_segments(writing *o, cut c, const uint16_t *symbols, size_t count, const tg_rans_plans *plans,
                           uint8_t *scratch)
{
    size_t each = tg_rans_segment_n(count, c.segment_n, c.lane_n);
    for (size_t from = 0; from < count; from += 2 * each) {
        tg_rans_writer w[2];
        uint8_t *ends[2] = {scratch, scratch};
        size_t writer_n = count - from > each ? 2 : 1;
        for (size_t i = 0; i < writer_n; i++) {
            size_t at = from + i * each, n = count - at < each ? count - at : each;
            ends[i] = (i == 0 ? scratch : ends[0]) + 2 * (n + c.lane_n);
            w[i].at = ends[i];
            w[i].symbols = symbols + at;
            w[i].count = n;
            for (uint32_t l = 0; l < c.lane_n; l++) {
                w[i].states[l] = tg_rans_start(plans->bits);
            }
        }
        push(w, writer_n, c.lane_n, plans);
        for (size_t i = 0; i < writer_n; i++) {
            shorten_states(&w[i], c.lane_n);
            if (!append(o, &w[i], ends[i], c)) {
                return false;
            }
        }
    }
    return true;
}

size_t tg_rans_encode(uint8_t *out, uint8_t *form, size_t cap, size_t beside, const uint16_t *symbols, size_t count,
                      uint32_t base, void *scratch)
{
    uint32_t counts[TG_BASE_MAX];
    tg_count_symbols(counts, symbols, count, base);
    draft drafts[2];
    uint64_t least = 0;
    const draft *d = choose_draft(drafts, &least, counts, count, base);
    const tg_rans_table *t = &d->t;
    /* Table and states may take 1/112 of the entropy, so that all of it is within 1%. */
    uint64_t len = d->head_len + d->body_len, most = least + (least + beside) / 112;
    bool is_one = t->first == t->last;
    cut c = is_one ? (cut){1, 0} : cut_for(count, most > len ? most - len : 0);
    bool has_number = c.lane_n == TG_RANS_LANES;
    size_t lengths_len = is_one ? 0 : 2 * (size_t)(c.segment_n - 1), head_len = d->head_len + (has_number ? 1 : 0);
    if (len > cap || head_len + lengths_len > cap) {
        return 0;
    }
    *form = form_of(t->bits, c.lane_n);
    tg_rans_table_write(out, t, base);
    if (has_number) {
        out[d->head_len] = (uint8_t)(c.segment_n - 1);
    }
    tg_rans_plans plans = make_plans((uint64_t *)(void *)((uint8_t *)scratch + WORDS_LEN), t, base);
    writing o = {.lengths = out + head_len, .at = out + head_len + lengths_len, .end = out + cap};
    return is_one || write_segments(&o, c, symbols, count, &plans, scratch) ? (size_t)(o.at - out) : 0;
}
