/* Floats of a few bits, of whole tensors (minifloat.h): one kernel, which reads gradients and residuals once. A block has a part of a chunk:
 * gradient + residual goes to shared memory while moments are summed, and is rounded there when the step is known. The step is fitted to
 * a chunk: each block leaves the sums of its part, waits for those of the others, and fits the step itself. Then it takes a part of
 * another chunk, which it has found, and of which it has prefetched half, while it waited for the step.
 *
 * The blocks of a chunk are a cluster, so the GPU runs them at the same time, whatever else it runs.
 *
 * Symbols of whole bytes go to the frame, and its leaves are hashed; others to space.symbols, and those that are going to be coded are
 * counted. A warp rounds half of a tile, and hashes half of a leaf of the frame. */
#include "exec/cuda/pack.h"
#include "exec/cuda/round.h"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif
#include <stdlib.h>

enum { WARPS = 8, THREADS = WARPS * TG_WARP, FOUR = 4, TILE = TG_GPU_TILE, TILES = TG_GPU_PART_TILES, PART = TILES * TILE };
enum { LEAVES = PART / TG_LEAF_N, EACH = PART / WARPS /* values that a warp rounds */ };
enum { SIDE = 5 /* bytes that travel beside symbols */, LEAD = 8 /* bytes before the symbols of a warp */ };
enum { SYMBOLS = 256, BLOCKS = 3 /* of a multiprocessor */, AHEAD = 2 /* the warp that finds parts */ };
enum { EARLY = TILES / 2 /* tiles with residuals that are prefetched while a step is fitted: 64 KB a block, 25 MB in all */ };
enum { KEPT = 5 * TG_WARP /* vectors of a warp that its symbols may be in */ };
enum { TURN = 8192 /* cycles in which memory has the gradients and residuals of a third of all blocks, 17 MB */ };
static_assert((uint32_t)LEAVES == 2 * (uint32_t)WARPS, "a warp sums two leaves");
static_assert((uint32_t)TILE == 2 * (uint32_t)EACH && (uint32_t)TILE == TG_LEAF_BYTES,
              "two warps have a tile, and a leaf of the frame");
static_assert(KEPT * sizeof(float4) >= (uint32_t)LEAD + (uint32_t)EACH && KEPT <= TG_LEAF_N / FOUR,
              "what is copied early is no symbol, and a leaf");
static_assert((uint32_t)PART == 2 * (uint32_t)TG_PACK_TILE,
              "symbols of a part are counted as those of two tiles of packs");

/* What a block takes at a time. */
typedef struct hold_part {
    tg_round_tile tiles[TILES];
    uint32_t tile_n, n;     /* tiles and values */
    uint32_t number, parts; /* its number in the chunk; of the chunk */
} hold_part;

typedef struct hold_space {
    union {
        float values[PART];             /* gradient + residual */
        uint8_t bytes[WARPS][4 * EACH]; /* symbols of a warp, from byte LEAD on, where its values were */
    };
    union {
        uint32_t counts[WARPS * SYMBOLS];                  /* of each warp */
        struct {
            uint64_t added[TILES][TG_XXH_BLOCKS][TG_XXH_SUMS]; /* to the hash of each leaf of the frame */
            uint8_t rest[TG_LEAF_BYTES];                       /* the last leaf, which is not whole */
        };
    };
    tg_gpu_moments moments[LEAVES];
    tg_fit_shapes shapes;
    tg_round_step step;
    hold_part parts[2]; /* the one that the block has, and the next one */
    uint8_t *to;        /* where symbols go, or the bytes of the frame that are the part */
    uint32_t len;       /* of those bytes; they begin with what is SIDE bytes before the first symbol */
    uint32_t others;    /* symbols other than that of 0 */
    uint32_t shapes_of; /* the column of the table that `shapes` has, plus 1; 0: none */
    float before[SIDE]; /* gradient + residual before the part */
    bool is_plain;      /* next residuals can be stored four at a time */
} hold_space;

static_assert(BLOCKS * (sizeof(hold_space) + 1024) <= 228 * 1024,
              "so many blocks fit, with what CUDA reserves for each");

