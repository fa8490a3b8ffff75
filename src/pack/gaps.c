/* Sorted indices by the gaps between them, in the cheapest of four ways: a Rice code, which comes within 2% of the
 * bound H(p)/p on random sets; runs, for blocks; nothing at all when every element is there; a bitmap when none of
 * these is shorter, because it is the fastest to read. In recipes with `rans` there is a fifth, at the bound. Which way
 * was taken is the mode, in the chunk's header. */
#include "base/bits.h"
#include "base/bytes.h"
#include "kernels/kernels.h"
#include "kernels/rice.h"
#include "pack/geometric.h"

#include <string.h>

/* ---- what each way would cost ------------------------------------------------------------------------- */

typedef struct costs {
    uint64_t rice_bits; /* with the best parameter */
    unsigned rice;
    uint64_t runs_len;
} costs;

static unsigned number_len(uint64_t value)
{
    return 1 + (63u - (unsigned)__builtin_clzll(value | 1)) / 7;
}

/* The parameter that suits the mean gap, and its neighbours: one of them is the best or a hair from it. */
static unsigned first_parameter(size_t n, size_t count)
{
    unsigned k = 0;
    while (k < TG_MODE_RICE_MAX - 2 && (n / count) >> (k + 2) != 0) {
        k++;
    }
    return k;
}

/* What is marked, and the same as a list, or NULL. */
typedef struct marks {
    const uint64_t *mask;
    const uint32_t *list;
    size_t n, count;
} marks;

/* It is gone through piece by piece: elements of one, if they have to be listed. */
enum { PIECE = 4096 };

static size_t piece_of(const marks *m)
{
    return m->list != NULL ? m->n : PIECE;
}

/* Indices in the piece that begins at `at`, and how many; room is for PIECE + TG_LIST_MORE. */
static const uint32_t *list_piece(size_t *count, uint32_t *room, const marks *m, size_t at)
{
    *count = m->count;
    if (m->list != NULL) {
        return m->list;
    }
    *count = tg_kernels_best()->select.list_marks(room, m->mask + at / 64, m->n - at < PIECE ? m->n - at : PIECE);
    for (size_t i = 0; i < *count; i++) {
        room[i] += (uint32_t)at;
    }
    return room;
}

static uint64_t measure_runs(const marks *m)
{
    uint32_t room[PIECE + TG_LIST_MORE];
    uint64_t len = 0, next = 0, run_start = 0;
    for (size_t at = 0, count = 0; at < m->n; at += piece_of(m)) {
        const uint32_t *list = list_piece(&count, room, m, at);
        for (size_t i = 0; i < count; i++) {
            uint64_t gap = list[i] - next;
            if (gap > 0 || list[i] == 0) { /* a run begins */
                if (next > run_start) {
                    len += number_len(next - run_start - 1);
                }
                len += number_len(gap);
                run_start = list[i];
            }
            next = (uint64_t)list[i] + 1;
        }
    }
    return len + number_len(next - run_start - 1);
}

/* What the gaps between some indices add up to: sums of their quotients by three parameters from k on, which are less than a
 * chunk's length, and how many are none. */
typedef struct sums {
    uint32_t quotients[3], closed;
} sums;

static void add_gaps(sums *s, const uint32_t *list, size_t count, unsigned k)
{
    uint32_t first = 0, second = 0, third = 0, closed = 0; /* in registers */
    for (size_t i = 1; i < count; i++) {
        uint32_t gap = list[i] - list[i - 1] - 1;
        first += gap >> k;
        second += gap >> (k + 1);
        third += gap >> (k + 2);
        closed += gap == 0 ? 1 : 0;
    }
    s->quotients[0] += first;
    s->quotients[1] += second;
    s->quotients[2] += third;
    s->closed += closed;
}

static costs measure(const marks *m)
{
    uint32_t room[PIECE + TG_LIST_MORE], last = UINT32_MAX; /* before the first */
    unsigned k = first_parameter(m->n, m->count);
    sums s = {.closed = 0};
    for (size_t at = 0, piece_n = 0; at < m->n; at += piece_of(m)) {
        const uint32_t *list = list_piece(&piece_n, room, m, at);
        if (piece_n > 0) {
            const uint32_t ends[2] = {last, list[0]};
            add_gaps(&s, ends, 2, k);
            add_gaps(&s, list, piece_n, k);
            last = list[piece_n - 1];
        }
    }
    costs c = {.rice_bits = UINT64_MAX};
    for (unsigned i = 0; i < 3; i++) {
        uint64_t bits = s.quotients[i] + (uint64_t)m->count * (k + i + 1);
        if (bits < c.rice_bits) {
            c.rice_bits = bits;
            c.rice = k + i;
        }
    }
    /* A run takes two bytes or more, so that many are not worth a look. A first one at 0 is not counted, which does no harm. */
    c.runs_len = 2 * (uint64_t)(m->count - s.closed);
    if (c.runs_len < (c.rice_bits + 7) / 8 || c.runs_len < tg_bitmap_len(m->n)) {
        c.runs_len = measure_runs(m);
    }
    return c;
}

