/* Lists of strips (select.h) while a warp reads them: those of a few strips side by side as one list, so that all loads of a warp
 * are under way at once. */
#ifndef TG_EXEC_CUDA_LISTS_H
#define TG_EXEC_CUDA_LISTS_H

#include "exec/cuda/kernel.h"
#include "exec/cuda/select.h"

enum { TG_GROUP = 8 }; /* strips */

/* Lane i < TG_GROUP has strip i; `total` is the same in all lanes. */
typedef struct tg_strip_group {
    uint32_t from;  /* its first own element in the chunk */
    uint32_t start; /* the number of its first entry in the group */
    uint32_t end;   /* and of the first after its last */
    uint32_t total;
} tg_strip_group;

/* An entry of a list. */
typedef struct tg_listed {
    uint32_t position; /* in the chunk */
    float value;
    bool is_there;
} tg_listed;

/* Strips [first, first + TG_GROUP) that are below `limit`. All lanes of a warp. */
TG_DEVICE tg_strip_group tg_group_of(const tg_gpu_selection &s, uint32_t first, uint32_t limit)
{
    uint32_t lane = threadIdx.x % TG_WARP, strip = first + lane;
    bool has = lane < TG_GROUP && strip < limit;
    uint32_t count = has ? s.counts[strip] : 0;
    tg_strip_group g = {has ? s.strip_from[strip] : 0, 0, count, 0};
    TG_UNROLL
    for (unsigned by = 1; by < TG_GROUP; by *= 2) {
        uint32_t lower = __shfl_up_sync(TG_ALL_LANES, g.end, by);
        g.end += lane >= by ? lower : 0;
    }
    g.start = g.end - count;
    g.total = __shfl_sync(TG_ALL_LANES, g.end, TG_GROUP - 1);
    return g;
}

/* Entry first + lane of a group of strips of a chunk. All lanes of a warp. */
TG_DEVICE tg_listed tg_group_entry(const tg_gpu_pass &p, const tg_strip_group &g, const tg_gpu_chunk &chunk,
                                   uint32_t first)
{
    uint32_t number = first + threadIdx.x % TG_WARP, strip = 0;
    TG_UNROLL
    for (unsigned by = TG_GROUP / 2; by > 0; by /= 2) {
        uint32_t end = __shfl_sync(TG_ALL_LANES, g.end, (int)(strip + by - 1));
        strip += number >= end ? by : 0;
    }
    uint32_t from = __shfl_sync(TG_ALL_LANES, g.from, (int)strip);
    uint32_t start = __shfl_sync(TG_ALL_LANES, g.start, (int)strip);
    tg_listed e = {0, 0.0f, number < g.total};
    if (e.is_there) {
        uint64_t at = chunk.element_at + from + (number - start);
        e.value = p.space.strip_values[at];
        e.position = from + p.space.strip_places[at];
    }
    return e;
}

#endif
