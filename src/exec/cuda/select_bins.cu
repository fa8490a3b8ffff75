/* adabins (AdaComp): selects in bins of consecutive elements, in one pass over memory. A block takes whole bins: several that fit
 * in a patch, or a longer one. Sums and gradients stay in registers; magnitudes go through shared memory, where a few lanes
 * find the largest of each bin. Bins that lie in two chunks are read by both. */
#include "exec/cuda/region.h"
#include "exec/cuda/scan.h"
#include "exec/cuda/select.h"

enum { OF_WARP = TG_EACH * TG_WARP, WEIGHT = 5 /* parameter of adabins */, INFINITE = 0x7f800000 };

/* The largest key of each bin goes to the place of the bin's first element. `lanes` of a warp share a bin. */
TG_DEVICE void find_largest(uint32_t *keys, uint32_t n, uint32_t bin, uint32_t lanes)
{
    uint32_t at_once = blockDim.x / lanes, lane = threadIdx.x % lanes, bins = (n + bin - 1) / bin;
    for (uint32_t b = 0; b < bins; b += at_once) {
        uint32_t from = (b + threadIdx.x / lanes) * bin, end = from + bin < n ? from + bin : n, largest = 0;
        for (uint32_t i = from + lane; i < end; i += lanes) {
            largest = keys[i] > largest ? keys[i] : largest;
        }
        for (uint32_t by = lanes / 2; by > 0; by /= 2) {
            uint32_t other = __shfl_xor_sync(TG_ALL_LANES, largest, (int)by);
            largest = other > largest ? other : largest;
        }
        if (lane == 0 && from < n) {
            keys[from] = largest;
        }
    }
}

/* As many lanes as there are fours of elements, up to a warp. */
TG_DEVICE uint32_t lanes_of(uint32_t bin)
{
    uint32_t lanes = 1;
    while (lanes < TG_WARP && lanes * 4 < bin) {
        lanes *= 2;
    }
    return lanes;
}

TG_DEVICE bool is_sent(float u, float g, float more, uint32_t largest)
{
    uint32_t reach = tg_key_of(u + more * g);
    return largest > 0 && (reach >= largest || reach > INFINITE) && tg_key_of(u) != 0;
}

/* i / bin, for i below 2^12, by a multiplication. */
TG_DEVICE uint32_t bin_of(uint32_t i, uint32_t bin, uint32_t reciprocal)
{
    return bin == 1 ? i : __umulhi(i, reciprocal);
}

