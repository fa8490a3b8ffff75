/* Opens a plan on a GPU: takes all memory that its steps will use, and uploads the tables of kernels. */
#include "exec/cuda/run.h"

#include "kernels/hash.h"

#include <string.h>

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

static tg_status acquire_pinned(tg_gpu_mirror *m, const tg_run *run, uint64_t n, size_t len, tg_detail *why)
{
    m->is_pinned = true;
    TG_TRY(tg_gpu_pin(&m->host, run->gpu, n * len, why));
    memset(m->host, 0, (size_t)(n * len));
    return tg_gpu_acquire(&m->device, run->gpu, n * len, why);
}

static tg_status acquire_pageable(tg_gpu_mirror *m, const tg_run *run, uint64_t n, size_t len, tg_detail *why)
{
    TG_TRY(tg_acquire(&m->host, &run->allocator, n, len, why));
    return tg_gpu_acquire(&m->device, run->gpu, n * len, why);
}

static void release_mirror(const tg_gpu_mirror *m, const tg_run *run)
{
    tg_gpu_release(run->gpu, m->device);
    if (m->is_pinned) {
        tg_gpu_unpin(run->gpu, m->host);
    } else {
        tg_release(&run->allocator, m->host);
    }
}

static tg_status acquire_cleared(void *out, const tg_gpu *gpu, uint64_t len, tg_detail *why)
{
    void *block = NULL;
    TG_TRY(tg_gpu_acquire(&block, gpu, len, why));
    tg_gpu_fill(gpu, block, 0, len);
    memcpy(out, &block, sizeof block);
    return TG_OK;
}

static uint64_t staging_len(const tg_plan *plan)
{
    uint64_t len = 0;
    for (size_t i = 0; i < plan->grid->first[plan->grid->cells]; i++) {
        len += (tg_chunk_bound(plan, &plan->grid->chunks[i]) + 15) / 16 * 16;
    }
    return len;
}

static tg_status acquire_space(tg_gpu_workspace *w, const tg_run *run, const tg_gpu_uses *need, tg_detail *why)
{
    enum { LEAF = 1024, SLOTS_LEN = 64 << 20, SLOTS_MAX = 512 };
    const tg_gpu *gpu = run->gpu;
    const tg_layout *l = run->plan->layout;
    const tg_grid *grid = run->plan->grid;
    uint64_t n = l->element_n, chunks = grid->first[grid->cells];
    tg_gpu_space *s = &w->space;
    /* read in whole vectors, and so beyond what is written */
    TG_TRY(acquire_cleared(&s->symbols, gpu, need->symbols ? 2 * n + 16 : 0, why));
    TG_TRY(tg_gpu_acquire(&s->words, gpu, need->words ? 4 * n : 0, why));
    TG_TRY(tg_gpu_acquire(&s->values, gpu, need->sparse ? n * sizeof *s->values : 0, why));
    TG_TRY(tg_gpu_acquire(&s->positions, gpu, need->sparse ? n * sizeof *s->positions : 0, why));
    TG_TRY(acquire_cleared(&s->list_first, gpu, need->lists ? (chunks + 1) * sizeof *s->list_first : 0, why));
    TG_TRY(tg_gpu_acquire(&s->ranges, gpu, need->lists ? chunks * sizeof *s->ranges : 0, why));
    bool lists = need->sparse && !run->only_decodes;
    TG_TRY(tg_gpu_acquire(&s->strip_places, gpu, lists ? n * sizeof *s->strip_places : 0, why));
    TG_TRY(tg_gpu_acquire(&s->strip_values, gpu, lists ? n * sizeof *s->strip_values : 0, why));
    if (need->slot_len > 0 && !run->only_decodes) {
        uint64_t slot_n = SLOTS_LEN / need->slot_len + 1;
        s->slot_len = need->slot_len;
        s->slot_n = slot_n < SLOTS_MAX ? (uint32_t)slot_n : SLOTS_MAX;
        TG_TRY(tg_gpu_acquire(&s->slots, gpu, s->slot_n * s->slot_len, why));
    }
    TG_TRY(tg_gpu_acquire(&s->magnitudes, gpu, (n / LEAF + chunks) * sizeof *s->magnitudes, why));
    bool fits = (need->fits || need->scales) && !run->only_decodes;
    TG_TRY(tg_gpu_acquire(&s->moments, gpu, fits ? (n / LEAF + chunks) * sizeof *s->moments : 0, why));
    TG_TRY(acquire_cleared(&s->progress, gpu, fits ? chunks * sizeof *s->progress : 0, why));
    TG_TRY(acquire_cleared(&s->next_tile, gpu, sizeof *s->next_tile, why));
    TG_TRY(tg_gpu_acquire(&s->scales, gpu, l->unit_n * sizeof *s->scales, why));
    TG_TRY(tg_gpu_acquire(&s->clips, gpu, l->unit_n * sizeof *s->clips, why));
    TG_TRY(tg_gpu_acquire(&s->overflows, gpu, chunks * sizeof *s->overflows, why));
    TG_TRY(tg_gpu_acquire(&s->sums, gpu, n * sizeof *s->sums, why));
    uint64_t norms = run->plan->has_clip ? n / LEAF + l->unit_n + 1 : 0;
    TG_TRY(tg_gpu_acquire(&w->ones, gpu, l->unit_n * sizeof *w->ones, why));
    TG_TRY(tg_gpu_acquire(&w->norms, gpu, norms * sizeof *w->norms, why));
    TG_TRY(tg_gpu_acquire(&w->maxima, gpu, need->bins ? n * sizeof *w->maxima : 0, why));
    uint64_t scratch_len = need->coded ? tg_gpu_pack_scratch((uint32_t)chunks, n) : 0;
    /* A refused chunk leaves some of it unwritten, and kernels read it before the verdict reaches them. */
    TG_TRY(acquire_cleared(&w->scratch, gpu, scratch_len, why));
    w->staging_len = run->only_decodes ? 0 : staging_len(run->plan);
    return tg_gpu_acquire(&w->staging, gpu, w->staging_len, why);
}

