/* A prefix code for symbols: canonical, of at most 12 bits a symbol, and the best such code for their counts, in front of
 * which its lengths travel; or the one that the quantizer proposes by what it has fitted, which costs nothing to send. */
#include "base/bytes.h"
#include "base/sort.h"
#include "pack/pack.h"

#include <string.h>

enum { LONGEST = 12, TABLE = 0, TABLE_MODEL = 1, SLOTS = 1 << LONGEST };

/* Forms: where the lengths come from, and in how many streams the codes stand. Four can be read at the same time. */
enum { FORM_COUNTS = 1, FORM_MODEL = 2, FORM_FOUR = 2 /* more */, STREAMS = 4, FOUR_FROM = 8192 /* symbols */ };

static const char *const table_choices[] = {"counts", "model", NULL};

static const tg_param params[] = {
    {.name = "table",
     .summary = "code lengths from the counts, or from the model that the quantizer fits",
     .choices = table_choices,
     .is_main = true},
};

/* ---- the best lengths ------------------------------------------------------------------------------------------------ */

/* Package-merge (Larmore and Hirschberg, 1990). Row by row, the leaves and the pairs of the row before are merged in order
 * of weight; all that is kept of a row is which of its items are leaves. The first 2n - 2 items of the last row are taken:
 * its leaves get one bit, and its pairs take twice as many items of the row before, and so on. */
static void best_lengths(uint8_t *lengths, const uint32_t *counts, uint32_t base)
{
    uint64_t leaves[TG_BASE_MAX], row[2 * TG_BASE_MAX], next[2 * TG_BASE_MAX];
    bool is_leaf[LONGEST][2 * TG_BASE_MAX];
    uint32_t n = 0, row_n = 0;
    for (uint32_t s = 0; s < base; s++) {
        lengths[s] = 0;
        if (counts[s] > 0) {
            leaves[n++] = (uint64_t)counts[s] << 16 | s;
        }
    }
    if (n == 1) { /* a code of one symbol has another, that is not used */
        uint32_t only = (uint32_t)(leaves[0] & 0xffff);
        lengths[only] = lengths[only == 0 ? 1 : only - 1] = 1;
        return;
    }
    tg_sort(leaves, n);
    for (uint32_t level = 0; level < LONGEST; level++) {
        uint32_t leaf = 0, pair = 0, next_n = 0;
        while (leaf < n || pair + 1 < row_n) {
            uint64_t sum = pair + 1 < row_n ? row[pair] + row[pair + 1] : UINT64_MAX;
            bool takes_leaf = leaf < n && leaves[leaf] >> 16 <= sum;
            is_leaf[level][next_n] = takes_leaf;
            next[next_n++] = takes_leaf ? leaves[leaf] >> 16 : sum;
            leaf += takes_leaf ? 1 : 0;
            pair += takes_leaf ? 0 : 2;
        }
        memcpy(row, next, next_n * sizeof *row);
        row_n = next_n;
    }
    uint32_t taken = 2 * n - 2;
    for (uint32_t level = LONGEST; level-- > 0;) {
        uint32_t leaf = 0;
        for (uint32_t i = 0; i < taken; i++) {
            if (is_leaf[level][i]) {
                lengths[leaves[leaf++] & 0xffff]++;
            }
        }
        taken = 2 * (taken - leaf);
    }
}

/* ---- the code -------------------------------------------------------------------------------------------------------- */

/* Canonical codes: by length, then by symbol, first bit lowest. False if the lengths are not those of a full code. */
static bool make_codes(uint16_t *codes, const uint8_t *lengths, uint32_t base)
{
    uint32_t next = 0;
    for (uint32_t length = 1; length <= LONGEST; length++, next *= 2) {
        for (uint32_t s = 0; s < base; s++) {
            if (lengths[s] != length) {
                continue;
            }
            if (next >> length != 0) {
                return false;
            }
            uint32_t code = 0;
            for (uint32_t b = 0; b < length; b++) {
                code |= (next >> b & 1) << (length - 1 - b);
            }
            codes[s] = (uint16_t)code;
            next++;
        }
    }
    return next == 2 * SLOTS; /* was doubled behind the last length */
}

static size_t lengths_len(uint32_t base)
{
    return (base + 1) / 2;
}

/* Symbols in one of four streams: as many in each, the last may have fewer. */
static size_t stream_n(size_t count, uint32_t stream)
{
    size_t each = (count + STREAMS - 1) / STREAMS;
    return stream + 1 < STREAMS ? each : count - each * (STREAMS - 1);
}

static size_t write_stream(uint8_t *out, const uint16_t *symbols, size_t n, const uint16_t *codes,
                           const uint8_t *lengths)
{
    uint8_t *at = out;
    uint64_t held = 0;
    uint32_t held_n = 0;
    for (size_t i = 0; i < n; i++) {
        held |= (uint64_t)codes[symbols[i]] << held_n;
        held_n += lengths[symbols[i]];
        if (held_n >= 32) {
            tg_put32(at, (uint32_t)held);
            at += 4;
            held >>= 32;
            held_n -= 32;
        }
    }
    for (; held_n > 0; held_n -= held_n < 8 ? held_n : 8, held >>= 8) {
        *at++ = (uint8_t)held;
    }
    return (size_t)(at - out);
}

