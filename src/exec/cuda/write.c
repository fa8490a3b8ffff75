/* The write pass: chunks through their kernels, then to their places in the body.
 *
 * Bodies whose lengths are known beforehand are written in place, and nobody waits: lengths are computed on the host, and a refusal
 * is asked for later. Where all chunks are of fixed length, leaves are hashed while they are written, and the kernel that seals a frame
 * does the rest, so that a step is two to five kernels and no copy. Other chunks are written aside, each with space for its bound, and copied together by the device, which then
 * tells their lengths. */
#include "exec/cuda/run.h"

#include "kernels/hash.h"

#include <string.h>

enum { ALIGN = 16 };

static bool are_known(const tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to)
{
    bool known = true;
    for (uint32_t s = from; s < to && known; s++) {
        uint64_t len = 0;
        known = tg_body_len(&len, plan, s, run->work->known_n);
    }
    return known;
}

/* Where chunks of the cells are written. Returns whether the device has the same places from an earlier pass. */
static bool place_chunks(const tg_run *run, const tg_plan *plan, const tg_body *bodies, uint32_t from, uint32_t to,
                         bool in_place, bool captures)
{
    const tg_grid *grid = plan->grid;
    const tg_gpu_workspace *w = run->work;
    size_t first = grid->first[from], n = grid->first[to] - first;
    uint8_t *aside = w->staging;
    for (uint32_t s = from; s < to; s++) {
        uint8_t *at = bodies[s - from].bytes;
        for (size_t i = grid->first[s]; i < grid->first[s + 1]; i++) {
            w->places[i] = in_place ? at : aside;
            at += in_place ? tg_gpu_chunk_len(plan, &grid->chunks[i], w->known_n[i]) : 0;
            aside += in_place ? 0 : (tg_chunk_bound(plan, &grid->chunks[i]) + ALIGN - 1) / ALIGN * ALIGN;
        }
    }
    bool same = memcmp((uint8_t *const *)w->out.host + first, w->places + first, n * sizeof *w->places) == 0;
    if (!captures) {
        tg_gpu_upload(run, &w->out, w->places + first, first, n, sizeof *w->places);
    }
    return same;
}

/* tg_gpu_pass.has_rows of chunks [first, end). */
static bool are_rows(const tg_plan *plan, size_t first, size_t end)
{
    const tg_chunk *chunks = plan->grid->chunks;
    for (size_t i = first, n = 0; i < end; i += n) {
        const uint32_t unit = chunks[i].unit;
        const uint64_t lo = plan->units[unit].lo, hi = plan->units[unit].hi;
        for (n = 0; i + n < end && chunks[i + n].unit == unit && chunks[i + n].at == lo + n * TG_CHUNK; n++) {
        }
        if (n == 0 || n > TG_GPU_ROW || lo + (n - 1) * TG_CHUNK + chunks[i + n - 1].n != hi) {
            return false;
        }
    }
    return true;
}

/* Chunks of fixed length, whose leaves are hashed when all is written. */
static void encode_fixed(const tg_gpu_pass *given, const tg_run *run)
{
    const tg_gpu_workspace *w = run->work;
    tg_gpu_pass own = *given, *p = &own;
    p->has_rows = run->uses.scales && are_rows(run->plan, p->first, (size_t)p->first + p->chunk_n);
    if (run->uses.plain) {
        tg_gpu_pass plain = tg_gpu_plain_pass(p, run);
        tg_gpu_encode_plain(&plain, w->leaves, run->leaf_cap);
    }
    if (run->uses.symbols) {
        tg_gpu_quantize_dense(p);
        if (run->uses.scales) {
            tg_gpu_apply_scales(p);
        }
        tg_gpu_pack_leaves(p, w->leaves, run->leaf_cap);
    }
}

/* All kernels, in the order that kernels.h gives. */
static void encode(const tg_gpu_pass *p, tg_run *run)
{
    const tg_gpu_workspace *w = run->work;
    const tg_gpu_uses *uses = &run->uses;
    if (uses->plain) {
        tg_gpu_pass plain = tg_gpu_plain_pass(p, run);
        tg_gpu_encode_plain(&plain, NULL, 0);
    }
    if (uses->dense_symbols) {
        tg_gpu_quantize_dense(p);
    }
    if (uses->sparse) {
        tg_gpu_select_sparse(p, &run->selection, w->maxima);
    }
    if (uses->quantizes_values) {
        tg_gpu_quantize_values(p);
    }
    if (uses->symbols) {
        tg_gpu_pack_symbols(p, w->scratch);
    }
    if (uses->words) {
        tg_gpu_pack_words(p, w->scratch);
    }
    if (uses->scales) {
        tg_gpu_apply_scales(p);
    }
    if (uses->sparse && uses->coded) { /* others are written */
        tg_gpu_write_indices(p);
    }
}

