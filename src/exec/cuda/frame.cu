/* Chunks in bodies: offsets of their parts, finding them in a body that arrived, and moving them together. */
#include "exec/cuda/kernels.h"
#include "exec/cuda/load.h"
#include "exec/cuda/routes.h"

enum { CHUNK_HEADER = 6, CODED_HEADER = 4, RICE_MAX = 18, LIST_MAX = 16384, ADACOMP8 = 35, ADACOMP16 = 36 };
enum { THREADS = 256 };

TG_DEVICE uint64_t bits_len(const tg_gpu_unit &u, uint64_t count)
{
    return ((count + u.group_n - 1) / u.group_n * u.group_bits + 7) / 8;
}

TG_DEVICE uint64_t side_len(const tg_gpu_unit &u, uint64_t count)
{
    if (u.plain_len != 0 || count == 0) {
        return 0;
    }
    return u.bucket_n == 0 ? u.side_len : (count + u.bucket_n - 1) / u.bucket_n * u.side_len;
}

TG_DEVICE uint64_t plain_len(const tg_gpu_unit &u, uint64_t count)
{
    return u.plain_len != 0 ? count * u.plain_len : bits_len(u, count);
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

/* The parts of a chunk of `count` values, from its start. Where values are coded, their end is set by the coder. */
TG_DEVICE tg_view lay_out(const tg_gpu_unit &u, uint32_t count)
{
    tg_view v = {};
    v.count = count;
    v.side = count > 0 ? u.header_len : u.coordinates == TG_GPU_AT_INDICES ? CHUNK_HEADER : 0;
    v.symbols = v.side + side_len(u, count);
    v.indices = v.symbols + (count > 0 && !u.coded ? plain_len(u, count) : 0);
    return v;
}

__global__ static void start_views(tg_gpu_pass p, bool sparse)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.chunk_n) {
        return;
    }
    const tg_gpu_chunk &chunk = p.chunks[p.first + i];
    const tg_gpu_unit &u = p.units[chunk.unit];
    tg_view *v = &p.space.views[p.first + i];
    bool is_sparse = u.coordinates != TG_GPU_AT_EVERY;
    if (u.route == TG_GPU_ROUTE_NONE) {
        *v = tg_view{};
    } else if (is_sparse == sparse) {
        *v = lay_out(u, sparse ? v->count : chunk.n);
    }
}

static unsigned blocks_of(uint64_t n)
{
    return (unsigned)((n + THREADS - 1) / THREADS);
}

void tg_gpu_start_views(const tg_gpu_pass *p)
{
    TG_LAUNCH(start_views, blocks_of(p->chunk_n), THREADS, p->stream, *p, false);
}

void tg_gpu_lay_out_sparse(const tg_gpu_pass *p)
{
    TG_LAUNCH(start_views, blocks_of(p->chunk_n), THREADS, p->stream, *p, true);
}

/* The first 8 bytes beside a chunk's values; offsets are from `start`. */
TG_DEVICE uint64_t first_bytes(const uint8_t *start, const tg_view *v)
{
    uint64_t side = 0;
    for (unsigned b = 0; b < 8 && v->side + b < v->symbols; b++) {
        side |= (uint64_t)start[v->side + b] << 8 * b;
    }
    return side;
}

__global__ static void end_chunks(tg_gpu_pass p, uint64_t *sides, tg_gpu_span *spans)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.chunk_n) {
        return;
    }
    unsigned number = p.first + i;
    const tg_gpu_unit &u = p.units[p.chunks[number].unit];
    tg_view *v = &p.space.views[number];
    uint8_t *out = p.space.out[number];
    v->len = (uint32_t)(v->indices + v->index_len);
    if (p.has_values && u.route != TG_GPU_ROUTE_NONE && u.coded && v->count > 0) {
        tg_store_bytes(out + u.header_len - CODED_HEADER, v->indices - v->symbols, CODED_HEADER);
    }
    sides[number] = first_bytes(out, v);
    spans[number] = tg_gpu_span{out, v->len};
}

void tg_gpu_end_chunks(const tg_gpu_pass *p, uint64_t *sides, tg_gpu_span *spans)
{
    TG_LAUNCH(end_chunks, blocks_of(p->chunk_n), THREADS, p->stream, *p, sides, spans);
}