/* Gradients are not clipped before the first step. */
static tg_status set_clips(const tg_gpu_workspace *w, const tg_run *run, tg_detail *why)
{
    const float one = 1.0f;
    for (size_t i = 0; i < run->plan->layout->unit_n; i++) {
        tg_gpu_copy(run->gpu, w->space.clips + i, &one, sizeof one);
    }
    tg_gpu_copy(run->gpu, w->ones, w->space.clips, run->plan->layout->unit_n * sizeof one);
    return tg_gpu_wait(run->gpu, why);
}

/* Chunks of as many bodies as there are slices, of the cell that has most. */
static uint64_t chunks_of_bodies(const tg_grid *grid)
{
    uint64_t most = 0;
    for (uint32_t cell = 0; cell < grid->cells; cell++) {
        uint64_t n = grid->first[cell + 1] - grid->first[cell];
        most = n > most ? n : most;
    }
    return most * grid->slices;
}

static tg_status acquire_workspace(tg_run *run, tg_detail *why)
{
    const tg_gpu *gpu = run->gpu;
    const tg_layout *l = run->plan->layout;
    uint64_t chunks = run->plan->grid->first[run->plan->grid->cells], of_bodies = chunks_of_bodies(run->plan->grid);
    uint64_t hashed = chunks > of_bodies ? chunks : of_bodies;
    TG_TRY(tg_acquire(&run->work, &run->allocator, 1, sizeof *run->work, why));
    tg_gpu_workspace *w = run->work;
    TG_TRY(acquire_pageable(&w->grads, run, l->tensor_n, sizeof(void *), why));
    TG_TRY(acquire_pageable(&w->sums, run, l->tensor_n, sizeof(void *), why));
    TG_TRY(acquire_pageable(&w->out, run, chunks, sizeof(uint8_t *), why));
    TG_TRY(acquire_pinned(&w->views, run, chunks, sizeof(tg_view), why));
    TG_TRY(acquire_pinned(&w->written, run, chunks, sizeof(tg_view), why));
    TG_TRY(acquire_pinned(&w->hashes, run, hashed + 2 * (uint64_t)run->plan->grid->cells, sizeof(uint64_t), why));
    TG_TRY(acquire_pinned(&w->sides, run, chunks, sizeof(uint64_t), why));
    TG_TRY(acquire_pinned(&w->verdict, run, 1, sizeof(tg_gpu_verdict), why));
    TG_TRY(acquire_pinned(&w->late, run, 1, sizeof(uint32_t), why));
    TG_TRY(acquire_pinned(&w->sound, run, 1, sizeof(uint32_t), why));
    TG_TRY(tg_gpu_new_mark(&w->mark, gpu, why));
    tg_gpu_fill(gpu, w->late.device, 0, sizeof(uint32_t));
    /* That of headers is told even if there are none. */
    tg_gpu_fill(gpu, w->hashes.device, 0, (hashed + 2 * (uint64_t)run->plan->grid->cells) * sizeof(uint64_t));
    uint64_t description_len = run->plan->layout->description.len;
    TG_TRY(acquire_pageable(&w->description, run, description_len, 1, why));
    TG_TRY(acquire_pinned(&w->ends, run, TG_GPU_FRONT + description_len + TG_GPU_CHECKSUM, 1, why));
    TG_TRY(acquire_cleared(&w->done, gpu, (TG_GPU_SEALS + 1 + chunks) * sizeof *w->done, why));
    uint64_t spans = chunks + run->plan->grid->cells; /* with headers */
    TG_TRY(tg_gpu_acquire(&w->spans, gpu, spans * sizeof *w->spans, why));
    TG_TRY(tg_gpu_acquire(&w->written_spans, gpu, spans * sizeof *w->written_spans, why));
    TG_TRY(tg_acquire(&w->places, &run->allocator, chunks, sizeof *w->places, why));
    TG_TRY(tg_acquire(&w->is_fitted, &run->allocator, chunks, sizeof *w->is_fitted, why));
    TG_TRY(tg_acquire(&w->host_views, &run->allocator, chunks, sizeof *w->host_views, why));
    TG_TRY(tg_acquire(&w->known_n, &run->allocator, chunks, sizeof *w->known_n, why));
    TG_TRY(acquire_cleared(&w->known_n_device, gpu, chunks * sizeof *w->known_n_device, why));
    TG_TRY(tg_acquire(&w->usable, &run->allocator, l->tensor_n, sizeof *w->usable, why));
    TG_TRY(tg_gpu_acquire(&w->leaves, gpu,
                          (hashed + 3) * /* messages of LGC are longer than tensors by a header */
                              (uint64_t)(run->leaf_cap > TG_HASH_LEAVES / 2 ? run->leaf_cap : TG_HASH_LEAVES / 2) *
                              sizeof *w->leaves,
                          why));
    TG_TRY(tg_acquire(&w->drawn, &run->allocator, run->plan->grid->groups, sizeof *w->drawn, why));
    TG_TRY(acquire_space(w, run, &run->uses, why));
    w->space.views = w->views.device;
    w->space.out = w->out.device;
    w->space.scratch = w->scratch;
    return set_clips(w, run, why);
}

