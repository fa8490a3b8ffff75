/* Floats of a few bits, of whole tensors (minifloat.h): one kernel, which reads gradients and residuals once. A block has a part of a chunk:
 * gradient + residual goes to shared memory while moments are summed, and is rounded there when the step is known. The step is fitted to
 * a chunk: each block leaves the sums of its part, waits for those of the others, and fits the step itself.
 *
 * The blocks of a chunk are a cluster, so the GPU runs them at the same time, whatever else it runs.
 *
 * Symbols of whole bytes go to the frame, leaf by leaf, each of which is hashed; others to space.symbols, and those that are going to be
 * coded are counted. */
#include "exec/cuda/pack.h"
#include "exec/cuda/round.h"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif
#include <stdlib.h>

enum { WARPS = 8, THREADS = WARPS * TG_WARP, FOUR = 4, TILE = TG_GPU_TILE, TILES = TG_GPU_PART_TILES };
enum { LEAVES = TILES * TILE / TG_LEAF_N, TEAM = THREADS / 2 /* threads of a leaf of the frame */ };
enum { BEFORE = 8 /* values before a part that can be held, too */, SYMBOLS = 256, BLOCKS = 3 /* of a multiprocessor */ };
static_assert((uint32_t)LEAVES == 2 * (uint32_t)WARPS, "a warp sums two leaves");
static_assert((uint32_t)TILE == 4 * TG_LEAF_N && (uint32_t)TILE == TG_LEAF_BYTES, "a tile is a leaf of the frame");
static_assert((uint32_t)TILE * TILES == 2 * (uint32_t)TG_PACK_TILE, "symbols of a part are counted as those of two tiles of packs");

typedef struct hold_space {
    float values[BEFORE + TILES * TILE]; /* gradient + residual */
    union {
        uint4 leaves[2][TG_LEAF_VECTORS]; /* of the frame */
        uint32_t counts[WARPS * SYMBOLS]; /* of each warp */
    };
    tg_gpu_moments moments[LEAVES];
    tg_fit_shapes shapes;
    tg_round_step step;
    tg_round_tile tiles[TILES];
    uint32_t tile_n, part, parts; /* of the block; its number in the chunk; of the chunk */
    uint32_t others;              /* symbols other than that of 0 */
} hold_space;

static_assert(BLOCKS * (sizeof(hold_space) + 1024) <= 228 * 1024, "so many blocks fit, with what CUDA reserves for each");

