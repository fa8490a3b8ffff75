/* Signs of whole tensors whose frames have a fixed length; quantize_sign.cu has those of other chunks, scales.cu finds scales. Two kernels,
 * before and after the scale is known. The first reads gradients and residuals, keeps their sum as the residual for now, and writes bits to
 * the frame: 32 values of a warp are a word. The second subtracts what is decoded, and hashes leaves of the frame. */
#include "exec/cuda/leaf.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/source.h"
#include "exec/cuda/sums.h"
#include "exec/cuda/values.h"

enum { WARPS = 4, THREADS = WARPS * TG_WARP, FOUR = 4, HALF = TG_LANE_N / 2, LEAVES_MAX = 256 };
static_assert(TG_GPU_TILE == WARPS * TG_LEAF_N, "a warp takes a leaf of a tile");

/* ---- signs ----------------------------------------------------------------------------------------------------------------- */

TG_DEVICE bool is_negative(float v)
{
    return __float_as_uint(v) >> 31 != 0;
}

/* What a lane has of a leaf of 1,024 values: the sum of its magnitudes, and the signs of 32 values side by side. */
typedef struct lane_part {
    double magnitudes;
    uint32_t signs;
} lane_part;

/* Rows of 32 values of a whole leaf in place, until one has a value that is not finite. Returns the number of rows that are done. All
 * lanes. */
template <bool HAS_RESIDUAL, class T>
TG_DEVICE unsigned take_in_place(lane_part &part, const T *g, bool is_bf16, const float *now, float *next, float decay)
{
    unsigned lane = threadIdx.x % TG_WARP;
    float zero = 0; /* unless one is not finite */
    TG_UNROLL
    for (unsigned from = 0; from < TG_LANE_N; from += HALF) {
        T given[HALF];
        float v[HALF], old[HALF];
        TG_UNROLL
        for (unsigned k = 0; k < HALF; k++) {
            given[k] = __ldcs(g + 32 * (from + k));
            old[k] = HAS_RESIDUAL ? __ldcs(now + 32 * (from + k)) : 0.0f;
        }
        TG_UNROLL
        for (unsigned k = 0; k < HALF; k++) {
            v[k] = tg_widen(given[k], is_bf16);
            v[k] = HAS_RESIDUAL ? v[k] + decay * old[k] : v[k];
            zero = fmaf(v[k], 0.0f, zero);
        }
        if (__any_sync(TG_ALL_LANES, !(zero == 0))) {
            return from;
        }
        TG_UNROLL
        for (unsigned k = 0; k < HALF; k++) {
            uint32_t signs = __ballot_sync(TG_ALL_LANES, is_negative(v[k]));
            part.signs = lane == from + k ? signs : part.signs;
            part.magnitudes += fabs((double)v[k]);
            if (HAS_RESIDUAL) {
                next[32 * (from + k)] = v[k];
            }
        }
    }
    return TG_LANE_N;
}

/* Any leaf, from row `from` on, of which n values are there. */
TG_DEVICE void take_slowly(lane_part &part, const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t unit, uint64_t at, uint32_t n,
                           unsigned from)
{
    unsigned lane = threadIdx.x % TG_WARP;
    TG_ROLL
    for (unsigned k = from; k < TG_LANE_N; k++) {
        uint32_t i = 32 * k + lane;
        float v = 0;
        if (i < n) {
            const tg_gpu_piece *piece = tg_piece_at(p, u, at + i);
            float g = tg_load_gradient(p, u, unit, piece, at + i), sum = tg_add_residual(p, u, piece, g, at + i);
            tg_keep_state(p, u, g, at + i, false);
            v = g != g ? tg_quiet(g) : sum; /* the NaN that a CPU would give */
            if (u.planes > 0) {
                p.next[u.residual_at + (at + i - u.lo)] = v;
            }
        }
        uint32_t signs = __ballot_sync(TG_ALL_LANES, is_negative(v));
        part.signs = lane == k ? signs : part.signs;
        part.magnitudes += fabs((double)v);
    }
}

