/* What all passes of the CUDA executor share. */
#include "exec/cuda/run.h"

#include "base/bytes.h"
#include "kernels/hash.h"

#include <stdatomic.h>
#include <string.h>

tg_gpu_pass tg_gpu_pass_of(tg_run *run, const tg_plan *plan, size_t first, size_t end)
{
    const tg_gpu_workspace *w = run->work;
    const tg_run *keeper = run->is_leader ? run->parent : run; /* of the residuals */
    tg_gpu_enter(run->gpu);
    tg_gpu_pass p = {.units = run->units,
                     .pieces = run->pieces,
                     .chunks = run->chunks,
                     .first = (uint32_t)first,
                     .chunk_n = (uint32_t)(end - first),
                     .tiles = run->tiles + run->tile_first[first],
                     .tile_n = run->tile_first[end] - run->tile_first[first],
                     .leaves = run->uses.fixed ? run->leaf_table + run->leaf_first[first] : NULL,
                     .leaf_n = run->uses.fixed ? run->leaf_first[end] - run->leaf_first[first] : 0,
                     .parts = run->parts != NULL ? run->parts + run->part_first[first] : NULL,
                     .part_n = run->parts != NULL ? run->part_first[end] - run->part_first[first] : 0,
                     .part_blocks = run->part_blocks,
                     .counts_early = run->parts != NULL && run->uses.counts,
                     .now = keeper->now,
                     .next = keeper->next,
                     .space = w->space,
                     .verdict = w->verdict.device,
                     .seed = plan->layout->seed,
                     .step = w->step,
                     .step_at = run->gpu->step,
                     .kinds = run->uses.kinds,
                     .packs = run->uses.packs,
                     .rank = plan->rank,
                     .nonfinite = (uint8_t)plan->nonfinite,
                     .is_answer = plan->is_answer,
                     .has_values = (plan->holds & TG_HAS_VALUES) != 0,
                     .has_clip = plan->has_clip,
                     .has_residuals = plan->residual_n > 0,
                     .overlaps = run->gpu->overlaps,
                     .processors = run->gpu->processors,
                     .stream = run->gpu->stream};
    p.space.clips = plan->has_clip ? p.space.clips : w->ones;
    return p;
}

tg_gpu_pass tg_gpu_plain_pass(const tg_gpu_pass *p, const tg_run *run)
{
    tg_gpu_pass plain = *p;
    plain.kinds = TG_GPU_NO_KIND;
    if (run->plain_tiles != NULL) {
        const uint32_t *first = run->plain_first + p->first;
        plain.tiles = run->plain_tiles + first[0];
        plain.tile_n = first[p->chunk_n] - first[0];
    }
    return plain;
}

tg_gpu_pass tg_gpu_symbols_pass(const tg_gpu_pass *p)
{
    tg_gpu_pass symbols = *p;
    symbols.kinds &= ~TG_GPU_NO_KIND;
    return symbols;
}

void tg_gpu_upload(const tg_run *run, const tg_gpu_mirror *m, const void *entries, size_t from, size_t n, size_t len)
{
    char *host = (char *)m->host + from * len;
    if (memcmp(host, entries, n * len) != 0) {
        memcpy(host, entries, n * len);
        tg_gpu_copy(run->gpu, (char *)m->device + from * len, host, n * len);
    }
}

void tg_gpu_download(const tg_run *run, const tg_gpu_mirror *m, size_t from, size_t n, size_t len)
{
    tg_gpu_copy(run->gpu, (char *)m->host + from * len, (const char *)m->device + from * len, n * len);
}

void tg_gpu_clear_verdict(const tg_run *run)
{
    if (!run->work->is_verdict_clear) {
        tg_gpu_fill(run->gpu, run->work->verdict.device, 0, sizeof(tg_gpu_verdict));
    }
    run->work->is_verdict_clear = false; /* by what is launched next */
}

tg_status tg_gpu_read_verdict(tg_gpu_verdict *out, tg_run *run, tg_detail *why)
{
    tg_gpu_download(run, &run->work->verdict, 0, 1, sizeof *out);
    return tg_gpu_await_verdict(out, run, why);
}

tg_status tg_gpu_mark_verdict(const tg_run *run, tg_detail *why)
{
    TG_TRY(tg_gpu_mark(run->gpu, run->work->mark, run->gpu->stream, why));
    run->work->is_marked = true;
    return TG_OK;
}

tg_status tg_gpu_await_verdict(tg_gpu_verdict *out, tg_run *run, tg_detail *why)
{
    bool is_marked = run->work->is_marked;
    run->work->is_marked = false;
    TG_TRY(is_marked ? tg_gpu_await(run->gpu, run->work->mark, why) : tg_gpu_wait(run->gpu, why));
    memcpy(out, run->work->verdict.host, sizeof *out);
    if (run->failed != TG_OK) { /* of an earlier pass, which could not say so */
        if (why != NULL) {
            *why = run->failure;
        }
        return run->failed;
    }
    return TG_OK;
}

