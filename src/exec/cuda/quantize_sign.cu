/* Signs on the GPU; see quantize/sign.c and routes/scaled.c. The scale is known when all of a unit is encoded: scales.cu. */
#include "exec/cuda/quantize.h"
#include "exec/cuda/team.h"

enum { WARPS = 8, TILE = WARPS * TG_LEAF_N, DENSE_MOST = 32, SPARSE_MOST = 4 };
enum { SCALE_MEAN = 0 }; /* tg_scale_rule */

/* A leaf by a warp: symbols, the whole sum as the next residual, and the sum of magnitudes to *magnitudes unless it is NULL. */
TG_DEVICE void take_leaf(const tg_gpu_pass &p, const tg_gpu_bucket &b, unsigned leaf, double *magnitudes)
{
    float v[TG_LANE_N];
    uint32_t from = leaf * TG_LEAF_N + threadIdx.x % TG_WARP;
    double part = 0;
    tg_load_leaf(v, p, b, leaf);
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

__global__ static void __launch_bounds__(WARPS *TG_WARP) quantize_signs(tg_gpu_pass p, uint32_t blocks_each, bool is_sparse)
{
    uint32_t number = p.first + blockIdx.x / blocks_each;
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    bool is_sent = u.route != TG_GPU_ROUTE_NONE && u.route != TG_GPU_ROUTE_LEADER;
    if (tg_quantize_kind(u) != TG_KIND_SIGN || !is_sent || (u.coordinates != TG_GPU_AT_EVERY) != is_sparse) {
        return;
    }
    uint32_t count = is_sparse ? p.space.views[number].count : chunk.n;
    for (uint32_t i = blockIdx.x % blocks_each; (uint64_t)i * TILE < count; i += blocks_each) {
        tg_gpu_bucket b = tg_bucket_of(p, number, i, TILE, count);
        unsigned leaf = threadIdx.x / TG_WARP;
        double *magnitudes = p.space.magnitudes + chunk.leaf_at + i * WARPS + leaf;
        if (leaf * TG_LEAF_N < b.n) {
            take_leaf(p, b, leaf, u.scale == SCALE_MEAN ? magnitudes : nullptr);
        }
    }
}

void tg_launch_sign(const tg_gpu_pass *p, bool is_sparse)
{
    uint32_t each = tg_blocks_each(p->chunk_n, is_sparse ? SPARSE_MOST : DENSE_MOST);
    if (p->chunk_n > 0 && tg_pass_has(p, TG_KIND_SIGN)) {
        TG_LAUNCH(quantize_signs, p->chunk_n * each, WARPS * TG_WARP, p->stream, *p, each, is_sparse);
    }
}
