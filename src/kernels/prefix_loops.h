/* Prefix codes in plain C; see loops.h. Variable shifts dominate, which BMI2 makes faster. */
#ifndef TG_KERNELS_PREFIX_LOOPS_H
#define TG_KERNELS_PREFIX_LOOPS_H

#include "base/bytes.h"
#include "kernels/kernels.h"
#include "kernels/prefix.h"

#include <string.h>

#define TG_INLINED TG_TARGET static inline __attribute__((always_inline))

/* ---- writing --------------------------------------------------------------------------------------------------------- */

/* Bits not yet written; fewer than 8 between two calls. */
typedef struct bit_writer {
    uint8_t *at;
    uint64_t held;
    uint32_t held_n;
} bit_writer;

/* Codes in sequence. Only the lowest byte of `length` is valid. */
typedef struct bit_row {
    uint64_t bits, length;
} bit_row;

TG_INLINED bit_row row_of(uint64_t entry)
{
    return (bit_row){entry >> TG_PREFIX_CODE, entry};
}

TG_INLINED bit_row join(bit_row a, bit_row b)
{
    return (bit_row){a.bits | b.bits << (a.length & 63), a.length + b.length};
}

/* Writes at most 56 bits; stores eight bytes. */
TG_INLINED void put_row(bit_writer *w, bit_row row)
{
    w->held |= row.bits << w->held_n;
    w->held_n += (uint32_t)row.length & 63;
    tg_put64(w->at, w->held);
    w->at += w->held_n / 8;
    w->held >>= w->held_n & ~7u;
    w->held_n &= 7;
}

/* Four codes, at most six bytes. Symbols below 16 are looked up as two pairs, whose indices are in the lowest byte of each half. */
TG_INLINED bit_row four_codes(const uint16_t *symbols, const tg_prefix_codes *codes, bool has_pairs)
{
    if (has_pairs) {
        uint64_t four = tg_get64((const uint8_t *)symbols), two = four | four >> 12;
        return join(row_of(codes->pairs[two & 255]), row_of(codes->pairs[two >> 32 & 255]));
    }
    const uint64_t *e = codes->entries;
    return join(join(row_of(e[symbols[0]]), row_of(e[symbols[1]])), join(row_of(e[symbols[2]]), row_of(e[symbols[3]])));
}

/* Writes symbols four at a time while eight bytes can be stored; returns their number. */
TG_INLINED size_t write_fours(bit_writer *w, const uint8_t *end, const uint16_t *symbols, size_t count,
                              const tg_prefix_codes *codes, bool has_pairs)
{
    size_t i = 0, rounds = 1;
    while (rounds > 0) {
        size_t bytes = (size_t)(end - w->at), fours = (count - i) / 4;
        rounds = bytes < 8 ? 0 : (bytes - 8) / 7 + 1;
        rounds = rounds < fours ? rounds : fours;
        for (size_t left = rounds; left > 0; left--, i += 4) {
            put_row(w, four_codes(symbols + i, codes, has_pairs));
        }
    }
    return i;
}