static void release_workspace(tg_gpu_workspace *w, const tg_run *run)
{
    const tg_gpu *gpu = run->gpu;
    if (w == NULL) {
        return;
    }
    void *const blocks[] = {w->staging,
                            w->scratch,
                            w->maxima,
                            w->space.sums,
                            w->space.clips,
                            w->space.overflows,
                            w->space.scales,
                            w->space.values,
                            w->space.magnitudes,
                            w->space.moments,
                            w->space.progress,
                            w->space.next_tile,
                            w->space.words,
                            w->space.positions,
                            w->space.symbols,
                            w->leaves,
                            w->known_n_device,
                            w->spans,
                            w->written_spans,
                            w->norms,
                            w->ones,
                            w->space.slots,
                            w->space.strip_places,
                            w->space.strip_values,
                            w->space.list_first,
                            w->space.ranges,
                            w->done};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        tg_gpu_release(gpu, blocks[i]);
    }
    if (w->mark != NULL) {
        tg_gpu_free_mark(w->mark);
    }
    tg_release(&run->allocator, w->host_views);
    tg_release(&run->allocator, w->is_fitted);
    tg_release(&run->allocator, w->places);
    tg_release(&run->allocator, w->drawn);
    tg_release(&run->allocator, (void *)w->usable);
    tg_release(&run->allocator, w->known_n);
    const tg_gpu_mirror *const mirrors[] = {&w->ends,    &w->sound, &w->late, &w->verdict, &w->sides,       &w->hashes,
                                            &w->written, &w->views, &w->out,  &w->grads,   &w->description, &w->sums};
    for (size_t i = 0; i < sizeof mirrors / sizeof *mirrors; i++) {
        release_mirror(mirrors[i], run);
    }
    tg_release(&run->allocator, w);
}

/* ---- tables ------------------------------------------------------------------------------------------------------------ */