__global__ static void read_sides(tg_gpu_pass p, uint64_t *sides, const uint8_t *body)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i < p.chunk_n) {
        const tg_view *v = &p.space.views[p.first + i];
        sides[p.first + i] = first_bytes(body, v);
    }
}

void tg_gpu_read_sides(const tg_gpu_pass *p, uint64_t *sides, const uint8_t *body)
{
    TG_LAUNCH(read_sides, blocks_of(p->chunk_n), THREADS, p->stream, *p, sides, body);
}

/* ---- places -------------------------------------------------------------------------------------------------------------- */

__global__ static void spans_of(tg_gpu_pass p, tg_gpu_span *spans, const uint8_t *body)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i < p.chunk_n) {
        const tg_view *v = &p.space.views[p.first + i];
        spans[p.first + i] = tg_gpu_span{body + v->start, v->len};
    }
}

void tg_gpu_spans_of(const tg_gpu_pass *p, tg_gpu_span *spans, const uint8_t *body)
{
    TG_LAUNCH(spans_of, blocks_of(p->chunk_n), THREADS, p->stream, *p, spans, body);
}

/* One block: the sum of the lengths of all chunks before each, THREADS chunks at a time. */
__global__ static void place_chunks(tg_gpu_pass p)
{
    __shared__ uint64_t ends[THREADS];
    uint64_t before = 0;
    for (unsigned from = 0; from < p.chunk_n; from += THREADS) {
        unsigned i = from + threadIdx.x;
        ends[threadIdx.x] = i < p.chunk_n ? p.space.views[p.first + i].len : 0;
        __syncthreads();
        for (unsigned by = 1; by < THREADS; by *= 2) {
            uint64_t other = threadIdx.x >= by ? ends[threadIdx.x - by] : 0;
            __syncthreads();
            ends[threadIdx.x] += other;
            __syncthreads();
        }
        if (i < p.chunk_n) {
            p.space.views[p.first + i].start = before + ends[threadIdx.x] - p.space.views[p.first + i].len;
        }
        before += ends[THREADS - 1];
        __syncthreads();
    }
}

void tg_gpu_place_chunks(const tg_gpu_pass *p)
{
    TG_LAUNCH(place_chunks, 1, THREADS, p->stream, *p);
}

/* ---- moving -------------------------------------------------------------------------------------------------------------- */

enum { TILE = 16384 }; /* bytes that a block moves */

/* Sources are aligned, destinations need not be: whole words are written where they can be. */
__global__ static void move(tg_gpu_pass p, const tg_gpu_span *spans, uint32_t tiles)
{
    unsigned number = p.first + blockIdx.x / tiles;
    uint64_t at = (uint64_t)(blockIdx.x % tiles) * TILE, len = spans[number].len;
    if (at >= len) {
        return;
    }
    uint64_t end = len - at < TILE ? len : at + TILE;
    const uint8_t *from = p.space.out[number];
    uint8_t *to = (uint8_t *)spans[number].bytes;
    uint64_t head = (8 - (uintptr_t)(to + at) % 8) % 8; /* bytes before the first whole word */
    head = head < end - at ? head : end - at;
    uint64_t words = (end - at - head) / 8, tail = at + head + 8 * words;
    if (threadIdx.x < head) {
        to[at + threadIdx.x] = from[at + threadIdx.x];
    }
    for (uint64_t w = threadIdx.x; w < words; w += THREADS) {
        uint64_t byte = at + head + 8 * w;
        *(uint64_t *)(void *)(to + byte) = tg_load64(from + byte);
    }
    if (tail + threadIdx.x < end) {
        to[tail + threadIdx.x] = from[tail + threadIdx.x];
    }
}

void tg_gpu_move(const tg_gpu_pass *p, const tg_gpu_span *spans)
{
    enum { CHUNK_LEN_MAX = 262144 * 5 };
    const uint32_t tiles = CHUNK_LEN_MAX / TILE;
    TG_LAUNCH(move, p->chunk_n * tiles, THREADS, p->stream, *p, spans, tiles);
}

/* ---- finding ------------------------------------------------------------------------------------------------------------- */

enum { BATCH = 128 }; /* chunks whose facts are loaded at a time */

/* What the way from a chunk to the next one needs to know, so that it waits for nothing but the body. */
typedef struct facts {
    tg_gpu_unit unit;
    uint32_t n, known_n;
} facts;

