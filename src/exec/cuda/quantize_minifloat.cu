/* Floats of a few bits, of values that are listed; see minifloat.h. Three kernels: moments of leaves, the fit of each chunk, rounding. */
#include "exec/cuda/minifloat.h"
#include "exec/cuda/team.h"

enum { WARPS = 4, FITTERS = 256 };
#define TILE (1u * TG_GPU_TILE)
static_assert(TILE == WARPS * TG_LEAF_N, "a warp takes a leaf of a tile");

/* Whether a chunk is to be quantized here. */
TG_DEVICE bool is_mine(const tg_gpu_pass &p, uint32_t number)
{
    return tg_is_minifloat(p.units[p.chunks[number].unit], true);
}

__global__ static void __launch_bounds__(WARPS *TG_WARP) sum_moments(tg_gpu_pass p, uint32_t blocks_each)
{
    tg_gpu_tiles s = tg_tiles_of_block(p, blocks_each, true);
    if (!is_mine(p, s.chunk)) {
        return;
    }
    for (uint32_t at = s.from; at < min(s.to, tg_value_count(p, s.chunk)); at += s.stride) {
        tg_gpu_bucket b = tg_bucket_of(p, s.chunk, at, TILE, tg_value_count(p, s.chunk));
        unsigned leaf = threadIdx.x / TG_WARP;
        if (leaf * TG_LEAF_N < b.n) {
            tg_gpu_moments m = tg_sum_leaf(p, b, leaf);
            if (threadIdx.x % TG_WARP == 0) {
                p.space.moments[p.chunks[s.chunk].leaf_at + at / TG_LEAF_N + leaf] = m;
            }
        }
    }
}

/* A block a chunk: its step and shape, to its side. */
__global__ static void __launch_bounds__(FITTERS) fit_chunks(tg_gpu_pass p, tg_shape_table shapes)
{
    __shared__ tg_fit_space space;
    uint32_t number = p.first + blockIdx.x, count = tg_value_count(p, number);
    if (!is_mine(p, number)) {
        return;
    }
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    if (count == 0) {
        if (threadIdx.x == 0) {
            tg_fit_keep(p, u, chunk, {0, 0});
        }
        return;
    }
    tg_gpu_fit fit = tg_fit_chunk(u, p.space.moments + chunk.leaf_at, (count + TG_LEAF_N - 1) / TG_LEAF_N,
                                  shapes, space);
    if (threadIdx.x == 0) {
        uint8_t *side = p.space.out[number] + p.space.views[number].side;
        fit = tg_fit_chosen(fit, tg_fit_kept(p, u, chunk));
        tg_fit_keep(p, u, chunk, fit);
        tg_store_float(side, fit.step);
        side[4] = fit.shape;
    }
}

/* A leaf by a warp. With feedback, `table` has the value of each symbol. */
TG_DEVICE void round_leaf(const tg_gpu_pass &p, const tg_gpu_bucket &b, unsigned leaf, float step, const float *table)
{
    const tg_rounding r = tg_rounding_of(tg_minifloat_of(*b.u), step);
    float v[TG_LANE_N];
    uint32_t from = leaf * TG_LEAF_N + threadIdx.x % TG_WARP, bad = 0;
    (void)tg_load_leaf(v, p, b, leaf);
    TG_UNROLL
    for (unsigned k = 0; k < TG_LANE_N; k++) {
        if (from + 32 * k < b.n) {
            unsigned symbol = r.round(v[k]);
            b.symbols[from + 32 * k] = (uint8_t)symbol;
            bool is_fine = b.next == nullptr || tg_keep_residual(b, from + 32 * k, v[k] - table[symbol]);
            bad |= (is_fine ? 0u : 1u) << k;
        }
    }
    tg_refuse_residuals(p, b, from, bad);
}

__global__ static void __launch_bounds__(WARPS *TG_WARP) round_chunks(tg_gpu_pass p, uint32_t blocks_each)
{
    __shared__ float table[TG_MINIFLOATS];
    tg_gpu_tiles t = tg_tiles_of_block(p, blocks_each, true);
    if (!is_mine(p, t.chunk) || t.from >= tg_value_count(p, t.chunk)) {
        return;
    }
    const tg_gpu_unit &u = p.units[p.chunks[t.chunk].unit];
    float step = tg_read_float(p.space.out[t.chunk] + p.space.views[t.chunk].side);
    if (u.planes > 0) {
        for (unsigned s = threadIdx.x; s < u.base; s += WARPS * TG_WARP) {
            table[s] = tg_minifloat_value(tg_minifloat_of(u), step, s);
        }
    }
    __syncthreads();
    for (uint32_t at = t.from; at < min(t.to, tg_value_count(p, t.chunk)); at += t.stride) {
        tg_gpu_bucket b = tg_bucket_of(p, t.chunk, at, TILE, tg_value_count(p, t.chunk));
        unsigned leaf = threadIdx.x / TG_WARP;
        if (leaf * TG_LEAF_N < b.n) {
            round_leaf(p, b, leaf, step, table);
        }
    }
}

void tg_launch_minifloat(const tg_gpu_pass *p, bool is_sparse)
{
    if (p->chunk_n == 0 || !tg_pass_has(p, TG_KIND_MINIFLOAT)) {
        return;
    }
    if (!is_sparse) {
        tg_launch_round_tiles(p);
        return;
    }
    uint32_t each = tg_blocks_each(p->chunk_n), blocks = p->chunk_n * each;
    TG_LAUNCH(sum_moments, blocks, WARPS * TG_WARP, p->stream, *p, each);
    TG_LAUNCH(fit_chunks, p->chunk_n, FITTERS, p->stream, *p, tg_shapes_for_kernels());
    TG_LAUNCH(round_chunks, blocks, WARPS * TG_WARP, p->stream, *p, each);
}
