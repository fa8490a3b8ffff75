/* All forms of the coordinates of a sparse chunk, while a block reads them. Trusts nothing: what the host's readers refuse (src/pack) is
 * refused here, too. */
#ifndef TG_EXEC_CUDA_INDEX_MODES_H
#define TG_EXEC_CUDA_INDEX_MODES_H

#include "exec/cuda/bit_stream.h"
#include "exec/cuda/index.h"
#include "exec/cuda/index_read.h"
#include "exec/cuda/layout.h"
#include "exec/cuda/scan.h"

/* Bytes of explicit indices in shared memory: as many as a bitmap has. */
enum { TG_INDEX_STAGED = TG_GPU_BITMAP_MAX };

/* ---- bitmap: a thread has some consecutive words ------------------------------------------------------------------------------ */

template <class Stream> TG_DEVICE bool tg_read_bitmap(const tg_indices &x, const Stream &s)
{
    uint32_t word_n = (x.n + 31) / 32, each = tg_index_share(word_n), found = 0, total;
    if (x.len != tg_bitmap_bytes(x.n)) {
        return false;
    }
    uint32_t from = threadIdx.x * each, end = min(from + each, word_n);
    for (uint32_t w = from; w < end; w++) {
        found += (uint32_t)__popc(s.word(w));
    }
    uint32_t at = tg_block_scan(found, &total);
    for (uint32_t w = from; w < end && total == x.count; w++) {
        for (uint32_t word = s.word(w); word != 0; word &= word - 1) {
            x.positions[at++] = w * 32 + (uint32_t)__ffs((int)word) - 1;
        }
    }
    return total == x.count && (x.n % 32 == 0 || s.word(word_n - 1) >> x.n % 32 == 0);
}

/* ---- every element ------------------------------------------------------------------------------------------------------------ */

TG_DEVICE bool tg_read_every(const tg_indices &x)
{
    for (uint32_t i = threadIdx.x; i < x.count; i += TG_INDEX_THREADS) {
        x.positions[i] = i;
    }
    return x.len == 0 && x.count == x.n;
}

/* ---- runs: a thread has some consecutive bytes, and the runs that end there ------------------------------------------------------ */

enum { TG_LONG_RUN = 512, TG_LONG_RUNS = 262144 / TG_LONG_RUN };

typedef struct tg_index_run {
    uint32_t gap, n; /* elements before it, and in it */
    uint32_t start;  /* byte */
} tg_index_run;

/* The number whose last byte is byte i: at most three bytes, in its shortest form. False: it is none. */
template <class Stream> TG_DEVICE bool tg_get_number(uint32_t *value, uint32_t *start, const Stream &s, uint32_t i)
{
    *value = s.byte(i);
    *start = i;
    while (*start > 0 && s.byte(*start - 1) >= 128) {
        if (i - *start == 2) {
            return false;
        }
        *start -= 1;
        *value = *value << 7 | (s.byte(*start) & 127);
    }
    return *start == i || s.byte(i) != 0;
}

/* The run whose last byte is byte i. */
template <class Stream> TG_DEVICE bool tg_get_run(tg_index_run *r, const Stream &s, uint32_t i)
{
    if (!tg_get_number(&r->n, &r->start, s, i) || r->start == 0 ||
        !tg_get_number(&r->gap, &r->start, s, r->start - 1)) {
        return false;
    }
    r->n++;
    return r->gap > 0 || r->start == 0;
}

/* use(run) for those that end in bytes [from, end); `number` is that of the first number that ends there. False: one is none. */
template <class Stream, class Use>
TG_DEVICE bool tg_each_run(const Stream &s, uint32_t from, uint32_t end, uint32_t number, Use use)
{
    for (uint32_t i = from; i < end; i++) {
        tg_index_run r;
        bool is_end = s.byte(i) < 128, is_run = is_end && number % 2 == 1;
        if (is_run && !tg_get_run(&r, s, i)) {
            return false;
        }
        if (is_run) {
            use(r);
        }
        number += is_end ? 1 : 0;
    }
    return true;
}

