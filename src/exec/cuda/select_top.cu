/* topk: exactly the k largest magnitudes of a unit, ties to the lower index.
 *
 * A short unit is selected by one block, which has all keys in registers and finds the k-th largest bit by bit. Of a long unit a
 * sample gives a bound that a little more than k elements reach (if fewer do, all are candidates); the pass over all elements
 * (select_sum.cu) marks them and keeps their keys. They are counted by their upper bits; those that begin as the k-th
 * largest by their middle bits, then by their lower bits. At last marks of what is below the k-th largest are cleared. */
#include "exec/cuda/region.h"
#include "exec/cuda/scan.h"
#include "exec/cuda/select.h"

enum { THREADS = 1024, OF_WARP = TG_EACH * TG_WARP, KEY_BITS = 31 };

/* ---- the k-th largest of keys in registers --------------------------------------------------------------------------------- */

TG_DEVICE uint32_t block_total(uint32_t value)
{
    __shared__ uint32_t sums[TG_WARP];
    value = __reduce_add_sync(TG_ALL_LANES, value);
    __syncthreads();
    if (threadIdx.x % TG_WARP == 0) {
        sums[threadIdx.x / TG_WARP] = value;
    }
    __syncthreads();
    return __reduce_add_sync(TG_ALL_LANES,
                             threadIdx.x % TG_WARP < blockDim.x / TG_WARP ? sums[threadIdx.x % TG_WARP] : 0);
}

template <unsigned N> TG_DEVICE uint32_t count_from(const uint32_t (&keys)[N], uint32_t least)
{
    uint32_t count = 0;
    TG_UNROLL
    for (unsigned j = 0; j < N; j++) {
        count += keys[j] >= least ? 1 : 0;
    }
    return block_total(count);
}

/* The k-th largest of all keys of a block; 0 if fewer are not 0. */
template <unsigned N> TG_DEVICE uint32_t find_kth(const uint32_t (&keys)[N], uint32_t k)
{
    uint32_t kth = 0;
    for (int bit = KEY_BITS - 1; bit >= 0; bit--) {
        uint32_t higher = kth | 1u << bit;
        kth = count_from(keys, higher) >= k ? higher : kth;
    }
    return kth;
}

/* ---- the start ------------------------------------------------------------------------------------------------------------- */

/* As tg_ratio_entries (select.c). */
TG_DEVICE uint64_t entries_of(double ratio, uint64_t n)
{
    double entries = floor(ratio * (double)n + 0.5);
    return entries < 1.0 ? 1 : entries >= (double)n ? n : (uint64_t)entries;
}

/* Whether the first patch of a unit is among those of the launch, which then has all. */
TG_DEVICE bool is_in_launch(const tg_gpu_selection &s, uint32_t unit, uint32_t first, uint32_t end)
{
    uint32_t patch = s.unit_patches[s.units[unit].patch_first];
    return patch >= first && patch < end;
}

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
    uint32_t keys[SAMPLE_EACH];
    unsigned lane = threadIdx.x % TG_WARP, warp = threadIdx.x / TG_WARP;
    TG_UNROLL
    for (unsigned j = 0; j < SAMPLE_EACH; j++) {
        uint64_t at = u.lo + (n - TG_WARP) / STRETCHES * (warp * SAMPLE_EACH + j);
        float g;
        tg_region r = tg_region_of(p, unit, at, TG_WARP);
        keys[j] = tg_key_of(tg_region_sum(&g, p, r, lane));
    }
    return find_kth(keys, (uint32_t)rank);
}

