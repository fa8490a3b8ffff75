/* topk, the short way: the pass over all elements has counted candidates by their keys, so the cell of the k-th largest is known. The
 * few candidates in that cell are gathered, and the last block of a unit finds the k-th largest of them, ties to the lower index,
 * and what the next step begins with. Where that cannot be done the host is told so. */
#include "exec/cuda/lists.h"
#include "exec/cuda/top.h"

enum { THREADS = TG_GPU_SHARE, FEW = 1024 };

/* A candidate of the cell as a number, larger ones first: by key, then by lower index, which is below 2^43. */
TG_DEVICE uint64_t number_of(uint32_t key_in_cell, uint64_t at)
{
    return (uint64_t)key_in_cell << 43 | ((1ull << 43) - 1 - at);
}

/* Gathers the candidates of a share with keys in [low, low + 2^shift): they are few. A warp takes a group of strips at a time. */
TG_DEVICE void gather(const tg_gpu_pass &p, const tg_gpu_selection &s, const tg_share &share, uint32_t low,
                      uint32_t shift)
{
    uint64_t *nears = s.nears + (uint64_t)s.units[share.unit].top * TG_GPU_NEAR;
    uint32_t lane = threadIdx.x % TG_WARP, from = share.first + threadIdx.x / TG_WARP * TG_GROUP;
    for (; from < share.end; from += THREADS / TG_WARP * TG_GROUP) {
        tg_strip_group g = tg_group_of(s, from, share.end);
        for (uint32_t first = 0; first < g.total; first += TG_WARP) {
            tg_listed e = tg_group_entry(p, g, *share.chunk, first);
            uint32_t key = tg_key_of(e.value) - low;
            bool is_near = e.is_there && key >> shift == 0;
            uint32_t marks = __ballot_sync(TG_ALL_LANES, is_near), place = 0;
            if (marks == 0) {
                continue;
            }
            if (lane == 0) {
                place = atomicAdd(&share.top->near_n, (uint32_t)__popc(marks));
            }
            place = __shfl_sync(TG_ALL_LANES, place, 0) + (uint32_t)__popc(marks & ((1u << lane) - 1));
            if (is_near) {
                nears[place] = number_of(key, share.chunk->at + e.position);
            }
        }
    }
}

/* The rank-th largest of n numbers; false: too many begin alike. All threads. */
TG_DEVICE bool choose(uint64_t *out, const uint64_t *numbers, uint32_t n, uint64_t rank, uint32_t shift)
{
    __shared__ uint32_t cells[TG_GPU_CELLS], few_n;
    __shared__ uint64_t few[FEW], chosen;
    uint32_t digit_at = 43 + (shift > 11 ? shift - 11 : 0);
    for (uint32_t i = threadIdx.x; i < TG_GPU_CELLS; i += THREADS) {
        cells[i] = 0;
    }
    if (threadIdx.x == 0) {
        few_n = 0;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        atomicAdd(&cells[__ldcg(&numbers[i]) >> digit_at], 1u);
    }
    __syncthreads();
    tg_cell cell = tg_cell_of(cells, rank);
    if (cell.count > FEW) {
        return false;
    }
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        uint64_t number = __ldcg(&numbers[i]);
        if (number >> digit_at == cell.number) {
            few[atomicAdd(&few_n, 1u)] = number;
        }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < cell.count; i += THREADS) {
        uint64_t number = few[i], larger = cell.above;
        for (uint32_t j = 0; j < cell.count; j++) {
            larger += few[j] > number ? 1 : 0;
        }
        if (larger + 1 == rank) {
            chosen = number;
        }
    }
    __syncthreads();
    *out = chosen;
    return true;
}

/* The end of a unit: the last element that is sent, and guesses for the next step. */
TG_DEVICE void end_unit(const tg_gpu_pass &p, const tg_gpu_selection &s, const tg_share &share, const tg_cell &cell,
                        uint64_t k, bool is_found)
{
    tg_gpu_top *top = share.top;
    uint32_t number = s.units[share.unit].top, shift = top->shift, low = top->bound + (cell.number << shift);
    uint64_t last = 0;
    is_found = is_found && choose(&last, s.nears + (uint64_t)number * TG_GPU_NEAR, cell.count, k - cell.above, shift);
    for (uint32_t i = threadIdx.x; i < TG_GPU_CELLS; i += THREADS) {
        s.cells[(uint64_t)number * TG_GPU_CELLS + i] = 0;
    }
    if (threadIdx.x != 0) {
        return;
    }
    top->done = top->near_n = 0;
    top->guessed = top->guess;
    if (is_found) {
        top->kth = low + (uint32_t)(last >> 43);
        top->last = (1ull << 43) - 1 - (last & ((1ull << 43) - 1));
        tg_top_guess(top, k, cell.total);
    } else {
        top->kth = 0xffffffffu; /* nothing is sent, and all is done again */
        atomicMax(&p.verdict->again, 1u);
    }
}

__global__ static void __launch_bounds__(THREADS) near(tg_gpu_pass p, tg_gpu_selection s)
{
    tg_share share = tg_share_of(p, s); /* by tables of the plan */
    tg_after_previous();
    tg_next_may_begin(); /* lists of strips are there for the next kernel, too */
    if (share.top == nullptr) {
        return;
    }
    uint64_t k = tg_top_k(p, s, share.unit);
    tg_cell cell = tg_cell_of(s.cells + (uint64_t)s.units[share.unit].top * TG_GPU_CELLS, k);
    bool is_found = share.top->is_ready && cell.total >= k && cell.number < TG_GPU_CELLS - TG_GPU_BEYOND &&
                    cell.count <= TG_GPU_NEAR;
    if (is_found) {
        gather(p, s, share, share.top->bound + (cell.number << share.top->shift), share.top->shift);
    }
    if (tg_share_is_last(share, s)) {
        end_unit(p, s, share, cell, k, is_found);
    }
}

void tg_gpu_select_near(const tg_gpu_pass *p, const tg_gpu_selection *s)
{
    TG_LAUNCH_EARLY(near, p->overlaps, p->chunk_n * TG_GPU_SHARES, THREADS, p->stream, *p, *s);
}