/* Prefetches what a tile is summed from. */
TG_DEVICE void prefetch_tile(const tg_round_tile &t)
{
    const tg_gpu_source &s = t.source;
    if (t.is_mine && tg_source_has(s)) {
        const bool is_float = s.floats != nullptr;
        tg_prefetch(is_float ? (const void *)s.floats : s.halves, (is_float ? 4 : 2) * t.tile->n);
    }
}

TG_DEVICE void prefetch_residuals(const tg_gpu_pass &p, const tg_round_tile &t)
{
    if (t.is_mine && t.has_residual && tg_source_has(t.source)) {
        tg_prefetch(p.now + t.source.residual_at, 4 * t.tile->n);
    }
}

/* Finds the tiles of a part, none if it is empty, and prefetches the first of them. One warp, before prefetch_rest. */
template <bool BY_LEAVES> TG_DEVICE void find_part(const tg_gpu_pass &p, uint32_t number, hold_part &to)
{
    uint32_t lane = threadIdx.x % TG_WARP;
    const tg_gpu_part part = p.parts[number];
    const uint32_t tile = part.tile - p.parts[0].tile;
    if (lane < part.tile_n) {
        const tg_round_tile t = tg_round_tile_of(p, p.tiles + (tile + lane), BY_LEAVES);
        to.tiles[lane] = t;
        if (lane < EARLY || !t.has_residual) {
            prefetch_tile(t);
            prefetch_residuals(p, t);
        }
    }
    if (lane == 0) {
        to.tile_n = part.tile_n;
    }
    __syncwarp();
    if (lane == 0 && part.tile_n > 0) {
        const tg_round_tile &t = to.tiles[0], &last = to.tiles[part.tile_n - 1];
        to.n = last.tile->from - t.tile->from + last.tile->n;
        to.number = t.tile->from / PART;
        to.parts = (t.tiles + TILES - 1) / TILES;
    }
}

/* Prefetches what find_part has not; by the same warp. */
TG_DEVICE void prefetch_rest(const tg_gpu_pass &p, const hold_part &part)
{
    uint32_t lane = threadIdx.x % TG_WARP;
    if (lane >= EARLY && lane < part.tile_n && part.tiles[lane].has_residual) {
        prefetch_tile(part.tiles[lane]);
        prefetch_residuals(p, part.tiles[lane]);
    }
}

/* ---- gradients ------------------------------------------------------------------------------------------------------------ */

/* Whether this warp's values of a part are copied to shared memory while something else is done: whole vectors of floats in place. */
TG_DEVICE bool is_copied(const hold_part &part)
{
    const uint32_t k = threadIdx.x / TG_WARP / 2, half = threadIdx.x / TG_WARP % 2;
    const tg_round_tile &t = part.tiles[k];
    return k < part.tile_n && t.is_mine && t.source.floats != nullptr && (half + 1) * EACH <= t.tile->n;
}

/* Begins to copy vectors [from, end) of them. */
TG_DEVICE void copy_ahead(const hold_part &part, hold_space &space, uint32_t from, uint32_t end)
{
    const uint32_t warp = threadIdx.x / TG_WARP, lane = threadIdx.x % TG_WARP;
    if (is_copied(part)) {
        const float4 *floats = part.tiles[warp / 2].source.floats + warp % 2 * (EACH / FOUR);
        float4 *to = (float4 *)(void *)(space.values + warp * EACH);
        TG_UNROLL
        for (uint32_t v = from; v < end; v += TG_WARP) {
            TG_COPY_ASYNC(to + v + lane, floats + v + lane, sizeof *to);
        }
    }
    TG_COMMIT_COPIES();
}

/* Waits for the copies of this warp, all of them or all but those that began last. */
TG_DEVICE void await_copies(bool all)
{
    if (all) {
        TG_WAIT_COPIES(0);
    } else {
        TG_WAIT_COPIES(1);
    }
    __syncwarp();
}

