/* adabins (AdaComp): selects in bins of consecutive elements, in one pass over memory. A block takes whole bins: several that fit
 * in a patch, or a longer one. Sums and gradients stay in registers; the largest magnitude of each bin is found in shared
 * memory. Bins that lie in two chunks are read by both. */
#include "exec/cuda/strip.h"
#include "exec/cuda/sums.h"

enum {
    WEIGHT = 5 /* parameter of adabins */,
    INFINITE = 0x7f800000,
    WIDE = 32,           /* elements from which a bin is wide ... */
    BROAD = TG_FOUR_STEP /* ... and from which the fours of a warp lie in one or two */
};

/* Bins by multiplication: i / bin for i below 2^14. */
typedef struct divisor {
    uint32_t bin, reciprocal;
} divisor;

TG_DEVICE uint32_t bin_of(const divisor &d, uint32_t i)
{
    return d.bin == 1 ? i : __umulhi(i, d.reciprocal);
}

/* Where four elements side by side lie: `left` of them in bin `first`, counted from the first bin of the patch, others after it. Elements
 * before the first bin count as its own: they are 0. */
typedef struct four_bins {
    uint32_t first;
    int32_t left;
} four_bins;

TG_DEVICE four_bins bins_of_four(const divisor &d, int32_t i)
{
    uint32_t first = i < 0 ? 0 : bin_of(d, (uint32_t)i);
    return {first, (int32_t)((first + 1) * d.bin) - i};
}

/* Four elements in narrow bins, one by one. */
TG_DEVICE void raise_each(uint32_t *largest, const divisor &d, const float *u, int32_t i, uint32_t bin_n)
{
    TG_UNROLL
    for (int c = 0; c < 4; c++) {
        uint32_t bin = i + c < 0 ? 0 : bin_of(d, (uint32_t)(i + c)), key = tg_key_of(u[c]);
        if (bin < bin_n && key > 0) {
            atomicMax(&largest[bin], key);
        }
    }
}

/* The elements of a warp's four steps in wide bins: each bin's largest is found by the warp first. */
TG_DEVICE void raise_wide(uint32_t *largest, const divisor &d, const float *u, int32_t i, uint32_t bin_n)
{
    four_bins f = bins_of_four(d, i);
    uint32_t here = tg_key_of(u[0]), there = 0;
    TG_UNROLL
    for (int c = 1; c < 4; c++) {
        uint32_t key = tg_key_of(u[c]);
        here = c < f.left ? max(here, key) : here;
        there = c < f.left ? there : max(there, key);
    }
    uint32_t bin = __shfl_sync(TG_ALL_LANES, f.first, 0);
    uint32_t last = __shfl_sync(TG_ALL_LANES, f.first + (f.left < 4 ? 1u : 0u), (int)TG_WARP - 1);
    for (; bin <= last; bin++) {
        uint32_t key = __reduce_max_sync(TG_ALL_LANES, f.first == bin ? here : f.first + 1 == bin ? there : 0);
        if (threadIdx.x % TG_WARP == 0 && bin < bin_n && key > 0) {
            atomicMax(&largest[bin], key);
        }
    }
}

/* The fours of a warp in broad bins: `left` of these elements are in bin `first`, others in the next one. The same in all lanes. */
TG_DEVICE four_bins bins_of_warp(const divisor &d, uint32_t base, unsigned j, uint32_t lead)
{
    return bins_of_four(d, (int32_t)(base + j * TG_FOUR_STEP) - (int32_t)lead);
}

/* The larger one of a key and that of a value. With IS_FINITE all values are, and magnitudes are compared as floats, of which NaNs would be
 * lost. */
template <bool IS_FINITE> TG_DEVICE uint32_t larger(uint32_t key, float value)
{
    return IS_FINITE ? __float_as_uint(fmaxf(__uint_as_float(key), fabsf(value))) : max(key, tg_key_of(value));
}

