/* Rounding of whole tensors to floats of a few bits (minifloat.h): what a tile is, moments of its leaves, and rounding of elements. round.cu
 * and hold.cu have the kernels. */
#ifndef TG_EXEC_CUDA_ROUND_H
#define TG_EXEC_CUDA_ROUND_H

#include "exec/cuda/leaf.h"
#include "exec/cuda/minifloat.h"
#include "exec/cuda/source.h"

enum { TG_ROUND_FEW = 16 };

/* What is done with a tile: by leaves of the frame, or into space.symbols. */
typedef struct tg_round_tile {
    const tg_gpu_tile *tile;
    const tg_gpu_chunk *chunk;
    const tg_gpu_unit *u;
    tg_gpu_source source;
    tg_gpu_progress *progress;
    uint32_t tiles; /* of the chunk */
    int before;     /* elements in place before the tile, up to TG_ROUND_FEW */
    float decay;    /* of the residual */
    bool is_mine, has_residual;
} tg_round_tile;

/* What depends on the tile is loaded at once. */
TG_DEVICE tg_round_tile tg_round_tile_of(const tg_gpu_pass &p, const tg_gpu_tile *at, bool by_leaves)
{
    const tg_gpu_tile tile = *at;
    const tg_gpu_unit &u = p.units[tile.unit];
    const uint32_t kinds = u.kinds, group_n = u.group_n, bits = u.group_bits, chunk_n = p.chunks[tile.chunk].n;
    const uint64_t piece_at = p.pieces[tile.piece].at, lo = u.lo;
    const bool sends = tg_unit_sends(u, false);
    tg_round_tile t;
    t.decay = (float)u.feedback_params[0];
    t.has_residual = u.planes > 0;
    t.source = tg_source_of(p, u, tile);
    t.tile = at;
    t.chunk = &p.chunks[tile.chunk];
    t.u = &u;
    bool is_leaf = p.leaves != nullptr && group_n == 1 && bits == 8; /* as tg_rounds_leaves */
    t.is_mine = (kinds >> TG_KIND_MINIFLOAT & 1) != 0 && sends && is_leaf == by_leaves;
    t.progress = &p.space.progress[tile.chunk];
    t.tiles = (chunk_n + TG_GPU_TILE - 1) / TG_GPU_TILE;
    t.before = (int)min(tile.at - max(piece_at, lo), (uint64_t)TG_ROUND_FEW);
    return t;
}

/* ---- moments ------------------------------------------------------------------------------------------------------------- */

TG_DEVICE void tg_add_moments(tg_gpu_moments &m, float v)
{
    m.magnitudes += fabs((double)v);
    m.squares = fma((double)v, (double)v, m.squares); /* the square is exact */
    m.count += v != 0 ? 1 : 0;
}

/* This lane's part of a whole leaf in place; with HOLDS to held[0], held[32], ... in shared memory, too. Returns whether all values are
 * finite. AT_ONCE: values that are loaded before the first is used. */
template <bool HOLDS, bool HAS_RESIDUAL, unsigned AT_ONCE, class T>
TG_DEVICE bool tg_sum_in_place(tg_gpu_moments &m, float *held, const T *g, bool is_bf16, const float *now, float decay)
{
    TG_UNROLL
    for (unsigned from = 0; from < TG_LANE_N; from += AT_ONCE) {
        T given[AT_ONCE];
        float old[AT_ONCE];
        TG_UNROLL
        for (unsigned k = 0; k < AT_ONCE; k++) {
            given[k] = HOLDS ? __ldcs(g + 32 * (from + k)) : g[32 * (from + k)];
            old[k] = !HAS_RESIDUAL ? 0.0f : HOLDS ? __ldcs(now + 32 * (from + k)) : now[32 * (from + k)];
        }
        TG_UNROLL
        for (unsigned k = 0; k < AT_ONCE; k++) {
            float v = tg_widen(given[k], is_bf16);
            v = HAS_RESIDUAL ? v + decay * old[k] : v;
            tg_add_moments(m, v);
            if (HOLDS) {
                held[32 * (from + k)] = v;
            }
        }
    }
    return m.magnitudes < (double)INFINITY;
}

/* gradient + residual of element i of the tile, which may be before its first one, by the policy for NaN and Inf; its gradient. */
TG_DEVICE float tg_round_load(float *gradient, const tg_gpu_piece **piece, const tg_gpu_pass &p, const tg_round_tile &t,
                              int i)
{
    uint64_t at = t.tile->at + (uint64_t)(int64_t)i;
    *piece = tg_piece_at(p, *t.u, at);
    float g = tg_load_gradient(p, *t.u, t.tile->unit, *piece, at), sum = tg_add_residual(p, *t.u, *piece, g, at);
    *gradient = g;
    return g != g ? tg_quiet(g) : sum; /* the NaN that a CPU would give */
}

/* This lane's part of any leaf, value by value. */
template <bool HOLDS>
TG_DEVICE tg_gpu_moments tg_sum_slowly(const tg_gpu_pass &p, const tg_round_tile &t, unsigned leaf, float *values)
{
    tg_gpu_moments m = {0, 0, 0};
    TG_ROLL
    for (uint32_t i = leaf * TG_LEAF_N + threadIdx.x % TG_WARP; i < min((leaf + 1) * TG_LEAF_N, t.tile->n);
         i += TG_WARP) {
        const tg_gpu_piece *piece;
        float g, v = tg_round_load(&g, &piece, p, t, (int)i);
        tg_add_moments(m, v);
        if (HOLDS) {
            values[i] = v;
        }
    }
    return m;
}

