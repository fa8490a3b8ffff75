/* Reads the coordinates of sparse chunks, a block each, into lists. Trusts nothing: what the host's readers refuse (src/pack) is
 * refused here, too, and the chunk then counts as one without values, so that no later kernel follows its coordinates. */
#include "exec/cuda/bit_stream.h"
#include "exec/cuda/index.h"
#include "exec/cuda/index_read.h"
#include "exec/cuda/layout.h"
#include "exec/cuda/load.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/scan.h"
#include "exec/cuda/select.h"

enum { THREADS = TG_INDEX_THREADS };

/* ---- bitmap ----------------------------------------------------------------------------------------------------------------- */

TG_DEVICE bool read_bitmap(const tg_indices &x)
{
    uint32_t done = 0, beyond = 0;
    if (x.len != tg_bitmap_bytes(x.n)) {
        return false;
    }
    for (uint32_t first = 0; first * 32 < x.n; first += THREADS) {
        uint32_t w = first + threadIdx.x, total, word = tg_stream_word(x.bytes, x.len, w * 4 < x.len ? w * 4 : x.len);
        beyond |= w * 32 < x.n && x.n - w * 32 < 32 ? word >> (x.n - w * 32) : 0;
        uint32_t at = done + tg_block_scan((uint32_t)__popc(word), &total);
        for (; word != 0 && at < x.count; word &= word - 1) {
            x.positions[at++] = w * 32 + (uint32_t)__ffs((int)word) - 1;
        }
        done += total;
    }
    return __syncthreads_or(beyond != 0) == 0 && done == x.count;
}

/* ---- every element ------------------------------------------------------------------------------------------------------------ */

TG_DEVICE bool read_every(const tg_indices &x)
{
    for (uint32_t i = threadIdx.x; i < x.count; i += THREADS) {
        x.positions[i] = i;
    }
    return x.len == 0 && x.count == x.n;
}

/* ---- runs: one thread reads them, all fill in --------------------------------------------------------------------------------- */

enum { RUNS = 128, LONG_RUN = 1024 };

typedef struct runs {
    uint32_t from[RUNS], n[RUNS], to[RUNS]; /* positions, lengths, and where in the list they belong */
    uint32_t run_n;
    uint32_t at, position, total; /* that were read: bytes, elements, entries */
    bool is_sound;
} runs;

/* A number of at most three bytes, in its shortest form. */
TG_DEVICE bool get_number(uint32_t *value, const tg_indices &x, uint32_t *at)
{
    *value = 0;
    for (unsigned shift = 0; shift < 21; shift += 7) {
        if (*at == x.len) {
            return false;
        }
        uint32_t byte = x.bytes[(*at)++];
        *value |= (byte & 127) << shift;
        if (byte < 128) {
            return byte != 0 || shift == 0;
        }
    }
    return false;
}

TG_DEVICE bool get_run(runs *r, const tg_indices &x)
{
    bool is_first = r->at == 0;
    uint32_t gap, more;
    if (!get_number(&gap, x, &r->at) || !get_number(&more, x, &r->at)) {
        return false;
    }
    if ((gap == 0 && !is_first) || gap > x.n - r->position || more + 1 > x.n - r->position - gap) {
        return false;
    }
    r->from[r->run_n] = r->position + gap;
    r->n[r->run_n] = more + 1;
    r->to[r->run_n] = r->total;
    r->position += gap + more + 1;
    r->total += more + 1;
    r->run_n++;
    return r->total <= x.count;
}

TG_DEVICE void fill_runs(const runs &r, const tg_indices &x)
{
    for (uint32_t i = 0; i < r.run_n; i++) {
        bool is_mine = r.n[i] > LONG_RUN || i % (THREADS / TG_WARP) == threadIdx.x / TG_WARP;
        uint32_t step = r.n[i] > LONG_RUN ? (uint32_t)THREADS : TG_WARP;
        for (uint32_t j = threadIdx.x % step; is_mine && j < r.n[i]; j += step) {
            x.positions[r.to[i] + j] = r.from[i] + j;
        }
    }
}

TG_DEVICE bool read_runs(const tg_indices &x)
{
    __shared__ runs r;
    if (threadIdx.x == 0) {
        r.at = r.position = r.total = r.run_n = 0;
        r.is_sound = true;
    }
    __syncthreads();
    while (r.is_sound && r.at < x.len) {
        __syncthreads(); /* all have come here */
        if (threadIdx.x == 0) {
            r.run_n = 0;
            while (r.is_sound && r.at < x.len && r.run_n < RUNS) {
                r.is_sound = get_run(&r, x);
            }
        }
        __syncthreads();
        if (r.is_sound) {
            fill_runs(r, x);
        }
        __syncthreads();
    }
    return r.is_sound && r.total == x.count;
}

