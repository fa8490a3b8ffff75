/* topk: exactly the k largest magnitudes of a unit, ties to the lower index.
 *
 * A short unit is selected by one block, which has all keys in registers. Of a long unit, select_near.cu is the usual way; here is
 * the way without a guess from the step before. A sample gives a bound that a little more than k elements reach, or there is none;
 * the pass over all elements (select_sum.cu) lists candidates; they are counted by their upper bits, those that begin as the k-th
 * largest by their middle bits, then by their lower bits; at last the last one of those with exactly its key is found. */
#include "exec/cuda/top.h"

enum { THREADS = 1024, ROUNDS = 3 };

/* ---- the k-th largest of keys in registers --------------------------------------------------------------------------------- */

/* Keys are counted by 11, then 11, then 9 bits. */
TG_DEVICE unsigned shift_of(unsigned round)
{
    return round == 0 ? 20 : round == 1 ? 9 : 0;
}

/* The k-th largest of all keys of a block that have their bit in `there`, which are at least k; and how many are larger. */
template <unsigned N>
TG_DEVICE uint32_t find_kth(const uint32_t (&keys)[N], uint32_t there, uint32_t k, uint32_t *larger)
{
    __shared__ uint32_t cells[TG_GPU_CELLS];
    uint32_t kth = 0;
    *larger = 0;
    TG_ROLL
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned shift = shift_of(round), bits = round == 2 ? 9 : 11;
        for (uint32_t i = threadIdx.x; i < TG_GPU_CELLS; i += THREADS) {
            cells[i] = 0;
        }
        __syncthreads();
        TG_UNROLL
        for (unsigned j = 0; j < N; j++) {
            if ((there >> j & 1) != 0 && (uint64_t)keys[j] >> (shift + bits) == kth) {
                atomicAdd(&cells[keys[j] >> shift & ((1u << bits) - 1)], 1u);
            }
        }
        __syncthreads();
        tg_cell cell = tg_cell_of(cells, k - *larger);
        kth = kth << bits | cell.number;
        *larger += (uint32_t)cell.above;
    }
    return kth;
}

/* ---- the start ------------------------------------------------------------------------------------------------------------- */

enum { SAMPLE_EACH = 8, SAMPLE = THREADS * SAMPLE_EACH, STRETCHES = SAMPLE / 32, SAMPLED_FROM = 4 * SAMPLE };

/* The bound that about k of n elements reach, plus a margin of four standard deviations; 0: there is no use for one. */
TG_DEVICE uint32_t estimate(const tg_gpu_pass &p, uint32_t unit, uint64_t k)
{
    const tg_gpu_unit &u = p.units[unit];
    uint64_t n = u.hi - u.lo;
    double expected = (double)SAMPLE * (double)k / (double)n, rank = expected + 4 * sqrt(expected) + 8;
    if (n < SAMPLED_FROM || rank >= (double)SAMPLE) {
        return 0;
    }
    uint32_t keys[SAMPLE_EACH], larger;
    unsigned lane = threadIdx.x % TG_WARP, warp = threadIdx.x / TG_WARP;
    TG_UNROLL
    for (unsigned j = 0; j < SAMPLE_EACH; j++) {
        uint64_t at = u.lo + (n - TG_WARP) / STRETCHES * (warp * SAMPLE_EACH + j) + lane;
        const tg_gpu_piece *piece = tg_piece_at(p, u, at);
        float g = tg_load_gradient(p, u, unit, piece, at);
        keys[j] = tg_key_of(tg_add_residual(p, u, piece, g, at));
    }
    return find_kth(keys, (1u << SAMPLE_EACH) - 1, (uint32_t)rank, &larger);
}

/* A block a long unit: the bound of this step. */
__global__ static void __launch_bounds__(THREADS) start(tg_gpu_pass p, tg_gpu_selection s)
{
    uint32_t unit = s.longs[blockIdx.x];
    if (!tg_top_is_in(p, s, unit)) {
        return;
    }
    for (uint32_t i = threadIdx.x; i < TG_GPU_CELLS; i += THREADS) {
        s.cells[(uint64_t)blockIdx.x * TG_GPU_CELLS + i] = 0;
    }
    uint64_t k = tg_top_k(p, s, unit);
    uint32_t bound = s.effort == TG_GPU_SAMPLES ? estimate(p, unit, k) : 0;
    if (threadIdx.x == 0) {
        tg_gpu_top *top = &s.tops[blockIdx.x];
        top->k = top->rank = k;
        top->bound = bound;
        top->guessed = 0xffffffffu;
        top->found = 0;
        top->kth = top->equal = top->done = top->near_n = 0;
    }
}

