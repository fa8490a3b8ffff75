/* Opens a plan on the host: takes all memory that its steps will use. */
#include "exec/host.h"

#include "base/bits.h"

/* ---- scratch of threads ---------------------------------------------------------------------------------------------- */

/* Bytes that a worker needs for values of whole chunks, beside its scratch. */
typedef struct space {
    uint64_t quantize_len, pack_len; /* of the parts themselves */
    uint64_t len;                    /* of all; 0: nothing is needed */
} space;

static uint64_t larger(uint64_t len, uint64_t other)
{
    return len > other ? len : tg_apart(other);
}

static space plan_space(const tg_plan *plan, bool only_decodes)
{
    space s = {0};
    bool any = false;
    for (size_t i = 0; i < plan->layout->unit_n; i++) {
        const tg_unit_plan *u = &plan->units[i];
        const tg_quantize_part *quantize = u->stages.quantize;
        const tg_symbol_part *symbol = u->stages.symbol;
        any = any || u->format.plain_len == 0 || u->format.coded;
        if (quantize->scratch_len != NULL && !only_decodes) {
            s.quantize_len = larger(s.quantize_len, quantize->scratch_len(u->stages.quantize_params));
        }
        if (symbol->scratch_len != NULL) {
            s.pack_len = larger(s.pack_len, symbol->scratch_len(u->stages.symbol_params));
        }
    }
    s.len = any ? larger(0, sizeof(tg_chunk_scratch)) + s.quantize_len + s.pack_len : 0;
    return s;
}

/* Large, and written before it is read: nothing needs clearing. */
static tg_status acquire_scratch(tg_workspace *w, const tg_run *run, tg_detail *why)
{
    uint64_t workers = w->workers;
    space s = plan_space(run->plan, run->only_decodes);
    TG_TRY(tg_acquire_room(&w->scratch, &run->allocator, workers * sizeof *w->scratch, why));
    TG_TRY(tg_acquire_room(&w->spaces, &run->allocator, workers * s.len, why));
    for (uint64_t i = 0; i < workers; i++) {
        w->scratch[i].chunk = NULL;
        if (s.len > 0) {
            char *at = (char *)w->spaces + i * s.len;
            tg_chunk_scratch *chunk = (tg_chunk_scratch *)(void *)at;
            chunk->quantize_space = at + larger(0, sizeof *chunk);
            chunk->pack_space = (char *)chunk->quantize_space + s.quantize_len;
            w->scratch[i].chunk = chunk;
        }
    }
    return TG_OK;
}

/* ---- coordinates that are kept --------------------------------------------------------------------------------------- */

enum { KEPT_MOST = 1 << 25 }; /* words of all places together: 256 MiB, of which only what is used is ever touched */

static bool has_indices(const tg_plan *plan)
{
    bool any = false;
    for (size_t i = 0; i < plan->layout->unit_n; i++) {
        any = any || plan->units[i].coordinates == TG_AT_INDICES;
    }
    return any;
}

static tg_status acquire_kept(tg_kept *kept, const tg_run *run, uint32_t places, tg_detail *why)
{
    const tg_grid *grid = run->plan->grid;
    size_t chunks = grid->first[grid->cells];
    if (!has_indices(run->plan)) {
        return TG_OK;
    }
    TG_TRY(tg_acquire(&kept->at, &run->allocator, chunks, sizeof *kept->at, why));
    for (size_t i = 0; i < chunks; i++) {
        kept->at[i] = kept->word_n;
        kept->word_n += tg_words(grid->chunks[i].n);
    }
    places = places == 0 ? 1 : places;
    uint64_t most = kept->word_n == 0 ? 0 : KEPT_MOST / kept->word_n;
    kept->places = most < places ? (uint32_t)most : places;
    return tg_acquire_room(&kept->words, &run->allocator, kept->places * kept->word_n * sizeof *kept->words, why);
}

uint64_t *tg_host_kept(const tg_run *run, const tg_plan *plan, const tg_chunk *chunk, uint32_t place)
{
    const tg_kept *kept = &run->work->kept;
    if (place == 0 || place > kept->places || plan->grid != run->plan->grid) {
        return NULL;
    }
    return kept->words + (place - 1) * kept->word_n + kept->at[chunk - plan->grid->chunks];
}

