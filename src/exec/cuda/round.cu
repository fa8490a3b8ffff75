/* Floats of a few bits, of whole tensors (minifloat.h): one kernel, which reads gradients from memory once, and again while they are in
 * the cache. Block number i sums moments of tile i, and rounds tile i - lag. The last block to sum moments of a chunk fits its step; blocks
 * that round wait for it. Blocks take their numbers in the order in which they run, and wait for lower numbers alone, so that there is
 * always one that does not wait.
 *
 * Symbols of whole bytes go to the frame, leaf by leaf, each of which is hashed; others to space.symbols. */
#include "exec/cuda/leaf.h"
#include "exec/cuda/minifloat.h"
#include "exec/cuda/source.h"

enum { WARPS = 4, THREADS = WARPS * TG_WARP, FOUR = 4, BATCH = 4 };
enum { LAG = 768, TILES_MAX = 64 }; /* tiles; of a chunk */
static_assert(TG_GPU_TILE == WARPS * TG_LEAF_N && TG_GPU_TILE == TG_LEAF_BYTES, "a warp takes a leaf of a tile, and a tile is one of the frame");
static_assert((uint32_t)LAG >= (uint32_t)TILES_MAX, "when a tile is rounded, all of its chunk are summed or have lower numbers");

typedef struct round_space {
    union {
        tg_fit_space fit;
        uint4 leaf[TG_LEAF_VECTORS];
    };
    float table[TG_MINIFLOATS];
    uint32_t number;
    bool is_last;
    float step;
    uint32_t shape;
} round_space;

/* What is done with a tile: by leaves of the frame, or into space.symbols. */
typedef struct round_tile {
    const tg_gpu_tile *tile;
    const tg_gpu_chunk *chunk;
    const tg_gpu_unit *u;
    tg_gpu_source source;
    tg_gpu_progress *progress;
    uint32_t tiles; /* of the chunk */
    bool is_mine;
} round_tile;

TG_DEVICE round_tile tile_number(const tg_gpu_pass &p, uint32_t i, bool by_leaves)
{
    round_tile t;
    t.tile = &p.tiles[i];
    t.chunk = &p.chunks[t.tile->chunk];
    t.u = &p.units[t.tile->unit];
    t.is_mine = tg_is_minifloat(*t.u, false) && tg_rounds_leaves(p, *t.u) == by_leaves;
    t.source = tg_source_of(p, *t.u, *t.tile);
    t.progress = &p.space.progress[t.tile->chunk];
    t.tiles = (t.chunk->n + TG_GPU_TILE - 1) / TG_GPU_TILE;
    return t;
}

/* ---- moments ------------------------------------------------------------------------------------------------------------- */

TG_DEVICE void add_moments(tg_gpu_moments &m, float v)
{
    m.magnitudes += fabs((double)v);
    m.squares += (double)v * (double)v;
    m.count += v != 0 ? 1 : 0;
}

/* This lane's part of a whole leaf in place. Returns whether all values are finite. */
template <bool HAS_RESIDUAL, class T>
TG_DEVICE bool sum_in_place(tg_gpu_moments &m, const T *g, bool is_bf16, const float *now, float decay)
{
    enum { HALF = TG_LANE_N / 2 };
    float zero = 0; /* unless one is not finite */
    TG_UNROLL
    for (unsigned from = 0; from < TG_LANE_N; from += HALF) {
        T given[HALF];
        float old[HALF];
        TG_UNROLL
        for (unsigned k = 0; k < HALF; k++) {
            given[k] = g[32 * (from + k)];
            old[k] = HAS_RESIDUAL ? now[32 * (from + k)] : 0.0f;
        }
        TG_UNROLL
        for (unsigned k = 0; k < HALF; k++) {
            float v = tg_widen(given[k], is_bf16);
            v = HAS_RESIDUAL ? v + decay * old[k] : v;
            zero = fmaf(v, 0.0f, zero);
            add_moments(m, v);
        }
    }
    return zero == 0;
}

/* gradient + residual of element i of the tile, which may be before its first one, by the policy for NaN and Inf; its gradient. */
TG_DEVICE float load_one(float *gradient, const tg_gpu_piece **piece, const tg_gpu_pass &p, const round_tile &t, int i)
{
    uint64_t at = t.tile->at + (uint64_t)(int64_t)i;
    *piece = tg_piece_at(p, *t.u, at);
    float g = tg_load_gradient(p, *t.u, t.tile->unit, *piece, at), sum = tg_add_residual(p, *t.u, *piece, g, at);
    *gradient = g;
    return g != g ? tg_quiet(g) : sum; /* the NaN that a CPU would give */
}

