/* See rans_coder.h. */
#include "pack/rans_coder.h"

#include "base/bytes.h"

#include <string.h>

/* ---- frequencies ----------------------------------------------------------------------------------------------------- */

typedef struct table {
    uint32_t bits;
    uint32_t frequency[TG_BASE_MAX]; /* together 2^bits; 0 for what does not occur */
} table;

/* The symbol that loses or gains one unit of its frequency at the least cost: by about its count over its frequency. */
static uint32_t cheapest(const table *t, const uint32_t *counts, uint32_t base, bool loses)
{
    uint32_t best = base;
    for (uint32_t s = 0; s < base; s++) {
        uint32_t f = t->frequency[s];
        if (counts[s] == 0 || (loses && f == 1)) {
            continue;
        }
        if (best < base) {
            uint64_t here = (uint64_t)counts[s] * (t->frequency[best] - (loses ? 1 : 0));
            uint64_t there = (uint64_t)counts[best] * (f - (loses ? 1 : 0));
            if (loses ? here >= there : here <= there) {
                continue;
            }
        }
        best = s;
    }
    return best;
}

/* Counts, together `count`, to frequencies, none of which becomes 0. */
static void normalise(table *t, const uint32_t *counts, uint64_t count, uint32_t base)
{
    uint32_t total = 1u << t->bits, sum = 0;
    for (uint32_t s = 0; s < base; s++) {
        uint32_t f = (uint32_t)(((uint64_t)counts[s] * total + count / 2) / count);
        t->frequency[s] = f == 0 && counts[s] > 0 ? 1 : f;
        sum += t->frequency[s];
    }
    for (; sum > total; sum--) {
        t->frequency[cheapest(t, counts, base, true)]--;
    }
    for (; sum < total; sum++) {
        t->frequency[cheapest(t, counts, base, false)]++;
    }
}

/* 256 times the binary logarithm of a number, rounded down, without what may differ from machine to machine. */
static uint32_t log_of(uint32_t number)
{
    uint32_t whole = 31 - (uint32_t)__builtin_clz(number), log = whole << 8;
    uint64_t x = ((uint64_t)number << 31) >> whole; /* from 2^31 up to 2^32 */
    for (uint32_t bit = 128; bit > 0; bit /= 2) {
        x = (x * x) >> 31;
        if (x >> 32 != 0) {
            log += bit;
            x >>= 1;
        }
    }
    return log;
}

/* Bytes that symbols with these counts take, or a little more. */
static uint64_t cost(const table *t, const uint32_t *counts, uint32_t base)
{
    uint64_t bits = 0;
    for (uint32_t s = 0; s < base; s++) {
        bits += counts[s] == 0 ? 0 : (uint64_t)counts[s] * ((t->bits << 8) - log_of(t->frequency[s]));
    }
    return bits >> 11;
}

/* A frequency f travels as the number f + 1 of b + 1 bits: b ones, a zero, and its b low bits. The last symbol has what is
 * left. */
static size_t write_table(uint8_t *out, const table *t, uint32_t base)
{
    uint64_t held = 0;
    uint32_t held_n = 0;
    uint8_t *at = out;
    for (uint32_t s = 0; s + 1 < base; s++) {
        uint32_t number = t->frequency[s] + 1, b = 31 - (uint32_t)__builtin_clz(number);
        held |= (((uint64_t)1 << b) - 1) << held_n;
        held_n += b + 1;
        held |= (uint64_t)(number & ((1u << b) - 1)) << held_n;
        for (held_n += b; held_n >= 8; held_n -= 8, held >>= 8) {
            *at++ = (uint8_t)held;
        }
    }
    if (held_n > 0) {
        *at++ = (uint8_t)held;
    }
    return (size_t)(at - out);
}

/* The bytes that were read; 0 if they are no table. */
static size_t read_table(table *t, const uint8_t *bytes, size_t len, uint32_t base)
{
    uint64_t bit = 0, bit_n = (uint64_t)len * 8;
    uint64_t total = UINT64_C(1) << t->bits, sum = 0;
    for (uint32_t s = 0; s + 1 < base; s++) {
        uint32_t b = 0;
        for (; bit < bit_n && bytes[bit / 8] >> bit % 8 & 1; bit++) {
            if (++b > TG_RANS_BITS_MAX) {
                return 0;
            }
        }
        if (bit_n - bit < 1 + (uint64_t)b) {
            return 0;
        }
        bit++;
        uint32_t number = 1u << b;
        for (uint32_t i = 0; i < b; i++, bit++) {
            number |= (uint32_t)(bytes[bit / 8] >> bit % 8 & 1) << i;
        }
        t->frequency[s] = number - 1;
        sum += number - 1;
    }
    for (; bit % 8 != 0; bit++) {
        if (bytes[bit / 8] >> bit % 8 & 1) {
            return 0;
        }
    }
    t->frequency[base - 1] = (uint32_t)(total - sum);
    return sum <= total ? (size_t)(bit / 8) : 0;
}

