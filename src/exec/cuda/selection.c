/* Sets up the selection of a plan: cuts sparse chunks into patches, and lays out what the kernels keep. */
#include "exec/cuda/select.h"

#include "plan/plan.h"

#include <string.h>

enum { ALIGN = 256, PARAMS = 8, DRAW_SHARE = 16384, DRAW_BLOCKS = 256 };

/* ---- what a unit needs --------------------------------------------------------------------------------------------------- */

static bool is_sparse(const tg_gpu_unit *u)
{
    return u->route >= TG_ROUTE_LISTED && u->route <= TG_ROUTE_LEADER;
}

static bool is_drawn(const tg_gpu_unit *u)
{
    return u->select == TG_GPU_SELECT_RANDOMK || u->select == TG_GPU_SELECT_RANDOMBLOCK;
}

/* Whether its largest magnitudes are selected in this plan; not if the leader's coordinates are taken. */
static bool is_top(const tg_gpu_unit *u)
{
    return u->select == TG_GPU_SELECT_TOPK && (u->route == TG_ROUTE_LISTED || u->route == TG_ROUTE_LEADER);
}

/* The same for a plan and its parent: it depends on the recipe alone. */
static bool has_bits(const tg_gpu_unit *u)
{
    bool follows =
        !is_drawn(u) && u->select != TG_GPU_SELECT_ALL && u->select_params[TG_SELECT_COORDS] == TG_COORDS_SHARED;
    return u->select == TG_GPU_SELECT_RANDOMK || follows;
}

static uint64_t unit_n(const tg_gpu_tables *t, const tg_gpu_unit *u)
{
    const tg_gpu_piece *pieces = t->pieces + u->piece_first;
    return u->piece_n == 0 ? 0 : pieces[u->piece_n - 1].at + pieces[u->piece_n - 1].n;
}

/* Which size of short units a unit has, if one chunk is all that the plan has of it; TG_GPU_SHORTS: it is long. */
static uint32_t size_of(const tg_gpu_unit *u, const tg_gpu_chunk *chunk)
{
    static const uint32_t most[TG_GPU_SHORTS] = {TG_GPU_SHORT, TG_GPU_SHORT * 4, TG_GPU_SHORT * 32};
    uint32_t size = chunk->n == u->hi - u->lo ? 0 : TG_GPU_SHORTS;
    while (size < TG_GPU_SHORTS && chunk->n > most[size]) {
        size++;
    }
    return size;
}

/* ---- patches --------------------------------------------------------------------------------------------------------------- */

/* The patch of a chunk that begins at element `at` of it. Patches end where bins do, or with the chunk. */
static tg_gpu_patch patch_at(const tg_gpu_unit *u, const tg_gpu_chunk *chunk, uint32_t at)
{
    uint32_t left = chunk->n - at, bin = u->route == TG_ROUTE_BINS || u->route == TG_ROUTE_LEADER ? u->bin : 0;
    if (bin == 0) {
        return (tg_gpu_patch){.at = at, .n = left < TG_GPU_PATCH ? left : TG_GPU_PATCH};
    }
    uint32_t whole = bin > TG_GPU_PATCH ? bin : TG_GPU_PATCH / bin * bin;
    uint32_t skip = (uint32_t)((chunk->at + at - u->lo) % bin);
    return (tg_gpu_patch){.at = at, .n = left < whole - skip ? left : whole - skip, .skip = skip};
}

