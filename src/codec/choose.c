/* Choosing coordinates: what is drawn, what a leader gave, and the measuring pass for parts that must see a whole unit
 * before they can choose. The pass shares each unit among lanes, and what they find does not depend on their number. */
#include "base/bits.h"
#include "codec/codec.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

/* ---- coordinates that are known ---------------------------------------------------------------------------------------- */

static void count_known(void *context, uint32_t worker, size_t chunk_number)
{
    tg_codec *c = context;
    const tg_chunk *chunk = &c->grid->chunks[chunk_number];
    tg_known known = tg_codec_known(c, chunk->unit, TG_HAS_VALUES);
    if (known == TG_KNOWN_DRAWN || (known == TG_KNOWN_LED && c->led_given)) {
        uint64_t *mask = c->desks[worker].mask;
        tg_codec_mark_known(mask, c, chunk->unit, known, chunk->at, chunk->n);
        c->known_count[chunk_number] = (uint32_t)tg_mask_count(mask, chunk->n);
    }
}

static void draw(tg_codec *c, uint64_t step, bool own_too)
{
    for (uint32_t u = 0; u < c->layout->unit_n; u++) {
        const tg_unit *unit = &c->layout->units[u];
        const tg_select_part *select = tg_recipe_select(unit->recipe);
        bool shared = tg_codec_known(c, u, TG_HAS_VALUES) == TG_KNOWN_DRAWN;
        if (select->by == TG_BY_SEED && unit->n > 0 && (shared || own_too)) {
            tg_stream stream = tg_stream_of(c->layout->seed, step, u, shared ? 0 : c->rank + 1);
            select->draw(c->works[u].scratch, unit->recipe->value[TG_STAGE_select], unit->n, &stream);
        }
    }
    c->step = step;
    c->drawn = true;
    tg_pool_run(c->pool, c->grid->first[c->grid->slices], count_known, c);
}

void tg_codec_draw_shared(tg_codec *c, uint64_t step)
{
    if (!c->drawn || c->step != step) {
        draw(c, step, false);
    }
}

void tg_codec_take_led(tg_codec *c, const tg_grid *grid, const tg_view *views)
{
    for (size_t i = 0; i < tg_grid_chunks(grid, 0); i++) {
        const tg_chunk *chunk = &grid->chunks[i];
        const tg_recipe *recipe = c->layout->units[chunk->unit].recipe;
        if (!tg_recipe_is_led(recipe)) {
            continue;
        }
        uint64_t *led = c->works[chunk->unit].led + chunk->at / 64; /* chunks of one slice start at whole words */
        memset(led, 0, tg_words(chunk->n) * sizeof *led);
        if (views[i].count > 0) {
            (void)tg_recipe_index_read(recipe)(led, views[i].mode, views[i].indices, views[i].index_len, chunk->n,
                                               views[i].count); /* was checked when it was read */
        }
    }
    c->led_given = true;
    tg_pool_run(c->pool, c->grid->first[c->grid->slices], count_known, c);
}

bool tg_codec_is_given(const tg_codec *c, uint32_t unit)
{
    const tg_codec *knows = c->parent != NULL ? c->parent : c;
    return knows->led_given && tg_recipe_is_led(c->layout->units[unit].recipe);
}

/* ---- the measuring pass ---------------------------------------------------------------------------------------------- */

typedef struct pass {
    tg_codec *c;
    const tg_source *source;
} pass;

/* Elements of a unit from all over it, in short runs, as its part may have a use for, into desk->sum; how many. */
enum { RUN = 64 };

static size_t take_sample(tg_desk *desk, const pass *p, uint32_t unit)
{
    const tg_work *w = &p->c->works[unit];
    size_t runs = TG_SAMPLE_MAX / RUN, n = 0;
    for (size_t r = 0; w->hi - w->lo >= 4 * TG_SAMPLE_MAX && r < runs; r++) {
        uint64_t at = w->lo + (w->hi - w->lo - RUN) / runs * r;
        if (tg_codec_load(desk, p->c, unit, p->source, at, RUN, desk->sum_of, NULL, false) != 0) {
            return 0; /* what is refused is found again, and reported, when it is measured */
        }
        memcpy(desk->sum + n, desk->u, RUN * sizeof *desk->sum);
        n += RUN;
    }
    return n;
}

/* Starts a part's measuring, with a guess or without. */
static void start_unit(const pass *p, tg_desk *desk, uint32_t u, bool guesses)
{
    const tg_codec *c = p->c, *drawing = c->parent != NULL ? c->parent : c;
    const tg_unit *unit = &c->layout->units[u];
    const tg_select_part *select = tg_recipe_select(unit->recipe);
    const tg_work *w = &c->works[u];
    double params[TG_PARAM_CAP];
    memcpy(params, unit->recipe->value[TG_STAGE_select], sizeof params);
    if (select->at_step != NULL) {
        select->at_step(params, drawing->step);
    }
    select->start(w->scratch, params, w->hi - w->lo, w->lanes, w->lane_n);
    size_t sample_n = guesses && select->guess != NULL ? take_sample(desk, p, u) : 0;
    if (sample_n > 0) {
        select->guess(w->scratch, desk->sum, sample_n);
    }
}