/* ---- encoding -------------------------------------------------------------------------------------------------------- */

static tg_rans_plans make_plans(uint64_t *plans, const table *t, uint32_t base)
{
    uint64_t start = 0;
    uint32_t first = base, last = 0;
    for (uint32_t s = 0; s < base; s++) {
        uint32_t f = t->frequency[s], log = 0;
        plans[s] = 0;
        if (f == 0) {
            continue;
        }
        first = first < s ? first : s;
        last = s;
        while (1u << log < f) {
            log++;
        }
        uint64_t inverse = ((UINT64_C(1) << (31 + log)) + f - 1) / f;
        plans[s] =
            inverse | (uint64_t)(f - 1) << TG_PLAN_FREQUENCY | start << TG_PLAN_START | (uint64_t)log << TG_PLAN_LOG;
        start += f;
    }
    return (tg_rans_plans){.plans = plans, .bits = t->bits, .first = first, .span = last - first + 1};
}

/* What a state costs, about three bytes, is little beside the `len` bytes that it codes. 16 states, which are for a few
 * kilobytes, may cost a little more where the table is short. */
static uint32_t lanes_for(uint64_t len, size_t table_len)
{
    uint64_t sixteen_from = 128 * (16 * 3 + (uint64_t)table_len);
    return len >= 65536 ? 64 : len >= 16384 ? 32 : len >= sixteen_from ? 16 : len >= 4096 ? 4 : 1;
}

/* The form: bits, and the logarithm of the number of states. */
static uint8_t form_of(uint32_t bits, uint32_t lanes)
{
    return (uint8_t)(bits << 4 | (uint32_t)__builtin_ctz(lanes));
}

static bool are_lanes(uint32_t lanes)
{
    return lanes == 1 || lanes == 4 || (lanes >= 16 && lanes <= TG_RANS_LANES_MAX);
}

/* Encoder's room: words of a chunk, at most two bytes a symbol, then plans; decoder's: slots. */
enum { WORDS_LEN = 2 * TG_PACK_MAX };

uint64_t tg_rans_room_len(void)
{
    return WORDS_LEN + TG_BASE_MAX * sizeof(uint64_t);
}

/* As rans_push, for four states, which a processor keeps in registers, and symbols four at a time. So few states are for short
 * streams, of many symbols mostly because these hardly ever give a word away. */
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

/* A table as it will travel. */
typedef struct draft {
    table t;
    uint8_t head[TG_BASE_MAX * 4];
    size_t head_len;
    uint64_t about; /* bytes that the symbols will take */
} draft;

static void make_draft(draft *d, uint32_t bits, const uint32_t *counts, size_t count, uint32_t base)
{
    d->t.bits = bits;
    normalise(&d->t, counts, count, base);
    d->head_len = write_table(d->head, &d->t, base);
    d->about = cost(&d->t, counts, base);
}

/* Finer frequencies make symbols shorter and the table longer. Those out of 2^12 are read fastest, and may be a little
 * longer. */
static void choose_draft(draft *best, const uint32_t *counts, size_t count, uint32_t base)
{
    draft other;
    make_draft(best, 12, counts, count, base);
    for (uint32_t bits = 10; bits <= 14; bits += 4) {
        if (1u << bits < 2 * base) {
            continue;
        }
        make_draft(&other, bits, counts, count, base);
        uint64_t len = best->about + best->head_len, other_len = other.about + other.head_len;
        if (other_len + (best->t.bits == 12 ? len / 256 : 0) < len) {
            *best = other;
        }
    }
}