__global__ static void set_ratio(double *ratio, double value)
{
    if (threadIdx.x == 0) {
        *ratio = value;
    }
}

void tg_gpu_select_start_top(const tg_gpu_pass *p, const tg_gpu_selection *s)
{
    for (uint32_t i = 0; i < s->ratio_n; i++) {
        double ratio = tg_gpu_selection_ratio(s, i, p->step);
        if (ratio != s->ratios_set[i]) {
            TG_LAUNCH(set_ratio, 1, TG_WARP, p->stream, s->ratios_now + i, ratio);
            s->ratios_set[i] = ratio;
        }
    }
    if (s->effort != TG_GPU_GUESSES) {
        TG_LAUNCH(start, s->long_n, THREADS, p->stream, *p, *s);
    }
}

/* ---- short units: a block each ----------------------------------------------------------------------------------------------- */

/* Of marked elements of a block, the first `n`, by their order. A warp has a strip. */
TG_DEVICE uint32_t first_marks(uint32_t marks, uint32_t n)
{
    uint32_t totals, all, ranks = tg_strip_ranks(marks, &totals), of_warp = 0, chosen = 0;
    bool is_first = threadIdx.x % TG_WARP == 0;
    TG_UNROLL
    for (unsigned j = 0; j < TG_FOURS; j++) {
        of_warp += totals >> 8 * j & 255;
    }
    uint32_t number = tg_block_scan(is_first ? of_warp : 0, &all) - (is_first ? 0 : of_warp);
    TG_UNROLL
    for (unsigned j = 0; j < TG_FOURS; j++) {
        uint32_t at = number + (ranks >> 8 * j & 255);
        TG_UNROLL
        for (unsigned c = 0; c < 4; c++) {
            bool is_marked = (marks >> (4 * j + c) & 1) != 0;
            chosen |= is_marked && at < n ? 1u << (4 * j + c) : 0;
            at += is_marked ? 1 : 0;
        }
        number += totals >> 8 * j & 255;
    }
    return chosen;
}

__global__ static void __launch_bounds__(THREADS) select_short(tg_gpu_pass p, tg_gpu_selection s)
{
    enum { STRIPS = TG_GPU_PATCH / TG_GPU_STRIP };
    tg_gpu_short of = s.shorts[blockIdx.x];
    if (!tg_top_is_in(p, s, of.unit)) {
        return;
    }
    uint32_t chunk = s.unit_chunks[s.units[of.unit].chunk_first], warp = threadIdx.x / TG_WARP;
    uint32_t strip_n = s.strip_first[chunk + 1] - s.strip_first[chunk], base = warp % STRIPS * TG_GPU_STRIP;
    bool has_strip = warp < strip_n;
    tg_region r = tg_region_of(p, s.patches[of.patch + (has_strip ? warp / STRIPS : 0)]);
    float g[TG_EACH], u[TG_EACH];
    uint32_t keys[TG_EACH], own = 0, larger, marks = 0, ties = 0;
    bool is_finite = has_strip && tg_strip_sums(g, u, p, r, base);
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        bool is_own = has_strip && tg_strip_element(base, j) - r.patch.skip < r.patch.n;
        keys[j] = is_own ? tg_key_of(u[j]) : 0;
        own |= (is_own ? 1u : 0u) << j;
    }
    uint32_t k = (uint32_t)tg_top_k(p, s, of.unit), kth = find_kth(keys, own, k, &larger);
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        marks |= (own >> j & 1) != 0 && keys[j] > kth ? 1u << j : 0;
        ties |= (own >> j & 1) != 0 && keys[j] == kth ? 1u << j : 0;
    }
    marks |= first_marks(ties, k - larger);
    if (has_strip) {
        tg_strip_keep(u, r, base, marks, is_finite);
        tg_strip_list(p, s, r, base, marks, u);
    }
}

