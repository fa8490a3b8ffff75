/* Floats of a few bits, of whole tensors (minifloat.h): one kernel, which reads gradients from memory once, and again while they are in
 * the cache. Block number i sums moments of tile i, and rounds tile i - lag. The last block to sum moments of a chunk fits its step; blocks
 * that round wait for it. Blocks take their numbers in the order in which they run, and wait for lower numbers alone, so that there is
 * always one that does not wait.
 *
 * Symbols of whole bytes go to the frame, leaf by leaf, each of which is hashed; others to space.symbols. */
#include "exec/cuda/leaf.h"
#include "exec/cuda/minifloat.h"
#include "exec/cuda/source.h"

enum { WARPS = 4, THREADS = WARPS * TG_WARP, FOUR = 4, BATCH = 4, FEW = 16 };
enum { TILES_MAX = 64 }; /* of a chunk */
enum { LAG = 1152, LAG_OF_RESIDUALS = 768 }; /* tiles: more than run at once, of which 18 MB are read; with residuals 24 MB */
static_assert(TG_GPU_TILE == WARPS * TG_LEAF_N && TG_GPU_TILE == TG_LEAF_BYTES,
              "a warp takes a leaf of a tile, and a tile is one of the frame");
static_assert((uint32_t)LAG >= (uint32_t)TILES_MAX && (uint32_t)LAG_OF_RESIDUALS >= (uint32_t)TILES_MAX,
              "when a tile is rounded, all of its chunk are summed or have lower numbers");

/* What is done with a tile: by leaves of the frame, or into space.symbols. */
typedef struct round_tile {
    const tg_gpu_tile *tile;
    const tg_gpu_chunk *chunk;
    const tg_gpu_unit *u;
    tg_gpu_source source;
    tg_gpu_progress *progress;
    uint32_t tiles; /* of the chunk */
    int before;     /* elements in place before the tile, up to FEW */
    float decay;    /* of the residual */
    bool is_mine, has_residual;
} round_tile;

typedef struct round_space {
    union {
        tg_fit_space fit;
        uint4 leaf[TG_LEAF_VECTORS];
    };
    float table[TG_MINIFLOATS];
    round_tile summed, rounded; /* tiles of this block */
    tg_rounding rounding;
    uint32_t number;
    bool is_last;
    uint32_t shape;
} round_space;