/* The moments of a leaf of a tile whose gradients were copied to `values`; residuals are added there. Lane 0 has them. */
TG_DEVICE tg_gpu_moments sum_copied(const tg_gpu_pass &p, const tg_round_tile &t, uint32_t leaf, float *values, bool all)
{
    const uint32_t from = leaf * TG_LEAF_N + threadIdx.x % TG_WARP;
    const float *now = p.now + t.source.residual_at + from, decay = t.decay;
    float *held = values + from;
    tg_gpu_moments m = {0, 0, 0};
    if (t.has_residual) {
        float old[TG_LANE_N];
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            old[k] = __ldcs(now + 32 * k);
        }
        await_copies(all);
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            const float v = held[32 * k] + decay * old[k];
            tg_add_moments(m, v);
            held[32 * k] = v;
        }
    } else {
        await_copies(all);
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            tg_add_moments(m, held[32 * k]);
        }
    }
    if (!(m.magnitudes < (double)INFINITY)) {
        m = tg_sum_slowly<true>(p, t, leaf, values);
    }
    return tg_fold_moments(m);
}

/* ---- the step ------------------------------------------------------------------------------------------------------------ */

/* The sum of n neighbours of a tree, one a lane, at most 16; lane 0 has it. */
TG_DEVICE double tree_of_lanes(double sum, uint32_t n)
{
    uint32_t lane = threadIdx.x % TG_WARP;
    TG_UNROLL
    for (uint32_t half = 1; half < 16; half *= 2) {
        double other = __shfl_down_sync(TG_ALL_LANES, sum, half);
        sum = lane % (2 * half) == 0 && lane + half < n ? sum + other : sum;
    }
    return sum;
}

/* A warp sums the leaves that it rounds, the second one first: all of that may be copied before the part before is done with. */
TG_DEVICE void sum_part(const tg_gpu_pass &p, const hold_part &part, hold_space &space, bool is_ahead)
{
    const uint32_t warp = threadIdx.x / TG_WARP, k = warp / 2;
    if (threadIdx.x == 0) {
        space.step.rounding.f = tg_minifloat_of(*part.tiles[0].u);
        space.others = 0;
    }
    if (!is_ahead) {
        copy_ahead(part, space, KEPT, EACH / FOUR);
    }
    copy_ahead(part, space, 0, KEPT);
    const bool copied = is_copied(part);
    TG_ROLL
    for (uint32_t turn = 0; turn < 2; turn++) {
        const uint32_t leaf = 2 * warp + 1 - turn, in_tile = leaf % (LEAVES / TILES);
        if (k < part.tile_n && in_tile * TG_LEAF_N < part.tiles[k].tile->n) {
            float *values = space.values + k * (uint32_t)TILE;
            const tg_gpu_moments m = copied ? sum_copied(p, part.tiles[k], in_tile, values, turn > 0)
                                            : tg_round_sum<true>(p, part.tiles[k], in_tile, values);
            if (threadIdx.x % TG_WARP == 0) {
                space.moments[leaf] = m;
            }
        }
    }
}

/* Finds where symbols of the part go, and loads the values before it whose symbols are in its first leaf of the frame. Another block rounds
 * those, too. One warp, while another one fits the step. */
template <bool BY_LEAVES> TG_DEVICE void find_place(const tg_gpu_pass &p, const hold_part &part, hold_space &space)
{
    const tg_round_tile &t = part.tiles[0];
    uint32_t lane = threadIdx.x % TG_WARP;
    if (BY_LEAVES && part.number > 0 && lane < SIDE) {
        const tg_gpu_piece *piece;
        float g;
        space.before[lane] = tg_round_load(&g, &piece, p, t, (int)lane - SIDE);
    }
    if (lane == 0) {
        const tg_gpu_chunk &chunk = *t.chunk;
        const uint32_t from = t.tile->from, planes = t.u->planes;
        space.to = BY_LEAVES ? p.space.out[t.tile->chunk] + from : p.space.symbols + 2 * chunk.element_at + from;
        space.len = from + part.n == chunk.n ? chunk.len - from : part.n;
        space.is_plain = planes == 0 || (planes == 1 && t.source.residual_at % FOUR == 0);
    }
}

/* Brings the table to the cache of constants, which has no line of it when a kernel begins. Two warps, while a part is found. */
TG_DEVICE void touch_shapes(const tg_shape_table &shapes)
{
    for (uint32_t i = threadIdx.x; i < TG_SHAPE_N; i += AHEAD * TG_WARP) {
        TG_LOADED(__double_as_longlong(shapes.rho[i]));
        TG_LOADED(__double_as_longlong(shapes.reach[TG_SHAPE_FP8][i]));
    }
}