/* Runs that all threads fill in. */
typedef struct tg_long_runs {
    uint32_t to[TG_LONG_RUNS], position[TG_LONG_RUNS], n[TG_LONG_RUNS];
    uint32_t run_n;
} tg_long_runs;

template <class Stream> TG_DEVICE bool tg_read_runs(const tg_indices &x, tg_long_runs &longs, const Stream &s)
{
    uint32_t each = tg_index_share(x.len), from = threadIdx.x * each, end = min(from + each, x.len);
    uint32_t numbers = 0, total, elements = 0, entries = 0;
    for (uint32_t i = from; i < end; i++) {
        numbers += s.byte(i) < 128 ? 1 : 0;
    }
    uint32_t number = tg_block_scan(numbers, &total);
    bool is_bad = !tg_each_run(s, from, end, number, [&](const tg_index_run &r) {
        elements = min(elements + r.gap + r.n, TG_INDEX_BEYOND);
        entries = min(entries + r.n, TG_INDEX_BEYOND);
    });
    uint64_t all, before = tg_block_scan((uint64_t)entries << 32 | elements, &all);
    is_bad = is_bad || total % 2 != 0 || all >> 32 != x.count || (uint32_t)all > x.n || s.byte(x.len - 1) >= 128;
    if (threadIdx.x == 0) {
        longs.run_n = 0;
    }
    if (__syncthreads_or(is_bad)) {
        return false;
    }
    uint32_t to = (uint32_t)(before >> 32), position = (uint32_t)before;
    (void)tg_each_run(s, from, end, number, [&](const tg_index_run &r) {
        position += r.gap;
        if (r.n > TG_LONG_RUN) {
            uint32_t i = atomicAdd(&longs.run_n, 1u);
            longs.to[i] = to;
            longs.position[i] = position;
            longs.n[i] = r.n;
        }
        for (uint32_t j = 0; r.n <= TG_LONG_RUN && j < r.n; j++) {
            x.positions[to + j] = position + j;
        }
        position += r.n;
        to += r.n;
    });
    __syncthreads();
    for (uint32_t i = 0; i < longs.run_n; i++) {
        for (uint32_t j = threadIdx.x; j < longs.n[i]; j += TG_INDEX_THREADS) {
            x.positions[longs.to[i] + j] = longs.position[i] + j;
        }
    }
    return true;
}

/* ---- places and signs ------------------------------------------------------------------------------------------------------------ */

typedef struct tg_joint {
    uint32_t code, place;
    uint32_t advance; /* cells: it depends on the entry before it alone, so cells are prefix sums */
} tg_joint;

template <class Stream> TG_DEVICE uint32_t tg_entry_at(const Stream &s, uint32_t i, uint32_t place_bits)
{
    return place_bits == 6 ? s.byte(i) : s.byte(2 * i) | s.byte(2 * i + 1) << 8;
}

template <class Stream> TG_DEVICE tg_joint tg_joint_at(const Stream &s, uint32_t i, uint32_t place_bits)
{
    uint32_t mask = (1u << place_bits) - 1, entry = tg_entry_at(s, i, place_bits), code = entry >> place_bits,
             place = entry & mask;
    uint32_t last = i > 0 ? tg_entry_at(s, i - 1, place_bits) : 0;
    bool follows = last >> place_bits == 0 || place > (last & mask);
    return {code, place, code == 0 ? place + 1 : follows ? 0u : 1u};
}

