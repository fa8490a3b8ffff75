/* Writes the coordinates of a sparse chunk, by a block: gaps in the shortest code, by the rule of pack/gaps.c, a bitmap, or places
 * together with signs. No code is longer than a bitmap, so bytes are put together in shared memory and then stored. */
#ifndef TG_EXEC_CUDA_INDEX_WRITE_H
#define TG_EXEC_CUDA_INDEX_WRITE_H

#include "exec/cuda/index.h"
#include "exec/cuda/layout.h"
#include "exec/cuda/scan.h"

enum { TG_INDEX_WRITERS = 1024, TG_INDEX_WORDS = TG_GPU_BITMAP_MAX / 4 + 2 };

/* The selected elements of a chunk. */
typedef struct tg_marks {
    const uint32_t *at; /* ascending */
    uint32_t count, n;
} tg_marks;

TG_DEVICE uint32_t tg_gap_before(const tg_marks &m, uint32_t i)
{
    return i == 0 ? m.at[0] : m.at[i] - m.at[i - 1] - 1;
}

/* ---- bytes in shared memory ------------------------------------------------------------------------------------------------- */

TG_DEVICE void tg_clear_words(uint32_t *words, uint32_t len)
{
    for (uint32_t i = threadIdx.x; i < (len + 3) / 4; i += TG_INDEX_WRITERS) {
        words[i] = 0;
    }
    __syncthreads();
}

/* Up to 32 bits from bit `at` on. */
TG_DEVICE void tg_put_bits(uint32_t *words, uint32_t at, uint32_t bits)
{
    unsigned shift = at % 32;
    atomicOr(&words[at / 32], bits << shift);
    if (shift > 0 && bits >> (32 - shift) != 0) {
        atomicOr(&words[at / 32 + 1], bits >> (32 - shift));
    }
}

TG_DEVICE void tg_put_ones(uint32_t *words, uint32_t at, uint32_t n)
{
    for (; n >= 32; n -= 32, at += 32) {
        tg_put_bits(words, at, 0xffffffffu);
    }
    tg_put_bits(words, at, (1u << n) - 1);
}

TG_DEVICE void tg_put_byte(uint32_t *words, uint32_t at, uint32_t byte)
{
    atomicOr(&words[at / 4], byte << at % 4 * 8);
}

TG_DEVICE void tg_store_words(uint8_t *out, const uint32_t *words, uint32_t len)
{
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < len; i += TG_INDEX_WRITERS) {
        out[i] = (uint8_t)(words[i / 4] >> i % 4 * 8);
    }
}

/* ---- the cost of each code -------------------------------------------------------------------------------------------------- */

typedef struct tg_gap_costs {
    uint64_t rice_bits;
    uint32_t rice;
    uint32_t closed; /* gaps of 0 */
} tg_gap_costs;

/* The best of three neighbouring parameters, as in pack/gaps.c. */
TG_DEVICE tg_gap_costs tg_measure_gaps(const tg_marks &m)
{
    uint32_t k = 0, quotients[3] = {0, 0, 0}, closed = 0;
    while (k < TG_GPU_RICE_MAX - 2 && (m.n / m.count) >> (k + 2) != 0) {
        k++;
    }
    for (uint32_t i = threadIdx.x; i < m.count; i += TG_INDEX_WRITERS) {
        uint32_t gap = tg_gap_before(m, i);
        quotients[0] += gap >> k;
        quotients[1] += gap >> (k + 1);
        quotients[2] += gap >> (k + 2);
        closed += gap == 0 ? 1 : 0;
    }
    /* None of the sums exceeds 2^18, the elements of a chunk: three fit in a word. */
    uint64_t sums = tg_block_sum(quotients[0] | (uint64_t)quotients[1] << 20 | (uint64_t)quotients[2] << 40);
    tg_gap_costs c = {~0ull, 0, tg_block_sum(closed)};
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t bits = (sums >> 20 * i & 0xfffff) + (uint64_t)m.count * (k + i + 1);
        if (bits < c.rice_bits) {
            c.rice_bits = bits;
            c.rice = k + i;
        }
    }
    return c;
}

/* ---- Rice codes ------------------------------------------------------------------------------------------------------------- */

/* A thread has some consecutive codes. */
TG_DEVICE void tg_put_rice(uint32_t *words, const tg_marks &m, uint32_t k)
{
    enum { EACH = 4 };
    uint32_t done = 0;
    for (uint32_t first = 0; first < m.count; first += TG_INDEX_WRITERS * EACH) {
        uint32_t i = first + threadIdx.x * EACH, total, len = 0, gaps[EACH];
        for (uint32_t j = 0; j < EACH; j++) {
            gaps[j] = i + j < m.count ? tg_gap_before(m, i + j) : 0;
            len += i + j < m.count ? (gaps[j] >> k) + 1 + k : 0;
        }
        uint32_t at = done + tg_block_scan(len, &total);
        for (uint32_t j = 0; j < EACH && i + j < m.count; j++) {
            uint32_t quotient = gaps[j] >> k;
            tg_put_ones(words, at, quotient);
            tg_put_bits(words, at + quotient + 1, gaps[j] & ((1u << k) - 1));
            at += quotient + 1 + k;
        }
        done += total;
    }
}

