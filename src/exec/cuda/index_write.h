/* Writes the coordinates of a sparse chunk, by a block: gaps in the shortest code, by the rule of pack/gaps.c, a bitmap, or places
 * together with signs. No code is longer than a bitmap, so bytes are put together in shared memory and then stored. */
#ifndef TG_EXEC_CUDA_INDEX_WRITE_H
#define TG_EXEC_CUDA_INDEX_WRITE_H

#include "exec/cuda/index.h"
#include "exec/cuda/layout.h"
#include "exec/cuda/leaf.h"
#include "exec/cuda/scan.h"

enum { TG_INDEX_WRITERS = 1024, TG_INDEX_WORDS = TG_GPU_BITMAP_MAX / 4 + 6 }; /* what tg_copy_by reads included */

/* A list of so many positions may be in shared memory, in the first words. A code of them takes less than the other ones: one of the
 * Rice codes that are compared has at most k + 4 bits for each gap, and for a k above 0 there are at most n / 2^(k+1) gaps. */
enum { TG_INDEX_SHORT = 6144 };

/* The selected elements of a chunk. */
typedef struct tg_marks {
    const uint32_t *at; /* ascending */
    uint32_t count, n;
} tg_marks;

TG_DEVICE uint32_t tg_gap_before(const tg_marks &m, uint32_t i)
{
    return i == 0 ? m.at[0] : m.at[i] - m.at[i - 1] - 1;
}

/* The share of a thread: elements [from, end), so that codes of all take one prefix sum. */
typedef struct tg_marks_share {
    uint32_t from, end;
} tg_marks_share;

TG_DEVICE tg_marks_share tg_share_of(const tg_marks &m)
{
    uint32_t each = (m.count + TG_INDEX_WRITERS - 1) / TG_INDEX_WRITERS, from = min(threadIdx.x * each, m.count);
    return {from, min(from + each, m.count)};
}

/* use(gap) for the gaps before a share's elements. */
template <class Use> TG_DEVICE void tg_each_gap(const tg_marks &m, const tg_marks_share &share, Use use)
{
    uint32_t next = share.from > 0 && share.from < share.end ? m.at[share.from - 1] + 1 : 0;
    for (uint32_t i = share.from; i < share.end; i++) {
        uint32_t at = m.at[i];
        use(at - next);
        next = at + 1;
    }
}

/* ---- bytes in shared memory ------------------------------------------------------------------------------------------------- */

TG_DEVICE void tg_clear_words(uint32_t *words, uint32_t len)
{
    for (uint32_t i = threadIdx.x; i < (len + 3) / 4; i += TG_INDEX_WRITERS) {
        words[i] = 0;
    }
    __syncthreads();
}

/* Bits of a thread, one after the other: those that are not in `word` yet, and how many there are, less than 32. */
typedef struct tg_bits_end {
    uint32_t *word;
    uint64_t bits;
    uint32_t n;
} tg_bits_end;

/* Up to 32 bits. */
TG_DEVICE void tg_put_bits(tg_bits_end &end, uint32_t bits, uint32_t n)
{
    end.bits |= (uint64_t)bits << end.n;
    end.n += n;
    if (end.n >= 32) {
        atomicOr(end.word++, (uint32_t)end.bits); /* others have bits in it */
        end.bits >>= 32;
        end.n -= 32;
    }
}

TG_DEVICE void tg_put_last(const tg_bits_end &end)
{
    if (end.bits != 0) {
        atomicOr(end.word, (uint32_t)end.bits);
    }
}

TG_DEVICE void tg_put_byte(uint32_t *words, uint32_t at, uint32_t byte)
{
    atomicOr(&words[at / 4], byte << at % 4 * 8);
}

TG_DEVICE void tg_store_words(uint8_t *out, const uint32_t *words, uint32_t len)
{
    __syncthreads();
    tg_copy_by(out, (const uint8_t *)words, len, threadIdx.x, TG_INDEX_WRITERS);
}

/* ---- the cost of each code -------------------------------------------------------------------------------------------------- */

typedef struct tg_gap_costs {
    uint64_t rice_bits;
    uint32_t rice;
    uint32_t at;     /* the first bit of this thread's share of that Rice code */
    uint32_t closed; /* gaps of 0 */
} tg_gap_costs;

