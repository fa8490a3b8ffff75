/* Sets up the selection of a plan: cuts sparse chunks into patches and strips, and lays out what the kernels keep. */
#include "exec/cuda/select.h"

#include "plan/plan.h"

#include <string.h>

enum { ALIGN = 256, PARAMS = 8, DRAW_SHARE = 16384, DRAW_BLOCKS = 256, BLOCK_WARPS = 32, FOUR = 4, LEAF = 1024 };

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

/* Elements of the bins that a patch keeps together; 0: none. */
static uint32_t bin_of(const tg_gpu_unit *u)
{
    return u->route == TG_ROUTE_BINS || u->route == TG_ROUTE_LEADER ? u->bin : 0;
}

static const tg_gpu_piece *piece_at(const tg_gpu_tables *t, const tg_gpu_unit *u, uint64_t at)
{
    const tg_gpu_piece *pieces = t->pieces + u->piece_first;
    uint32_t low = 0, high = u->piece_n;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        *(pieces[middle].at <= at ? &low : &high) = middle;
    }
    return pieces + low;
}

/* ---- patches --------------------------------------------------------------------------------------------------------------- */

/* Elements before element `at` of a unit from which residuals, or else the gradient, can be loaded four at a time. */
static uint32_t lead_of(const tg_gpu_tables *t, const tg_gpu_unit *u, uint64_t at)
{
    return (uint32_t)((u->planes > 0 ? u->residual_at + (at - u->lo) : at - piece_at(t, u, at)->at) % FOUR);
}

/* The patch of a chunk that begins at element `at` of it. Patches end where bins do, or with the chunk. */
static tg_gpu_patch patch_at(const tg_gpu_tables *t, uint32_t number, uint32_t at)
{
    const tg_gpu_chunk *chunk = &t->chunks[number];
    const tg_gpu_unit *u = &t->units[chunk->unit];
    uint32_t left = chunk->n - at, bin = bin_of(u), most = bin > TG_GPU_PATCH ? TG_GPU_BIN_MAX : TG_GPU_PATCH;
    uint32_t in_bin = bin == 0 ? 0 : (uint32_t)((chunk->at + at - u->lo) % bin);
    uint64_t from = chunk->at + at - in_bin;
    uint32_t lead = lead_of(t, u, from);
    lead = lead + bin > most ? 0 : lead;
    uint32_t whole = bin == 0 ? most - lead : bin > TG_GPU_PATCH ? bin : (most - lead) / bin * bin;
    uint32_t n = left < whole - in_bin ? left : whole - in_bin;
    uint64_t read_n = bin == 0 ? n : ((uint64_t)in_bin + n + bin - 1) / bin * bin;
    read_n = u->hi - from < read_n ? u->hi - from : read_n;
    const tg_gpu_piece *piece = piece_at(t, u, from);
    return (tg_gpu_patch){.at = from - lead,
                          .residual_at = u->residual_at + (from - u->lo) - lead,
                          .tensor_at = from - piece->at - lead,
                          .list_at = chunk->element_at + at - in_bin - lead,
                          .chunk = number,
                          .unit = chunk->unit,
                          .tensor = piece->tensor,
                          .origin = at - in_bin - lead,
                          .lead = lead,
                          .end = lead + (uint32_t)read_n,
                          .skip = lead + in_bin,
                          .n = n,
                          .dtype = (uint8_t)piece->dtype,
                          .is_one = from + read_n <= piece->at + piece->n};
}

/* Tables that are the same on the host and on the device. */
typedef struct tables {
    tg_gpu_patch *patches;
    tg_gpu_selected *units;
    tg_gpu_short *shorts;
    uint32_t *unit_chunks, *strip_first, *strip_from, *longs, *drawns, *leaf_units;
} tables;

typedef struct sizes {
    uint64_t bit_words, leaf_n;
    uint32_t patch_n, strip_n, short_n, long_n, drawn_n, far_n, ratio_n, draw_blocks;
} sizes;

