/* Parts of chunks that blocks hold in shared memory (hold.cu): finding them, copying gradients there, moments, and the step that is fitted to a
 * chunk. Only hold.cu includes it. */
#ifndef TG_EXEC_CUDA_HOLD_H
#define TG_EXEC_CUDA_HOLD_H

#include "exec/cuda/pack.h"
#include "exec/cuda/round.h"

enum {
    WARPS = 8,
    THREADS = WARPS * TG_WARP,
    FOUR = 4,
    TILE = TG_GPU_TILE,
    TILES = TG_GPU_PART_TILES,
    PART = TILES * TILE
};
enum { LEAVES = PART / TG_LEAF_N, EACH = PART / WARPS /* values that a warp rounds */ };
enum { SIDE = 5 /* bytes that travel beside symbols */, LEAD = 8 /* bytes before the symbols of a warp */ };
enum { SYMBOLS = 256, BLOCKS = 3 /* of a multiprocessor */, AHEAD = 2 /* the warp that finds parts */ };
enum {
    EARLY = TILES / 2 /* tiles with residuals that are prefetched while a step is fitted: 64 KB a block, 25 MB in all */
};
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
        uint32_t counts[WARPS * SYMBOLS]; /* of each warp */
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

/* Finds the tiles of a part, none if it is empty. One warp, before it prefetches them. */
template <bool BY_LEAVES> TG_DEVICE void find_part(const tg_gpu_pass &p, uint32_t number, hold_part &to)
{
    uint32_t lane = threadIdx.x % TG_WARP;
    const tg_gpu_part part = p.parts[number];
    const uint32_t tile = part.tile - p.parts[0].tile;
    if (lane < part.tile_n) {
        to.tiles[lane] = tg_round_tile_of(p, p.tiles + (tile + lane), BY_LEAVES);
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

/* Prefetches the first tiles of a part, or all if they have no residuals. */
TG_DEVICE void prefetch_first(const tg_gpu_pass &p, const hold_part &part)
{
    uint32_t lane = threadIdx.x % TG_WARP;
    if (lane < part.tile_n && (lane < EARLY || !part.tiles[lane].has_residual)) {
        prefetch_tile(part.tiles[lane]);
        prefetch_residuals(p, part.tiles[lane]);
    }
}

/* Prefetches the others. */
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
TG_DEVICE tg_gpu_moments sum_copied(const tg_gpu_pass &p, const tg_round_tile &t, uint32_t leaf, float *values,
                                    bool all)
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

#endif
