/* A canonical prefix code for symbols, at most 12 bits a symbol. Either the optimal code for the chunk's counts, whose code
 * lengths precede the symbols; or the code that the quantizer proposes from its fitted distribution, which needs no extra
 * bytes. The codes are in streams of 1,024 symbols, whose lengths stand before them, so that many are decoded at once. */
#include "base/bytes.h"
#include "base/sort.h"
#include "kernels/kernels.h"
#include "kernels/prefix.h"
#include "pack/pack.h"

#include <string.h>

enum { LONGEST = TG_PREFIX_LONGEST, TABLE = 0, TABLE_MODEL = 1, SLOTS = TG_PREFIX_SLOTS };

/* The first byte: where the code lengths come from. */
enum { FORM_COUNTS = 1, FORM_MODEL = 2 };

/* Symbols of a stream, and streams that are decoded at a time. */
enum { STREAM_N = 1024, STREAMS = 4 };

static const char *const table_choices[] = {"counts", "model", NULL};

static const tg_param params[] = {
    {.name = "table",
     .summary = "code lengths from the counts, or from the distribution that the quantizer fits",
     .choices = table_choices,
     .is_main = true},
};

/* ---- optimal code lengths ------------------------------------------------------------------------------------------------ */

/* Package-merge (Larmore and Hirschberg, 1990). Each row merges the leaves and the pairs of the previous row by weight. Only
 * which items are leaves is stored of a row. Then the first 2n - 2 items of the last row are taken: each leaf among them adds
 * one bit to its symbol, and each pair takes two items of the previous row, and so on. */
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
    if (n == 1) { /* a single symbol: a second, unused one makes the code complete */
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

/* Assigns canonical codes by length, then by symbol; the first bit is the lowest. False if the lengths are not those of a
 * complete prefix code. */
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
    return next == 2 * SLOTS; /* it was doubled after the last length */
}

static size_t lengths_len(uint32_t base)
{
    return (base + 1) / 2;
}

static size_t stream_n_of(size_t count)
{
    return (count + STREAM_N - 1) / STREAM_N;
}

/* The codes in the form that the kernel takes. */
static void make_entries(tg_prefix_codes *all, const uint16_t *codes, const uint8_t *lengths, uint32_t base)
{
    for (uint32_t s = 0; s < base; s++) {
        all->entries[s] = lengths[s] | (uint64_t)codes[s] << TG_PREFIX_CODE;
    }
    all->has_pairs = base <= TG_PREFIX_PAIR_BASE;
    for (uint32_t i = 0; all->has_pairs && i < base * base; i++) {
        uint32_t a = i % base, b = i / base;
        uint64_t bits = codes[a] | (uint64_t)codes[b] << lengths[a];
        all->pairs[a + TG_PREFIX_PAIR_BASE * b] = (uint32_t)(lengths[a] + lengths[b]) | bits << TG_PREFIX_CODE;
    }
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
    size_t stream_n = stream_n_of(count), lens_len = 2 * (stream_n - 1);
    /* Each stream is rounded up to whole bytes. */
    if (head + lens_len + (bits + 7) / 8 + (stream_n - 1) > cap || !make_codes(codes, lengths, c->base)) {
        return 0;
    }
    out[0] = by_model ? FORM_MODEL : FORM_COUNTS;
    for (uint32_t s = 0; !by_model && s < c->base; s += 2) {
        out[1 + s / 2] = (uint8_t)(lengths[s] | (s + 1 < c->base ? lengths[s + 1] << 4 : 0));
    }
    tg_prefix_codes entries;
    make_entries(&entries, codes, lengths, c->base);
    uint8_t *at = out + head + lens_len;
    for (size_t i = 0; i < stream_n; i++) {
        size_t n = i + 1 < stream_n ? STREAM_N : count - i * STREAM_N;
        uint8_t *end = tg_kernels_best()->coders.prefix_write(at, out + cap, symbols + i * STREAM_N, n, &entries);
        if (i + 1 < stream_n) {
            tg_put16(out + head + 2 * i, (uint16_t)(end - at));
        }
        at = end;
    }
    return (size_t)(at - out);
}

/* ---- decoding -------------------------------------------------------------------------------------------------------- */

static uint64_t scratch_len(const double *p)
{
    (void)p;
    return sizeof(tg_prefix_tables);
}

