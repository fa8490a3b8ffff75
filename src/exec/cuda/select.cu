/* The select pass over sparse chunks: the passes of all routes, then coordinates and values of whole chunks from the lists of their
 * strips. */
#include "exec/cuda/layout.h"
#include "exec/cuda/scan.h"
#include "exec/cuda/top.h"

enum { WARPS = 16, THREADS = WARPS * 32, MANY = 24 /* entries of a strip from which a warp is better than a thread */ };

/* What is sent of a chunk's lists, and where it goes. */
typedef struct listing {
    const tg_gpu_chunk *chunk;
    const tg_gpu_unit *u;
    const tg_gpu_top *top; /* NULL: all */
    uint8_t *out;          /* of plain values; NULL: floats go to space.values */
    bool corrects;         /* the residual was written before it was known what is sent */
} listing;

TG_DEVICE listing listing_of(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t number)
{
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    bool is_top = u.select == TG_GPU_SELECT_TOPK && (u.route == TG_GPU_ROUTE_LISTED || u.route == TG_GPU_ROUTE_LEADER);
    is_top = is_top && s.units[chunk.unit].top < s.long_n;
    listing l = {&chunk, &u, is_top ? &s.tops[s.units[chunk.unit].top] : nullptr, nullptr, false};
    l.corrects = is_top && u.planes > 0 && u.route != TG_GPU_ROUTE_LEADER;
    if (u.plain_len != 0 && u.route != TG_GPU_ROUTE_LEADER) {
        l.out = u.coded ? p.space.words + 4 * chunk.element_at
                        : p.space.out[number] + tg_gpu_lay_out(u, 1).symbols; /* which does not depend on the count */
    }
    return l;
}

TG_DEVICE bool is_sent(const listing &l, float value, uint32_t position)
{
    if (l.top == nullptr) {
        return true;
    }
    uint32_t key = tg_key_of(value);
    return key > l.top->kth || (key == l.top->kth && l.chunk->at + position <= l.top->last);
}

/* ---- one element -------------------------------------------------------------------------------------------------------------- */

/* A value as bytes, at any address. */
TG_DEVICE void put(uint8_t *out, const tg_gpu_unit &u, float value)
{
    if (u.plain_len == 4 && (uintptr_t)out % 4 == 0) {
        *(float *)(void *)out = value;
    } else if (u.plain_len == 4) {
        tg_store_bytes(out, __float_as_uint(value), 4);
    } else {
        tg_store_bytes(out, u.quantize == TG_GPU_FP16 ? tg_float_to_fp16(value) : tg_float_to_bf16(value), 2);
    }
}

/* An element that is sent, as number `number` of its chunk. */
TG_DEVICE void take(const tg_gpu_pass &p, const listing &l, uint32_t position, float value, uint32_t number)
{
    const tg_gpu_unit &u = *l.u;
    p.space.positions[l.chunk->element_at + number] = position;
    if (u.route == TG_GPU_ROUTE_LEADER) {
        return;
    }
    if (u.gain != 1.0f) {
        float scaled = u.gain * value;
        bool overflows = !tg_is_finite(scaled) && tg_is_finite(value);
        value = overflows ? copysignf(TG_FLOAT_MAX, value) : value != value ? tg_quiet(value) : scaled;
    }
    if (l.out != nullptr) {
        put(l.out + (uint64_t)number * u.plain_len, u, value);
    } else {
        p.space.values[l.chunk->element_at + number] = value;
    }
}

/* The residual of a candidate, where what became of it is not what was guessed. */
TG_DEVICE void correct(const tg_gpu_pass &p, const listing &l, uint32_t position, float value, bool sent)
{
    const tg_gpu_unit &u = *l.u;
    uint64_t at = l.chunk->at + position;
    float *next = p.next + u.residual_at + (at - u.lo);
    if (sent == (tg_key_of(value) >= l.top->guessed)) {
        return;
    }
    if (u.plain_len != 0) {
        *next = !tg_is_finite(value) ? 0.0f : sent ? tg_rest_of(u, value) : value;
    }
    if (u.planes > 1) {
        float g = sent ? 0.0f : tg_load_gradient(p, u, l.chunk->unit, tg_piece_at(p, u, at), at);
        tg_keep_state(p, u, g, at, sent);
    }
}

/* ---- strips -------------------------------------------------------------------------------------------------------------------- */

