/* Makes plans: resolves the parts and numbers of every unit, and chooses its route. */
#include "plan/plan.h"

#include "base/bytes.h"
#include "base/philox.h"

static tg_stages resolve_stages(const tg_recipe *r, bool is_answer)
{
    static const double defaults[TG_PARAM_CAP] = {1}; /* of ef: a decay of 1 */
    tg_stages s = {.feedback = tg_recipe_feedback(r),
                   .select = tg_recipe_select(r),
                   .quantize = tg_recipe_quantize(r),
                   .index = tg_recipe_index(r),
                   .symbol = tg_recipe_symbol(r),
                   .feedback_params = r->value[TG_STAGE_feedback],
                   .select_params = r->value[TG_STAGE_select],
                   .quantize_params = r->value[TG_STAGE_quantize],
                   .symbol_params = r->value[TG_STAGE_symbol],
                   .index_read = tg_recipe_index_read(r),
                   .index_write = tg_recipe_index_write(r)};
    if (is_answer && s.feedback->answer_part != NULL) {
        s.feedback = s.feedback->answer_part;
        s.feedback_params = defaults;
    }
    return s;
}

tg_format tg_recipe_format(const tg_recipe *r)
{
    const tg_quantize_part *q = tg_recipe_quantize(r);
    const tg_symbol_part *symbol = tg_recipe_symbol(r);
    const double *params = r->value[TG_STAGE_quantize];
    tg_format f = {.plain_len = q->plain_len, .bin = tg_recipe_bin(r), .scale = TG_SCALE_NONE};
    if (q->exchange != NULL) {
        return f; /* never written to a frame */
    }
    f.coded = q->plain_len != 0 ? symbol->codes_words : symbol->codes_symbols;
    if (q->plain_len == 0) {
        bool whole_chunk = q->has_scale || q->bucket_fixed == TG_BUCKET_CHUNK;
        f.base = q->base(params);
        f.side_len = q->side_len(params);
        f.head_len = q->head_len;
        f.rotation = q->rotation == NULL ? 0 : q->rotation(params);
        f.bucket_n = whole_chunk ? 0 : q->bucket_fixed != 0 ? q->bucket_fixed : (uint32_t)params[q->bucket_param];
        f.draws = q->draws != NULL && q->draws(params);
        f.scale = q->has_scale ? q->scale(params) : f.scale;
        f.refit = q->fit != NULL && params[q->refit_param] > 1 ? (uint32_t)params[q->refit_param] : 0;
    }
    return f;
}

static tg_coordinates coordinates_of(const tg_recipe *r, const tg_stages *s, unsigned holds)
{
    if (s->select->by == TG_BY_NOTHING) {
        return TG_AT_EVERY;
    }
    if (s->select->by == TG_BY_SEED && s->select_params[TG_SELECT_COORDS] == TG_COORDS_SHARED) {
        return TG_AT_DRAWN;
    }
    return tg_recipe_follows_leader(r) && (holds & TG_HAS_INDICES) == 0 ? TG_AT_LEADER : TG_AT_INDICES;
}

static tg_value_kind values_of(const tg_unit_plan *u)
{
    if (u->format.plain_len != 0) {
        return u->format.coded ? TG_VALUES_WORDS : TG_VALUES_PLAIN;
    }
    return u->format.scale != TG_SCALE_NONE ? TG_VALUES_SIGNS : TG_VALUES_BUCKETS;
}

/* Whether all tensors of the unit have the dtype that values travel in. */
static bool travels_verbatim(const tg_plan *plan, const tg_unit_plan *u)
{
    tg_dtype dtype = u->stages.quantize->wire_dtype;
    bool same = TG_IS_LITTLE_ENDIAN && dtype != TG_FP32 && !plan->is_answer && u->planes == 0;
    for (size_t p = 0; p < u->unit->piece_n; p++) {
        same = same && plan->layout->tensors[u->unit->pieces[p].tensor].dtype == dtype;
    }
    return same;
}

