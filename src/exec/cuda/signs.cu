/* Signs of whole tensors whose frames have a fixed length; quantize_sign.cu has those of other chunks, scales.cu finds scales, and
 * pack_leaves.cu hashes leaves. Gradients and residuals are read once: a step keeps gradient + residual, and the scale beside it
 * (tg_gpu_unit.pending_at), which the next step subtracts when it reads them. 32 values of a warp are a word of the frame. */
#include "exec/cuda/bucket.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/source.h"

enum { WARPS = 4, THREADS = WARPS * TG_WARP, BLOCKS = 5 /* that a multiprocessor runs at once */ };
enum { ROWS = TG_LANE_N / 2 /* of 32 values, that are loaded at once */, LEAVES_MAX = 256 };
enum { SUBTRACTORS = 1024 }; /* threads that subtract the scale of a unit */
static_assert(TG_GPU_TILE == WARPS * TG_LEAF_N, "a warp takes a leaf of a tile");

/* ---- residuals --------------------------------------------------------------------------------------------------------------- */

#define NOTHING_PENDING 0x80000000u /* bits of -0, which changes nothing that it is subtracted from */

TG_DEVICE bool is_negative(float v)
{
    return __float_as_uint(v) >> 31 != 0;
}

/* What is left of a value of which the scale was sent with its sign. */
TG_DEVICE float rest_of(float v, float scale)
{
    return v - (is_negative(v) ? -scale : scale);
}

/* The same as a residual. A scale is at most the largest magnitude, so only values that are not finite leave others; a step that refuses
 * those has done so when it took them. */
TG_DEVICE float residual_of(float v, float scale)
{
    float residual = rest_of(v, scale);
    return tg_is_finite(residual) ? residual : 0.0f;
}

/* Subtracts what is pending. A block a unit, since this is seldom needed. */
__global__ static void __launch_bounds__(SUBTRACTORS) subtract_pending(const tg_gpu_unit *units, float *residuals)
{
    const tg_gpu_unit &u = units[blockIdx.x];
    float *of_unit = residuals + u.residual_at, *pending = residuals + u.pending_at;
    if (u.pending_at == 0 || __float_as_uint(*pending) == NOTHING_PENDING) {
        return;
    }
    float scale = *pending;
    for (uint64_t i = threadIdx.x; i < u.hi - u.lo; i += SUBTRACTORS) {
        of_unit[i] = residual_of(of_unit[i], scale);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        *pending = __uint_as_float(NOTHING_PENDING);
    }
}

/* ---- rows ------------------------------------------------------------------------------------------------------------------ */

/* What a lane has of a leaf of 1,024 values: the sum of its magnitudes, and the signs of 32 values side by side. */
typedef struct lane_part {
    double magnitudes;
    uint32_t signs;
} lane_part;

/* Where a lane has its values of some rows, of a leaf that is whole and in place. */
typedef struct row_source {
    const void *values; /* NULL: it is another leaf */
    const float *now;   /* residuals; NULL: there are none */
    uint32_t dtype;
} row_source;

/* Such rows, as they are in memory. */
typedef struct lane_rows {
    uint32_t given[ROWS];
    float old[ROWS];
} lane_rows;

TG_DEVICE bool is_mine(const tg_gpu_unit &u)
{
    return (u.kinds >> TG_KIND_SIGN & 1) != 0 && tg_unit_sends(u, false);
}

/* The first rows of this warp's leaf in tile t. */
TG_DEVICE row_source first_rows(const tg_gpu_pass &p, uint32_t t)
{
    const tg_gpu_tile tile = p.tiles[t];
    const tg_gpu_unit &u = p.units[tile.unit];
    const uint32_t first = threadIdx.x / TG_WARP * TG_LEAF_N, from = first + threadIdx.x % TG_WARP;
    const tg_gpu_source s = tg_source_of(p, u, tile);
    row_source rows = {nullptr, nullptr, s.floats != nullptr ? 0u : s.is_bf16 ? 2u : 1u};
    if (is_mine(u) && tile.n >= first + TG_LEAF_N && tg_source_has(s)) {
        rows.values = rows.dtype == 0 ? (const void *)((const float *)(const void *)s.floats + from)
                                      : (const void *)((const uint16_t *)(const void *)s.halves + from);
        rows.now = u.planes > 0 ? p.now + s.residual_at + from : nullptr;
    }
    return rows;
}

/* The rows after them. */
TG_DEVICE row_source later_rows(const row_source &s)
{
    return {s.values == nullptr ? nullptr : (const char *)s.values + 32 * ROWS * (s.dtype == 0 ? 4 : 2),
            s.now == nullptr ? nullptr : s.now + 32 * ROWS, s.dtype};
}

