/* Moves the chunks of a body that were written aside to where they belong, in one launch: every block finds all places by itself, one
 * writes the headers, warps move and hash a leaf at a time, and the last block of all tells the host what it must know. Where chunks are in
 * their places already, they are hashed only, and the last block seals the frame. */
#include "exec/cuda/header.h"
#include "exec/cuda/scan.h"
#include "exec/cuda/spans.h"

enum { THREADS = 256, MOVERS = THREADS / TG_WARP, BLOCKS_MAX = 396 };

/* The length of a chunk that is written, by its view, whose offsets are from its start. */
TG_DEVICE uint32_t len_of(const tg_view &v)
{
    return (uint32_t)(v.indices + v.index_len);
}

/* All threads. */
TG_DEVICE void find_places(tg_found &f, const tg_gpu_pass &p, uint64_t headers_len)
{
    uint64_t at = headers_len;
    uint32_t leaf = tg_leaves_of(headers_len);
    TG_ROLL
    for (uint32_t from = 0; from < p.chunk_n; from += THREADS) {
        uint32_t i = from + threadIdx.x, len = i < p.chunk_n ? len_of(p.space.views[p.first + i]) : 0;
        uint64_t start = len, total;
        uint32_t before = tg_leaves_of(len), leaves;
        tg_block_scan(&start, &total, &before, &leaves);
        if (i < p.chunk_n) {
            f.start[i] = at + start;
            f.leaf_first[1 + i] = leaf + before;
        }
        at += total;
        leaf += leaves;
    }
    if (threadIdx.x == 0) {
        f.start[p.chunk_n] = at;
        f.leaf_first[0] = 0;
        f.leaf_first[1 + p.chunk_n] = leaf;
    }
    __syncthreads();
}

/* Headers of all chunks, by the first block; and what travels beside values, for statistics. */
TG_DEVICE void put_headers(const tg_gpu_pass &p, uint8_t *body, const tg_gpu_gathering &g, uint64_t *words)
{
    TG_ROLL
    for (uint32_t i = threadIdx.x; i < p.chunk_n; i += THREADS) {
        uint32_t number = p.first + i;
        const tg_gpu_chunk &chunk = p.chunks[number];
        tg_view v = p.space.views[number];
        tg_put_header(body + chunk.header_at, p.units[chunk.unit], v);
        if (g.sides != nullptr) {
            g.sides[number] = tg_first_bytes(p.space.out[number], v);
        }
        if (len_of(v) == 0) { /* nobody hashes it */
            words[2 + i] = TG_HASH_OF_NOTHING;
        }
    }
    __syncthreads();
}

/* The checksum and what stands before the body, by the last block. */
TG_DEVICE void seal(uint4 (&staged)[MOVERS][TG_LEAF_VECTORS], const tg_gpu_ending &e,
                    const tg_gpu_front &front, bool has_headers)
{
    uint8_t *frame = e.frame - front.len;
    if (threadIdx.x == 0) {
        e.words[0] = front.hash;
        if (!has_headers) {
            e.words[1] = TG_HASH_OF_NOTHING;
        }
    }
    TG_ROLL
    for (uint32_t i = threadIdx.x; i < front.len; i += THREADS) {
        frame[i] = i < TG_GPU_FRONT ? front.header[i] : front.description[i - TG_GPU_FRONT];
    }
    __syncthreads();
    uint64_t checksum = tg_checksum_of(e, staged);
    if (threadIdx.x == 0) {
        tg_store_bytes(e.frame + e.body_len, checksum, 8);
    }
}

/* The views of all chunks, by the last block: others need them as they were. */
TG_DEVICE void put_views(const tg_found &f, const tg_gpu_pass &p, tg_view *views_to)
{
    TG_ROLL
    for (uint32_t i = threadIdx.x; i < p.chunk_n; i += THREADS) {
        tg_view v = p.space.views[p.first + i];
        v.len = len_of(v);
        v.start = f.start[i];
        v.side += v.start;
        v.symbols += v.start;
        v.indices += v.start;
        p.space.views[p.first + i] = v;
        views_to[i] = v;
    }
}

__global__ static void __launch_bounds__(THREADS, 3)
    gather(const __grid_constant__ tg_gpu_pass p, const __grid_constant__ tg_gpu_ending e,
           const __grid_constant__ tg_gpu_gathering g, const __grid_constant__ tg_gpu_front front)
{
    __shared__ tg_found f;
    __shared__ uint4 staged[MOVERS][TG_LEAF_VECTORS];
    uint4 *own = staged[threadIdx.x / TG_WARP];
    uint8_t *body = e.frame;
    tg_after_previous();
    find_places(f, p, g.headers_len);
    if (blockIdx.x == 0) {
        put_headers(p, body, g, e.words);
    }
    const bool has_headers = blockIdx.x == 0; /* of others, one warp after the other takes what is moved, around all blocks */
    uint32_t others = gridDim.x - 1, of_headers = f.leaf_first[1], warp = threadIdx.x / TG_WARP;
    uint32_t first = has_headers ? warp : of_headers + warp * others + blockIdx.x - 1;
    uint32_t step = MOVERS * (has_headers ? 1 : others), leaf_n = f.leaf_first[has_headers ? 1 : 1 + p.chunk_n];
    TG_ROLL
    for (uint32_t i = first; i < leaf_n; i += step) {
        tg_found_leaf l = tg_leaf_of(f, 1 + p.chunk_n, g.headers_len, i);
        uint8_t *to = body + l.at;
        tg_leaf_load(own, l.span == 0 ? to : p.space.out[p.first + l.span - 1] + l.in_span, l.len);
        if (l.span > 0 && !g.seals) {
            tg_leaf_end(nullptr, to, own, l.len);
        }
        uint64_t hash = tg_hash_aligned(own, l.len);
        tg_leaf_is_hashed((uint64_t *)(void *)own, e, g.leaves_done, l, hash);
        __syncwarp();
    }
    if (!tg_block_is_last(e.done, tg_block_arrives(e.done), gridDim.x)) {
        return;
    }
    if (g.seals) {
        seal(staged, e, front, g.headers_len > 0);
        return;
    }
    put_views(f, p, g.views_to);
    TG_ROLL
    for (uint32_t i = 1 + threadIdx.x; i < 2 + p.chunk_n; i += THREADS) {
        g.words_to[i] = __ldcg(e.words + i);
    }
    tg_hand_over(e);
    tg_announce(e, true);
}

static void launch(const tg_gpu_pass *p, const tg_gpu_ending *e, const tg_gpu_gathering *g, const tg_gpu_front *front)
{
    uint64_t blocks = 2 + (uint64_t)p->chunk_n * e->leaf_cap / MOVERS;
    TG_LAUNCH_EARLY(gather, p->overlaps, blocks < BLOCKS_MAX ? blocks : (uint64_t)BLOCKS_MAX, THREADS, p->stream, *p, *e, *g,
                    *front);
}

void tg_gpu_gather(const tg_gpu_pass *p, const tg_gpu_ending *e, const tg_gpu_gathering *g)
{
    const tg_gpu_front none = {};
    launch(p, e, g, &none);
}

void tg_gpu_seal_places(const tg_gpu_pass *p, const tg_gpu_ending *e, const tg_gpu_gathering *g,
                        const tg_gpu_front *front)
{
    tg_gpu_gathering own = *g;
    own.seals = 1;
    launch(p, e, &own, front);
}
