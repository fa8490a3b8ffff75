/* The select pass over sparse chunks: marks of all routes, then coordinates and values of what is marked. */
#include "exec/cuda/known.h"
#include "exec/cuda/region.h"
#include "exec/cuda/scan.h"
#include "exec/cuda/select.h"

enum { WARPS = 8, THREADS = WARPS * 32 };

/* Marks of up to 4,096 elements at a time, four words a lane; few of them are listed in shared memory first. */
enum { SECTION = 4096, WORDS = SECTION / 32 / 32, FEW = 512 };

/* The number of marks in a chunk before a patch. All lanes of a warp. */
TG_DEVICE uint32_t marks_before(const tg_gpu_selection &s, uint32_t number, uint32_t first)
{
    uint32_t before = 0;
    for (uint32_t i = first + threadIdx.x % TG_WARP; i < number; i += TG_WARP) {
        before += s.counts[i];
    }
    return __reduce_add_sync(TG_ALL_LANES, before);
}

/* What becomes of a selected element. */
TG_DEVICE void take(const tg_gpu_pass &p, const tg_gpu_chunk &chunk, uint32_t position, uint32_t number,
                    bool with_values)
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
        value = overflows ? copysignf(TG_FLOAT_MAX, value) : value != value ? tg_quiet(value) : scaled;
    }
    p.space.values[chunk.element_at + number] = value;
    if (u.planes > 1) {
        p.next[u.residual_at + (u.hi - u.lo) + (at - u.lo)] = 0.0f;
    }
}

/* A patch while a warp lists it. */
typedef struct listing {
    const tg_gpu_chunk *chunk;
    uint32_t at;     /* of the first bit, in the chunk */
    uint32_t number; /* of the first mark, in the chunk */
    bool with_values;
} listing;

/* Few marks: each lane writes the places of its own, then lanes take places in turn, so that stores are side by side. */
TG_DEVICE void list_few(const tg_gpu_pass &p, const listing &l, const uint32_t (&words)[WORDS], uint32_t from,
                        uint32_t count, uint16_t *places)
{
    unsigned lane = threadIdx.x % TG_WARP;
    for (unsigned j = 0; j < WORDS; j++) {
        for (uint32_t word = words[j]; word != 0; word &= word - 1) {
            places[from++] = (uint16_t)((lane * WORDS + j) * 32 + (uint32_t)__ffs((int)word) - 1);
        }
    }
    __syncwarp();
    for (uint32_t i = lane; i < count; i += TG_WARP) {
        take(p, *l.chunk, l.at + places[i], l.number + i, l.with_values);
    }
    __syncwarp();
}

/* Many marks: a word at a time, a lane a bit. */
TG_DEVICE void list_many(const tg_gpu_pass &p, const listing &l, const uint32_t (&words)[WORDS], uint32_t from)
{
    unsigned lane = threadIdx.x % TG_WARP;
    for (int other = 0; other < (int)TG_WARP; other++) {
        uint32_t number = l.number + __shfl_sync(TG_ALL_LANES, from, other);
        for (unsigned j = 0; j < WORDS; j++) {
            uint32_t marks = __shfl_sync(TG_ALL_LANES, words[j], other);
            if (marks >> lane & 1) {
                take(p, *l.chunk, l.at + ((unsigned)other * WORDS + j) * 32 + lane,
                     number + (uint32_t)__popc(marks & ((1u << lane) - 1)), l.with_values);
            }
            number += (uint32_t)__popc(marks);
        }
    }
}

/* Lists the marks of a patch: a warp. */
__global__ static void __launch_bounds__(THREADS)
    list(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end, bool with_values)
{
    __shared__ uint16_t places[WARPS][FEW];
    uint32_t number = first + blockIdx.x * WARPS + threadIdx.x / TG_WARP, lane = threadIdx.x % TG_WARP;
    if (number >= end) {
        return;
    }
    const tg_gpu_patch &patch = s.patches[number];
    const tg_gpu_chunk &chunk = p.chunks[patch.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    bool is_last = patch.at + patch.n == chunk.n,
         is_known = u.route == TG_GPU_ROUTE_DRAWN && u.coordinates != TG_GPU_AT_INDICES;
    if ((s.counts[number] == 0 && !(is_last && with_values)) || (!with_values && !is_known)) {
        return;
    }
    uint32_t bits = patch.skip + patch.n;
    listing l = {&chunk, patch.at - patch.skip, marks_before(s, number, patch.first), with_values};
    for (uint32_t at = 0; at < bits; at += SECTION, l.at += SECTION) {
        uint32_t words[WORDS], marks = 0, count;
        for (unsigned j = 0; j < WORDS; j++) {
            uint32_t w = at / 32 + lane * WORDS + j;
            words[j] = w * 32 < bits ? tg_patch_word(s, u, chunk.unit, patch, chunk.at, w) : 0;
            marks += (uint32_t)__popc(words[j]);
        }
        uint32_t from = tg_warp_scan(marks, &count);
        if (count <= FEW) {
            list_few(p, l, words, from, count, places[threadIdx.x / TG_WARP]);
        } else {
            list_many(p, l, words, from);
        }
        l.number += count;
    }
    if (with_values && is_last && lane == 0) {
        p.space.views[patch.chunk].count = l.number;
    }
}

void tg_gpu_list_marks(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end, int with_values)
{
    if (end > first) {
        TG_LAUNCH(list, (end - first + WARPS - 1) / WARPS, THREADS, p->stream, *p, *s, first, end, with_values != 0);
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