/* ---- lengths and statistics ------------------------------------------------------------------------------------------------ */

/* The view of a chunk whose length is known. */
static tg_view known_view(const tg_plan *plan, const tg_chunk *chunk, uint32_t known_n)
{
    const tg_unit_plan *u = &plan->units[chunk->unit];
    uint32_t count = u->coordinates == TG_AT_EVERY ? chunk->n : known_n;
    if (u->route == TG_ROUTE_NONE) {
        return (tg_view){0};
    }
    uint64_t len = tg_gpu_chunk_len(plan, chunk, known_n);
    uint64_t side_len = tg_side_len(&u->format, count);
    return (tg_view){.symbols = side_len, .indices = len, .len = (uint32_t)len, .count = count};
}

/* Lengths of bodies; views of chunks stay on the host, for statistics. */
static void measure_bodies(tg_body *bodies, tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to, bool known)
{
    const tg_grid *grid = plan->grid;
    tg_gpu_workspace *w = run->work;
    const tg_view *views = w->written.host;
    for (uint32_t s = from; s < to; s++) {
        tg_body *body = &bodies[s - from];
        body->len = plan->headers_len[s];
        body->payload_len = 0;
        for (size_t i = grid->first[s]; i < grid->first[s + 1]; i++) {
            tg_view v = known ? known_view(plan, &grid->chunks[i], w->known_n[i]) : views[i];
            body->len += v.len;
            body->payload_len += v.len;
            if ((plan->holds & TG_HAS_VALUES) != 0) {
                tg_gpu_note_chunk(run, i, &v);
            }
        }
    }
}

static void clear_stats(tg_run *run, const tg_plan *plan, uint32_t group)
{
    const tg_grid *grid = plan->grid;
    for (size_t i = grid->unit_first[group]; (plan->holds & TG_HAS_VALUES) != 0 && i < grid->unit_first[group + 1];
         i++) {
        run->stats[grid->units[i]] = (tg_unit_stats){0};
    }
}

/* ---- the pass ---------------------------------------------------------------------------------------------------------------- */

/* Whether a kernel can move the chunks of a cell, hash them and tell of them at once. */
static bool can_gather(const tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to)
{
    bool can = true;
    for (uint32_t s = from; s < to && can; s++) {
        size_t n = plan->grid->first[s + 1] - plan->grid->first[s];
        can = n <= TG_GPU_LISTS_MAX && tg_gpu_header_leaves(run, s) <= run->leaf_cap;
    }
    return can;
}

/* All of that, cell by cell. The host is told of views and, with those of the last cell, of the verdict. */
static void gather_at_once(tg_run *run, const tg_plan *plan, const tg_body *bodies, uint32_t from, uint32_t to)
{
    tg_gpu_workspace *w = run->work;
    *(volatile uint32_t *)w->sound.host = 2;
    for (uint32_t s = from; s < to; s++) {
        tg_gpu_pass cell = tg_gpu_pass_of(run, plan, plan->grid->first[s], plan->grid->first[s + 1]);
        cell.space.views = w->written.device;
        tg_gpu_ending e = tg_gpu_ending_of(run, s, bodies[s - from].bytes, 0, cell.first);
        e.verdict_to = s + 1 == to ? w->verdict.host : NULL;
        e.sound_to = s + 1 == to ? w->sound.host : NULL;
        const tg_gpu_gathering g = {.sides = run->uses.fits ? w->sides.device : NULL,
                                    .leaves_done = w->done + TG_GPU_SEALS,
                                    .views_to = (tg_view *)w->written.host + cell.first,
                                    .words_to = tg_gpu_hashes_of(run, s),
                                    .headers_len = plan->headers_len[s]};
        tg_gpu_gather(&cell, &e, &g);
    }
}

/* The same for any number of chunks. */
static void gather_cells(tg_run *run, const tg_plan *plan, const tg_body *bodies, uint32_t from, uint32_t to)
{
    tg_gpu_workspace *w = run->work;
    for (uint32_t s = from; s < to; s++) {
        tg_gpu_pass cell = tg_gpu_pass_of(run, plan, plan->grid->first[s], plan->grid->first[s + 1]);
        cell.space.views = w->written.device;
        tg_gpu_place_chunks(&cell, run->uses.fits ? w->sides.device : NULL, tg_gpu_spans_at(w->written_spans, run, s),
                            bodies[s - from].bytes, plan->headers_len[s]);
        tg_gpu_move_chunks(&cell, run, s, w->written_spans);
    }
}