static void make_tables(tg_prefix_tables *t, const uint16_t *codes, const uint8_t *lengths, uint32_t base,
                        bool has_slots)
{
    t->has_slots = has_slots;
    for (uint32_t s = 0; s < base; s++) {
        for (uint32_t i = codes[s]; lengths[s] > 0 && i < SLOTS; i += 1u << lengths[s]) {
            t->singles[i] = (uint16_t)(lengths[s] | s << TG_PREFIX_SINGLE_SYMBOL);
        }
    }
    for (uint32_t i = 0; has_slots && i < SLOTS; i++) {
        uint64_t slot = 0;
        uint32_t used = 0, n = 0;
        for (; n < TG_PREFIX_SLOT_SYMBOLS; n++) {
            uint32_t single = t->singles[i >> used], bits = single & 63;
            if (used + bits > LONGEST) { /* the code continues after these bits */
                break;
            }
            slot |= (uint64_t)(single >> TG_PREFIX_SINGLE_SYMBOL) << (TG_PREFIX_SLOT_SYMBOL + 16 * n);
            used += bits;
        }
        t->slots[i] = slot | (uint64_t)n << TG_PREFIX_SLOT_N | used;
    }
}

/* Decodes the rest of a stream that ends at `end`. False if codes end late, or if anything but zero bits is left. */
static bool finish(tg_prefix_stream *s, const uint8_t *end, const tg_prefix_tables *t)
{
    uint64_t held = 0;
    uint32_t held_n = 0;
    if (s->at > end || (s->at == end && s->skip > 0)) { /* the kernel has read codes of the streams after it */
        return false;
    }
    if (s->skip > 0) { /* it stopped inside a byte */
        held = (uint64_t)*s->at++ >> s->skip;
        held_n = 8 - s->skip;
    }
    for (; s->out < s->out_end; s->out++) {
        if (held_n < LONGEST && end - s->at >= 8) {
            held |= (tg_get64(s->at) & UINT32_MAX) << held_n;
            held_n += 32;
            s->at += 4;
        }
        for (; held_n < LONGEST && s->at < end; held_n += 8) {
            held |= (uint64_t)*s->at++ << held_n;
        }
        uint32_t single = t->singles[held & (SLOTS - 1)], bits = single & 63;
        if (bits > held_n) {
            return false;
        }
        *s->out = (uint16_t)(single >> TG_PREFIX_SINGLE_SYMBOL);
        held >>= bits;
        held_n -= bits;
    }
    return (size_t)(end - s->at) * 8 + held_n < 8 && held == 0;
}

/* Decodes all streams, several at a time. */
static bool read_streams(uint16_t *symbols, const uint8_t *at, const uint8_t *end, size_t count,
                         const tg_prefix_tables *t)
{
    size_t stream_n = stream_n_of(count), lens_len = 2 * (stream_n - 1);
    const uint8_t *lens = at;
    if ((size_t)(end - at) < lens_len) {
        return false;
    }
    at += lens_len;
    for (size_t first = 0; first < stream_n; first += STREAMS) {
        tg_prefix_stream s[STREAMS];
        const uint8_t *ends[STREAMS];
        size_t n = stream_n - first < STREAMS ? stream_n - first : STREAMS;
        for (size_t i = 0; i < n; i++) {
            size_t number = first + i, left = (size_t)(end - at);
            size_t len = number + 1 < stream_n ? tg_get16(lens + 2 * number) : left;
            if (len > left) {
                return false;
            }
            size_t from = number * STREAM_N, to = number + 1 < stream_n ? from + STREAM_N : count;
            s[i] = (tg_prefix_stream){.at = at, .end = end, .out = symbols + from, .out_end = symbols + to};
            at += len;
            ends[i] = at;
        }
        for (size_t i = 0; n < STREAMS && i < n; i++) {
            tg_kernels_best()->coders.prefix_read(&s[i], 1, t);
        }
        if (n == STREAMS) {
            tg_kernels_best()->coders.prefix_read(s, STREAMS, t);
        }
        for (size_t i = 0; i < n; i++) {
            if (!finish(&s[i], ends[i], t)) {
                return false;
            }
        }
    }
    return true;
}

static bool decode(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_coding *c)
{
    uint8_t counted[TG_BASE_MAX];
    uint16_t codes[TG_BASE_MAX];
    const uint8_t *lengths = c->lengths;
    size_t head = 1;
    if (bytes[0] == FORM_COUNTS) {
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
    } else if (bytes[0] != FORM_MODEL || c->params[TABLE] != TABLE_MODEL || lengths == NULL) {
        return false;
    }
    if (!make_codes(codes, lengths, c->base)) {
        return false;
    }
    bool are_short = (len - head) * 20 < 17 * count; /* below 6.8 bits a symbol: two symbols often fit into a slot */
    make_tables(c->scratch, codes, lengths, c->base, are_short);
    return read_streams(symbols, bytes + head, bytes + len, count, c->scratch);
}

const tg_symbol_part tg_symbol_huffman = {
    .part = {.name = "huffman",
             .summary = "Huffman: symbols in an optimal prefix code",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .codes_symbols = true,
    .scratch_len = scratch_len,
    .encode = encode,
    .decode = decode,
};
