/* One pass over all elements of sparse units whose elements do not depend on each other: gradient + residual to the next residual,
 * and lists of what is selected. That is all of `threshold` and of drawn coordinates. `topk` lists candidates, counts them by
 * their keys, and takes those that are probably sent out of the residual already. A warp takes a strip. */
#include "exec/cuda/known.h"
#include "exec/cuda/take.h"

enum { THREADS = TG_GPU_PATCH / TG_EACH, T = 2 /* parameter of threshold */ };

/* How the elements of a unit are selected. */
typedef struct rule {
    tg_gpu_top *top; /* NULL: not by rank */
    uint32_t *cells;
    uint32_t bound, guess, shift;
    bool is_concerned, is_drawn;
} rule;

TG_DEVICE rule rule_of(const tg_gpu_selection &s, const tg_gpu_unit &u, uint32_t unit)
{
    bool is_leader = u.route == TG_GPU_ROUTE_LEADER;
    bool is_top = u.route == TG_GPU_ROUTE_LISTED || (is_leader && u.select == TG_GPU_SELECT_TOPK);
    rule r = {nullptr, nullptr, 0, 0xffffffffu, TG_GPU_UNCOUNTED, false, u.route == TG_GPU_ROUTE_DRAWN};
    r.is_concerned = r.is_drawn || u.route == TG_GPU_ROUTE_TESTED || (is_leader && !is_top && u.bin == 0);
    if (r.is_concerned && !r.is_drawn) {
        r.bound = tg_key_of((float)u.select_params[T]);
    }
    if (is_top && s.units[unit].top < s.long_n) { /* shorter ones are selected at once */
        r.top = &s.tops[s.units[unit].top];
        r.is_concerned = true;
        r.bound = r.top->bound;
        if (s.effort == TG_GPU_GUESSES) {
            r.cells = s.cells + (uint64_t)s.units[unit].top * TG_GPU_CELLS;
            r.bound = r.top->is_ready ? r.bound : 0xffffffffu;
            r.guess = r.top->is_ready ? r.top->guess : 0xffffffffu;
            r.shift = r.top->shift;
        }
    }
    return r;
}

/* Marks of a lane's elements of a unit's known coordinates, where elements are the patch's own. */
TG_DEVICE uint32_t known_marks(const tg_known &known, const tg_gpu_patch &patch, uint32_t base)
{
    uint32_t marks = 0;
    TG_UNROLL
    for (unsigned j = 0; j < TG_FOURS; j++) {
        uint32_t i = tg_strip_element(base, 4 * j), before = i < patch.skip ? patch.skip - i : 0;
        uint32_t end = patch.skip + patch.n, n = i < end ? (end - i < 4 ? end - i : 4) : 0;
        if (before < n) {
            uint32_t word = tg_known_word(known, patch.at + i + before, n - before);
            marks |= (word & 15) << (4 * j + before);
        }
    }
    return marks;
}

/* Whether a strip has coordinates of a unit, as far as that is known at once. */
TG_DEVICE bool may_mark(const tg_known &known, const tg_gpu_patch &patch, uint32_t base)
{
    uint64_t at = patch.at + (base > patch.skip ? base : patch.skip), end = patch.at + base + TG_GPU_STRIP;
    return known.bits != nullptr || tg_block_before(known.block, end) != tg_block_before(known.block, at);
}

/* Takes the elements of a strip that are in a unit's block: which number they have is known. */
TG_DEVICE void take_block(const tg_gpu_pass &p, const tg_gpu_selection &s, const tg_gpu_block &b,
                          const tg_gpu_patch &patch, uint32_t base, uint32_t marks, const float (&u)[TG_EACH])
{
    tg_listing l = tg_listing_of(p, s, patch.chunk);
    uint64_t before = tg_block_before(b, l.chunk->at);
    TG_UNROLL
    for (unsigned k = 0; k < TG_EACH; k++) {
        if ((marks >> k & 1) != 0) {
            uint32_t i = tg_strip_element(base, k);
            tg_take(p, l, patch.origin + i, u[k], (uint32_t)(tg_block_before(b, patch.at + i) - before));
        }
    }
}