/* How many elements of a strip are sent: `lanes` threads side by side, 1 or 32, share it; all of them get the number. */
TG_DEVICE uint32_t count_strip(const tg_gpu_pass &p, const tg_gpu_selection &s, const listing &l, uint32_t strip,
                               uint32_t lanes)
{
    uint32_t n = s.counts[strip], from = s.strip_from[strip], sent = 0;
    uint64_t list = l.chunk->element_at + from;
    if (l.top == nullptr) {
        return n;
    }
    for (uint32_t i = lanes == 1 ? 0 : threadIdx.x % TG_WARP; i < n; i += lanes) {
        sent += is_sent(l, p.space.strip_values[list + i], from + p.space.strip_places[list + i]) ? 1 : 0;
    }
    return lanes == 1 ? sent : __reduce_add_sync(TG_ALL_LANES, sent);
}

/* Takes what is sent of a strip, the first of it as number `number`. */
TG_DEVICE void take_strip(const tg_gpu_pass &p, const tg_gpu_selection &s, const listing &l, uint32_t strip,
                          uint32_t lanes, uint32_t number)
{
    uint32_t n = s.counts[strip], from = s.strip_from[strip], lane = lanes == 1 ? 0 : threadIdx.x % TG_WARP;
    uint64_t list = l.chunk->element_at + from;
    for (uint32_t i = lane; i - lane < n; i += lanes) {
        float value = i < n ? p.space.strip_values[list + i] : 0.0f;
        uint32_t position = i < n ? from + p.space.strip_places[list + i] : 0;
        bool sent = i < n && is_sent(l, value, position);
        if (i < n && l.corrects) {
            correct(p, l, position, value, sent);
        }
        uint32_t marks = lanes == 1 ? (sent ? 1u : 0u) : __ballot_sync(TG_ALL_LANES, sent);
        if (sent) {
            take(p, l, position, value, number + (uint32_t)__popc(marks & ((1u << lane) - 1)));
        }
        number += (uint32_t)__popc(marks);
    }
}

/* A block a chunk. */
__global__ static void __launch_bounds__(THREADS) list(tg_gpu_pass p, tg_gpu_selection s)
{
    __shared__ uint32_t numbers[THREADS];
    uint32_t number = p.first + blockIdx.x, warp = threadIdx.x / TG_WARP, done = 0, mine = 0;
    const tg_gpu_unit &u = p.units[p.chunks[number].unit];
    if (u.route < TG_GPU_ROUTE_LISTED || u.route > TG_GPU_ROUTE_LEADER) {
        return;
    }
    listing l = listing_of(p, s, number);
    uint32_t first = s.strip_first[number], end = s.strip_first[number + 1];
    for (uint32_t strip = first + threadIdx.x; strip < end; strip += THREADS) {
        mine += s.counts[strip];
    }
    bool by_warp = tg_block_sum(mine) > (end - first) * MANY;
    for (uint32_t from = first; from < end; from += THREADS) {
        uint32_t n = min(end - from, (uint32_t)THREADS), total;
        for (uint32_t i = warp; by_warp && i < n; i += WARPS) {
            numbers[i] = count_strip(p, s, l, from + i, TG_WARP);
        }
        __syncthreads();
        uint32_t i = threadIdx.x, count = i >= n ? 0 : by_warp ? numbers[i] : count_strip(p, s, l, from + i, 1);
        uint32_t before = done + tg_block_scan(count, &total);
        if (!by_warp && i < n) {
            take_strip(p, s, l, from + i, 1, before);
        }
        numbers[i] = before;
        __syncthreads();
        for (i = warp; by_warp && i < n; i += WARPS) {
            take_strip(p, s, l, from + i, TG_WARP, numbers[i]);
        }
        done += total;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        p.space.views[number] = tg_gpu_lay_out(u, done);
    }
}

/* ---- the pass ------------------------------------------------------------------------------------------------------------------ */

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
    bool is_led = takes(s, TG_GPU_ROUTE_LEADER), has_tops = s->short_n + s->long_n > 0;
    if (takes(s, TG_GPU_ROUTE_BINS) || is_led) {
        tg_gpu_select_bins(p, s, first, end, maxima);
    }
    if (has_tops) {
        tg_gpu_select_start_top(p, s);
    }
    if (takes(s, TG_GPU_ROUTE_TESTED) || takes(s, TG_GPU_ROUTE_DRAWN) || s->long_n > 0 || is_led) {
        tg_gpu_select_sum(p, s, first, end);
    }
    if (has_tops) {
        tg_gpu_select_top(p, s);
    }
}

void tg_gpu_list_sparse(const tg_gpu_pass *p, tg_gpu_selection *s)
{
    if (p->chunk_n > 0) {
        TG_LAUNCH(list, p->chunk_n, THREADS, p->stream, *p, *s);
    }
}

void tg_gpu_select_sparse(const tg_gpu_pass *p, tg_gpu_selection *s, float *maxima)
{
    tg_gpu_mark_sparse(p, s, maxima);
    tg_gpu_list_sparse(p, s);
}