/* What was loaded before is in use while these are on their way. */
TG_DEVICE void load_rows(lane_rows &rows, const row_source &s)
{
    if (s.values == nullptr) {
        return;
    }
    if (s.dtype == 0) {
        TG_UNROLL
        for (unsigned k = 0; k < ROWS; k++) {
            rows.given[k] = __ldcs((const uint32_t *)s.values + 32 * k);
        }
    } else {
        TG_UNROLL
        for (unsigned k = 0; k < ROWS; k++) {
            rows.given[k] = __ldcs((const uint16_t *)s.values + 32 * k);
        }
    }
    if (s.now != nullptr) {
        TG_UNROLL
        for (unsigned k = 0; k < ROWS; k++) {
            rows.old[k] = __ldcs(s.now + 32 * k);
        }
    }
}

/* gradient + residual of rows. False, in all lanes: one is not finite. */
TG_DEVICE bool add_rows(float v[ROWS], const lane_rows &rows, const row_source &s, float decay, float scale)
{
    float zero = 0; /* unless one is not finite */
    if (s.dtype == 0) {
        TG_UNROLL
        for (unsigned k = 0; k < ROWS; k++) {
            v[k] = __uint_as_float(rows.given[k]);
        }
    } else {
        TG_UNROLL
        for (unsigned k = 0; k < ROWS; k++) {
            v[k] = tg_any_half(rows.given[k], s.dtype == 2);
        }
    }
    if (s.now != nullptr) {
        TG_UNROLL
        for (unsigned k = 0; k < ROWS; k++) {
            v[k] = v[k] + decay * rest_of(rows.old[k], scale);
        }
    }
    TG_UNROLL
    for (unsigned k = 0; k < ROWS; k++) {
        zero = fmaf(v[k], 0.0f, zero);
    }
    return !__any_sync(TG_ALL_LANES, !(zero == 0));
}

/* Such rows, from number `from` on: signs, magnitudes and, unless `next` is NULL, the next residuals. */
TG_DEVICE void keep_rows(lane_part &part, const float v[ROWS], float *next, unsigned from)
{
    const unsigned lane = threadIdx.x % TG_WARP;
    TG_UNROLL
    for (unsigned k = 0; k < ROWS; k++) {
        uint32_t signs = __ballot_sync(TG_ALL_LANES, is_negative(v[k]));
        part.signs = lane == from + k ? signs : part.signs;
        part.magnitudes += fabs((double)v[k]);
    }
    if (next != nullptr) {
        TG_UNROLL
        for (unsigned k = 0; k < ROWS; k++) {
            __stcs(next + 32 * k, v[k]);
        }
    }
}

/* Any ROWS rows of this warp's leaf in tile t, one by one. */
TG_CALLED lane_part take_slowly(lane_part part, const tg_gpu_pass &p, uint32_t t, unsigned from)
{
    const tg_gpu_tile tile = p.tiles[t];
    const tg_gpu_unit &u = p.units[tile.unit];
    const uint32_t lane = threadIdx.x % TG_WARP, first = threadIdx.x / TG_WARP * TG_LEAF_N;
    const float scale = u.planes > 0 ? p.now[u.pending_at] : 0.0f;
    TG_ROLL
    for (unsigned k = from; k < from + ROWS; k++) {
        const uint32_t i = first + 32 * k + lane;
        const uint64_t at = tile.at + i;
        float v = 0;
        if (i < tile.n) {
            const tg_gpu_piece *piece = tg_piece_at(p, u, at);
            const float g = tg_load_gradient(p, u, tile.unit, piece, at);
            v = g;
            if (u.planes > 0) {
                const uint64_t place = u.residual_at + (at - u.lo);
                v = tg_add_to_residual(p, u, piece, g, at, residual_of(p.now[place], scale));
                tg_keep_state(p, u, g, at, false);
                p.next[place] = v;
            }
            v = g != g ? tg_quiet(g) : v; /* the NaN that a CPU would give */
        }
        uint32_t signs = __ballot_sync(TG_ALL_LANES, is_negative(v));
        part.signs = lane == k ? signs : part.signs;
        part.magnitudes += fabs((double)v);
    }
    return part;
}

/* ---- leaves ------------------------------------------------------------------------------------------------------------------ */