/* ---- long units --------------------------------------------------------------------------------------------------------------- */

/* Counts the keys of a share that begin as the k-th largest does; a warp takes a strip at a time. */
TG_DEVICE void count_share(uint32_t *cells, const tg_gpu_pass &p, const tg_gpu_selection &s, const tg_share &share,
                           unsigned round)
{
    unsigned shift = shift_of(round), bits = round == 2 ? 9 : 11;
    uint32_t kth = share.top->kth;
    for (uint32_t strip = share.first + threadIdx.x / TG_WARP; strip < share.end; strip += TG_GPU_SHARE / TG_WARP) {
        uint64_t list = tg_strip_at(s, *share.chunk, strip);
        for (uint32_t i = threadIdx.x % TG_WARP; i < s.counts[strip]; i += TG_WARP) {
            uint32_t key = tg_key_of(p.space.strip_values[list + i]);
            if ((uint64_t)key >> (shift + bits) == kth) {
                atomicAdd(&cells[key >> shift & ((1u << bits) - 1)], 1u);
            }
        }
    }
}

/* The last block of a unit picks the cell, and clears all for the next round. */
TG_DEVICE void end_round(const tg_gpu_pass &p, const tg_share &share, uint32_t *cells, unsigned round)
{
    tg_gpu_top *top = share.top;
    tg_cell cell = tg_cell_of(cells, top->rank);
    for (uint32_t i = threadIdx.x; i < TG_GPU_CELLS; i += TG_GPU_SHARE) {
        cells[i] = 0;
    }
    if (threadIdx.x == 0) {
        bool is_there = cell.total >= top->rank;
        top->kth = is_there ? top->kth << (round == 2 ? 9 : 11) | cell.number : 0xffffffffu;
        top->rank = is_there ? top->rank - cell.above : 1;
        top->equal = is_there ? cell.count : 0;
        top->done = 0;
        if (!is_there) { /* fewer than k reach the bound */
            atomicMax(&p.verdict->again, 1u);
        }
    }
}

__global__ static void __launch_bounds__(TG_GPU_SHARE) count(tg_gpu_pass p, tg_gpu_selection s, unsigned round)
{
    __shared__ uint32_t shared_cells[TG_GPU_CELLS];
    tg_share share = tg_share_of(p, s);
    if (share.top == nullptr) {
        return;
    }
    for (uint32_t i = threadIdx.x; i < TG_GPU_CELLS; i += TG_GPU_SHARE) {
        shared_cells[i] = 0;
    }
    __syncthreads();
    count_share(shared_cells, p, s, share, round);
    __syncthreads();
    uint32_t *cells = s.cells + (uint64_t)s.units[share.unit].top * TG_GPU_CELLS;
    for (uint32_t i = threadIdx.x; i < TG_GPU_CELLS; i += TG_GPU_SHARE) {
        if (shared_cells[i] != 0) {
            atomicAdd(&cells[i], shared_cells[i]);
        }
    }
    if (tg_share_is_last(share, s)) {
        end_round(p, share, cells, round);
    }
}

/* Elements of a strip with exactly the k-th key. One thread. */
TG_DEVICE uint32_t ties_of_strip(const tg_gpu_pass &p, const tg_gpu_selection &s, const tg_gpu_chunk &chunk,
                                 uint32_t strip, uint32_t kth)
{
    uint64_t list = tg_strip_at(s, chunk, strip);
    uint32_t ties = 0;
    for (uint32_t i = 0; i < s.counts[strip]; i++) {
        ties += tg_key_of(p.space.strip_values[list + i]) == kth ? 1 : 0;
    }
    return ties;
}