/* The leaf of this warp. */
TG_DEVICE lane_part take_leaf(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_tile &tile)
{
    const tg_gpu_source s = tg_source_of(p, u, tile);
    uint32_t first = threadIdx.x / TG_WARP * TG_LEAF_N, from = first + threadIdx.x % TG_WARP, n = min(tile.n - first, TG_LEAF_N);
    float decay = (float)u.feedback_params[0], *next = p.next + s.residual_at + from;
    const float *now = p.now + s.residual_at + from, *floats = (const float *)(const void *)s.floats + from;
    const uint16_t *halves = (const uint16_t *)(const void *)s.halves + from;
    lane_part part = {0, 0};
    unsigned done = 0;
    if (n == TG_LEAF_N && s.floats != nullptr) {
        done = u.planes > 0 ? take_in_place<true>(part, floats, false, now, next, decay)
                            : take_in_place<false>(part, floats, false, now, next, decay);
    } else if (n == TG_LEAF_N && s.halves != nullptr) {
        done = u.planes > 0 ? take_in_place<true>(part, halves, s.is_bf16, now, next, decay)
                            : take_in_place<false>(part, halves, s.is_bf16, now, next, decay);
    }
    take_slowly(part, p, u, tile.unit, tile.at + first, n, done);
    return part;
}

/* The signs of n values of a leaf, to the frame. */
TG_DEVICE void put_signs(uint8_t *to, uint32_t signs, uint32_t n)
{
    uint32_t lane = threadIdx.x % TG_WARP, len = (n + 7) / 8, at = 4 * lane;
    if (at + 4 <= len && (uintptr_t)to % 4 == 0) {
        *(uint32_t *)(void *)(to + at) = signs;
        return;
    }
    for (uint32_t b = 0; b < 4 && at + b < len; b++) {
        to[at + b] = (uint8_t)(signs >> 8 * b);
    }
}

/* The last block of a chunk sums what its leaves have, in place of the first of them. */
TG_DEVICE void sum_chunk(const tg_gpu_pass &p, const tg_gpu_chunk &chunk, uint32_t number)
{
    __shared__ double leaves[LEAVES_MAX];
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(&p.space.progress[number].summed, 1u) + 1 == (chunk.n + TG_GPU_TILE - 1) / TG_GPU_TILE;
    }
    __syncthreads();
    if (!is_last) {
        return;
    }
    __threadfence();
    uint32_t leaf_n = (chunk.n + TG_LEAF_N - 1) / TG_LEAF_N;
    for (uint32_t i = threadIdx.x; i < leaf_n; i += THREADS) {
        leaves[i] = __ldcg(p.space.magnitudes + chunk.leaf_at + i);
    }
    double sum = tg_tree_of(leaves, leaf_n);
    if (threadIdx.x == 0) {
        p.space.magnitudes[chunk.leaf_at] = sum;
        p.space.progress[number].summed = 0;
    }
}

__global__ static void __launch_bounds__(THREADS, 8) take_signs(tg_gpu_pass p)
{
    const tg_gpu_tile tile = p.tiles[blockIdx.x];
    const tg_gpu_unit &u = p.units[tile.unit];
    if (!tg_unit_signs_leaves(u) || !tg_unit_sends(u, false)) {
        return;
    }
    const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
    uint32_t first = threadIdx.x / TG_WARP * TG_LEAF_N;
    if (first < tile.n) {
        lane_part part = take_leaf(p, u, tile);
        put_signs(p.space.out[tile.chunk] + chunk.side_len + (tile.from + first) / 8, part.signs, min(tile.n - first, TG_LEAF_N));
        double sum = tg_fold(part.magnitudes);
        if (threadIdx.x % TG_WARP == 0) {
            p.space.magnitudes[chunk.leaf_at + (tile.from + first) / TG_LEAF_N] = sum;
        }
    }
    if (u.scale == TG_GPU_SCALE_MEAN) {
        sum_chunk(p, chunk, tile.chunk);
    }
}

/* ---- residuals and leaves of the frame --------------------------------------------------------------------------------------- */

TG_DEVICE float rest_of(float v, float scale)
{
    return v - (is_negative(v) ? -scale : scale);
}

/* Residuals of n elements from number `from` of the tile on, one by one. */
TG_DEVICE void subtract_slowly(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_tile &tile, float scale, uint32_t from,
                               uint32_t end, uint32_t stride)
{
    TG_ROLL
    for (uint32_t i = from; i < end; i += stride) {
        float *next = p.next + u.residual_at + (tile.at + i - u.lo), residual = rest_of(*next, scale);
        bool is_fine = tg_is_finite(residual);
        *next = is_fine ? residual : 0.0f;
        if (!is_fine && p.nonfinite == TG_GPU_ERROR) {
            tg_refuse_residual(p, tg_piece_at(p, u, tile.at + i)->tensor);
        }
    }
}

