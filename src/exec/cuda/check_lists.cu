/* Checks a frame whose chunks are lists of coordinates and values, as far as kernels can, in one launch: every block finds all chunks by
 * itself, some read the coordinates of a chunk each, others hash leaves, and the last one of all judges the frame and tells the host. The
 * kernel after it adds, or does not (add_listed.cu). Frames of coded chunks are hashed and judged likewise; other kernels decode them. */
#include "exec/cuda/header.h"
#include "exec/cuda/index_modes.h"
#include "exec/cuda/known.h"
#include "exec/cuda/load.h"
#include "exec/cuda/spans.h"

enum {
    THREADS = TG_INDEX_THREADS,
    HASHERS = 8, /* warps of a block that hash */
    HASH_BLOCKS_MAX = 256,
    CODED_HASHERS = 4,     /* the same beside decoders, which leave little space on a multiprocessor */
    CODED_BLOCKS_MAX = 528 /* four a multiprocessor */
};

/* What a block does after that. */
template <unsigned WARPS> struct hashing {
    tg_found f;
    uint4 staged[WARPS][TG_LEAF_VECTORS]; /* leaves, all of whose words are loaded at once */
};

typedef struct own_chunk {
    tg_view view;
    uint32_t before; /* values of chunks before it */
    tg_gpu_ranges ranges;
} own_chunk;

/* The step of a frame, at any address. */
TG_DEVICE uint64_t step_of(const uint8_t *frame)
{
    return tg_load32(frame + TG_GPU_STEP_AT) | (uint64_t)tg_load32(frame + TG_GPU_STEP_AT + 4) << 32;
}

/* The view of chunk i from its start, by its header or, of a random block, by what is drawn; false: it cannot be one. */
TG_DEVICE bool view_of(tg_view *v, tg_gpu_ranges *ranges, const tg_gpu_pass &p, uint32_t i,
                       const uint8_t *frame, const uint8_t *body)
{
    const tg_gpu_chunk &chunk = p.chunks[p.first + i];
    const tg_gpu_unit &u = p.units[chunk.unit];
    uint32_t known = 0;
    if (u.coordinates == TG_GPU_AT_DRAWN && u.route != TG_GPU_ROUTE_NONE) {
        const tg_gpu_piece &last = p.pieces[u.piece_first + u.piece_n - 1];
        tg_gpu_block b = tg_block_at(p, u, chunk.unit, last.at + last.n, step_of(frame));
        known = tg_block_within(b, chunk);
        *ranges = tg_block_ranges(b, chunk);
    }
    return tg_get_header(v, body + chunk.header_at, u, chunk.n, known, p.has_values);
}

/* Finds all chunks of a body; `own` is that of chunk `number`, if there is one. Returns the first one that cannot be one, or
 * chunk_n if bytes are left over; 2^32 - 1: all are there. All threads. */
TG_DEVICE uint32_t find_all(tg_found &f, own_chunk &own, uint32_t number, const tg_gpu_pass &p,
                            const tg_gpu_ending &e, uint32_t front_len, uint64_t headers_len)
{
    __shared__ uint32_t bad;
    uint64_t at = headers_len, listed = (uint64_t)tg_leaves_of(headers_len) << 32; /* leaves and values */
    if (threadIdx.x == 0) {
        bad = p.chunk_n;
        f.leaf_first[0] = 0;
    }
    __syncthreads();
    TG_ROLL
    for (uint32_t from = 0; from < p.chunk_n; from += blockDim.x) {
        uint32_t i = from + threadIdx.x;
        tg_view v = {};
        tg_gpu_ranges ranges = {0, 0};
        bool has = i < p.chunk_n, is_one = !has || view_of(&v, &ranges, p, i, e.frame, e.frame + front_len);
        uint32_t own_len = is_one ? v.len : 0;
        bool is_sparse = has && p.units[p.chunks[p.first + i].unit].coordinates != TG_GPU_AT_EVERY;
        uint64_t start = own_len, before = (uint64_t)tg_leaves_of(own_len) << 32 | (is_sparse ? v.count : 0), total, all;
        tg_block_scan(&start, &total, &before, &all);
        start += at;
        before += listed;
        if (!is_one || start + v.len > e.body_len) {
            atomicMin(&bad, i);
        }
        if (has) {
            f.start[i] = start;
            f.leaf_first[1 + i] = (uint32_t)(before >> 32);
        }
        if (i == number) {
            v.start = v.side = start;
            v.symbols += start;
            v.indices += start;
            own = {v, (uint32_t)before, ranges};
        }
        at += total;
        listed += all;
    }
    if (threadIdx.x == 0) {
        f.start[p.chunk_n] = at;
        f.leaf_first[1 + p.chunk_n] = (uint32_t)(listed >> 32);
        if (number == 0) {
            p.space.list_first[p.chunk_n] = (uint32_t)listed;
        }
    }
    __syncthreads();
    return bad < p.chunk_n || at != e.body_len ? bad : 0xffffffffu;
}