/* ---- runs ------------------------------------------------------------------------------------------------------------------- */

TG_DEVICE uint32_t tg_number_len(uint32_t value)
{
    return value < 128 ? 1 : value < 16384 ? 2 : 3;
}

TG_DEVICE uint32_t tg_put_number(uint32_t *words, uint32_t at, uint32_t value)
{
    for (; value >= 128; value >>= 7) {
        tg_put_byte(words, at++, (value & 127) | 128);
    }
    tg_put_byte(words, at++, value);
    return at;
}

/* Writes all runs and returns their length; only counts if words is NULL. The first element of a run writes the gap, the last one
 * the length. */
TG_DEVICE uint32_t tg_put_runs(uint32_t *words, const tg_marks &m)
{
    uint32_t done = 0, open = 0; /* where the run begins that goes on */
    __shared__ uint32_t last_start;
    for (uint32_t first = 0; first < m.count; first += TG_INDEX_WRITERS) {
        uint32_t i = first + threadIdx.x, total;
        bool is_in = i < m.count, starts = is_in && (i == 0 || tg_gap_before(m, i) > 0);
        bool ends = is_in && (i + 1 == m.count || tg_gap_before(m, i + 1) > 0);
        uint32_t start = tg_block_max_scan(starts ? i : open);
        uint32_t gap = is_in ? tg_gap_before(m, i) : 0, more = i - start;
        uint32_t len = (starts ? tg_number_len(gap) : 0) + (ends ? tg_number_len(more) : 0);
        uint32_t at = done + tg_block_scan(len, &total);
        if (words != nullptr && starts) {
            at = tg_put_number(words, at, gap);
        }
        if (words != nullptr && ends) {
            (void)tg_put_number(words, at, more);
        }
        if (threadIdx.x == TG_INDEX_WRITERS - 1) {
            last_start = start;
        }
        __syncthreads();
        open = last_start;
        done += total;
    }
    return done;
}

/* ---- bitmap ----------------------------------------------------------------------------------------------------------------- */

TG_DEVICE void tg_put_bitmap(uint32_t *words, const tg_marks &m)
{
    for (uint32_t i = threadIdx.x; i < m.count; i += TG_INDEX_WRITERS) {
        atomicOr(&words[m.at[i] / 32], 1u << m.at[i] % 32);
    }
}

/* ---- geometric: one thread -------------------------------------------------------------------------------------------------- */

/* A stream that is written backwards, from the end of a buffer. */
typedef struct tg_backward {
    uint32_t x;
    uint8_t *at;
    const uint8_t *floor;
    bool full;
} tg_backward;

TG_DEVICE void tg_push(tg_backward *s, uint32_t start, uint32_t frequency, uint32_t bits)
{
    if (s->x >= (uint64_t)frequency << (31 - bits)) {
        if (s->at - s->floor < 2) {
            s->full = true;
            return;
        }
        s->at -= 2;
        tg_store_bytes(s->at, s->x & 0xffffu, 2);
        s->x >>= 16;
    }
    s->x = ((s->x / frequency) << bits) + s->x % frequency + start;
}

TG_DEVICE void tg_push_letter(tg_backward *s, const uint32_t *start, uint32_t letter)
{
    tg_push(s, start[letter], start[letter + 1] - start[letter], TG_GPU_LETTER_BITS);
}

TG_DEVICE void tg_push_gap(tg_backward *s, const uint32_t *start, uint32_t k, uint32_t gap)
{
    uint32_t number = gap >> k;
    tg_push(s, gap & ((1u << k) - 1), 1, k);
    tg_push_letter(s, start, number % (TG_GPU_LETTERS - 1));
    for (number /= TG_GPU_LETTERS - 1; number > 0 && !s->full; number--) {
        tg_push_letter(s, start, TG_GPU_LETTERS - 1);
    }
}

