/* A Rice code for the gaps between sorted indices. With parameter k a gap is its quotient by 2^k in unary (ones, then a
 * zero), then its k low bits. On random sets this comes within 2% of the entropy bound H(p)/p. */
#include "kernels/rice.h"
#include "base/bytes.h"
#include "pack/index_codes.h"

/* ---- writing ---------------------------------------------------------------------------------------------------------- */

/* At most 56 bits. */
static void put_bits(tg_rice_writer *w, uint64_t bits, unsigned n)
{
    w->held |= bits << w->held_n;
    w->held_n += n;
    for (; w->held_n >= 8; w->held_n -= 8, w->held >>= 8) {
        *w->out++ = (uint8_t)w->held;
    }
}

/* One index, however long its code and however little space is left. */
static void put_index(tg_rice_writer *w, uint32_t index, unsigned k)
{
    uint32_t gap = index - w->next, quotient = gap >> k;
    for (; quotient >= 31; quotient -= 31) {
        put_bits(w, UINT32_MAX >> 1, 31);
    }
    put_bits(w, (UINT64_C(1) << quotient) - 1, quotient + 1);
    put_bits(w, gap & ((1u << k) - 1), k);
    w->next = index + 1;
}

size_t tg_rice_write(uint8_t *out, size_t len, const tg_marks *m, unsigned k)
{
    tg_rice_writer writer = {.out = out, .end = out + len};
    uint32_t piece[TG_MARKS_PIECE + TG_LIST_MORE];
    for (size_t at = 0, count = 0; at < m->n; at += tg_marks_piece_n(m)) {
        const uint32_t *list = tg_marks_piece(&count, piece, m, at);
        for (size_t i = 0; i < count; i++) {
            i += tg_kernels_best()->coders.rice_write(&writer, k, list + i, count - i);
            if (i < count) {
                put_index(&writer, list[i], k);
            }
        }
    }
    if (writer.held_n > 0) {
        *writer.out++ = (uint8_t)writer.held;
    }
    return (size_t)(writer.out - out);
}

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

static bool get_bit(const uint8_t *bytes, uint64_t bit)
{
    return bytes[bit / 8] >> bit % 8 & 1;
}

/* Appends the index after `gap` unselected elements to the list; false if it is not below n. */
static inline bool take_gap(tg_rice_reader *r, uint64_t gap, size_t n)
{
    if (gap >= n - r->next) {
        return false;
    }
    uint64_t index = r->next + gap;
    *r->list++ = (uint32_t)index;
    r->next = index + 1;
    r->left--;
    return true;
}

/* Up to 64 bits from bit r->bit on, at least 57 of them, with zeros after the last. */
static uint64_t bits_ahead(const tg_rice_reader *r)
{
    const uint8_t *from = r->bytes + r->bit / 8;
    size_t left = (size_t)(r->bit_n / 8 - r->bit / 8);
    uint64_t word = 0;
    if (left >= sizeof word) {
        word = tg_get64(from);
    } else {
        for (size_t i = 0; i < left; i++) {
            word |= (uint64_t)from[i] << 8 * i;
        }
    }
    return word >> r->bit % 8;
}

/* Reads one index, however near the end of the bytes and however long its code. */
static bool read_one(tg_rice_reader *r, unsigned k, size_t n)
{
    enum { AHEAD = 57 };
    uint64_t gap = 0, word = bits_ahead(r), ones = (uint64_t)__builtin_ctzll(~word | UINT64_C(1) << AHEAD);
    while (ones >= AHEAD) {
        gap += AHEAD;
        r->bit += AHEAD;
        word = bits_ahead(r);
        ones = (uint64_t)__builtin_ctzll(~word | UINT64_C(1) << AHEAD);
    }
    gap += ones;
    r->bit += ones;
    if (r->bit_n - r->bit < 1 + (uint64_t)k) { /* the zero bit and the low bits */
        return false;
    }
    r->bit++;
    gap = gap << k | (bits_ahead(r) & ((UINT64_C(1) << k) - 1));
    r->bit += k;
    return take_gap(r, gap, n);
}

/* Reads the next indices, at most `most`; false if they are not valid. */
static bool read_some(tg_rice_reader *r, uint32_t *indices, size_t most, unsigned k, size_t n)
{
    size_t later = r->left > most ? r->left - most : 0;
    r->list = indices;
    r->left -= later;
    while (r->left > 0) {
        bool is_near_end = r->bit_n / 8 - r->bit / 8 < 8; /* the kernel reads eight bytes at a time */
        if (!is_near_end && !tg_kernels_best()->coders.rice_read(r, k, n)) {
            return false;
        }
        if (r->left > 0 && !read_one(r, k, n)) {
            return false;
        }
    }
    r->left = later;
    return true;
}

/* Whether only the zero bits that fill the last byte are left. */
static bool ends_well(tg_rice_reader *r)
{
    if (r->bit_n - r->bit >= 8) {
        return false;
    }
    for (; r->bit < r->bit_n; r->bit++) {
        if (get_bit(r->bytes, r->bit)) {
            return false;
        }
    }
    return true;
}

bool tg_rice_list(uint32_t *indices, unsigned k, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    tg_rice_reader r = {.bytes = bytes, .bit_n = (uint64_t)len * 8, .left = count};
    return read_some(&r, indices, count, k, n) && ends_well(&r);
}

bool tg_rice_read(uint64_t *mask, unsigned k, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    tg_rice_reader r = {.bytes = bytes, .bit_n = (uint64_t)len * 8, .left = count};
    while (r.left > 0) {
        uint32_t indices[TG_MARKS_PIECE];
        if (!read_some(&r, indices, TG_MARKS_PIECE, k, n)) {
            return false;
        }
        for (size_t i = 0; i < (size_t)(r.list - indices); i++) {
            mask[indices[i] / 64] |= UINT64_C(1) << indices[i] % 64;
        }
    }
    return ends_well(&r);
}
