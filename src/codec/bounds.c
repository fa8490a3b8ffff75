/* How long bodies can become: what a writer needs room for, and what a reader must expect. */
#include "codec/codec.h"

uint64_t tg_chunk_bound(const tg_codec *c, const tg_chunk *chunk, unsigned holds)
{
    if (!tg_codec_carries(c, chunk->unit, holds)) {
        return 0;
    }
    const tg_unit *unit = &c->layout->units[chunk->unit];
    const tg_select_part *select = tg_recipe_select(unit->recipe);
    /* What is chosen in the domain alone is bounded by it; what is drawn or led may all fall into one slice. */
    bool chosen_here = select->by == TG_BY_DATA && !tg_recipe_is_led(unit->recipe);
    uint64_t n = chosen_here ? c->works[chunk->unit].hi - c->works[chunk->unit].lo : unit->n;
    uint64_t most = select->most(unit->recipe->value[TG_STAGE_select], n);
    uint64_t count = most < chunk->n ? most : chunk->n;
    uint64_t len = 0;
    if ((holds & TG_HAS_VALUES) != 0) {
        len += tg_values_len(unit->recipe, count);
    }
    bool told = tg_codec_known(c, chunk->unit, holds) == TG_KNOWN_TOLD;
    return len + tg_header_len(unit->recipe, told, holds, count) + (told ? tg_bitmap_len(chunk->n) : 0);
}

uint64_t tg_body_bound(const tg_codec *c, const tg_grid *grid, uint32_t slice, unsigned holds)
{
    uint64_t len = 0;
    for (size_t i = grid->first[slice]; i < grid->first[slice + 1]; i++) {
        len += tg_chunk_bound(c, &grid->chunks[i], holds);
    }
    return len;
}

uint64_t tg_body_limit(const tg_codec *c, const tg_grid *grid, uint32_t slice, unsigned holds)
{
    uint64_t len = 0;
    for (uint32_t u = 0; u < c->layout->unit_n; u++) {
        const tg_unit *unit = &c->layout->units[u];
        uint64_t n = tg_slice_start(unit->n, slice + 1, grid->slices) - tg_slice_start(unit->n, slice, grid->slices);
        if (n == 0 || !tg_codec_carries(c, u, holds)) {
            continue;
        }
        uint64_t most = tg_recipe_select(unit->recipe)->most(unit->recipe->value[TG_STAGE_select], unit->n);
        uint64_t count = most < n ? most : n;
        uint64_t chunks = (n + TG_CHUNK - 1) / TG_CHUNK;
        if ((holds & TG_HAS_VALUES) != 0) {
            /* Each chunk's last bucket may be short, and its symbols are rounded up to bytes. */
            len += tg_values_len(unit->recipe, count) + (chunks - 1) * (tg_values_len(unit->recipe, 1) + 8);
        }
        bool told = tg_codec_known(c, u, holds) == TG_KNOWN_TOLD;
        len += chunks * tg_header_len(unit->recipe, told, holds, count);
        if (told) {
            /* each chunk's indices are rounded up to a byte */
            len += chunks + tg_recipe_index(unit->recipe)->limit(n, count);
        }
    }
    return len;
}