/* Writes to the end of `bytes`, of which it may use `cap`; returns the length, 0 if that is not enough. */
TG_DEVICE uint32_t tg_put_geometric(uint8_t *bytes, uint32_t *start, uint32_t cap, const tg_marks &m)
{
    if (cap < 4) {
        return 0;
    }
    uint32_t k = tg_geometric_model(start, m.n, m.count);
    tg_backward s = {TG_GPU_RANS_START, bytes + cap, bytes + 4, false};
    for (uint32_t i = m.count; i-- > 0 && !s.full;) {
        tg_push_gap(&s, start, k, tg_gap_before(m, i));
    }
    if (s.full) {
        return 0;
    }
    s.at -= 4;
    tg_store_bytes(s.at, s.x, 4);
    return (uint32_t)(bytes + cap - s.at);
}

/* The geometric code in place of one of `len` bytes, if it is shorter. `words` is space for it. */
TG_DEVICE void tg_try_geometric(tg_view *v, uint8_t *out, uint32_t *words, const tg_marks &m, uint32_t *len, uint8_t *mode)
{
    __shared__ uint32_t start[TG_GPU_LETTERS + 1], shorter;
    uint32_t cap = *len - 1;
    uint8_t *bytes = (uint8_t *)words;
    __syncthreads();
    if (threadIdx.x == 0) {
        shorter = *len == 0 ? 0 : tg_put_geometric(bytes, start, cap, m);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < shorter; i += TG_INDEX_WRITERS) {
        out[v->indices + i] = bytes[cap - shorter + i];
    }
    *mode = shorter > 0 ? (uint8_t)TG_GPU_MODE_RANS : *mode;
    *len = shorter > 0 ? shorter : *len;
}

/* ---- the choice ------------------------------------------------------------------------------------------------------------- */

TG_DEVICE uint32_t tg_put_gaps(uint8_t *out, uint32_t *words, uint8_t *mode, const tg_marks &m)
{
    uint32_t bitmap_len = tg_bitmap_bytes(m.n);
    if (m.count == m.n) {
        *mode = TG_GPU_MODE_EVERY;
        return 0;
    }
    tg_gap_costs c = tg_measure_gaps(m);
    uint64_t rice_len = (c.rice_bits + 7) / 8, runs_len = 2 * (uint64_t)(m.count - c.closed);
    if (runs_len < rice_len || runs_len < bitmap_len) { /* the lower bound does not rule them out */
        runs_len = tg_put_runs(nullptr, m);
    }
    uint32_t len = bitmap_len;
    *mode = TG_GPU_MODE_BITMAP;
    if (rice_len < bitmap_len || runs_len < bitmap_len) {
        *mode = (uint8_t)(runs_len < rice_len ? (uint32_t)TG_GPU_MODE_RUNS : c.rice);
        len = (uint32_t)(runs_len < rice_len ? runs_len : rice_len);
    }
    tg_clear_words(words, len);
    if (*mode == TG_GPU_MODE_BITMAP) {
        tg_put_bitmap(words, m);
    } else if (*mode == TG_GPU_MODE_RUNS) {
        (void)tg_put_runs(words, m);
    } else {
        tg_put_rice(words, m, *mode);
    }
    tg_store_words(out, words, len);
    return len;
}

TG_DEVICE uint32_t tg_put_plain_bitmap(uint8_t *out, uint32_t *words, uint8_t *mode, const tg_marks &m)
{
    *mode = TG_GPU_MODE_BITMAP;
    tg_clear_words(words, tg_bitmap_bytes(m.n));
    tg_put_bitmap(words, m);
    tg_store_words(out, words, tg_bitmap_bytes(m.n));
    return tg_bitmap_bytes(m.n);
}

/* ---- places and signs: pack/adacomp.c ------------------------------------------------------------------------------------------ */

/* The cells to skip before an entry, 0 if no skip is needed: it depends on the entry before it alone. */
TG_DEVICE uint32_t tg_skip_before(const tg_marks &m, uint32_t i, uint32_t cell)
{
    uint32_t now = m.at[i] / cell, place = m.at[i] % cell;
    if (i == 0) {
        return now;
    }
    uint32_t then = m.at[i - 1] / cell, last = m.at[i - 1] % cell;
    bool follows = now == then || (now == then + 1 && place <= last);
    return follows ? 0 : now - then;
}

/* Entries before and with element i. */
TG_DEVICE uint32_t tg_joint_entries(const tg_marks &m, uint32_t i, uint32_t cell, uint32_t place_bits)
{
    return 1 + (tg_skip_before(m, i, cell) + (1u << place_bits) - 1) / (1u << place_bits);
}

TG_DEVICE void tg_put_entry(uint8_t *out, uint32_t number, uint32_t place_bits, uint32_t code, uint32_t place)
{
    uint32_t len = (place_bits + 2) / 8;
    tg_store_bytes(out + (uint64_t)number * len, place | code << place_bits, len);
}