/* All elements of a warp in broad bins; a bin's largest is found when the last of its elements has come. */
template <bool IS_FINITE>
TG_DEVICE void raise_broad(uint32_t *largest, const divisor &d, const float (&u)[TG_EACH], uint32_t base, uint32_t lead,
                           uint32_t bin_n)
{
    uint32_t most = 0;
    TG_UNROLL
    for (unsigned j = 0; j < TG_FOURS; j++) {
        four_bins f = bins_of_warp(d, base, j, lead);
        uint32_t there = 0;
        if (f.left >= TG_FOUR_STEP) { /* in one bin */
            TG_UNROLL
            for (int c = 0; c < 4; c++) {
                most = larger<IS_FINITE>(most, u[4 * j + c]);
            }
        } else {
            int32_t left = f.left - (int32_t)(threadIdx.x % TG_WARP * 4);
            TG_UNROLL
            for (int c = 0; c < 4; c++) {
                most = c < left ? larger<IS_FINITE>(most, u[4 * j + c]) : most;
                there = c < left ? there : larger<IS_FINITE>(there, u[4 * j + c]);
            }
        }
        if (f.left <= TG_FOUR_STEP || j + 1 == TG_FOURS) {
            uint32_t key = __reduce_max_sync(TG_ALL_LANES, most);
            if (threadIdx.x % TG_WARP == 0 && f.first < bin_n) {
                atomicMax(&largest[f.first], key);
            }
            most = there;
        }
        if (f.left < TG_FOUR_STEP && j + 1 == TG_FOURS) {
            uint32_t key = __reduce_max_sync(TG_ALL_LANES, most);
            if (threadIdx.x % TG_WARP == 0 && f.first + 1 < bin_n) {
                atomicMax(&largest[f.first + 1], key);
            }
        }
    }
}

/* The key that an element has to reach in a bin, NaNs included: none does if all are 0. */
TG_DEVICE uint32_t bar_of(uint32_t largest)
{
    return largest == 0 ? 0xffffffffu : min(largest, INFINITE + 1u);
}

TG_DEVICE bool is_sent(float u, float g, float more, uint32_t bar)
{
    return tg_key_of(u + more * g) >= bar && u != 0.0f;
}

/* Marks of elements that are the patch's own. */
TG_DEVICE uint32_t own_marks(uint32_t marks, const tg_gpu_patch &patch, uint32_t base)
{
    if (base < patch.skip || base + TG_GPU_STRIP > patch.skip + patch.n) {
        TG_UNROLL
        for (unsigned k = 0; k < TG_EACH; k++) {
            marks &= tg_strip_element(base, k) - patch.skip < patch.n ? ~0u : ~(1u << k);
        }
    }
    return marks;
}

/* Marks of a lane's elements in broad bins. With IS_FINITE, sums are: then few of a lane's fours have an element that reaches a bar, which
 * is asked first. */
template <bool IS_FINITE>
TG_DEVICE uint32_t mark_broad(const float (&u)[TG_EACH], const float (&g)[TG_EACH], const tg_gpu_patch &patch,
                              uint32_t base, const divisor &d, const uint32_t *largest, float more, uint32_t bin_n)
{
    uint32_t marks = 0;
    TG_UNROLL
    for (unsigned j = 0; j < TG_FOURS; j++) {
        four_bins f = bins_of_warp(d, base, j, patch.lead);
        int32_t left = f.left - (int32_t)(threadIdx.x % TG_WARP * 4);
        uint32_t here = bar_of(largest[min(f.first, bin_n - 1)]), there = here;
        if (f.left < TG_FOUR_STEP) {
            there = bar_of(largest[min(f.first + 1, bin_n - 1)]);
        }
        if (IS_FINITE) {
            uint32_t most = 0;
            TG_UNROLL
            for (unsigned k = 4 * j; k < 4 * j + 4; k++) {
                most = larger<true>(most, u[k] + more * g[k]);
            }
            if (most < min(here, there)) {
                continue;
            }
        }
        TG_UNROLL
        for (int c = 0; c < 4; c++) {
            unsigned k = 4 * j + (unsigned)c;
            marks |= is_sent(u[k], g[k], more, c < left ? here : there) ? 1u << k : 0;
        }
    }
    return marks;
}

/* Marks of a lane's elements in any bins. */
TG_DEVICE uint32_t mark(const float (&u)[TG_EACH], const float (&g)[TG_EACH], const tg_gpu_patch &patch, uint32_t base,
                        const divisor &d, const uint32_t *largest, float more, uint32_t bin_n)
{
    uint32_t marks = 0;
    TG_UNROLL
    for (unsigned j = 0; j < TG_FOURS; j++) {
        int32_t i = (int32_t)tg_strip_element(base, 4 * j) - (int32_t)patch.lead;
        four_bins f = bins_of_four(d, i);
        TG_UNROLL
        for (int c = 0; c < 4; c++) {
            unsigned k = 4 * j + (unsigned)c;
            uint32_t bin = c < f.left ? f.first : d.bin >= 4 ? f.first + 1 : bin_of(d, (uint32_t)(i + c));
            marks |= is_sent(u[k], g[k], more, bar_of(largest[min(bin, bin_n - 1)])) ? 1u << k : 0;
        }
    }
    return marks;
}

