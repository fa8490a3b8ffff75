/* Decodes sparse chunks: coordinates as a list or as a mask, values, and where they go. Checking trusts nothing, and reading
 * checks again, but for coordinates that the check has kept. */
#include "base/bits.h"
#include "routes/sparse.h"

#include <string.h>

/* ---- coordinates ------------------------------------------------------------------------------------------------------- */

void tg_mark_known(uint64_t *mask, const tg_unit_plan *u, const tg_unit_work *work, uint64_t at, size_t n)
{
    memset(mask, 0, (n + 63) / 64 * sizeof *mask);
    if (u->coordinates == TG_AT_LEADER) {
        tg_mask_extract(mask, work->leader, at, n);
    } else {
        u->stages.select->mark(mask, work->select, u->stages.select_params, at, NULL, n);
    }
}

bool tg_read_indices(const tg_decoding *d, uint32_t *list)
{
    const tg_stages *s = &d->unit->stages;
    const tg_view *v = d->view;
    const uint8_t *bytes = d->body + v->indices;
    uint64_t *mask = d->scratch->mask;
    if (v->is_listed) {
        return s->index->list(list, v->mode, bytes, v->index_len, d->chunk->n, v->count);
    }
    if (v->is_joint) {
        return s->index->read_joint != NULL && d->unit->route != TG_ROUTE_LEADER &&
               s->index->read_joint(mask, d->scratch->chunk->symbols, v->mode, bytes, v->index_len, d->chunk->n,
                                    v->count, d->unit->format.bin);
    }
    return s->index_read(mask, v->mode, bytes, v->index_len, d->chunk->n, v->count);
}

/* ---- values -------------------------------------------------------------------------------------------------------------- */

/* The same, to where coordinates are kept. */
static bool read_kept(const tg_decoding *d)
{
    const tg_stages *s = &d->unit->stages;
    const tg_view *v = d->view;
    const uint8_t *bytes = d->body + v->indices;
    if (tg_is_kept_as_list(v, d->chunk->n)) {
        return s->index->list((uint32_t *)(void *)d->kept, v->mode, bytes, v->index_len, d->chunk->n, v->count);
    }
    return s->index_read(d->kept, v->mode, bytes, v->index_len, d->chunk->n, v->count);
}

bool tg_sparse_check(const tg_decoding *d)
{
    const tg_view *v = d->view;
    const tg_format *f = &d->unit->format;
    if (v->count == 0) {
        return true;
    }
    bool keeps = d->kept != NULL && !v->is_joint;
    if (d->unit->coordinates == TG_AT_INDICES && !(keeps ? read_kept(d) : tg_read_indices(d, d->scratch->list))) {
        return false;
    }
    if (v->is_joint) {
        return true; /* symbols were read with the indices */
    }
    if (f->coded) {
        return tg_check_symbols(d);
    }
    return f->plain_len != 0 || tg_bits_check(d->body + v->symbols, v->count, f->base);
}

/* Values `at` to at + n of a chunk, at most TG_BIN_MAX, whose symbols or words are in scratch or plain in the body. */
static const float *values_from(const tg_decoding *d, uint64_t at, size_t n)
{
    const tg_format *f = &d->unit->format;
    float *values = d->scratch->values;
    if (f->plain_len != 0) {
        const uint8_t *bytes = f->coded ? d->scratch->chunk->words : d->body + d->view->symbols;
        d->unit->stages.quantize->read(values, bytes + at * f->plain_len, n);
    } else {
        tg_decode_buckets(values, d->scratch->chunk->symbols + at, d->body + d->view->side, d->unit, d->view->count, at,
                          n);
    }
    return values;
}

/* Coordinates of a chunk: a list, or, where that is NULL, a mask. */
typedef struct coordinates {
    const uint32_t *list;
    const uint64_t *mask;
} coordinates;

/* False: they are damaged. */
static bool find_coordinates(coordinates *out, const tg_decoding *d)
{
    const tg_view *v = d->view;
    *out = (coordinates){.mask = d->scratch->mask};
    if (d->unit->coordinates != TG_AT_INDICES) {
        tg_mark_known(d->scratch->mask, d->unit, d->work, d->chunk->at, d->chunk->n);
    } else if (d->kept != NULL && !v->is_joint) {
        out->list = tg_is_kept_as_list(v, d->chunk->n) ? (const uint32_t *)(const void *)d->kept : NULL;
        out->mask = d->kept;
    } else {
        out->list = v->is_listed ? d->scratch->list : NULL;
        return tg_read_indices(d, d->scratch->list);
    }
    return true;
}

/* Reads coordinates and symbols of a chunk. False: they are damaged. */
static bool read_chunk(coordinates *out, const tg_decoding *d)
{
    const tg_view *v = d->view;
    const tg_format *f = &d->unit->format;
    if (!find_coordinates(out, d)) {
        return false;
    }
    if (v->is_joint) {
        return true; /* symbols were read with the indices */
    }
    if (f->coded) {
        return tg_read_symbols(d);
    }
    return f->plain_len != 0 || tg_bits_read(d->scratch->chunk->symbols, d->body + v->symbols, v->count, f->base);
}

typedef void use_block(float *out, const uint64_t *mask, const float *values, float weight, size_t n);

static void set_block(float *out, const uint64_t *mask, const float *values, float weight, size_t n)
{
    (void)weight;
    tg_expand_set(out, mask, values, n);
}

/* Marked coordinates, block by block. */
static void unpack_marked(float *out, const tg_decoding *d, const uint64_t *marks, float weight, use_block *use)
{
    uint64_t at = 0;
    for (uint32_t done = 0; done < d->chunk->n; done += TG_BLOCK) {
        size_t n = d->chunk->n - done < TG_BLOCK ? d->chunk->n - done : TG_BLOCK;
        const uint64_t *mask = marks + done / 64;
        size_t count = (size_t)tg_mask_count(mask, n);
        if (count > 0) {
            use(out + done, mask, values_from(d, at, count), weight, n);
            at += count;
        }
    }
}

bool tg_sparse_add(float *out, const tg_decoding *d, float weight)
{
    coordinates at;
    if (d->view->count == 0) {
        return true;
    }
    if (!read_chunk(&at, d)) {
        return false;
    }
    if (at.list != NULL) {
        tg_scatter_add(out, at.list, values_from(d, 0, d->view->count), weight, d->view->count);
    } else {
        unpack_marked(out, d, at.mask, weight, tg_expand_add);
    }
    return true;
}

bool tg_sparse_set(float *out, const tg_decoding *d)
{
    coordinates at;
    if (d->view->count == 0) {
        return true;
    }
    if (!read_chunk(&at, d)) {
        return false;
    }
    if (at.list != NULL) {
        tg_scatter_set(out, at.list, values_from(d, 0, d->view->count), d->view->count);
    } else {
        unpack_marked(out, d, at.mask, 1.0f, set_block);
    }
    return true;
}