/* Where not all candidates of the k-th key are sent: their number in each chunk. A block a chunk. */
__global__ static void __launch_bounds__(THREADS) count_ties(tg_gpu_pass p, tg_gpu_selection s)
{
    uint32_t number = p.first + blockIdx.x, unit = p.chunks[number].unit, ties = 0;
    const tg_gpu_unit &u = p.units[unit];
    bool selects = u.route == TG_GPU_ROUTE_LISTED || u.route == TG_GPU_ROUTE_LEADER;
    if (!selects || u.select != TG_GPU_SELECT_TOPK || s.units[unit].top >= s.long_n) {
        return;
    }
    const tg_gpu_top &top = s.tops[s.units[unit].top];
    if (top.rank == top.equal || top.equal == 0) {
        return;
    }
    for (uint32_t strip = s.strip_first[number] + threadIdx.x; strip < s.strip_first[number + 1]; strip += THREADS) {
        ties += ties_of_strip(p, s, p.chunks[number], strip, top.kth);
    }
    ties = tg_block_sum(ties);
    if (threadIdx.x == 0) {
        s.ties[number] = ties;
    }
}

/* The number among [0, n) in which tie number `rank` is, given those of each; *rank becomes its rank there. All threads. */
template <class Count> TG_DEVICE uint32_t find_tie(uint64_t *rank, uint32_t n, Count count)
{
    __shared__ uint32_t found;
    __shared__ uint64_t rank_there;
    uint64_t before = 0;
    uint32_t total;
    for (uint32_t from = 0; before < *rank && from < n; from += THREADS) {
        uint32_t i = from + threadIdx.x, mine = i < n ? count(i) : 0;
        uint64_t earlier = before + tg_block_scan(mine, &total);
        if (*rank > earlier && *rank <= earlier + mine) {
            found = i;
            rank_there = *rank - earlier;
        }
        before += total;
    }
    __syncthreads();
    *rank = rank_there;
    uint32_t number = found;
    __syncthreads();
    return number;
}

/* The last element of a unit with the k-th key that is sent. All threads. */
TG_DEVICE uint64_t find_last(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t unit, const tg_gpu_top &top)
{
    const uint32_t *chunks = s.unit_chunks + s.units[unit].chunk_first;
    uint64_t rank = top.rank;
    uint32_t number = chunks[find_tie(&rank, s.units[unit].chunk_n, [&](uint32_t i) { return s.ties[chunks[i]]; })];
    const tg_gpu_chunk &chunk = p.chunks[number];
    uint32_t first = s.strip_first[number];
    uint32_t strip = first + find_tie(&rank, s.strip_first[number + 1] - first,
                                      [&](uint32_t i) { return ties_of_strip(p, s, chunk, first + i, top.kth); });
    uint64_t list = tg_strip_at(s, chunk, strip);
    uint32_t i = 0;
    for (; rank > 0; i++) {
        rank -= tg_key_of(p.space.strip_values[list + i]) == top.kth ? 1 : 0;
    }
    return chunk.at + s.strip_from[strip] + p.space.strip_places[list + i - 1];
}

/* A block a long unit: what is sent of the k-th key, and guesses for the next step. */
__global__ static void __launch_bounds__(THREADS) finish(tg_gpu_pass p, tg_gpu_selection s)
{
    uint32_t unit = s.longs[blockIdx.x];
    if (!tg_top_is_in(p, s, unit)) {
        return;
    }
    tg_gpu_top *top = &s.tops[blockIdx.x];
    bool has_ties = top->rank != top->equal && top->equal != 0;
    uint64_t last = has_ties ? find_last(p, s, unit, *top) : ~0ull;
    __syncthreads();
    if (threadIdx.x == 0) {
        top->last = last;
        if (top->equal != 0) {
            tg_top_guess(top, top->k, top->found);
        }
    }
}

void tg_gpu_select_top(const tg_gpu_pass *p, const tg_gpu_selection *s)
{
    TG_LAUNCH(select_short, s->short_n, THREADS, p->stream, *p, *s);
    if (s->long_n == 0) {
        return;
    }
    if (s->effort == TG_GPU_GUESSES) {
        tg_gpu_select_near(p, s);
        return;
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        TG_LAUNCH(count, p->chunk_n * TG_GPU_SHARES, TG_GPU_SHARE, p->stream, *p, *s, round);
    }
    TG_LAUNCH(count_ties, p->chunk_n, THREADS, p->stream, *p, *s);
    TG_LAUNCH(finish, s->long_n, THREADS, p->stream, *p, *s);
}
