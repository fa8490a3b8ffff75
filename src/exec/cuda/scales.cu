/* Scales of whole units: one magnitude for all signs of a unit, which is known when all of its chunks are encoded. Three kernels:
 * sums of chunks, the scale of each unit, and what chunks need it for. None where chunks of fixed length are side by side: then
 * pack_leaves.cu finds the scale where it writes it. */
#include "exec/cuda/bucket.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/quantize.h"

enum { THREADS = 256 };

/* Whether the scale of a unit is used here: not where signs are listed when it is known. */
TG_DEVICE bool has_scale(const tg_gpu_unit &u)
{
    bool is_listed = u.route == TG_GPU_ROUTE_BINS && u.scale == TG_GPU_SCALE_BINS;
    return !is_listed && u.scale != TG_GPU_SCALE_NONE && u.route != TG_GPU_ROUTE_NONE && u.route != TG_GPU_ROUTE_LEADER;
}

/* A block a chunk: the sum of magnitudes, from those of its leaves, in place of the first of them. */
__global__ static void __launch_bounds__(THREADS) sum_chunks(tg_gpu_pass p)
{
    __shared__ double leaves[THREADS];
    uint32_t number = p.first + blockIdx.x;
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    if (!has_scale(u) || u.scale != TG_GPU_SCALE_MEAN) {
        return;
    }
    uint32_t leaf_n = (tg_value_count(p, number) + TG_LEAF_N - 1) / TG_LEAF_N;
    if (threadIdx.x < leaf_n) {
        leaves[threadIdx.x] = p.space.magnitudes[chunk.leaf_at + threadIdx.x];
    }
    double sum = tg_tree_of(leaves, leaf_n);
    if (threadIdx.x == 0) {
        p.space.magnitudes[chunk.leaf_at] = sum;
    }
}

/* ---- the scale of a unit --------------------------------------------------------------------------------------------------- */

/* Whether a chunk is the first of its unit in the pass. */
TG_DEVICE bool is_first(const tg_gpu_pass &p, uint32_t number)
{
    uint32_t unit = p.chunks[number].unit;
    if (p.chunks[number].at == p.units[unit].lo) {
        return true;
    }
    while (number > p.first) {
        if (p.chunks[--number].unit == unit) {
            return false;
        }
    }
    return true;
}

/* How many chunks a unit has, if all of them are in the pass, side by side from number `first` on; else 0. */
TG_DEVICE uint32_t chunks_in_row(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t first)
{
    const uint64_t each = 64 * TG_GPU_TILE; /* elements of all but the last one */
    uint64_t n = (u.hi - u.lo + each - 1) / each, last = first + n - 1;
    if (p.chunks[first].at != u.lo || last >= (uint64_t)p.first + p.chunk_n) {
        return 0;
    }
    const tg_gpu_chunk &chunk = p.chunks[last];
    return chunk.unit == p.chunks[first].unit && chunk.at + chunk.n == u.hi ? (uint32_t)n : 0;
}

/* The mean over what is sent of n chunks side by side, THREADS at a time: sums of so many are nodes of the tree. Thread 0 has it. */
TG_DEVICE float mean_of_row(const tg_gpu_pass &p, uint32_t first, uint32_t n)
{
    __shared__ double sums[THREADS];
    __shared__ unsigned long long sent;
    tg_leaf_tree tree;
    tree.n = 0;
    if (threadIdx.x == 0) {
        sent = 0;
    }
    for (uint32_t from = 0; from < n; from += THREADS) {
        uint32_t i = from + threadIdx.x;
        __syncthreads();
        if (i < n) {
            sums[threadIdx.x] = p.space.magnitudes[p.chunks[first + i].leaf_at];
            atomicAdd(&sent, (unsigned long long)tg_value_count(p, first + i));
        }
        double node = tg_tree_of(sums, min(n - from, (uint32_t)THREADS));
        if (threadIdx.x == 0) {
            tg_leaf_add(&tree, node);
        }
    }
    __syncthreads();
    return sent > 0 ? (float)(tg_leaf_sum(&tree) / (double)sent) : 0.0f;
}

/* The mean over what is sent of a unit's chunks, from number `first` on. They are in order, though not side by side. Thread 0 has
 * it. */