/* Adds the bodies of cells to sums that begin with them. */
static void add_first(tg_run *run, const tg_body *bodies, uint32_t from, uint32_t to)
{
    for (uint32_t s = from; s < to; s++) {
        tg_gpu_add_written(run, s, bodies[s - from].bytes);
    }
}

/* One try; the next one makes a greater effort to select, if this one was not enough. */
static tg_status write_once(tg_gpu_verdict *verdict, const tg_gpu_pass *p, tg_run *run, const tg_plan *plan,
                            const tg_body *bodies, uint32_t from, uint32_t to, bool same_places, bool is_first,
                            tg_detail *why)
{
    tg_gpu_workspace *w = run->work;
    bool known = are_known(run, plan, from, to);
    tg_gpu_clear_verdict(run);
    if (run->uses.starts && (!same_places || w->laid_out != run)) {
        tg_gpu_start_views(p);
    }
    w->laid_out = run->uses.fixed ? run : NULL;
    w->is_refusal_open = known;
    if (run->uses.fixed) {
        w->leaves_first = p->first;
        w->seals.n = 0;
        w->seals_to = to;
        w->is_verdict_open = true;
        encode_fixed(p, run);
        return TG_OK;
    }
    encode(p, run);
    w->seals_places = known && can_gather(run, plan, from, to);
    w->has_words = false;
    if (known) {
        if (!w->seals_places) {
            tg_gpu_end_chunks(p, run->uses.fits ? w->sides.device : NULL, w->written_spans);
            for (uint32_t s = from; s < to; s++) {
                tg_gpu_hash_chunks(run, s, w->written_spans);
            }
        }
        add_first(run, bodies, from, is_first ? to : from);
        return TG_OK;
    }
    bool at_once = can_gather(run, plan, from, to);
    w->has_words = at_once;
    if (at_once) {
        gather_at_once(run, plan, bodies, from, to);
    } else {
        gather_cells(run, plan, bodies, from, to);
        tg_gpu_tell(p, &(tg_gpu_report){.views = (tg_view *)w->written.host + p->first, .verdict = w->verdict.host});
    }
    w->is_verdict_clear = true;
    if (is_first) { /* while the host learns of lengths */
        TG_TRY(at_once ? TG_OK : tg_gpu_mark_verdict(run, why));
        add_first(run, bodies, from, to);
    }
    return at_once ? tg_gpu_await_word(verdict, run, why) : tg_gpu_await_verdict(verdict, run, why);
}

static tg_status refuse_new_places(tg_detail *why)
{
    return tg_fail(TG_E_ARGUMENT, why,
                   "encode once with these gradients and this frame before it is captured in a CUDA graph");
}

tg_status tg_gpu_write(tg_body *bodies, tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to,
                       const tg_source *source, tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    run = tg_gpu_run_of(run, plan);
    tg_gpu_workspace *w = run->work;
    tg_gpu_verdict verdict = {0};
    if (run->leader != NULL) { /* nobody has selected */
        TG_TRY(tg_gpu_reach_group(run, from / grid->slices, source->grads, why));
    }
    bool known = are_known(run, plan, from, to);
    bool captures = tg_gpu_is_capturing(run->gpu);
    tg_gpu_open_stats(run, from, to);
    tg_gpu_pass p = tg_gpu_pass_of(run, plan, grid->first[from], grid->first[to]);
    w->held = NULL;
    p.space.views = w->written.device;
    p.flat = source->flat;
    bool has_grads = tg_gpu_give_sources(&p, run, from / grid->slices, source->grads, !captures);
    bool same_places = place_chunks(run, plan, bodies, from, to, known, captures);
    if (captures && !(has_grads && same_places)) {
        return refuse_new_places(why);
    }
    if (captures) { /* so that the next replay finds it */
        p.next = run->now;
        run->is_in_place = true;
    }
    do {
        TG_TRY(write_once(&verdict, &p, run, plan, bodies, from, to, same_places, source->is_first, why));
        TG_TRY(tg_gpu_refuse(run, &verdict, source, why));
    } while (tg_gpu_select_again(&run->selection, verdict.again));
    clear_stats(run, plan, from / grid->slices);
    measure_bodies(bodies, run, plan, from, to, known);
    return TG_OK;
}

/* What stands before a body: the header by value, the description once. The hash is not set. */
static tg_gpu_front front_of(tg_run *run, const uint8_t *front, size_t front_len)
{
    const tg_gpu_workspace *w = run->work;
    tg_gpu_front before = {.description = w->description.device, .len = (uint32_t)front_len};
    memcpy(before.header, front, TG_GPU_FRONT);
    tg_gpu_upload(run, &w->description, front + TG_GPU_FRONT, 0, front_len - TG_GPU_FRONT, 1);
    return before;
}