/* The least of the three neighbouring parameters that are compared. */
TG_DEVICE uint32_t tg_least_rice(const tg_marks &m)
{
    uint32_t bits = 32 - (uint32_t)__clz((int)(m.n / m.count));
    return min(max(bits, 2u) - 2, (uint32_t)TG_GPU_RICE_MAX - 2);
}

/* The best of three, from parameter k on, as in pack/gaps.c. `closed` is shared memory, and 0 since the last barrier. */
TG_DEVICE tg_gap_costs tg_measure_gaps(const tg_marks &m, uint32_t k, uint32_t *closed)
{
    uint32_t quotients[3] = {0, 0, 0}, own_closed = 0;
    tg_marks_share share = tg_share_of(m);
    tg_each_gap(m, share, [&](uint32_t gap) {
        quotients[0] += gap >> k;
        quotients[1] += gap >> (k + 1);
        quotients[2] += gap >> (k + 2);
        own_closed += gap == 0 ? 1 : 0;
    });
    own_closed = __reduce_add_sync(TG_ALL_LANES, own_closed);
    if (threadIdx.x % TG_WARP == 0 && own_closed > 0) {
        atomicAdd(closed, own_closed);
    }
    /* None of the sums exceeds 2^18, the elements of a chunk: three fit in a word. */
    uint64_t sums, own = quotients[0] | (uint64_t)quotients[1] << 20 | (uint64_t)quotients[2] << 40;
    uint64_t before = tg_block_scan(own, &sums);
    tg_gap_costs c = {~0ull, 0, 0, *closed};
    TG_UNROLL
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t bits = (sums >> 20 * i & 0xfffff) + (uint64_t)m.count * (k + i + 1);
        if (bits < c.rice_bits) {
            c.rice_bits = bits;
            c.rice = k + i;
            c.at = (uint32_t)(before >> 20 * i & 0xfffff) + share.from * (k + i + 1);
        }
    }
    return c;
}

/* ---- Rice codes ------------------------------------------------------------------------------------------------------------- */