/* A block a unit of those whose ratio is number `number`: k of this step, and of a long unit the bound. */
__global__ static void __launch_bounds__(THREADS)
    start(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end, uint32_t number, double ratio)
{
    bool is_long = blockIdx.x < s.long_n;
    uint32_t unit = is_long ? s.longs[blockIdx.x] : s.shorts[blockIdx.x - s.long_n];
    if (s.units[unit].ratio != number || !is_in_launch(s, unit, first, end)) {
        return;
    }
    for (uint32_t i = threadIdx.x; is_long && i < TG_GPU_ROUNDS * TG_GPU_CELLS; i += blockDim.x) {
        s.cells[(uint64_t)blockIdx.x * TG_GPU_ROUNDS * TG_GPU_CELLS + i] = 0;
    }
    uint64_t k = entries_of(ratio, p.units[unit].hi - p.units[unit].lo);
    uint32_t bound = is_long ? estimate(p, unit, k) : 0;
    if (threadIdx.x == 0) {
        tg_gpu_top *top = &s.tops[blockIdx.x];
        top->k = top->rank = k;
        top->found = 0;
        top->bound = bound;
        top->kth = top->equal = top->done = 0;
    }
}

void tg_gpu_select_start_top(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end)
{
    for (uint32_t i = 0; i < s->ratio_n; i++) {
        TG_LAUNCH(start, s->long_n + s->short_n, THREADS, p->stream, *p, *s, first, end, i,
                  tg_gpu_selection_ratio(s, i, p->step));
    }
}

/* ---- short units: a block each ----------------------------------------------------------------------------------------------- */

/* Of keys that equal the k-th largest, those that are among the first `ties`. All lanes of a warp hold consecutive elements. */
TG_DEVICE uint32_t first_ties(const uint32_t (&keys)[TG_EACH], uint32_t from, uint32_t n, uint32_t kth, uint32_t ties)
{
    uint32_t lane = threadIdx.x % TG_WARP, equal = 0, total, of_warp = 0, chosen = 0;
    uint32_t words[TG_EACH];
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        words[j] = __ballot_sync(TG_ALL_LANES, from + j * TG_WARP < n && keys[j] == kth);
        of_warp += (uint32_t)__popc(words[j]);
    }
    uint32_t before = tg_block_scan(lane == 0 ? of_warp : 0, &total) - (lane == 0 ? 0 : of_warp);
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        equal = before + (uint32_t)__popc(words[j] & ((1u << lane) - 1));
        chosen |= (words[j] >> lane & 1) != 0 && equal < ties ? 1u << j : 0;
        before += (uint32_t)__popc(words[j]);
    }
    return chosen;
}

TG_DEVICE void store_short(const tg_gpu_selection &s, uint32_t patch_first, uint32_t n, uint32_t word)
{
    enum { PATCHES = TG_GPU_SHORT * 32 / TG_GPU_PATCH, WARPS = TG_GPU_PATCH / OF_WARP };
    __shared__ uint32_t counts[PATCHES];
    uint32_t lane = threadIdx.x % TG_WARP, warp = threadIdx.x / TG_WARP, patch = warp / WARPS;
    uint32_t number = warp % WARPS * TG_EACH + lane;
    if (threadIdx.x < PATCHES) {
        counts[threadIdx.x] = 0;
    }
    __syncthreads();
    if (lane < TG_EACH && patch * TG_GPU_PATCH + number * TG_WARP < n) {
        s.masks[s.patches[patch_first + patch].word_at + number] = word;
        atomicAdd(&counts[patch], (uint32_t)__popc(word));
    }
    __syncthreads();
    if (threadIdx.x < PATCHES && threadIdx.x * TG_GPU_PATCH < n) {
        s.counts[patch_first + threadIdx.x] = counts[threadIdx.x];
    }
}