/* A thread has some consecutive entries. */
template <class Stream>
TG_DEVICE bool tg_read_joint(const tg_indices &x, const Stream &s, uint8_t *symbols, uint32_t cell, uint32_t place_bits)
{
    uint32_t entry_len = (place_bits + 2) / 8, entries = x.len / entry_len, each = tg_index_share(entries);
    uint32_t from = threadIdx.x * each, end = min(from + each, entries), cells = 0, values = 0;
    for (uint32_t i = from; i < end; i++) {
        tg_joint j = tg_joint_at(s, i, place_bits);
        cells += j.advance;
        values += j.code != 0 ? 1 : 0;
    }
    uint64_t all, before = tg_block_scan((uint64_t)cells << 32 | values, &all);
    uint32_t here = (uint32_t)(before >> 32), number = (uint32_t)before;
    bool is_bad = x.len % entry_len != 0 || (uint32_t)all != x.count;
    for (uint32_t i = from; i < end; i++) {
        tg_joint j = tg_joint_at(s, i, place_bits);
        here += j.advance;
        if (j.code != 0) {
            bool is_sound =
                j.code != 3 && j.place < cell && here <= x.n / cell && here * cell + j.place < x.n && number < x.count;
            is_bad = is_bad || !is_sound;
            if (is_sound) {
                x.positions[number] = here * cell + j.place;
                symbols[number] = j.code == 2 ? 1 : 0;
            }
            number++;
        }
        is_bad = is_bad || (i + 1 == entries && j.code == 0);
    }
    return __syncthreads_or(is_bad) == 0;
}

/* Signs that are not joined with places: bits, with zeros after the last. */
TG_DEVICE bool tg_read_signs(uint8_t *symbols, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t i = threadIdx.x; i < count; i += TG_INDEX_THREADS) {
        symbols[i] = bytes[i / 8] >> i % 8 & 1;
    }
    return count % 8 == 0 || bytes[count / 8] >> count % 8 == 0;
}

/* ---- geometric: one thread -------------------------------------------------------------------------------------------------------- */

typedef struct tg_letters {
    uint32_t start[TG_GPU_LETTERS + 1], k;
    uint8_t of_slot[TG_GPU_LETTER_TOTAL];
} tg_letters;

typedef struct tg_forward {
    uint32_t x, at;
} tg_forward;

template <class Stream> TG_DEVICE bool tg_refill(tg_forward *f, const Stream &s)
{
    if (f->x < TG_GPU_RANS_START) {
        if (f->at == s.len) {
            return false;
        }
        f->x = f->x << 16 | s.byte(f->at) | s.byte(f->at + 1) << 8;
        f->at += 2;
    }
    return true;
}

template <class Stream>
TG_DEVICE bool tg_pull_gap(uint64_t *gap, tg_forward *f, const tg_letters &l, const Stream &s, uint64_t left)
{
    uint64_t number = 0;
    uint32_t letter = TG_GPU_LETTERS - 1;
    while (letter == TG_GPU_LETTERS - 1) {
        uint32_t slot = f->x & (TG_GPU_LETTER_TOTAL - 1);
        letter = l.of_slot[slot];
        f->x = (l.start[letter + 1] - l.start[letter]) * (f->x >> TG_GPU_LETTER_BITS) + slot - l.start[letter];
        number += letter;
        if (!tg_refill(f, s) || number << l.k >= left) {
            return false;
        }
    }
    *gap = number << l.k | (f->x & ((1u << l.k) - 1));
    f->x >>= l.k;
    return tg_refill(f, s) && *gap < left;
}

template <class Stream> TG_DEVICE bool tg_pull_all(const tg_letters &l, const tg_indices &x, const Stream &s)
{
    tg_forward f = {s.word(0), 4};
    uint64_t next = 0, gap;
    if (f.x < TG_GPU_RANS_START || f.x >> 31 != 0) {
        return false;
    }
    for (uint32_t i = 0; i < x.count; i++) {
        if (!tg_pull_gap(&gap, &f, l, s, x.n - next)) {
            return false;
        }
        x.positions[i] = (uint32_t)(next + gap);
        next += gap + 1;
    }
    return f.at == x.len && f.x == TG_GPU_RANS_START;
}

template <class Stream> TG_DEVICE bool tg_read_geometric(const tg_indices &x, tg_letters &l, const Stream &s)
{
    if (x.len < 4 || x.len % 2 != 0) {
        return false;
    }
    if (threadIdx.x == 0) {
        l.k = tg_geometric_model(l.start, x.n, x.count);
    }
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < TG_GPU_LETTERS; j += TG_INDEX_THREADS) {
        for (uint32_t slot = l.start[j]; slot < l.start[j + 1]; slot++) {
            l.of_slot[slot] = (uint8_t)j;
        }
    }
    __syncthreads();
    return __syncthreads_or(threadIdx.x == 0 && tg_pull_all(l, x, s)) != 0;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------------------- */