TG_DEVICE void tg_put_rice(uint32_t *words, const tg_marks &m, const tg_gap_costs &c)
{
    const uint32_t ONES = 31; /* at a time */
    tg_bits_end end = {words + c.at / 32, 0, c.at % 32};
    tg_each_gap(m, tg_share_of(m), [&](uint32_t gap) {
        uint32_t quotient = gap >> c.rice;
        TG_ROLL
        for (; quotient > ONES; quotient -= ONES) {
            tg_put_bits(end, (1u << ONES) - 1, ONES);
        }
        tg_put_bits(end, (1u << quotient) - 1, quotient + 1);
        tg_put_bits(end, gap & ((1u << c.rice) - 1), c.rice);
    });
    tg_put_last(end);
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
TG_CALLED uint32_t tg_put_runs(uint32_t *words, tg_marks m)
{
    tg_marks_share share = tg_share_of(m);
    bool is_closed =
        share.from < share.end && share.end < m.count && tg_gap_before(m, share.end) == 0; /* the last run goes on */
    uint32_t i = share.from, last = 0, len = 0, total;
    tg_each_gap(m, share, [&](uint32_t gap) {
        last = gap > 0 ? i : last;
        i++;
    });
    uint32_t open = tg_block_max_scan(last), start = open; /* where the run begins that this share begins with */
    auto each = [&](auto use) {                            /* use(number) */
                                i = share.from;
                                start = open;
                                tg_each_gap(m, share, [&](uint32_t gap) {
                                    if (i > share.from && gap > 0) {
                                        use(i - 1 - start);
                                    }
                                    if (i == 0 || gap > 0) {
                                        use(gap);
                                        start = i;
                                    }
                                    i++;
                                });
                                if (share.from < share.end && !is_closed) {
                                    use(share.end - 1 - start);
                                }
    };
    each([&](uint32_t number) { len += tg_number_len(number); });
    uint32_t at = tg_block_scan(len, &total);
    if (words != nullptr) {
        each([&](uint32_t number) { at = tg_put_number(words, at, number); });
    }
    return total;
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
TG_CALLED void tg_try_geometric(uint8_t *out, uint32_t *words, tg_marks m, uint32_t *len, uint8_t *mode)
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
        out[i] = bytes[cap - shorter + i];
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
    __shared__ uint32_t closed;
    uint32_t k = tg_least_rice(m);
    if (threadIdx.x == 0) {
        closed = 0;
    }
    tg_clear_words(words, min(bitmap_len, (m.count * (k + 4) + 7) / 8)); /* the best Rice code has no more bits */
    tg_gap_costs c = tg_measure_gaps(m, k, &closed);
    uint64_t rice_len = (c.rice_bits + 7) / 8, runs_len = 2 * (uint64_t)(m.count - c.closed);
    if (runs_len < rice_len && runs_len < bitmap_len) { /* the lower bound does not rule them out */
        runs_len = tg_put_runs(nullptr, m);
    }
    uint32_t len = bitmap_len;
    *mode = TG_GPU_MODE_BITMAP;
    if (rice_len < bitmap_len || runs_len < bitmap_len) {
        *mode = (uint8_t)(runs_len < rice_len ? (uint32_t)TG_GPU_MODE_RUNS : c.rice);
        len = (uint32_t)(runs_len < rice_len ? runs_len : rice_len);
    }
    if (*mode == TG_GPU_MODE_BITMAP) {
        tg_put_bitmap(words, m);
    } else if (*mode == TG_GPU_MODE_RUNS) {
        (void)tg_put_runs(words, m);
    } else {
        tg_put_rice(words, m, c);
    }
    tg_store_words(out, words, len);
    return len;
}

TG_CALLED uint32_t tg_put_plain_bitmap(uint8_t *out, uint32_t *words, uint8_t *mode, tg_marks m)
{
    *mode = TG_GPU_MODE_BITMAP;
    tg_clear_words(words, tg_bitmap_bytes(m.n));
    tg_put_bitmap(words, m);
    tg_store_words(out, words, tg_bitmap_bytes(m.n));
    return tg_bitmap_bytes(m.n);
}

/* ---- places and signs: pack/adacomp.c ------------------------------------------------------------------------------------------ */

TG_DEVICE void tg_put_entry(uint8_t *out, uint32_t number, uint32_t place_bits, uint32_t code, uint32_t place)
{
    uint32_t len = (place_bits + 2) / 8;
    tg_store_bytes(out + (uint64_t)number * len, place | code << place_bits, len);
}

/* use(i, cells to skip before entry i, its place) for a share's entries. What is skipped depends on the entry before it alone; 0: no
 * skip is needed. */
template <class Use>
TG_DEVICE void tg_each_place(const tg_marks &m, const tg_marks_share &share, uint32_t cell, Use use)
{
    uint64_t inverse = 0xffffffffu / cell + 1ull; /* exact for less than 2^18 elements and cells of up to 2^14 */
    uint32_t then = 0, last = 0;
    for (uint32_t i = share.from; i < share.end; i++) {
        if (i > 0 && i == share.from) {
            then = (uint32_t)(m.at[i - 1] * inverse >> 32);
            last = m.at[i - 1] - then * cell;
        }
        uint32_t at = m.at[i], now = (uint32_t)(at * inverse >> 32), place = at - now * cell;
        bool follows = i > 0 && (now == then || (now == then + 1 && place <= last));
        use(i, follows ? 0 : now - then, place);
        then = now;
        last = place;
    }
}

/* Writes entries with their symbols; returns their length, or 0 if a bitmap and the symbols would be at most as long. */
TG_CALLED uint32_t tg_put_joint(uint8_t *out, const uint8_t *symbols, tg_marks m, uint32_t cell, uint32_t place_bits)
{
    uint32_t own = 0, n, entry_len = (place_bits + 2) / 8, most = 1u << place_bits;
    tg_marks_share share = tg_share_of(m);
    tg_each_place(m, share, cell,
                  [&](uint32_t, uint32_t skip, uint32_t) { own += 1 + ((skip + most - 1) >> place_bits); });
    uint32_t at = tg_block_scan(own, &n);
    if ((uint64_t)n * entry_len >= tg_bitmap_bytes(m.n) + (m.count + 7) / 8) {
        return 0;
    }
    tg_each_place(m, share, cell, [&](uint32_t i, uint32_t skip, uint32_t place) {
        for (; skip > 0; skip -= min(skip, most)) {
            tg_put_entry(out, at++, place_bits, 0, min(skip, most) - 1);
        }
        tg_put_entry(out, at++, place_bits, symbols[i] != 0 ? 2 : 1, place);
    });
    return n * entry_len;
}

/* ---- chunks ----------------------------------------------------------------------------------------------------------------- */

/* Symbols of signs as bits, where they are not joined with places. */
TG_DEVICE void tg_put_signs(uint8_t *out, const uint8_t *symbols, uint32_t count)
{
    for (uint32_t b = threadIdx.x; b < (count + 7) / 8; b += TG_INDEX_WRITERS) {
        uint32_t byte = 0;
        TG_UNROLL
        for (uint32_t i = 0; i < 8; i++) { /* all loads are under way together */
            byte |= 8 * b + i < count ? (uint32_t)symbols[8 * b + i] << i : 0;
        }
        out[b] = (uint8_t)byte;
    }
}

/* Indices of a chunk that has some; returns their length. */
TG_DEVICE uint32_t tg_put_indices(const tg_view &v, uint8_t *out, uint32_t *words, bool has_list, const tg_gpu_pass &p,
                                  const tg_gpu_chunk &chunk, uint8_t *mode, bool *is_joint)
{
    const tg_gpu_unit &u = p.units[chunk.unit];
    const uint32_t *positions = p.space.positions + chunk.element_at;
    tg_marks m = {has_list ? words : positions, v.count, chunk.n};
    bool joins = u.index == TG_GPU_INDEX_ADACOMP8 || u.index == TG_GPU_INDEX_ADACOMP16;
    const uint8_t *symbols = p.space.symbols + 2 * chunk.element_at;
    if (tg_unit_lists_signs(u) && joins) {
        bool is_short = u.index == TG_GPU_INDEX_ADACOMP8;
        uint32_t len = tg_put_joint(out + v.symbols, symbols, m, u.bin, is_short ? 6 : 14);
        *mode = is_short ? TG_GPU_MODE_ADACOMP8 : TG_GPU_MODE_ADACOMP16;
        *is_joint = len > 0;
        if (len > 0) {
            return len;
        }
    }
    if (tg_unit_lists_signs(u)) {
        tg_put_signs(out + v.symbols, symbols, v.count);
    }
    if (u.index != TG_GPU_INDEX_GAPS) {
        __syncthreads(); /* all are done with the list */
        m.at = positions;
        return tg_put_plain_bitmap(out + v.indices, words, mode, m);
    }
    words += has_list ? TG_INDEX_SHORT : 0;
    uint32_t len = tg_put_gaps(out + v.indices, words, mode, m);
    if (u.symbol == TG_GPU_RANS) {
        tg_try_geometric(out + v.indices, words, m, &len, mode);
    }
    return len;
}

/* Indices of chunk `number`, which has some in the frame, from space.positions; with `has_list` they are in `words`, too. `v` is its view,
 * which goes to memory then. All threads of the block, of which there are TG_INDEX_WRITERS; `words` has TG_INDEX_WORDS in shared
 * memory. */
TG_DEVICE void tg_write_chunk(const tg_gpu_pass &p, uint32_t number, tg_view v, uint32_t *words, bool has_list)
{
    enum { LIST_MAX = 16384 };
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    uint8_t mode = 0;
    uint32_t len = 0;
    bool is_joint = false;
    if (u.route == TG_GPU_ROUTE_LEADER) {
        v.side = v.symbols = v.indices = 0;
    }
    __syncthreads();
    if (v.count > 0) {
        len = tg_put_indices(v, p.space.out[number], words, has_list, p, chunk, &mode, &is_joint);
    }
    if (threadIdx.x == 0) {
        v.mode = mode;
        v.index_len = (uint16_t)len;
        v.is_joint = is_joint;
        v.indices = is_joint ? v.symbols : v.indices;
        v.is_listed = v.count > 0 && v.count <= LIST_MAX && mode <= TG_GPU_RICE_MAX && u.index == TG_GPU_INDEX_GAPS;
        p.space.views[number] = v;
    }
}

#endif
