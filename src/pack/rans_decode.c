/* The decoder of rans_coder.h. It validates everything that it reads. */
#include "base/bytes.h"
#include "pack/rans_table.h"

#include <string.h>

/* Decoding table for precisions above 12 bits, which are rare: such an entry does not fit into a word of tg_rans_slots. The
 * low bits of a state are the entry's number. */
typedef struct wide_slot {
    uint16_t symbol, frequency, offset, unused;
} wide_slot;

static void make_wide_slots(wide_slot *slots, const tg_rans_table *t, uint32_t base)
{
    for (uint32_t symbol = 0; symbol < base; symbol++) {
        for (uint32_t o = 0; o < t->frequency[symbol]; o++) {
            *slots++ = (wide_slot){(uint16_t)symbol, (uint16_t)t->frequency[symbol], (uint16_t)o, 0};
        }
    }
}

static tg_rans_slots make_slots(uint32_t *slots, const tg_rans_table *t, uint32_t base)
{
    tg_rans_slots all = {.slots = slots, .bits = t->bits, .upper = 1u << t->bits};
    uint32_t few_n = 0, start = 0;
    for (uint32_t l = 0; l < TG_RANS_FEW; l++) {
        all.few_start[l] = 1u << t->bits;
    }
    for (uint32_t symbol = 0; symbol < base; symbol++) {
        uint32_t frequency = t->frequency[symbol], slot = (symbol & 255) | (frequency - 1) << 8;
        uint32_t *here = slots + start; /* by a pointer of its own the loop becomes one of vectors */
        all.upper = symbol == 256 ? start : all.upper;
        for (uint32_t o = 0; o < frequency; o++) {
            here[o] = slot | o << 20;
        }
        if (frequency > 0 && few_n++ < TG_RANS_FEW) {
            all.few_symbol[few_n - 1] = symbol;
            all.few_start[few_n - 1] = start;
            all.few_frequency[few_n - 1] = frequency;
        }
        start += frequency;
    }
    all.few_n = few_n <= TG_RANS_FEW ? few_n : 0;
    return all;
}

/* Decodes with four states, which the CPU keeps in registers, while there are words for a whole round. */
static void pull_four(tg_rans_reader *r, const uint8_t *end, const tg_rans_slots *slots)
{
    const uint32_t bits = slots->bits, mask = (1u << bits) - 1, upper = slots->upper, start = tg_rans_start(bits);
    const uint8_t *at = r->at;
    uint32_t states[4];
    size_t i = 0;
    memcpy(states, r->states, sizeof states);
    for (; r->left - i >= 4 && end - at >= 8; i += 4) {
        for (uint32_t l = 0; l < 4; l++) {
            uint32_t low = states[l] & mask, slot = slots->slots[low];
            r->symbols[i + l] = (uint16_t)((slot & 255) + (low >= upper ? 256 : 0));
            states[l] = ((slot >> 8 & 4095) + 1) * (states[l] >> bits) + (slot >> 20);
            if (states[l] < start) {
                states[l] = states[l] << 16 | tg_get16(at);
                at += 2;
            }
        }
    }
    memcpy(r->states, states, sizeof states);
    tg_rans_advance(r, at, i);
}

/* The same with one state, as short streams have it. */
static void pull_one(tg_rans_reader *r, const uint8_t *end, const tg_rans_slots *slots)
{
    const uint32_t bits = slots->bits, mask = (1u << bits) - 1, upper = slots->upper, start = tg_rans_start(bits);
    const uint8_t *at = r->at;
    uint32_t state = r->states[0];
    size_t i = 0;
    for (; i < r->left && end - at >= 2; i++) {
        uint32_t low = state & mask, high = state >> bits, slot = slots->slots[low];
        r->symbols[i] = (uint16_t)((slot & 255) + (low >= upper ? 256 : 0));
        state = (slot >> 8 & 4095) * high + (high + (slot >> 20)); /* the product, which is waited for, without the 1 */
        if (state < start) {
            state = state << 16 | tg_get16(at);
            at += 2;
        }
    }
    r->states[0] = state;
    tg_rans_advance(r, at, i);
}

/* A stream while it is read. */
typedef struct stream {
    const uint8_t *lengths, *at, *end; /* at: of the next segment */
    tg_rans_slots slots;
    const wide_slot *wide; /* NULL: slots */
    uint32_t lane_n, segment_n, bits;
} stream;

/* The symbol of a state, which is taken out of it. */
static uint16_t take(uint32_t *state, const stream *s)
{
    uint32_t low = *state & ((1u << s->bits) - 1), high = *state >> s->bits;
    if (s->wide != NULL) {
        wide_slot slot = s->wide[low];
        *state = slot.frequency * high + slot.offset;
        return slot.symbol;
    }
    uint32_t slot = s->slots.slots[low];
    *state = ((slot >> 8 & 4095) + 1) * high + (slot >> 20);
    return (uint16_t)((slot & 255) + (low >= s->slots.upper ? 256 : 0));
}

/* Refills a state; false if it needs a word and there is none. */
static bool refill(tg_rans_reader *r, uint32_t lane, const uint8_t *end, uint32_t bits)
{
    if (r->states[lane] < tg_rans_start(bits)) {
        if (end - r->at < 2) {
            return false;
        }
        r->states[lane] = r->states[lane] << 16 | tg_get16(r->at);
        r->at += 2;
    }
    return true;
}