/* Whether the sums of a part are there. */
TG_DEVICE bool look_at(tg_gpu_node &node, const volatile tg_gpu_node *at)
{
    node.magnitudes = at->magnitudes;
    node.squares = at->squares;
    node.count = at->count;
    return node.magnitudes != 0 && node.squares != 0 && node.count != 0;
}

/* Tells the sums of the part, waits for those of all parts of the chunk, and fits the step. One warp. */
TG_DEVICE void fit_step(const tg_gpu_pass &p, const tg_shape_table &shapes, const hold_part &part, hold_space &space)
{
    const uint64_t sign = 1ull << 63; /* of numbers that are not negative; it says that they are there */
    const tg_round_tile &t = part.tiles[0];
    const tg_gpu_minifloat f = space.step.rounding.f;
    uint32_t lane = threadIdx.x % TG_WARP, parts = part.parts, n = (part.n + TG_LEAF_N - 1) / TG_LEAF_N;
    tg_gpu_moments m = {0, 0, 0};
    if (lane < n) {
        m = space.moments[lane];
    }
    m.magnitudes = tree_of_lanes(m.magnitudes, n);
    m.squares = tree_of_lanes(m.squares, n);
    m.count = __reduce_add_sync(TG_ALL_LANES, m.count);
    tg_gpu_fit kept = {0, 0};
    if (lane == 0) {
        if (t.u->refit > 0) { /* read before the first part, which has seen these sums, may replace it in place */
            kept = tg_fit_kept(p, *t.u, *t.chunk);
            __threadfence();
        }
        volatile tg_gpu_node *own = &t.progress->nodes[part.number];
        own->magnitudes = (uint64_t)__double_as_longlong(m.magnitudes) | sign;
        own->squares = (uint64_t)__double_as_longlong(m.squares) | sign;
        own->count = m.count + 1ull;
    }
    if (space.shapes_of != f.in_shapes + 1) { /* meanwhile */
        tg_fit_load_shapes(space.shapes, shapes, f, lane, TG_WARP);
    }
    __syncwarp();
    tg_gpu_node node = {0, 0, 1};
    TG_AWAIT(__all_sync(TG_ALL_LANES, lane >= parts || look_at(node, &t.progress->nodes[lane])));
    double magnitudes = tree_of_lanes(__longlong_as_double((long long)(node.magnitudes & ~sign)), parts);
    double squares = tree_of_lanes(__longlong_as_double((long long)(node.squares & ~sign)), parts);
    uint32_t count = __reduce_add_sync(TG_ALL_LANES, (uint32_t)node.count - 1);
    bool is_last = false;
    if (lane == 0) { /* the last one to have seen them clears them */
        is_last = atomicAdd(&t.progress->rounded, 1u) + 1 == parts;
    }
    magnitudes = __shfl_sync(TG_ALL_LANES, magnitudes, 0);
    squares = __shfl_sync(TG_ALL_LANES, squares, 0);
    tg_gpu_fit fit = tg_fit_sums(f, magnitudes, squares, count, space.shapes);
    __syncwarp();
    if (lane == 0) {
        space.shapes_of = f.in_shapes + 1;
        fit = tg_fit_chosen(fit, kept);
        space.step.rounding = tg_rounding_of(f, fit.step);
        space.step.shape = fit.shape;
        if (part.number == 0) {
            uint8_t *side = p.space.out[t.tile->chunk] + p.space.views[t.tile->chunk].side;
            tg_store_float(side, fit.step);
            side[4] = fit.shape;
            tg_fit_keep(p, *t.u, *t.chunk, fit);
        }
    }
    if (__any_sync(TG_ALL_LANES, is_last)) {
        if (lane < parts) {
            t.progress->nodes[lane] = {0, 0, 0};
        }
        t.progress->rounded = 0;
    }
}

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

/* The first n fours of this warp's values, with a step for which rounding is fast. Symbols may go to where the values are: a turn loads all
 * of its values before it writes, and writes less far than it has loaded. */
