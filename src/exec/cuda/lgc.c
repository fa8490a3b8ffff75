/* LGC on a GPU: memory and tables of its passes, which are in lgc_step.c. */
#include "exec/cuda/lgc_run.h"

#include "exec/ordering.h"
#include "recipe/parts.h"

#include <string.h>

enum { ALIGN = 16, LEAF = 1024 };
#define KEPT_TAPES ((uint64_t)1 << 28) /* floats */

_Static_assert((int)TG_GPU_LGC_WHOLE == (int)TG_LGC_WHOLE && (int)TG_GPU_LGC_PICKED == (int)TG_LGC_PICKED, "roles");
_Static_assert(TG_GPU_LGC_CHUNK == TG_CHUNK && TG_GPU_LGC_HEADER == TG_INDEX_HEADER, "chunks");

static tg_status upload(void *out, const tg_gpu *gpu, const void *from, uint64_t len, tg_detail *why)
{
    void *block = NULL;
    TG_TRY(tg_gpu_acquire(&block, gpu, len, why));
    memcpy(out, &block, sizeof block);
    tg_gpu_copy(gpu, block, from, len);
    return tg_gpu_wait(gpu, why);
}

/* ---- tables of tensors ---------------------------------------------------------------------------------------------------- */

static tg_gpu_lgc_tensor tensor_of(const tg_lgc *l, size_t t)
{
    const tg_lgc_tensor *tensor = &l->tensors[t];
    const tg_feedback_part *feedback = tensor->feedback;
    return (tg_gpu_lgc_tensor){
        .at = tensor->at,
        .n = tensor->n,
        .sparse_at = tensor->sparse_at,
        .k = tensor->k,
        .feedback_at = tensor->feedback_at,
        .clip = feedback->norm_max != NULL ? feedback->norm_max(tensor->feedback_params) : 0,
        .factor = feedback->planes > 0 ? (float)tensor->feedback_params[0] : 0,
        .planes = feedback->planes,
        .feedback = tg_part_id(&feedback->part),
        .role = (uint32_t)tensor->role,
        .dtype = (uint32_t)l->layout->tensors[t].dtype,
    };
}

/* Offsets of what tensors have in all, in order. */
static void lay_out(tg_gpu_lgc_tensor *tensors, const tg_lgc *l, uint64_t *leaf_n)
{
    uint64_t whole = 0, entries = 0, coded = 0, picked = l->size.coded_n, leaves = 0;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        tg_gpu_lgc_tensor *tensor = &tensors[t];
        *tensor = tensor_of(l, t);
        uint64_t *values = tensor->role == TG_GPU_LGC_CODED ? &coded : &picked;
        tensor->whole_at = whole;
        tensor->entry_at = entries;
        tensor->value_at = *values;
        tensor->leaf_at = leaves;
        whole += tensor->role == TG_GPU_LGC_WHOLE ? tensor->n : 0;
        entries += tensor->k;
        *values += tensor->k;
        leaves += (tensor->n + LEAF - 1) / LEAF;
    }
    *leaf_n = leaves;
}

static uint64_t tiles_of(uint64_t n)
{
    return (n + TG_GPU_LGC_TILE - 1) / TG_GPU_LGC_TILE;
}

/* Tiles of all tensors; of sparse ones alone, as segments, if `sparse`. `out` may be NULL, to count them. */
static uint32_t cut_tensors(tg_gpu_lgc_tile *out, const tg_lgc *l, bool sparse)
{
    uint32_t n = 0, segment = 0;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        bool is_in = !sparse || (tensor->role != TG_LGC_WHOLE && tensor->n > 0);
        for (uint64_t from = 0; is_in && from < tensor->n; from += TG_GPU_LGC_TILE, n++) {
            if (out != NULL) {
                out[n] = (tg_gpu_lgc_tile){.from = from, .of = sparse ? segment : (uint32_t)t};
            }
        }
        segment += is_in ? 1 : 0;
    }
    return n;
}

