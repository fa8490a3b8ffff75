/* The write pass: chunks through their kernels, then to their places in the body. A body whose length is known beforehand is written
 * in place. Other chunks are written aside, each with space for its bound, and copied together when their lengths are known. */
#include "exec/cuda/run.h"

#include "kernels/hash.h"

#include <string.h>

/* Where chunks of the cells go. Returns whether they are in place already. */
static bool place_chunks(const tg_run *run, const tg_plan *plan, const tg_body *bodies, uint32_t from, uint32_t to)
{
    const tg_grid *grid = plan->grid;
    const tg_gpu_workspace *w = run->work;
    uint8_t **out = w->out.host;
    bool in_place = true;
    for (uint32_t s = from; s < to; s++) {
        uint64_t len = 0;
        in_place = in_place && tg_body_len(&len, plan, s, w->known_n);
    }
    uint8_t *aside = w->staging;
    for (uint32_t s = from; s < to; s++) {
        uint8_t *at = bodies[s - from].bytes;
        for (size_t i = grid->first[s]; i < grid->first[s + 1]; i++) {
            uint64_t bound = tg_chunk_bound(plan, &grid->chunks[i]);
            out[i] = in_place ? at : aside;
            at += in_place ? tg_gpu_chunk_len(plan, &grid->chunks[i], w->known_n[i]) : 0;
            aside += (bound + 15) / 16 * 16;
        }
    }
    tg_gpu_upload(run, &w->out, grid->first[from], grid->first[to] - grid->first[from], sizeof *out);
    return in_place;
}

/* All kernels, in the order that kernels.h gives. */
static void encode(const tg_gpu_pass *p, tg_run *run)
{
    const tg_gpu_workspace *w = run->work;
    const tg_gpu_uses *uses = &run->uses;
    tg_gpu_start_views(p);
    if (uses->plain) {
        tg_gpu_encode_plain(p);
    }
    if (uses->symbols) {
        tg_gpu_quantize_dense(p);
    }
    if (uses->sparse) {
        tg_gpu_select_sparse(p, &run->selection, w->maxima);
        tg_gpu_lay_out_sparse(p);
        tg_gpu_encode_values(p);
        tg_gpu_quantize_values(p);
    }
    if (uses->symbols) {
        tg_gpu_pack_symbols(p, w->scratch);
    }
    if (uses->words) {
        tg_gpu_pack_words(p, w->scratch);
    }
    if (uses->scales) {
        tg_gpu_apply_scales(p, (uint32_t)run->plan->layout->unit_n, w->maxima);
    }
    if (uses->sparse) {
        tg_gpu_write_indices(p);
    }
    tg_gpu_end_chunks(p, w->sides.device);
}

/* What chunks became, once their kernels are done. */
static tg_status settle(tg_run *run, size_t first, size_t end, const tg_source *source, tg_detail *why)
{
    tg_gpu_verdict verdict;
    tg_gpu_download(run, &run->work->views, first, end - first, sizeof(tg_view));
    tg_gpu_download(run, &run->work->sides, first, end - first, sizeof(uint64_t));
    TG_TRY(tg_gpu_read_verdict(&verdict, run, why));
    return tg_gpu_refuse(run, &verdict, source, why);
}

/* Bodies from their chunks: lengths, statistics, and where each chunk belongs. */
static void assemble(tg_body *bodies, tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to)
{
    const tg_grid *grid = plan->grid;
    const tg_gpu_workspace *w = run->work;
    const tg_view *views = w->views.host;
    const uint64_t *sides = w->sides.host;
    tg_gpu_span *spans = w->spans.host;
    for (uint32_t s = from; s < to; s++) {
        tg_body *body = &bodies[s - from];
        body->len = body->payload_len = 0;
        for (size_t i = grid->first[s]; i < grid->first[s + 1]; i++) {
            const tg_view *v = &views[i];
            spans[i] = (tg_gpu_span){body->bytes + body->len, v->len};
            body->len += v->len;
            body->payload_len += (size_t)(v->indices - v->side) + v->index_len;
            if ((plan->holds & TG_HAS_VALUES) != 0) {
                tg_gpu_note_chunk(run, grid->chunks[i].unit, v, sides[i]);
            }
        }
    }
}

static void clear_stats(tg_run *run, const tg_plan *plan, uint32_t group)
{
    const tg_grid *grid = plan->grid;
    for (size_t i = grid->unit_first[group]; (plan->holds & TG_HAS_VALUES) != 0 && i < grid->unit_first[group + 1]; i++) {
        run->stats[grid->units[i]] = (tg_unit_stats){0};
    }
}

tg_status tg_gpu_write(tg_body *bodies, tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to,
                       const tg_source *source, tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    size_t first = grid->first[from], end = grid->first[to];
    tg_gpu_pass p = tg_gpu_pass_of(run, plan, first, end);
    tg_gpu_clear_verdict(run);
    run->work->held = NULL;
    p.flat = source->flat;
    p.grads = tg_gpu_upload_pointers(run, from / grid->slices, source->grads);
    bool in_place = place_chunks(run, plan, bodies, from, to);
    encode(&p, run);
    TG_TRY(settle(run, first, end, source, why));
    clear_stats(run, plan, from / grid->slices);
    assemble(bodies, run, plan, from, to);
    tg_gpu_upload(run, &run->work->spans, first, end - first, sizeof(tg_gpu_span));
    if (!in_place) {
        tg_gpu_move(&p, run->work->spans.device);
    }
    for (uint32_t s = from; s < to; s++) {
        tg_gpu_hash_chunks(run, s);
    }
    return TG_OK;
}

void tg_gpu_seal(tg_run *run, const tg_plan *plan, uint32_t cell, const tg_body *body, uint8_t *frame, const uint8_t *front,
                 size_t front_len)
{
    const tg_grid *grid = plan->grid;
    uint64_t *hashes = (uint64_t *)run->work->hashes.device + grid->first[cell] + cell;
    tg_gpu_enter(run->gpu);
    tg_gpu_copy(run->gpu, frame, front, front_len);
    tg_gpu_seal_frame(frame + front_len + body->len, hashes, (uint32_t)(1 + grid->first[cell + 1] - grid->first[cell]),
                      tg_hash(front, front_len), run->gpu->stream);
}
