/* The check pass: finds the chunks of a body and validates every byte that could be wrong, so that summing cannot fail and
 * nothing is ever written in part. Finding alone reads the headers of chunks and no more. Trusts nothing. */
#include "exec/host.h"

#include "base/bytes.h"
#include "kernels/hash.h"

#include <stdatomic.h>

typedef struct pass {
    tg_run *run;
    const tg_plan *plan;
    const tg_chunk *chunks; /* of the slice */
    tg_body_view *view;
    uint64_t *hashes;  /* of headers, then of chunks */
    atomic_size_t bad; /* a chunk that is not sound, plus 1 */
} pass;

uint64_t tg_host_hash_chunk(const uint8_t *body, const tg_view *view)
{
    return TG_LITTLE64(tg_hash(body + view->start, view->len));
}

uint64_t tg_host_hash_headers(const uint8_t *body, const tg_plan *plan, uint32_t cell)
{
    return TG_LITTLE64(tg_hash(body, plan->headers_len[cell]));
}

static void check_chunk(void *context, uint32_t worker, size_t i)
{
    pass *p = context;
    const tg_view *v = &p->view->chunks[i];
    const tg_chunk *chunk = &p->chunks[i];
    const tg_unit_plan *u = &p->plan->units[chunk->unit];
    const tg_route *route = tg_host_routes[u->route];
    p->hashes[1 + i] = tg_host_hash_chunk(p->view->bytes, v);
    if (route == NULL || route->check == NULL) {
        return;
    }
    tg_decoding d = {.unit = u,
                     .work = &p->run->units[chunk->unit],
                     .chunk = chunk,
                     .view = v,
                     .body = p->view->bytes,
                     .kept = tg_host_kept(p->run, p->plan, chunk, p->view->keeps),
                     .scratch = &p->run->work->scratch[worker]};
    if (!route->check(&d)) {
        atomic_store_explicit(&p->bad, i + 1, memory_order_relaxed);
    }
}

static tg_status damaged(const pass *p, size_t i, tg_detail *why)
{
    const tg_layout *l = p->plan->layout;
    return tg_fail(TG_E_FRAME, why, "the frame is damaged: what it holds of tensor '%.100s' makes no sense",
                   l->tensors[l->units[p->chunks[i].unit].pieces[0].tensor].name);
}

uint64_t tg_host_time(const tg_plan *plan, const tg_chunk *chunks, const tg_view *views, size_t n)
{
    enum { EXPLICIT = 8 }; /* an entry with an index costs a cache line by itself */
    uint64_t time = 0;
    for (size_t i = 0; i < n; i++) {
        bool has_indices = plan->units[chunks[i].unit].coordinates == TG_AT_INDICES;
        time += (uint64_t)views[i].count * (has_indices ? EXPLICIT : 1);
    }
    return time;
}

/* Finds all chunks by their headers and, if `checks`, checks each right after. That all are found is more than that each is sound:
 * what cannot be found is reported first. */
static tg_status find_chunks(pass *p, uint32_t slice, size_t len, bool checks, tg_detail *why)
{
    const tg_grid *grid = p->plan->grid;
    size_t first = grid->first[slice], chunk_n = grid->first[slice + 1] - first;
    const uint32_t *known_n = p->run->work->known_n + first;
    const uint64_t *header_at = p->plan->header_at + first;
    uint64_t at = p->plan->headers_len[slice];
    if (len < at) {
        return tg_fail(TG_E_FRAME, why, TG_SHORT_OF_HEADERS);
    }
    for (size_t i = 0; i < chunk_n; i++) {
        tg_view *v = &p->view->chunks[i];
        bool is_one = tg_header_get(v, p->view->bytes + header_at[i], p->plan, &p->chunks[i], known_n[i], at);
        if (!is_one || v->len > len - at) {
            return damaged(p, i, why);
        }
        at += v->len;
        if (checks) {
            check_chunk(p, 0, i);
        }
    }
    if (at != len) {
        return tg_fail(TG_E_FRAME, why, "the frame is damaged: it is longer than what it holds");
    }
    return TG_OK;
}

tg_status tg_host_find(tg_body_view *view, tg_run *run, const tg_plan *plan, uint32_t slice, size_t len, tg_detail *why)
{
    pass p = {.run = run, .plan = plan, .chunks = plan->grid->chunks + plan->grid->first[slice], .view = view};
    return find_chunks(&p, slice, len, false, why);
}

tg_status tg_host_check(tg_body_view *view, uint64_t *hashes, tg_run *run, const tg_plan *plan, uint32_t slice,
                        size_t len, tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    size_t first = grid->first[slice], chunk_n = grid->first[slice + 1] - first;
    pass p = {.run = run, .plan = plan, .chunks = grid->chunks + first, .view = view, .hashes = hashes};
    hashes[0] = len < plan->headers_len[slice] ? 0 : tg_host_hash_headers(view->bytes, plan, slice);
    TG_TRY(find_chunks(&p, slice, len, run->work->workers == 1, why));
    if (run->work->workers > 1) {
        uint64_t time = tg_host_time(plan, p.chunks, view->chunks, chunk_n);
        tg_pool_run_about(run->work->pool, time, chunk_n, check_chunk, &p);
    }
    size_t bad = atomic_load_explicit(&p.bad, memory_order_relaxed);
    return bad == 0 ? TG_OK : damaged(&p, bad - 1, why);
}
