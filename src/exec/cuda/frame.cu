/* Chunks in bodies: offsets of their parts, finding them in a body that arrived, and moving them together. */
#include "exec/cuda/header.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/layout.h"
#include "exec/cuda/leaf.h"
#include "exec/cuda/load.h"
#include "exec/cuda/scan.h"

enum { THREADS = 256 };

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

__global__ static void start_views(tg_gpu_pass p)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    tg_after_previous();
    tg_next_may_begin();
    if (i >= p.chunk_n) {
        return;
    }
    const tg_gpu_chunk &chunk = p.chunks[p.first + i];
    const tg_gpu_unit &u = p.units[chunk.unit];
    tg_view *v = &p.space.views[p.first + i];
    if (u.route == TG_GPU_ROUTE_NONE) {
        *v = tg_view{};
    } else if (u.coordinates == TG_GPU_AT_EVERY) {
        *v = tg_gpu_lay_out(u, chunk.n);
    }
}

static unsigned blocks_of(uint64_t n)
{
    return (unsigned)((n + THREADS - 1) / THREADS);
}

void tg_gpu_start_views(const tg_gpu_pass *p)
{
    TG_LAUNCH_EARLY(start_views, p->overlaps, blocks_of(p->chunk_n), THREADS, p->stream, *p);
}

__global__ static void end_chunks(tg_gpu_pass p, uint64_t *sides, tg_gpu_span *spans)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.chunk_n) {
        return;
    }
    unsigned number = p.first + i;
    tg_view *v = &p.space.views[number];
    const uint8_t *out = p.space.out[number];
    v->len = (uint32_t)(v->indices + v->index_len);
    if (sides != nullptr) {
        sides[number] = tg_first_bytes(out, *v);
    }
    spans[number + p.chunks[number].cell + 1] = tg_gpu_span{out, v->len};
}

void tg_gpu_end_chunks(const tg_gpu_pass *p, uint64_t *sides, tg_gpu_span *spans)
{
    TG_LAUNCH(end_chunks, blocks_of(p->chunk_n), THREADS, p->stream, *p, sides, spans);
}

__global__ static void read_sides(tg_gpu_pass p, uint64_t *sides, const uint8_t *body)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    tg_next_may_begin();
    tg_after_previous();
    if (i < p.chunk_n) {
        const tg_view *v = &p.space.views[p.first + i];
        sides[p.first + i] = tg_first_bytes(body, *v);
    }
}

void tg_gpu_read_sides(const tg_gpu_pass *p, uint64_t *sides, const uint8_t *body)
{
    TG_LAUNCH_EARLY(read_sides, p->overlaps, blocks_of(p->chunk_n), THREADS, p->stream, *p, sides, body);
}

/* ---- places -------------------------------------------------------------------------------------------------------------- */

__global__ static void spans_of(tg_gpu_pass p, tg_gpu_span *spans, const uint8_t *body, uint64_t headers_len)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i < p.chunk_n) {
        const tg_view *v = &p.space.views[p.first + i];
        spans[1 + i] = tg_gpu_span{body + v->start, v->len};
    }
    if (i == 0) {
        spans[0] = tg_gpu_span{body, headers_len};
    }
}

void tg_gpu_spans_of(const tg_gpu_pass *p, tg_gpu_span *spans, const uint8_t *body, uint64_t headers_len)
{
    TG_LAUNCH(spans_of, blocks_of(p->chunk_n + 1), THREADS, p->stream, *p, spans, body, headers_len);
}

/* One block: where each chunk begins, PLACERS chunks at a time, and its header. */
enum { PLACERS = 1024 };

__global__ static void __launch_bounds__(PLACERS)
    place_chunks(tg_gpu_pass p, uint64_t *sides, tg_gpu_span *spans, uint8_t *body, uint64_t headers_len)
{
    uint64_t at = headers_len;
    tg_after_previous();
    tg_next_may_begin();
    if (threadIdx.x == 0) {
        spans[0] = tg_gpu_span{body, headers_len};
    }
    for (unsigned from = 0; from < p.chunk_n; from += PLACERS) {
        unsigned i = from + threadIdx.x, number = p.first + i;
        bool has = i < p.chunk_n;
        tg_view v = has ? p.space.views[number] : tg_view{};
        v.len = (uint32_t)(v.indices + v.index_len);
        uint64_t total = 0, before = tg_block_scan<uint64_t>(v.len, &total);
        if (has) {
            const tg_gpu_chunk &chunk = p.chunks[number];
            v.start = at + before;
            spans[1 + i] = tg_gpu_span{body + v.start, v.len};
            tg_put_header(body + chunk.header_at, p.units[chunk.unit], v);
            if (sides != nullptr) {
                sides[number] = tg_first_bytes(p.space.out[number], v);
            }
            v.side += v.start;
            v.symbols += v.start;
            v.indices += v.start;
            p.space.views[number] = v;
        }
        at += total;
    }
}

void tg_gpu_place_chunks(const tg_gpu_pass *p, uint64_t *sides, tg_gpu_span *spans, uint8_t *body, uint64_t headers_len)
{
    TG_LAUNCH_EARLY(place_chunks, p->overlaps, 1, PLACERS, p->stream, *p, sides, spans, body, headers_len);
}

/* ---- moving -------------------------------------------------------------------------------------------------------------- */

enum { MOVERS = 8 }; /* warps of a block */

