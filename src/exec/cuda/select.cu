/* The select pass over sparse chunks: the passes of all routes, then coordinates and values of whole chunks from the lists of their
 * strips, and indices. */
#include "exec/cuda/index_write.h"
#include "exec/cuda/lists.h"
#include "exec/cuda/take.h"
#include "exec/cuda/top.h"

enum { THREADS = TG_INDEX_WRITERS, EACH = 4 }; /* entries of a thread at a time */

/* What is sent of candidates, and what was taken out of the residual by a guess: bounds of keys. */
typedef struct cut {
    uint64_t last; /* elements of key `kth` are sent up to this one, in the unit */
    uint32_t kth, guessed;
    bool is_any; /* all are sent */
} cut;

TG_DEVICE cut cut_of(const tg_listing &l)
{
    return l.top == nullptr ? cut{0, 0, 0, true} : cut{l.top->last, l.top->kth, l.top->guessed, false};
}

/* The residual of a candidate, where what became of it is not what was guessed. */
TG_CALLED void correct(const tg_gpu_pass &p, const tg_gpu_chunk &chunk, const tg_gpu_unit &u, uint32_t position,
                       float value, bool sent)
{
    uint64_t at = chunk.at + position;
    if (u.plain_len != 0) {
        p.next[u.residual_at + (at - u.lo)] = !tg_is_finite(value) ? 0.0f : sent ? tg_rest_of(u, value) : value;
    }
    if (u.planes > 1) {
        float g = sent ? 0.0f : tg_load_gradient(p, u, chunk.unit, tg_piece_at(p, u, at), at);
        tg_keep_state(p, u, g, at, sent);
    }
}

/* ---- lists of strips as one list --------------------------------------------------------------------------------------------------- */

/* A thread's entries of a list. */
typedef struct entries {
    uint32_t positions[EACH];
    float values[EACH];
} entries;

/* Entries [first, first + EACH) of `total`; 0 for those that are not there. */
TG_DEVICE entries load_entries(const tg_gpu_pass &p, const tg_gpu_chunk &chunk, const tg_strips<THREADS> &t,
                               uint32_t first, uint32_t total)
{
    entries e;
    uint32_t strip = first < total ? tg_strip_of(t, first) : 0;
    TG_UNROLL
    for (uint32_t k = 0; k < EACH; k++) {
        e.positions[k] = 0;
        e.values[k] = 0;
        if (first + k < total) {
            strip += t.start[strip + 1] <= first + k ? 1 : 0;
            uint64_t at = chunk.element_at + t.from[strip] + (first + k - t.start[strip]);
            e.values[k] = __ldcg(&p.space.strip_values[at]);
            e.positions[k] = t.from[strip] + __ldcg(&p.space.strip_places[at]);
        }
    }
    return e;
}

/* Takes what is sent of a thread's entries [first, first + EACH) of `total`, the first of it as number `number` and those that all threads
 * sent before. Positions with numbers below TG_INDEX_SHORT go to `list`, too. Returns how many all threads sent; all threads. */
TG_DEVICE uint32_t take_entries(const tg_gpu_pass &p, const tg_listing &l, const cut &c, const entries &e,
                                uint32_t first, uint32_t total, uint32_t number, uint32_t *list)
{
    uint32_t sent = 0, all = 0;
    TG_UNROLL
    for (uint32_t k = 0; k < EACH; k++) {
        uint32_t key = tg_key_of(e.values[k]);
        bool passes = c.is_any || key > c.kth || (key == c.kth && l.chunk->at + e.positions[k] <= c.last);
        sent |= first + k < total && passes ? 1u << k : 0;
    }
    number += tg_block_scan((uint32_t)__popc(sent), &all);
    TG_UNROLL
    for (uint32_t k = 0; k < EACH; k++) {
        bool is_sent = (sent >> k & 1) != 0;
        if (l.corrects && first + k < total && is_sent != (tg_key_of(e.values[k]) >= c.guessed)) {
            correct(p, *l.chunk, *l.u, e.positions[k], e.values[k], is_sent);
        }
        if (is_sent) {
            tg_take(p, l, e.positions[k], e.values[k], number);
            if (number < TG_INDEX_SHORT) {
                list[number] = e.positions[k];
            }
            number++;
        }
    }
    return all;
}

/* Lists all that is sent of chunk `number`, from its strips on; returns how many there are. With `is_early`, strips are there before the
 * kernel before this one ends, and what it finds out is asked for when the first entries have come. All threads. */