template <bool HAS_RESIDUAL>
TG_DEVICE void round_fours(const tg_rounded &to, uint32_t *counts, float4 *next, const hold_space &space,
                           const float4 *held, uint32_t n)
{
    enum { BATCH = 4 };
    const tg_rounding r = space.step.rounding;
    const uint32_t lane = threadIdx.x % TG_WARP;
    TG_ROLL
    for (uint32_t first = 0; first < n; first += BATCH * TG_WARP) {
        float4 loaded[BATCH];
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            loaded[b] = held[first + b * TG_WARP + lane];
        }
        __syncwarp();
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            const uint32_t i = first + b * TG_WARP + lane;
            if (i < n) {
                const float v[FOUR] = {loaded[b].x, loaded[b].y, loaded[b].z, loaded[b].w};
                const uint32_t symbols = r.round_four(v);
                TG_UNROLL
                for (uint32_t k = 0; k < FOUR; k++) {
                    tg_round_count(counts, symbols >> 8 * k & 0xffu, r.f.zero);
                }
                tg_round_put_four<HAS_RESIDUAL>(to, next, space.step.table, i, v, symbols);
            }
        }
    }
}

/* The values of this warp; the symbol of the first goes to to.bytes[0]. If rounding is fast, all values are finite: otherwise the step would
 * be NaN. */
TG_DEVICE void round_values(const tg_rounded &to, uint32_t *counts, const tg_gpu_pass &p, const hold_part &part,
                            const hold_space &space)
{
    const uint32_t warp = threadIdx.x / TG_WARP, lane = threadIdx.x % TG_WARP, before = warp * EACH;
    const uint32_t n = min(part.n - min(part.n, before), (uint32_t)EACH);
    const uint32_t fours = space.is_plain && space.step.rounding.is_fast ? n / FOUR : 0;
    const float4 *held = (const float4 *)(const void *)(space.values + before);
    float4 *next = (float4 *)(void *)(p.next + part.tiles[0].source.residual_at + before);
    if (part.tiles[0].has_residual) {
        round_fours<true>(to, counts, next, space, held, fours);
    } else {
        round_fours<false>(to, counts, next, space, held, fours);
    }
    if (FOUR * fours < n) {
        const int from = (int)(before % TILE);
        tg_round_slowly(to.bytes - from, counts, p, part.tiles[before / TILE], space.step,
                        from + (int)(FOUR * fours + lane), from + (int)n, TG_WARP);
    }
}

/* Byte i of the SIDE bytes before the symbols of this warp. */
TG_DEVICE uint8_t byte_before(const hold_part &part, const hold_space &space, uint32_t i)
{
    const uint32_t warp = threadIdx.x / TG_WARP;
    return warp > 0          ? space.bytes[warp - 1][LEAD + EACH - SIDE + i]
           : part.number == 0 ? tg_round_beside(space.step, i)
                             : (uint8_t)space.step.rounding.round(space.before[i]);
}

/* Copies `len` bytes from any place in shared memory to any place in memory: a warp, whose stores are lines. Words around them are read. */
TG_DEVICE void copy_out(uint8_t *to, const uint8_t *shared, uint32_t len)
{
    enum { AT_ONCE = 6 }; /* three turns for the 512 words of a warp, wherever they begin in a line */
    const uint32_t lane = threadIdx.x % TG_WARP, head = min((uint32_t)(0 - (uintptr_t)to) % 4, len);
    const uint32_t words = (len - head) / 4, tail = head + 4 * words;
    if (lane < head) {
        to[lane] = shared[lane];
    }
    if (lane < len - tail) {
        to[tail + lane] = shared[tail + lane];
    }
    const uint32_t skipped = (uint32_t)((uintptr_t)(shared + head) % 4),
                   in_line = (uint32_t)((uintptr_t)(to + head) / 4) % TG_WARP;
    const uint32_t *from = (const uint32_t *)(const void *)(shared + head - skipped);
    for (int first = (int)lane - (int)in_line; first < (int)words; first += AT_ONCE * (int)TG_WARP) {
        uint32_t word[AT_ONCE];
        TG_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = min(max(first + k * (int)TG_WARP, 0), (int)words - 1);
            word[k] = __funnelshift_r(from[i], from[i + 1], 8 * skipped);
        }
        TG_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = first + k * (int)TG_WARP;
            if (i >= 0 && i < (int)words) {
                ((uint32_t *)(void *)(to + head))[i] = word[k];
            }
        }
    }
}