/* Marks of elements that reach a key, where they are the patch's own. */
TG_DEVICE uint32_t reach(const float (&u)[TG_EACH], const tg_gpu_patch &patch, uint32_t base, uint32_t key)
{
    uint32_t marks = 0;
    TG_UNROLL
    for (unsigned k = 0; k < TG_EACH; k++) {
        marks |= (tg_key_of(u[k]) >= key ? 1u : 0u) << k;
    }
    if (base < patch.skip || base + TG_GPU_STRIP > patch.skip + patch.n) {
        TG_UNROLL
        for (unsigned k = 0; k < TG_EACH; k++) {
            marks &= tg_strip_element(base, k) - patch.skip < patch.n ? ~0u : ~(1u << k);
        }
    }
    return marks;
}

/* Counts candidates by their keys. All lanes: what is beyond the cells is counted by the warp, since it would meet in one place. */
TG_DEVICE void count(const rule &r, const float (&u)[TG_EACH], uint32_t marks)
{
    const uint32_t last = TG_GPU_CELLS - TG_GPU_BEYOND;
    uint32_t beyond = 0;
    TG_UNROLL
    for (unsigned j = 0; j < TG_FOURS; j++) {
        if ((marks >> 4 * j & 15) != 0) {
            TG_UNROLL
            for (unsigned k = 4 * j; k < 4 * j + 4; k++) {
                uint32_t cell = (tg_key_of(u[k]) - r.bound) >> r.shift;
                bool is_in = cell < last, is_marked = (marks >> k & 1) != 0;
                if (is_in && is_marked) {
                    atomicAdd(&r.cells[cell], 1u);
                }
                beyond += is_marked && !is_in ? 1 : 0;
            }
        }
    }
    beyond = __reduce_add_sync(TG_ALL_LANES, beyond);
    if (threadIdx.x % TG_WARP == 0 && beyond > 0) {
        atomicAdd(&r.cells[last + blockIdx.x % TG_GPU_BEYOND], beyond);
    }
}

__global__ static void __launch_bounds__(THREADS, 4) sum(tg_gpu_pass p, tg_gpu_selection s, uint32_t first)
{
    const tg_gpu_patch patch = s.patches[first + blockIdx.x];
    const tg_patch_ahead ahead = tg_patch_ahead_of(p, s, first + blockIdx.x, first + gridDim.x);
    const tg_gpu_unit &unit = p.units[patch.unit];
    uint32_t base = threadIdx.x / TG_WARP * TG_GPU_STRIP, marks = 0;
    tg_after_previous();
    tg_next_may_begin();
    if (unit.planes > 0) { /* else most elements may not be read at all */
        tg_patch_prefetch(p, ahead, true);
    }
    rule by = rule_of(s, unit, patch.unit);
    if (!by.is_concerned || base >= patch.skip + patch.n) {
        return;
    }
    tg_region r = tg_region_of(p, patch);
    float g[TG_EACH], u[TG_EACH];
    tg_known known = {};
    if (by.is_drawn) {
        known = tg_known_of(p, s, unit, patch.unit);
        marks = may_mark(known, patch, base) ? known_marks(known, patch, base) : 0;
        bool reads = unit.planes > 0 || p.nonfinite == TG_GPU_ERROR || __any_sync(TG_ALL_LANES, marks != 0);
        if (!reads) {
            if (threadIdx.x % TG_WARP == 0) {
                s.counts[patch.strip_at + base / TG_GPU_STRIP] = 0;
            }
            return;
        }
    }
    bool is_finite = tg_strip_sums(g, u, p, r, base);
    if (!by.is_drawn) {
        marks = reach(u, patch, base, by.bound);
    }
    uint32_t sent = by.top == nullptr ? marks : by.cells == nullptr ? 0 : reach(u, patch, base, by.guess);
    tg_strip_keep(u, r, base, sent, is_finite);
    if (by.cells != nullptr && __any_sync(TG_ALL_LANES, marks != 0)) {
        count(by, u, marks);
    }
    if (tg_is_block(unit)) {
        if (marks != 0) {
            take_block(p, s, known.block, patch, base, marks, u);
        }
        return;
    }
    tg_strip_list(p, s, r, base, marks, u);
    if (by.top != nullptr && by.cells == nullptr) {
        uint32_t found = __reduce_add_sync(TG_ALL_LANES, (uint32_t)__popc(marks));
        if (threadIdx.x % TG_WARP == 0 && found > 0) {
            atomicAdd(&by.top->found, (unsigned long long)found);
        }
    }
}

void tg_gpu_select_sum(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end)
{
    TG_LAUNCH_EARLY(sum, p->overlaps, end - first, THREADS, p->stream, *p, *s, first);
}