TG_TARGET static uint8_t *prefix_write(uint8_t *out, const uint8_t *end, const uint16_t *symbols, size_t count,
                                       const tg_prefix_codes *codes)
{
    bit_writer w = {.at = out};
    size_t i = TG_IS_LITTLE_ENDIAN && codes->has_pairs ? write_fours(&w, end, symbols, count, codes, true)
                                                       : write_fours(&w, end, symbols, count, codes, false);
    for (; i < count; i++) {
        bit_row row = row_of(codes->entries[symbols[i]]);
        w.held |= row.bits << w.held_n;
        w.held_n += (uint32_t)row.length & 63;
        for (; w.held_n >= 8; w.held_n -= 8, w.held >>= 8) {
            *w.at++ = (uint8_t)w.held;
        }
    }
    if (w.held_n > 0) {
        *w.at++ = (uint8_t)w.held;
    }
    return w.at;
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

/* A stream in registers. A one bit follows the bits that are left, so the zeros above it tell how many bits of the eight bytes at
 * `at` were consumed: no other counter is kept. */
typedef struct bit_reader {
    const uint8_t *at;
    uint64_t held;
    uint16_t *out;
} bit_reader;

enum { PREFIX_TURNS = 56 / TG_PREFIX_LONGEST };

TG_INLINED uint64_t hold(const uint8_t *at, uint32_t skip)
{
    return (tg_get64(at) | UINT64_C(1) << 63) >> skip;
}

/* Stores the symbols of a slot, and garbage after them. */
TG_INLINED void put_symbols(uint16_t *out, uint64_t symbols)
{
#if TG_IS_LITTLE_ENDIAN
    memcpy(out, &symbols, sizeof symbols);
#else
    for (uint32_t i = 0; i < TG_PREFIX_SLOT_SYMBOLS; i++) {
        out[i] = (uint16_t)(symbols >> 16 * i);
    }
#endif
}

/* One look-up. */
TG_INLINED void read_turn(bit_reader *r, const tg_prefix_tables *t, bool has_slots)
{
    size_t low = r->held & (TG_PREFIX_SLOTS - 1);
    if (has_slots) {
        uint64_t slot = t->slots[low];
        put_symbols(r->out, slot >> TG_PREFIX_SLOT_SYMBOL);
        r->out += slot >> TG_PREFIX_SLOT_N & 255;
        r->held >>= slot & 63;
    } else {
        uint32_t single = t->singles[low];
        *r->out++ = (uint16_t)(single >> TG_PREFIX_SINGLE_SYMBOL);
        r->held >>= single & 63;
    }
}

TG_INLINED void refill(bit_reader *r)
{
    uint32_t used = (uint32_t)__builtin_clzll(r->held);
    r->at += used / 8;
    r->held = hold(r->at, used % 8);
}

/* How often a stream can be refilled and decoded without a check. A refill advances by the bits consumed: those of all turns, and
 * up to 7 that were skipped before. */
TG_INLINED size_t rounds_of(const bit_reader *r, const tg_prefix_stream *s, bool has_slots)
{
    if (s->end - r->at < 8) {
        return 0;
    }
    size_t bytes = (size_t)(s->end - r->at - 8) / ((7 + PREFIX_TURNS * TG_PREFIX_LONGEST) / 8);
    size_t space = (size_t)(s->out_end - r->out);
    if (has_slots) { /* up to three symbols a turn, and garbage after them */
        space = space < 1 ? 0 : (space - 1) / (PREFIX_TURNS * TG_PREFIX_SLOT_SYMBOLS);
    } else {
        space /= PREFIX_TURNS;
    }
    return bytes < space ? bytes : space;
}

TG_INLINED size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

TG_INLINED void end_reading(tg_prefix_stream *s, const bit_reader *r)
{
    uint32_t used = (uint32_t)__builtin_clzll(r->held);
    *s = (tg_prefix_stream){
        .at = r->at + used / 8, .end = s->end, .skip = used % 8, .out = r->out, .out_end = s->out_end};
}

TG_INLINED void read_one(tg_prefix_stream *s, const tg_prefix_tables *t, bool has_slots)
{
    if (s->end - s->at < 8) {
        return;
    }
    bit_reader a = {s->at, hold(s->at, s->skip), s->out};
    for (size_t rounds = rounds_of(&a, s, has_slots); rounds > 0; rounds = rounds_of(&a, s, has_slots)) {
        for (; rounds > 0; rounds--) {
            refill(&a);
            for (int turn = 0; turn < PREFIX_TURNS; turn++) {
                read_turn(&a, t, has_slots);
            }
        }
    }
    end_reading(s, &a);
}

/* Four streams are interleaved to hide the latency of the look-ups. */
TG_INLINED void read_four(tg_prefix_stream *s, const tg_prefix_tables *t, bool has_slots)
{
    for (int i = 0; i < 4; i++) {
        if (s[i].end - s[i].at < 8) {
            return;
        }
    }
    bit_reader a = {s[0].at, hold(s[0].at, s[0].skip), s[0].out}, b = {s[1].at, hold(s[1].at, s[1].skip), s[1].out};
    bit_reader c = {s[2].at, hold(s[2].at, s[2].skip), s[2].out}, d = {s[3].at, hold(s[3].at, s[3].skip), s[3].out};
    size_t rounds = 1;
    while (rounds > 0) {
        rounds = least(least(rounds_of(&a, &s[0], has_slots), rounds_of(&b, &s[1], has_slots)),
                       least(rounds_of(&c, &s[2], has_slots), rounds_of(&d, &s[3], has_slots)));
        for (size_t left = rounds; left > 0; left--) {
            refill(&a);
            refill(&b);
            refill(&c);
            refill(&d);
            for (int turn = 0; turn < PREFIX_TURNS; turn++) {
                read_turn(&a, t, has_slots);
                read_turn(&b, t, has_slots);
                read_turn(&c, t, has_slots);
                read_turn(&d, t, has_slots);
            }
        }
    }
    end_reading(&s[0], &a);
    end_reading(&s[1], &b);
    end_reading(&s[2], &c);
    end_reading(&s[3], &d);
}

TG_TARGET static void prefix_read(tg_prefix_stream *streams, size_t stream_n, const tg_prefix_tables *t)
{
    if (stream_n == 4) {
        t->has_slots ? read_four(streams, t, true) : read_four(streams, t, false);
    }
    for (size_t i = 0; i < stream_n; i++) {
        t->has_slots ? read_one(&streams[i], t, true) : read_one(&streams[i], t, false);
    }
}

#endif