/* What this warp's bytes add to the hash of their leaf, which is whole. */
TG_DEVICE void hash_half(hold_space &space)
{
    enum { HALF = TG_XXH_VECTORS / 2, SHIFT = 8 * (LEAD - SIDE) };
    const uint32_t warp = threadIdx.x / TG_WARP, lane = threadIdx.x % TG_WARP;
    const uint4 *held = (const uint4 *)(const void *)space.bytes[warp];
    uint4 vectors[HALF];
    TG_UNROLL
    for (uint32_t k = 0; k < HALF; k++) {
        const uint4 *at = held + k * TG_WARP + lane;
        const uint4 v = *at;
        const uint32_t after = *(const uint32_t *)(const void *)(at + 1);
        vectors[k] = make_uint4(__funnelshift_r(v.x, v.y, SHIFT), __funnelshift_r(v.y, v.z, SHIFT),
                                __funnelshift_r(v.z, v.w, SHIFT), __funnelshift_r(v.w, after, SHIFT));
    }
    tg_hash_half(space.added[warp / 2] + warp % 2 * (TG_XXH_BLOCKS / 2), vectors, warp % 2 == 1);
}

/* Symbols of the part to shared memory, where its values are. */
TG_DEVICE void round_to_bytes(const tg_gpu_pass &p, const hold_part &part, hold_space &space)
{
    round_values({space.bytes[threadIdx.x / TG_WARP] + LEAD, true}, nullptr, p, part, space);
}

/* From there to the leaves of the frame that are the part. The last one may be shorter than others, or SIDE bytes after four whole ones. */
TG_DEVICE void end_leaves(const hold_part &part, hold_space &space, uint64_t *hashes)
{
    const uint32_t warp = threadIdx.x / TG_WARP, lane = threadIdx.x % TG_WARP, from = warp * EACH;
    const uint32_t len = space.len, end = warp + 1 < WARPS ? min(len, from + EACH) : len;
    const uint32_t whole = len / TG_LEAF_BYTES, in_leaf = from / TG_LEAF_BYTES;
    uint8_t *bytes = space.bytes[warp] + LEAD - SIDE;
    if (lane < SIDE) {
        bytes[lane] = byte_before(part, space, lane);
    }
    __syncwarp();
    if (from < end) {
        copy_out(space.to + from, bytes, end - from);
    }
    if (in_leaf < whole) {
        hash_half(space);
    }
    for (uint32_t i = max(from, whole * TG_LEAF_BYTES) + lane; i < end; i += TG_WARP) {
        space.rest[i - whole * TG_LEAF_BYTES] = bytes[i - from];
    }
    __syncthreads();
    if (warp == 0) { /* eight lanes have a leaf */
        const uint32_t leaf = lane / TG_XXH_SUMS;
        uint64_t added[TG_XXH_BLOCKS];
        TG_UNROLL
        for (uint32_t b = 0; b < TG_XXH_BLOCKS; b++) {
            added[b] = space.added[leaf][b][tg_xxh_word()];
        }
        uint64_t hashed = tg_hash_blocks(added);
        if (leaf < whole && lane % TG_XXH_SUMS == 0) {
            hashes[leaf] = hashed;
        }
    } else if (warp == 1 && len % TG_LEAF_BYTES != 0) {
        uint64_t hashed = tg_hash_any(space.rest, len % TG_LEAF_BYTES);
        if (lane == 0) {
            hashes[whole] = hashed;
        }
    }
}

/* Symbols of the part to space.symbols; with COUNTS, each warp counts its own. */
template <bool COUNTS> TG_DEVICE void round_to_symbols(const tg_gpu_pass &p, const hold_part &part, hold_space &space)
{
    const uint32_t warp = threadIdx.x / TG_WARP;
    uint8_t *bytes = space.to + warp * EACH;
    round_values({bytes, (uintptr_t)bytes % FOUR == 0}, COUNTS ? space.counts + warp * SYMBOLS : nullptr, p, part, space);
}