/* ---- workspace ------------------------------------------------------------------------------------------------------- */

static tg_status acquire_workspace(tg_run *run, const tg_run_options *opt, tg_detail *why)
{
    const tg_allocator *a = &run->allocator;
    const tg_grid *grid = run->plan->grid;
    size_t chunks = grid->first[grid->cells];
    TG_TRY(tg_acquire(&run->work, a, 1, sizeof *run->work, why));
    tg_workspace *w = run->work;
    TG_TRY(tg_pool_new(&w->pool, opt->threads, a, why));
    w->workers = tg_pool_workers(w->pool);
    TG_TRY(tg_acquire(&w->written, a, chunks, sizeof *w->written, why));
    TG_TRY(tg_acquire(&w->known_n, a, chunks, sizeof *w->known_n, why));
    TG_TRY(tg_acquire(&w->drawn, a, grid->groups, sizeof *w->drawn, why));
    TG_TRY(acquire_kept(&w->kept, run, opt->places, why));
    return acquire_scratch(w, run, why);
}

static void release_workspace(tg_workspace *w, const tg_allocator *a)
{
    if (w != NULL) {
        tg_release(a, w->spaces);
        tg_release(a, w->scratch);
        tg_release(a, w->kept.words);
        tg_release(a, w->kept.at);
        tg_release(a, w->drawn);
        tg_release(a, w->known_n);
        tg_release(a, w->written);
        tg_pool_free(w->pool);
        tg_release(a, w);
    }
}

/* ---- units ----------------------------------------------------------------------------------------------------------- */

/* How many threads measure a unit, and how much each. */
static void plan_lanes(tg_unit_work *w, const tg_unit_plan *u, uint32_t workers)
{
    uint64_t chunks = (u->hi - u->lo + TG_CHUNK - 1) / TG_CHUNK;
    w->lanes = chunks < workers ? (uint32_t)chunks : workers;
    w->lane_n = w->lanes == 0 ? 0 : (chunks + w->lanes - 1) / w->lanes * TG_CHUNK;
    w->clip = 1.0f;
}

/* Buffers of a unit; an answer uses the coordinates that its parent has drawn or was given. */
static tg_status acquire_unit(tg_unit_work *w, const tg_run *run, size_t i, tg_detail *why)
{
    const tg_allocator *a = &run->allocator;
    const tg_unit_plan *u = &run->plan->units[i];
    const tg_select_part *select = u->stages.select;
    bool is_drawn = select->by == TG_BY_SEED;
    if (run->parent != NULL) {
        w->leader = run->parent->units[i].leader;
    } else if (tg_recipe_follows_leader(u->unit->recipe)) {
        TG_TRY(tg_acquire(&w->leader, a, tg_words(u->unit->n), sizeof *w->leader, why));
    }
    if (!run->only_decodes && u->format.scale == TG_SCALE_BINS && u->format.bin > 0) {
        uint64_t bins = (u->hi - u->lo + u->format.bin - 1) / u->format.bin;
        TG_TRY(tg_acquire(&w->maxima, a, bins, sizeof *w->maxima, why));
    }
    if (!run->only_decodes && u->format.scale == TG_SCALE_MEAN) {
        TG_TRY(tg_acquire(&w->magnitudes, a, 1, sizeof *w->magnitudes, why));
    }
    if (select->scratch_len == NULL || (run->only_decodes && !is_drawn)) {
        return TG_OK;
    }
    if (run->parent != NULL && is_drawn) {
        w->select = run->parent->units[i].select;
        return TG_OK;
    }
    uint64_t n = is_drawn ? u->unit->n : u->hi - u->lo;
    return tg_acquire_room(&w->select, a, select->scratch_len(u->stages.select_params, n, w->lanes, w->lane_n), why);
}

static bool is_measured(const tg_run *run, size_t i)
{
    const tg_unit_plan *u = &run->plan->units[i];
    bool chooses = u->coordinates == TG_AT_INDICES || u->coordinates == TG_AT_LEADER;
    return !run->only_decodes && chooses && u->stages.select->start != NULL;
}