/* The moments of a leaf, by a warp. Lane 0 has them. */
TG_DEVICE tg_gpu_moments sum_leaf(const tg_gpu_pass &p, const round_tile &t, unsigned leaf)
{
    tg_gpu_moments m = {0, 0, 0};
    uint32_t from = leaf * TG_LEAF_N + threadIdx.x % TG_WARP;
    const float *floats = (const float *)(const void *)t.source.floats + from, *now = p.now + t.source.residual_at + from;
    const uint16_t *halves = (const uint16_t *)(const void *)t.source.halves + from;
    float decay = (float)t.u->feedback_params[0];
    bool has_residual = t.u->planes > 0, is_fine = tg_source_has(t.source) && (leaf + 1) * TG_LEAF_N <= t.tile->n;
    if (is_fine && t.source.floats != nullptr) {
        is_fine = has_residual ? sum_in_place<true>(m, floats, false, now, decay) : sum_in_place<false>(m, floats, false, now, decay);
    } else if (is_fine) {
        is_fine = has_residual ? sum_in_place<true>(m, halves, t.source.is_bf16, now, decay)
                               : sum_in_place<false>(m, halves, t.source.is_bf16, now, decay);
    }
    if (!is_fine) {
        m = {0, 0, 0};
        TG_ROLL
        for (uint32_t i = from; i < min((leaf + 1) * TG_LEAF_N, t.tile->n); i += TG_WARP) {
            const tg_gpu_piece *piece;
            float g;
            add_moments(m, load_one(&g, &piece, p, t, (int)i));
        }
    }
    m.magnitudes = tg_fold(m.magnitudes);
    m.squares = tg_fold(m.squares);
    m.count = __reduce_add_sync(TG_ALL_LANES, m.count);
    return m;
}

TG_DEVICE void sum_tile(const tg_gpu_pass &p, const round_tile &t, const tg_shape_table &shapes, round_space &space)
{
    unsigned leaf = threadIdx.x / TG_WARP;
    if (leaf * TG_LEAF_N < t.tile->n) {
        tg_gpu_moments m = sum_leaf(p, t, leaf);
        if (threadIdx.x % TG_WARP == 0) {
            p.space.moments[t.chunk->leaf_at + t.tile->from / TG_LEAF_N + leaf] = m;
        }
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        space.is_last = atomicAdd(&t.progress->summed, 1u) + 1 == t.tiles;
    }
    __syncthreads();
    if (space.is_last) {
        __threadfence();
        tg_gpu_fit fit = tg_fit_chunk(*t.u, p.space.moments + t.chunk->leaf_at, (t.chunk->n + TG_LEAF_N - 1) / TG_LEAF_N,
                                      shapes, space.fit);
        if (threadIdx.x == 0) {
            uint8_t *side = p.space.out[t.tile->chunk] + p.space.views[t.tile->chunk].side;
            tg_store_float(side, fit.step);
            side[4] = fit.shape;
            t.progress->step = fit.step;
            t.progress->shape = fit.shape;
            __threadfence();
            atomicAdd(&t.progress->summed, 1u);
        }
        __syncthreads();
    }
}

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

/* Where symbols go: that of element i of the tile to bytes[i]. */
typedef struct rounded {
    uint8_t *bytes;
    bool is_aligned; /* four at a time can be stored */
} rounded;

TG_DEVICE void put_four(const rounded &to, uint32_t i, const unsigned symbols[FOUR])
{
    if (to.is_aligned) {
        *(uint32_t *)(void *)(to.bytes + FOUR * i) = symbols[0] | symbols[1] << 8 | symbols[2] << 16 | symbols[3] << 24;
        return;
    }
    TG_UNROLL
    for (uint32_t k = 0; k < FOUR; k++) {
        to.bytes[FOUR * i + k] = (uint8_t)symbols[k];
    }
}