/* `each` warps a span, a leaf at a time: headers are hashed, chunks moved and hashed. */
__global__ static void __launch_bounds__(MOVERS *TG_WARP, 3)
    move(tg_gpu_pass p, const tg_gpu_span *spans, uint64_t *hashes, uint32_t leaf_cap, uint32_t each)
{
    __shared__ uint4 leaves[MOVERS][TG_LEAF_VECTORS];
    uint32_t number = blockIdx.x * MOVERS + threadIdx.x / TG_WARP, span = number / each;
    tg_after_previous();
    if (span > p.chunk_n || (span == 0 && hashes == nullptr)) {
        return;
    }
    uint64_t len = spans[span].len;
    uint4 *leaf = leaves[threadIdx.x / TG_WARP];
    uint8_t *to = (uint8_t *)spans[span].bytes;
    const uint8_t *from = span == 0 ? to : p.space.out[p.first + span - 1]; /* headers stay where they are */
    for (uint64_t i = number % each; i == 0 || i * TG_LEAF_BYTES < len; i += each) {
        uint32_t n = (uint32_t)min(len - i * TG_LEAF_BYTES, (uint64_t)TG_LEAF_BYTES);
        uint64_t *hash = hashes == nullptr ? nullptr : hashes + span * (uint64_t)leaf_cap + i;
        tg_leaf_load(leaf, from + i * TG_LEAF_BYTES, n);
        tg_leaf_end(hash, to + i * TG_LEAF_BYTES, leaf, n);
    }
}

void tg_gpu_move(const tg_gpu_pass *p, const tg_gpu_span *spans, uint64_t *hashes, uint32_t leaf_cap)
{
    uint32_t each = tg_leaf_warps(p->chunk_n + 1, leaf_cap);
    TG_LAUNCH_EARLY(move, p->overlaps, ((p->chunk_n + 1) * each + MOVERS - 1) / MOVERS, MOVERS * TG_WARP, p->stream, *p,
                    spans, hashes, leaf_cap, each);
}

/* ---- finding ------------------------------------------------------------------------------------------------------------- */

/* One block: reads headers, and sums lengths to where chunks begin, FINDERS at a time. */
enum { FINDERS = 512 };

__global__ static void find(tg_gpu_pass p, tg_gpu_span *spans, const uint8_t *body, uint64_t len, uint64_t headers_len,
                            const uint32_t *known_n)
{
    __shared__ uint32_t bad; /* the first chunk that cannot be one */
    uint64_t at = headers_len;
    if (threadIdx.x == 0) {
        bad = p.chunk_n;
        spans[0] = tg_gpu_span{body, headers_len};
    }
    __syncthreads();
    for (uint32_t first = 0; first < p.chunk_n; first += FINDERS) {
        uint32_t i = first + threadIdx.x;
        tg_view v = {};
        bool has = i < p.chunk_n, is_one = true;
        if (has) {
            const tg_gpu_chunk &chunk = p.chunks[p.first + i];
            uint32_t known = known_n != nullptr ? known_n[i] : 0;
            is_one = tg_get_header(&v, body + chunk.header_at, p.units[chunk.unit], chunk.n, known, p.has_values);
        }
        uint64_t total = 0, start = at + tg_block_scan<uint64_t>(is_one ? v.len : 0, &total);
        if (!is_one || start + v.len > len) {
            atomicMin(&bad, i);
        }
        if (has) {
            v.start = start;
            v.side = start;
            v.symbols += start;
            v.indices += start;
            p.space.views[p.first + i] = v;
            spans[1 + i] = tg_gpu_span{body + v.start, v.len};
        }
        at += total;
    }
    __syncthreads();
    if (bad < p.chunk_n || at != len) { /* nothing of the body may be used */
        for (uint32_t i = threadIdx.x; i < p.chunk_n; i += FINDERS) {
            p.space.views[p.first + i] = tg_view{};
            spans[1 + i] = tg_gpu_span{body, 0};
        }
        if (threadIdx.x == 0) {
            tg_refuse_chunk(p, p.first + bad);
        }
    }
}

void tg_gpu_find(const tg_gpu_pass *p, tg_gpu_span *spans, const uint8_t *body, uint64_t len, uint64_t headers_len,
                 const uint32_t *known_n)
{
    TG_LAUNCH(find, 1, FINDERS, p->stream, *p, spans, body, len, headers_len, known_n);
}

/* ---- what the host is told ------------------------------------------------------------------------------------------------- */

/* One block, so that several small copies are one launch. */
__global__ static void __launch_bounds__(PLACERS) report(tg_gpu_pass p, tg_gpu_report r)
{
    tg_after_previous();
    for (uint32_t i = threadIdx.x; r.views != nullptr && i < p.chunk_n; i += PLACERS) {
        r.views[i] = p.space.views[p.first + i];
    }
    for (uint32_t i = threadIdx.x; r.hashes_to != nullptr && i < 1 + p.chunk_n; i += PLACERS) {
        r.hashes_to[i] = r.hashes[i];
    }
    for (uint32_t i = threadIdx.x; r.ends != nullptr && i < r.front_len + TG_GPU_CHECKSUM; i += PLACERS) {
        r.ends[i] = i < r.front_len ? r.frame[i] : r.frame[i + r.body_len];
    }
    if (threadIdx.x == 0 && r.verdict != nullptr) {
        *r.verdict = *p.verdict;
        *p.verdict = tg_gpu_verdict{};
    }
}

void tg_gpu_tell(const tg_gpu_pass *p, const tg_gpu_report *r)
{
    TG_LAUNCH_EARLY(report, p->overlaps, 1, PLACERS, p->stream, *p, *r);
}