static void begin_unit(void *context, uint32_t worker, size_t u)
{
    const pass *p = context;
    tg_codec *c = p->c;
    const tg_select_part *select = tg_recipe_select(c->layout->units[u].recipe);
    tg_work *w = &c->works[u];
    w->measures = select->start != NULL && w->lanes > 0 && !tg_codec_is_given(c, (uint32_t)u);
    w->recalled = w->measures && select->list != NULL && w->remembers && w->feedback->keep == NULL;
    if (w->measures) {
        start_unit(p, &c->desks[worker], (uint32_t)u, true);
    }
}

/* Starts anew those that were misled; returns whether there are such. */
static bool begin_again(const pass *p)
{
    tg_codec *c = p->c;
    bool any = false;
    for (uint32_t u = 0; u < c->layout->unit_n; u++) {
        const tg_select_part *select = tg_recipe_select(c->layout->units[u].recipe);
        tg_work *w = &c->works[u];
        w->measures = w->measures && select->guess != NULL && !select->is_enough(w->scratch);
        if (w->measures) {
            start_unit(p, NULL, u, false);
            any = true;
        }
    }
    return any;
}

/* Elements [at, end) of a unit, by one lane. Returns a tensor that is refused, plus 1. */
static size_t measure_stretch(tg_desk *desk, const pass *p, const tg_lane_job *job, uint64_t at, uint64_t end)
{
    const tg_work *w = &p->c->works[job->unit];
    const tg_select_part *select = tg_recipe_select(p->c->layout->units[job->unit].recipe);
    while (at < end) {
        size_t n = end - at < TG_BLOCK ? (size_t)(end - at) : TG_BLOCK;
        float *next = w->recalled ? tg_work_memory(w, p->c->memory, at).next : NULL;
        size_t bad_tensor =
            tg_codec_load(desk, p->c, job->unit, p->source, at, n, desk->sum_of, next, next != NULL && p->c->streams);
        if (bad_tensor != 0) {
            return bad_tensor;
        }
        select->measure(w->scratch, job->lane, at, desk->u, n);
        at += n;
    }
    tg_stream_end();
    return 0;
}

static void measure_lane(void *context, uint32_t worker, size_t job_number)
{
    const pass *p = context;
    const tg_lane_job *job = &p->c->lane_jobs[job_number];
    const tg_work *w = &p->c->works[job->unit];
    tg_desk *desk = &p->c->desks[worker];
    p->c->lane_bad[job_number] = 0;
    if (!w->measures) {
        return;
    }
    uint64_t at = w->lo + job->lane * w->lane_n;
    uint64_t end = w->hi - w->lo > (job->lane + 1) * w->lane_n ? at + w->lane_n : w->hi;
    p->c->lane_bad[job_number] = measure_stretch(desk, p, job, at, end);
}

/* Measures what is to be measured. Returns a tensor that is refused, plus 1. */
static size_t measure_lanes(pass *p)
{
    tg_codec *c = p->c;
    tg_pool_run(c->pool, c->lane_job_n, measure_lane, p);
    for (size_t j = 0; j < c->lane_job_n; j++) {
        if (c->lane_bad[j] != 0) {
            return c->lane_bad[j];
        }
    }
    return 0;
}

static void settle_unit(void *context, uint32_t worker, size_t u)
{
    const pass *p = context;
    (void)worker;
    const tg_select_part *select = tg_recipe_select(p->c->layout->units[u].recipe);
    if (select->settle != NULL && p->c->works[u].lanes > 0 && !tg_codec_is_given(p->c, (uint32_t)u)) {
        select->settle(p->c->works[u].scratch);
    }
}

static void bound_norm(void *context, uint32_t worker, size_t u)
{
    const pass *p = context;
    tg_work *w = &p->c->works[u];
    double most = w->remembers && w->feedback->norm_max != NULL ? w->feedback->norm_max(w->feedback_params) : 0;
    tg_desk *desk = &p->c->desks[worker];
    double sum = 0;
    for (uint64_t at = w->lo; most > 0 && at < w->hi; at += TG_BLOCK) {
        size_t n = w->hi - at < TG_BLOCK ? (size_t)(w->hi - at) : TG_BLOCK;
        if (tg_codec_load_gradient(desk, p->c, (uint32_t)u, p->source, at, n) != 0) {
            break; /* what is refused is found again, and reported, when it is written */
        }
        for (size_t i = 0; i < n; i++) {
            sum += (double)desk->g[i] * (double)desk->g[i];
        }
    }
    w->shrink = most > 0 && sqrt(sum) > most ? (float)(most / sqrt(sum)) : 1.0f;
}

void tg_codec_bound_norms(tg_codec *c, const tg_source *source)
{
    pass p = {.c = c, .source = source};
    tg_pool_run(c->pool, c->layout->unit_n, bound_norm, &p);
}

tg_status tg_codec_select(tg_codec *c, uint64_t step, const tg_source *source, tg_detail *why)
{
    if (c->parent == NULL) {
        draw(c, step, true);
    }
    pass p = {.c = c, .source = source};
    tg_codec_bound_norms(c, source);
    if (c->lane_job_n == 0) {
        return TG_OK;
    }
    tg_pool_run(c->pool, c->layout->unit_n, begin_unit, &p);
    size_t bad_tensor = measure_lanes(&p);
    if (bad_tensor == 0 && begin_again(&p)) {
        bad_tensor = measure_lanes(&p);
    }
    if (bad_tensor != 0) {
        return tg_codec_refuse(c, bad_tensor, source, why);
    }
    tg_pool_run(c->pool, c->layout->unit_n, settle_unit, &p);
    return TG_OK;
}