/* ---- coordinates ----------------------------------------------------------------------------------------------------------- */

/* A chunk: its view, and its coordinates if the body has them. All threads. */
TG_DEVICE void read_chunk(tg_index_space &space, const own_chunk &own, const tg_gpu_pass &p, uint32_t i,
                          const uint8_t *body, uint64_t *words)
{
    uint32_t number = p.first + i;
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    tg_view v = own.view;
    bool has_indices = u.coordinates == TG_GPU_AT_INDICES && u.route != TG_GPU_ROUTE_NONE && v.count > 0;
    bool is_sound = !has_indices || tg_read_chunk(p, chunk, u, v, body, space);
    if (threadIdx.x > 0) {
        return;
    }
    if (!is_sound) {
        tg_refuse_chunk(p, number);
        v.count = 0;
    }
    p.space.views[number] = v;
    p.space.list_first[i] = own.before;
    p.space.ranges[number] = own.ranges;
    if (v.len == 0) { /* nobody hashes it */
        words[2 + i] = TG_HASH_OF_NOTHING;
    }
}

/* ---- hashes ------------------------------------------------------------------------------------------------------------------ */

/* The last leaf of a span makes the hash of that. Number 0 is what stands before the body, number 1 + i leaf i. IS_DIRECT: whole leaves are
 * hashed where they are, which is faster and takes more registers. All lanes of a warp. */
template <bool IS_DIRECT, unsigned WARPS>
TG_DEVICE void hash_some(hashing<WARPS> &h, const tg_gpu_ending &e, const tg_gpu_front &front, uint64_t headers_len,
                         uint32_t *leaves_done, uint32_t first, uint32_t step)
{
    uint4 *staged = h.staged[threadIdx.x / TG_WARP];
    uint32_t leaf_n = h.f.leaf_first[1 + e.chunk_n];
    TG_ROLL
    for (uint32_t i = first; i <= leaf_n; i += step) {
        if (i > 0) {
            tg_found_leaf l = tg_leaf_of(h.f, 1 + e.chunk_n, headers_len, i - 1);
            const uint8_t *bytes = e.frame + front.len + l.at;
            uint64_t hash = 0;
            if (IS_DIRECT && l.len == TG_LEAF_BYTES) {
                hash = tg_hash_whole(bytes);
            } else {
                tg_leaf_load(staged, bytes, l.len);
                hash = tg_hash_any((const uint8_t *)(const void *)staged, l.len);
            }
            tg_leaf_is_hashed((uint64_t *)(void *)staged, e, leaves_done, l, hash);
        } else {
            uint64_t hash = tg_hash_bytes((uint64_t *)(void *)staged, e.frame, front.len);
            if (threadIdx.x % TG_WARP == 0) {
                e.words[0] = hash;
                if (headers_len == 0) {
                    e.words[1] = TG_HASH_OF_NOTHING;
                }
            }
        }
        __syncwarp();
    }
}

/* ---- all of it -------------------------------------------------------------------------------------------------------------- */

/* To the host, by thread `first` of `step`: views, hashes, what stands around the body. */
TG_DEVICE void tell(const tg_gpu_pass &p, const tg_gpu_ending &e, const tg_gpu_front &front, const tg_gpu_telling &t,
                    uint32_t first, uint32_t step)
{
    TG_ROLL
    for (uint32_t i = first; i < p.chunk_n * (sizeof(tg_view) / 8); i += step) {
        ((uint64_t *)(void *)t.views)[i] = __ldcg((const uint64_t *)(const void *)(p.space.views + p.first) + i);
    }
    TG_ROLL
    for (uint32_t i = 1 + first; i < 2 + e.chunk_n; i += step) {
        t.words[i] = __ldcg(e.words + i);
    }
    TG_ROLL
    for (uint32_t i = first; i < front.len + TG_GPU_CHECKSUM; i += step) {
        t.ends[i] = i < front.len ? e.frame[i] : e.frame[i + e.body_len];
    }
}

/* All of the last block. Some warps hash while others tell. */
template <unsigned WARPS>
TG_DEVICE void conclude(hashing<WARPS> &h, const tg_gpu_pass &p, const tg_gpu_ending &e, const tg_gpu_front &front,
                        const tg_gpu_telling &t)
{
    const uint32_t FIRST = TG_CHECKSUM_WARPS * TG_WARP, step = blockDim.x - FIRST;
    bool differs = false;
    if (threadIdx.x >= FIRST) {
        differs = tg_front_differs(e.frame, front, threadIdx.x - FIRST, step);
        tell(p, e, front, t, threadIdx.x - FIRST, step);
    }
    uint64_t checksum = tg_checksum_of(e, h.staged);
    differs = __syncthreads_or(differs) != 0;
    bool is_sound = threadIdx.x == 0 && tg_judge(e, front, differs, checksum);
    tg_hand_over(e);
    tg_announce(e, is_sound);
}