size_t tg_rans_encode(uint8_t *out, uint8_t *form, size_t cap, const uint16_t *symbols, size_t count, uint32_t base,
                      void *room)
{
    uint32_t counts[TG_BASE_MAX];
    tg_count_symbols(counts, symbols, count, base);
    draft d;
    choose_draft(&d, counts, count, base);
    const table *t = &d.t;
    uint32_t lane_n = lanes_for(d.about, d.head_len);
    if (d.about + d.head_len > cap) {
        return 0;
    }
    uint8_t *end = (uint8_t *)room + WORDS_LEN, *words = end;
    tg_rans_plans plans = make_plans((uint64_t *)(void *)end, t, base);
    uint32_t states[TG_RANS_LANES_MAX];
    for (uint32_t l = 0; l < lane_n; l++) {
        states[l] = TG_RANS_START;
    }
    size_t fours = lane_n == 4 ? count - count % 4 : 0;
    tg_kernels_best()->coders.rans_push(states, lane_n, &words, symbols + fours, count - fours, &plans);
    if (fours > 0) {
        push_four(states, &words, symbols, fours, &plans);
    }
    size_t words_len = (size_t)(end - words), states_len = 4 * (size_t)lane_n;
    if (d.head_len + states_len + words_len > cap) {
        return 0;
    }
    memcpy(out, d.head, d.head_len);
    for (uint32_t l = 0; l < lane_n; l++) {
        tg_put32(out + d.head_len + 4 * (size_t)l, states[l]);
    }
    memcpy(out + d.head_len + states_len, words, words_len);
    *form = form_of(t->bits, lane_n);
    return d.head_len + states_len + words_len;
}

/* ---- decoding -------------------------------------------------------------------------------------------------------- */

/* What the low bits of a state say. Slots of more than 12 bits, which are rare, do not fit into a word of tg_rans_slots. */
typedef struct wide_slot {
    uint16_t symbol, frequency, offset, unused;
} wide_slot;

static void make_wide_slots(wide_slot *slots, const table *t, uint32_t base)
{
    for (uint32_t symbol = 0; symbol < base; symbol++) {
        for (uint32_t o = 0; o < t->frequency[symbol]; o++) {
            *slots++ = (wide_slot){(uint16_t)symbol, (uint16_t)t->frequency[symbol], (uint16_t)o, 0};
        }
    }
}

static tg_rans_slots make_slots(uint32_t *room, const table *t, uint32_t base)
{
    tg_rans_slots all = {.slots = room, .bits = t->bits, .upper = 1u << t->bits};
    uint32_t few_n = 0, start = 0;
    for (uint32_t l = 0; l < TG_RANS_FEW; l++) {
        all.few_start[l] = 1u << t->bits;
    }
    for (uint32_t symbol = 0; symbol < base; symbol++) {
        uint32_t frequency = t->frequency[symbol], slot = (symbol & 255) | (frequency - 1) << 8;
        all.upper = symbol == 256 ? start : all.upper;
        for (uint32_t o = 0; o < frequency; o++) {
            room[start + o] = slot | o << 20;
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

/* A stream while it is read by as many states as there are. */
typedef struct reader {
    uint32_t states[TG_RANS_LANES_MAX], lanes;
    const uint8_t *words, *end;
} reader;

/* A state that has become x, with a word if it needs one; false if there is none. */
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

/* Four states, which a processor keeps in registers, as long as there are words for a round; returns the number of symbols. So
 * few are for short streams, of many symbols mostly because these hardly ever need a word. */
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

static bool read_narrow(uint16_t *symbols, reader *r, size_t count, const tg_rans_slots *slots)
{
    size_t i = 0;
    if (r->lanes >= 16) {
        i = tg_kernels_best()->coders.rans_pull(symbols, r->states, r->lanes, &r->words, r->end, count, slots);
    } else if (r->lanes == 4) {
        i = pull_four(symbols, r, count, slots);
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
                    void *room)
{
    table t = {.bits = form >> 4};
    reader r = {.lanes = 1u << (form & 15), .end = bytes + len};
    if (t.bits < TG_RANS_BITS_MIN || t.bits > TG_RANS_BITS_MAX || !are_lanes(r.lanes)) {
        return false;
    }
    size_t table_len = read_table(&t, bytes, len, base);
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
    bool sound = false;
    if (t.bits <= 12) {
        tg_rans_slots slots = make_slots(room, &t, base);
        sound = read_narrow(symbols, &r, count, &slots);
    } else {
        make_wide_slots(room, &t, base);
        sound = read_wide(symbols, &r, count, room, t.bits);
    }
    sound = sound && r.words == r.end;
    for (uint32_t l = 0; l < r.lanes; l++) {
        sound = sound && r.states[l] == TG_RANS_START;
    }
    return sound;
}