/* Writes entries with their symbols; returns their length, or 0 if a bitmap and the symbols would be at most as long. */
TG_DEVICE uint32_t tg_put_joint(uint8_t *out, const uint8_t *symbols, const tg_marks &m, uint32_t cell, uint32_t place_bits)
{
    uint32_t n = 0, done = 0, entry_len = (place_bits + 2) / 8;
    for (uint32_t i = threadIdx.x; i < m.count; i += TG_INDEX_WRITERS) {
        n += tg_joint_entries(m, i, cell, place_bits);
    }
    n = tg_block_sum(n);
    if ((uint64_t)n * entry_len >= tg_bitmap_bytes(m.n) + (m.count + 7) / 8) {
        return 0;
    }
    for (uint32_t first = 0; first < m.count; first += TG_INDEX_WRITERS) {
        uint32_t i = first + threadIdx.x, total;
        uint32_t at = done + tg_block_scan(i < m.count ? tg_joint_entries(m, i, cell, place_bits) : 0, &total);
        for (uint32_t skip = i < m.count ? tg_skip_before(m, i, cell) : 0; skip > 0;) {
            uint32_t now = skip < 1u << place_bits ? skip : 1u << place_bits;
            tg_put_entry(out, at++, place_bits, 0, now - 1);
            skip -= now;
        }
        if (i < m.count) {
            tg_put_entry(out, at, place_bits, symbols[i] != 0 ? 2 : 1, m.at[i] % cell);
        }
        done += total;
    }
    return n * entry_len;
}

/* ---- chunks ----------------------------------------------------------------------------------------------------------------- */

/* Symbols of signs as bits, where they are not joined with places. */
TG_DEVICE void tg_put_signs(uint8_t *out, const uint8_t *symbols, uint32_t count)
{
    for (uint32_t b = threadIdx.x; b < (count + 7) / 8; b += TG_INDEX_WRITERS) {
        uint32_t byte = 0;
        for (uint32_t i = 8 * b; i < min(8 * b + 8, count); i++) {
            byte |= (uint32_t)symbols[i] << i % 8;
        }
        out[b] = (uint8_t)byte;
    }
}

/* Indices of a chunk that has some; returns their length. */
TG_DEVICE uint32_t tg_put_indices(tg_view *v, uint8_t *out, uint32_t *words, const tg_gpu_pass &p,
                               const tg_gpu_chunk &chunk, uint8_t *mode, bool *is_joint)
{
    const tg_gpu_unit &u = p.units[chunk.unit];
    tg_marks m = {p.space.positions + chunk.element_at, v->count, chunk.n};
    if (tg_unit_joins(u) && u.route != TG_GPU_ROUTE_LEADER) {
        bool is_short = u.index == TG_GPU_INDEX_ADACOMP8;
        const uint8_t *symbols = p.space.symbols + 2 * chunk.element_at;
        uint32_t len = tg_put_joint(out + v->symbols, symbols, m, u.bin, is_short ? 6 : 14);
        *mode = is_short ? TG_GPU_MODE_ADACOMP8 : TG_GPU_MODE_ADACOMP16;
        *is_joint = len > 0;
        if (len > 0) {
            return len;
        }
        tg_put_signs(out + v->symbols, symbols, v->count);
    }
    if (u.index != TG_GPU_INDEX_GAPS) {
        return tg_put_plain_bitmap(out + v->indices, words, mode, m);
    }
    uint32_t len = tg_put_gaps(out + v->indices, words, mode, m);
    if (u.symbol == TG_GPU_RANS) {
        tg_try_geometric(v, out, words, m, &len, mode);
    }
    return len;
}

/* Indices of chunk `number`, if it has some in the frame, from space.positions. All threads of the block, of which there are
 * TG_INDEX_WRITERS; `words` has TG_INDEX_WORDS in shared memory. */
TG_DEVICE void tg_write_chunk(const tg_gpu_pass &p, uint32_t number, uint32_t *words)
{
    enum { LIST_MAX = 16384 };
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    tg_view *v = &p.space.views[number];
    uint8_t mode = 0;
    uint32_t len = 0;
    bool is_joint = false;
    if (u.route == TG_GPU_ROUTE_LEADER && threadIdx.x == 0) {
        v->side = v->symbols = v->indices = 0;
    }
    __syncthreads();
    if (v->count > 0) {
        len = tg_put_indices(v, p.space.out[number], words, p, chunk, &mode, &is_joint);
    }
    __syncthreads(); /* all have read the view */
    if (threadIdx.x == 0) {
        v->mode = mode;
        v->index_len = (uint16_t)len;
        v->is_joint = is_joint;
        v->indices = is_joint ? v->symbols : v->indices;
        v->is_listed = v->count > 0 && v->count <= LIST_MAX && mode <= TG_GPU_RICE_MAX && u.index == TG_GPU_INDEX_GAPS;
    }
}

#endif