static tg_route_id dense_route(const tg_unit_plan *u)
{
    const tg_format *f = &u->format;
    if (f->plain_len != 0) {
        return f->coded ? TG_ROUTE_WORDS : u->verbatim ? TG_ROUTE_VERBATIM : TG_ROUTE_PLAIN;
    }
    if (f->scale != TG_SCALE_NONE) {
        return TG_ROUTE_SCALED;
    }
    return f->bucket_n != 0 && f->bucket_n <= TG_BIN_MAX && f->head_len == 0 ? TG_ROUTE_BUCKETS : TG_ROUTE_FITTED;
}

static tg_route_id route_of(const tg_plan *plan, const tg_unit_plan *u, bool is_led)
{
    if ((plan->holds & TG_HAS_VALUES) == 0) {
        return is_led ? TG_ROUTE_LEADER : TG_ROUTE_NONE;
    }
    if (u->coordinates == TG_AT_EVERY) {
        return dense_route(u);
    }
    if (u->coordinates == TG_AT_LEADER || u->stages.select->by == TG_BY_SEED) {
        return TG_ROUTE_DRAWN;
    }
    if (u->format.bin > 0) {
        return TG_ROUTE_BINS;
    }
    return u->stages.select->list != NULL ? TG_ROUTE_LISTED : TG_ROUTE_TESTED;
}

static uint32_t header_len_of(const tg_plan *plan, const tg_unit_plan *u)
{
    bool is_coded = u->format.coded && (plan->holds & TG_HAS_VALUES) != 0;
    bool has_none = u->route == TG_ROUTE_NONE;
    return has_none ? 0 : (u->coordinates == TG_AT_INDICES ? TG_INDEX_HEADER : 0) + (is_coded ? TG_CODED_HEADER : 0);
}

/* The signs of a rotation: 128 bits, the same for all blocks and steps, so that any reader of a frame knows them. */
static void draw_signs(tg_unit_plan *u, uint64_t seed)
{
    const uint32_t counter[4] = {0, 0, 3, 3}; /* that nothing else uses */
    if (u->format.rotation != 0) {
        tg_philox(u->signs, seed, counter);
    }
}

static void plan_unit(tg_unit_plan *u, const tg_plan *plan, const tg_unit *unit, const tg_recipe *recipe,
                      bool has_feedback)
{
    u->unit = unit;
    u->stages = resolve_stages(recipe, plan->is_answer);
    u->format = tg_recipe_format(recipe);
    draw_signs(u, plan->layout->seed);
    u->lo = tg_slice_start(unit->n, plan->slice, plan->slices);
    u->hi = tg_slice_start(unit->n, plan->slice + 1, plan->slices);
    u->planes = has_feedback ? u->stages.feedback->planes : 0;
    u->format.gain = 1.0f;
    if (!plan->is_answer && u->stages.select->gain != NULL) {
        u->format.gain = (float)u->stages.select->gain(u->stages.select_params, unit->n);
    }
    if (u->stages.quantize->exchange != NULL) {
        return; /* travels by an exchange of its own */
    }
    u->coordinates = coordinates_of(recipe, &u->stages, plan->holds);
    u->values = values_of(u);
    u->verbatim = u->coordinates == TG_AT_EVERY && travels_verbatim(plan, u);
    u->route = route_of(plan, u, tg_recipe_follows_leader(recipe));
    u->header_len = header_len_of(plan, u);
    u->presums = u->route == TG_ROUTE_LISTED && u->planes > 0 && u->stages.feedback->update_state == NULL;
}

/* Headers of the chunks of a cell stand side by side. */
static void place_headers(tg_plan *plan)
{
    const tg_grid *grid = plan->grid;
    for (uint32_t cell = 0; cell < grid->cells; cell++) {
        uint64_t at = 0;
        for (size_t i = grid->first[cell]; i < grid->first[cell + 1]; i++) {
            plan->header_at[i] = at;
            at += plan->units[grid->chunks[i].unit].header_len;
        }
        plan->headers_len[cell] = at;
    }
}

/* Whether a chunk's fit is kept between steps. */
static bool keeps_fit(const tg_plan *plan, const tg_chunk *chunk)
{
    const tg_unit_plan *u = &plan->units[chunk->unit];
    return u->format.refit > 0 && u->route != TG_ROUTE_NONE && chunk->at >= u->lo && chunk->at < u->hi;
}