/* Which tensor each entry, or coded value, is of. */
static void name_entries(uint32_t *entry_tensor, uint32_t *coded_tensor, const tg_lgc *l)
{
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        for (uint64_t i = 0; i < l->tensors[t].k; i++) {
            *entry_tensor++ = (uint32_t)t;
            if (l->tensors[t].role == TG_LGC_CODED) {
                *coded_tensor++ = (uint32_t)t;
            }
        }
    }
}

static tg_status open_tensors(tg_gpu_lgc_run *r, tg_detail *why)
{
    const tg_lgc *l = r->lgc;
    const tg_allocator *a = &l->allocator;
    tg_gpu_lgc_tensor *tensors = NULL;
    tg_gpu_lgc_tile *tiles = NULL;
    uint32_t *names = NULL;
    uint64_t entry_n = l->size.coded_n + l->size.picked_n, leaf_n = 0;
    r->all.tensor_n = (uint32_t)l->layout->tensor_n;
    r->all.tile_n = cut_tensors(NULL, l, false);
    tg_status status = tg_acquire(&tensors, a, l->layout->tensor_n, sizeof *tensors, why);
    if (status == TG_OK) {
        lay_out(tensors, l, &leaf_n);
        status = upload(&r->tensors, r->gpu, tensors, l->layout->tensor_n * sizeof *tensors, why);
    }
    if (status == TG_OK) {
        status = tg_acquire(&tiles, a, r->all.tile_n, sizeof *tiles, why);
    }
    if (status == TG_OK) {
        (void)cut_tensors(tiles, l, false);
        status = upload(&r->tiles, r->gpu, tiles, r->all.tile_n * sizeof *tiles, why);
    }
    if (status == TG_OK) {
        status = tg_acquire(&names, a, entry_n + l->size.coded_n, sizeof *names, why);
    }
    if (status == TG_OK) {
        name_entries(names, names + entry_n, l);
        status = upload(&r->names, r->gpu, names, (entry_n + l->size.coded_n) * sizeof *names, why);
    }
    if (status == TG_OK) {
        status = tg_gpu_acquire(&r->all.leaves, r->gpu, (leaf_n + 1) * sizeof *r->all.leaves, why);
    }
    tg_release(a, names);
    tg_release(a, tiles);
    tg_release(a, tensors);
    return status;
}

/* ---- selections ------------------------------------------------------------------------------------------------------------ */

/* A selection of segments, which are in host memory. */
static tg_status open_selection(tg_gpu_lgc_selecting *s, tg_gpu_lgc_run *r, tg_gpu_lgc_segment *segments,
                                uint32_t segment_n, const tg_gpu_lgc_tile *tiles, tg_detail *why)
{
    const tg_gpu *gpu = r->gpu;
    uint32_t tile_n = 0;
    for (uint32_t i = 0; i < segment_n; i++) {
        segments[i].tile_first = tile_n;
        segments[i].tile_n = (uint32_t)tiles_of(segments[i].n);
        tile_n += segments[i].tile_n;
    }
    tg_gpu_lgc_selection *of = &s->selection;
    s->cell_len = (uint64_t)segment_n * TG_GPU_LGC_ROUNDS * TG_GPU_LGC_CELLS * sizeof *of->cells;
    of->segment_n = segment_n;
    of->tile_n = tile_n;
    TG_TRY(upload(&s->segments, gpu, segments, segment_n * sizeof *segments, why));
    TG_TRY(upload(&s->tiles, gpu, tiles, tile_n * sizeof *tiles, why));
    of->segments = s->segments;
    of->tiles = s->tiles;
    TG_TRY(tg_gpu_acquire(&of->cells, gpu, s->cell_len, why));
    TG_TRY(tg_gpu_acquire(&of->kth, gpu, segment_n * sizeof *of->kth, why));
    TG_TRY(tg_gpu_acquire(&of->rank, gpu, segment_n * sizeof *of->rank, why));
    TG_TRY(tg_gpu_acquire(&of->counts, gpu, 2 * (uint64_t)tile_n * sizeof *of->counts, why));
    return tg_gpu_acquire(&of->starts, gpu, 2 * (uint64_t)tile_n * sizeof *of->starts, why);
}