/* The lanes of all units that are measured, in the order of groups. */
static tg_status acquire_lanes(tg_run *run, tg_detail *why)
{
    const tg_grid *grid = run->plan->grid;
    size_t n = 0;
    TG_TRY(tg_acquire(&run->lane_first, &run->allocator, (uint64_t)grid->groups + 1, sizeof *run->lane_first, why));
    for (uint32_t g = 0; g < grid->groups; g++) {
        run->lane_first[g] = n;
        for (size_t j = grid->unit_first[g]; j < grid->unit_first[g + 1]; j++) {
            n += is_measured(run, grid->units[j]) ? run->units[grid->units[j]].lanes : 0;
        }
    }
    run->lane_first[grid->groups] = n;
    TG_TRY(tg_acquire(&run->lane_jobs, &run->allocator, n, sizeof *run->lane_jobs, why));
    tg_lane_job *job = run->lane_jobs;
    for (size_t j = 0; j < run->plan->layout->unit_n; j++) {
        uint32_t i = grid->units[j];
        for (uint32_t lane = 0; is_measured(run, i) && lane < run->units[i].lanes; lane++) {
            *job++ = (tg_lane_job){.unit = i, .lane = lane};
        }
    }
    return TG_OK;
}

static tg_status acquire_units(tg_run *run, tg_detail *why)
{
    const tg_allocator *a = &run->allocator;
    size_t unit_n = run->plan->layout->unit_n;
    TG_TRY(tg_acquire(&run->units, a, unit_n, sizeof *run->units, why));
    TG_TRY(tg_acquire(&run->stats, a, unit_n, sizeof *run->stats, why));
    for (size_t i = 0; i < unit_n; i++) {
        plan_lanes(&run->units[i], &run->plan->units[i], run->work->workers);
        TG_TRY(acquire_unit(&run->units[i], run, i, why));
    }
    return acquire_lanes(run, why);
}

/* ---- runs ------------------------------------------------------------------------------------------------------------ */

static tg_status acquire_all(tg_run *run, const tg_run_options *opt, tg_detail *why)
{
    if (run->parent == NULL) {
        TG_TRY(acquire_workspace(run, opt, why));
    } else {
        run->work = run->parent->work;
    }
    TG_TRY(acquire_units(run, why));
    uint64_t n = opt->is_stateless ? 0 : run->plan->residual_n;
    TG_TRY(tg_acquire(&run->residuals.now, &run->allocator, n, sizeof(float), why));
    return tg_acquire(&run->residuals.next, &run->allocator, n, sizeof(float), why);
}

tg_status tg_host_open(tg_run **out, const tg_plan *plan, const tg_run_options *opt, const tg_allocator *a,
                       tg_detail *why)
{
    tg_run *run = NULL;
    TG_TRY(tg_acquire(&run, a, 1, sizeof *run, why));
    run->plan = plan;
    run->allocator = *a;
    run->parent = opt->shares;
    run->only_decodes = opt->only_decodes;
    tg_status status = acquire_all(run, opt, why);
    if (status != TG_OK) {
        tg_host_close(run);
        return status;
    }
    *out = run;
    return TG_OK;
}

static void release_unit(const tg_run *run, size_t i)
{
    const tg_unit_work *w = &run->units[i];
    bool shares_select = run->parent != NULL && run->plan->units[i].stages.select->by == TG_BY_SEED;
    tg_release(&run->allocator, w->magnitudes);
    tg_release(&run->allocator, w->maxima);
    if (!shares_select) {
        tg_release(&run->allocator, w->select);
    }
    if (run->parent == NULL) {
        tg_release(&run->allocator, w->leader);
    }
}

void tg_host_close(tg_run *run)
{
    if (run == NULL) {
        return;
    }
    tg_allocator a = run->allocator;
    for (size_t i = 0; run->units != NULL && i < run->plan->layout->unit_n; i++) {
        release_unit(run, i);
    }
    tg_release(&a, run->residuals.next);
    tg_release(&a, run->residuals.now);
    tg_release(&a, run->lane_jobs);
    tg_release(&a, run->lane_first);
    tg_release(&a, run->stats);
    tg_release(&a, run->units);
    if (run->parent == NULL) {
        release_workspace(run->work, &a);
    }
    tg_release(&a, run);
}
