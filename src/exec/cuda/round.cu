/* Floats of a few bits, of whole tensors (minifloat.h), on GPUs with little shared memory; others have hold.cu: one kernel, which reads
 * gradients from memory once, and again while they are in the cache. Block number i sums moments of tile i, and rounds tile i - lag. The last block to sum moments of a chunk fits its step; blocks
 * that round wait for it. Blocks take their numbers in the order in which they run, and wait for lower numbers alone, so that there is
 * always one that does not wait.
 *
 * Symbols of whole bytes go to the frame, leaf by leaf, each of which is hashed; others to space.symbols. */
#include "exec/cuda/round.h"

enum { WARPS = 4, THREADS = WARPS * TG_WARP, FOUR = 4, BATCH = 4 };
enum { TILES_MAX = 64 }; /* of a chunk */
enum { LAG = 1152, LAG_OF_RESIDUALS = 768 }; /* tiles: more than run at once, of which 18 MB are read; with residuals 24 MB */
static_assert(TG_GPU_TILE == WARPS * TG_LEAF_N && TG_GPU_TILE == TG_LEAF_BYTES,
              "a warp takes a leaf of a tile, and a tile is one of the frame");
static_assert((uint32_t)LAG >= (uint32_t)TILES_MAX && (uint32_t)LAG_OF_RESIDUALS >= (uint32_t)TILES_MAX,
              "when a tile is rounded, all of its chunk are summed or have lower numbers");

typedef struct round_space {
    union {
        tg_fit_space fit;
        uint4 leaf[TG_LEAF_VECTORS];
    };
    tg_round_step step;
    tg_round_tile summed, rounded; /* tiles of this block */
    uint32_t number;
    bool is_last;
} round_space;

TG_DEVICE void sum_tile(const tg_gpu_pass &p, const tg_round_tile &t)
{
    unsigned leaf = threadIdx.x / TG_WARP;
    if (leaf * TG_LEAF_N < t.tile->n) {
        tg_gpu_moments m = tg_round_sum<false>(p, t, leaf, nullptr);
        if (threadIdx.x % TG_WARP == 0) {
            p.space.moments[t.chunk->leaf_at + t.tile->from / TG_LEAF_N + leaf] = m;
        }
    }
}

/* Fits the step of a chunk of which all tiles are summed. */
TG_DEVICE void fit_chunk(const tg_gpu_pass &p, const tg_round_tile &t, const tg_shape_table &shapes, round_space &space)
{
    __threadfence();
    tg_gpu_fit fit = tg_fit_chunk(*t.u, p.space.moments + t.chunk->leaf_at, (t.chunk->n + TG_LEAF_N - 1) / TG_LEAF_N,
                                  shapes, space.fit);
    if (threadIdx.x == 0) {
        uint8_t *side = p.space.out[t.tile->chunk] + p.space.views[t.tile->chunk].side;
        fit = tg_fit_chosen(fit, tg_fit_kept(p, *t.u, *t.chunk));
        tg_fit_keep(p, *t.u, *t.chunk, fit);
        tg_store_float(side, fit.step);
        side[4] = fit.shape;
        *(volatile uint64_t *)&t.progress->fit = __float_as_uint(fit.step) | (uint64_t)(fit.shape + 1u) << 32;
    }
    __syncthreads();
}

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

/* gradient + residual of element i, in place, with no look at what it is. */
TG_DEVICE float load_in_place(const tg_gpu_pass &p, const tg_round_tile &t, int i)
{
    float v = t.source.floats != nullptr
                  ? ((const float *)(const void *)t.source.floats)[i]
                  : tg_widen(((const uint16_t *)(const void *)t.source.halves)[i], t.source.is_bf16);
    return t.has_residual ? v + t.decay * (p.now + t.source.residual_at)[i] : v;
}

/* Element i, whose gradient + residual is v if that is finite, in place, with a step for which rounding is fast. */
TG_DEVICE void round_one(const tg_rounded &to, const tg_gpu_pass &p, const tg_round_tile &t, const tg_round_step &step,
                         int i, float v)
{
    if (!tg_is_finite(v)) {
        tg_round_slowly(to.bytes, nullptr, p, t, step, i, i + 1, 1);
        return;
    }
    unsigned symbol = step.rounding.round_fast(v);
    to.bytes[i] = (uint8_t)symbol;
    if (t.has_residual) {
        (p.next + t.source.residual_at)[i] = v - step.table[symbol];
    }
}

/* Four elements from number 4 i on, likewise. False if one is not finite: then nothing is done. */
template <bool HAS_RESIDUAL>
TG_DEVICE bool round_four(const tg_rounded &to, float4 *next, const tg_rounding &r, const float *table, uint32_t i,
                          const float v[4])
{
    const uint32_t symbols = r.round_four(v);
    float zero = 0; /* unless one is not finite */
    TG_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        zero = fmaf(v[k], 0.0f, zero);
    }
    if (!(zero == 0)) {
        return false;
    }
    tg_round_put_four<HAS_RESIDUAL>(to, next, table, i, v, symbols);
    return true;
}

/* Fours [from, end) of the tile, in place, with a step for which rounding is fast. */
template <bool HAS_RESIDUAL>
TG_DEVICE void round_fours(const tg_rounded &to, const tg_gpu_pass &p, const round_space &space, uint32_t from,
                           uint32_t end)
{
    TG_ROLL
    for (uint32_t first = from + threadIdx.x; first < end; first += BATCH * THREADS) {
        const tg_gpu_source source = space.rounded.source;
        const tg_rounding r = space.step.rounding;
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
            TG_UNROLL
            for (uint32_t k = 0; k < FOUR; k++) {
                v[k] = HAS_RESIDUAL ? v[k] + decay * residual[k] : v[k];
            }
            if (i < end && !round_four<HAS_RESIDUAL>(to, next, r, space.step.table, i, v)) {
                slow |= 1u << b;
            }
        }
        for (; slow != 0; slow &= slow - 1) {
            int i = FOUR * (int)(first + (uint32_t)(__ffs((int)slow) - 1) * THREADS);
            tg_round_slowly(to.bytes, nullptr, p, space.rounded, space.step, i, i + FOUR, 1);
        }
    }
}

