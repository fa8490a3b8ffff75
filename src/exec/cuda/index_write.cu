/* Writes the coordinates of sparse chunks from their lists, a block each. */
#include "exec/cuda/index_write.h"
#include "exec/cuda/kernels.h"

__global__ static void __launch_bounds__(TG_INDEX_WRITERS) write(tg_gpu_pass p)
{
    __shared__ uint32_t words[TG_INDEX_WORDS];
    uint32_t number = p.first + blockIdx.x;
    const tg_gpu_unit &u = p.units[p.chunks[number].unit];
    if (u.coordinates == TG_GPU_AT_INDICES && u.route != TG_GPU_ROUTE_NONE) {
        tg_write_chunk(p, number, words);
    }
}

void tg_gpu_write_indices(const tg_gpu_pass *p)
{
    if (p->chunk_n > 0) {
        TG_LAUNCH(write, p->chunk_n, TG_INDEX_WRITERS, p->stream, *p);
    }
}