/* A block a chunk, then blocks that hash. */
__global__ static void __launch_bounds__(THREADS, 2)
    check_lists(const __grid_constant__ tg_gpu_pass p, const __grid_constant__ tg_gpu_ending e,
                const __grid_constant__ tg_gpu_front front, const __grid_constant__ tg_gpu_telling t)
{
    __shared__ union {
        hashing<HASHERS> h;
        tg_index_space indices;
    } space;
    __shared__ own_chunk own;
    const uint8_t *body = e.frame + front.len;
    tg_after_previous();
    tg_next_may_begin();
    uint32_t bad = find_all(space.h.f, own, blockIdx.x, p, e, front.len, t.headers_len);
    if (bad != 0xffffffffu) { /* nothing of the body may be used */
        if (blockIdx.x < p.chunk_n && threadIdx.x == 0) {
            p.space.views[p.first + blockIdx.x] = tg_view{};
        }
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            tg_refuse_chunk(p, p.first + bad);
        }
    } else if (blockIdx.x < p.chunk_n) {
        read_chunk(space.indices, own, p, blockIdx.x, body, e.words);
    } else if (threadIdx.x < HASHERS * TG_WARP) {
        uint32_t warp = (blockIdx.x - p.chunk_n) * HASHERS + threadIdx.x / TG_WARP;
        hash_some<false>(space.h, e, front, t.headers_len, t.leaves_done, warp, (gridDim.x - p.chunk_n) * HASHERS);
    }
    if (!tg_block_is_last(e.done, tg_block_arrives(e.done), gridDim.x)) {
        return;
    }
    conclude(space.h, p, e, front, t);
}

void tg_gpu_check_lists(const tg_gpu_pass *p, const tg_gpu_ending *e, const tg_gpu_front *front, const tg_gpu_telling *t)
{
    uint64_t leaves = e->body_len / TG_LEAF_BYTES + p->chunk_n + 2, hash_blocks = (leaves + HASHERS - 1) / HASHERS;
    hash_blocks = hash_blocks < HASH_BLOCKS_MAX ? hash_blocks : (uint64_t)HASH_BLOCKS_MAX;
    TG_LAUNCH_EARLY(check_lists, p->overlaps, p->chunk_n + hash_blocks, THREADS, p->stream, *p, *e, *front, *t);
}

/* ---- coded chunks ----------------------------------------------------------------------------------------------------------- */

/* Chunks without bytes, which nobody hashes. */
TG_DEVICE void hash_nothing(const tg_found &f, const tg_gpu_ending &e)
{
    TG_ROLL
    for (uint32_t i = threadIdx.x; i < e.chunk_n; i += blockDim.x) {
        if (f.start[i] == f.start[i + 1]) {
            e.words[2 + i] = TG_HASH_OF_NOTHING;
        }
    }
}

/* Hashes a frame whose chunks are decoded by the kernel before this one, and judges it. Hashes need the frame alone, and what was before
 * that kernel, but for others that read the frame, had ended when it began: so they are computed while it decodes. Only the last block waits
 * for it, so that others make space for those after them; the kernel after this one begins when all is decoded. */
__global__ static void __launch_bounds__(CODED_HASHERS *TG_WARP, 6)
    check_coded(const __grid_constant__ tg_gpu_pass p, const __grid_constant__ tg_gpu_ending e,
                const __grid_constant__ tg_gpu_front front, const __grid_constant__ tg_gpu_telling t)
{
    __shared__ hashing<CODED_HASHERS> h;
    __shared__ own_chunk own; /* nobody's */
    uint32_t bad = find_all(h.f, own, 0xffffffffu, p, e, front.len, t.headers_len), warp = threadIdx.x / TG_WARP;
    if (bad == 0xffffffffu) { /* else tg_gpu_find has refused it */
        if (blockIdx.x == 0) {
            hash_nothing(h.f, e);
        }
        hash_some<true>(h, e, front, t.headers_len, t.leaves_done, blockIdx.x * CODED_HASHERS + warp,
                        gridDim.x * CODED_HASHERS);
    }
    if (tg_block_is_last(e.done, tg_block_arrives(e.done), gridDim.x)) {
        tg_after_previous();
        tg_next_may_begin();
        conclude(h, p, e, front, t);
    }
}

void tg_gpu_check_coded(const tg_gpu_pass *p, const tg_gpu_ending *e, const tg_gpu_front *front, const tg_gpu_telling *t)
{
    uint64_t leaves = e->body_len / TG_LEAF_BYTES + p->chunk_n + 2, blocks = (leaves + CODED_HASHERS - 1) / CODED_HASHERS;
    TG_LAUNCH_EARLY(check_coded, p->overlaps, blocks < CODED_BLOCKS_MAX ? blocks : (uint64_t)CODED_BLOCKS_MAX,
                    CODED_HASHERS * TG_WARP, p->stream, *p, *e, *front, *t);
}