/* What depends on the tile is loaded at once. */
TG_DEVICE round_tile tile_number(const tg_gpu_pass &p, uint32_t i, bool by_leaves)
{
    const tg_gpu_tile tile = p.tiles[i];
    const tg_gpu_unit &u = p.units[tile.unit];
    const uint32_t kinds = u.kinds, group_n = u.group_n, bits = u.group_bits, chunk_n = p.chunks[tile.chunk].n;
    const uint64_t piece_at = p.pieces[tile.piece].at, lo = u.lo;
    const bool sends = tg_unit_sends(u, false);
    round_tile t;
    t.decay = (float)u.feedback_params[0];
    t.has_residual = u.planes > 0;
    t.source = tg_source_of(p, u, tile);
    t.tile = &p.tiles[i];
    t.chunk = &p.chunks[tile.chunk];
    t.u = &u;
    bool is_leaf = p.leaves != nullptr && group_n == 1 && bits == 8; /* as tg_rounds_leaves */
    t.is_mine = (kinds >> TG_KIND_MINIFLOAT & 1) != 0 && sends && is_leaf == by_leaves;
    t.progress = &p.space.progress[tile.chunk];
    t.tiles = (chunk_n + TG_GPU_TILE - 1) / TG_GPU_TILE;
    t.before = (int)min(tile.at - max(piece_at, lo), (uint64_t)FEW);
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
    const float *floats = (const float *)(const void *)t.source.floats + from,
                *now = p.now + t.source.residual_at + from;
    const uint16_t *halves = (const uint16_t *)(const void *)t.source.halves + from;
    float decay = t.decay;
    bool has_residual = t.has_residual, is_fine = tg_source_has(t.source) && (leaf + 1) * TG_LEAF_N <= t.tile->n;
    if (is_fine && t.source.floats != nullptr) {
        is_fine = has_residual ? sum_in_place<true>(m, floats, false, now, decay)
                               : sum_in_place<false>(m, floats, false, now, decay);
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

TG_DEVICE void sum_tile(const tg_gpu_pass &p, const round_tile &t)
{
    unsigned leaf = threadIdx.x / TG_WARP;
    if (leaf * TG_LEAF_N < t.tile->n) {
        tg_gpu_moments m = sum_leaf(p, t, leaf);
        if (threadIdx.x % TG_WARP == 0) {
            p.space.moments[t.chunk->leaf_at + t.tile->from / TG_LEAF_N + leaf] = m;
        }
    }
}

/* Fits the step of a chunk of which all tiles are summed. */
TG_DEVICE void fit_chunk(const tg_gpu_pass &p, const round_tile &t, const tg_shape_table &shapes, round_space &space)
{
    __threadfence();
    tg_gpu_fit fit = tg_fit_chunk(*t.u, p.space.moments + t.chunk->leaf_at, (t.chunk->n + TG_LEAF_N - 1) / TG_LEAF_N,
                                  shapes, space.fit);
    if (threadIdx.x == 0) {
        uint8_t *side = p.space.out[t.tile->chunk] + p.space.views[t.tile->chunk].side;
        tg_store_float(side, fit.step);
        side[4] = fit.shape;
        *(volatile uint64_t *)&t.progress->fit = __float_as_uint(fit.step) | (uint64_t)(fit.shape + 1u) << 32;
    }
    __syncthreads();
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
TG_CALLED void round_slowly(uint8_t *bytes, const tg_gpu_pass &p, const round_space &space, int from, int end,
                            int stride)
{
    const round_tile &t = space.rounded;
    const tg_gpu_unit &u = *t.u;
    TG_ROLL
    for (int i = from; i < end; i += stride) {
        uint64_t at = t.tile->at + (uint64_t)(int64_t)i;
        const tg_gpu_piece *piece;
        float g, sum = load_one(&g, &piece, p, t, i);
        tg_keep_state(p, u, g, at, false);
        unsigned symbol = space.rounding.round(sum);
        bytes[i] = (uint8_t)symbol;
        if (u.planes > 0) {
            tg_store_residual(p, u, piece, sum - space.table[symbol], at);
        }
    }
}

/* Element i, in place, with a step for which rounding is fast. */
TG_DEVICE void round_one(uint8_t *bytes, const tg_gpu_pass &p, const round_space &space, int i)
{
    const round_tile &t = space.rounded;
    float v = t.source.floats != nullptr
                  ? ((const float *)(const void *)t.source.floats)[i]
                  : tg_widen(((const uint16_t *)(const void *)t.source.halves)[i], t.source.is_bf16);
    if (t.has_residual) {
        v += t.decay * (p.now + t.source.residual_at)[i];
    }
    if (!tg_is_finite(v)) {
        round_slowly(bytes, p, space, i, i + 1, 1);
        return;
    }
    unsigned symbol = space.rounding.round_fast(v);
    bytes[i] = (uint8_t)symbol;
    if (t.has_residual) {
        (p.next + t.source.residual_at)[i] = v - space.table[symbol];
    }
}

/* Fours [from, end) of the tile, likewise. */
template <bool HAS_RESIDUAL>
TG_DEVICE void round_fours(const rounded &to, const tg_gpu_pass &p, const round_space &space, uint32_t from,
                           uint32_t end)
{
    TG_ROLL
    for (uint32_t first = from + threadIdx.x; first < end; first += BATCH * THREADS) {
        const tg_gpu_source source = space.rounded.source;
        const tg_rounding r = space.rounding;
        const float4 *now = (const float4 *)(const void *)(p.now + source.residual_at);
        float4 *next = (float4 *)(void *)(p.next + source.residual_at);
        float decay = space.rounded.decay;
        float4 g[BATCH], old[BATCH];
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            uint32_t i = min(first + b * THREADS, end - 1);
            g[b] = tg_source_four(source, i);
            old[b] = HAS_RESIDUAL ? __ldcs(now + i) : g[b];
        }
        uint32_t slow = 0; /* a bit each for fours that are left for later */
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            uint32_t i = first + b * THREADS;
            float v[FOUR] = {g[b].x, g[b].y, g[b].z, g[b].w}, residual[FOUR] = {old[b].x, old[b].y, old[b].z, old[b].w};
            unsigned symbols[FOUR];
            float zero = 0; /* unless one is not finite */
            TG_UNROLL
            for (uint32_t k = 0; k < FOUR; k++) {
                v[k] = HAS_RESIDUAL ? v[k] + decay * residual[k] : v[k];
                zero = fmaf(v[k], 0.0f, zero);
                symbols[k] = r.round_fast(v[k]);
            }
            if (i >= end || !(zero == 0)) {
                slow |= i < end ? 1u << b : 0;
                continue;
            }
            put_four(to, i, symbols);
            if (HAS_RESIDUAL) { /* finite, because what is decoded is of the size of v, and below 2^80 */
                const float *table = space.table;
                __stcs(next + i, make_float4(v[0] - table[symbols[0]], v[1] - table[symbols[1]],
                                             v[2] - table[symbols[2]], v[3] - table[symbols[3]]));
            }
        }
        for (; slow != 0; slow &= slow - 1) {
            int i = FOUR * (int)(first + (uint32_t)(__ffs((int)slow) - 1) * THREADS);
            round_slowly(to.bytes, p, space, i, i + FOUR, 1);
        }
    }
}

/* Elements [from, end) of the tile; from may be below 0. Those that are no whole four are the last warp's. */
TG_DEVICE void round_range(const rounded &to, const tg_gpu_pass &p, const round_space &space, int from, int end)
{
    const round_tile &t = space.rounded;
    int first = (max(from, 0) + FOUR - 1) / FOUR, last = max(end / FOUR, first), thread = (int)threadIdx.x;
    if (!tg_source_has(t.source) || !space.rounding.is_fast || -from > t.before) {
        round_slowly(to.bytes, p, space, from + thread, end, THREADS);
        return;
    }
    int ahead = min(FOUR * first, end) - from, lane = thread - (THREADS - (int)TG_WARP);
    if (lane >= 0 && lane < ahead + max(end - FOUR * last, 0)) {
        round_one(to.bytes, p, space, lane < ahead ? from + lane : FOUR * last + lane - ahead);
    }
    if (t.has_residual) {
        round_fours<true>(to, p, space, (uint32_t)first, (uint32_t)last);
    } else {
        round_fours<false>(to, p, space, (uint32_t)first, (uint32_t)last);
    }
}

/* Leaf `number` of a chunk, most of which is the tile. Its first bytes may be what travels beside symbols. One warp hashes it while the
 * others copy it to the frame. */
TG_DEVICE void round_to_frame(const tg_gpu_pass &p, uint32_t number, uint64_t *hash, round_space &space)
{
    const round_tile &t = space.rounded;
    uint32_t from = number * TG_LEAF_BYTES, len = min(t.chunk->len - from, TG_LEAF_BYTES), side_len = t.chunk->side_len;
    uint32_t side = side_len > from ? side_len - from : 0;
    int first = (int)(from + side) - (int)(side_len + t.tile->from),
        end = (int)(from + len) - (int)(side_len + t.tile->from);
    uint8_t *out = p.space.out[t.tile->chunk] + from;
    uint8_t *bytes = (uint8_t *)(void *)space.leaf;
    if (threadIdx.x < side) {
        uint64_t beside = __float_as_uint(space.rounding.step) | (uint64_t)space.shape << 32;
        bytes[threadIdx.x] = (uint8_t)(beside >> 8 * threadIdx.x);
    }
    round_range({bytes + side - first, side_len % FOUR == 0}, p, space, first, end);
    __syncthreads();
    if (threadIdx.x < TG_WARP) {
        uint64_t hashed = tg_hash_aligned(space.leaf, len);
        if (threadIdx.x == 0) {
            *hash = hashed;
        }
    } else {
        tg_copy_by(out, bytes, len, threadIdx.x - TG_WARP, THREADS - TG_WARP);
    }
}

/* Waits for the fit of a chunk; one thread. It is one word, so that no other one need be seen after it. */
TG_DEVICE void await_fit(round_space &space)
{
    const volatile uint64_t *at = &space.rounded.progress->fit;
    uint64_t fit = *at;
    while (fit == 0) {
        fit = *at;
    }
    space.rounding = tg_rounding_of(space.rounding.f, __uint_as_float((uint32_t)fit));
    space.shape = (uint32_t)(fit >> 32) - 1;
}

/* The last block that is done with a chunk clears its progress. */
TG_DEVICE void leave_chunk(const round_tile &t)
{
    if (threadIdx.x == 0 && atomicAdd(&t.progress->rounded, 1u) + 1 == t.tiles) {
        t.progress->summed = 0;
        t.progress->rounded = 0;
        t.progress->fit = 0;
    }
}

/* Takes the next number, and finds the tiles that are summed and rounded. */
template <bool BY_LEAVES> TG_DEVICE void take_number(const tg_gpu_pass &p, uint32_t lag, round_space &space)
{
    if (threadIdx.x == 0) {
        uint32_t number = atomicAdd(p.space.next_tile, 1u);
        space.number = number;
        if (number + 1 == gridDim.x) {
            *p.space.next_tile = 0;
        }
    }
    __syncthreads();
    uint32_t number = space.number;
    if (threadIdx.x == 0) {
        space.summed.is_mine = false;
        space.is_last = false;
        if (number < p.tile_n) {
            space.summed = tile_number(p, number, BY_LEAVES);
        }
    }
    if (threadIdx.x == TG_WARP) {
        space.rounded.is_mine = false;
        if (number >= lag) {
            space.rounded = tile_number(p, number - lag, BY_LEAVES);
            space.rounding.f = tg_minifloat_of(*space.rounded.u);
        }
    }
    __syncthreads();
}

template <bool BY_LEAVES>
__global__ static void __launch_bounds__(THREADS, 8)
    round_tiles(const __grid_constant__ tg_gpu_pass p, const __grid_constant__ tg_shape_table shapes, uint32_t lag,
                uint64_t *hashes, uint32_t leaf_cap)
{
    __shared__ round_space space;
    tg_next_may_begin();
    take_number<BY_LEAVES>(p, lag, space);
    const round_tile &t = space.rounded;
    if (space.summed.is_mine) {
        sum_tile(p, space.summed);
    }
    __syncthreads();
    if (threadIdx.x == 0 && space.summed.is_mine) {
        __threadfence(); /* of all threads, after the barrier */
        space.is_last = atomicAdd(&space.summed.progress->summed, 1u) + 1 == space.summed.tiles;
    }
    if (threadIdx.x == TG_WARP && t.is_mine) { /* for a chunk before that one */
        await_fit(space);
    }
    __syncthreads();
    if (space.is_last) {
        fit_chunk(p, space.summed, shapes, space);
    }
    if (!t.is_mine) {
        return;
    }
    if (t.has_residual) {
        for (uint32_t s = threadIdx.x; s < t.u->base; s += THREADS) {
            space.table[s] = tg_minifloat_value(tg_minifloat_of(*t.u), space.rounding.step, s);
        }
        __syncthreads();
    }
    if (BY_LEAVES) {
        uint32_t leaf = t.tile->from / TG_LEAF_BYTES;
        uint64_t *of_chunk = hashes + (uint64_t)(t.tile->chunk - p.first) * leaf_cap;
        uint32_t end = leaf + 1 == t.tiles ? (t.chunk->len + TG_LEAF_BYTES - 1) / TG_LEAF_BYTES : leaf + 1;
        for (; leaf < end; leaf++) {
            round_to_frame(p, leaf, of_chunk + leaf, space);
            if (leaf + 1 < end) {
                __syncthreads();
            }
        }
    } else {
        uint8_t *bytes = p.space.symbols + 2 * t.chunk->element_at + t.tile->from;
        round_range({bytes, (uintptr_t)bytes % FOUR == 0}, p, space, 0, (int)t.tile->n);
    }
    leave_chunk(t);
}

static uint32_t lag_of(const tg_gpu_pass *p)
{
    return min(p->tile_n, (uint32_t)(p->has_residuals ? LAG_OF_RESIDUALS : LAG));
}

void tg_launch_round_tiles(const tg_gpu_pass *p)
{
    uint32_t lag = lag_of(p);
    if (p->leaves == nullptr || (p->packs & TG_GPU_PACKS_LEAVES) != 0) {
        TG_LAUNCH(round_tiles<false>, p->tile_n + lag, THREADS, p->stream, *p, tg_shapes_for_kernels(), lag, nullptr,
                  0);
    }
}

void tg_launch_round_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    uint32_t lag = lag_of(p);
    if (p->chunk_n > 0 && tg_pass_has(p, TG_KIND_MINIFLOAT) && (p->packs & TG_GPU_ROUNDS_LEAVES) != 0) {
        TG_LAUNCH(round_tiles<true>, p->tile_n + lag, THREADS, p->stream, *p, tg_shapes_for_kernels(), lag, hashes,
                  leaf_cap);
    }
}
