/* The select pass over sparse chunks: the passes of all routes, then coordinates and values of whole chunks from the lists of their
 * strips, and indices. */
#include "exec/cuda/index_write.h"
#include "exec/cuda/lists.h"
#include "exec/cuda/top.h"

enum { THREADS = TG_INDEX_WRITERS, WARPS = THREADS / TG_WARP, GROUPS = 128 /* of strips, at a time */ };

/* What is sent of a chunk's lists, and where it goes. */
typedef struct listing {
    const tg_gpu_chunk *chunk;
    const tg_gpu_unit *u;
    const tg_gpu_top *top; /* NULL: all */
    uint8_t *out;          /* of plain values; NULL: floats go to space.values */
    float scale;           /* of signs, if it is known */
    bool corrects;         /* the residual was written before it was known what is sent */
    bool signs;            /* signs go to space.symbols */
    bool subtracts;        /* the scale from the residual */
} listing;

TG_DEVICE listing listing_of(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t number)
{
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    bool is_top = u.select == TG_GPU_SELECT_TOPK && (u.route == TG_GPU_ROUTE_LISTED || u.route == TG_GPU_ROUTE_LEADER);
    is_top = is_top && s.units[chunk.unit].top < s.long_n;
    listing l = {&chunk, &u, is_top ? &s.tops[s.units[chunk.unit].top] : nullptr, nullptr, 0, false, false, false};
    l.corrects = is_top && u.planes > 0 && u.route != TG_GPU_ROUTE_LEADER;
    l.signs = u.plain_len == 0 && u.quantize == TG_GPU_SIGN && u.route != TG_GPU_ROUTE_LEADER;
    if (u.route == TG_GPU_ROUTE_BINS && u.scale == TG_GPU_SCALE_BINS) {
        l.scale = p.space.scales[chunk.unit];
        l.subtracts = u.planes > 0;
    }
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

/* The residual of a sign of a known scale, from the whole sum. */
TG_DEVICE void subtract(const tg_gpu_pass &p, const listing &l, uint32_t position, float sum)
{
    uint64_t at = l.chunk->at + position;
    float kept = tg_is_finite(sum) ? sum : 0.0f, residual = kept - copysignf(l.scale, sum);
    bool is_fine = tg_is_finite(residual);
    p.next[l.u->residual_at + (at - l.u->lo)] = is_fine ? residual : 0.0f;
    if (!is_fine && p.nonfinite == TG_GPU_ERROR) {
        tg_refuse_residual(p, tg_piece_at(p, *l.u, at)->tensor);
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
    if (l.subtracts) {
        subtract(p, l, position, value);
    }
    if (u.gain != 1.0f) {
        float scaled = u.gain * value;
        bool overflows = !tg_is_finite(scaled) && tg_is_finite(value);
        value = overflows ? copysignf(TG_FLOAT_MAX, value) : value != value ? tg_quiet(value) : scaled;
    }
    if (l.signs) {
        p.space.symbols[2 * l.chunk->element_at + number] = (uint8_t)(__float_as_uint(value) >> 31);
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

/* ---- groups of strips, a warp each ---------------------------------------------------------------------------------------------- */

/* How many elements of a group are sent; all lanes get it. */
TG_DEVICE uint32_t count_group(const tg_gpu_pass &p, const listing &l, const tg_strip_group &g)
{
    uint32_t sent = 0;
    if (l.top == nullptr) {
        return g.total;
    }
    for (uint32_t first = 0; first < g.total; first += TG_WARP) {
        tg_listed e = tg_group_entry(p, g, *l.chunk, first);
        sent += (uint32_t)__popc(__ballot_sync(TG_ALL_LANES, e.is_there && is_sent(l, e.value, e.position)));
    }
    return sent;
}

/* Takes what is sent of a group, the first of it as number `number`. */
TG_DEVICE void take_group(const tg_gpu_pass &p, const listing &l, const tg_strip_group &g, uint32_t number)
{
    uint32_t lower = (1u << threadIdx.x % TG_WARP) - 1;
    for (uint32_t first = 0; first < g.total; first += TG_WARP) {
        tg_listed e = tg_group_entry(p, g, *l.chunk, first);
        bool sent = e.is_there && is_sent(l, e.value, e.position);
        if (e.is_there && l.corrects) {
            correct(p, l, e.position, e.value, sent);
        }
        uint32_t marks = __ballot_sync(TG_ALL_LANES, sent);
        if (sent) {
            take(p, l, e.position, e.value, number + (uint32_t)__popc(marks & lower));
        }
        number += (uint32_t)__popc(marks);
    }
}

/* Lists all that is sent of a chunk, from strips [first, end) on; returns how many there are. All threads. */
TG_DEVICE uint32_t list_chunk(const tg_gpu_pass &p, const tg_gpu_selection &s, const listing &l, uint32_t first,
                              uint32_t end)
{
    __shared__ uint32_t numbers[GROUPS];
    uint32_t warp = threadIdx.x / TG_WARP, done = 0;
    for (uint32_t from = first; from < end; from += GROUPS * TG_GROUP) {
        uint32_t n = min((end - from + TG_GROUP - 1) / TG_GROUP, (uint32_t)GROUPS), total;
        for (uint32_t i = warp; i < n; i += WARPS) {
            uint32_t sent = count_group(p, l, tg_group_of(s, from + i * TG_GROUP, end));
            if (threadIdx.x % TG_WARP == 0) {
                numbers[i] = sent;
            }
        }
        __syncthreads();
        uint32_t before = done + tg_block_scan(threadIdx.x < n ? numbers[threadIdx.x] : 0, &total);
        if (threadIdx.x < n) {
            numbers[threadIdx.x] = before;
        }
        __syncthreads();
        for (uint32_t i = warp; i < n; i += WARPS) {
            take_group(p, l, tg_group_of(s, from + i * TG_GROUP, end), numbers[i]);
        }
        done += total;
        __syncthreads();
    }
    return done;
}

/* A block a chunk. */
__global__ static void __launch_bounds__(THREADS) list(tg_gpu_pass p, tg_gpu_selection s)
{
    __shared__ uint32_t words[TG_INDEX_WORDS];
    uint32_t number = p.first + blockIdx.x;
    const tg_gpu_unit &u = p.units[p.chunks[number].unit];
    if (u.route < TG_GPU_ROUTE_LISTED || u.route > TG_GPU_ROUTE_LEADER) {
        return;
    }
    listing l = listing_of(p, s, number);
    uint32_t count = list_chunk(p, s, l, s.strip_first[number], s.strip_first[number + 1]);
    if (threadIdx.x == 0) {
        tg_view v = tg_gpu_lay_out(u, count);
        p.space.views[number] = v;
        if (u.route == TG_GPU_ROUTE_BINS && u.scale == TG_GPU_SCALE_BINS && count > 0) {
            tg_store_bytes(p.space.out[number] + v.side, __float_as_uint(l.scale), 4);
        }
    }
    __syncthreads();
    if (u.coordinates == TG_GPU_AT_INDICES && (!u.coded || u.route == TG_GPU_ROUTE_LEADER)) {
        tg_write_chunk(p, number, words);
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
    if (p->has_values) {
        tg_gpu_scale_bins(p, s, maxima);
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
