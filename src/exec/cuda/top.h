/* topk on the GPU: what the ways to the k-th largest magnitude share. */
#ifndef TG_EXEC_CUDA_TOP_H
#define TG_EXEC_CUDA_TOP_H

#include "exec/cuda/known.h"
#include "exec/cuda/scan.h"
#include "exec/cuda/strip.h"

/* Whether a unit's first chunk is among those of a pass, which then has all. */
TG_DEVICE bool tg_top_is_in(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t unit)
{
    return s.unit_chunks[s.units[unit].chunk_first] - p.first < p.chunk_n;
}

/* How many elements of a unit are sent. */
TG_DEVICE uint64_t tg_top_k(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t unit)
{
    return tg_entries_of(s.ratios_now[s.units[unit].ratio], p.units[unit].hi - p.units[unit].lo);
}

/* ---- cells ------------------------------------------------------------------------------------------------------------------ */

/* The cell in which the rank-th largest number is, of TG_GPU_CELLS that count them. */
typedef struct tg_cell {
    uint32_t number, count;
    uint64_t above; /* numbers in higher cells */
    uint64_t total; /* in all; if it is less than the rank, there is no such cell */
} tg_cell;

/* All threads of a block get it, at least TG_GPU_SHARE. Cells are in shared memory, or in device memory where other blocks have counted:
 * volatile, because the first-level cache does not know of that. */
TG_DEVICE tg_cell tg_cell_of(const volatile uint32_t *cells, uint64_t rank)
{
    enum { MOST = TG_GPU_CELLS / TG_GPU_SHARE };
    __shared__ tg_cell found;
    const uint32_t each = TG_GPU_CELLS / blockDim.x, highest = TG_GPU_CELLS - 1 - each * threadIdx.x;
    uint32_t own[MOST], mine = 0, total;
    TG_UNROLL
    for (uint32_t i = 0; i < MOST; i++) {
        own[i] = i < each ? cells[highest - i] : 0;
    }
    TG_UNROLL
    for (uint32_t i = 0; i < MOST; i++) {
        mine += own[i];
    }
    uint64_t above = tg_block_scan(mine, &total);
    if (threadIdx.x == 0) {
        found.total = total;
    }
    if (rank > above && rank <= above + mine) { /* one thread has it */
        TG_UNROLL
        for (uint32_t i = 0; i < MOST; i++) {
            if (rank > above && rank <= above + own[i]) {
                found.number = highest - i;
                found.count = own[i];
                found.above = above;
            }
            above += own[i];
        }
    }
    __syncthreads();
    tg_cell cell = found;
    __syncthreads();
    return cell;
}

/* ---- shares of chunks --------------------------------------------------------------------------------------------------------- */

/* What a block looks through: some strips of a chunk of a unit whose largest are selected by many. A launch has TG_GPU_SHARES
 * blocks of TG_GPU_SHARE threads a chunk. */
typedef struct tg_share {
    tg_gpu_top *top; /* NULL: the chunk is of another kind */
    const tg_gpu_chunk *chunk;
    uint32_t unit, first, end; /* strips */
} tg_share;

TG_DEVICE tg_share tg_share_of(const tg_gpu_pass &p, const tg_gpu_selection &s)
{
    uint32_t number = p.first + blockIdx.x / TG_GPU_SHARES, i = blockIdx.x % TG_GPU_SHARES;
    tg_share share = {nullptr, &p.chunks[number], p.chunks[number].unit, 0, 0};
    const tg_gpu_unit &u = p.units[share.unit];
    bool selects = u.route == TG_GPU_ROUTE_LISTED || u.route == TG_GPU_ROUTE_LEADER;
    if (selects && u.select == TG_GPU_SELECT_TOPK && s.units[share.unit].top < s.long_n) {
        uint32_t first = s.strip_first[number], n = s.strip_first[number + 1] - first;
        share.top = &s.tops[s.units[share.unit].top];
        share.first = first + n * i / TG_GPU_SHARES;
        share.end = first + n * (i + 1) / TG_GPU_SHARES;
    }
    return share;
}

/* Notes that this block is done with its share; returns whether it is the last one of its unit. All threads. */
TG_DEVICE bool tg_share_is_last(const tg_share &share, const tg_gpu_selection &s)
{
    __threadfence(); /* what was counted is seen before what follows */
    __syncthreads();
    uint32_t all = s.units[share.unit].chunk_n * TG_GPU_SHARES;
    bool is_last = threadIdx.x == 0 && atomicAdd(&share.top->done, 1u) + 1 == all;
    return __syncthreads_or(is_last) != 0;
}

/* Where the lists of a strip begin. */
TG_DEVICE uint64_t tg_strip_at(const tg_gpu_selection &s, const tg_gpu_chunk &chunk, uint32_t strip)
{
    return chunk.element_at + s.strip_from[strip];
}

/* ---- the next step ------------------------------------------------------------------------------------------------------------ */

/* Guesses for the next step, from this one's k-th largest key and how many elements reach the bound. Magnitudes move little from
 * step to step, and their number falls about exponentially with the key. One thread. */
TG_DEVICE void tg_top_guess(tg_gpu_top *top, uint64_t k, uint64_t found)
{
    const float CELL_MAX = 1024, RANGE = 6;
    float wanted = 1.25f * (float)k + 8 * sqrtf((float)k) + 32, between = (float)(top->kth - top->bound);
    float slope = found > k && top->kth > top->bound ? logf((float)found / (float)k) / between : 0;
    float below = slope > 0 ? logf(wanted / (float)k) / slope : 0; /* keys from the k-th largest down to the bound */
    below = fminf(fmaxf(below, 4096.0f), 4194304.0f);              /* half a factor of two */
    below = slope > 0 ? below : 524288.0f;
    uint32_t shift = 0;
    while (shift < 20 && (float)(TG_GPU_CELLS << shift) < RANGE * below) {
        shift++;
    }
    while (shift > 0 && slope * (float)k * (float)(1u << shift) > CELL_MAX) {
        shift--;
    }
    top->guess = top->kth;
    top->bound = top->kth > (uint32_t)below ? top->kth - (uint32_t)below : 0;
    top->shift = shift;
    top->is_ready = top->kth > (uint32_t)below && top->kth < 0x7f800000u ? 1 : 0;
}

#endif