static void close_selection(const tg_gpu_lgc_selecting *s, const tg_gpu *gpu)
{
    void *const blocks[] = {s->selection.starts, s->selection.counts, s->selection.rank,
                            s->selection.kth,    s->selection.cells,  s->tiles,
                            s->segments};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        tg_gpu_release(gpu, blocks[i]);
    }
}

/* The largest magnitudes of each sparse tensor. */
static tg_status open_lead(tg_gpu_lgc_run *r, tg_detail *why)
{
    const tg_lgc *l = r->lgc;
    const tg_allocator *a = &l->allocator;
    tg_gpu_lgc_segment *segments = NULL;
    tg_gpu_lgc_tile *tiles = NULL;
    uint32_t n = 0;
    uint64_t entries = 0;
    TG_TRY(tg_acquire(&segments, a, l->layout->tensor_n, sizeof *segments, why));
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (tensor->role != TG_LGC_WHOLE && tensor->n > 0) {
            segments[n] = (tg_gpu_lgc_segment){.values = r->all.u + tensor->at,
                                               .n = tensor->n,
                                               .k = tensor->k,
                                               .entry_at = entries,
                                               .base = tensor->sparse_at};
            n++;
        }
        entries += tensor->k;
    }
    tg_status status = tg_acquire(&tiles, a, cut_tensors(NULL, l, true), sizeof *tiles, why);
    if (status == TG_OK) {
        (void)cut_tensors(tiles, l, true);
        status = open_selection(&r->lead, r, segments, n, tiles, why);
    }
    tg_release(a, tiles);
    tg_release(a, segments);
    return status;
}

/* The largest values of a sequence. */
static tg_status open_innovation(tg_gpu_lgc_run *r, tg_detail *why)
{
    const tg_lgc *l = r->lgc;
    tg_gpu_lgc_segment segment = {.values = r->sequence, .n = l->size.coded_n, .k = l->size.innovation_n};
    tg_gpu_lgc_tile *tiles = NULL;
    TG_TRY(tg_acquire(&tiles, &l->allocator, tiles_of(segment.n), sizeof *tiles, why));
    for (uint64_t i = 0; i < tiles_of(segment.n); i++) {
        tiles[i] = (tg_gpu_lgc_tile){.from = i * TG_GPU_LGC_TILE};
    }
    tg_status status = open_selection(&r->largest, r, &segment, 1, tiles, why);
    tg_release(&l->allocator, tiles);
    return status;
}

/* ---- masks and order -------------------------------------------------------------------------------------------------------- */

static uint64_t chunk_len(uint64_t n)
{
    return (TG_INDEX_HEADER + n / 8 + 1 + ALIGN) / ALIGN * ALIGN;
}

static tg_status open_chunks(tg_gpu_lgc_masking *m, tg_gpu_lgc_run *r, tg_detail *why)
{
    const tg_allocator *a = &r->lgc->allocator;
    uint64_t chunk_n = m->mask.chunk_n;
    tg_gpu_chunk *chunks = NULL;
    uint8_t **out = NULL;
    tg_status status = tg_acquire(&chunks, a, chunk_n, sizeof *chunks, why);
    if (status == TG_OK) {
        status = tg_acquire(&out, a, chunk_n, sizeof *out, why);
    }
    for (uint64_t i = 0; status == TG_OK && i < chunk_n; i++) {
        uint64_t at = i * TG_CHUNK, n = m->mask.n - at < TG_CHUNK ? m->mask.n - at : TG_CHUNK;
        chunks[i] = (tg_gpu_chunk){.at = at, .n = (uint32_t)n};
        out[i] = m->staging + i * chunk_len(TG_CHUNK);
    }
    if (status == TG_OK) {
        status = upload(&m->mask.chunks, r->gpu, chunks, chunk_n * sizeof *chunks, why);
    }
    if (status == TG_OK) {
        status = upload(&m->out, r->gpu, out, chunk_n * sizeof *out, why);
    }
    tg_release(a, out);
    tg_release(a, chunks);
    return status;
}