/* ---- Rice code --------------------------------------------------------------------------------------------- */

typedef struct bit_writer {
    uint8_t *out;
    uint64_t held; /* bits that do not fill a byte yet, lowest first */
    unsigned held_n;
} bit_writer;

static inline void put_bits(bit_writer *w, uint64_t bits, unsigned n) /* n <= 32 */
{
    w->held |= bits << w->held_n;
    w->held_n += n;
    if (w->held_n >= 32) {
        tg_put32(w->out, (uint32_t)w->held);
        w->out += 4;
        w->held >>= 32;
        w->held_n -= 32;
    }
}

static inline void put_gap(bit_writer *w, uint32_t gap, unsigned k)
{
    uint32_t quotient = gap >> k;
    uint64_t low = gap & ((1u << k) - 1);
    if (quotient + 1 + k <= 32) { /* nearly always */
        put_bits(w, ((UINT64_C(1) << quotient) - 1) | low << (quotient + 1), quotient + 1 + k);
        return;
    }
    for (; quotient >= 31; quotient -= 31) {
        put_bits(w, UINT32_MAX >> 1, 31);
    }
    put_bits(w, (UINT64_C(1) << quotient) - 1, quotient + 1);
    put_bits(w, low, k);
}

static size_t write_rice(uint8_t *out, const marks *m, unsigned k)
{
    bit_writer writer = {.out = out};
    uint32_t room[PIECE + TG_LIST_MORE], next = 0;
    for (size_t at = 0, count = 0; at < m->n; at += piece_of(m)) {
        const uint32_t *list = list_piece(&count, room, m, at);
        for (size_t i = 0; i < count; i++) {
            put_gap(&writer, list[i] - next, k);
            next = list[i] + 1;
        }
    }
    for (; writer.held_n > 0; writer.held_n -= writer.held_n < 8 ? writer.held_n : 8, writer.held >>= 8) {
        *writer.out++ = (uint8_t)writer.held;
    }
    return (size_t)(writer.out - out);
}

static bool get_bit(const uint8_t *bytes, uint64_t bit)
{
    return bytes[bit / 8] >> bit % 8 & 1;
}

/* Puts an index into the list; false if it is beyond n. */
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

/* One index, bit by bit. */
static bool read_one(tg_rice_reader *r, unsigned k, size_t n)
{
    uint64_t gap = 0;
    while (r->bit < r->bit_n && get_bit(r->bytes, r->bit)) {
        gap++;
        r->bit++;
    }
    if (r->bit_n - r->bit < 1 + (uint64_t)k) { /* the zero bit and the low bits */
        return false;
    }
    r->bit++;
    gap <<= k;
    for (unsigned b = 0; b < k; b++) {
        gap |= (uint64_t)get_bit(r->bytes, r->bit++) << b;
    }
    return take_gap(r, gap, n);
}

/* The next indices, at most `most`; false if they make no sense. */
static bool read_some(tg_rice_reader *r, uint32_t *indices, size_t most, unsigned k, size_t n)
{
    size_t later = r->left > most ? r->left - most : 0;
    r->list = indices;
    r->left -= later;
    while (r->left > 0) {
        if (!tg_kernels_best()->coders.rice_read(r, k, n) || (r->left > 0 && !read_one(r, k, n))) {
            return false;
        }
    }
    r->left = later;
    return true;
}

/* Nothing but zero bits to the end of the byte. */
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

static bool list(uint32_t *indices, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    tg_rice_reader r = {.bytes = bytes, .bit_n = (uint64_t)len * 8, .left = count};
    return mode <= TG_MODE_RICE_MAX && read_some(&r, indices, count, mode, n) && ends_well(&r);
}

static bool read_rice(uint64_t *mask, unsigned k, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    tg_rice_reader r = {.bytes = bytes, .bit_n = (uint64_t)len * 8, .left = count};
    while (r.left > 0) {
        uint32_t indices[PIECE];
        if (!read_some(&r, indices, PIECE, k, n)) {
            return false;
        }
        for (size_t i = 0; i < (size_t)(r.list - indices); i++) {
            mask[indices[i] / 64] |= UINT64_C(1) << indices[i] % 64;
        }
    }
    return ends_well(&r);
}

/* ---- runs ---------------------------------------------------------------------------------------------------- */

static uint8_t *put_number(uint8_t *out, uint64_t value)
{
    for (; value >= 128; value >>= 7) {
        *out++ = (uint8_t)(value | 128);
    }
    *out++ = (uint8_t)value;
    return out;
}

