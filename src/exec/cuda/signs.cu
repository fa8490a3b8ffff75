/* Signs of whole tensors whose frames have a fixed length; quantize_sign.cu has those of other chunks, scales.cu finds scales, and
 * pack_leaves.cu hashes leaves. Gradients and residuals are read once: a step keeps gradient + residual, and the scale beside it
 * (tg_gpu_unit.pending_at), which the next step subtracts when it reads them. 32 values of a warp are a word of the frame. */
#include "exec/cuda/bucket.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/source.h"

enum { WARPS = 4, THREADS = WARPS * TG_WARP, HALF = TG_LANE_N / 2, LEAVES_MAX = 256 };
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

/* ---- signs ----------------------------------------------------------------------------------------------------------------- */

/* What a lane has of a leaf of 1,024 values: the sum of its magnitudes, and the signs of 32 values side by side. */
typedef struct lane_part {
    double magnitudes;
    uint32_t signs;
} lane_part;

/* Rows of 32 values of a whole leaf in place, until one has a value that is not finite. Returns the number of rows that are done. All
 * lanes. */
template <bool HAS_RESIDUAL, class T>
TG_DEVICE unsigned take_in_place(lane_part &part, const T *g, bool is_bf16, const float *now, float *next, float decay, float scale)
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
            v[k] = HAS_RESIDUAL ? v[k] + decay * rest_of(old[k], scale) : v[k];
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
                __stcs(next + 32 * (from + k), v[k]);
            }
        }
    }
    return TG_LANE_N;
}

/* Any leaf, from row `from` on, of which n values are there. */
TG_DEVICE void take_slowly(lane_part &part, const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t unit, uint64_t at, uint32_t n,
                           float scale, unsigned from)
{
    unsigned lane = threadIdx.x % TG_WARP;
    TG_ROLL
    for (unsigned k = from; k < TG_LANE_N; k++) {
        uint32_t i = 32 * k + lane;
        float v = 0;
        if (i < n) {
            const tg_gpu_piece *piece = tg_piece_at(p, u, at + i);
            float g = tg_load_gradient(p, u, unit, piece, at + i);
            v = g;
            if (u.planes > 0) {
                uint64_t place = u.residual_at + (at + i - u.lo);
                v = tg_add_to_residual(p, u, piece, g, at + i, residual_of(p.now[place], scale));
                tg_keep_state(p, u, g, at + i, false);
                p.next[place] = v;
            }
            v = g != g ? tg_quiet(g) : v; /* the NaN that a CPU would give */
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
    float scale = u.planes > 0 ? p.now[u.pending_at] : 0.0f;
    lane_part part = {0, 0};
    unsigned done = 0;
    if (n == TG_LEAF_N && s.floats != nullptr) {
        done = u.planes > 0 ? take_in_place<true>(part, floats, false, now, next, decay, scale)
                            : take_in_place<false>(part, floats, false, now, next, decay, scale);
    } else if (n == TG_LEAF_N && s.halves != nullptr) {
        done = u.planes > 0 ? take_in_place<true>(part, halves, s.is_bf16, now, next, decay, scale)
                            : take_in_place<false>(part, halves, s.is_bf16, now, next, decay, scale);
    }
    take_slowly(part, p, u, tile.unit, tile.at + first, n, scale, done);
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
    tg_after_previous();
    tg_next_may_begin();
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

/* ---- launches ---------------------------------------------------------------------------------------------------------------- */

void tg_launch_take_signs(const tg_gpu_pass *p)
{
    TG_LAUNCH_EARLY(take_signs, p->overlaps, p->tile_n, THREADS, p->stream, *p);
}

extern "C" void tg_gpu_subtract_pending(const tg_gpu_unit *units, uint32_t unit_n, float *residuals, void *stream)
{
    TG_LAUNCH(subtract_pending, unit_n, SUBTRACTORS, stream, units, residuals);
}