/* Cuts all chunks; with NULL for patches only counts. Returns the words of all masks. */
static uint64_t cut(tg_gpu_patch *patches, uint32_t *patch_first, uint32_t *patch_n, const tg_gpu_tables *t)
{
    uint64_t words = 0;
    uint32_t n = 0;
    for (uint32_t c = 0; c < t->chunk_n; c++) {
        const tg_gpu_chunk *chunk = &t->chunks[c];
        const tg_gpu_unit *u = &t->units[chunk->unit];
        uint32_t first = n;
        if (patch_first != NULL) {
            patch_first[c] = n;
        }
        for (uint32_t at = 0; is_sparse(u) && at < chunk->n; n++) {
            tg_gpu_patch patch = patch_at(u, chunk, at);
            patch.chunk = c;
            patch.first = first;
            patch.word_at = words;
            if (patches != NULL) {
                patches[n] = patch;
            }
            words += (patch.skip + patch.n + 31) / 32;
            at += patch.n;
        }
    }
    if (patch_first != NULL) {
        patch_first[t->chunk_n] = n;
    }
    *patch_n = n;
    return words;
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

/* Arrays one after the other, in memory or only counted. */
typedef struct bump {
    char *base;
    uint64_t at;
} bump;

static void *take(bump *b, uint64_t n, uint64_t len)
{
    uint64_t at = b->at;
    b->at = (at + n * len + ALIGN - 1) / ALIGN * ALIGN;
    return b->base == NULL ? NULL : b->base + at;
}

/* Tables that are the same on the host and on the device. */
typedef struct tables {
    tg_gpu_patch *patches;
    tg_gpu_selected *units;
    uint32_t *unit_patches, *shorts, *longs, *drawns;
} tables;

typedef struct sizes {
    uint64_t words, bit_words;
    uint32_t patch_n, short_n, short_ns[TG_GPU_SHORTS], long_n, drawn_n, far_n, ratio_n, draw_blocks;
} sizes;

static tables take_tables(bump *b, const tg_gpu_tables *t, const sizes *z)
{
    return (tables){.patches = take(b, z->patch_n, sizeof(tg_gpu_patch)),
                    .units = take(b, t->unit_n, sizeof(tg_gpu_selected)),
                    .unit_patches = take(b, z->patch_n, sizeof(uint32_t)),
                    .shorts = take(b, z->short_n, sizeof(uint32_t)),
                    .longs = take(b, z->long_n, sizeof(uint32_t)),
                    .drawns = take(b, z->drawn_n, sizeof(uint32_t))};
}

static void take_state(tg_gpu_selection *s, bump *b, const tg_gpu_tables *t, const sizes *z,
                       const tg_gpu_selection *parent)
{
    s->masks = take(b, z->words, sizeof *s->masks);
    s->counts = take(b, z->patch_n, sizeof *s->counts);
    s->ties = take(b, z->patch_n, sizeof *s->ties);
    s->known_n = take(b, t->chunk_n, sizeof *s->known_n);
    s->tops = take(b, (uint64_t)z->long_n + z->short_n, sizeof *s->tops);
    s->cells = take(b, (uint64_t)z->long_n * TG_GPU_ROUNDS * TG_GPU_CELLS, sizeof *s->cells);
    if (parent != NULL) {
        s->bits = parent->bits;
        s->drawings = parent->drawings;
        return;
    }
    s->bits = take(b, z->bit_words, sizeof *s->bits);
    s->drawings = take(b, z->drawn_n > 0 ? t->unit_n : 0, sizeof *s->drawings);
}

/* ---- units --------------------------------------------------------------------------------------------------------------- */

static bool same_ratio(const double *a, const double *b)
{
    return memcmp(a, b, PARAMS * sizeof *a) == 0;
}

/* The number of a unit's parameters among those that occur; appends them. `ratios` may be NULL: then they are all counted. */
static uint32_t find_ratio(double *ratios, uint32_t *ratio_n, const double *params)
{
    for (uint32_t i = 0; ratios != NULL && i < *ratio_n; i++) {
        if (same_ratio(ratios + (size_t)i * PARAMS, params)) {
            return i;
        }
    }
    if (ratios != NULL) {
        memcpy(ratios + (size_t)*ratio_n * PARAMS, params, PARAMS * sizeof *params);
    }
    return (*ratio_n)++;
}

/* Fills in `selected` for each unit, in passes over the chunks: no unit is looked for. */
static void fill_units(tables *to, double *ratios, sizes *z, const tg_gpu_tables *t)
{
    uint32_t ratio_n = 0;
    *z = (sizes){.words = z->words, .patch_n = z->patch_n};
    for (uint32_t i = 0; i < t->unit_n; i++) {
        const tg_gpu_unit *u = &t->units[i];
        tg_gpu_selected *s = to->units == NULL ? NULL : &to->units[i];
        uint64_t n = unit_n(t, u), bits = has_bits(u) ? (n + 31) / 32 : 0;
        if (s != NULL) {
            s->n = n;
            s->bit_at = z->bit_words;
            s->ratio = is_top(u) ? find_ratio(ratios, &ratio_n, u->select_params) : 0;
        } else if (is_top(u)) {
            (void)find_ratio(NULL, &ratio_n, u->select_params);
        }
        z->bit_words += bits;
    }
    z->ratio_n = ratio_n;
}

/* Units whose coordinates are drawn: those that many blocks draw first. */
static void sort_drawn(tables *to, sizes *z, const tg_gpu_tables *t)
{
    for (int alone = 0; alone < 2; alone++) {
        for (uint32_t i = 0; i < t->unit_n; i++) {
            const tg_gpu_unit *u = &t->units[i];
            uint64_t n = unit_n(t, u), blocks = n / DRAW_SHARE < DRAW_BLOCKS ? n / DRAW_SHARE : DRAW_BLOCKS;
            bool is_alone = n <= TG_GPU_DRAW_ALONE || u->select == TG_GPU_SELECT_RANDOMBLOCK;
            if (!is_drawn(u) || u->route == TG_ROUTE_NONE || n == 0 || is_alone != (alone != 0)) {
                continue;
            }
            if (to->drawns != NULL) {
                to->drawns[z->drawn_n] = i;
            }
            z->drawn_n++;
            z->far_n += is_alone ? 0 : 1;
            z->draw_blocks = !is_alone && blocks > z->draw_blocks ? (uint32_t)blocks : z->draw_blocks;
        }
    }
}

/* Units whose largest are selected: short ones by their size, and long ones. Each is counted at its first chunk. */
static void sort_tops(tables *to, sizes *z, const tg_gpu_tables *t)
{
    for (uint32_t size = 0; size <= TG_GPU_SHORTS; size++) {
        bool is_short = size < TG_GPU_SHORTS;
        uint32_t *list = is_short ? to->shorts : to->longs, *n = is_short ? &z->short_n : &z->long_n, before = *n;
        for (uint32_t c = 0; c < t->chunk_n; c++) {
            const tg_gpu_chunk *chunk = &t->chunks[c];
            const tg_gpu_unit *u = &t->units[chunk->unit];
            bool has_none = u->lo == u->hi; /* an answer may have nothing of a unit */
            if (!is_top(u) || has_none || chunk->at != u->lo || size_of(u, chunk) != size) {
                continue;
            }
            if (list != NULL) {
                list[*n] = chunk->unit;
            }
            (*n)++;
        }
        if (is_short) {
            z->short_ns[size] = *n - before;
        }
    }
    for (uint32_t i = 0; to->units != NULL && i < z->long_n + z->short_n; i++) {
        uint32_t unit = i < z->long_n ? to->longs[i] : to->shorts[i - z->long_n];
        to->units[unit].top = i;
    }
}

/* Whether a patch is of the part of its unit that the plan has: an answer has one slice. */
static bool is_had(const tables *to, const tg_gpu_tables *t, uint32_t patch)
{
    const tg_gpu_chunk *chunk = &t->chunks[to->patches[patch].chunk];
    const tg_gpu_unit *u = &t->units[chunk->unit];
    return chunk->at >= u->lo && chunk->at < u->hi;
}

/* Patches by unit. Chunks of a unit are in order, though not side by side. */
static void sort_patches(tables *to, const sizes *z, const tg_gpu_tables *t)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < t->unit_n; i++) {
        to->units[i].patch_n = 0;
    }
    for (uint32_t i = 0; i < z->patch_n; i++) {
        to->units[t->chunks[to->patches[i].chunk].unit].patch_n += is_had(to, t, i) ? 1 : 0;
    }
    for (uint32_t i = 0; i < t->unit_n; i++) {
        to->units[i].patch_first = at;
        at += to->units[i].patch_n;
        to->units[i].patch_n = 0;
    }
    for (uint32_t i = 0; i < z->patch_n; i++) {
        tg_gpu_selected *s = &to->units[t->chunks[to->patches[i].chunk].unit];
        if (is_had(to, t, i)) {
            to->unit_patches[s->patch_first + s->patch_n++] = i;
        }
    }
}