/* Of which mode, and what it needs beside the bytes. */
typedef struct tg_reading {
    uint8_t *symbols; /* of signs that are joined with places */
    uint32_t mode, bin;
} tg_reading;

/* In shared memory: the bytes, and what one mode needs. */
typedef struct tg_index_space {
    uint32_t words[TG_INDEX_STAGED / 4 + 2];
    union {
        tg_rice_map<5> maps[TG_INDEX_THREADS / TG_WARP];
        tg_long_runs longs;
        tg_letters l;
    };
} tg_index_space;

/* All modes but Rice codes. */
template <class Stream> TG_CALLED bool tg_read_other(tg_indices x, tg_reading r, tg_index_space &space, Stream s)
{
    switch (r.mode) {
    case TG_GPU_MODE_BITMAP: return tg_read_bitmap(x, s);
    case TG_GPU_MODE_RUNS: return x.len > 0 && tg_read_runs(x, space.longs, s);
    case TG_GPU_MODE_EVERY: return tg_read_every(x);
    case TG_GPU_MODE_RANS: return tg_read_geometric(x, space.l, s);
    case TG_GPU_MODE_ADACOMP8: return tg_read_joint(x, s, r.symbols, r.bin, 6);
    case TG_GPU_MODE_ADACOMP16: return tg_read_joint(x, s, r.symbols, r.bin, 14);
    default: return false;
    }
}

/* Bytes that are not in shared memory, as no writer makes them. */
TG_CALLED bool tg_read_long(tg_indices x, tg_reading r, tg_index_space &space)
{
    tg_bit_stream<false> s = {nullptr, x.bytes, x.len};
    return r.mode <= TG_GPU_RICE_MAX ? tg_read_rice(x, space.maps, s, r.mode, nullptr) : tg_read_other(x, r, space, s);
}

/* Whether indices of a unit may be of a mode. */
TG_DEVICE bool tg_may_be(const tg_gpu_unit &u, const tg_view &v)
{
    if (v.is_joint) {
        bool is_short = v.mode == TG_GPU_MODE_ADACOMP8;
        return u.index == (is_short ? TG_GPU_INDEX_ADACOMP8 : TG_GPU_INDEX_ADACOMP16) && tg_unit_lists_signs(u);
    }
    if (u.index != TG_GPU_INDEX_GAPS) {
        return v.mode == TG_GPU_MODE_BITMAP;
    }
    return v.mode <= TG_GPU_MODE_EVERY || (v.mode == TG_GPU_MODE_RANS && u.symbol == TG_GPU_RANS);
}

/* Reads the coordinates of a chunk that has some in the body, and its signs, by its view. False: they are damaged. All threads. */
TG_DEVICE bool tg_read_chunk(const tg_gpu_pass &p, const tg_gpu_chunk &chunk, const tg_gpu_unit &u, const tg_view &v,
                             const uint8_t *body, tg_index_space &space)
{
    tg_indices x = {p.space.positions + chunk.element_at, body + v.indices, v.index_len, chunk.n, v.count};
    tg_reading r = {p.space.symbols + 2 * chunk.element_at, v.mode, u.bin};
    if (!tg_may_be(u, v)) {
        return false;
    }
    bool has_signs = !v.is_joint && p.has_values && tg_unit_lists_signs(u);
    if (has_signs && !tg_read_signs(r.symbols, body + v.symbols, v.count)) {
        return false;
    }
    if (x.len > TG_INDEX_STAGED) {
        return tg_read_long(x, r, space);
    }
    tg_stage(space.words, x.bytes, x.len);
    tg_bit_stream<true> s = {space.words, x.bytes, x.len};
    if (r.mode > TG_GPU_RICE_MAX) {
        return tg_read_other(x, r, space, s);
    }
    uint32_t used = x.len / 4 + 2, all = sizeof space.words / sizeof *space.words;
    return tg_read_rice(x, space.maps, s, r.mode, x.count <= all - used ? space.words + used : nullptr);
}

#endif