/* Fits that are kept follow the residuals: unit by unit, and in a unit by element, so that groups change nothing. */
static tg_status place_fits(tg_plan *plan, const tg_allocator *a, tg_detail *why)
{
    enum { NUMBERS = sizeof(tg_fit) / sizeof(float) };
    const tg_grid *grid = plan->grid;
    const size_t chunk_n = grid->first[grid->cells];
    bool is_needed = false;
    for (size_t i = 0; i < chunk_n && !is_needed; i++) {
        is_needed = keeps_fit(plan, &grid->chunks[i]);
    }
    if (!is_needed) {
        return TG_OK;
    }
    TG_TRY(tg_acquire(&plan->fit_at, a, chunk_n, sizeof *plan->fit_at, why));
    for (size_t u = 0; u < plan->layout->unit_n; u++) {
        if (plan->units[u].format.refit == 0) {
            continue;
        }
        for (size_t i = 0; i < chunk_n; i++) { /* chunks of a unit are in order, though not side by side */
            if (grid->chunks[i].unit == u && keeps_fit(plan, &grid->chunks[i])) {
                plan->fit_at[i] = plan->residual_n + plan->fit_n;
                plan->fit_n += NUMBERS;
            }
        }
    }
    plan->residual_n += plan->fit_n;
    return TG_OK;
}

static tg_status acquire_tables(tg_plan *plan, bool heeds_again, const tg_allocator *a, tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    if (heeds_again) {
        TG_TRY(tg_acquire(&plan->recipes, a, plan->layout->unit_n, sizeof *plan->recipes, why));
    }
    TG_TRY(tg_acquire(&plan->units, a, plan->layout->unit_n, sizeof *plan->units, why));
    TG_TRY(tg_acquire(&plan->header_at, a, grid->first[grid->cells], sizeof *plan->header_at, why));
    return tg_acquire(&plan->headers_len, a, grid->cells, sizeof *plan->headers_len, why);
}

tg_status tg_plan_new(tg_plan **out, const tg_layout *layout, const tg_grid *grid, const tg_purpose *purpose,
                      const tg_allocator *a, tg_detail *why)
{
    tg_plan *plan = NULL;
    TG_TRY(tg_acquire(&plan, a, 1, sizeof *plan, why));
    *plan = (tg_plan){.layout = layout,
                      .grid = grid,
                      .holds = purpose->holds,
                      .slice = purpose->slice,
                      .slices = purpose->slices,
                      .rank = purpose->rank,
                      .nonfinite = purpose->nonfinite,
                      .is_answer = purpose->is_answer};
    tg_status status = acquire_tables(plan, purpose->heeds_again, a, why);
    if (status != TG_OK) {
        tg_plan_free(plan, a);
        return status;
    }
    for (size_t i = 0; i < layout->unit_n; i++) {
        tg_unit_plan *u = &plan->units[i];
        const tg_recipe *recipe = layout->units[i].recipe;
        if (plan->recipes != NULL) {
            (void)tg_recipe_answer(&plan->recipes[i], recipe);
            recipe = &plan->recipes[i];
        }
        plan_unit(u, plan, &layout->units[i], recipe, purpose->has_feedback);
        u->flat_at = plan->flat_n;
        plan->flat_n += u->hi - u->lo;
        u->residual_at = plan->residual_n;
        plan->residual_n += u->planes * (u->hi - u->lo);
        plan->has_scale = plan->has_scale || u->format.scale != TG_SCALE_NONE;
        plan->has_draws = plan->has_draws || u->stages.select->by == TG_BY_SEED;
        plan->has_clip = plan->has_clip || (u->planes > 0 && u->stages.feedback->norm_max != NULL);
    }
    place_headers(plan);
    status = purpose->has_feedback ? place_fits(plan, a, why) : TG_OK;
    if (status != TG_OK) {
        tg_plan_free(plan, a);
        return status;
    }
    *out = plan;
    return TG_OK;
}

void tg_plan_free(tg_plan *plan, const tg_allocator *a)
{
    if (plan != NULL) {
        tg_release(a, plan->fit_at);
        tg_release(a, plan->headers_len);
        tg_release(a, plan->header_at);
        tg_release(a, plan->units);
        tg_release(a, plan->recipes);
        tg_release(a, plan);
    }
}