/* Coordinates below n, k of them. */
static tg_status open_mask(tg_gpu_lgc_masking *m, tg_gpu_lgc_run *r, uint64_t n, uint64_t k, tg_detail *why)
{
    const tg_gpu *gpu = r->gpu;
    uint64_t chunk_n = (n + TG_CHUNK - 1) / TG_CHUNK;
    const tg_gpu_unit unit = {.hi = n,
                              .route = TG_ROUTE_LEADER,
                              .coordinates = TG_AT_INDICES,
                              .index = TG_GPU_INDEX_GAPS,
                              .symbol = TG_GPU_RANS,
                              .header_len = TG_INDEX_HEADER};
    m->mask.n = n;
    m->mask.k = k;
    m->mask.chunk_n = (uint32_t)chunk_n;
    TG_TRY(tg_gpu_acquire(&m->staging, gpu, chunk_n * chunk_len(TG_CHUNK), why));
    TG_TRY(open_chunks(m, r, why));
    TG_TRY(upload(&m->unit, gpu, &unit, sizeof unit, why));
    TG_TRY(tg_gpu_acquire(&m->positions, gpu, (k + ALIGN) * sizeof *m->positions, why));
    TG_TRY(tg_gpu_acquire(&m->views, gpu, chunk_n * sizeof *m->views, why));
    TG_TRY(tg_gpu_acquire(&m->mask.offsets, gpu, (chunk_n + 1) * sizeof *m->mask.offsets, why));
    TG_TRY(tg_acquire(&m->patch_first, &r->lgc->allocator, chunk_n + 1, sizeof *m->patch_first, why));
    m->patch_first[chunk_n] = 1; /* there is something to read */
    m->mask.selection = (tg_gpu_selection){.patch_first = m->patch_first, .has_indices = 1};
    m->mask.pass = (tg_gpu_pass){.units = m->unit,
                                 .chunks = m->mask.chunks,
                                 .chunk_n = (uint32_t)chunk_n,
                                 .space = {.positions = m->positions, .views = m->views, .out = m->out},
                                 .verdict = r->chunk_verdict,
                                 .stream = gpu->stream};
    return TG_OK;
}

static void close_mask(const tg_gpu_lgc_masking *m, const tg_gpu_lgc_run *r)
{
    void *const blocks[] = {m->mask.offsets, m->views, m->positions, m->unit, m->out, m->mask.chunks, m->staging};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        tg_gpu_release(r->gpu, blocks[i]);
    }
    tg_release(&r->lgc->allocator, m->patch_first);
}

static tg_status open_order(tg_gpu_lgc_run *r, tg_detail *why)
{
    const tg_lgc *l = r->lgc;
    const tg_allocator *a = &l->allocator;
    size_t n = (size_t)l->size.coded_n, group_n = tg_ordering_groups(NULL, n);
    tg_ordering_group *groups = NULL;
    tg_gpu_lgc_digits *digits = NULL;
    tg_gpu_lgc_ordering *o = &r->ordering;
    tg_status status = tg_acquire(&groups, a, group_n, sizeof *groups, why);
    if (status == TG_OK) {
        status = tg_acquire(&digits, a, group_n, sizeof *digits, why);
    }
    if (status == TG_OK) {
        (void)tg_ordering_groups(groups, n);
        for (size_t i = 0; i < group_n; i++) {
            digits[i] = (tg_gpu_lgc_digits){
                .bit_at = groups[i].bit_at, .first = groups[i].first, .n = groups[i].n, .bits = groups[i].bits};
        }
        status = upload(&r->groups, r->gpu, digits, group_n * sizeof *digits, why);
    }
    tg_release(a, digits);
    tg_release(a, groups);
    TG_TRY(status);
    *o = (tg_gpu_lgc_ordering){.groups = r->groups, .group_n = (uint32_t)group_n, .n = n, .len = tg_ordering_len(n)};
    TG_TRY(tg_gpu_acquire(&o->keys, r->gpu, n * sizeof *o->keys, why));
    TG_TRY(tg_gpu_acquire(&o->digits, r->gpu, n * sizeof *o->digits, why));
    return tg_gpu_acquire(&o->words, r->gpu, (o->len + 3) / 4 * sizeof *o->words, why);
}