/* Adds up the counts of warps, to those of the first tile of packs in the part; the other one has none. */
TG_DEVICE void end_counts(const tg_gpu_pass &p, const hold_part &part, hold_space &space)
{
    const tg_round_tile &t = part.tiles[0];
    const uint32_t n = part.n, s = threadIdx.x, zero = space.step.rounding.f.zero;
    uint16_t *counts = tg_pack_scratch_of(p, p.space.scratch, t.tile->chunk).counts + 2 * part.number * TG_PACK_BASE;
    uint32_t own = 0;
    __syncthreads();
    TG_UNROLL
    for (uint32_t w = 0; w < WARPS; w++) {
        own += space.counts[w * SYMBOLS + s];
    }
    uint32_t of_warp = __reduce_add_sync(TG_ALL_LANES, own);
    if (s % TG_WARP == 0) {
        atomicAdd(&space.others, of_warp);
    }
    __syncthreads();
    if (s < t.u->base) {
        counts[s] = (uint16_t)(s == zero ? n - space.others : own);
        if (n > TG_PACK_TILE) {
            counts[TG_PACK_BASE + s] = 0;
        }
    }
}
static_assert((uint32_t)SYMBOLS == (uint32_t)THREADS, "a thread a symbol");

/* Sums the part, fits its step, and finds the block's next part meanwhile, number `next`, if there is one. */
template <bool BY_LEAVES>
TG_DEVICE void begin_part(const tg_gpu_pass &p, const tg_shape_table &shapes, const hold_part &part, hold_part &after,
                          uint32_t next, bool is_ahead, hold_space &space)
{
    const uint32_t warp = threadIdx.x / TG_WARP;
    sum_part(p, part, space, is_ahead);
    __syncthreads();
    if (warp == 1) {
        find_place<BY_LEAVES>(p, part, space);
    }
    if (BY_LEAVES && p.next == p.now) {
        __syncthreads(); /* once it has this part's sums, the part before overwrites residuals that find_place reads */
    }
    if (warp == 0) {
        fit_step(p, shapes, part, space);
    } else if (warp == AHEAD && next < p.part_n) {
        find_part<BY_LEAVES>(p, next, after);
    }
    __syncthreads();
    if (part.tiles[0].has_residual) {
        for (uint32_t s = threadIdx.x; s < part.tiles[0].u->base; s += THREADS) {
            space.step.table[s] = tg_minifloat_value(space.step.rounding.f, space.step.rounding.step, s);
        }
        __syncthreads();
    }
}

/* All of a part that is this kernel's. */
template <bool BY_LEAVES>
TG_DEVICE void take_part(const tg_gpu_pass &p, const tg_shape_table &shapes, const hold_part &part, hold_part &after,
                         uint32_t next, bool is_ahead, hold_space &space, uint64_t *hashes, uint32_t leaf_cap)
{
    const tg_round_tile &t = part.tiles[0];
    const uint32_t warp = threadIdx.x / TG_WARP;
    const bool counts = !BY_LEAVES && p.counts_early != 0 && t.u->coded != 0;
    if (counts) {
        for (uint32_t i = threadIdx.x; i < WARPS * SYMBOLS; i += THREADS) {
            space.counts[i] = 0;
        }
    }
    begin_part<BY_LEAVES>(p, shapes, part, after, next, is_ahead, space);
    if (BY_LEAVES) {
        round_to_bytes(p, part, space);
    } else if (counts) {
        round_to_symbols<true>(p, part, space);
    } else {
        round_to_symbols<false>(p, part, space);
    }
    if (next < p.part_n) {
        __syncwarp(); /* its values are rounded */
        copy_ahead(after, space, KEPT, EACH / FOUR);
        if (warp == AHEAD) {
            prefetch_rest(p, after);
        }
    }
    if (BY_LEAVES) {
        const tg_gpu_tile &first = *t.tile;
        __syncthreads();
        end_leaves(part, space, hashes + (uint64_t)(first.chunk - p.first) * leaf_cap + first.from / TG_LEAF_BYTES);
    } else if (counts) {
        end_counts(p, part, space);
    }
}

/* Blocks that begin together would load, wait and write together, and so they would go on, with memory idle while all of them wait. So of three
 * clusters side by side the second one begins when the first has loaded its parts, and the third after that: that is no later than memory
 * would have served them. Only where blocks have several parts. */
TG_DEVICE void begin_in_turn(const tg_gpu_pass &p)
{
#if defined(__CUDA_ARCH__)
    const uint32_t turn = blockIdx.x / TG_GPU_PARTS % BLOCKS, cycles = p.has_residuals ? TURN : TURN / 2;
    if (p.part_n > gridDim.x && turn > 0) {
        for (const long long begin = clock64(); clock64() - begin < (long long)(turn * cycles);) {
            __nanosleep(100);
        }
    }
#else
    (void)p;
#endif
}