/* A block a unit of `shorts`, from number `from_unit` on; 16 elements a thread are enough for it. */
template <unsigned N>
__global__ static void __launch_bounds__(N)
    select_short(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end, uint32_t from_unit)
{
    uint32_t unit = s.shorts[from_unit + blockIdx.x];
    const tg_gpu_unit &info = p.units[unit];
    if (!is_in_launch(s, unit, first, end)) {
        return;
    }
    uint32_t n = (uint32_t)(info.hi - info.lo), k = (uint32_t)s.tops[s.units[unit].top].k;
    unsigned lane = threadIdx.x % TG_WARP, from = threadIdx.x / TG_WARP * OF_WARP + lane;
    tg_region r = tg_region_of(p, unit, info.lo, n);
    float g[TG_EACH], u[TG_EACH];
    uint32_t keys[TG_EACH];
    tg_region_sums(g, u, p, r, from);
    tg_region_keep(g, u, p, r, from, 0, n);
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        keys[j] = tg_key_of(u[j]);
    }
    uint32_t kth = find_kth(keys, k), above = count_from(keys, kth + 1);
    uint32_t ties = first_ties(keys, from, n, kth, k - above), mine = 0;
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        uint32_t word = __ballot_sync(TG_ALL_LANES, from + j * TG_WARP < n && (keys[j] > kth || (ties >> j & 1) != 0));
        mine = lane == j ? word : mine;
    }
    store_short(s, s.unit_patches[s.units[unit].patch_first], n, mine);
}

/* ---- long units: a warp a patch ------------------------------------------------------------------------------------------------ */

enum { WARPS = 8, PATCHES = 32 /* of a block */ };

/* Candidates of a patch. Their keys are side by side, unless the bound was too high: then all elements are candidates. */
typedef struct candidates {
    const tg_gpu_top *top; /* NULL: the unit is not concerned */
    const uint32_t *keys;
    uint32_t n, unit;
    uint64_t at; /* of the patch in the unit */
} candidates;

