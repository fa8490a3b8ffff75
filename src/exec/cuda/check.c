/* The check pass: finds the chunks of a body and validates every byte that could be wrong, on the GPU. Where all lengths are known
 * without the body, the host finds chunks by itself. */
#include "exec/cuda/run.h"

#include <string.h>

static tg_status damaged(const tg_plan *plan, size_t chunk, tg_detail *why)
{
    const tg_layout *l = plan->layout;
    return tg_fail(TG_E_FRAME, why, "the frame is damaged: what it holds of tensor '%.100s' makes no sense",
                   l->tensors[l->units[plan->grid->chunks[chunk].unit].pieces[0].tensor].name);
}

static tg_status too_long(tg_detail *why)
{
    return tg_fail(TG_E_FRAME, why, "the frame is damaged: it is longer than what it holds");
}

/* Chunks whose lengths are known. */
static tg_status find_known(tg_view *views, const tg_run *run, const tg_plan *plan, uint32_t cell, size_t len,
                            tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    uint64_t at = 0;
    for (size_t i = grid->first[cell]; i < grid->first[cell + 1]; i++) {
        const tg_chunk *chunk = &grid->chunks[i];
        const tg_unit_plan *u = &plan->units[chunk->unit];
        uint32_t count = u->route == TG_ROUTE_NONE        ? 0
                         : u->coordinates == TG_AT_EVERY ? chunk->n
                                                         : run->work->known_n[i];
        uint64_t side_len = tg_side_len(&u->format, count), values_len = tg_symbols_len(&u->format, count);
        if (len - at < side_len + values_len) {
            return damaged(plan, i, why);
        }
        views[i - grid->first[cell]] = (tg_view){.start = at,
                                                 .side = at,
                                                 .symbols = at + side_len,
                                                 .indices = at + side_len + values_len,
                                                 .len = (uint32_t)(side_len + values_len),
                                                 .count = count};
        at += side_len + values_len;
    }
    return at == len ? TG_OK : too_long(why);
}

/* Chunks whose lengths are in the body. */
static tg_status find_in_body(tg_body_view *view, tg_run *run, const tg_plan *plan, uint32_t cell, size_t len,
                              tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    const tg_gpu_workspace *w = run->work;
    size_t first = grid->first[cell], end = grid->first[cell + 1];
    tg_gpu_pass p = tg_gpu_pass_of(run, plan, first, end);
    tg_gpu_verdict verdict;
    tg_gpu_clear_verdict(run);
    tg_gpu_copy(run->gpu, w->known_n_device + first, w->known_n + first, (end - first) * sizeof *w->known_n);
    tg_gpu_find(&p, view->bytes, len, w->known_n_device + first);
    tg_gpu_download(run, &w->views, first, end - first, sizeof(tg_view));
    TG_TRY(tg_gpu_read_verdict(&verdict, run, why));
    if (verdict.bad_chunk != 0) {
        size_t bad = UINT32_MAX - verdict.bad_chunk;
        return bad == end ? too_long(why) : damaged(plan, bad, why);
    }
    memcpy(view->chunks, (const tg_view *)w->views.host + first, (end - first) * sizeof *view->chunks);
    return TG_OK;
}

tg_status tg_gpu_find_chunks(tg_body_view *view, tg_run *run, const tg_plan *plan, uint32_t cell, size_t len,
                             tg_detail *why)
{
    uint64_t known_len = 0;
    run->work->held = NULL;
    return tg_body_len(&known_len, plan, cell, run->work->known_n) ? find_known(view->chunks, run, plan, cell, len, why)
                                                                   : find_in_body(view, run, plan, cell, len, why);
}

void tg_gpu_read_body(const tg_gpu_pass *p, const tg_run *run, const uint8_t *body)
{
    const tg_gpu_uses *uses = &run->uses;
    if (uses->symbols) {
        tg_gpu_read_symbols(p, body, run->work->scratch);
    }
    if (uses->words) {
        tg_gpu_read_words(p, body, run->work->scratch);
    }
    if (uses->sparse) {
        tg_gpu_read_indices(p, body, &run->selection);
    }
}

void tg_gpu_upload_views(const tg_run *run, size_t first, size_t end, const tg_body_view *view)
{
    const tg_gpu_workspace *w = run->work;
    tg_gpu_span *spans = w->spans.host;
    for (size_t i = first; i < end; i++) {
        const tg_view *v = &view->chunks[i - first];
        spans[i] = (tg_gpu_span){view->bytes + v->start, v->len};
    }
    memcpy((tg_view *)w->views.host + first, view->chunks, (end - first) * sizeof *view->chunks);
    tg_gpu_upload(run, &w->views, first, end - first, sizeof(tg_view));
    tg_gpu_upload(run, &w->spans, first, end - first, sizeof(tg_gpu_span));
}

tg_status tg_gpu_check(tg_body_view *view, uint64_t *hashes, tg_run *run, const tg_plan *plan, uint32_t cell, size_t len,
                       tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    size_t first = grid->first[cell], end = grid->first[cell + 1];
    tg_gpu_verdict verdict;
    TG_TRY(tg_gpu_find_chunks(view, run, plan, cell, len, why));
    tg_gpu_pass p = tg_gpu_pass_of(run, plan, first, end);
    tg_gpu_clear_verdict(run);
    tg_gpu_upload_views(run, first, end, view);
    tg_gpu_hash_chunks(run, cell);
    tg_gpu_read_body(&p, run, view->bytes);
    TG_TRY(tg_gpu_read_hashes(hashes, run, cell, why));
    TG_TRY(tg_gpu_read_verdict(&verdict, run, why));
    if (verdict.bad_chunk != 0) {
        return damaged(plan, UINT32_MAX - verdict.bad_chunk, why);
    }
    run->work->held = view->bytes;
    run->work->held_cell = cell;
    return TG_OK;
}