/* The whole bins around a patch. */
TG_DEVICE tg_region bins_of(const tg_gpu_pass &p, const tg_gpu_patch &patch)
{
    const tg_gpu_chunk &chunk = p.chunks[patch.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    uint64_t at = chunk.at + patch.at - patch.skip;
    uint32_t n = (patch.skip + patch.n + u.bin - 1) / u.bin * u.bin;
    return tg_region_of(p, chunk.unit, at, u.hi - at < n ? (uint32_t)(u.hi - at) : n);
}

/* Stores the marks of a patch: words of this warp in its lanes, and their number. */
TG_DEVICE void store_marks(const tg_gpu_selection &s, const tg_gpu_patch &patch, uint32_t number_of_patch,
                           uint32_t word)
{
    uint32_t lane = threadIdx.x % TG_WARP, number = threadIdx.x / TG_WARP * TG_EACH + lane;
    if (lane < TG_EACH && number * TG_WARP < patch.skip + patch.n) {
        s.masks[patch.word_at + number] = word;
    }
    uint32_t count = tg_block_sum((uint32_t)__popc(word));
    if (threadIdx.x == 0) {
        s.counts[number_of_patch] = count;
    }
}

/* The chunk with a bin's first element notes its maximum. */
TG_DEVICE void note_largest(float *maxima, const tg_gpu_unit &u, const tg_region &r, const tg_gpu_patch &patch,
                            uint32_t b, uint32_t largest)
{
    uint32_t at = b * u.bin;
    if (maxima != nullptr && at >= patch.skip && at < patch.skip + patch.n) {
        maxima[u.flat_at + (r.at - u.lo) / u.bin + b] = __uint_as_float(largest);
    }
}

/* Several bins a block. */
__global__ static void __launch_bounds__(TG_GPU_PATCH / TG_EACH)
    short_bins(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, float *maxima)
{
    __shared__ uint32_t keys[TG_GPU_PATCH];
    const tg_gpu_patch &patch = s.patches[first + blockIdx.x];
    const tg_gpu_unit &unit = p.units[p.chunks[patch.chunk].unit];
    bool has_bins = unit.route == TG_GPU_ROUTE_BINS || unit.route == TG_GPU_ROUTE_LEADER;
    if (!has_bins || unit.bin == 0 || unit.bin > TG_GPU_PATCH) {
        return;
    }
    tg_region r = bins_of(p, patch);
    unsigned lane = threadIdx.x % TG_WARP, from = threadIdx.x / TG_WARP * OF_WARP + lane, end = patch.skip + patch.n;
    float g[TG_EACH], u[TG_EACH];
    tg_region_sums(g, u, p, r, from);
    tg_region_keep(g, u, p, r, from, patch.skip, patch.n);
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        keys[from + j * TG_WARP] = tg_key_of(u[j]);
    }
    __syncthreads();
    find_largest(keys, r.n, unit.bin, lanes_of(unit.bin));
    __syncthreads();
    float more = (float)(unit.select_params[WEIGHT] - 1.0);
    uint32_t mine = 0, bin = unit.bin, reciprocal = bin == 1 ? 0 : 0xffffffffu / bin + 1;
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        uint32_t i = from + j * TG_WARP;
        bool is_in = i >= patch.skip && i < end && is_sent(u[j], g[j], more, keys[bin_of(i, bin, reciprocal) * bin]);
        uint32_t word = __ballot_sync(TG_ALL_LANES, is_in);
        mine = lane == j ? word : mine;
    }
    for (uint32_t b = threadIdx.x; b * unit.bin < end; b += blockDim.x) {
        note_largest(maxima, unit, r, patch, b, keys[b * unit.bin]);
    }
    store_marks(s, patch, first + blockIdx.x, mine);
}

/* A bin longer than a patch a block. */
__global__ static void __launch_bounds__(TG_GPU_BIN_MAX / TG_EACH)
    long_bins(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, float *maxima)
{
    const tg_gpu_patch &patch = s.patches[first + blockIdx.x];
    const tg_gpu_unit &unit = p.units[p.chunks[patch.chunk].unit];
    bool has_bins = unit.route == TG_GPU_ROUTE_BINS || unit.route == TG_GPU_ROUTE_LEADER;
    if (!has_bins || unit.bin <= TG_GPU_PATCH) {
        return;
    }
    tg_region r = bins_of(p, patch);
    unsigned lane = threadIdx.x % TG_WARP, from = threadIdx.x / TG_WARP * OF_WARP + lane;
    float g[TG_EACH], u[TG_EACH];
    tg_region_sums(g, u, p, r, from);
    tg_region_keep(g, u, p, r, from, patch.skip, patch.n);
    uint32_t largest = 0;
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        largest = tg_key_of(u[j]) > largest ? tg_key_of(u[j]) : largest;
    }
    largest = tg_block_max(largest);
    float more = (float)(unit.select_params[WEIGHT] - 1.0);
    uint32_t mine = 0;
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        uint32_t i = from + j * TG_WARP;
        bool is_in = i >= patch.skip && i < patch.skip + patch.n && is_sent(u[j], g[j], more, largest);
        uint32_t word = __ballot_sync(TG_ALL_LANES, is_in);
        mine = lane == j ? word : mine;
    }
    if (threadIdx.x == 0) {
        note_largest(maxima, unit, r, patch, 0, largest);
    }
    store_marks(s, patch, first + blockIdx.x, mine);
}

void tg_gpu_select_bins(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end, float *maxima)
{
    TG_LAUNCH(short_bins, end - first, TG_GPU_PATCH / TG_EACH, p->stream, *p, *s, first, maxima);
    if (s->has_long_bins) {
        TG_LAUNCH(long_bins, end - first, TG_GPU_BIN_MAX / TG_EACH, p->stream, *p, *s, first, maxima);
    }
}