/* Begins the next segment, of n symbols; false if its length or its states make no sense. *end: where it ends. */
static bool begin(tg_rans_reader *r, const uint8_t **end, stream *s, uint16_t *symbols, size_t n)
{
    bool is_last = --s->segment_n == 0, valid = true;
    size_t left = (size_t)(s->end - s->at), states_len = 2 * (size_t)s->lane_n;
    if (left < states_len) {
        return false;
    }
    size_t words_len = is_last ? left - states_len : 2 * (size_t)tg_get16(s->lengths);
    if (words_len > left - states_len || words_len % 2 != 0) {
        return false;
    }
    r->at = s->at + states_len;
    r->symbols = symbols;
    r->left = n;
    *end = r->at + words_len;
    for (uint32_t l = 0; l < s->lane_n; l++) {
        r->states[l] = tg_get16(s->at + 2 * (size_t)l);
        valid = valid && r->states[l] != 0 && refill(r, l, *end, s->bits);
    }
    s->lengths += 2;
    s->at = *end;
    return valid;
}

/* Decodes what the kernels left of a segment; false if it does not end as it must. */
static bool finish(tg_rans_reader *r, const uint8_t *end, const stream *s)
{
    bool valid = true;
    for (uint32_t l = 0; valid && r->left > 0; l = (l + 1) & (s->lane_n - 1)) {
        *r->symbols = take(&r->states[l], s);
        valid = refill(r, l, end, s->bits);
        tg_rans_advance(r, r->at, 1);
    }
    valid = valid && r->at == end;
    for (uint32_t l = 0; l < s->lane_n; l++) {
        valid = valid && r->states[l] == tg_rans_start(s->bits);
    }
    return valid;
}

/* Kernels read words of the segments after it, if a damaged one goes on; its end is checked later. */
static void pull(tg_rans_reader *r, size_t reader_n, const stream *s)
{
    if (s->wide != NULL) {
        return;
    }
    if (s->lane_n == 1) {
        pull_one(r, s->end, &s->slots);
    } else if (s->lane_n == 4) {
        pull_four(r, s->end, &s->slots);
    } else {
        const tg_coder_kernels *k = &tg_kernels_best()->coders;
        k->rans_pull(r, reader_n, s->lane_n, s->end, &s->slots);
        for (size_t i = 0; reader_n > 1 && i < reader_n; i++) { /* one of them ended before the other */
            k->rans_pull(&r[i], 1, s->lane_n, s->end, &s->slots);
        }
    }
}

/* Decodes all segments, two at a time. */
static bool read_segments(uint16_t *symbols, stream *s, size_t count, size_t each)
{
    for (size_t from = 0; from < count; from += 2 * each) {
        tg_rans_reader r[2];
        const uint8_t *ends[2];
        size_t reader_n = count - from > each ? 2 : 1;
        for (size_t i = 0; i < reader_n; i++) {
            size_t at = from + i * each, n = count - at < each ? count - at : each;
            if (!begin(&r[i], &ends[i], s, symbols + at, n)) {
                return false;
            }
        }
        pull(r, reader_n, s);
        for (size_t i = 0; i < reader_n; i++) {
            if (!finish(&r[i], ends[i], s)) {
                return false;
            }
        }
    }
    return true;
}

/* What follows the table: how many segments there are, and their lengths. *each: the symbols of a segment. */
static bool read_cut(stream *s, size_t *each, size_t count)
{
    if (s->lane_n == TG_RANS_LANES) {
        if (s->at == s->end) {
            return false;
        }
        s->segment_n = 1 + (uint32_t)*s->at++;
    }
    size_t lengths_len = 2 * (size_t)(s->segment_n - 1);
    *each = tg_rans_segment_n(count, s->segment_n, s->lane_n);
    if ((size_t)(s->end - s->at) < lengths_len || *each * (s->segment_n - 1) >= count ||
        *each > (size_t)TG_RANS_ROUNDS_MAX * s->lane_n) {
        return false;
    }
    s->lengths = s->at;
    s->at += lengths_len;
    return true;
}

bool tg_rans_decode(uint16_t *symbols, const uint8_t *bytes, size_t len, uint8_t form, size_t count, uint32_t base,
                    void *scratch)
{
    tg_rans_table t; /* too long to be cleared for a short stream */
    t.bits = form >> 4;
    stream s = {.end = bytes + len, .lane_n = 1u << (form & 15), .segment_n = 1, .bits = t.bits};
    bool are_lanes = s.lane_n == 1 || s.lane_n == 4 || s.lane_n == 16 || s.lane_n == TG_RANS_LANES;
    if (t.bits < TG_RANS_BITS_MIN || t.bits > TG_RANS_BITS_MAX || !are_lanes) {
        return false;
    }
    size_t each = 0, table_len = tg_rans_table_read(&t, bytes, len, base);
    s.at = bytes + table_len;
    if (table_len > 0 && t.first == t.last) { /* a single symbol */
        for (size_t i = 0; i < count; i++) {
            symbols[i] = (uint16_t)t.first;
        }
        return s.lane_n == 1 && table_len == len;
    }
    if (table_len == 0 || !read_cut(&s, &each, count)) {
        return false;
    }
    if (t.bits <= 12) {
        s.slots = make_slots(scratch, &t, base);
    } else {
        make_wide_slots(scratch, &t, base);
        s.wide = scratch;
    }
    return read_segments(symbols, &s, count, each);
}
