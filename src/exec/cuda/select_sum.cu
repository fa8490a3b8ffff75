/* One pass over all elements of sparse units whose elements do not depend on each other: gradient + residual to the next residual,
 * and marks of the elements that reach a bound. That is all of `threshold`, and the first pass of `topk`, whose bound was
 * estimated. Of drawn coordinates only the sums are of interest. A block takes a patch, a warp 512 elements of it. */
#include "exec/cuda/region.h"
#include "exec/cuda/scan.h"
#include "exec/cuda/select.h"

enum { THREADS = TG_GPU_PATCH / TG_EACH, OF_WARP = TG_EACH * TG_WARP, T = 2 /* parameter of threshold */ };

/* Marks this warp's elements; returns the word of marks that this lane has to store. */
TG_DEVICE uint32_t mark(const float (&u)[TG_EACH], uint32_t from, uint32_t n, uint32_t bound)
{
    uint32_t mine = 0;
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        bool reaches = from + j * TG_WARP < n && tg_key_of(u[j]) >= bound;
        uint32_t word = __ballot_sync(TG_ALL_LANES, reaches);
        mine = threadIdx.x % TG_WARP == j ? word : mine;
    }
    return mine;
}

/* The keys of marked elements, side by side: what the search for the k-th largest reads. Nothing else is in space.values yet. */
TG_DEVICE void keep_keys(uint32_t *keys, const float (&u)[TG_EACH], uint32_t word, uint32_t before)
{
    unsigned lane = threadIdx.x % TG_WARP;
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        uint32_t marks = __shfl_sync(TG_ALL_LANES, word, (int)j), start = __shfl_sync(TG_ALL_LANES, before, (int)j);
        if (marks >> lane & 1) {
            keys[start + (uint32_t)__popc(marks & ((1u << lane) - 1))] = tg_key_of(u[j]);
        }
    }
}

/* Whether a pass over all elements of the unit is needed, and whether it marks. */
TG_DEVICE bool is_concerned(const tg_gpu_pass &p, const tg_gpu_selection &s, const tg_gpu_unit &u, uint32_t unit,
                            bool *marks)
{
    bool is_leader = u.route == TG_GPU_ROUTE_LEADER;
    *marks = u.route == TG_GPU_ROUTE_TESTED || u.route == TG_GPU_ROUTE_LISTED || is_leader;
    if (u.route == TG_GPU_ROUTE_DRAWN) {
        return u.planes > 0 || p.nonfinite == TG_GPU_ERROR;
    }
    if (u.route == TG_GPU_ROUTE_LISTED || (is_leader && u.select == TG_GPU_SELECT_TOPK)) {
        return s.units[unit].top < s.long_n; /* shorter ones are selected at once */
    }
    return u.route == TG_GPU_ROUTE_TESTED || (is_leader && u.bin == 0);
}

__global__ static void __launch_bounds__(THREADS) sum(tg_gpu_pass p, tg_gpu_selection s, uint32_t first)
{
    const tg_gpu_patch &patch = s.patches[first + blockIdx.x];
    const tg_gpu_chunk &chunk = p.chunks[patch.chunk];
    const tg_gpu_unit &unit = p.units[chunk.unit];
    bool marks;
    if (!is_concerned(p, s, unit, chunk.unit, &marks)) {
        return;
    }
    tg_region r = tg_region_of(p, chunk.unit, chunk.at + patch.at, patch.n);
    unsigned lane = threadIdx.x % TG_WARP, warp = threadIdx.x / TG_WARP, from = warp * OF_WARP + lane;
    float g[TG_EACH], u[TG_EACH];
    tg_region_sums(g, u, p, r, from);
    tg_region_keep(g, u, p, r, from, 0, r.n);
    if (!marks) {
        return;
    }
    tg_gpu_top *top = unit.select == TG_GPU_SELECT_TOPK ? &s.tops[s.units[chunk.unit].top] : nullptr;
    uint32_t bound = top != nullptr ? top->bound : tg_key_of((float)unit.select_params[T]);
    uint32_t word = mark(u, from, r.n, bound), number = warp * TG_EACH + lane;
    if (lane < TG_EACH && number * TG_WARP < r.n) {
        s.masks[patch.word_at + number] = word;
    }
    uint32_t count, before = tg_block_scan((uint32_t)__popc(word), &count);
    if (threadIdx.x == 0) {
        s.counts[first + blockIdx.x] = count;
        if (top != nullptr && count > 0) {
            atomicAdd(&top->found, (unsigned long long)count);
        }
    }
    if (top != nullptr && count > 0) {
        keep_keys((uint32_t *)p.space.values + chunk.element_at + patch.at, u, word, before);
    }
}

void tg_gpu_select_sum(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end)
{
    TG_LAUNCH(sum, end - first, THREADS, p->stream, *p, *s, first);
}
