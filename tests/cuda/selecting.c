/* See selecting.h. */
#include "cuda/selecting.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* tables.c; its header has another tg_run. */
void tg_gpu_unit_of(tg_gpu_unit *out, const tg_unit_plan *unit, uint32_t piece_first);
void tg_gpu_fill_pieces(tg_gpu_piece *out, const tg_layout *layout);
void tg_gpu_fill_chunks(tg_gpu_chunk *out, const tg_plan *plan);
uint32_t tg_gpu_fill_tiles(tg_gpu_tile *out, uint32_t *first, const tg_plan *plan);

/* ---- a plan on both sides ------------------------------------------------------------------------------------------------- */

void *test_space(uint64_t len)
{
    void *block = calloc(1, len + 64);
    assert_non_null(block);
    memset(block, 0xa5, len + 64);
    return block;
}

static void open_tables(test_gpu *d, const tg_plan *plan)
{
    const tg_layout *l = plan->layout;
    uint32_t piece = 0;
    d->chunk_n = (uint32_t)plan->grid->first[plan->grid->cells];
    d->units = test_space(l->unit_n * sizeof *d->units);
    d->pieces = test_space(l->tensor_n * sizeof *d->pieces);
    d->chunks = test_space(d->chunk_n * sizeof *d->chunks);
    d->tile_first = test_space((d->chunk_n + 1) * sizeof *d->tile_first);
    for (size_t i = 0; i < l->unit_n; i++) {
        tg_gpu_unit_of(&d->units[i], &plan->units[i], piece);
        piece += (uint32_t)l->units[i].piece_n;
        assert_null(tg_gpu_select_lacks(&d->units[i]));
    }
    tg_gpu_fill_pieces(d->pieces, l);
    tg_gpu_fill_chunks(d->chunks, plan);
    d->tiles = test_space(tg_gpu_fill_tiles(NULL, d->tile_first, plan) * sizeof *d->tiles);
    (void)tg_gpu_fill_tiles(d->tiles, d->tile_first, plan);
}

static void open_selection(test_gpu *d, const tg_plan *plan, const tg_gpu_selection *parent)
{
    const tg_gpu_tables t = {d->units, d->pieces, d->chunks, (uint32_t)plan->layout->unit_n, d->chunk_n};
    tg_gpu_selection_lens lens = tg_gpu_selection_measure(&t, parent);
    d->host_part = test_space(lens.host);
    d->device_part = test_space(lens.device);
    memset(d->device_part, 0, lens.device);
    tg_gpu_selection_set_up(&d->selection, d->host_part, d->device_part, &t, parent);
    memcpy(d->device_part, d->host_part, lens.copied);
}

test_gpu test_gpu_open(const tg_codec *c)
{
    test_gpu d = {0};
    const tg_plan *plan = c->plan;
    uint64_t n = plan->layout->element_n, len = 0;
    open_tables(&d, plan);
    open_selection(&d, plan, NULL);
    for (uint32_t i = 0; i < d.chunk_n; i++) {
        len += tg_chunk_bound(plan, &plan->grid->chunks[i]) + 3;
    }
    d.maxima = test_space(n * sizeof *d.maxima);
    d.next = test_space(plan->residual_n * sizeof *d.next);
    d.bytes = test_space(len + 64);
    tg_gpu_space s = {.symbols = test_space(2 * n),
                      .values = test_space(n * sizeof *s.values),
                      .positions = test_space(n * sizeof *s.positions),
                      .strip_places = test_space(n * sizeof *s.strip_places),
                      .strip_values = test_space(n * sizeof *s.strip_values),
                      .words = test_space(4 * n),
                      .views = test_space(d.chunk_n * sizeof *s.views),
                      .out = test_space(d.chunk_n * sizeof *s.out),
                      .scales = test_space(plan->layout->unit_n * sizeof *s.scales),
                      .clips = test_space(plan->layout->unit_n * sizeof *s.clips)};
    for (size_t i = 0; i < plan->layout->unit_n; i++) {
        s.clips[i] = 1.0f;
    }
    uint8_t *at = d.bytes + 9; /* chunks stand at any address */
    for (uint32_t i = 0; i < d.chunk_n; i++) {
        s.out[i] = at;
        at += tg_chunk_bound(plan, &plan->grid->chunks[i]) + i % 3;
    }
    d.pass = (tg_gpu_pass){.units = d.units,
                           .pieces = d.pieces,
                           .chunks = d.chunks,
                           .chunk_n = d.chunk_n,
                           .tiles = d.tiles,
                           .tile_n = d.tile_first[d.chunk_n],
                           .next = d.next,
                           .space = s,
                           .seed = plan->layout->seed,
                           .rank = plan->rank,
                           .nonfinite = (uint8_t)plan->nonfinite,
                           .has_values = (plan->holds & TG_HAS_VALUES) != 0};
    return d;
}

void test_gpu_close(test_gpu *d)
{
    const tg_gpu_space *s = &d->pass.space;
    void *const blocks[] = {d->units,     d->pieces,      d->chunks,       d->tiles,       d->tile_first,
                            d->host_part, d->device_part, d->maxima,       d->next,        d->bytes,
                            s->symbols,   s->values,      s->positions,    s->words,       s->views,
                            s->out,       s->clips,       s->strip_places, s->strip_values, s->scales};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        free(blocks[i]);
    }
}

/* ---- one step ------------------------------------------------------------------------------------------------------------- */