/* Finds the tiles of the part; none if it is empty. One warp. */
template <bool BY_LEAVES> TG_DEVICE void take_part(const tg_gpu_pass &p, hold_space &space)
{
    uint32_t lane = threadIdx.x % TG_WARP;
    const tg_gpu_part part = p.parts[blockIdx.x];
    const uint32_t tile = part.tile - p.parts[0].tile;
    if (lane < part.tile_n) {
        space.tiles[lane] = tg_round_tile_of(p, p.tiles + (tile + lane), BY_LEAVES);
    }
    if (lane == 0) {
        space.tile_n = part.tile_n;
    }
    if (lane == 0 && part.tile_n > 0) {
        const tg_round_tile &t = space.tiles[0];
        space.part = t.tile->from / (TILES * TILE);
        space.parts = (t.tiles + TILES - 1) / TILES;
        space.step.rounding.f = tg_minifloat_of(*t.u);
        space.others = 0;
    }
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

TG_DEVICE void sum_part(const tg_gpu_pass &p, hold_space &space)
{
    TG_ROLL
    for (uint32_t leaf = threadIdx.x / TG_WARP; leaf < LEAVES; leaf += WARPS) {
        uint32_t k = leaf / (LEAVES / TILES), in_tile = leaf % (LEAVES / TILES);
        if (k < space.tile_n && in_tile * TG_LEAF_N < space.tiles[k].tile->n) {
            tg_gpu_moments m =
                tg_round_sum<true>(p, space.tiles[k], in_tile, space.values + BEFORE + k * (uint32_t)TILE);
            if (threadIdx.x % TG_WARP == 0) {
                space.moments[leaf] = m;
            }
        }
    }
}

/* Values before the part, in the frame's leaf that is its first one. One warp. */
TG_DEVICE void hold_before(const tg_gpu_pass &p, hold_space &space)
{
    const tg_round_tile &t = space.tiles[0];
    int i = (int)(threadIdx.x % TG_WARP), n = min(t.before, (int)BEFORE);
    if (tg_source_has(t.source) && i < n) {
        space.values[BEFORE - 1 - i] = tg_round_load_in_place(p, t, -1 - i);
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
TG_DEVICE void fit_step(const tg_gpu_pass &p, const tg_shape_table &shapes, hold_space &space)
{
    const uint64_t sign = 1ull << 63; /* of numbers that are not negative; it says that they are there */
    const tg_round_tile &t = space.tiles[0], &last = space.tiles[space.tile_n - 1];
    const tg_gpu_minifloat f = space.step.rounding.f;
    uint32_t lane = threadIdx.x % TG_WARP, parts = space.parts;
    uint32_t n = (last.tile->from - t.tile->from + last.tile->n + TG_LEAF_N - 1) / TG_LEAF_N;
    tg_gpu_moments m = {0, 0, 0};
    if (lane < n) {
        m = space.moments[lane];
    }
    m.magnitudes = tree_of_lanes(m.magnitudes, n);
    m.squares = tree_of_lanes(m.squares, n);
    m.count = __reduce_add_sync(TG_ALL_LANES, m.count);
    if (lane == 0) {
        volatile tg_gpu_node *own = &t.progress->nodes[space.part];
        own->magnitudes = (uint64_t)__double_as_longlong(m.magnitudes) | sign;
        own->squares = (uint64_t)__double_as_longlong(m.squares) | sign;
        own->count = m.count + 1ull;
    }
    tg_fit_load_shapes(space.shapes, shapes, f, lane, TG_WARP); /* meanwhile */
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
        space.step.rounding = tg_rounding_of(f, fit.step);
        space.step.shape = fit.shape;
        if (space.part == 0) {
            uint8_t *side = p.space.out[t.tile->chunk] + p.space.views[t.tile->chunk].side;
            tg_store_float(side, fit.step);
            side[4] = fit.shape;
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

/* Fours [from, end) of a tile, whose values are held, with a step for which rounding is fast. */
template <bool HAS_RESIDUAL>
TG_DEVICE void round_fours(const tg_rounded &to, const tg_gpu_pass &p, const tg_round_tile &t, const hold_space &space,
                           const float4 *held, uint32_t from, uint32_t end)
{
    enum { BATCH = 2 };
    const tg_rounding r = space.step.rounding;
    float4 *next = (float4 *)(void *)(p.next + t.source.residual_at);
    TG_ROLL
    for (uint32_t first = from + threadIdx.x; first < end; first += BATCH * THREADS) {
        float4 loaded[BATCH];
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            loaded[b] = held[min(first + b * THREADS, end - 1)];
        }
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            uint32_t i = first + b * THREADS;
            const float v[FOUR] = {loaded[b].x, loaded[b].y, loaded[b].z, loaded[b].w};
            if (i < end && !tg_round_four<HAS_RESIDUAL>(to, next, r, space.step.table, i, v)) {
                tg_round_slowly(to.bytes, to.counts, p, t, space.step, FOUR * (int)i, FOUR * (int)i + FOUR, 1);
            }
        }
    }
}

/* Elements [from, end) of tile k of the part; from may be below 0. Those that are no whole four are the last warp's. */
TG_DEVICE void round_range(const tg_rounded &to, const tg_gpu_pass &p, const hold_space &space, uint32_t k, int from,
                           int end)
{
    const tg_round_tile &t = space.tiles[k];
    const float *held = space.values + BEFORE + k * (uint32_t)TILE;
    int first = (max(from, 0) + FOUR - 1) / FOUR, last = max(end / FOUR, first), thread = (int)threadIdx.x;
    if (!tg_source_has(t.source) || !space.step.rounding.is_fast || -from > min(t.before, (int)BEFORE)) {
        tg_round_slowly(to.bytes, to.counts, p, t, space.step, from + thread, end, THREADS);
        return;
    }
    int ahead = min(FOUR * first, end) - from, lane = thread - (THREADS - (int)TG_WARP);
    if (lane >= 0 && lane < ahead + max(end - FOUR * last, 0)) {
        int i = lane < ahead ? from + lane : FOUR * last + lane - ahead;
        tg_round_one(to, p, t, space.step, i, held[i]);
    }
    const float4 *fours = (const float4 *)(const void *)held;
    if (t.has_residual) {
        round_fours<true>(to, p, t, space, fours, (uint32_t)first, (uint32_t)last);
    } else {
        round_fours<false>(to, p, t, space, fours, (uint32_t)first, (uint32_t)last);
    }
}

/* The leaves of the frame that are the part, two at a time: half of the block hashes and copies one. */
TG_DEVICE void round_to_frame(const tg_gpu_pass &p, hold_space &space, uint64_t *hashes, uint32_t leaf_cap)
{
    const tg_round_tile &t = space.tiles[0];
    const uint32_t first = t.tile->from / TG_LEAF_BYTES, team = threadIdx.x / TEAM, thread = threadIdx.x % TEAM;
    const uint32_t side_len = t.chunk->side_len, chunk_leaves = (t.chunk->len + TG_LEAF_BYTES - 1) / TG_LEAF_BYTES;
    const uint32_t leaf_n = first + space.tile_n == t.tiles ? chunk_leaves - first : space.tile_n;
    uint8_t *out = p.space.out[t.tile->chunk];
    hashes += (uint64_t)(t.tile->chunk - p.first) * leaf_cap;
    TG_ROLL
    for (uint32_t pair = 0; pair < leaf_n; pair += 2) {
        if (pair > 0) {
            __syncthreads();
        }
        TG_ROLL
        for (uint32_t i = pair; i < min(pair + 2, leaf_n); i++) {
            uint32_t k = min(i, space.tile_n - 1);
            const tg_round_leaf l = tg_round_leaf_of(space.tiles[k], first + i);
            uint8_t *bytes = (uint8_t *)(void *)space.leaves[i % 2];
            if (threadIdx.x < l.side) {
                bytes[threadIdx.x] = tg_round_beside(space.step, threadIdx.x);
            }
            round_range({bytes + l.side - l.first, side_len % FOUR == 0, nullptr}, p, space, k, l.first, l.end);
        }
        __syncthreads();
        uint32_t own = pair + team;
        if (own < leaf_n) {
            const tg_round_leaf l = tg_round_leaf_of(space.tiles[min(own, space.tile_n - 1)], first + own);
            if (thread < TG_WARP) {
                uint64_t hashed = tg_hash_aligned(space.leaves[team], l.len);
                if (thread == 0) {
                    hashes[first + own] = hashed;
                }
            } else {
                tg_copy_by(out + l.from, (const uint8_t *)(const void *)space.leaves[team], l.len, thread - TG_WARP,
                           TEAM - TG_WARP);
            }
        }
    }
}

/* Symbols of the part to space.symbols; with COUNTS, each warp counts its own. */
template <bool COUNTS> TG_DEVICE void round_to_symbols(const tg_gpu_pass &p, hold_space &space)
{
    TG_ROLL
    for (uint32_t k = 0; k < space.tile_n; k++) {
        const tg_round_tile &t = space.tiles[k];
        uint8_t *bytes = p.space.symbols + 2 * t.chunk->element_at + t.tile->from;
        uint32_t *counts = COUNTS ? space.counts + threadIdx.x / TG_WARP * SYMBOLS : nullptr;
        round_range({bytes, (uintptr_t)bytes % FOUR == 0, counts}, p, space, k, 0, (int)t.tile->n);
    }
}

/* Adds up the counts of warps, to those of the first tile of packs in the part; the other one has none. */
TG_DEVICE void end_counts(const tg_gpu_pass &p, hold_space &space)
{
    const tg_round_tile &t = space.tiles[0], &last = space.tiles[space.tile_n - 1];
    const uint32_t n = last.tile->from - t.tile->from + last.tile->n, s = threadIdx.x, zero = space.step.rounding.f.zero;
    uint16_t *counts = tg_pack_scratch_of(p, p.space.scratch, t.tile->chunk).counts + 2 * space.part * TG_PACK_BASE;
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

template <bool BY_LEAVES>
__global__ static void __launch_bounds__(THREADS, BLOCKS)
    hold_parts(const __grid_constant__ tg_gpu_pass p, const __grid_constant__ tg_shape_table shapes, uint64_t *hashes,
               uint32_t leaf_cap)
{
    hold_space &space = *(hold_space *)tg_dynamic_shared();
    const uint32_t warp = threadIdx.x / TG_WARP;
    tg_next_may_begin();
    if (warp == 0) {
        take_part<BY_LEAVES>(p, space);
    }
    __syncthreads();
    const tg_round_tile &t = space.tiles[0];
    if (space.tile_n == 0 || !t.is_mine) {
        return;
    }
    const bool counts = !BY_LEAVES && p.counts_early != 0 && t.u->coded != 0;
    if (counts) {
        for (uint32_t i = threadIdx.x; i < WARPS * SYMBOLS; i += THREADS) {
            space.counts[i] = 0;
        }
    }
    sum_part(p, space);
    __syncthreads();
    if (warp == 0) {
        fit_step(p, shapes, space);
    } else if (BY_LEAVES && warp == 1) {
        hold_before(p, space);
    }
    __syncthreads();
    if (t.has_residual) {
        for (uint32_t s = threadIdx.x; s < t.u->base; s += THREADS) {
            space.step.table[s] = tg_minifloat_value(space.step.rounding.f, space.step.rounding.step, s);
        }
        __syncthreads();
    }
    if (BY_LEAVES) {
        round_to_frame(p, space, hashes, leaf_cap);
    } else if (counts) {
        round_to_symbols<true>(p, space);
        end_counts(p, space);
    } else {
        round_to_symbols<false>(p, space);
    }
}

/* ---- launches ------------------------------------------------------------------------------------------------------------ */

#if defined(__CUDACC__)
/* How many clusters of a kernel the GPU that is current runs at once; 0 if it has no clusters of that size. */
template <class Kernel> static int clusters_at_once(Kernel *kernel)
{
    cudaLaunchAttribute cluster;
    cudaLaunchConfig_t config = tg_config_together(&cluster, TG_GPU_PARTS, TG_GPU_PARTS, THREADS, sizeof(hold_space), nullptr);
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

static bool has_space(void)
{
    const int least = 4; /* with fewer it would not pay */
    return clusters_at_once(hold_parts<false>) >= least && clusters_at_once(hold_parts<true>) >= least;
}
#else
static bool has_space(void)
{
    return true;
}
#endif

extern "C" int tg_gpu_can_hold(void)
{
    const char *wanted = getenv("TG_HOLD");
    return (wanted == nullptr || wanted[0] != '0') && has_space() ? 1 : 0;
}

void tg_launch_hold_tiles(const tg_gpu_pass *p)
{
    TG_LAUNCH_TOGETHER(hold_parts<false>, TG_GPU_PARTS, p->part_n, THREADS, sizeof(hold_space), p->stream, *p,
                       tg_shapes_for_kernels(), nullptr, 0u);
}

void tg_launch_hold_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    TG_LAUNCH_TOGETHER(hold_parts<true>, TG_GPU_PARTS, p->part_n, THREADS, sizeof(hold_space), p->stream, *p,
                       tg_shapes_for_kernels(), hashes, leaf_cap);
}