static tg_status upload(void *out, const tg_gpu *gpu, const void *from, uint64_t len, tg_detail *why)
{
    void *block = NULL;
    TG_TRY(tg_gpu_acquire(&block, gpu, len, why));
    memcpy(out, &block, sizeof block);
    tg_gpu_copy(gpu, block, from, len);
    return tg_gpu_wait(gpu, why);
}

static tg_status refuse_lacking(const tg_plan *plan, const tg_gpu_unit *units, tg_detail *why)
{
    for (size_t i = 0; i < plan->layout->unit_n; i++) {
        const char *part = tg_gpu_lacks(&units[i]);
        if (part != NULL) {
            const char *name = plan->layout->tensors[plan->layout->units[i].pieces[0].tensor].name;
            return tg_fail(TG_E_RECIPE, why,
                           "'%s', which tensor '%.100s' uses, has no kernel for the GPU; it runs on the CPU", part,
                           name);
        }
    }
    return TG_OK;
}

/* Tables on the host, which are freed again. */
typedef struct tables {
    tg_gpu_unit *units;
    tg_gpu_piece *pieces;
    tg_gpu_chunk *chunks;
    tg_gpu_tile *tiles, *plain_tiles;
    tg_gpu_leaf *leaves;
    tg_gpu_part *parts;
} tables;

/* Whether some units are dense and of plain values, and others are not. */
static bool has_few_plain(const tg_run *run)
{
    return run->uses.plain && (run->uses.dense_symbols || run->uses.sparse);
}

static tg_status make_tables(tables *t, tg_run *run, uint64_t *tile_n, tg_detail *why)
{
    const tg_plan *plan = run->plan;
    const tg_layout *l = plan->layout;
    const tg_allocator *a = &run->allocator;
    uint64_t chunks = plan->grid->first[plan->grid->cells];
    uint32_t piece = 0;
    TG_TRY(tg_acquire(&run->tile_first, a, chunks + 1, sizeof *run->tile_first, why));
    *tile_n = tg_gpu_fill_tiles(NULL, run->tile_first, plan);
    TG_TRY(tg_acquire(&t->units, a, l->unit_n, sizeof *t->units, why));
    TG_TRY(tg_acquire(&t->pieces, a, l->tensor_n, sizeof *t->pieces, why));
    TG_TRY(tg_acquire(&t->chunks, a, chunks, sizeof *t->chunks, why));
    TG_TRY(tg_acquire(&t->tiles, a, *tile_n, sizeof *t->tiles, why));
    for (size_t i = 0; i < l->unit_n; i++) {
        tg_gpu_unit_of(&t->units[i], &plan->units[i], piece);
        piece += (uint32_t)l->units[i].piece_n;
    }
    tg_gpu_fill_pieces(t->pieces, l);
    tg_gpu_fill_chunks(t->chunks, plan);
    (void)tg_gpu_fill_tiles(t->tiles, run->tile_first, plan);
    run->uses = tg_gpu_uses_of(t->units, l->unit_n, (plan->holds & TG_HAS_VALUES) != 0);
    run->pending_n = run->uses.fixed ? tg_gpu_place_pending(t->units, l->unit_n, plan->residual_n) : 0;
    if (has_few_plain(run)) {
        TG_TRY(tg_acquire(&run->plain_first, a, chunks + 1, sizeof *run->plain_first, why));
        uint32_t plain_n = tg_gpu_fill_plain_tiles(NULL, run->plain_first, plan);
        TG_TRY(tg_acquire(&t->plain_tiles, a, plain_n, sizeof *t->plain_tiles, why));
        (void)tg_gpu_fill_plain_tiles(t->plain_tiles, run->plain_first, plan);
    }
    run->part_blocks = run->uses.holds && !run->only_decodes ? tg_gpu_blocks_that_hold() : 0;
    if (run->part_blocks > 0) {
        TG_TRY(tg_acquire(&run->part_first, a, chunks + 1, sizeof *run->part_first, why));
        uint32_t part_n = tg_gpu_fill_parts(NULL, run->part_first, run->tile_first, plan);
        TG_TRY(tg_acquire(&t->parts, a, part_n, sizeof *t->parts, why));
        (void)tg_gpu_fill_parts(t->parts, run->part_first, run->tile_first, plan);
    }
    if (run->uses.fixed) {
        TG_TRY(tg_acquire(&run->leaf_first, a, chunks + 1, sizeof *run->leaf_first, why));
        TG_TRY(tg_acquire(&t->leaves, a, tg_gpu_fill_leaves(NULL, run->leaf_first, plan), sizeof *t->leaves, why));
        (void)tg_gpu_fill_leaves(t->leaves, run->leaf_first, plan);
    }
    return TG_OK;
}

