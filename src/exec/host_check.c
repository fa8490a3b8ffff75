/* The check pass: finds the chunks of a body and validates every byte that could be wrong, so that summing cannot fail and
 * nothing is ever written in part. Finding alone reads the headers of chunks and no more. Trusts nothing. */
#include "exec/host.h"

#include "base/bytes.h"
#include "base/fields.h"
#include "kernels/hash.h"

#include <stdatomic.h>

typedef struct pass {
    tg_run *run;
    const tg_plan *plan;
    const tg_chunk *chunks; /* of the slice */
    tg_body_view *view;
    uint64_t *hashes;
    atomic_size_t bad; /* a chunk that is not sound, plus 1 */
} pass;

/* Finds the chunk at *at and moves on; false if it cannot be a chunk. */
static bool find_chunk(tg_view *v, const pass *p, size_t i, uint32_t known_n, size_t *at, size_t end)
{
    const tg_chunk *chunk = &p->chunks[i];
    const tg_unit_plan *u = &p->plan->units[chunk->unit];
    const uint8_t *bytes = p->view->bytes;
    *v = (tg_view){.start = *at, .side = *at, .symbols = *at, .indices = *at};
    if (u->route == TG_ROUTE_NONE) {
        return true;
    }
    v->count = u->coordinates == TG_AT_EVERY ? chunk->n : known_n;
    if (u->coordinates == TG_AT_INDICES) {
        if (end - *at < TG_CHUNK_HEADER) {
            return false;
        }
        v->count = (uint32_t)tg_get_field(bytes + *at, 3);
        v->mode = bytes[*at + 3];
        v->index_len = (uint16_t)tg_get_field(bytes + *at + 4, 2);
        v->is_joint = v->mode == TG_MODE_ADACOMP8 || v->mode == TG_MODE_ADACOMP16;
        v->is_listed = v->count <= TG_BIN_MAX && v->mode <= TG_MODE_RICE_MAX && u->stages.index->list != NULL;
        *at += TG_CHUNK_HEADER;
        if (v->count > chunk->n || (v->count == 0 && (v->mode != 0 || v->index_len != 0))) {
            return false;
        }
    }
    uint64_t side_len = 0, symbol_len = 0;
    if ((p->plan->holds & TG_HAS_VALUES) != 0 && v->count > 0) {
        side_len = u->format.bucket_n == 0 ? u->format.side_len : tg_side_len(&u->format, v->count);
        uint64_t plain_len =
            u->format.plain_len != 0 ? (uint64_t)v->count * u->format.plain_len : tg_bits_len(v->count, u->format.base);
        symbol_len = v->is_joint ? 0 : plain_len + (u->format.coded ? 1 : 0); /* of coded ones the most */
        if (u->format.coded) {
            if (end - *at < TG_CODED_HEADER || tg_get_field(bytes + *at, TG_CODED_HEADER) > symbol_len) {
                return false;
            }
            symbol_len = tg_get_field(bytes + *at, TG_CODED_HEADER);
            *at += TG_CODED_HEADER;
        }
    }
    if (end - *at < side_len + symbol_len + v->index_len) {
        return false;
    }
    v->side = *at;
    v->symbols = v->side + side_len;
    v->indices = v->symbols + symbol_len;
    *at = (size_t)v->indices + v->index_len;
    v->len = (uint32_t)(*at - v->start);
    return true;
}

uint64_t tg_host_hash_chunk(const uint8_t *body, const tg_view *view)
{
    return TG_LITTLE64(tg_hash(body + view->start, view->len));
}

static void check_chunk(void *context, uint32_t worker, size_t i)
{
    pass *p = context;
    const tg_view *v = &p->view->chunks[i];
    const tg_chunk *chunk = &p->chunks[i];
    const tg_unit_plan *u = &p->plan->units[chunk->unit];
    const tg_route *route = tg_host_routes[u->route];
    p->hashes[i] = tg_host_hash_chunk(p->view->bytes, v);
    if (route == NULL || route->check == NULL) {
        return;
    }
    uint64_t cap = 0;
    uint32_t *list = p->view->has_lists && v->is_listed ? tg_host_list(&cap, p->run, chunk) : NULL;
    tg_decoding d = {.unit = u,
                     .work = &p->run->units[chunk->unit],
                     .chunk = chunk,
                     .view = v,
                     .body = p->view->bytes,
                     .list = v->count <= cap ? list : NULL,
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

/* Finds all chunks and, if `checks`, checks each right after. That all are found is more than that each is sound: what
 * cannot be found is reported first. */
static tg_status find_chunks(pass *p, uint32_t slice, size_t len, bool checks, tg_detail *why)
{
    const tg_grid *grid = p->plan->grid;
    size_t first = grid->first[slice], chunk_n = grid->first[slice + 1] - first, at = 0;
    const uint32_t *known_n = p->run->work->known_n + first;
    for (size_t i = 0; i < chunk_n; i++) {
        if (!find_chunk(&p->view->chunks[i], p, i, known_n[i], &at, len)) {
            return damaged(p, i, why);
        }
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
    TG_TRY(find_chunks(&p, slice, len, run->work->workers == 1, why));
    if (run->work->workers > 1) {
        uint64_t time = tg_host_time(plan, p.chunks, view->chunks, chunk_n);
        tg_pool_run_about(run->work->pool, time, chunk_n, check_chunk, &p);
    }
    size_t bad = atomic_load_explicit(&p.bad, memory_order_relaxed);
    return bad == 0 ? TG_OK : damaged(&p, bad - 1, why);
}