/* A block has every gridDim.x-th part; that is a multiple of the parts of a chunk. */
template <bool BY_LEAVES>
__global__ static void __launch_bounds__(THREADS, BLOCKS)
    hold_parts(const __grid_constant__ tg_gpu_pass p, const __grid_constant__ tg_shape_table shapes, uint64_t *hashes,
               uint32_t leaf_cap)
{
    hold_space &space = *(hold_space *)tg_dynamic_shared();
    const uint32_t warp = threadIdx.x / TG_WARP;
    tg_next_may_begin();
    begin_in_turn(p);
    if (warp == AHEAD) {
        find_part<BY_LEAVES>(p, blockIdx.x, space.parts[0]);
        prefetch_rest(p, space.parts[0]);
    } else if (warp < AHEAD) {
        touch_shapes(shapes);
        space.shapes_of = 0;
    }
    uint32_t slot = 0;
    bool is_ahead = false; /* gradients of the part are being copied */
    TG_ROLL
    for (uint32_t number = blockIdx.x; number < p.part_n; number += gridDim.x, slot = 1 - slot) {
        const hold_part &part = space.parts[slot];
        hold_part &after = space.parts[1 - slot];
        const uint32_t next = number + gridDim.x;
        __syncthreads(); /* the part is found, and the block is done with the one before */
        if (part.tile_n > 0 && part.tiles[0].is_mine) {
            take_part<BY_LEAVES>(p, shapes, part, after, next, is_ahead, space, hashes, leaf_cap);
            is_ahead = true;
            continue;
        }
        if (warp == AHEAD && next < p.part_n) {
            find_part<BY_LEAVES>(p, next, after);
            prefetch_rest(p, after);
        }
        is_ahead = false;
    }
}

/* ---- launches ------------------------------------------------------------------------------------------------------------ */

#if defined(__CUDACC__)
/* How many clusters of a kernel the GPU that is current runs at once; 0 if it has no clusters of that size. */
template <class Kernel> static int clusters_at_once(Kernel *kernel)
{
    cudaLaunchAttribute cluster;
    cudaLaunchConfig_t config =
        tg_config_together(&cluster, TG_GPU_PARTS, TG_GPU_PARTS, THREADS, sizeof(hold_space), nullptr);
    int device = 0, major = 0, n = 0;
    bool can = cudaGetDevice(&device) == cudaSuccess &&
               cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 9 &&
               cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(hold_space)) ==
                   cudaSuccess &&
               cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared) == cudaSuccess &&
               cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess &&
               cudaOccupancyMaxActiveClusters(&n, kernel, &config) == cudaSuccess;
    if (!can) {
        (void)cudaGetLastError();
    }
    return can ? n : 0;
}

static int clusters(void)
{
    const int least = 4; /* with fewer it would not pay */
    const int symbols = clusters_at_once(hold_parts<false>), leaves = clusters_at_once(hold_parts<true>);
    const int n = symbols < leaves ? symbols : leaves;
    return n >= least ? n : 0;
}
#else
static int clusters(void)
{
    return 2; /* few, so that blocks of tests have several parts */
}
#endif

extern "C" uint32_t tg_gpu_blocks_that_hold(void)
{
    const char *wanted = getenv("TG_HOLD");
    return wanted != nullptr && wanted[0] == '0' ? 0 : (uint32_t)TG_GPU_PARTS * (uint32_t)clusters();
}

void tg_launch_hold_tiles(const tg_gpu_pass *p)
{
    TG_LAUNCH_TOGETHER(hold_parts<false>, TG_GPU_PARTS, min(p->part_n, p->part_blocks), THREADS, sizeof(hold_space),
                       p->stream, *p, tg_shapes_for_kernels(), nullptr, 0u);
}

void tg_launch_hold_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    TG_LAUNCH_TOGETHER(hold_parts<true>, TG_GPU_PARTS, min(p->part_n, p->part_blocks), THREADS, sizeof(hold_space),
                       p->stream, *p, tg_shapes_for_kernels(), hashes, leaf_cap);
}
