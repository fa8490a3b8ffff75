/* The decoder of rans_coder.h. It validates everything that it reads. */
#include "base/bytes.h"
#include "pack/rans_table.h"

#include <string.h>

/* Whether a stream may have this number of states. */
static bool are_lanes(uint32_t lanes)
{
    return lanes == 1 || lanes == 4 || (lanes >= 16 && lanes <= TG_RANS_LANES_MAX);
}

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

/* A stream while it is read. */
typedef struct reader {
    uint32_t states[TG_RANS_LANES_MAX], lanes;
    const uint8_t *words, *end;
} reader;

/* Stores the new value x of a state, after shifting in a word if x is too small; false if the stream is exhausted. */
static inline bool refill(reader *r, size_t i, uint32_t x)
{
    if (x < TG_RANS_START) {
        if (r->words == r->end) {
            return false;
        }
        x = x << 16 | tg_get16(r->words);
        r->words += 2;
    }
    r->states[i & (r->lanes - 1)] = x;
    return true;
}

static bool read_wide(uint16_t *symbols, reader *r, size_t count, const wide_slot *slots, uint32_t bits)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t x = r->states[i & (r->lanes - 1)];
        wide_slot slot = slots[x & ((1u << bits) - 1)];
        symbols[i] = slot.symbol;
        if (!refill(r, i, slot.frequency * (x >> bits) + slot.offset)) {
            return false;
        }
    }
    return true;
}

/* Decodes with four states, which the CPU keeps in registers, while there are words for a whole round. Returns the number of
 * symbols. */
static size_t pull_four(uint16_t *symbols, reader *r, size_t count, const tg_rans_slots *slots)
{
    const uint32_t bits = slots->bits, mask = (1u << bits) - 1, upper = slots->upper;
    const uint8_t *at = r->words;
    uint32_t states[4];
    size_t i = 0;
    memcpy(states, r->states, sizeof states);
    for (; count - i >= 4 && r->end - at >= 8; i += 4) {
        for (uint32_t l = 0; l < 4; l++) {
            uint32_t low = states[l] & mask, slot = slots->slots[low];
            symbols[i + l] = (uint16_t)((slot & 255) + (low >= upper ? 256 : 0));
            states[l] = ((slot >> 8 & 4095) + 1) * (states[l] >> bits) + (slot >> 20);
            if (states[l] < TG_RANS_START) {
                states[l] = states[l] << 16 | tg_get16(at);
                at += 2;
            }
        }
    }
    memcpy(r->states, states, sizeof states);
    r->words = at;
    return i;
}

/* The same with one state, as short streams have it. */
static size_t pull_one(uint16_t *symbols, reader *r, size_t count, const tg_rans_slots *slots)
{
    const uint32_t bits = slots->bits, mask = (1u << bits) - 1, upper = slots->upper;
    const uint8_t *at = r->words;
    uint32_t state = r->states[0];
    size_t i = 0;
    for (; i < count && r->end - at >= 2; i++) {
        uint32_t low = state & mask, high = state >> bits, slot = slots->slots[low];
        symbols[i] = (uint16_t)((slot & 255) + (low >= upper ? 256 : 0));
        state = (slot >> 8 & 4095) * high + (high + (slot >> 20)); /* the product, which is waited for, without the 1 */
        if (state < TG_RANS_START) {
            state = state << 16 | tg_get16(at);
            at += 2;
        }
    }
    r->states[0] = state;
    r->words = at;
    return i;
}

static bool read_narrow(uint16_t *symbols, reader *r, size_t count, const tg_rans_slots *slots)
{
    size_t i = 0;
    if (r->lanes >= 16) {
        i = tg_kernels_best()->coders.rans_pull(symbols, r->states, r->lanes, &r->words, r->end, count, slots);
    } else if (r->lanes == 4) {
        i = pull_four(symbols, r, count, slots);
    } else {
        i = pull_one(symbols, r, count, slots);
    }
    for (; i < count; i++) {
        uint32_t x = r->states[i & (r->lanes - 1)], low = x & ((1u << slots->bits) - 1), slot = slots->slots[low];
        symbols[i] = (uint16_t)((slot & 255) + (low >= slots->upper ? 256 : 0));
        if (!refill(r, i, ((slot >> 8 & 4095) + 1) * (x >> slots->bits) + (slot >> 20))) {
            return false;
        }
    }
    return true;
}

bool tg_rans_decode(uint16_t *symbols, const uint8_t *bytes, size_t len, uint8_t form, size_t count, uint32_t base,
                    void *scratch)
{
    tg_rans_table t; /* too long to be cleared for a short stream */
    reader r;
    t.bits = form >> 4;
    r.lanes = 1u << (form & 15);
    r.end = bytes + len;
    if (t.bits < TG_RANS_BITS_MIN || t.bits > TG_RANS_BITS_MAX || !are_lanes(r.lanes)) {
        return false;
    }
    size_t table_len = tg_rans_table_read(&t, bytes, len, base);
    if (table_len == 0 || len - table_len < 4 * (size_t)r.lanes || (len - table_len) % 2 != 0) {
        return false;
    }
    r.words = bytes + table_len;
    for (uint32_t l = 0; l < r.lanes; l++, r.words += 4) {
        r.states[l] = tg_get32(r.words);
        if (r.states[l] < TG_RANS_START || r.states[l] >> 31 != 0) {
            return false;
        }
    }
    bool valid = false;
    if (t.bits <= 12) {
        tg_rans_slots slots = make_slots(scratch, &t, base);
        valid = read_narrow(symbols, &r, count, &slots);
    } else {
        make_wide_slots(scratch, &t, base);
        valid = read_wide(symbols, &r, count, scratch, t.bits);
    }
    valid = valid && r.words == r.end;
    for (uint32_t l = 0; l < r.lanes; l++) {
        valid = valid && r.states[l] == TG_RANS_START;
    }
    return valid;
}