/* With order=index it never changes. */
static tg_status start_order(tg_gpu_lgc_run *r, tg_detail *why)
{
    const tg_lgc *l = r->lgc;
    uint32_t *order = NULL;
    TG_TRY(tg_acquire(&order, &l->allocator, l->size.coded_n, sizeof *order, why));
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        order[i] = (uint32_t)i;
    }
    tg_gpu_copy(r->gpu, r->all.order, order, l->size.coded_n * sizeof *order);
    tg_status status = tg_gpu_wait(r->gpu, why);
    tg_release(&l->allocator, order);
    return status;
}

/* ---- creation ---------------------------------------------------------------------------------------------------------------- */

static tg_status acquire(tg_gpu_lgc_run *r, tg_detail *why)
{
    const tg_lgc *l = r->lgc;
    const tg_gpu *gpu = r->gpu;
    const tg_lgc_size *size = &l->size;
    uint64_t entry_n = size->coded_n + size->picked_n, vector = size->n + size->code_n + size->coded_n,
             tensor_n = l->layout->tensor_n;
    tg_gpu_lgc *all = &r->all;
    TG_TRY(tg_gpu_acquire(&all->u, gpu, size->n * sizeof(float), why));
    TG_TRY(tg_gpu_acquire(&all->g, gpu, size->n * sizeof(float), why));
    TG_TRY(tg_gpu_acquire(&all->kept, gpu, (size->feedback_n + tensor_n) * sizeof(float), why));
    TG_TRY(tg_gpu_acquire(&all->clips, gpu, tensor_n * sizeof(float), why));
    TG_TRY(tg_gpu_acquire(&all->coordinates, gpu, entry_n * sizeof(uint64_t), why));
    TG_TRY(tg_gpu_acquire(&all->order, gpu, size->coded_n * sizeof(uint32_t), why));
    TG_TRY(tg_gpu_acquire(&all->verdict, gpu, sizeof *all->verdict, why));
    TG_TRY(tg_gpu_acquire(&r->chunk_verdict, gpu, sizeof *r->chunk_verdict, why));
    TG_TRY(tg_gpu_pin(&r->verdict_here, gpu, sizeof *r->verdict_here, why));
    TG_TRY(tg_gpu_acquire(&r->values, gpu, l->world * entry_n * sizeof(float), why));
    TG_TRY(tg_gpu_acquire(&r->sequences, gpu, l->world * size->coded_n * sizeof(float), why));
    TG_TRY(tg_gpu_acquire(&r->innovations, gpu, (l->is_server ? l->world * size->coded_n : 0) * sizeof(float), why));
    TG_TRY(tg_gpu_acquire(&r->sequence, gpu, size->coded_n * sizeof(float), why));
    TG_TRY(tg_gpu_acquire(&r->kept_at, gpu, size->innovation_n * sizeof(uint64_t), why));
    TG_TRY(tg_gpu_acquire(&r->code, gpu, size->code_n * sizeof(float), why));
    TG_TRY(tg_gpu_acquire(&r->means, gpu, entry_n * sizeof(float), why));
    TG_TRY(tg_gpu_acquire(&r->vector, gpu, vector * sizeof(float), why));
    TG_TRY(tg_gpu_acquire(&r->average, gpu, vector * sizeof(float), why));
    return tg_gpu_acquire(&r->bodies, gpu, l->world * sizeof *r->bodies, why);
}