tg_status tg_gpu_await_word(tg_gpu_verdict *out, tg_run *run, tg_detail *why)
{
    enum { LOOKS = 4096 }; /* at the word, before the GPU is asked whether it has failed */
    const tg_gpu_workspace *w = run->work;
    const volatile uint32_t *word = w->sound.host;
    tg_status status = TG_MORE;
    for (uint32_t n = 1; *word > 1 && status == TG_MORE; n++) {
        status = n % LOOKS == 0 ? tg_gpu_idle(run->gpu, why) : TG_MORE;
    }
    atomic_thread_fence(memory_order_acquire); /* what was told before is there */
    if (*word > 1) {                           /* the kernel has not run */
        TG_TRY(tg_gpu_wait(run->gpu, why));
        return tg_fail(TG_E_ARGUMENT, why, "GPU %d has not done what it was asked for", run->gpu->ordinal);
    }
    if (run->failed != TG_OK) {
        return tg_gpu_await_verdict(out, run, why);
    }
    memcpy(out, w->verdict.host, sizeof *out);
    return TG_OK;
}

void tg_gpu_settle(const tg_run *run)
{
    if (tg_gpu_wait(run->gpu, NULL) != TG_OK) {
        return; /* a GPU that has failed stays failed */
    }
}

void tg_gpu_note_failure(tg_run *run, tg_status status, const tg_detail *why)
{
    if (run->failed == TG_OK && status != TG_OK) {
        run->failed = status;
        run->failure = *why;
    }
}

/* Where the hashes of a cell begin: of what stands before the body, of headers, then of chunks. */
static size_t hashes_at(const tg_run *run, uint32_t cell)
{
    return run->plan->grid->first[cell] + 2 * (size_t)cell;
}

uint64_t *tg_gpu_hashes_of(const tg_run *run, uint32_t cell)
{
    return (uint64_t *)run->work->hashes.host + hashes_at(run, cell);
}

tg_gpu_span *tg_gpu_spans_at(tg_gpu_span *spans, const tg_run *run, uint32_t cell)
{
    return spans + run->plan->grid->first[cell] + cell;
}

uint32_t tg_gpu_header_leaves(const tg_run *run, uint32_t cell)
{
    return (uint32_t)((run->plan->headers_len[cell] + TG_HASH_LEAF - 1) / TG_HASH_LEAF);
}

void tg_gpu_hash_chunks(tg_run *run, uint32_t cell, tg_gpu_span *all)
{
    const tg_gpu_workspace *w = run->work;
    const tg_grid *grid = run->plan->grid;
    const tg_gpu_span *spans = tg_gpu_spans_at(all, run, cell);
    uint64_t *hashes = (uint64_t *)w->hashes.device + hashes_at(run, cell);
    uint32_t n = (uint32_t)(grid->first[cell + 1] - grid->first[cell]), leaves = tg_gpu_header_leaves(run, cell);
    if (leaves > run->leaf_cap) { /* by themselves, since every chunk would have so many */
        tg_gpu_hash(hashes + 1, w->leaves, spans, 1, leaves, run->gpu->stream);
    }
    bool apart = leaves == 0 || leaves > run->leaf_cap;
    tg_gpu_hash(hashes + (apart ? 2 : 1), w->leaves, spans + (apart ? 1 : 0), n + (apart ? 0 : 1), run->leaf_cap,
                run->gpu->stream);
}

void tg_gpu_move_chunks(const tg_gpu_pass *p, tg_run *run, uint32_t cell, tg_gpu_span *all)
{
    const tg_gpu_workspace *w = run->work;
    const tg_gpu_span *spans = tg_gpu_spans_at(all, run, cell);
    uint32_t leaves = tg_gpu_header_leaves(run, cell);
    bool hashes_all = leaves > 0 && leaves <= run->leaf_cap; /* headers, too */
    tg_gpu_move(p, spans, hashes_all ? w->leaves : NULL, run->leaf_cap);
    if (hashes_all) {
        tg_gpu_hash_spans((uint64_t *)w->hashes.device + hashes_at(run, cell) + 1, w->leaves, spans, 1 + p->chunk_n,
                          run->leaf_cap, p->stream);
    } else {
        tg_gpu_hash_chunks(run, cell, all);
    }
}

void tg_gpu_download_hashes(const tg_run *run, uint32_t cell)
{
    const tg_grid *grid = run->plan->grid;
    tg_gpu_download(run, &run->work->hashes, hashes_at(run, cell), 2 + grid->first[cell + 1] - grid->first[cell],
                    sizeof(uint64_t));
}

