/* Cuts units into slices and slices into chunks. */
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

static void lay_chunks(tg_grid *g, const tg_layout *l)
{
    size_t count = 0;
    for (uint32_t s = 0; s < g->slices; s++) {
        g->first[s] = count;
        for (size_t u = 0; u < l->unit_n; u++) {
            uint64_t hi = tg_slice_start(l->units[u].n, s + 1, g->slices);
            for (uint64_t at = tg_slice_start(l->units[u].n, s, g->slices); at < hi; at += TG_CHUNK) {
                uint64_t n = hi - at < TG_CHUNK ? hi - at : TG_CHUNK;
                g->chunks[count++] = (tg_chunk){.unit = (uint32_t)u, .n = (uint32_t)n, .at = at};
            }
        }
    }
    g->first[g->slices] = count;
}

tg_status tg_grid_new(tg_grid **out, const tg_layout *layout, uint32_t slices, const tg_allocator *a, tg_detail *why)
{
    tg_grid *g = NULL;
    TG_TRY(tg_acquire(&g, a, 1, sizeof *g, why));
    g->slices = slices;
    tg_status status = tg_acquire(&g->first, a, (uint64_t)slices + 1, sizeof *g->first, why);
    if (status == TG_OK) {
        uint64_t count = count_chunks(layout, slices) + 1; /* + 1: never NULL */
        status = tg_acquire(&g->chunks, a, count, sizeof *g->chunks, why);
    }
    if (status != TG_OK) {
        tg_grid_free(g, a);
        return status;
    }
    lay_chunks(g, layout);
    *out = g;
    return TG_OK;
}

void tg_grid_free(tg_grid *g, const tg_allocator *a)
{
    if (g != NULL) {
        tg_release(a, g->chunks);
        tg_release(a, g->first);
        tg_release(a, g);
    }
}