static tg_status open_selection(tg_run *run, const tables *t, tg_detail *why)
{
    const tg_plan *plan = run->plan;
    tg_gpu_tables of = {.units = t->units,
                        .pieces = t->pieces,
                        .chunks = t->chunks,
                        .unit_n = (uint32_t)plan->layout->unit_n,
                        .chunk_n = (uint32_t)plan->grid->first[plan->grid->cells]};
    const tg_gpu_selection *parent = run->parent != NULL ? &run->parent->selection : NULL;
    tg_gpu_selection_lens lens = tg_gpu_selection_measure(&of, parent);
    TG_TRY(tg_acquire(&run->selection_host, &run->allocator, lens.host, 1, why));
    TG_TRY(acquire_cleared(&run->selection_device, run->gpu, lens.device, why));
    tg_gpu_selection_set_up(&run->selection, run->selection_host, run->selection_device, &of, parent);
    tg_gpu_copy(run->gpu, run->selection_device, run->selection_host, lens.copied);
    return tg_gpu_wait(run->gpu, why);
}

static tg_status upload_tables(tg_run *run, const tables *t, uint64_t tile_n, tg_detail *why)
{
    const tg_layout *l = run->plan->layout;
    const tg_gpu *gpu = run->gpu;
    uint64_t chunks = run->plan->grid->first[run->plan->grid->cells];
    TG_TRY(refuse_lacking(run->plan, t->units, why));
    TG_TRY(upload(&run->units, gpu, t->units, l->unit_n * sizeof *t->units, why));
    TG_TRY(upload(&run->pieces, gpu, t->pieces, l->tensor_n * sizeof *t->pieces, why));
    TG_TRY(upload(&run->chunks, gpu, t->chunks, chunks * sizeof *t->chunks, why));
    TG_TRY(upload(&run->tiles, gpu, t->tiles, tile_n * sizeof *t->tiles, why));
    if (has_few_plain(run)) {
        TG_TRY(upload(&run->plain_tiles, gpu, t->plain_tiles, run->plain_first[chunks] * sizeof *t->plain_tiles, why));
    }
    if (run->part_first != NULL) {
        TG_TRY(upload(&run->parts, gpu, t->parts, run->part_first[chunks] * sizeof *t->parts, why));
    }
    if (run->uses.fixed) {
        TG_TRY(upload(&run->leaf_table, gpu, t->leaves, run->leaf_first[chunks] * sizeof *t->leaves, why));
    }
    return open_selection(run, t, why);
}

static tg_status open_tables(tg_run *run, tg_detail *why)
{
    const tg_allocator *a = &run->allocator;
    tables t = {0};
    uint64_t tile_n = 0;
    tg_status status = make_tables(&t, run, &tile_n, why);
    if (status == TG_OK) {
        status = upload_tables(run, &t, tile_n, why);
    }
    tg_release(a, t.leaves);
    tg_release(a, t.parts);
    tg_release(a, t.plain_tiles);
    tg_release(a, t.tiles);
    tg_release(a, t.chunks);
    tg_release(a, t.pieces);
    tg_release(a, t.units);
    return status;
}

/* Leaves of the longest chunk that a frame may hold, whatever a recipe would send: any number of elements. */
static void find_longest(tg_run *run)
{
    const tg_plan *plan = run->plan;
    uint64_t longest = 1;
    for (size_t i = 0; i < plan->grid->first[plan->grid->cells]; i++) {
        const tg_chunk *chunk = &plan->grid->chunks[i];
        const tg_unit_plan *u = &plan->units[chunk->unit];
        uint64_t index_len = u->coordinates == TG_AT_INDICES ? UINT16_MAX : 0;
        uint64_t len = index_len;
        if ((plan->holds & TG_HAS_VALUES) != 0) {
            len += tg_side_len(&u->format, chunk->n) + tg_symbols_len(&u->format, chunk->n);
        }
        longest = u->route != TG_ROUTE_NONE && len > longest ? len : longest;
    }
    run->leaf_cap = (uint32_t)((longest + TG_HASH_LEAF - 1) / TG_HASH_LEAF);
}