static size_t encode(uint8_t *out, size_t cap, const void *all, size_t count, const tg_coding *c)
{
    const uint16_t *symbols = all;
    uint32_t counts[TG_BASE_MAX];
    uint8_t counted[TG_BASE_MAX];
    uint16_t codes[TG_BASE_MAX];
    const uint8_t *lengths = c->lengths;
    tg_count_symbols(counts, symbols, count, c->base);
    size_t head = 1;
    bool by_model = c->params[TABLE] == TABLE_MODEL && lengths != NULL;
    if (!by_model) {
        best_lengths(counted, counts, c->base);
        lengths = counted;
        head += lengths_len(c->base);
    }
    uint64_t bits = 0;
    for (uint32_t s = 0; s < c->base; s++) {
        bits += (uint64_t)counts[s] * lengths[s];
    }
    bool four = count >= FOUR_FROM;
    size_t starts_len = four ? 4 * (STREAMS - 1) : 0;
    /* Each stream is rounded up to bytes. */
    if (head + starts_len + (bits + 7) / 8 + (four ? STREAMS - 1 : 0) > cap || !make_codes(codes, lengths, c->base)) {
        return 0;
    }
    out[0] = (uint8_t)((by_model ? FORM_MODEL : FORM_COUNTS) + (four ? FORM_FOUR : 0));
    for (uint32_t s = 0; !by_model && s < c->base; s += 2) {
        out[1 + s / 2] = (uint8_t)(lengths[s] | (s + 1 < c->base ? lengths[s + 1] << 4 : 0));
    }
    size_t len = head + starts_len, done = 0;
    for (uint32_t stream = 0; stream < (four ? STREAMS : 1); stream++) {
        size_t n = four ? stream_n(count, stream) : count;
        size_t stream_len = write_stream(out + len, symbols + done, n, codes, lengths);
        if (stream + 1 < STREAMS && four) {
            tg_put32(out + head + 4 * stream, (uint32_t)stream_len);
        }
        len += stream_len;
        done += n;
    }
    return len;
}

/* ---- decoding -------------------------------------------------------------------------------------------------------- */

/* What 12 bits say. `singles`: the first symbol, and from bit 12 on its bits. `slots`: up to three symbols, 16 bits each from
 * the lowest on, their number, and the bits that they take. Slots are for codes that are short. */
enum { SINGLE_BITS = 12, SLOT_SYMBOLS = 3, SLOT_N = 48, SLOT_BITS = 56, TURNS = 56 / LONGEST };

typedef struct tables {
    uint64_t slots[SLOTS];
    uint16_t singles[SLOTS];
    bool has_slots;
} tables;

static uint64_t room_len(const double *p)
{
    (void)p;
    return sizeof(tables);
}

static void make_tables(tables *t, const uint16_t *codes, const uint8_t *lengths, uint32_t base, bool has_slots)
{
    t->has_slots = has_slots;
    for (uint32_t s = 0; s < base; s++) {
        for (uint32_t i = codes[s]; lengths[s] > 0 && i < SLOTS; i += 1u << lengths[s]) {
            t->singles[i] = (uint16_t)(s | (uint32_t)lengths[s] << SINGLE_BITS);
        }
    }
    for (uint32_t i = 0; has_slots && i < SLOTS; i++) {
        uint64_t slot = 0;
        uint32_t used = 0, n = 0;
        for (; n < SLOT_SYMBOLS; n++) {
            uint32_t single = t->singles[i >> used], bits = single >> SINGLE_BITS;
            if (used + bits > LONGEST) { /* not all of its bits are here */
                break;
            }
            slot |= (uint64_t)(single & (SLOTS - 1)) << 16 * n;
            used += bits;
        }
        t->slots[i] = slot | (uint64_t)n << SLOT_N | (uint64_t)used << SLOT_BITS;
    }
}

/* A stream while it is read. */
typedef struct stream {
    const uint8_t *at, *end;
    uint64_t held; /* bits that are next, from the lowest on; those from held_n on mean nothing */
    uint32_t held_n;
    uint16_t *out, *out_end;
} stream;

/* The symbols of a slot, and whatever behind them. */
static inline void put_symbols(uint16_t *out, uint64_t slot)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(out, &slot, sizeof slot);
#else
    for (uint32_t i = 0; i < SLOT_SYMBOLS; i++) {
        out[i] = (uint16_t)(slot >> 16 * i);
    }
#endif
}