TG_DEVICE void subtract_tile(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_tile &tile, float scale)
{
    enum { EACH = TG_GPU_TILE / FOUR / THREADS };
    float4 *next = (float4 *)(void *)(p.next + u.residual_at + (tile.at - u.lo)), v[EACH];
    uint32_t fours = (uintptr_t)next % 16 == 0 ? tile.n / FOUR : 0;
    TG_UNROLL
    for (uint32_t b = 0; b < EACH; b++) {
        uint32_t i = b * THREADS + threadIdx.x;
        v[b] = i < fours ? next[i] : make_float4(0, 0, 0, 0);
    }
    TG_UNROLL
    for (uint32_t b = 0; b < EACH; b++) {
        uint32_t i = b * THREADS + threadIdx.x;
        float4 r = make_float4(rest_of(v[b].x, scale), rest_of(v[b].y, scale), rest_of(v[b].z, scale), rest_of(v[b].w, scale));
        float zero = fmaf(r.x, 0.0f, fmaf(r.y, 0.0f, fmaf(r.z, 0.0f, r.w * 0.0f))); /* unless one is not finite */
        if (i < fours && zero == 0) {
            __stcs(next + i, r);
        } else if (i < fours) {
            subtract_slowly(p, u, tile, scale, FOUR * i, FOUR * i + FOUR, 1);
        }
    }
    subtract_slowly(p, u, tile, scale, FOUR * fours + threadIdx.x, tile.n, THREADS);
}

/* Leaves of the frame that this tile is the first of, by a warp. */
TG_DEVICE void hash_signs(const tg_gpu_chunk &chunk, const tg_gpu_tile &tile, uint8_t *out, float scale, uint64_t *hashes)
{
    const uint32_t each = TG_LEAF_BYTES * 8;
    uint32_t number = tile.from / each, leaf_n = (chunk.len + TG_LEAF_BYTES - 1) / TG_LEAF_BYTES;
    uint32_t end = tile.from + each >= chunk.n ? leaf_n : number + 1;
    if (number == 0 && threadIdx.x % TG_WARP == 0) {
        tg_store_float(out, scale);
    }
    __syncwarp();
    for (; number < end; number++) {
        uint32_t from = number * TG_LEAF_BYTES;
        uint64_t hash = tg_hash_leaf(out + from, min(chunk.len - from, TG_LEAF_BYTES));
        if (threadIdx.x % TG_WARP == 0) {
            hashes[number] = hash;
        }
    }
}

/* Tiles, the last of all first, whose residuals are in the cache. */
__global__ static void __launch_bounds__(THREADS, 8) use_signs(tg_gpu_pass p, uint64_t *hashes, uint32_t leaf_cap)
{
    tg_after_previous();
    tg_next_may_begin();
    const tg_gpu_tile tile = p.tiles[p.tile_n - 1 - blockIdx.x];
    const tg_gpu_unit &u = p.units[tile.unit];
    if (!tg_unit_signs_leaves(u) || !tg_unit_sends(u, false)) {
        return;
    }
    const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
    float scale = p.space.scales[tile.unit];
    if (tile.from % (TG_LEAF_BYTES * 8) == 0 && threadIdx.x / TG_WARP == WARPS - 1) {
        hash_signs(chunk, tile, p.space.out[tile.chunk], scale, hashes + (uint64_t)(tile.chunk - p.first) * leaf_cap);
    }
    if (u.planes > 0) {
        subtract_tile(p, u, tile, scale);
    }
}

/* ---- launches ---------------------------------------------------------------------------------------------------------------- */

void tg_launch_take_signs(const tg_gpu_pass *p)
{
    TG_LAUNCH(take_signs, p->tile_n, THREADS, p->stream, *p);
}

void tg_launch_use_signs(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    if (p->chunk_n > 0 && tg_pass_has(p, TG_KIND_SIGN)) {
        TG_LAUNCH_EARLY(use_signs, p->overlaps, p->tile_n, THREADS, p->stream, *p, hashes, leaf_cap);
    }
}
