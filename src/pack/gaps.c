/* Sorted indices as the gaps between them, in the shortest of four codes:
 *
 *     Rice code   within 2% of the entropy bound on random sets
 *     runs        for blocks of consecutive indices
 *     every       nothing at all, when every element is selected
 *     bitmap      when no other is shorter, because it is the fastest to read
 *
 * In recipes with `rans` there is a fifth, at the bound (geometric.h). The mode in the chunk's header says which it is. */
#include "base/bits.h"
#include "pack/geometric.h"
#include "pack/index_codes.h"

#include <string.h>

/* ---- pieces of a chunk --------------------------------------------------------------------------------------------------- */

size_t tg_marks_piece_n(const tg_marks *m)
{
    return m->list != NULL ? m->n : TG_MARKS_PIECE;
}

const uint32_t *tg_marks_piece(size_t *count, uint32_t *scratch, const tg_marks *m, size_t at)
{
    *count = m->count;
    if (m->list != NULL) {
        return m->list;
    }
    size_t n = m->n - at < TG_MARKS_PIECE ? m->n - at : TG_MARKS_PIECE;
    *count = tg_kernels_best()->select.list_marks(scratch, m->mask + at / 64, (uint32_t)at, n);
    return scratch;
}

/* ---- the cost of each code ---------------------------------------------------------------------------------------------- */

typedef struct costs {
    uint64_t rice_bits; /* with the best parameter */
    unsigned rice;
    uint64_t runs_len;
} costs;

/* The first of three neighbouring Rice parameters to try. The middle one suits the mean gap; one of the three is the best
 * or nearly so. */
static unsigned first_parameter(size_t n, size_t count)
{
    unsigned k = 0;
    while (k < TG_MODE_RICE_MAX - 2 && (n / count) >> (k + 2) != 0) {
        k++;
    }
    return k;
}

/* Sums over gaps: of their quotients by 2^k, 2^(k+1) and 2^(k+2), each less than a chunk's length; and how many gaps
 * are 0. */
typedef struct sums {
    uint32_t quotients[3], closed;
} sums;

static void add_gaps(sums *s, const uint32_t *list, size_t count, unsigned k)
{
    uint32_t first = 0, second = 0, third = 0, closed = 0; /* local, so that they stay in registers */
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

static costs measure(const tg_marks *m)
{
    uint32_t piece[TG_MARKS_PIECE + TG_LIST_MORE], last = UINT32_MAX; /* so that the first gap counts from 0 */
    unsigned k = first_parameter(m->n, m->count);
    sums s = {.closed = 0};
    for (size_t at = 0, piece_n = 0; at < m->n; at += tg_marks_piece_n(m)) {
        const uint32_t *list = tg_marks_piece(&piece_n, piece, m, at);
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
    /* A run takes at least two bytes. Only if that lower bound is short enough are runs measured exactly. A run that starts
     * at element 0 is missing from the bound, which only makes it lower. */
    c.runs_len = 2 * (uint64_t)(m->count - s.closed);
    if (c.runs_len < (c.rice_bits + 7) / 8 || c.runs_len < (m->n + 7) / 8) {
        c.runs_len = tg_runs_len(m);
    }
    return c;
}

/* ---- the part ----------------------------------------------------------------------------------------------------------- */

/* A Rice code with k = floor(log2(mean gap)) takes at most k + 3 bits an index: a zero bit, k low bits, and at most two
 * ones on average, because the quotients sum to at most n / 2^k. The code that is chosen is never longer. The limit is
 * concave in count, so if it holds for each chunk it also holds for their sum. */
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
    const tg_marks m = {mask, list, n, count};
    costs c = measure(&m);
    uint64_t rice_len = (c.rice_bits + 7) / 8;
    if (rice_len >= (n + 7) / 8 && c.runs_len >= (n + 7) / 8) {
        return tg_index_bitmap.write(out, mode, mask, list, n, count);
    }
    if (c.runs_len < rice_len) {
        *mode = TG_MODE_RUNS;
        return tg_runs_write(out, mask, n);
    }
    *mode = (uint8_t)c.rice;
    return tg_rice_write(out, (size_t)rice_len, &m, c.rice);
}

static bool read(uint64_t *mask, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    if (mode == TG_MODE_BITMAP) {
        return tg_index_bitmap.read(mask, mode, bytes, len, n, count);
    }
    memset(mask, 0, tg_words(n) * sizeof *mask);
    if (mode <= TG_MODE_RICE_MAX) {
        return tg_rice_read(mask, mode, bytes, len, n, count);
    }
    if (mode == TG_MODE_RUNS) {
        return tg_runs_read(mask, bytes, len, n, count);
    }
    tg_mask_fill(mask, 0, n);
    return mode == TG_MODE_EVERY && len == 0 && count == n;
}

static bool list(uint32_t *indices, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    return mode <= TG_MODE_RICE_MAX && tg_rice_list(indices, mode, bytes, len, n, count);
}

/* The same, or the rANS mode where that takes fewer bytes. */
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
