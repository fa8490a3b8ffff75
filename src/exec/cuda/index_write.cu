/* Writes the coordinates of sparse chunks from their lists, a block each. */
#include "exec/cuda/index_write.h"
#include "exec/cuda/kernels.h"

__global__ static void __launch_bounds__(TG_INDEX_WRITERS, 1) write(tg_gpu_pass p)
{
    __shared__ uint32_t words[TG_INDEX_WORDS];
    uint32_t number = p.first + blockIdx.x;
    const tg_gpu_unit &u = p.units[p.chunks[number].unit];
    if (u.coordinates == TG_GPU_AT_INDICES && u.route != TG_GPU_ROUTE_NONE) {
        tg_view v = p.space.views[number];
        bool has_list = v.count <= TG_INDEX_SHORT; /* which a geometric code reads one by one */
        for (uint32_t i = threadIdx.x; has_list && i < v.count; i += TG_INDEX_WRITERS) {
            words[i] = p.space.positions[p.chunks[number].element_at + i];
        }
        tg_write_chunk(p, number, v, words, has_list);
    }
}

void tg_gpu_write_indices(const tg_gpu_pass *p)
{
    if (p->chunk_n > 0) {
        TG_LAUNCH(write, p->chunk_n, TG_INDEX_WRITERS, p->stream, *p);
    }
}
