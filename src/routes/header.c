/* Headers of chunks. Trusts nothing that it reads. */
#include "routes/header.h"

#include "base/fields.h"

void tg_header_put(uint8_t *out, const tg_unit_plan *u, const tg_view *v)
{
    uint8_t *end = out + u->header_len;
    if (u->coordinates == TG_AT_INDICES) {
        tg_put_field(out, 4, v->count | (uint32_t)v->mode << 24);
        tg_put_field(out + 4, 2, v->index_len);
        out += TG_INDEX_HEADER;
    }
    if (out < end) {
        tg_put_field(out, TG_CODED_HEADER, v->indices - v->symbols);
    }
}

/* Count, mode and length of explicit indices. */
static bool get_indices(tg_view *v, const uint8_t *header, const tg_unit_plan *u, uint32_t n)
{
    v->count = (uint32_t)tg_get_field(header, 3);
    v->mode = header[3];
    v->index_len = (uint16_t)tg_get_field(header + 4, 2);
    v->is_joint = v->mode == TG_MODE_ADACOMP8 || v->mode == TG_MODE_ADACOMP16;
    v->is_listed = v->count <= TG_BIN_MAX && v->mode <= TG_MODE_RICE_MAX && u->stages.index->list != NULL;
    return v->count <= n && (v->count > 0 || (v->mode == 0 && v->index_len == 0));
}

bool tg_header_get(tg_view *v, const uint8_t *header, const tg_plan *plan, const tg_chunk *chunk, uint32_t known_n,
                   uint64_t start)
{
    const tg_unit_plan *u = &plan->units[chunk->unit];
    const tg_format *f = &u->format;
    *v = (tg_view){.start = start, .side = start, .symbols = start, .indices = start};
    if (u->route == TG_ROUTE_NONE) {
        return true;
    }
    v->count = u->coordinates == TG_AT_EVERY ? chunk->n : known_n;
    if (u->coordinates == TG_AT_INDICES) {
        if (!get_indices(v, header, u, chunk->n)) {
            return false;
        }
        header += TG_INDEX_HEADER;
    }
    if ((plan->holds & TG_HAS_VALUES) != 0) {
        uint64_t symbols_len = v->is_joint ? 0 : tg_symbols_len(f, v->count); /* of coded ones the most */
        if (f->coded) {
            uint64_t coded_len = tg_get_field(header, TG_CODED_HEADER);
            if (coded_len > symbols_len) {
                return false;
            }
            symbols_len = coded_len;
        }
        v->symbols += tg_side_len(f, v->count);
        v->indices = v->symbols + symbols_len;
    }
    v->len = (uint32_t)(v->indices + v->index_len - start);
    return true;
}