/* Elements [from, end) of the tile; from may be below 0. Those that are no whole four are the last warp's. */
TG_DEVICE void round_range(const tg_rounded &to, const tg_gpu_pass &p, const round_space &space, int from, int end)
{
    const tg_round_tile &t = space.rounded;
    int first = (max(from, 0) + FOUR - 1) / FOUR, last = max(end / FOUR, first), thread = (int)threadIdx.x;
    if (!tg_source_has(t.source) || !space.step.rounding.is_fast || -from > t.before) {
        tg_round_slowly(to.bytes, nullptr, p, t, space.step, from + thread, end, THREADS);
        return;
    }
    int ahead = min(FOUR * first, end) - from, lane = thread - (THREADS - (int)TG_WARP);
    if (lane >= 0 && lane < ahead + max(end - FOUR * last, 0)) {
        int i = lane < ahead ? from + lane : FOUR * last + lane - ahead;
        round_one(to, p, t, space.step, i, load_in_place(p, t, i));
    }
    if (t.has_residual) {
        round_fours<true>(to, p, space, (uint32_t)first, (uint32_t)last);
    } else {
        round_fours<false>(to, p, space, (uint32_t)first, (uint32_t)last);
    }
}

/* The bytes of a leaf of a chunk in its frame, most of which are symbols of one tile. */
typedef struct round_leaf {
    uint32_t from, len; /* in the chunk */
    uint32_t side;      /* its first bytes that travel beside symbols */
    int first, end;     /* elements of the tile; the first may be before it */
} round_leaf;

TG_DEVICE round_leaf leaf_of(const tg_round_tile &t, uint32_t number)
{
    const uint32_t side_len = t.chunk->side_len;
    round_leaf l;
    l.from = number * TG_LEAF_BYTES;
    l.len = min(t.chunk->len - l.from, TG_LEAF_BYTES);
    l.side = side_len > l.from ? side_len - l.from : 0;
    l.first = (int)(l.from + l.side) - (int)(side_len + t.tile->from);
    l.end = (int)(l.from + l.len) - (int)(side_len + t.tile->from);
    return l;
}

/* Leaf `number` of a chunk, most of which is the tile. Its first bytes may be what travels beside symbols. One warp hashes it while the
 * others copy it to the frame. */
TG_DEVICE void round_to_frame(const tg_gpu_pass &p, uint32_t number, uint64_t *hash, round_space &space)
{
    const tg_round_tile &t = space.rounded;
    const round_leaf l = leaf_of(t, number);
    uint8_t *out = p.space.out[t.tile->chunk] + l.from;
    uint8_t *bytes = (uint8_t *)(void *)space.leaf;
    if (threadIdx.x < l.side) {
        bytes[threadIdx.x] = tg_round_beside(space.step, threadIdx.x);
    }
    round_range({bytes + l.side - l.first, t.chunk->side_len % FOUR == 0}, p, space, l.first, l.end);
    __syncthreads();
    if (threadIdx.x < TG_WARP) {
        uint64_t hashed = tg_hash_aligned(space.leaf, l.len);
        if (threadIdx.x == 0) {
            *hash = hashed;
        }
    } else {
        tg_copy_by(out, bytes, l.len, threadIdx.x - TG_WARP, THREADS - TG_WARP);
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
    space.step.rounding = tg_rounding_of(space.step.rounding.f, __uint_as_float((uint32_t)fit));
    space.step.shape = (uint32_t)(fit >> 32) - 1;
}

/* The last block that is done with a chunk clears its progress. */
TG_DEVICE void leave_chunk(const tg_round_tile &t)
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
            space.summed = tg_round_tile_of(p, p.tiles + number, BY_LEAVES);
        }
    }
    if (threadIdx.x == TG_WARP) {
        space.rounded.is_mine = false;
        if (number >= lag) {
            space.rounded = tg_round_tile_of(p, p.tiles + (number - lag), BY_LEAVES);
            space.step.rounding.f = tg_minifloat_of(*space.rounded.u);
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
    const tg_round_tile &t = space.rounded;
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
            space.step.table[s] = tg_minifloat_value(tg_minifloat_of(*t.u), space.step.rounding.step, s);
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
    if (p->leaves != nullptr && (p->packs & TG_GPU_PACKS_LEAVES) == 0) {
        return;
    }
    if (p->parts != nullptr) {
        tg_launch_hold_tiles(p);
    } else {
        TG_LAUNCH(round_tiles<false>, p->tile_n + lag, THREADS, p->stream, *p, tg_shapes_for_kernels(), lag, nullptr,
                  0);
    }
}

void tg_launch_round_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    uint32_t lag = lag_of(p);
    if (p->chunk_n == 0 || !tg_pass_has(p, TG_KIND_MINIFLOAT) || (p->packs & TG_GPU_ROUNDS_LEAVES) == 0) {
        return;
    }
    if (p->parts != nullptr) {
        tg_launch_hold_leaves(p, hashes, leaf_cap);
    } else {
        TG_LAUNCH(round_tiles<true>, p->tile_n + lag, THREADS, p->stream, *p, tg_shapes_for_kernels(), lag, hashes,
                  leaf_cap);
    }
}