/* Refuses cells whose checksums the kernels cannot compute: they hash hashes of hashes, and no deeper. */
static tg_status refuse_many(const tg_plan *plan, tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    for (uint32_t cell = 0; cell < grid->cells; cell++) {
        size_t n = grid->first[cell + 1] - grid->first[cell];
        if (n + 2 > TG_HASH_LEAVES * TG_HASH_LEAVES || plan->headers_len[cell] > TG_HASH_LEAVES * TG_HASH_LEAF) {
            return tg_fail(TG_E_ARGUMENT, why, "a frame has %zu pieces of tensors, too many for the kernels of a GPU",
                           n);
        }
    }
    return TG_OK;
}

/* Space for chunks that may be longer than those of the run that shares its workspace: a leader's, or answers with all values. Leaves
 * need none: there is space for those of plain values. */
static tg_status extend_staging(const tg_run *run, tg_detail *why)
{
    tg_gpu_workspace *w = run->work;
    if (run->only_decodes || staging_len(run->plan) <= w->staging_len) {
        return TG_OK;
    }
    tg_gpu_release(run->gpu, w->staging);
    w->staging = NULL;
    w->staging_len = staging_len(run->plan);
    return tg_gpu_acquire(&w->staging, run->gpu, w->staging_len, why);
}

static tg_status open_all(tg_run *run, tg_detail *why)
{
    const tg_plan *plan = run->plan;
    TG_TRY(refuse_many(plan, why));
    find_longest(run);
    TG_TRY(open_tables(run, why));
    if (run->parent == NULL) {
        TG_TRY(acquire_workspace(run, why));
    } else {
        run->work = run->parent->work;
        TG_TRY(extend_staging(run, why));
    }
    TG_TRY(tg_acquire(&run->stats, &run->allocator, plan->layout->unit_n, sizeof *run->stats, why));
    if (run->is_leader) {
        return TG_OK;
    }
    uint64_t state_len = (plan->residual_n + run->pending_n) * sizeof(float);
    TG_TRY(acquire_cleared(&run->now, run->gpu, state_len, why));
    TG_TRY(acquire_cleared(&run->next, run->gpu, state_len, why));
    return tg_gpu_wait(run->gpu, why);
}

tg_status tg_gpu_lead(tg_run *run, const tg_plan *plan, tg_detail *why)
{
    TG_TRY(tg_acquire(&run->leader, &run->allocator, 1, sizeof *run->leader, why));
    *run->leader =
        (tg_run){.plan = plan, .gpu = run->gpu, .allocator = run->allocator, .parent = run, .is_leader = true};
    tg_gpu_enter(run->gpu);
    return open_all(run->leader, why); /* closed with the run */
}

tg_status tg_gpu_open(tg_run **out, const tg_plan *plan, const tg_run_options *opt, const tg_allocator *a,
                      tg_detail *why)
{
    tg_run *run = NULL;
    TG_TRY(tg_acquire(&run, a, 1, sizeof *run, why));
    run->plan = plan;
    run->gpu = (const tg_gpu *)(const void *)opt->device; /* which begins with a tg_device */
    run->allocator = *a;
    run->parent = opt->shares;
    run->only_decodes = opt->only_decodes;
    tg_gpu_enter(run->gpu);
    tg_status status = open_all(run, why);
    if (status != TG_OK) {
        tg_gpu_close(run);
        return status;
    }
    *out = run;
    return TG_OK;
}

void tg_gpu_close(tg_run *run)
{
    if (run == NULL) {
        return;
    }
    tg_allocator a = run->allocator;
    tg_gpu_close(run->leader);
    tg_gpu_enter(run->gpu);
    tg_gpu_settle(run);
    tg_gpu_release(run->gpu, run->next);
    tg_gpu_release(run->gpu, run->now);
    tg_gpu_release(run->gpu, run->selection_device);
    tg_release(&a, run->selection_host);
    tg_gpu_release(run->gpu, run->leaf_table);
    tg_release(&a, run->leaf_first);
    tg_gpu_release(run->gpu, run->parts);
    tg_release(&a, run->part_first);
    tg_gpu_release(run->gpu, run->plain_tiles);
    tg_release(&a, run->plain_first);
    tg_gpu_release(run->gpu, run->tiles);
    tg_release(&a, run->tile_first);
    tg_gpu_release(run->gpu, run->pieces);
    tg_gpu_release(run->gpu, run->chunks);
    tg_gpu_release(run->gpu, run->units);
    tg_release(&a, run->stats);
    if (run->parent == NULL) {
        release_workspace(run->work, run);
    }
    tg_release(&a, run);
}
