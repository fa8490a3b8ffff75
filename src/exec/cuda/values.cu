/* Selected values in fixed bytes: fp32, fp16 and bf16, to the frame or to where a coder reads, and what the decoder makes of them
 * out of the residual. A block takes as many values as a tile has elements. */
#include "exec/cuda/kernels.h"
#include "exec/cuda/load.h"
#include "exec/cuda/routes.h"

enum { THREADS = 256, EACH = TG_GPU_TILE / THREADS };

/* A value as bytes; returns what a decoder makes of them. */
TG_DEVICE float put(uint8_t *out, unsigned quantize, float value)
{
    uint16_t half;
    switch (quantize) {
    case TG_GPU_FP16:
        half = tg_float_to_fp16(value);
        tg_store_bytes(out, half, 2);
        return tg_fp16_to_float(half);
    case TG_GPU_BF16:
        half = tg_float_to_bf16(value);
        tg_store_bytes(out, half, 2);
        return tg_bf16_to_float(half);
    default:
        if ((uintptr_t)out % 4 == 0) {
            *(float *)(void *)out = value;
        } else {
            tg_store_bytes(out, __float_as_uint(value), 4);
        }
        return value;
    }
}

__global__ static void __launch_bounds__(THREADS) encode(tg_gpu_pass p)
{
    const tg_gpu_tile &tile = p.tiles[blockIdx.x];
    const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    tg_view *v = &p.space.views[tile.chunk];
    bool is_sparse = u.route >= TG_GPU_ROUTE_LISTED && u.route <= TG_GPU_ROUTE_BINS;
    if (!is_sparse || u.plain_len == 0 || tile.from >= v->count) {
        return;
    }
    bool is_coded = u.values == TG_GPU_VALUES_WORDS;
    uint8_t *out = is_coded ? p.space.words + 4 * chunk.element_at : p.space.out[tile.chunk] + v->symbols;
    for (unsigned j = 0; j < EACH; j++) {
        uint32_t i = tile.from + j * THREADS + threadIdx.x;
        if (i >= v->count) {
            break;
        }
        float decoded = put(out + (uint64_t)i * u.plain_len, u.quantize, p.space.values[chunk.element_at + i]);
        if (u.planes > 0) {
            uint64_t at = chunk.at + p.space.positions[chunk.element_at + i];
            float left = p.next[u.residual_at + (at - u.lo)] - decoded;
            tg_store_residual(p, u, tg_piece_at(p, u, at), left, at);
        }
    }
    if (tile.from == 0 && threadIdx.x == 0 && !is_coded) {
        v->indices = v->symbols + (uint64_t)v->count * u.plain_len;
    }
}

void tg_gpu_encode_values(const tg_gpu_pass *p)
{
    if (p->tile_n > 0) {
        TG_LAUNCH(encode, p->tile_n, THREADS, p->stream, *p);
    }
}