/* Maxima of bins whose first element is the patch's own; the chunk with it notes them. */
TG_DEVICE void note_largest(float *maxima, const tg_gpu_unit &u, const tg_gpu_patch &patch, const uint32_t *largest,
                            uint32_t bin_n)
{
    uint64_t first = u.flat_at + (patch.at + patch.lead - u.lo) / u.bin;
    for (uint32_t b = threadIdx.x; maxima != nullptr && b < bin_n; b += blockDim.x) {
        if (patch.lead + b * u.bin - patch.skip < patch.n) {
            maxima[first + b] = __uint_as_float(largest[b]);
        }
    }
}

/* A patch a block, of up to N elements; bins are longer than MIN_BIN. */
template <unsigned N, unsigned MIN_BIN>
__global__ static void __launch_bounds__(N / TG_EACH, MIN_BIN == 0 ? 4 : 1)
    select_bins(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, float *maxima)
{
    __shared__ uint32_t largest[MIN_BIN == 0 ? N : 2];
    const tg_gpu_patch patch = s.patches[first + blockIdx.x];
    const tg_patch_ahead ahead = tg_patch_ahead_of(p, s, first + blockIdx.x, first + gridDim.x);
    const tg_gpu_unit &unit = p.units[patch.unit];
    bool has_bins = unit.route == TG_GPU_ROUTE_BINS || unit.route == TG_GPU_ROUTE_LEADER;
    tg_after_previous();
    tg_next_may_begin();
    if (!has_bins || unit.bin <= MIN_BIN || unit.bin > N) {
        return;
    }
    tg_region r = tg_region_of(p, patch);
    uint32_t base = threadIdx.x / TG_WARP * TG_GPU_STRIP, bin_n = (patch.end - patch.lead + unit.bin - 1) / unit.bin;
    divisor d = {unit.bin, unit.bin == 1 ? 0 : 0xffffffffu / unit.bin + 1};
    float g[TG_EACH], u[TG_EACH], more = (float)(unit.select_params[WEIGHT] - 1.0);
    for (uint32_t b = threadIdx.x; b < bin_n; b += blockDim.x) {
        largest[b] = 0;
    }
    tg_patch_prefetch(p, ahead, unit.planes > 0);
    bool is_finite = tg_strip_sums(g, u, p, r, base);
    __syncthreads();
    const bool is_broad = unit.bin >= BROAD, are_finite = __all_sync(TG_ALL_LANES, is_finite);
    if (is_broad && are_finite) {
        raise_broad<true>(largest, d, u, base, patch.lead, bin_n);
    } else if (is_broad) {
        raise_broad<false>(largest, d, u, base, patch.lead, bin_n);
    } else {
        TG_UNROLL
        for (unsigned j = 0; j < TG_FOURS; j++) {
            int32_t i = (int32_t)tg_strip_element(base, 4 * j) - (int32_t)patch.lead;
            if (unit.bin >= WIDE) {
                raise_wide(largest, d, u + 4 * j, i, bin_n);
            } else {
                raise_each(largest, d, u + 4 * j, i, bin_n);
            }
        }
    }
    __syncthreads();
    uint32_t marks = is_broad && are_finite ? mark_broad<true>(u, g, patch, base, d, largest, more, bin_n)
                     : is_broad             ? mark_broad<false>(u, g, patch, base, d, largest, more, bin_n)
                                            : mark(u, g, patch, base, d, largest, more, bin_n);
    marks = own_marks(marks, patch, base);
    if (base < patch.skip + patch.n) {
        tg_strip_keep(u, r, base, marks, is_finite);
        tg_strip_list(p, s, r, base, marks, u);
    }
    note_largest(maxima, unit, patch, largest, bin_n);
}

void tg_gpu_select_bins(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end, float *maxima)
{
    TG_LAUNCH_EARLY((select_bins<TG_GPU_PATCH, 0>), p->overlaps, end - first, TG_GPU_PATCH / TG_EACH, p->stream, *p, *s,
                    first, maxima);
    if (s->has_long_bins) {
        TG_LAUNCH((select_bins<TG_GPU_BIN_MAX, TG_GPU_PATCH>), end - first, TG_GPU_BIN_MAX / TG_EACH, p->stream, *p, *s,
                  first, maxima);
    }
}