static tg_status open_all(tg_gpu_lgc_run *r, tg_detail *why)
{
    tg_lgc *l = r->lgc;
    const tg_lgc_size *size = &l->size;
    TG_TRY(tg_gpu_learner_open(&r->learner, r->gpu, &l->config, l->world, l->layout->seed, KEPT_TAPES, &l->allocator,
                               why));
    TG_TRY(acquire(r, why));
    TG_TRY(open_tensors(r, why));
    TG_TRY(open_lead(r, why));
    TG_TRY(open_mask(&r->lead_mask, r, size->sparse_n, size->coded_n + size->picked_n, why));
    TG_TRY(open_order(r, why));
    if (l->is_server) {
        TG_TRY(open_innovation(r, why));
        TG_TRY(open_mask(&r->innovation_mask, r, size->coded_n, size->innovation_n, why));
    }
    TG_TRY(start_order(r, why));
    tg_gpu_lgc *all = &r->all;
    all->tensors = r->tensors;
    all->tiles = r->tiles;
    all->entry_n = size->coded_n + size->picked_n;
    all->entry_tensor = r->names;
    all->coded_tensor = r->names + all->entry_n;
    all->n = size->n;
    all->whole_n = size->whole_n;
    all->coded_n = size->coded_n;
    all->picked_n = size->picked_n;
    all->scales = all->kept + size->feedback_n;
    all->own = r->values + l->rank * all->entry_n;
    all->nonfinite = (uint8_t)l->nonfinite;
    all->stream = r->gpu->stream;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_feedback_part *feedback = l->tensors[t].feedback;
        r->clips = r->clips || (feedback->norm_max != NULL && feedback->norm_max(l->tensors[t].feedback_params) > 0);
    }
    uint64_t kept_n = size->feedback_n + l->layout->tensor_n;
    tg_gpu_fill(r->gpu, all->kept, 0, kept_n * sizeof(float));
    l->saved[0] = (tg_lgc_section){all->kept, kept_n};
    l->saved[1] = (tg_lgc_section){r->learner.weights, r->learner.weight_n};
    l->saved[2] = (tg_lgc_section){r->learner.moments, 2 * r->learner.weight_n};
    return tg_gpu_wait(r->gpu, why);
}

tg_status tg_gpu_lgc_open(tg_lgc *l, tg_detail *why)
{
    tg_gpu_lgc_run *r = NULL;
    TG_TRY(tg_acquire(&r, &l->allocator, 1, sizeof *r, why));
    l->own = r;
    r->lgc = l;
    r->gpu = l->run->gpu;
    tg_gpu_enter(r->gpu);
    return open_all(r, why);
}

void tg_gpu_lgc_close(tg_lgc *l)
{
    tg_gpu_lgc_run *r = l->own;
    if (r == NULL) {
        return;
    }
    const tg_gpu *gpu = r->gpu;
    tg_gpu_enter(gpu);
    tg_gpu_settle(l->run);
    close_mask(&r->innovation_mask, r);
    close_mask(&r->lead_mask, r);
    close_selection(&r->largest, gpu);
    close_selection(&r->lead, gpu);
    tg_gpu_unpin(gpu, r->verdict_here);
    void *const blocks[] = {r->bodies,         r->average,   r->vector,          r->means,         r->code,
                            r->kept_at,        r->sequence,  r->innovations,     r->sequences,     r->values,
                            r->chunk_verdict,  r->groups,    r->names,           r->tiles,         r->tensors,
                            r->all.verdict,    r->all.order, r->all.coordinates, r->all.clips,     r->all.kept,
                            r->all.g,          r->all.u,     r->all.leaves,      r->ordering.keys, r->ordering.words,
                            r->ordering.digits};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        tg_gpu_release(gpu, blocks[i]);
    }
    tg_gpu_learner_close(&r->learner);
    tg_release(&l->allocator, r);
}