TG_DEVICE float mean_of(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t first)
{
    __shared__ double sums[THREADS];
    __shared__ uint32_t counts[THREADS], lens[THREADS];
    tg_leaf_tree tree;
    uint64_t sent = 0, covered = 0, end = (uint64_t)p.first + p.chunk_n;
    uint32_t unit = p.chunks[first].unit;
    tree.n = 0;
    for (uint64_t from = first; __syncthreads_or(threadIdx.x == 0 && from < end && covered < u.hi - u.lo ? 1 : 0) != 0;
         from += THREADS) {
        uint64_t number = from + threadIdx.x;
        bool is_one = number < end && p.chunks[number].unit == unit;
        lens[threadIdx.x] = is_one ? p.chunks[number].n : 0;
        counts[threadIdx.x] = is_one ? tg_value_count(p, (uint32_t)number) : 0;
        sums[threadIdx.x] = is_one ? p.space.magnitudes[p.chunks[number].leaf_at] : 0;
        __syncthreads();
        for (uint32_t i = 0; threadIdx.x == 0 && i < THREADS && covered < u.hi - u.lo; i++) {
            if (lens[i] > 0) {
                tg_leaf_add(&tree, sums[i]);
                sent += counts[i];
                covered += lens[i];
            }
        }
    }
    return sent > 0 ? (float)(tg_leaf_sum(&tree) / (double)sent) : 0.0f;
}

/* A block a chunk, of which that of a unit's first chunk finds the scale. That of bins is known. */
__global__ static void __launch_bounds__(THREADS) find_scales(tg_gpu_pass p)
{
    uint32_t number = p.first + blockIdx.x, unit = p.chunks[number].unit;
    const tg_gpu_unit &u = p.units[unit];
    bool finds = has_scale(u) && u.scale != TG_GPU_SCALE_BINS && is_first(p, number);
    uint32_t row = finds ? chunks_in_row(p, u, number) : 0;
    tg_after_previous();
    tg_next_may_begin();
    if (!finds) {
        return;
    }
    float scale = u.scale != TG_GPU_SCALE_MEAN ? 1.0f : row > 0 ? mean_of_row(p, number, row) : mean_of(p, u, number);
    if (threadIdx.x == 0) {
        scale = scale != scale ? __uint_as_float(0x7fc00000u) : scale; /* a GPU has a NaN of its own */
        p.space.scales[unit] = scale;
        if (u.pending_at > 0) {
            p.next[u.pending_at] = scale;
        }
    }
}

/* ---- what chunks need it for ----------------------------------------------------------------------------------------------- */

/* Subtracts a decoded value from the whole sum of element i of a chunk, and returns whether the residual is finite. */
TG_DEVICE bool subtract(float *next, uint32_t symbol, float scale)
{
    float residual = *next - (symbol == 0 ? scale : -scale);
    bool is_fine = tg_is_finite(residual);
    *next = is_fine ? residual : 0.0f;
    return is_fine;
}

/* Tiles, the last of all first, whose residuals are in the cache. Of a sparse chunk a block takes as many values as its tile has
 * elements. */
__global__ static void __launch_bounds__(THREADS) use_scales(tg_gpu_pass p)
{
    tg_gpu_tile tile = p.tiles[p.tile_n - 1 - blockIdx.x];
    const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    uint32_t count = tg_value_count(p, tile.chunk), end = min(count, tile.from + TG_GPU_TILE);
    if (!has_scale(u) || tile.from >= count) {
        return;
    }
    bool is_sparse = u.coordinates != TG_GPU_AT_EVERY;
    float scale = p.space.scales[chunk.unit];
    if (tile.from == 0 && threadIdx.x == 0) {
        tg_store_float(p.space.out[tile.chunk] + p.space.views[tile.chunk].side, scale);
    }
    float *next = p.next + u.residual_at + (chunk.at - u.lo);
    for (uint32_t i = tile.from + threadIdx.x; u.planes > 0 && i < end; i += THREADS) {
        uint32_t place = is_sparse ? p.space.positions[chunk.element_at + i] : i;
        uint32_t symbol = is_sparse ? p.space.symbols[2 * chunk.element_at + i] : __float_as_uint(next[i]) >> 31;
        if (!subtract(next + place, symbol, scale) && p.nonfinite == TG_GPU_ERROR) {
            tg_refuse_residual(p, tg_piece_at(p, u, chunk.at + place)->tensor);
        }
    }
}

extern "C" void tg_gpu_apply_scales(const tg_gpu_pass *p)
{
    if (p->chunk_n == 0 || !tg_pass_has(p, TG_KIND_SIGN)) {
        return;
    }
    bool has_leaves = p->leaves != nullptr; /* signs.cu sums chunks, and subtracts scales in the next step */
    if (has_leaves && p->has_rows) { /* pack_leaves.cu finds scales */
        return;
    }
    if (!has_leaves) {
        TG_LAUNCH(sum_chunks, p->chunk_n, THREADS, p->stream, *p);
    }
    TG_LAUNCH_EARLY(find_scales, p->overlaps, p->chunk_n, THREADS, p->stream, *p);
    if (!has_leaves) {
        TG_LAUNCH(use_scales, p->tile_n, THREADS, p->stream, *p);
    }
}