/* Seals frames together, with that of the last cell that was written. */
static void seal_fixed(tg_run *run, uint32_t cell, const tg_body *body, uint8_t *frame, const uint8_t *front,
                       size_t front_len)
{
    tg_gpu_workspace *w = run->work;
    tg_gpu_seals *s = &w->seals;
    tg_gpu_pass p = tg_gpu_pass_of(run, run->plan, 0, 0);
    tg_gpu_front before = front_of(run, front, front_len);
    tg_gpu_ending e = tg_gpu_ending_of(run, cell, frame, body->len, w->leaves_first);
    before.hash = p.step_at != NULL ? 0 : tg_hash(front, front_len);
    if (w->is_verdict_open && run->plan->nonfinite == TG_NONFINITE_ERROR) { /* others refuse nothing, so it is clear */
        e.verdict_to = w->verdict.host;                                     /* with the first cell that was written */
    }
    e.done = w->done + s->n;
    w->is_verdict_clear = w->is_verdict_clear || w->is_verdict_open;
    w->is_verdict_open = false;
    s->e[s->n] = e;
    s->fronts[s->n] = before;
    s->n++;
    if (s->n == TG_GPU_SEALS || cell + 1 == w->seals_to) {
        tg_gpu_end_frames(&p, s);
        s->n = 0;
    }
    w->sealed_cell = cell;
    w->sealed_body = body->bytes;
}

/* The checksum of a frame, of whose hashes the host was told. */
static uint64_t checksum_of(const tg_run *run, const tg_plan *plan, uint32_t cell, uint64_t front_hash)
{
    uint64_t *words = tg_gpu_hashes_of(run, cell);
    words[0] = front_hash;
    words[1] = plan->headers_len[cell] == 0 ? tg_hash(NULL, 0) : words[1];
    return tg_hash(words, (2 + plan->grid->first[cell + 1] - plan->grid->first[cell]) * sizeof *words);
}

/* Hashes chunks that were written in their places, and seals the frame. */
static void seal_places(tg_run *run, const tg_plan *plan, uint32_t cell, const tg_body *body, const tg_gpu_front *front)
{
    const tg_gpu_workspace *w = run->work;
    tg_gpu_pass p = tg_gpu_pass_of(run, plan, plan->grid->first[cell], plan->grid->first[cell + 1]);
    p.space.views = w->written.device;
    const tg_gpu_ending e = tg_gpu_ending_of(run, cell, body->bytes, body->len, p.first);
    const tg_gpu_gathering g = {.sides = run->uses.fits ? w->sides.device : NULL,
                                .leaves_done = w->done + TG_GPU_SEALS,
                                .headers_len = plan->headers_len[cell]};
    tg_gpu_seal_places(&p, &e, &g, front);
}

void tg_gpu_seal(tg_run *run, const tg_plan *plan, uint32_t cell, const tg_body *body, uint8_t *frame,
                 const uint8_t *front, size_t front_len)
{
    const tg_grid *grid = plan->grid;
    run = tg_gpu_run_of(run, plan);
    if (run->uses.fixed) {
        seal_fixed(run, cell, body, frame, front, front_len);
        return;
    }
    uint64_t *hashes = (uint64_t *)run->work->hashes.device + grid->first[cell] + 2 * (size_t)cell;
    tg_gpu_enter(run->gpu);
    tg_gpu_front before = front_of(run, front, front_len);
    before.hash = tg_hash(front, front_len);
    if (run->work->seals_places) {
        seal_places(run, plan, cell, body, &before);
        return;
    }
    if (run->work->has_words) {
        uint64_t checksum = checksum_of(run, plan, cell, before.hash);
        tg_gpu_put_seal(frame, &before, body->len, checksum, run->gpu->stream);
        return;
    }
    tg_gpu_seal_frame(frame, &before, body->len, hashes, (uint32_t)(2 + grid->first[cell + 1] - grid->first[cell]),
                      plan->headers_len[cell] > 0, run->gpu->stream);
}

tg_status tg_gpu_ask_refusal(tg_run *run, const tg_source *source, tg_detail *why)
{
    tg_gpu_verdict verdict;
    const tg_gpu_workspace *w = run->work;
    bool asks =
        w->is_refusal_open && run->plan->nonfinite == TG_NONFINITE_ERROR; /* or write has, or nothing is refused */
    if (run->uses.fixed && source->is_first) {
        if (asks) {
            TG_TRY(tg_gpu_mark_verdict(run, why));
        }
        tg_gpu_add_written(run, w->sealed_cell, w->sealed_body);
    }
    if (!asks) {
        return TG_OK;
    }
    TG_TRY(run->uses.fixed ? tg_gpu_await_verdict(&verdict, run, why) : tg_gpu_read_verdict(&verdict, run, why));
    return tg_gpu_refuse(run, &verdict, source, why);
}
