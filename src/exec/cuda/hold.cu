/* Floats of a few bits, of whole tensors (minifloat.h): one kernel, which reads gradients and residuals once. A block has a part of a chunk:
 * gradient + residual goes to shared memory while moments are summed, and is rounded there when the step is known. The step is fitted to
 * a chunk: each block leaves the sums of its part, waits for those of the others, and fits the step itself. Then it takes a part of
 * another chunk, which it has found, and of which it has prefetched half, while it waited for the step.
 *
 * The blocks of a chunk are a cluster, so the GPU runs them at the same time, whatever else it runs.
 *
 * Symbols of whole bytes go to the frame, and its leaves are hashed; others to space.symbols, and those that are going to be coded are
 * counted. A warp rounds half of a tile, and hashes half of a leaf of the frame. */
#include "exec/cuda/hold.h"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif
#include <stdlib.h>

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
        prefetch_first(p, after);
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
    if (!tg_finds_early(p)) {
        tg_after_previous();
    }
    if (warp == AHEAD) {
        find_part<BY_LEAVES>(p, blockIdx.x, space.parts[0]);
    } else if (warp < AHEAD) {
        touch_shapes(shapes);
        space.shapes_of = 0;
    }
    tg_after_previous();
    tg_next_may_begin();
    begin_in_turn(p);
    if (warp == AHEAD) {
        prefetch_first(p, space.parts[0]);
        prefetch_rest(p, space.parts[0]);
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
            prefetch_first(p, after);
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
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config =
        tg_config_together(attributes, TG_GPU_PARTS, false, TG_GPU_PARTS, THREADS, sizeof(hold_space), nullptr);
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
    TG_LAUNCH_TOGETHER(hold_parts<false>, TG_GPU_PARTS, p->overlaps, min(p->part_n, p->part_blocks), THREADS,
                       sizeof(hold_space), p->stream, *p, tg_shapes_for_kernels(), nullptr, 0u);
}

void tg_launch_hold_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    TG_LAUNCH_TOGETHER(hold_parts<true>, TG_GPU_PARTS, p->overlaps, min(p->part_n, p->part_blocks), THREADS,
                       sizeof(hold_space), p->stream, *p, tg_shapes_for_kernels(), hashes, leaf_cap);
}