/* The leaf of this warp in tile t, whose first rows are loaded; those of the next leaf are loaded then. */
TG_DEVICE lane_part take_leaf(lane_rows &rows, const tg_gpu_pass &p, uint32_t t, const row_source &own, const row_source &next_leaf)
{
    const tg_gpu_tile tile = p.tiles[t];
    const tg_gpu_unit &u = p.units[tile.unit];
    const uint32_t from = threadIdx.x / TG_WARP * TG_LEAF_N + threadIdx.x % TG_WARP;
    const float decay = (float)u.feedback_params[0], scale = own.now != nullptr ? p.now[u.pending_at] : 0.0f;
    float *next = own.now != nullptr ? p.next + u.residual_at + (tile.at - u.lo) + from : nullptr;
    lane_part part = {0, 0};
    TG_ROLL
    for (unsigned row = 0; row < TG_LANE_N; row += ROWS) {
        const row_source ahead = row == 0 ? later_rows(own) : next_leaf;
        float v[ROWS];
        if (own.values != nullptr && add_rows(v, rows, own, decay, scale)) {
            load_rows(rows, ahead);
            keep_rows(part, v, next != nullptr ? next + 32 * row : nullptr, row);
        } else {
            part = take_slowly(part, p, t, row);
            load_rows(rows, ahead);
        }
    }
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

/* ---- tiles --------------------------------------------------------------------------------------------------------------------- */

/* Called when `done` tiles of a chunk are done by this block. The last block of the chunk sums what its leaves have, in place of the first
 * of them. */
TG_DEVICE void end_tiles(const tg_gpu_pass &p, uint32_t number, uint32_t done)
{
    __shared__ double leaves[LEAVES_MAX];
    __shared__ bool is_last;
    const tg_gpu_chunk &chunk = p.chunks[number];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t before = atomicAdd(&p.space.progress[number].summed, done);
        is_last = before + done == (chunk.n + TG_GPU_TILE - 1) / TG_GPU_TILE;
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

/* A block has tiles side by side. While a warp takes rows, its next ones are on their way. */
__global__ static void __launch_bounds__(THREADS, BLOCKS) take_signs(const __grid_constant__ tg_gpu_pass p)
{
    const uint32_t each = p.tile_n / gridDim.x, more = p.tile_n % gridDim.x; /* so many blocks have one more */
    const uint32_t begin = blockIdx.x * each + min(blockIdx.x, more), end = begin + each + (blockIdx.x < more ? 1 : 0);
    const uint32_t first = threadIdx.x / TG_WARP * TG_LEAF_N;
    if (!tg_finds_early(p)) {
        tg_after_previous();
    }
    row_source own = first_rows(p, begin);
    tg_after_previous();
    tg_next_may_begin();
    lane_rows rows;
    load_rows(rows, own);
    uint32_t done = 0; /* tiles of a chunk whose leaves are summed */
    TG_ROLL
    for (uint32_t t = begin; t < end; t++) {
        const tg_gpu_tile tile = p.tiles[t];
        const tg_gpu_unit &u = p.units[tile.unit];
        const row_source next_leaf = t + 1 < end ? first_rows(p, t + 1) : row_source{nullptr, nullptr, 0};
        if (is_mine(u) && first < tile.n) {
            const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
            lane_part part = take_leaf(rows, p, t, own, next_leaf);
            put_signs(p.space.out[tile.chunk] + chunk.side_len + (tile.from + first) / 8, part.signs, min(tile.n - first, TG_LEAF_N));
            double sum = tg_fold(part.magnitudes);
            if (threadIdx.x % TG_WARP == 0) {
                p.space.magnitudes[chunk.leaf_at + (tile.from + first) / TG_LEAF_N] = sum;
            }
        } else {
            load_rows(rows, next_leaf);
        }
        own = next_leaf;
        done += is_mine(u) && u.scale == TG_GPU_SCALE_MEAN && !tg_is_summed_late(p, u) ? 1 : 0;
        if (done > 0 && (t + 1 == end || p.tiles[t + 1].chunk != tile.chunk)) {
            end_tiles(p, tile.chunk, done);
            done = 0;
        }
    }
}

/* ---- launches ---------------------------------------------------------------------------------------------------------------- */

void tg_launch_take_signs(const tg_gpu_pass *p)
{
    const uint64_t blocks = (uint64_t)BLOCKS * p->processors;
    TG_LAUNCH_EARLY(take_signs, p->overlaps, blocks < p->tile_n ? blocks : p->tile_n, THREADS, p->stream, *p);
}

extern "C" void tg_gpu_subtract_pending(const tg_gpu_unit *units, uint32_t unit_n, float *residuals, void *stream)
{
    TG_LAUNCH(subtract_pending, unit_n, SUBTRACTORS, stream, units, residuals);
}