TG_DEVICE uint32_t list_chunk(tg_listing *l, const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t number,
                              uint32_t *list, bool is_early)
{
    __shared__ tg_strips<THREADS> t;
    uint32_t done = 0, first = s.strip_first[number], end = s.strip_first[number + 1];
    bool knows = !is_early;
    cut c = {0, 0, 0, true};
    if (knows) {
        tg_after_previous();
        *l = tg_listing_of(p, s, number);
        c = cut_of(*l);
    }
    TG_ROLL
    for (; first < end; first += THREADS) {
        uint32_t total = tg_strips_join(t, tg_strip_load(s, first + threadIdx.x, end));
        TG_ROLL
        for (uint32_t from = 0; from < total; from += THREADS * EACH) {
            uint32_t own = from + threadIdx.x * EACH;
            entries e = load_entries(p, p.chunks[number], t, own, total);
            if (!knows) {
                tg_after_previous();
                *l = tg_listing_of(p, s, number);
                c = cut_of(*l);
                knows = true;
            }
            done += take_entries(p, *l, c, e, own, total, done, list);
        }
    }
    if (!knows) {
        tg_after_previous();
        *l = tg_listing_of(p, s, number);
    }
    return done;
}

/* A block a chunk. Elements of one random block are taken already. `is_early`: see list_chunk. */
__global__ static void __launch_bounds__(THREADS, 1)
    list(const __grid_constant__ tg_gpu_pass p, const __grid_constant__ tg_gpu_selection s, bool is_early)
{
    __shared__ uint32_t words[TG_INDEX_WORDS];
    uint32_t number = p.first + blockIdx.x;
    const tg_gpu_unit &u = p.units[p.chunks[number].unit];
    if (u.route < TG_GPU_ROUTE_LISTED || u.route > TG_GPU_ROUTE_LEADER) {
        tg_after_previous();
        return;
    }
    tg_listing l;
    uint32_t count = 0;
    if (tg_is_block(u)) {
        tg_after_previous();
        l = tg_listing_of(p, s, number);
        tg_gpu_block b = tg_block_of(p, u, l.chunk->unit, s.units[l.chunk->unit].n);
        count = tg_block_within(b, *l.chunk);
    } else {
        count = list_chunk(&l, p, s, number, words, is_early);
    }
    tg_next_may_begin();
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

/* Returns whether lists of strips are there before the last kernel that was launched ends, as soon as that lets the next one begin. */
static bool mark_sparse(const tg_gpu_pass *p, tg_gpu_selection *s, float *maxima)
{
    uint32_t first, end;
    tg_gpu_selection_range(&first, &end, s, p);
    if (first == end) {
        return false;
    }
    bool is_led = takes(s, TG_GPU_ROUTE_LEADER), has_tops = s->short_n + s->long_n > 0;
    bool sums = takes(s, TG_GPU_ROUTE_TESTED) || takes(s, TG_GPU_ROUTE_DRAWN) || s->long_n > 0 || is_led;
    if (takes(s, TG_GPU_ROUTE_BINS) || is_led) {
        tg_gpu_select_bins(p, s, first, end, maxima);
    }
    if (p->has_values) {
        tg_gpu_scale_bins(p, s, maxima);
    }
    if (has_tops) {
        tg_gpu_select_start_top(p, s);
    }
    if (sums) {
        tg_gpu_select_sum(p, s, first, end);
    }
    if (has_tops) {
        tg_gpu_select_top(p, s);
    }
    bool ends_with_near = s->long_n > 0 && s->effort == TG_GPU_GUESSES;
    bool ends_with_scales = !has_tops && !sums && p->has_values && s->leaf_blocks > 0;
    return ends_with_near || ends_with_scales;
}

void tg_gpu_mark_sparse(const tg_gpu_pass *p, tg_gpu_selection *s, float *maxima)
{
    (void)mark_sparse(p, s, maxima);
}

static void list_sparse(const tg_gpu_pass *p, tg_gpu_selection *s, bool is_early)
{
    if (p->chunk_n > 0) {
        TG_LAUNCH_EARLY(list, p->overlaps, p->chunk_n, THREADS, p->stream, *p, *s, is_early);
    }
}

void tg_gpu_list_sparse(const tg_gpu_pass *p, tg_gpu_selection *s)
{
    list_sparse(p, s, false);
}

void tg_gpu_select_sparse(const tg_gpu_pass *p, tg_gpu_selection *s, float *maxima)
{
    bool is_early = mark_sparse(p, s, maxima);
    list_sparse(p, s, is_early);
}