/* The symbols of `sign`, packed: the part of other kernels. */
static void write_signs(const test_gpu *d)
{
    for (uint32_t i = 0; i < d->chunk_n; i++) {
        const tg_gpu_chunk *chunk = &d->chunks[i];
        const tg_gpu_unit *u = &d->units[chunk->unit];
        tg_view *v = &d->pass.space.views[i];
        uint8_t *symbols = d->pass.space.symbols + 2 * chunk->element_at;
        if (u->quantize != TG_GPU_SIGN || v->count == 0 || !d->pass.has_values) {
            continue;
        }
        uint16_t *wide = test_space(v->count * sizeof *wide);
        for (uint32_t j = 0; j < v->count; j++) {
            symbols[j] = signbit(d->pass.space.values[chunk->element_at + j]) ? 1 : 0;
            wide[j] = symbols[j];
        }
        tg_bits_write(d->pass.space.out[i] + v->symbols, wide, v->count, 2);
        v->indices = v->symbols + tg_bits_len(v->count, 2);
        free(wide);
    }
}

uint32_t test_gpu_encode(test_gpu *d, const tg_codec *c, uint64_t step, const tg_source *source)
{
    tg_gpu_pass *p = &d->pass;
    uint32_t again_n = 0;
    p->grads = source->grads;
    p->flat = source->flat;
    p->now = c->run->residuals.now;
    p->step = step;
    p->verdict = &d->verdict;
    if (d->selection.drawn_n > 0) {
        tg_gpu_draw_coordinates(p, &d->selection, 1);
    }
    tg_gpu_count_known(p, &d->selection);
    do {
        memset(&d->verdict, 0, sizeof d->verdict);
        tg_gpu_select_sparse(p, &d->selection, d->maxima);
        again_n += d->verdict.again;
    } while (tg_gpu_select_again(&d->selection, d->verdict.again));
    write_signs(d);
    tg_gpu_write_indices(p);
    return again_n;
}

static bool same_view(const tg_view *a, const tg_view *b)
{
    return a->side == b->side && a->symbols == b->symbols && a->indices == b->indices && a->count == b->count &&
           a->index_len == b->index_len && a->mode == b->mode && a->is_listed == b->is_listed &&
           a->is_joint == b->is_joint;
}

bool test_gpu_lists_scale(const tg_unit_plan *u)
{
    return u->route == TG_ROUTE_BINS && u->format.scale == TG_SCALE_BINS;
}

/* A chunk is as the host wrote it, but for a scale that other kernels write. */
void test_gpu_compare_chunk(const test_gpu *d, const tg_codec *c, uint32_t i, const char *what)
{
    const tg_written *expected = &c->run->work->written[i];
    const tg_view *v = &d->pass.space.views[i], *e = &expected->as.view;
    const uint8_t *out = d->pass.space.out[i];
    uint64_t end = e->indices + e->index_len;
    uint64_t from = test_gpu_lists_scale(&c->plan->units[d->chunks[i].unit]) ? e->side : e->symbols;
    if (!same_view(v, e)) {
        fail_msg("%s: chunk %u has count %u mode %u length %u at %llu, not count %u mode %u length %u at %llu", what, i,
                 v->count, v->mode, v->index_len, (unsigned long long)v->indices, e->count, e->mode, e->index_len,
                 (unsigned long long)e->indices);
    }
    if (memcmp(out + from, expected->bytes + from, end - from) != 0) {
        fail_msg("%s: chunk %u has other bytes", what, i);
    }
}

void test_gpu_compare_residuals(const test_gpu *d, const tg_codec *c, const char *what)
{
    const float *next = c->run->residuals.next;
    for (uint64_t i = 0; i < c->plan->residual_n; i++) {
        if (memcmp(&next[i], &d->next[i], sizeof *next) != 0) {
            fail_msg("%s: residual %llu is %a, not %a", what, (unsigned long long)i, (double)d->next[i],
                     (double)next[i]);
        }
    }
}

/* Coordinates that are read again are those that were written, also where another rank has drawn its own. */
void test_gpu_read_back(test_gpu *d, const tg_codec *c, const char *what)
{
    uint64_t n = c->layout->element_n;
    uint32_t *written = test_space(n * sizeof *written);
    uint8_t *symbols = test_space(2 * n);
    memcpy(written, d->pass.space.positions, n * sizeof *written);
    memcpy(symbols, d->pass.space.symbols, 2 * n);
    memset(d->pass.space.positions, 0xee, n * sizeof *written);
    memset(d->pass.space.symbols, 0xee, 2 * n);
    for (uint32_t i = 0; i < d->chunk_n; i++) {
        tg_view *v = &d->pass.space.views[i];
        v->symbols += (uint64_t)(d->pass.space.out[i] - d->bytes);
        v->indices += (uint64_t)(d->pass.space.out[i] - d->bytes);
    }
    d->pass.rank++;
    tg_gpu_draw_coordinates(&d->pass, &d->selection, 1);
    tg_gpu_count_known(&d->pass, &d->selection);
    tg_gpu_read_indices(&d->pass, d->bytes, &d->selection);
    d->pass.rank--;
    for (uint32_t i = 0; i < d->chunk_n; i++) {
        const tg_gpu_chunk *chunk = &d->chunks[i];
        const tg_view *v = &d->pass.space.views[i];
        if (memcmp(written + chunk->element_at, d->pass.space.positions + chunk->element_at,
                   v->count * sizeof *written) != 0) {
            fail_msg("%s: coordinates of chunk %u are read as others", what, i);
        }
        if (v->is_joint &&
            memcmp(symbols + 2 * chunk->element_at, d->pass.space.symbols + 2 * chunk->element_at, v->count) != 0) {
            fail_msg("%s: symbols of chunk %u are read as others", what, i);
        }
    }
    assert_int_equal(d->verdict.bad_chunk, 0);
    free(written);
    free(symbols);
}
