/* Signs on the GPU; see quantize/sign.c and routes/scaled.c. The scale is known when all of a unit is encoded: scales.cu. */
#include "exec/cuda/quantize.h"
#include "exec/cuda/team.h"

enum { WARPS = 4, TILE = TG_GPU_TILE };
static_assert(TILE == WARPS * TG_LEAF_N, "a warp takes a leaf of a tile");

/* A leaf by a warp: symbols, the whole sum as the next residual, and the sum of magnitudes to *magnitudes unless it is NULL. */
TG_DEVICE void take_leaf(const tg_gpu_pass &p, const tg_gpu_bucket &b, unsigned leaf, double *magnitudes)
{
    float v[TG_LANE_N];
    uint32_t from = leaf * TG_LEAF_N + threadIdx.x % TG_WARP;
    double part = 0;
    (void)tg_load_leaf(v, p, b, leaf);
    TG_UNROLL
    for (unsigned k = 0; k < TG_LANE_N; k++) {
        if (from + 32 * k < b.n) {
            b.symbols[from + 32 * k] = (uint8_t)(__float_as_uint(v[k]) >> 31);
            if (b.next != nullptr && !b.is_sparse) {
                b.next[from + 32 * k] = v[k];
            }
        }
        part += fabs((double)v[k]);
    }
    if (magnitudes != nullptr) {
        part = tg_fold(part);
        if (threadIdx.x % TG_WARP == 0) {
            *magnitudes = part;
        }
    }
}

__global__ static void __launch_bounds__(WARPS *TG_WARP)
    quantize_signs(tg_gpu_pass p, uint32_t blocks_each, bool is_sparse)
{
    tg_gpu_tiles s = tg_tiles_of_block(p, blocks_each, is_sparse);
    const tg_gpu_chunk &chunk = p.chunks[s.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    if (tg_quantize_kind(u) != TG_KIND_SIGN || !tg_unit_sends(u, is_sparse)) {
        return;
    }
    for (uint32_t at = s.from; at < min(s.to, tg_value_count(p, s.chunk)); at += s.stride) {
        tg_gpu_bucket b = tg_bucket_of(p, s.chunk, at, TILE, tg_value_count(p, s.chunk));
        unsigned leaf = threadIdx.x / TG_WARP;
        double *magnitudes = p.space.magnitudes + chunk.leaf_at + at / TG_LEAF_N + leaf;
        if (leaf * TG_LEAF_N < b.n) {
            take_leaf(p, b, leaf, u.scale == TG_GPU_SCALE_MEAN ? magnitudes : nullptr);
        }
    }
}

void tg_launch_sign(const tg_gpu_pass *p, bool is_sparse)
{
    uint32_t each = is_sparse ? tg_blocks_each(p->chunk_n) : 1;
    if (p->chunk_n == 0 || !tg_pass_has(p, TG_KIND_SIGN)) {
        return;
    }
    if (p->leaves != nullptr && !is_sparse) {
        tg_launch_take_signs(p);
    } else {
        TG_LAUNCH(quantize_signs, is_sparse ? p->chunk_n * each : p->tile_n, WARPS * TG_WARP, p->stream, *p, each,
                  is_sparse);
    }
}