/* ---- scales -------------------------------------------------------------------------------------------------------------- */

enum { SUMMERS = TG_GPU_LEAVES_EACH * TG_WARP, TREE = 2 * SUMMERS };

/* The tree of a unit's leaves, as many at a time as a block can; they are used up. All threads get it. */
TG_DEVICE double sum_leaves(double *leaves, uint64_t n)
{
    __shared__ double some[TREE];
    for (;;) {
        double sum = 0;
        for (uint64_t from = 0; from < n; from += TREE) {
            uint32_t here = (uint32_t)min(n - from, (uint64_t)TREE);
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < here; i += SUMMERS) {
                some[i] = __ldcg(&leaves[from + i]);
            }
            sum = tg_tree_of(some, here);
            if (threadIdx.x == 0 && n > TREE) {
                leaves[from / TREE] = sum; /* TREE is a power of two, so that this is a node of the whole tree */
            }
        }
        if (n <= TREE) {
            return sum;
        }
        __threadfence();
        __syncthreads();
        n = (n + TREE - 1) / TREE;
    }
}

/* Whether a pass has chunks of a unit. */
TG_DEVICE bool is_in_pass(const tg_gpu_pass &p, const tg_gpu_selection &s, const tg_gpu_selected &unit)
{
    const uint32_t *chunks = s.unit_chunks + unit.chunk_first;
    return unit.chunk_n > 0 && chunks[0] < p.first + p.chunk_n && chunks[unit.chunk_n - 1] >= p.first;
}

/* A leaf a warp, of 1,024 maxima. The last block of a unit has its scale: their mean. */
__global__ static void __launch_bounds__(SUMMERS) scale_bins(tg_gpu_pass p, tg_gpu_selection s, const float *maxima)
{
    uint32_t unit = s.leaf_units[blockIdx.x], lane = threadIdx.x % TG_WARP;
    const tg_gpu_unit &u = p.units[unit];
    const tg_gpu_selected &selected = s.units[unit];
    const bool is_in = is_in_pass(p, s, selected);
    tg_after_previous();
    tg_next_may_begin(); /* what selected bins is there for the next kernel, too */
    if (!is_in) {
        return;
    }
    uint64_t bin_n = (u.hi - u.lo + u.bin - 1) / u.bin, leaf_n = (bin_n + TG_LEAF_N - 1) / TG_LEAF_N;
    uint64_t leaf = (uint64_t)blockIdx.x * TG_GPU_LEAVES_EACH + threadIdx.x / TG_WARP - selected.leaf_at;
    if (leaf < leaf_n) {
        const float *from = maxima + u.flat_at + leaf * TG_LEAF_N;
        uint32_t n = (uint32_t)min(bin_n - leaf * TG_LEAF_N, (uint64_t)TG_LEAF_N);
        float v[TG_LANE_N];
        double part = 0;
        TG_UNROLL
        for (uint32_t k = 0; k < TG_LANE_N; k++) {
            v[k] = lane + TG_WARP * k < n ? from[lane + TG_WARP * k] : 0.0f;
        }
        TG_UNROLL
        for (uint32_t k = 0; k < TG_LANE_N; k++) {
            part += fabs((double)v[k]);
        }
        part = tg_fold(part);
        if (lane == 0) {
            s.leaves[selected.leaf_at + leaf] = part;
        }
    }
    __threadfence();
    __syncthreads();
    uint64_t blocks = (leaf_n + TG_GPU_LEAVES_EACH - 1) / TG_GPU_LEAVES_EACH;
    bool is_last = threadIdx.x == 0 && atomicAdd(&s.leaves_done[unit], 1u) + 1 == blocks;
    if (__syncthreads_or(is_last) == 0) {
        return;
    }
    __threadfence();
    float scale = (float)(sum_leaves(s.leaves + selected.leaf_at, leaf_n) / (double)bin_n);
    if (threadIdx.x == 0) {
        s.leaves_done[unit] = 0;
        p.space.scales[unit] = scale != scale ? __uint_as_float(0x7fc00000u) : scale; /* a GPU has a NaN of its own */
    }
}

void tg_gpu_scale_bins(const tg_gpu_pass *p, const tg_gpu_selection *s, const float *maxima)
{
    TG_LAUNCH_EARLY(scale_bins, p->overlaps, s->leaf_blocks, SUMMERS, p->stream, *p, *s, maxima);
}