/* Elements [from, end) of the tile, which may be before its first one, one by one. */
TG_DEVICE void round_slowly(const rounded &to, const tg_gpu_pass &p, const round_tile &t, const tg_rounding &r, const float *table,
                            int from, int end, int stride)
{
    const tg_gpu_unit &u = *t.u;
    TG_ROLL
    for (int i = from; i < end; i += stride) {
        uint64_t at = t.tile->at + (uint64_t)(int64_t)i;
        const tg_gpu_piece *piece;
        float g, sum = load_one(&g, &piece, p, t, i);
        tg_keep_state(p, u, g, at, false);
        unsigned symbol = r.round(sum);
        to.bytes[i] = (uint8_t)symbol;
        if (u.planes > 0) {
            tg_store_residual(p, u, piece, sum - table[symbol], at);
        }
    }
}

/* Fours [from, end) of the tile, in place, with a step for which rounding is fast. */
template <bool HAS_RESIDUAL>
TG_DEVICE void round_fours(const rounded &to, const tg_gpu_pass &p, const round_tile &t, const tg_rounding &r, const float *table,
                           uint32_t from, uint32_t end)
{
    const float4 *now = (const float4 *)(const void *)(p.now + t.source.residual_at);
    float4 *next = (float4 *)(void *)(p.next + t.source.residual_at);
    float decay = (float)t.u->feedback_params[0];
    for (uint32_t first = from + threadIdx.x; first < end; first += BATCH * THREADS) {
        float4 g[BATCH], old[BATCH];
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            uint32_t i = min(first + b * THREADS, end - 1);
            g[b] = tg_source_four(t.source, i);
            old[b] = HAS_RESIDUAL ? __ldcs(now + i) : g[b];
        }
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            uint32_t i = first + b * THREADS;
            float v[FOUR] = {g[b].x, g[b].y, g[b].z, g[b].w}, residual[FOUR] = {old[b].x, old[b].y, old[b].z, old[b].w};
            unsigned symbols[FOUR];
            float zero = 0; /* unless one is not finite */
            if (i >= end) {
                continue;
            }
            TG_UNROLL
            for (uint32_t k = 0; k < FOUR; k++) {
                v[k] = HAS_RESIDUAL ? v[k] + decay * residual[k] : v[k];
                zero = fmaf(v[k], 0.0f, zero);
                symbols[k] = r.round_fast(v[k]);
            }
            if (!(zero == 0)) {
                round_slowly(to, p, t, r, table, (int)(FOUR * i), (int)(FOUR * i) + FOUR, 1);
                continue;
            }
            put_four(to, i, symbols);
            if (HAS_RESIDUAL) { /* finite, because what is decoded is of the size of v, and below 2^80 */
                __stcs(next + i, make_float4(v[0] - table[symbols[0]], v[1] - table[symbols[1]], v[2] - table[symbols[2]],
                                             v[3] - table[symbols[3]]));
            }
        }
    }
}

/* Elements [from, end) of the tile; from may be below 0. */
TG_DEVICE void round_range(const rounded &to, const tg_gpu_pass &p, const round_tile &t, const tg_rounding &r, const float *table,
                           int from, int end)
{
    int first = (max(from, 0) + FOUR - 1) / FOUR, last = max(end / FOUR, first), thread = (int)threadIdx.x;
    last = tg_source_has(t.source) && r.is_fast ? last : first;
    round_slowly(to, p, t, r, table, from + thread, min(FOUR * first, end), THREADS);
    round_slowly(to, p, t, r, table, FOUR * last + thread, end, THREADS);
    if (t.u->planes > 0) {
        round_fours<true>(to, p, t, r, table, (uint32_t)first, (uint32_t)last);
    } else {
        round_fours<false>(to, p, t, r, table, (uint32_t)first, (uint32_t)last);
    }
}

/* Leaf `number` of a chunk, most of which is the tile. Its first bytes may be what travels beside symbols. In shared memory bytes are so
 * placed that those of four elements are a word. */
TG_DEVICE void round_to_frame(const tg_gpu_pass &p, const round_tile &t, const tg_rounding &r, uint32_t number, uint64_t *hash,
                              round_space &space)
{
    uint32_t from = number * TG_LEAF_BYTES, len = min(t.chunk->len - from, TG_LEAF_BYTES), side_len = t.chunk->side_len;
    uint32_t side = side_len > from ? side_len - from : 0;
    int first = (int)(from + side) - (int)(side_len + t.tile->from), end = (int)(from + len) - (int)(side_len + t.tile->from);
    uint8_t *out = p.space.out[t.tile->chunk] + from;
    uint8_t *bytes = (uint8_t *)(void *)space.leaf + (FOUR - side_len % FOUR) % FOUR;
    if (threadIdx.x < side) {
        bytes[threadIdx.x] = (uint8_t)((__float_as_uint(space.step) | (uint64_t)space.shape << 32) >> 8 * threadIdx.x);
    }
    round_range({bytes + side - first, true}, p, t, r, space.table, first, end);
    __syncthreads();
    if (threadIdx.x < TG_WARP) {
        uint64_t hashed = tg_hash_leaf(bytes, len);
        if (threadIdx.x == 0) {
            *hash = hashed;
        }
    }
    tg_copy_by(out, bytes, len, threadIdx.x, THREADS);
    __syncthreads();
}

