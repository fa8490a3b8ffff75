/* The select pass over sparse chunks: the passes of all routes, then coordinates and values of whole chunks from the lists of their
 * strips, and indices. */
#include "exec/cuda/index_write.h"
#include "exec/cuda/lists.h"
#include "exec/cuda/take.h"
#include "exec/cuda/top.h"

enum { THREADS = TG_INDEX_WRITERS, WARPS = THREADS / TG_WARP };
enum {
    EACH = 3,
    KEPT = 2,
    GROUPS = EACH * WARPS
}; /* groups of strips that a warp has at a time; entries of a lane in registers */

/* The residual of a candidate, where what became of it is not what was guessed. */
TG_DEVICE void correct(const tg_gpu_pass &p, const tg_listing &l, uint32_t position, float value, bool sent)
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

/* What is sent of 32 entries: a bit each. All lanes. */
TG_DEVICE uint32_t sent_of(const tg_listing &l, const tg_listed &e)
{
    return __ballot_sync(TG_ALL_LANES, e.is_there && tg_is_sent(l, e.value, e.position));
}

/* How many elements of a group are sent; all lanes get it. `kept` are its first entries. */
TG_DEVICE uint32_t count_group(const tg_gpu_pass &p, const tg_listing &l, const tg_strip_group &g,
                               const tg_listed (&kept)[KEPT])
{
    uint32_t sent = 0;
    if (l.top == nullptr) {
        return g.total;
    }
    TG_UNROLL
    for (unsigned k = 0; k < KEPT; k++) {
        sent += (uint32_t)__popc(sent_of(l, kept[k]));
    }
    for (uint32_t first = KEPT * TG_WARP; first < g.total; first += TG_WARP) {
        sent += (uint32_t)__popc(sent_of(l, tg_group_entry(p, g, *l.chunk, first)));
    }
    return sent;
}

/* Takes what is sent of 32 entries, the first of it as number `number`, and returns the next number. The first positions go to `list`,
 * too. */
TG_DEVICE uint32_t take_entries(const tg_gpu_pass &p, const tg_listing &l, const tg_listed &e, uint32_t number,
                                uint32_t *list)
{
    uint32_t marks = sent_of(l, e), lane = threadIdx.x % TG_WARP;
    bool sent = (marks >> lane & 1) != 0;
    if (e.is_there && l.corrects) {
        correct(p, l, e.position, e.value, sent);
    }
    if (sent) {
        uint32_t mine = number + (uint32_t)__popc(marks & ((1u << lane) - 1));
        tg_take(p, l, e.position, e.value, mine);
        if (mine < TG_INDEX_SHORT) {
            list[mine] = e.position;
        }
    }
    return number + (uint32_t)__popc(marks);
}

TG_DEVICE void take_group(const tg_gpu_pass &p, const tg_listing &l, const tg_strip_group &g,
                          const tg_listed (&kept)[KEPT], uint32_t number, uint32_t *list)
{
    TG_UNROLL
    for (unsigned k = 0; k < KEPT; k++) {
        number = take_entries(p, l, kept[k], number, list);
    }
    for (uint32_t first = KEPT * TG_WARP; first < g.total; first += TG_WARP) {
        number = take_entries(p, l, tg_group_entry(p, g, *l.chunk, first), number, list);
    }
}

/* Lists all that is sent of a chunk, from strips [first, end) on; returns how many there are. All threads. */
TG_DEVICE uint32_t list_chunk(const tg_gpu_pass &p, const tg_gpu_selection &s, const tg_listing &l, uint32_t first,
                              uint32_t end, uint32_t *list)
{
    __shared__ uint32_t numbers[GROUPS];
    uint32_t warp = threadIdx.x / TG_WARP, done = 0;
    for (uint32_t from = first; from < end; from += GROUPS * TG_GROUP) {
        tg_strip_group g[EACH];
        tg_listed kept[EACH][KEPT];
        TG_UNROLL
        for (unsigned i = 0; i < EACH; i++) {
            g[i] = tg_group_load(s, from + (i * WARPS + warp) * TG_GROUP, end);
        }
        TG_UNROLL
        for (unsigned i = 0; i < EACH; i++) {
            tg_group_end(g[i]);
            TG_UNROLL
            for (unsigned k = 0; k < KEPT; k++) {
                kept[i][k] = tg_group_entry(p, g[i], *l.chunk, k * TG_WARP);
            }
        }
        TG_UNROLL
        for (unsigned i = 0; i < EACH; i++) {
            uint32_t sent = count_group(p, l, g[i], kept[i]);
            if (threadIdx.x % TG_WARP == 0) {
                numbers[i * WARPS + warp] = sent;
            }
        }
        __syncthreads();
        uint32_t total, before = done + tg_block_scan(threadIdx.x < GROUPS ? numbers[threadIdx.x] : 0, &total);
        if (threadIdx.x < GROUPS) {
            numbers[threadIdx.x] = before;
        }
        __syncthreads();
        TG_UNROLL
        for (unsigned i = 0; i < EACH; i++) {
            take_group(p, l, g[i], kept[i], numbers[i * WARPS + warp], list);
        }
        done += total;
        __syncthreads();
    }
    return done;
}

/* A block a chunk. Elements of one random block are taken already. */
__global__ static void __launch_bounds__(THREADS, 1) list(tg_gpu_pass p, tg_gpu_selection s)
{
    __shared__ uint32_t words[TG_INDEX_WORDS];
    uint32_t number = p.first + blockIdx.x;
    const tg_gpu_unit &u = p.units[p.chunks[number].unit];
    if (u.route < TG_GPU_ROUTE_LISTED || u.route > TG_GPU_ROUTE_LEADER) {
        return;
    }
    tg_listing l = tg_listing_of(p, s, number);
    uint32_t count = 0;
    if (tg_is_block(u)) {
        tg_gpu_block b = tg_block_of(p, u, l.chunk->unit, s.units[l.chunk->unit].n);
        count = tg_block_within(b, *l.chunk);
    } else {
        count = list_chunk(p, s, l, s.strip_first[number], s.strip_first[number + 1], words);
    }
    tg_view v = tg_gpu_lay_out(u, count);
    if (threadIdx.x == 0 && u.route == TG_GPU_ROUTE_BINS && u.scale == TG_GPU_SCALE_BINS && count > 0) {
        tg_store_bytes(p.space.out[number] + v.side, __float_as_uint(l.scale), 4);
    }
    if (u.coordinates == TG_GPU_AT_INDICES && (!u.coded || u.route == TG_GPU_ROUTE_LEADER)) {
        tg_write_chunk(p, number, v, words, !tg_is_block(u) && count <= TG_INDEX_SHORT);
    } else if (threadIdx.x == 0) {
        p.space.views[number] = v;
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