/* ---- places and signs ------------------------------------------------------------------------------------------------------------ */

TG_DEVICE uint32_t entry_at(const tg_indices &x, uint32_t i, uint32_t place_bits)
{
    return place_bits == 6 ? x.bytes[i] : x.bytes[2 * i] | (uint32_t)x.bytes[2 * i + 1] << 8;
}

/* The cells by which an entry advances depend on the entry before it alone, so cells are prefix sums. */
TG_DEVICE bool read_joint(const tg_indices &x, uint8_t *symbols, uint32_t cell, uint32_t place_bits)
{
    uint32_t entry_len = (place_bits + 2) / 8, entries = x.len / entry_len, cells = 0, values = 0,
             mask = (1u << place_bits) - 1;
    bool is_bad = x.len % entry_len != 0;
    for (uint32_t first = 0; first < entries; first += THREADS) {
        uint32_t i = first + threadIdx.x;
        uint64_t all;
        uint32_t entry = i < entries ? entry_at(x, i, place_bits) : 0, code = entry >> place_bits, place = entry & mask;
        uint32_t last = i > 0 && i < entries ? entry_at(x, i - 1, place_bits) : 0;
        bool follows = last >> place_bits == 0 || place > (last & mask);
        uint32_t advance = i >= entries ? 0 : code == 0 ? place + 1 : follows ? 0 : 1;
        uint64_t before = tg_block_scan<uint64_t>((uint64_t)advance << 32 | (code != 0 ? 1 : 0), &all);
        uint32_t here = cells + (uint32_t)(before >> 32) + advance, number = values + (uint32_t)before;
        if (code != 0) {
            bool is_sound =
                code != 3 && place < cell && here <= x.n / cell && here * cell + place < x.n && number < x.count;
            is_bad = is_bad || !is_sound;
            if (is_sound) {
                x.positions[number] = here * cell + place;
                symbols[number] = code == 2 ? 1 : 0;
            }
        }
        is_bad = is_bad || (i + 1 == entries && code == 0);
        cells += (uint32_t)(all >> 32);
        values += (uint32_t)all;
    }
    return __syncthreads_or(is_bad) == 0 && values == x.count;
}

/* Signs that are not joined with places: bits, with zeros after the last. */
TG_DEVICE bool read_signs(uint8_t *symbols, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t i = threadIdx.x; i < count; i += THREADS) {
        symbols[i] = bytes[i / 8] >> i % 8 & 1;
    }
    return count % 8 == 0 || bytes[count / 8] >> count % 8 == 0;
}

/* ---- geometric: one thread -------------------------------------------------------------------------------------------------------- */

typedef struct letters {
    uint32_t start[TG_GPU_LETTERS + 1], k;
    uint8_t of_slot[TG_GPU_LETTER_TOTAL];
} letters;

typedef struct forward {
    uint32_t x, at;
} forward;

TG_DEVICE bool refill(forward *s, const tg_indices &x)
{
    if (s->x < TG_GPU_RANS_START) {
        if (s->at == x.len) {
            return false;
        }
        s->x = s->x << 16 | x.bytes[s->at] | (uint32_t)x.bytes[s->at + 1] << 8;
        s->at += 2;
    }
    return true;
}

TG_DEVICE bool pull_gap(uint64_t *gap, forward *s, const letters &l, const tg_indices &x, uint64_t left)
{
    uint64_t number = 0;
    uint32_t letter = TG_GPU_LETTERS - 1;
    while (letter == TG_GPU_LETTERS - 1) {
        uint32_t slot = s->x & (TG_GPU_LETTER_TOTAL - 1);
        letter = l.of_slot[slot];
        s->x = (l.start[letter + 1] - l.start[letter]) * (s->x >> TG_GPU_LETTER_BITS) + slot - l.start[letter];
        number += letter;
        if (!refill(s, x) || number << l.k >= left) {
            return false;
        }
    }
    *gap = number << l.k | (s->x & ((1u << l.k) - 1));
    s->x >>= l.k;
    return refill(s, x) && *gap < left;
}