/* ---- the selection ------------------------------------------------------------------------------------------------------- */

static sizes measure(const tg_gpu_tables *t)
{
    sizes z = {0};
    tables none = {0};
    z.words = cut(NULL, NULL, &z.patch_n, t);
    fill_units(&none, NULL, &z, t);
    sort_drawn(&none, &z, t);
    sort_tops(&none, &z, t);
    return z;
}

tg_gpu_selection_lens tg_gpu_selection_measure(const tg_gpu_tables *t, const tg_gpu_selection *parent)
{
    sizes z = measure(t);
    tg_gpu_selection s = {0};
    bump host = {0}, device = {0};
    (void)take_tables(&host, t, &z);
    device.at = host.at;
    uint64_t copied = host.at;
    (void)take(&host, (uint64_t)t->chunk_n + 1, sizeof *s.patch_first);
    (void)take(&host, (uint64_t)z.ratio_n * PARAMS, sizeof *s.ratios);
    take_state(&s, &device, t, &z, parent);
    return (tg_gpu_selection_lens){.host = host.at, .device = device.at, .copied = copied};
}

static void note_routes(tg_gpu_selection *s, const tg_gpu_tables *t)
{
    for (uint32_t i = 0; i < t->unit_n; i++) {
        const tg_gpu_unit *u = &t->units[i];
        s->routes |= 1u << u->route;
        s->has_long_bins |= u->bin > TG_GPU_PATCH ? 1 : 0;
        s->has_indices |= is_sparse(u) && u->coordinates == TG_AT_INDICES ? 1 : 0;
    }
}

