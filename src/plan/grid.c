/* Cuts units into groups and slices, and these into chunks. */
#include "plan/grid.h"

uint64_t tg_slice_start(uint64_t n, uint32_t s, uint32_t slices)
{
    uint64_t longer = n % slices; /* so many slices have one element more */
    return (uint64_t)s * (n / slices) + (s < longer ? s : longer);
}

static uint64_t count_chunks(const tg_layout *l, uint32_t slices)
{
    uint64_t count = 0;
    for (size_t u = 0; u < l->unit_n; u++) {
        for (uint32_t s = 0; s < slices; s++) {
            uint64_t n = tg_slice_start(l->units[u].n, s + 1, slices) - tg_slice_start(l->units[u].n, s, slices);
            count += (n + TG_CHUNK - 1) / TG_CHUNK;
        }
    }
    return count;
}

/* Sorts units by group. */
static void lay_units(tg_grid *g, const tg_layout *l)
{
    size_t count = 0;
    for (uint32_t group = 0; group < g->groups; group++) {
        g->unit_first[group] = count;
        for (size_t u = 0; u < l->unit_n; u++) {
            if (g->group_of[u] == group) {
                g->units[count++] = (uint32_t)u;
            }
        }
    }
    g->unit_first[g->groups] = count;
}

static void lay_chunks(tg_grid *g, const tg_layout *l)
{
    size_t count = 0;
    for (uint32_t cell = 0; cell < g->cells; cell++) {
        uint32_t group = cell / g->slices, s = cell % g->slices;
        g->first[cell] = count;
        for (size_t i = g->unit_first[group]; i < g->unit_first[group + 1]; i++) {
            uint64_t n = l->units[g->units[i]].n, hi = tg_slice_start(n, s + 1, g->slices);
            for (uint64_t at = tg_slice_start(n, s, g->slices); at < hi; at += TG_CHUNK) {
                uint64_t chunk_n = hi - at < TG_CHUNK ? hi - at : TG_CHUNK;
                g->chunks[count++] = (tg_chunk){.unit = g->units[i], .n = (uint32_t)chunk_n, .at = at};
            }
        }
    }
    g->first[g->cells] = count;
}

static tg_status acquire_all(tg_grid *g, const tg_layout *l, const tg_allocator *a, tg_detail *why)
{
    uint64_t chunks = count_chunks(l, g->slices) + 1; /* + 1: never NULL */
    TG_TRY(tg_acquire(&g->first, a, (uint64_t)g->cells + 1, sizeof *g->first, why));
    TG_TRY(tg_acquire(&g->unit_first, a, (uint64_t)g->groups + 1, sizeof *g->unit_first, why));
    TG_TRY(tg_acquire(&g->group_of, a, l->unit_n, sizeof *g->group_of, why));
    TG_TRY(tg_acquire(&g->units, a, l->unit_n, sizeof *g->units, why));
    return tg_acquire(&g->chunks, a, chunks, sizeof *g->chunks, why);
}

tg_status tg_grid_new(tg_grid **out, const tg_layout *layout, uint32_t slices, const tg_groups *groups,
                      const tg_allocator *a, tg_detail *why)
{
    tg_grid *g = NULL;
    TG_TRY(tg_acquire(&g, a, 1, sizeof *g, why));
    g->slices = slices;
    g->groups = groups->of == NULL ? 1 : groups->n;
    g->cells = g->slices * g->groups;
    tg_status status = acquire_all(g, layout, a, why);
    if (status != TG_OK) {
        tg_grid_free(g, a);
        return status;
    }
    for (size_t u = 0; u < layout->unit_n; u++) {
        g->group_of[u] = groups->of == NULL ? 0 : groups->of[u];
    }
    lay_units(g, layout);
    lay_chunks(g, layout);
    *out = g;
    return TG_OK;
}

void tg_grid_free(tg_grid *g, const tg_allocator *a)
{
    if (g != NULL) {
        tg_release(a, g->chunks);
        tg_release(a, g->units);
        tg_release(a, g->group_of);
        tg_release(a, g->unit_first);
        tg_release(a, g->first);
        tg_release(a, g);
    }
}