/* The moments of a leaf from those of the lanes of a warp. Lane 0 has them. */
TG_DEVICE tg_gpu_moments tg_fold_moments(tg_gpu_moments m)
{
    m.magnitudes = tg_fold(m.magnitudes);
    m.squares = tg_fold(m.squares);
    m.count = __reduce_add_sync(TG_ALL_LANES, m.count);
    return m;
}

/* The moments of a leaf, by a warp. Lane 0 has them. With HOLDS, values of the tile go to held[0], held[1], ..., too. */
template <bool HOLDS>
TG_DEVICE tg_gpu_moments tg_round_sum(const tg_gpu_pass &p, const tg_round_tile &t, unsigned leaf, float *values)
{
    enum { HALF = TG_LANE_N / 2, ALL = HOLDS ? TG_LANE_N : HALF };
    tg_gpu_moments m = {0, 0, 0};
    uint32_t from = leaf * TG_LEAF_N + threadIdx.x % TG_WARP;
    const float *floats = (const float *)(const void *)t.source.floats + from,
                *now = p.now + t.source.residual_at + from;
    const uint16_t *halves = (const uint16_t *)(const void *)t.source.halves + from;
    float decay = t.decay, *held = HOLDS ? values + from : nullptr;
    bool has_residual = t.has_residual, is_fine = tg_source_has(t.source) && (leaf + 1) * TG_LEAF_N <= t.tile->n;
    if (is_fine && t.source.floats != nullptr) {
        is_fine = has_residual ? tg_sum_in_place<HOLDS, true, HALF>(m, held, floats, false, now, decay)
                               : tg_sum_in_place<HOLDS, false, ALL>(m, held, floats, false, now, decay);
    } else if (is_fine) {
        is_fine = has_residual ? tg_sum_in_place<HOLDS, true, HALF>(m, held, halves, t.source.is_bf16, now, decay)
                               : tg_sum_in_place<HOLDS, false, HALF>(m, held, halves, t.source.is_bf16, now, decay);
    }
    if (!is_fine) {
        m = tg_sum_slowly<HOLDS>(p, t, leaf, values);
    }
    return tg_fold_moments(m);
}

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

/* How the elements of a chunk are rounded. */
typedef struct tg_round_step {
    tg_rounding rounding;
    uint32_t shape;
    float table[TG_MINIFLOATS]; /* with residuals: values of symbols */
} tg_round_step;

TG_DEVICE void tg_round_count(uint32_t *counts, unsigned symbol, unsigned zero)
{
    if (counts != nullptr && symbol != zero) {
        atomicAdd(&counts[symbol], 1u);
    }
}

/* Where symbols go: that of element i to bytes[i]. */
typedef struct tg_rounded {
    uint8_t *bytes;
    bool is_aligned; /* four at a time can be stored */
} tg_rounded;

/* Stores the symbols of four elements from number 4 i on, whose values are v, and their next residuals. These are finite: what is decoded is
 * of the size of v, and below 2^80. */
template <bool HAS_RESIDUAL>
TG_DEVICE void tg_round_put_four(const tg_rounded &to, float4 *next, const float *table, uint32_t i, const float v[4],
                                 uint32_t symbols)
{
    if (to.is_aligned) {
        *(uint32_t *)(void *)(to.bytes + 4 * i) = symbols;
    } else {
        TG_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            to.bytes[4 * i + k] = (uint8_t)(symbols >> 8 * k);
        }
    }
    if (HAS_RESIDUAL) {
        __stcs(next + i, make_float4(v[0] - table[symbols & 0xffu], v[1] - table[symbols >> 8 & 0xffu],
                                     v[2] - table[symbols >> 16 & 0xffu], v[3] - table[symbols >> 24]));
    }
}

/* Elements [from, end) of the tile, which may be before its first one, one by one. counts: NULL, or how often symbols occur, but for that
 * of 0. */
TG_CALLED void tg_round_slowly(uint8_t *bytes, uint32_t *counts, const tg_gpu_pass &p, const tg_round_tile &t,
                               const tg_round_step &step, int from, int end, int stride)
{
    const tg_gpu_unit &u = *t.u;
    TG_ROLL
    for (int i = from; i < end; i += stride) {
        uint64_t at = t.tile->at + (uint64_t)(int64_t)i;
        const tg_gpu_piece *piece;
        float g, sum = tg_round_load(&g, &piece, p, t, i);
        tg_keep_state(p, u, g, at, false);
        unsigned symbol = step.rounding.round(sum);
        bytes[i] = (uint8_t)symbol;
        tg_round_count(counts, symbol, step.rounding.f.zero);
        if (u.planes > 0) {
            tg_store_residual(p, u, piece, sum - step.table[symbol], at);
        }
    }
}

/* Byte i of what travels beside symbols. */
TG_DEVICE uint8_t tg_round_beside(const tg_round_step &step, uint32_t i)
{
    uint64_t beside = __float_as_uint(step.rounding.step) | (uint64_t)step.shape << 32;
    return (uint8_t)(beside >> 8 * i);
}

#endif