/* What 56 bits surely hold, which takes eight bytes to read from and room for as many symbols and one more. */
static inline void read_turns(stream *s, const tables *t, bool has_slots)
{
    uint64_t held = s->held | tg_get64(s->at) << s->held_n;
    uint32_t held_n = s->held_n | 56;
    uint16_t *out = s->out;
    s->at += (63 - s->held_n) / 8;
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t bits = 0;
        if (has_slots) {
            uint64_t slot = t->slots[held & (SLOTS - 1)];
            put_symbols(out, slot);
            out += slot >> SLOT_N & 255;
            bits = (uint32_t)(slot >> SLOT_BITS);
        } else {
            uint32_t single = t->singles[held & (SLOTS - 1)];
            *out++ = (uint16_t)(single & (SLOTS - 1));
            bits = single >> SINGLE_BITS;
        }
        held >>= bits;
        held_n -= bits;
    }
    s->held = held;
    s->held_n = held_n;
    s->out = out;
}

static inline bool has_turns(const stream *s)
{
    return s->out_end - s->out >= TURNS * SLOT_SYMBOLS + 1 && s->end - s->at >= 8;
}

/* The rest of a stream, and whether it ends as it should. */
static bool finish(stream *s, const tables *t)
{
    while (has_turns(s)) {
        read_turns(s, t, t->has_slots);
    }
    s->held &= (UINT64_C(1) << s->held_n) - 1;
    for (; s->out < s->out_end; s->out++) {
        for (; s->held_n < LONGEST && s->at < s->end; s->held_n += 8) {
            s->held |= (uint64_t)*s->at++ << s->held_n;
        }
        uint32_t single = t->singles[s->held & (SLOTS - 1)], bits = single >> SINGLE_BITS;
        if (bits > s->held_n) {
            return false;
        }
        *s->out = (uint16_t)(single & (SLOTS - 1));
        s->held >>= bits;
        s->held_n -= bits;
    }
    return s->at == s->end && s->held_n < 8 && s->held == 0;
}

static bool read_one(uint16_t *symbols, const uint8_t *at, const uint8_t *end, size_t count, const tables *t)
{
    stream s = {.at = at, .end = end, .out = symbols, .out_end = symbols + count};
    return finish(&s, t);
}

static bool read_four(uint16_t *symbols, const uint8_t *at, const uint8_t *end, size_t count, const tables *t)
{
    stream s[STREAMS];
    const uint8_t *starts = at;
    if (count < FOUR_FROM || end - at < 4 * (STREAMS - 1)) {
        return false;
    }
    at += 4 * (STREAMS - 1);
    for (uint32_t i = 0; i < STREAMS; i++) {
        uint64_t len = i + 1 < STREAMS ? tg_get32(starts + 4 * i) : (uint64_t)(end - at);
        if (len > (uint64_t)(end - at)) {
            return false;
        }
        s[i] = (stream){.at = at, .end = at + len, .out = symbols, .out_end = symbols + stream_n(count, i)};
        at += len;
        symbols = s[i].out_end;
    }
    while (has_turns(&s[0]) && has_turns(&s[1]) && has_turns(&s[2]) && has_turns(&s[3])) {
        for (uint32_t i = 0; t->has_slots && i < STREAMS; i++) {
            read_turns(&s[i], t, true);
        }
        for (uint32_t i = 0; !t->has_slots && i < STREAMS; i++) {
            read_turns(&s[i], t, false);
        }
    }
    bool sound = true;
    for (uint32_t i = 0; i < STREAMS; i++) {
        sound = finish(&s[i], t) && sound;
    }
    return sound;
}

static bool decode(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_coding *c)
{
    uint8_t counted[TG_BASE_MAX];
    uint16_t codes[TG_BASE_MAX];
    const uint8_t *lengths = c->lengths;
    size_t head = 1;
    bool four = bytes[0] > FORM_FOUR;
    uint32_t form = bytes[0] - (four ? FORM_FOUR : 0u);
    if (form == FORM_COUNTS) {
        head += lengths_len(c->base);
        if (len < head) {
            return false;
        }
        for (uint32_t s = 0; s < c->base; s++) {
            counted[s] = bytes[1 + s / 2] >> 4 * (s % 2) & 15;
            if (counted[s] > LONGEST) {
                return false;
            }
        }
        if (c->base % 2 == 1 && bytes[head - 1] >> 4 != 0) {
            return false;
        }
        lengths = counted;
    } else if (form != FORM_MODEL || c->params[TABLE] != TABLE_MODEL || lengths == NULL) {
        return false;
    }
    if (!make_codes(codes, lengths, c->base)) {
        return false;
    }
    make_tables(c->room, codes, lengths, c->base, (len - head) * 8 < 6 * count);
    return (four ? read_four : read_one)(symbols, bytes + head, bytes + len, count, c->room);
}

const tg_symbol_part tg_symbol_huffman = {
    .part = {.name = "huffman",
             .summary = "symbols by a prefix code",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .codes_symbols = true,
    .room_len = room_len,
    .encode = encode,
    .decode = decode,
};
