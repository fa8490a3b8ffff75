/* To be replaced. */
#include "exec/cuda/kernels.h"
#include "exec/cuda/load.h"
#include "exec/cuda/routes.h"
enum { THREADS = 256 };
__global__ static void add_plain(tg_gpu_pass p, const uint8_t *body, float weight, int sets)
{
    const tg_gpu_tile tile = p.tiles[blockIdx.x];
    const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    uint32_t n = chunk.n - tile.from < TG_GPU_TILE ? chunk.n - tile.from : (uint32_t)TG_GPU_TILE;
    const uint8_t *from = body + p.space.views[tile.chunk].symbols + (uint64_t)tile.from * u.plain_len;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        const uint8_t *at = from + (uint64_t)i * u.plain_len;
        float v = u.quantize == TG_GPU_FP32 ? __uint_as_float(tg_load32(at)) : u.quantize == TG_GPU_FP16 ? tg_fp16_to_float((uint16_t)(at[0] | at[1] << 8)) : tg_bf16_to_float((uint16_t)(at[0] | at[1] << 8));
        float *to = tg_sum_at(p, u, chunk.at + tile.from + i);
        *to = sets ? v : *to + weight * v;
    }
}
void tg_gpu_add_dense(const tg_gpu_pass *p, const uint8_t *body, float weight, int sets)
{
    TG_LAUNCH(add_plain, p->tile_n, THREADS, p->stream, *p, body, weight, sets);
}
void tg_gpu_add_sparse(const tg_gpu_pass *, const uint8_t *, float, int) {}
uint64_t tg_gpu_pack_scratch(const tg_gpu_unit *) { return 0; }
