/* Adds the values of mxfp8, mxfp4 and nvfp4 on the GPU; see blocks.h. */
#include "exec/cuda/blocks.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/values.h"

enum { THREADS = 256 };

/* The symbol of value i of a chunk: read before, or as bits in the body. */
TG_DEVICE uint32_t symbol_at(const tg_gpu_unit &u, const uint8_t *unpacked, const uint8_t *packed, uint32_t i)
{
    if (u.coded || u.coordinates != TG_GPU_AT_EVERY) {
        return unpacked[i];
    }
    return u.base == 256 ? packed[i] : packed[i / 2] >> i % 2 * 4 & 15u;
}

__global__ static void __launch_bounds__(THREADS)
    add_scaled(tg_gpu_pass p, const uint8_t *body, float weight, bool sets, uint32_t blocks_each, bool is_sparse)
{
    tg_gpu_spans s = tg_spans_of_warp(p, blocks_each, is_sparse);
    const tg_gpu_chunk &chunk = p.chunks[s.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    if (!tg_is_scaled(u) || !tg_unit_sends(u, is_sparse) || !tg_may_add(p)) {
        return;
    }
    const tg_view &view = p.space.views[s.chunk];
    const tg_gpu_small f = tg_small_of(u);
    const uint8_t *unpacked = p.space.symbols + 2 * chunk.element_at;
    uint32_t count = is_sparse ? view.count : chunk.n, from = threadIdx.x % TG_WARP;
    for (uint32_t at = s.from; at < min(s.to, count); at += s.stride) {
        float x[TG_SPAN_LANE];
        for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
            uint32_t i = at + from + 32 * k;
            x[k] = i < count ? tg_scaled_value(u, f, body + view.side, i, symbol_at(u, unpacked, body + view.symbols, i))
                             : 0.0f;
        }
        if (u.rotation != 0) {
            tg_turn_back(x, u, at, count);
        }
        for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
            uint32_t i = at + from + 32 * k;
            if (i < count) {
                uint32_t place = is_sparse ? p.space.positions[chunk.element_at + i] : i;
                float *sum = tg_sum_at(p, u, chunk.at + place);
                *sum = sets ? x[k] : tg_plus(*sum, tg_times(weight, x[k]));
            }
        }
    }
}

void tg_launch_add_blocks(const tg_gpu_pass *p, const uint8_t *body, float weight, bool sets, bool is_sparse)
{
    uint32_t each = is_sparse ? tg_blocks_each(p->chunk_n) : 1;
    if (p->chunk_n > 0 && tg_pass_has(p, TG_KIND_BLOCKS)) {
        TG_LAUNCH(add_scaled, is_sparse ? p->chunk_n * each : p->tile_n, THREADS, p->stream, *p, body, weight, sets, each,
                  is_sparse);
    }
}