TG_DEVICE candidates candidates_of(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t number)
{
    const tg_gpu_patch &patch = s.patches[number];
    const tg_gpu_chunk &chunk = p.chunks[patch.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    candidates c = {nullptr, nullptr, 0, chunk.unit, chunk.at + patch.at};
    bool selects = u.route == TG_GPU_ROUTE_LISTED || u.route == TG_GPU_ROUTE_LEADER;
    if (selects && u.select == TG_GPU_SELECT_TOPK && s.units[chunk.unit].top < s.long_n) {
        c.top = &s.tops[s.units[chunk.unit].top];
        bool is_bound = c.top->found >= c.top->k;
        c.keys = is_bound ? (const uint32_t *)p.space.values + chunk.element_at + patch.at : nullptr;
        c.n = is_bound ? s.counts[number] : patch.n;
    }
    return c;
}

TG_DEVICE uint32_t key_at(const tg_gpu_pass &p, const candidates &c, uint32_t i)
{
    return c.keys != nullptr ? c.keys[i] : tg_key_of(tg_kept_sum(p, p.units[c.unit], c.unit, c.at + i));
}

TG_DEVICE unsigned shift_of(unsigned round)
{
    return (TG_GPU_ROUNDS - 1 - round) * 10; /* 11 bits, 10 and 10 */
}

/* Counts the keys of a patch that begin as the k-th largest does. */
TG_DEVICE void count_patch(uint32_t *cells, const tg_gpu_pass &p, const candidates &c, unsigned round)
{
    unsigned shift = shift_of(round), bits = round == 0 ? 11 : 10;
    for (uint32_t i = threadIdx.x % TG_WARP; i < c.n; i += TG_WARP) {
        uint32_t key = key_at(p, c, i);
        if (round == 0 || key >> (shift + bits) == c.top->kth) {
            atomicAdd(&cells[key >> shift & ((1u << bits) - 1)], 1u);
        }
    }
}

/* The cell of the k-th largest of a unit; a thread has some cells, the first one the highest. */
TG_DEVICE void pick(tg_gpu_top *top, const uint32_t *cells, unsigned round)
{
    enum { EACH = TG_GPU_CELLS / (WARPS * 32) };
    uint32_t highest = TG_GPU_CELLS - 1 - EACH * threadIdx.x, of_cell[EACH], mine = 0, total;
    for (uint32_t j = 0; j < EACH; j++) {
        of_cell[j] = __ldcg(&cells[highest - j]);
        mine += of_cell[j];
    }
    uint64_t rank = top->rank, above = tg_block_scan(mine, &total);
    for (uint32_t j = 0; rank > above && j < EACH; above += of_cell[j++]) {
        if (rank <= above + of_cell[j]) { /* one thread has it */
            top->kth = top->kth << (round == 0 ? 11 : 10) | (highest - j);
            top->rank = rank - above;
            top->equal = of_cell[j];
        }
    }
}

/* Notes that this block has counted patches [from, to); the block that counts the last patch of a unit picks its cell. */
TG_DEVICE void finish_round(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t from, uint32_t to, unsigned round)
{
    __shared__ uint32_t finished[PATCHES], finished_n;
    __threadfence(); /* counts are seen before what follows */
    __syncthreads();
    if (threadIdx.x == 0) {
        finished_n = 0;
        for (uint32_t i = from, next; i < to; i = next) {
            candidates c = candidates_of(p, s, i);
            for (next = i + 1; next < to && p.chunks[s.patches[next].chunk].unit == c.unit;) {
                next++;
            }
            uint32_t all = s.units[c.unit].patch_n * (round + 1), top = s.units[c.unit].top;
            if (c.top != nullptr && atomicAdd(&s.tops[top].done, next - i) + (next - i) == all) {
                finished[finished_n++] = top;
            }
        }
        __threadfence();
    }
    __syncthreads();
    for (uint32_t i = 0; i < finished_n; i++) {
        pick(&s.tops[finished[i]], s.cells + ((uint64_t)finished[i] * TG_GPU_ROUNDS + round) * TG_GPU_CELLS, round);
        __syncthreads();
    }
}

/* Patches of one unit are counted in shared memory first, since most keys are in few cells. */
__global__ static void __launch_bounds__(WARPS *TG_WARP)
    count(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end, unsigned round)
{
    __shared__ uint32_t shared_cells[TG_GPU_CELLS];
    uint32_t from = first + blockIdx.x * PATCHES, to = end - from < PATCHES ? end : from + PATCHES;
    candidates one = candidates_of(p, s, from);
    /* Slices follow each other, each with chunks of all units. */
    bool is_same = from + threadIdx.x >= to || p.chunks[s.patches[from + threadIdx.x].chunk].unit == one.unit;
    bool is_one = __syncthreads_and(is_same) != 0;
    if (is_one && one.top == nullptr) {
        return;
    }
    for (uint32_t i = threadIdx.x; is_one && i < TG_GPU_CELLS; i += blockDim.x) {
        shared_cells[i] = 0;
    }
    __syncthreads();
    for (uint32_t i = from + threadIdx.x / TG_WARP; i < to; i += WARPS) {
        candidates c = candidates_of(p, s, i);
        if (c.top != nullptr) {
            uint64_t at = ((uint64_t)s.units[c.unit].top * TG_GPU_ROUNDS + round) * TG_GPU_CELLS;
            count_patch(is_one ? shared_cells : s.cells + at, p, c, round);
        }
    }
    __syncthreads();
    uint32_t *cells = s.cells + ((uint64_t)s.units[one.unit].top * TG_GPU_ROUNDS + round) * TG_GPU_CELLS;
    for (uint32_t i = threadIdx.x; is_one && i < TG_GPU_CELLS; i += blockDim.x) {
        if (shared_cells[i] != 0) {
            atomicAdd(&cells[i], shared_cells[i]);
        }
    }
    finish_round(p, s, from, to, round);
}

/* Where not all candidates of the k-th magnitude are sent: their number in each patch. */
__global__ static void count_ties(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end)
{
    uint32_t number = first + blockIdx.x * WARPS + threadIdx.x / TG_WARP, ties = 0;
    if (number >= end) {
        return;
    }
    candidates c = candidates_of(p, s, number);
    if (c.top == nullptr || c.top->rank == c.top->equal) {
        return;
    }
    for (uint32_t i = threadIdx.x % TG_WARP; i < c.n; i += TG_WARP) {
        ties += key_at(p, c, i) == c.top->kth ? 1 : 0;
    }
    ties = __reduce_add_sync(TG_ALL_LANES, ties);
    if (threadIdx.x % TG_WARP == 0) {
        s.ties[number] = ties;
    }
}

/* How many of the k-th magnitude are sent of a patch and those after it. */
TG_DEVICE uint64_t ties_left(const tg_gpu_selection &s, const candidates &c, uint32_t number)
{
    const tg_gpu_selected &unit = s.units[c.unit];
    uint32_t earlier = 0;
    if (c.top->rank == c.top->equal) {
        return c.top->rank;
    }
    for (uint32_t i = 0; i < unit.patch_n; i += TG_WARP) {
        uint32_t mine = i + threadIdx.x % TG_WARP;
        uint32_t patch = mine < unit.patch_n ? s.unit_patches[unit.patch_first + mine] : number;
        earlier += __reduce_add_sync(TG_ALL_LANES, patch < number ? s.ties[patch] : 0);
    }
    return c.top->rank > earlier ? c.top->rank - earlier : 0;
}

/* Clears marks of candidates that are not among the k largest. A lane has up to four words of marks. */
__global__ static void keep(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end)
{
    enum { WORDS = TG_GPU_PATCH / 32 / TG_WARP };
    uint32_t number = first + blockIdx.x * WARPS + threadIdx.x / TG_WARP, lane = threadIdx.x % TG_WARP;
    if (number >= end) {
        return;
    }
    candidates c = candidates_of(p, s, number);
    if (c.top == nullptr) {
        return;
    }
    const tg_gpu_patch &patch = s.patches[number];
    uint32_t kth = c.top->kth, words[WORDS], marks = 0, total, kept = 0, equal = 0;
    for (unsigned j = 0; j < WORDS; j++) {
        uint32_t at = (lane * WORDS + j) * 32, n = patch.n > at ? patch.n - at : 0;
        words[j] = n == 0              ? 0
                   : c.keys != nullptr ? s.masks[patch.word_at + at / 32]
                   : n < 32            ? (1u << n) - 1
                                       : 0xffffffffu;
        marks += (uint32_t)__popc(words[j]);
    }
    uint32_t from = tg_warp_scan(marks, &total), i = from;
    for (; i < from + marks; i++) {
        equal += key_at(p, c, i) == kth ? 1 : 0;
    }
    uint64_t left = ties_left(s, c, number), before = tg_warp_scan(equal, &total);
    i = from;
    for (unsigned j = 0; j < WORDS; j++) {
        for (uint32_t word = words[j]; word != 0; word &= word - 1, i++) {
            uint32_t key = key_at(p, c, i), bit = word & (0u - word);
            bool stays = key > kth || (key == kth && before++ < left);
            words[j] = stays ? words[j] : words[j] & ~bit;
        }
        if ((lane * WORDS + j) * 32 < patch.n) {
            s.masks[patch.word_at + lane * WORDS + j] = words[j];
        }
        kept += (uint32_t)__popc(words[j]);
    }
    kept = __reduce_add_sync(TG_ALL_LANES, kept);
    if (lane == 0) {
        s.counts[number] = kept;
    }
}

void tg_gpu_select_top(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end)
{
    uint32_t blocks = (end - first + WARPS - 1) / WARPS;
    const uint32_t *n = s->short_ns;
    if (n[0] > 0) {
        TG_LAUNCH(select_short<32>, n[0], 32, p->stream, *p, *s, first, end, 0);
    }
    if (n[1] > 0) {
        TG_LAUNCH(select_short<128>, n[1], 128, p->stream, *p, *s, first, end, n[0]);
    }
    if (n[2] > 0) {
        TG_LAUNCH(select_short<THREADS>, n[2], THREADS, p->stream, *p, *s, first, end, n[0] + n[1]);
    }
    for (unsigned round = 0; s->long_n > 0 && round < TG_GPU_ROUNDS; round++) {
        TG_LAUNCH(count, (end - first + PATCHES - 1) / PATCHES, WARPS * TG_WARP, p->stream, *p, *s, first, end, round);
    }
    if (s->long_n > 0) {
        TG_LAUNCH(count_ties, blocks, WARPS * TG_WARP, p->stream, *p, *s, first, end);
        TG_LAUNCH(keep, blocks, WARPS * TG_WARP, p->stream, *p, *s, first, end);
    }
}
