/* Reads the coordinates of sparse chunks, a block each, into lists. A chunk that is refused counts as one without values, so that no later
 * kernel follows its coordinates. */
#include "exec/cuda/index_modes.h"
#include "exec/cuda/load.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/select.h"

enum { THREADS = TG_INDEX_THREADS };

__global__ static void __launch_bounds__(THREADS, 2) read(tg_gpu_pass p, const uint8_t *body)
{
    __shared__ tg_index_space space;
    uint32_t number = p.first + blockIdx.x;
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    tg_view v = p.space.views[number];
    if (u.coordinates != TG_GPU_AT_INDICES || u.route == TG_GPU_ROUTE_NONE || v.count == 0) {
        return;
    }
    if (!tg_read_chunk(p, chunk, u, v, body, space) && threadIdx.x == 0) {
        tg_refuse_chunk(p, number);
        p.space.views[number].count = 0;
    }
}

void tg_gpu_read_indices(const tg_gpu_pass *p, const uint8_t *body, const tg_gpu_selection *s)
{
    if (p->chunk_n == 0) {
        return;
    }
    if (s->has_indices) {
        TG_LAUNCH(read, p->chunk_n, THREADS, p->stream, *p, body);
    }
    if (s->has_marks ||
        (s->has_blocks && tg_pass_has(p, TG_KIND_BLOCKS))) { /* tg_gpu_add_sparse knows those of blocks */
        tg_gpu_list_known(p, s);
    }
}