/* Cuts all chunks; with NULL for patches only counts. */
static void cut(tables *to, uint32_t *patch_first, sizes *z, const tg_gpu_tables *t)
{
    z->patch_n = z->strip_n = 0;
    for (uint32_t c = 0; c < t->chunk_n; c++) {
        const tg_gpu_chunk *chunk = &t->chunks[c];
        if (to->patches != NULL) {
            patch_first[c] = z->patch_n;
            to->strip_first[c] = z->strip_n;
        }
        for (uint32_t at = 0; is_sparse(&t->units[chunk->unit]) && at < chunk->n;) {
            tg_gpu_patch patch = patch_at(t, c, at);
            patch.strip_at = z->strip_n;
            for (uint32_t base = 0; base < patch.skip + patch.n; base += TG_GPU_STRIP, z->strip_n++) {
                if (to->patches != NULL) {
                    to->strip_from[z->strip_n] = patch.origin + (base > patch.skip ? base : patch.skip);
                }
            }
            if (to->patches != NULL) {
                to->patches[z->patch_n] = patch;
            }
            z->patch_n++;
            at += patch.n;
        }
    }
    if (to->patches != NULL) {
        patch_first[t->chunk_n] = z->patch_n;
        to->strip_first[t->chunk_n] = z->strip_n;
    }
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

static tables take_tables(bump *b, const tg_gpu_tables *t, const sizes *z)
{
    return (tables){.patches = take(b, z->patch_n, sizeof(tg_gpu_patch)),
                    .units = take(b, t->unit_n, sizeof(tg_gpu_selected)),
                    .shorts = take(b, z->short_n, sizeof(tg_gpu_short)),
                    .unit_chunks = take(b, t->chunk_n, sizeof(uint32_t)),
                    .strip_first = take(b, (uint64_t)t->chunk_n + 1, sizeof(uint32_t)),
                    .strip_from = take(b, z->strip_n, sizeof(uint32_t)),
                    .longs = take(b, z->long_n, sizeof(uint32_t)),
                    .drawns = take(b, z->drawn_n, sizeof(uint32_t)),
                    .leaf_units = take(b, z->leaf_n / TG_GPU_LEAVES_EACH, sizeof(uint32_t))};
}

static void take_state(tg_gpu_selection *s, bump *b, const tg_gpu_tables *t, const sizes *z,
                       const tg_gpu_selection *parent)
{
    s->counts = take(b, z->strip_n, sizeof *s->counts);
    s->ties = take(b, t->chunk_n, sizeof *s->ties);
    s->known_n = take(b, t->chunk_n, sizeof *s->known_n);
    s->tops = take(b, (uint64_t)z->long_n + z->short_n, sizeof *s->tops);
    s->cells = take(b, (uint64_t)z->long_n * TG_GPU_CELLS, sizeof *s->cells);
    s->nears = take(b, (uint64_t)z->long_n * TG_GPU_NEAR, sizeof *s->nears);
    s->leaves = take(b, z->leaf_n, sizeof *s->leaves);
    s->leaves_done = take(b, z->leaf_n > 0 ? t->unit_n : 0, sizeof *s->leaves_done);
    s->ratios_now = take(b, z->ratio_n, sizeof *s->ratios_now);
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

/* Blocks that sum the maxima of a unit's bins, if its scale is their mean. */
static uint64_t leaf_blocks(const tg_gpu_unit *u)
{
    const uint64_t each = (uint64_t)LEAF * TG_GPU_LEAVES_EACH;
    bool has_scale = u->scale == TG_SCALE_BINS && u->bin > 0 && is_sparse(u) && u->route != TG_ROUTE_LEADER;
    uint64_t bins = has_scale ? (u->hi - u->lo + u->bin - 1) / u->bin : 0;
    return (bins + each - 1) / each;
}

/* Fills in `selected` for each unit. */
static void fill_units(tables *to, double *ratios, sizes *z, const tg_gpu_tables *t)
{
    uint32_t ratio_n = 0;
    z->bit_words = z->leaf_n = 0;
    for (uint32_t i = 0; i < t->unit_n; i++) {
        const tg_gpu_unit *u = &t->units[i];
        tg_gpu_selected *s = to->units == NULL ? NULL : &to->units[i];
        uint64_t n = unit_n(t, u), blocks = leaf_blocks(u);
        if (s != NULL) {
            *s = (tg_gpu_selected){.n = n, .bit_at = z->bit_words, .leaf_at = z->leaf_n};
            s->ratio = is_top(u) ? find_ratio(ratios, &ratio_n, u->select_params) : 0;
        } else if (is_top(u)) {
            (void)find_ratio(NULL, &ratio_n, u->select_params);
        }
        z->bit_words += has_bits(u) ? (n + 31) / 32 : 0;
        for (uint64_t b = 0; to->leaf_units != NULL && b < blocks; b++) {
            to->leaf_units[z->leaf_n / TG_GPU_LEAVES_EACH + b] = i;
        }
        z->leaf_n += blocks * TG_GPU_LEAVES_EACH;
    }
    z->ratio_n = ratio_n;
}

/* Units that randomk draws from: those that many blocks draw first. */
static void sort_drawn(tables *to, sizes *z, const tg_gpu_tables *t)
{
    z->drawn_n = z->far_n = z->draw_blocks = 0;
    for (int alone = 0; alone < 2; alone++) {
        for (uint32_t i = 0; i < t->unit_n; i++) {
            const tg_gpu_unit *u = &t->units[i];
            uint64_t n = unit_n(t, u), blocks = n / DRAW_SHARE < DRAW_BLOCKS ? n / DRAW_SHARE : DRAW_BLOCKS;
            bool is_alone = n <= TG_GPU_DRAW_ALONE, draws = u->select == TG_GPU_SELECT_RANDOMK;
            if (!draws || u->route == TG_ROUTE_NONE || n == 0 || is_alone != (alone != 0)) {
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

/* Whether a chunk has no more strips than a block has warps. */
static bool is_short(const tg_gpu_tables *t, uint32_t number)
{
    uint32_t n = t->chunks[number].n, strips = 0;
    for (uint32_t at = 0; at < n && strips <= BLOCK_WARPS;) {
        tg_gpu_patch patch = patch_at(t, number, at);
        strips += (patch.skip + patch.n + TG_GPU_STRIP - 1) / TG_GPU_STRIP;
        at += patch.n;
    }
    return strips <= BLOCK_WARPS;
}

/* Units whose largest are selected, short and long ones. Each is counted at its first chunk. */
static void sort_tops(tables *to, const uint32_t *patch_first, sizes *z, const tg_gpu_tables *t)
{
    z->short_n = z->long_n = 0;
    for (uint32_t c = 0; c < t->chunk_n; c++) {
        const tg_gpu_chunk *chunk = &t->chunks[c];
        const tg_gpu_unit *u = &t->units[chunk->unit];
        bool has_none = u->lo == u->hi; /* an answer may have nothing of a unit */
        if (!is_top(u) || has_none || chunk->at != u->lo) {
            continue;
        }
        if (chunk->n == u->hi - u->lo && is_short(t, c)) {
            if (to->shorts != NULL) {
                to->shorts[z->short_n] = (tg_gpu_short){chunk->unit, patch_first[c]};
            }
            z->short_n++;
        } else {
            if (to->longs != NULL) {
                to->longs[z->long_n] = chunk->unit;
            }
            z->long_n++;
        }
    }
    for (uint32_t i = 0; to->units != NULL && i < z->long_n + z->short_n; i++) {
        uint32_t unit = i < z->long_n ? to->longs[i] : to->shorts[i - z->long_n].unit;
        to->units[unit].top = i;
    }
}

/* Whether a chunk is of the part of its unit that the plan has: an answer has one slice. */
static bool is_had(const tg_gpu_tables *t, uint32_t number)
{
    const tg_gpu_chunk *chunk = &t->chunks[number];
    const tg_gpu_unit *u = &t->units[chunk->unit];
    return chunk->at >= u->lo && chunk->at < u->hi;
}

/* Chunks by unit. Those of a unit are in order, though not side by side. */
static void sort_chunks(tables *to, const tg_gpu_tables *t)
{
    uint32_t at = 0;
    for (uint32_t c = 0; c < t->chunk_n; c++) {
        to->units[t->chunks[c].unit].chunk_n += is_had(t, c) ? 1 : 0;
    }
    for (uint32_t i = 0; i < t->unit_n; i++) {
        to->units[i].chunk_first = at;
        at += to->units[i].chunk_n;
        to->units[i].chunk_n = 0;
    }
    for (uint32_t c = 0; c < t->chunk_n; c++) {
        tg_gpu_selected *s = &to->units[t->chunks[c].unit];
        if (is_had(t, c)) {
            to->unit_chunks[s->chunk_first + s->chunk_n++] = c;
        }
    }
}

/* ---- the selection ------------------------------------------------------------------------------------------------------- */

static sizes measure(const tg_gpu_tables *t)
{
    sizes z = {0};
    tables none = {0};
    cut(&none, NULL, &z, t);
    fill_units(&none, NULL, &z, t);
    sort_drawn(&none, &z, t);
    sort_tops(&none, NULL, &z, t);
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
    (void)take(&host, z.ratio_n, sizeof *s.ratios_set);
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
    double *ratios_set = take(&here, z.ratio_n, sizeof *ratios_set);
    cut(&mine, patch_first, &z, t);
    fill_units(&mine, ratios, &z, t);
    sort_drawn(&mine, &z, t);
    sort_tops(&mine, patch_first, &z, t);
    sort_chunks(&mine, t);
    for (uint32_t i = 0; i < z.ratio_n; i++) {
        ratios_set[i] = 0; /* no ratio is */
    }
    *out = (tg_gpu_selection){.patches = its.patches,
                              .units = its.units,
                              .unit_chunks = its.unit_chunks,
                              .strip_first = its.strip_first,
                              .strip_from = its.strip_from,
                              .shorts = its.shorts,
                              .longs = its.longs,
                              .drawns = its.drawns,
                              .leaf_units = its.leaf_units,
                              .patch_first = patch_first,
                              .ratios = ratios,
                              .ratios_set = ratios_set,
                              .short_n = z.short_n,
                              .long_n = z.long_n,
                              .drawn_n = z.drawn_n,
                              .far_n = z.far_n,
                              .ratio_n = z.ratio_n,
                              .draw_blocks = z.draw_blocks,
                              .leaf_blocks = (uint32_t)(z.leaf_n / TG_GPU_LEAVES_EACH),
                              .effort = TG_GPU_SAMPLES};
    take_state(out, &there, t, &z, parent);
    note_routes(out, t);
}

/* ---- passes ---------------------------------------------------------------------------------------------------------------- */

int tg_gpu_select_again(tg_gpu_selection *s, uint32_t again)
{
    enum { FAILURES_MAX = 6 };
    if (again != 0) {
        if (s->effort == TG_GPU_GUESSES) {
            s->failures += s->failures < FAILURES_MAX ? 1 : 0;
            s->pause = (1u << s->failures) - 2;
        }
        s->effort = s->effort == TG_GPU_GUESSES ? TG_GPU_SAMPLES : TG_GPU_TAKES_ALL;
        return 1;
    }
    s->failures = s->effort == TG_GPU_GUESSES ? 0 : s->failures;
    s->effort = s->pause > 0 ? TG_GPU_SAMPLES : TG_GPU_GUESSES;
    s->pause -= s->pause > 0 ? 1 : 0;
    return 0;
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