/* Waits for the step of a chunk. */
TG_DEVICE void await_step(const round_tile &t, round_space &space)
{
    if (threadIdx.x == 0) {
        while (*(volatile uint32_t *)&t.progress->summed != t.tiles + 1) {
        }
        __threadfence();
        space.step = __ldcg(&t.progress->step);
        space.shape = __ldcg(&t.progress->shape);
    }
    __syncthreads();
    if (t.u->planes > 0) {
        for (uint32_t s = threadIdx.x; s < t.u->base; s += THREADS) {
            space.table[s] = tg_minifloat_value(tg_minifloat_of(*t.u), space.step, s);
        }
    }
    __syncthreads();
}

/* The last block that is done with a chunk clears its progress. */
TG_DEVICE void leave_chunk(const round_tile &t)
{
    if (threadIdx.x == 0 && atomicAdd(&t.progress->rounded, 1u) + 1 == t.tiles) {
        t.progress->summed = 0;
        t.progress->rounded = 0;
    }
}

/* Takes the next number. */
TG_DEVICE uint32_t take_number(uint32_t *next, round_space &space)
{
    if (threadIdx.x == 0) {
        space.number = atomicAdd(next, 1u);
        if (space.number + 1 == gridDim.x) {
            *next = 0;
        }
    }
    __syncthreads();
    return space.number;
}

template <bool BY_LEAVES>
__global__ static void __launch_bounds__(THREADS, 8)
    round_tiles(tg_gpu_pass p, tg_shape_table shapes, uint32_t lag, uint64_t *hashes, uint32_t leaf_cap)
{
    __shared__ round_space space;
    uint32_t number = take_number(p.space.next_tile, space);
    if (number < p.tile_n) {
        const round_tile t = tile_number(p, number, BY_LEAVES);
        if (t.is_mine) {
            sum_tile(p, t, shapes, space);
        }
    }
    if (number < lag) {
        return;
    }
    const round_tile t = tile_number(p, number - lag, BY_LEAVES);
    if (!t.is_mine) {
        return;
    }
    await_step(t, space);
    const tg_rounding r = tg_rounding_of(tg_minifloat_of(*t.u), space.step);
    if (BY_LEAVES) {
        uint32_t leaf = t.tile->from / TG_LEAF_BYTES;
        uint64_t *of_chunk = hashes + (uint64_t)(t.tile->chunk - p.first) * leaf_cap;
        uint32_t end = leaf + 1 == t.tiles ? (t.chunk->len + TG_LEAF_BYTES - 1) / TG_LEAF_BYTES : leaf + 1;
        for (; leaf < end; leaf++) {
            round_to_frame(p, t, r, leaf, of_chunk + leaf, space);
        }
    } else {
        uint8_t *bytes = p.space.symbols + 2 * t.chunk->element_at + t.tile->from;
        round_range({bytes, (uintptr_t)bytes % FOUR == 0}, p, t, r, space.table, 0, (int)t.tile->n);
    }
    leave_chunk(t);
}

void tg_launch_round_tiles(const tg_gpu_pass *p)
{
    uint32_t lag = min(p->tile_n, (uint32_t)LAG);
    if (p->leaves == nullptr || (p->packs & TG_GPU_PACKS_LEAVES) != 0) {
        TG_LAUNCH(round_tiles<false>, p->tile_n + lag, THREADS, p->stream, *p, tg_shapes_for_kernels(), lag, nullptr, 0);
    }
}

void tg_launch_round_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    uint32_t lag = min(p->tile_n, (uint32_t)LAG);
    if (p->chunk_n > 0 && tg_pass_has(p, TG_KIND_MINIFLOAT) && (p->packs & TG_GPU_ROUNDS_LEAVES) != 0) {
        TG_LAUNCH(round_tiles<true>, p->tile_n + lag, THREADS, p->stream, *p, tg_shapes_for_kernels(), lag, hashes, leaf_cap);
    }
}
