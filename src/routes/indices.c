/* Coordinates of a chunk: explicit indices as bytes and back, and coordinates that ranks know without them. */
#include "base/bits.h"
#include "base/bytes.h"
#include "routes/route.h"

#include <string.h>

void tg_mark_known(uint64_t *mask, const tg_unit_plan *u, const tg_unit_work *work, uint64_t at, size_t n)
{
    memset(mask, 0, tg_words(n) * sizeof *mask);
    if (u->coordinates == TG_AT_LEADER) {
        tg_mask_extract(mask, work->leader, at, n);
    } else {
        u->stages.select->mark(mask, work->select, u->stages.select_params, at, NULL, n);
    }
}

void tg_write_indices(tg_encoding *e, const uint64_t *mask, const uint32_t *list)
{
    const tg_stages *s = &e->unit->stages;
    tg_view *v = &e->view;
    uint8_t *symbols = e->out + v->symbols;
    if (s->index->cell_max != 0 && v->indices > v->symbols) {
        size_t len = s->index->write_joint(symbols, &v->mode, mask, e->scratch->chunk->symbols, e->chunk->n, v->count,
                                           e->unit->format.bin);
        if (len > 0) {
            v->indices = v->symbols;
            v->index_len = (uint16_t)len;
            return;
        }
    }
    v->index_len = (uint16_t)s->index_write(e->out + v->indices, &v->mode, mask, list, e->chunk->n, v->count);
}

void tg_write_chunk_header(tg_encoding *e)
{
    const tg_view *v = &e->view;
    size_t len = tg_chunk_header_len(e->plan, e->unit, v->count);
    size_t explicit_len = e->unit->coordinates == TG_AT_INDICES ? TG_CHUNK_HEADER : 0;
    if (explicit_len > 0) {
        tg_put32(e->out, v->count | (uint32_t)v->mode << 24);
        tg_put16(e->out + 4, v->index_len);
    }
    if (len > explicit_len) {
        tg_put32(e->out + explicit_len, (uint32_t)(v->indices - v->symbols));
    }
}

bool tg_is_listed(const tg_unit_plan *u, const tg_view *view)
{
    return u->coordinates == TG_AT_INDICES && view->count <= TG_BIN_MAX && view->mode <= TG_MODE_RICE_MAX &&
           u->stages.index->list != NULL;
}

bool tg_read_indices(const tg_decoding *d, uint32_t *list)
{
    const tg_stages *s = &d->unit->stages;
    const tg_view *v = d->view;
    const uint8_t *bytes = d->body + v->indices;
    uint64_t *mask = d->scratch->mask;
    if (tg_is_listed(d->unit, v)) {
        return s->index->list(list, v->mode, bytes, v->index_len, d->chunk->n, v->count);
    }
    if (tg_mode_is_joint(v->mode)) {
        return s->index->read_joint != NULL && d->unit->route != TG_ROUTE_LEADER &&
               s->index->read_joint(mask, d->scratch->chunk->symbols, v->mode, bytes, v->index_len, d->chunk->n,
                                    v->count, d->unit->format.bin);
    }
    return s->index_read(mask, v->mode, bytes, v->index_len, d->chunk->n, v->count);
}