TG_DEVICE bool pull_all(const letters &l, const tg_indices &x)
{
    forward s = {tg_load32(x.bytes), 4};
    uint64_t next = 0, gap;
    if (s.x < TG_GPU_RANS_START || s.x >> 31 != 0) {
        return false;
    }
    for (uint32_t i = 0; i < x.count; i++) {
        if (!pull_gap(&gap, &s, l, x, x.n - next)) {
            return false;
        }
        x.positions[i] = (uint32_t)(next + gap);
        next += gap + 1;
    }
    return s.at == x.len && s.x == TG_GPU_RANS_START;
}

TG_DEVICE bool read_geometric(tg_indices x)
{
    __shared__ letters l;
    __shared__ uint32_t words[TG_STREAM_WORDS];
    if (x.len < 4 || x.len % 2 != 0) {
        return false;
    }
    tg_bit_stream s = tg_stream_open(words, x.bytes, x.len);
    x.bytes = s.words != nullptr ? (const uint8_t *)s.words : x.bytes;
    if (threadIdx.x == 0) {
        l.k = tg_geometric_model(l.start, x.n, x.count);
    }
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < TG_GPU_LETTERS; j += THREADS) {
        for (uint32_t slot = l.start[j]; slot < l.start[j + 1]; slot++) {
            l.of_slot[slot] = (uint8_t)j;
        }
    }
    __syncthreads();
    return __syncthreads_or(threadIdx.x == 0 && pull_all(l, x)) != 0;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------------------- */

TG_DEVICE bool read_gaps(const tg_indices &x, uint32_t mode, bool has_rans)
{
    if (mode <= TG_GPU_RICE_MAX) {
        return tg_read_rice(x, mode);
    }
    switch (mode) {
    case TG_GPU_MODE_BITMAP: return read_bitmap(x);
    case TG_GPU_MODE_RUNS: return read_runs(x);
    case TG_GPU_MODE_EVERY: return read_every(x);
    case TG_GPU_MODE_RANS: return has_rans && read_geometric(x);
    default: return false;
    }
}

TG_DEVICE bool read_chunk(const tg_gpu_pass &p, const tg_gpu_chunk &chunk, const tg_view &v, const tg_indices &x,
                          const uint8_t *body)
{
    const tg_gpu_unit &u = p.units[chunk.unit];
    uint8_t *symbols = p.space.symbols + 2 * chunk.element_at;
    if (v.is_joint) {
        bool is_short = v.mode == TG_GPU_MODE_ADACOMP8;
        bool fits = u.index == (is_short ? TG_GPU_INDEX_ADACOMP8 : TG_GPU_INDEX_ADACOMP16);
        return fits && tg_unit_lists_signs(u) && read_joint(x, symbols, u.bin, is_short ? 6 : 14);
    }
    if (p.has_values && tg_unit_lists_signs(u) && !read_signs(symbols, body + v.symbols, v.count)) {
        return false;
    }
    if (u.index == TG_GPU_INDEX_GAPS) {
        return read_gaps(x, v.mode, u.symbol == TG_GPU_RANS);
    }
    return v.mode == TG_GPU_MODE_BITMAP && read_bitmap(x);
}

__global__ static void __launch_bounds__(THREADS, 1) read(tg_gpu_pass p, const uint8_t *body)
{
    uint32_t number = p.first + blockIdx.x;
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    tg_view *v = &p.space.views[number];
    if (u.coordinates != TG_GPU_AT_INDICES || u.route == TG_GPU_ROUTE_NONE || v->count == 0) {
        return;
    }
    tg_indices x = {p.space.positions + chunk.element_at, body + v->indices, v->index_len, chunk.n, v->count};
    bool is_sound = read_chunk(p, chunk, *v, x, body);
    __syncthreads(); /* all have read the view */
    if (!is_sound && threadIdx.x == 0) {
        tg_refuse_chunk(p, number);
        v->count = 0;
    }
}

void tg_gpu_read_indices(const tg_gpu_pass *p, const uint8_t *body, const tg_gpu_selection *s)
{
    if (p->chunk_n == 0) {
        return;
    }
    if (s->has_indices) {
        TG_LAUNCH(read, p->chunk_n, THREADS, p->stream, *p, body);
    }
    if (s->has_marks ||
        (s->has_blocks && tg_pass_has(p, TG_KIND_BLOCKS))) { /* tg_gpu_add_sparse knows those of blocks */
        tg_gpu_list_known(p, s);
    }
}
