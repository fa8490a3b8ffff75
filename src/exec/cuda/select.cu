/* The select pass over sparse chunks: marks of all routes, then coordinates and values of what is marked. */
#include "exec/cuda/known.h"
#include "exec/cuda/region.h"
#include "exec/cuda/scan.h"
#include "exec/cuda/select.h"

enum { THREADS = 256, WORDS = 16 /* of a warp at a time */ };

/* The number of marks in a chunk before a patch. */
TG_DEVICE uint32_t marks_before(const tg_gpu_selection &s, uint32_t number, uint32_t first)
{
    uint32_t before = 0;
    for (uint32_t i = first + threadIdx.x; i < number; i += blockDim.x) {
        before += s.counts[i];
    }
    return tg_block_sum(before);
}

/* What becomes of a selected element. */
TG_DEVICE void take(const tg_gpu_pass &p, const tg_gpu_chunk &chunk, uint32_t position, uint32_t number, bool with_values)
{
    const tg_gpu_unit &u = p.units[chunk.unit];
    p.space.positions[chunk.element_at + number] = position;
    if (!with_values || u.route == TG_GPU_ROUTE_LEADER) {
        return;
    }
    uint64_t at = chunk.at + position;
    float value = tg_kept_sum(p, u, chunk.unit, at);
    if (u.gain != 1.0f) {
        float scaled = u.gain * value;
        bool overflows = !tg_is_finite(scaled) && tg_is_finite(value);
        value = overflows        ? copysignf(TG_FLOAT_MAX, value)
                : value != value ? __uint_as_float(__float_as_uint(value) | 0x00400000u) /* a GPU would drop its payload */
                                 : scaled;
    }
    p.space.values[chunk.element_at + number] = value;
    if (u.planes > 1) {
        p.next[u.residual_at + (u.hi - u.lo) + (at - u.lo)] = 0.0f;
    }
}

/* Lists the marks of a patch; each warp takes words of consecutive elements. */
__global__ static void __launch_bounds__(THREADS)
    list(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, bool with_values)
{
    uint32_t number = first + blockIdx.x, count = s.counts[number];
    const tg_gpu_patch &patch = s.patches[number];
    const tg_gpu_chunk &chunk = p.chunks[patch.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    bool is_last = patch.at + patch.n == chunk.n;
    if ((count == 0 && !(is_last && with_values)) || (!with_values && u.route != TG_GPU_ROUTE_DRAWN)) {
        return;
    }
    uint32_t before = marks_before(s, number, patch.first), word_n = (patch.skip + patch.n + 31) / 32;
    unsigned lane = threadIdx.x % TG_WARP, warp = threadIdx.x / TG_WARP;
    for (uint32_t w = 0; w < word_n; w += THREADS / TG_WARP * WORDS) {
        uint32_t mine = w + warp * WORDS + lane, total, of_block, of_warp;
        uint32_t word = lane < WORDS && mine < word_n ? tg_patch_word(s, u, chunk.unit, patch, chunk.at, mine) : 0;
        uint32_t at = tg_warp_scan((uint32_t)__popc(word), &of_warp);
        at += before + tg_block_scan(lane == 0 ? of_warp : 0, &of_block) - (lane == 0 ? 0 : of_warp);
        total = of_block;
        for (unsigned j = 0; j < WORDS; j++) {
            uint32_t marks = __shfl_sync(TG_ALL_LANES, word, (int)j), start = __shfl_sync(TG_ALL_LANES, at, (int)j);
            if (marks >> lane & 1) {
                uint32_t bit = (w + warp * WORDS + j) * 32 + lane;
                take(p, chunk, patch.at + bit - patch.skip, start + (uint32_t)__popc(marks & ((1u << lane) - 1)), with_values);
            }
        }
        before += total;
    }
    if (with_values && is_last && threadIdx.x == 0) {
        p.space.views[patch.chunk].count = before;
    }
}

void tg_gpu_list_marks(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end, int with_values)
{
    if (end > first) {
        TG_LAUNCH(list, end - first, THREADS, p->stream, *p, *s, first, with_values != 0);
    }
}

static bool takes(const tg_gpu_selection *s, unsigned route)
{
    return (s->routes >> route & 1) != 0;
}

void tg_gpu_mark_sparse(const tg_gpu_pass *p, tg_gpu_selection *s, float *maxima)
{
    uint32_t first, end;
    tg_gpu_selection_range(&first, &end, s, p);
    if (first == end) {
        return;
    }
    bool is_led = takes(s, TG_GPU_ROUTE_LEADER);
    if (takes(s, TG_GPU_ROUTE_BINS) || is_led) {
        tg_gpu_select_bins(p, s, first, end, maxima);
    }
    if (s->short_n + s->long_n > 0) {
        tg_gpu_select_start_top(p, s, first, end);
    }
    if (takes(s, TG_GPU_ROUTE_TESTED) || takes(s, TG_GPU_ROUTE_DRAWN) || s->long_n > 0 || is_led) {
        tg_gpu_select_sum(p, s, first, end);
    }
    if (s->short_n + s->long_n > 0) {
        tg_gpu_select_top(p, s, first, end);
    }
}

void tg_gpu_list_sparse(const tg_gpu_pass *p, tg_gpu_selection *s)
{
    uint32_t first, end;
    tg_gpu_selection_range(&first, &end, s, p);
    tg_gpu_list_marks(p, s, first, end, 1);
}

void tg_gpu_select_sparse(const tg_gpu_pass *p, tg_gpu_selection *s, float *maxima)
{
    tg_gpu_mark_sparse(p, s, maxima);
    tg_gpu_list_sparse(p, s);
}
