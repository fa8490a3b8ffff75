/* topk, the short way: the pass over all elements has counted candidates by their keys, so the cell of the k-th largest is known. The
 * few candidates in that cell are gathered, and the last block of a unit finds the k-th largest of them, ties to the lower index,
 * and what the next step begins with. Where that cannot be done the host is told so. */
#include "exec/cuda/lists.h"
#include "exec/cuda/top.h"

enum { THREADS = TG_GPU_SHARE, FEW = 1024, AT_ONCE = 4 /* entries of a thread whose loads are under way together */ };

/* A candidate of the cell as a number, larger ones first: by key, then by lower index, which is below 2^43. */
TG_DEVICE uint64_t number_of(uint32_t key_in_cell, uint64_t at)
{
    return (uint64_t)key_in_cell << 43 | ((1ull << 43) - 1 - at);
}

/* Gathers the candidates of a share with keys in [low, low + 2^shift): they are few. `own` is this thread's strip of the first ones. */
TG_DEVICE void gather(const tg_gpu_pass &p, const tg_gpu_selection &s, const tg_share &share, tg_strip_lens own,
                      uint32_t low, uint32_t shift)
{
    __shared__ tg_strips<THREADS> t;
    uint64_t *nears = s.nears + (uint64_t)s.units[share.unit].top * TG_GPU_NEAR;
    const float *values = p.space.strip_values + share.chunk->element_at;
    const uint16_t *places = p.space.strip_places + share.chunk->element_at;
    TG_ROLL
    for (uint32_t strip = share.first; strip < share.end; strip += THREADS) {
        uint32_t total = tg_strips_join(t, strip == share.first ? own : tg_strip_load(s, strip + threadIdx.x, share.end));
        TG_ROLL
        for (uint32_t first = threadIdx.x; first < total; first += AT_ONCE * THREADS) {
            uint32_t from[AT_ONCE], at[AT_ONCE], key[AT_ONCE];
            TG_UNROLL
            for (uint32_t k = 0; k < AT_ONCE; k++) {
                uint32_t entry = min(first + k * THREADS, total - 1), i = tg_strip_of(t, entry);
                from[k] = t.from[i];
                at[k] = from[k] + (entry - t.start[i]);
                key[k] = tg_key_of(values[at[k]]) - low;
            }
            TG_UNROLL
            for (uint32_t k = 0; k < AT_ONCE; k++) {
                if (first + k * THREADS < total && key[k] >> shift == 0) {
                    uint64_t position = share.chunk->at + from[k] + places[at[k]];
                    nears[atomicAdd(&share.top->near_n, 1u)] = number_of(key[k], position);
                }
            }
        }
    }
}

/* use(number) for this thread's of n numbers. */
template <class Use> TG_DEVICE void each_number(const uint64_t *numbers, uint32_t n, Use use)
{
    TG_ROLL
    for (uint32_t first = threadIdx.x; first < n; first += AT_ONCE * THREADS) {
        uint64_t own[AT_ONCE];
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            own[k] = __ldcg(&numbers[min(first + k * THREADS, n - 1)]);
        }
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            if (first + k * THREADS < n) {
                use(own[k]);
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
    each_number(numbers, n, [&](uint64_t number) { atomicAdd(&cells[number >> digit_at], 1u); });
    __syncthreads();
    tg_cell cell = tg_cell_of(cells, rank);
    if (cell.count > FEW) {
        return false;
    }
    each_number(numbers, n, [&](uint64_t number) {
        if (number >> digit_at == cell.number) {
            few[atomicAdd(&few_n, 1u)] = number;
        }
    });
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
    tg_strip_lens own = tg_strip_load(s, share.first + threadIdx.x, share.end); /* under way together with cells */
    tg_cell cell = tg_cell_of(s.cells + (uint64_t)s.units[share.unit].top * TG_GPU_CELLS, k);
    bool is_found = share.top->is_ready && cell.total >= k && cell.number < TG_GPU_CELLS - TG_GPU_BEYOND &&
                    cell.count <= TG_GPU_NEAR;
    if (is_found) {
        gather(p, s, share, own, share.top->bound + (cell.number << share.top->shift), share.top->shift);
    }
    if (tg_share_is_last(share, s)) {
        end_unit(p, s, share, cell, k, is_found);
    }
}

void tg_gpu_select_near(const tg_gpu_pass *p, const tg_gpu_selection *s)
{
    TG_LAUNCH_EARLY(near, p->overlaps, p->chunk_n * TG_GPU_SHARES, THREADS, p->stream, *p, *s);
}