static size_t write_runs(uint8_t *out, const uint64_t *mask, size_t n)
{
    uint8_t *at = out;
    uint64_t run_start = 0, run_end = 0;
    for (size_t w = 0; w < tg_words(n); w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
            uint64_t index = w * 64 + tg_lowest(word);
            if (index > run_end || index == 0) {
                if (run_end > run_start) {
                    at = put_number(at, run_end - run_start - 1);
                }
                at = put_number(at, index - run_end);
                run_start = index;
            }
            run_end = index + 1;
        }
    }
    at = put_number(at, run_end - run_start - 1);
    return (size_t)(at - out);
}

/* A number of at most three bytes, which is more than a chunk's length needs. */
static bool get_number(uint64_t *value, const uint8_t **at, const uint8_t *end)
{
    *value = 0;
    for (unsigned shift = 0; shift < 21; shift += 7) {
        if (*at == end) {
            return false;
        }
        uint8_t byte = *(*at)++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            return byte != 0 || shift == 0; /* a last byte of 0 was not needed */
        }
    }
    return false;
}

static bool read_runs(uint64_t *mask, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    const uint8_t *at = bytes, *end = bytes + len;
    uint64_t position = 0, total = 0;
    for (bool first = true; at < end; first = false) {
        uint64_t gap = 0, run = 0;
        if (!get_number(&gap, &at, end) || !get_number(&run, &at, end)) {
            return false;
        }
        run++;
        if ((gap == 0 && !first) || gap > n - position || run > n - position - gap) {
            return false;
        }
        tg_mask_fill(mask, position + gap, position + gap + run);
        position += gap + run;
        total += run;
    }
    return total == count;
}

/* ---- the part ------------------------------------------------------------------------------------------------ */

/* A Rice code with the parameter k = floor(log2(mean gap)) takes at most k + 1 bits an index and two more for the
 * quotients, whose sum is at most n / 2^k; what is chosen is never worse. The bound is concave in count, so that it
 * holds for chunks together if it holds for each. */
static uint64_t limit(uint64_t n, uint64_t count)
{
    uint64_t bits = 4;
    for (uint64_t mean = n / count; mean > 1; mean /= 2) {
        bits++;
    }
    uint64_t bitmap = tg_index_bitmap.limit(n, count);
    return count > bitmap ? bitmap : (count * bits / 8 + 1 < bitmap ? count * bits / 8 + 1 : bitmap);
}

static size_t write(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint32_t *list, size_t n, size_t count)
{
    if (count == n) {
        *mode = TG_MODE_EVERY;
        return 0;
    }
    const marks m = {mask, list, n, count};
    costs c = measure(&m);
    uint64_t rice_len = (c.rice_bits + 7) / 8;
    if (rice_len >= tg_bitmap_len(n) && c.runs_len >= tg_bitmap_len(n)) {
        return tg_index_bitmap.write(out, mode, mask, list, n, count);
    }
    if (c.runs_len < rice_len) {
        *mode = TG_MODE_RUNS;
        return write_runs(out, mask, n);
    }
    *mode = (uint8_t)c.rice;
    return write_rice(out, &m, c.rice);
}

static bool read(uint64_t *mask, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    if (mode == TG_MODE_BITMAP) {
        return tg_index_bitmap.read(mask, mode, bytes, len, n, count);
    }
    memset(mask, 0, tg_words(n) * sizeof *mask);
    if (mode <= TG_MODE_RICE_MAX) {
        return read_rice(mask, mode, bytes, len, n, count);
    }
    if (mode == TG_MODE_RUNS) {
        return read_runs(mask, bytes, len, n, count);
    }
    tg_mask_fill(mask, 0, n);
    return mode == TG_MODE_EVERY && len == 0 && count == n;
}

/* What is already there, or fewer bytes. */
static size_t write_rans(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint32_t *list, size_t n,
                         size_t count)
{
    size_t len = write(out, mode, mask, list, n, count);
    uint8_t shorter[TG_BITMAP_LEN_MAX];
    size_t shorter_len = len == 0 ? 0 : tg_geometric_write(shorter, len - 1, mask, n, count);
    if (shorter_len > 0) {
        memcpy(out, shorter, shorter_len);
        *mode = TG_MODE_RANS;
        return shorter_len;
    }
    return len;
}

static bool read_rans(uint64_t *mask, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    if (mode != TG_MODE_RANS) {
        return read(mask, mode, bytes, len, n, count);
    }
    memset(mask, 0, tg_words(n) * sizeof *mask);
    return tg_geometric_read(mask, bytes, len, n, count);
}

const tg_index_part tg_index_gaps = {
    .part = {.name = "gaps", .summary = "gaps between sorted indices, near the bound and never more than a bitmap"},
    .limit = limit,
    .write = write,
    .read = read,
    .list = list,
    .write_rans = write_rans,
    .read_rans = read_rans,
};
