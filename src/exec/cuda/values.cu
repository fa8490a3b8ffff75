/* Selected values in fixed bytes: fp32, fp16 and bf16, to the frame or to where a coder reads, and what the decoder makes of them
 * out of the residual. Several blocks share a chunk. */
#include "exec/cuda/kernels.h"
#include "exec/cuda/load.h"
#include "exec/cuda/routes.h"

enum { THREADS = 256, BLOCKS = 2048, SHARE_MAX = 64 };

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

/* `share` blocks a chunk. */
__global__ static void __launch_bounds__(THREADS) encode(tg_gpu_pass p, uint32_t share)
{
    uint32_t number = p.first + blockIdx.x / share, part = blockIdx.x % share;
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    tg_view *v = &p.space.views[number];
    bool is_sparse = u.route >= TG_GPU_ROUTE_LISTED && u.route <= TG_GPU_ROUTE_BINS;
    if (!is_sparse || u.plain_len == 0) {
        return;
    }
    bool is_coded = u.values == TG_GPU_VALUES_WORDS;
    uint8_t *out = is_coded ? p.space.words + 4 * chunk.element_at : p.space.out[number] + v->symbols;
    for (uint32_t i = part * THREADS + threadIdx.x; i < v->count; i += share * THREADS) {
        float decoded = put(out + (uint64_t)i * u.plain_len, u.quantize, p.space.values[chunk.element_at + i]);
        if (u.planes > 0) {
            uint64_t at = chunk.at + p.space.positions[chunk.element_at + i];
            float left = p.next[u.residual_at + (at - u.lo)] - decoded;
            tg_store_residual(p, u, tg_piece_at(p, u, at), left, at);
        }
    }
    if (part == 0 && threadIdx.x == 0 && !is_coded) {
        v->indices = v->symbols + (uint64_t)v->count * u.plain_len;
    }
}

void tg_gpu_encode_values(const tg_gpu_pass *p)
{
    uint32_t share = p->chunk_n == 0 ? 0 : BLOCKS / p->chunk_n + 1;
    share = share < SHARE_MAX ? share : (uint32_t)SHARE_MAX;
    if (p->chunk_n > 0) {
        TG_LAUNCH(encode, p->chunk_n * share, THREADS, p->stream, *p, share);
    }
}