void tg_gpu_take_hashes(uint64_t *out, const tg_run *run, uint32_t cell)
{
    const tg_grid *grid = run->plan->grid;
    memcpy(out, (const uint64_t *)run->work->hashes.host + hashes_at(run, cell) + 1,
           (1 + grid->first[cell + 1] - grid->first[cell]) * sizeof *out);
    out[0] = run->plan->headers_len[cell] == 0 ? TG_LITTLE64(tg_hash(NULL, 0)) : out[0];
}

tg_gpu_ending tg_gpu_ending_of(const tg_run *run, uint32_t cell, const uint8_t *frame, uint64_t body_len,
                               size_t leaves_first)
{
    const tg_gpu_workspace *w = run->work;
    size_t before = run->plan->grid->first[cell] - leaves_first;
    return (tg_gpu_ending){.frame = (uint8_t *)(uintptr_t)frame,
                           .body_len = body_len,
                           .words = (uint64_t *)w->hashes.device + hashes_at(run, cell),
                           .first = (uint32_t)run->plan->grid->first[cell],
                           .chunk_n = (uint32_t)(run->plan->grid->first[cell + 1] - run->plan->grid->first[cell]),
                           .leaves = w->leaves + before * run->leaf_cap,
                           .leaf_cap = run->leaf_cap,
                           .done = w->done,
                           .sides = run->uses.fits ? w->sides.device : NULL,
                           .verdict = w->verdict.device};
}

/* Pointers of a group that the device does not have yet go to a mirror. False: there are some, and they may not be copied now. */
static bool renew_pointers(const tg_run *run, const tg_gpu_mirror *m, uint32_t group, const void *const *pointers,
                           bool may_copy)
{
    const tg_grid *grid = run->plan->grid;
    const void **host = m->host;
    size_t first = run->plan->layout->tensor_n, end = 0;
    for (size_t j = grid->unit_first[group]; j < grid->unit_first[group + 1]; j++) {
        const tg_unit *unit = &run->plan->layout->units[grid->units[j]];
        for (size_t i = 0; i < unit->piece_n; i++) {
            size_t t = unit->pieces[i].tensor;
            if (host[t] != pointers[t]) {
                host[t] = may_copy ? pointers[t] : host[t];
                first = t < first ? t : first;
                end = t + 1 > end ? t + 1 : end;
            }
        }
    }
    if (first < end && may_copy) {
        tg_gpu_copy(run->gpu, (const void **)m->device + first, host + first, (end - first) * sizeof *host);
    }
    return may_copy || first >= end;
}

const void *tg_gpu_upload_pointers(const tg_run *run, uint32_t group, const void *const *pointers)
{
    if (pointers == NULL) {
        return NULL;
    }
    (void)renew_pointers(run, &run->work->grads, group, pointers, true);
    return run->work->grads.device;
}

bool tg_gpu_give_few(tg_gpu_pass *p, const tg_run *run, const void *const *pointers)
{
    size_t n = run->plan->layout->tensor_n;
    for (size_t t = 0; t < n && n <= TG_GPU_FEW; t++) {
        p->few[t] = pointers[t];
    }
    return n <= TG_GPU_FEW;
}

bool tg_gpu_give_sources(tg_gpu_pass *p, const tg_run *run, uint32_t group, const void *const *grads, bool may_copy)
{
    if (grads == NULL || tg_gpu_give_few(p, run, grads)) {
        return true;
    }
    p->grads = run->work->grads.device;
    return renew_pointers(run, &run->work->grads, group, grads, may_copy);
}

bool tg_gpu_give_sums(tg_gpu_pass *p, const tg_run *run, uint32_t group, float *const *sums, bool may_copy)
{
    p->adds_few = tg_gpu_give_few(p, run, (const void *const *)sums);
    if (p->adds_few) {
        return true;
    }
    p->added = run->work->sums.device;
    return renew_pointers(run, &run->work->sums, group, (const void *const *)sums, may_copy);
}

tg_status tg_gpu_refuse(const tg_run *run, const tg_gpu_verdict *verdict, const tg_source *source, tg_detail *why)
{
    const tg_tensor *tensors = run->plan->layout->tensors;
    const char *of = source->flat != NULL ? "average" : "gradient";
    if (verdict->bad_tensor != 0) {
        return tg_fail(TG_E_NONFINITE, why, "the %s of tensor '%.150s' holds NaN or Inf", of,
                       tensors[UINT32_MAX - verdict->bad_tensor].name);
    }
    if (verdict->bad_residual != 0) {
        return tg_refuse_overflow(tensors[UINT32_MAX - verdict->bad_residual].name, of, why);
    }
    return TG_OK;
}

uint64_t tg_gpu_chunk_len(const tg_plan *plan, const tg_chunk *chunk, uint32_t known_n)
{
    const tg_unit_plan *u = &plan->units[chunk->unit];
    uint64_t count = u->coordinates == TG_AT_EVERY ? chunk->n : known_n;
    if (u->route == TG_ROUTE_NONE) {
        return 0;
    }
    return tg_side_len(&u->format, count) + tg_symbols_len(&u->format, count);
}