void tg_gpu_selection_set_up(tg_gpu_selection *out, void *host, void *device, const tg_gpu_tables *t,
                             const tg_gpu_selection *parent)
{
    sizes z = measure(t);
    bump here = {.base = host}, there = {.base = device};
    tables mine = take_tables(&here, t, &z), its = take_tables(&there, t, &z);
    uint32_t *patch_first = take(&here, (uint64_t)t->chunk_n + 1, sizeof *patch_first);
    double *ratios = take(&here, (uint64_t)z.ratio_n * PARAMS, sizeof *ratios);
    (void)cut(mine.patches, patch_first, &z.patch_n, t);
    fill_units(&mine, ratios, &z, t);
    sort_drawn(&mine, &z, t);
    sort_tops(&mine, &z, t);
    sort_patches(&mine, &z, t);
    *out = (tg_gpu_selection){.patches = its.patches,
                              .units = its.units,
                              .unit_patches = its.unit_patches,
                              .shorts = its.shorts,
                              .longs = its.longs,
                              .drawns = its.drawns,
                              .patch_first = patch_first,
                              .ratios = ratios,
                              .short_n = z.short_n,
                              .long_n = z.long_n,
                              .drawn_n = z.drawn_n,
                              .far_n = z.far_n,
                              .ratio_n = z.ratio_n,
                              .draw_blocks = z.draw_blocks};
    memcpy(out->short_ns, z.short_ns, sizeof z.short_ns);
    take_state(out, &there, t, &z, parent);
    note_routes(out, t);
}

void tg_gpu_selection_range(uint32_t *first, uint32_t *end, const tg_gpu_selection *s, const tg_gpu_pass *p)
{
    *first = s->patch_first[p->first];
    *end = s->patch_first[p->first + p->chunk_n];
}

double tg_gpu_selection_ratio(const tg_gpu_selection *s, uint32_t number, uint64_t step)
{
    double params[TG_PARAM_CAP] = {0};
    memcpy(params, s->ratios + (size_t)number * PARAMS, PARAMS * sizeof *params);
    tg_select_topk.at_step(params, step);
    return params[TG_SELECT_RATIO];
}

const char *tg_gpu_select_lacks(const tg_gpu_unit *unit)
{
    if (unit->select > TG_GPU_SELECT_ADABINS) {
        return "its select part";
    }
    return unit->index > TG_GPU_INDEX_ADACOMP16 ? "its index pack" : NULL;
}
