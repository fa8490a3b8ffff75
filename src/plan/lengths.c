/* How long chunks and bodies can become: what a writer needs space for, and what a reader must expect. */
#include "plan/plan.h"

uint64_t tg_side_len(const tg_format *f, uint64_t count)
{
    if (f->plain_len != 0 || count == 0) {
        return 0;
    }
    return f->head_len + (f->bucket_n == 0 ? 1 : (count + f->bucket_n - 1) / f->bucket_n) * f->side_len;
}

uint64_t tg_symbols_len(const tg_format *f, uint64_t count)
{
    uint64_t form_len = count > 0 && f->coded ? 1 : 0;
    return (f->plain_len != 0 ? count * f->plain_len : tg_bits_len(count, f->base)) + form_len;
}

static uint64_t values_len(const tg_format *f, uint64_t count)
{
    return tg_side_len(f, count) + tg_symbols_len(f, count);
}

uint64_t tg_chunk_bound(const tg_plan *plan, const tg_chunk *chunk)
{
    const tg_unit_plan *u = &plan->units[chunk->unit];
    if (u->route == TG_ROUTE_NONE) {
        return 0;
    }
    /* A selection from the domain's values is bounded by the domain; drawn coordinates and the leader's may all fall into one slice. */
    bool from_domain = u->stages.select->by == TG_BY_DATA && !tg_recipe_follows_leader(u->unit->recipe);
    uint64_t most = u->stages.select->most(u->stages.select_params, from_domain ? u->hi - u->lo : u->unit->n);
    uint64_t count = most < chunk->n ? most : chunk->n;
    uint64_t len = (plan->holds & TG_HAS_VALUES) != 0 ? values_len(&u->format, count) : 0;
    uint64_t index_len = u->coordinates == TG_AT_INDICES ? tg_bitmap_len(chunk->n) : 0;
    return len + index_len;
}

uint64_t tg_body_bound(const tg_plan *plan, uint32_t cell)
{
    const tg_grid *grid = plan->grid;
    uint64_t len = plan->headers_len[cell];
    for (size_t i = grid->first[cell]; i < grid->first[cell + 1]; i++) {
        len += tg_chunk_bound(plan, &grid->chunks[i]);
    }
    return len;
}

bool tg_chunk_len(uint64_t *len, const tg_plan *plan, size_t i, const uint32_t *known_n)
{
    const tg_chunk *chunk = &plan->grid->chunks[i];
    const tg_unit_plan *u = &plan->units[chunk->unit];
    *len = 0;
    if (u->route == TG_ROUTE_NONE) {
        return true;
    }
    if (u->format.coded || (u->coordinates != TG_AT_EVERY && u->coordinates != TG_AT_DRAWN)) {
        return false;
    }
    *len = values_len(&u->format, u->coordinates == TG_AT_EVERY ? chunk->n : known_n[i]);
    return true;
}

bool tg_body_len(uint64_t *len, const tg_plan *plan, uint32_t cell, const uint32_t *known_n)
{
    const tg_grid *grid = plan->grid;
    uint64_t chunk_len = 0;
    *len = 0;
    for (size_t i = grid->first[cell]; i < grid->first[cell + 1]; i++) {
        if (!tg_chunk_len(&chunk_len, plan, i, known_n)) {
            return false;
        }
        *len += chunk_len;
    }
    return true;
}

uint64_t tg_body_limit(const tg_plan *plan, uint32_t cell)
{
    const tg_grid *grid = plan->grid;
    uint32_t slices = grid->slices, group = cell / slices, slice = cell % slices;
    uint64_t len = plan->headers_len[cell];
    for (size_t i = grid->unit_first[group]; i < grid->unit_first[group + 1]; i++) {
        const tg_unit_plan *u = &plan->units[grid->units[i]];
        uint64_t n = tg_slice_start(u->unit->n, slice + 1, slices) - tg_slice_start(u->unit->n, slice, slices);
        if (n == 0 || u->route == TG_ROUTE_NONE) {
            continue;
        }
        uint64_t most = u->stages.select->most(u->stages.select_params, u->unit->n);
        uint64_t count = most < n ? most : n;
        uint64_t chunks = (n + TG_CHUNK - 1) / TG_CHUNK;
        if ((plan->holds & TG_HAS_VALUES) != 0) {
            /* Each chunk's last bucket may be short, and its symbols are rounded up to bytes. */
            len += values_len(&u->format, count) + (chunks - 1) * (values_len(&u->format, 1) + 8);
        }
        if (u->coordinates == TG_AT_INDICES) {
            len += chunks + u->stages.index->limit(n, count); /* each chunk's indices are rounded up to a byte */
        }
    }
    return len;
}

uint64_t tg_body_least(const tg_layout *l)
{
    uint64_t len = 0;
    for (size_t i = 0; i < l->unit_n; i++) {
        const tg_recipe *recipe = l->units[i].recipe;
        const tg_select_part *select = tg_recipe_select(recipe);
        const double *params = recipe->value[TG_STAGE_select];
        uint64_t n = l->units[i].n;
        bool drawn = select->by == TG_BY_SEED && params[TG_SELECT_COORDS] == TG_COORDS_SHARED;
        tg_format f = tg_recipe_format(recipe);
        uint64_t chunks = (n + TG_CHUNK - 1) / TG_CHUNK;
        len += f.coded ? chunks * TG_CODED_HEADER : 0;
        if (!drawn && select->by != TG_BY_NOTHING) {
            len += chunks * TG_INDEX_HEADER;
            continue;
        }
        uint64_t count = drawn ? select->most(params, n) : n;
        if (!f.coded) {
            len += values_len(&f, count);
        } else if (count > 0) {
            len += tg_side_len(&f, count) + (drawn ? 1 : chunks); /* a form in each that surely has values */
        }
    }
    return len;
}