/* Finds the chunk at *at and moves on; false if it cannot be a chunk. As find_chunk of host_check.c. */
TG_DEVICE bool find_chunk(tg_view *v, const facts &f, bool has_values, const uint8_t *body, uint64_t *at, uint64_t end)
{
    const tg_gpu_unit &u = f.unit;
    *v = tg_view{};
    v->start = v->side = v->symbols = v->indices = *at;
    if (u.route == TG_GPU_ROUTE_NONE) {
        return true;
    }
    v->count = u.coordinates == TG_GPU_AT_EVERY ? f.n : f.known_n;
    if (u.coordinates == TG_GPU_AT_INDICES) {
        if (end - *at < CHUNK_HEADER) {
            return false;
        }
        uint32_t word = tg_load32(body + *at);
        v->index_len = (uint16_t)(body[*at + 4] | body[*at + 5] << 8);
        v->count = word & 0xffffffu;
        v->mode = (uint8_t)(word >> 24);
        v->is_joint = v->mode == ADACOMP8 || v->mode == ADACOMP16;
        v->is_listed = v->count <= LIST_MAX && v->mode <= RICE_MAX && u.index == TG_GPU_INDEX_GAPS;
        *at += CHUNK_HEADER;
        if (v->count > f.n || (v->count == 0 && (v->mode != 0 || v->index_len != 0))) {
            return false;
        }
    }
    uint64_t side = 0, symbols = 0;
    if (has_values && v->count > 0) {
        side = side_len(u, v->count);
        symbols = v->is_joint ? 0 : plain_len(u, v->count) + (u.coded ? 1 : 0); /* of coded ones the most */
        if (u.coded) {
            if (end - *at < CODED_HEADER || tg_load32(body + *at) > symbols) {
                return false;
            }
            symbols = tg_load32(body + *at);
            *at += CODED_HEADER;
        }
    }
    if (end - *at < side + symbols + v->index_len) {
        return false;
    }
    v->side = *at;
    v->symbols = v->side + side;
    v->indices = v->symbols + symbols;
    *at = v->indices + v->index_len;
    v->len = (uint32_t)(*at - v->start);
    return true;
}

/* One block. One thread goes from chunk to chunk, since where a chunk begins is known when the one before it was found. */
__global__ static void find(tg_gpu_pass p, const uint8_t *body, uint64_t len, const uint32_t *known_n)
{
    __shared__ facts known[BATCH];
    __shared__ tg_view views[BATCH];
    __shared__ uint32_t found; /* chunks; less than all before this batch: one cannot be a chunk */
    uint64_t at = 0;
    uint32_t first = 0;
    for (; first < p.chunk_n; first += BATCH) {
        uint32_t i = first + threadIdx.x, n = p.chunk_n - first < BATCH ? p.chunk_n - first : (uint32_t)BATCH;
        if (i < p.chunk_n) {
            const tg_gpu_chunk &chunk = p.chunks[p.first + i];
            known[threadIdx.x].unit = p.units[chunk.unit];
            known[threadIdx.x].n = chunk.n;
            known[threadIdx.x].known_n = known_n[i];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t k = 0;
            while (k < n && find_chunk(&views[k], known[k], p.has_values, body, &at, len)) {
                k++;
            }
            found = first + k;
        }
        __syncthreads();
        if (found < first + n) {
            break;
        }
        if (i < p.chunk_n) {
            p.space.views[p.first + i] = views[threadIdx.x];
        }
    }
    bool is_bad = p.chunk_n > 0 && found < p.chunk_n;
    if (__syncthreads_or(is_bad || (threadIdx.x == 0 && at != len))) { /* nothing of the body may be used */
        for (uint32_t k = threadIdx.x; k < p.chunk_n; k += BATCH) {
            p.space.views[p.first + k] = tg_view{};
        }
        if (threadIdx.x == 0) {
            tg_refuse_chunk(p, p.first + (is_bad ? found : p.chunk_n));
        }
    }
}

void tg_gpu_find(const tg_gpu_pass *p, const uint8_t *body, uint64_t len, const uint32_t *known_n)
{
    TG_LAUNCH(find, 1, BATCH, p->stream, *p, body, len, known_n);
}
