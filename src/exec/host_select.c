/* The select pass: draws coordinates, and measures units whose select part must see all of a unit before it can choose. The
 * measuring pass shares each unit among lanes; what it finds does not depend on their number. */
#include "exec/host.h"

#include "base/bits.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Runs jobs by all threads; one thread needs no pool. */
static void run_jobs(const tg_run *run, size_t job_n, tg_job *job, void *context)
{
    for (size_t i = 0; run->work->workers == 1 && i < job_n; i++) {
        job(context, 0, i);
    }
    if (run->work->workers > 1) {
        tg_pool_run(run->work->pool, job_n, job, context);
    }
}

/* ---- coordinates that ranks know --------------------------------------------------------------------------------------- */

static void count_known(void *context, uint32_t worker, size_t number)
{
    const tg_run *run = context;
    const tg_chunk *chunk = &run->plan->grid->chunks[number];
    const tg_unit_plan *u = &run->plan->units[chunk->unit];
    if (u->coordinates == TG_AT_DRAWN || u->coordinates == TG_AT_LEADER) {
        uint64_t *mask = run->work->scratch[worker].mask;
        tg_mark_known(mask, u, &run->units[chunk->unit], chunk->at, chunk->n);
        run->work->known_n[number] = (uint32_t)tg_mask_count(mask, chunk->n);
    }
}

/* Draws for a step: what all ranks share and, of an encoder, what is this rank's own. */
static void draw(tg_run *run, uint64_t step, bool own_too)
{
    const tg_plan *plan = run->plan;
    for (uint32_t i = 0; i < plan->layout->unit_n; i++) {
        const tg_unit_plan *u = &plan->units[i];
        bool is_shared = u->coordinates == TG_AT_DRAWN;
        if (u->stages.select->by == TG_BY_SEED && u->unit->n > 0 && (is_shared || own_too)) {
            tg_stream stream = tg_stream_of(plan->layout->seed, step, i, is_shared ? 0 : plan->rank + 1);
            u->stages.select->draw(run->units[i].select, u->stages.select_params, u->unit->n, &stream);
        }
    }
    run->work->step = step;
    run->work->is_drawn = true;
    run_jobs(run, plan->grid->first[plan->grid->slices], count_known, run);
}

void tg_host_draw(tg_run *run, uint64_t step)
{
    run = run->parent != NULL ? run->parent : run;
    if (run->plan->has_draws && (!run->work->is_drawn || run->work->step != step)) {
        draw(run, step, false);
    }
    run->work->step = step;
}

void tg_host_follow(tg_run *run, const tg_plan *plan, const tg_body_view *body)
{
    for (size_t i = 0; i < plan->grid->first[1]; i++) {
        const tg_chunk *chunk = &plan->grid->chunks[i];
        const tg_unit_plan *u = &plan->units[chunk->unit];
        const tg_view *v = &body->chunks[i];
        if (u->route == TG_ROUTE_NONE) {
            continue;
        }
        uint64_t *mask = run->units[chunk->unit].leader + chunk->at / 64; /* chunks of one slice start at whole words */
        memset(mask, 0, tg_words(chunk->n) * sizeof *mask);
        if (v->count > 0) {
            (void)u->stages.index_read(mask, v->mode, body->bytes + v->indices, v->index_len, chunk->n, v->count);
        }
    }
    run_jobs(run, run->plan->grid->first[run->plan->grid->slices], count_known, run);
}

/* What the loads of a unit need. */
static tg_encoding encoding_of(const tg_run *run, uint32_t unit, const tg_source *source, uint32_t worker,
                               tg_encoded *result)
{
    tg_encoded_start(result);
    return (tg_encoding){.plan = run->plan,
                         .unit = &run->plan->units[unit],
                         .work = &run->units[unit],
                         .source = source,
                         .residuals = run->residuals,
                         .scratch = &run->work->scratch[worker],
                         .step = run->work->step,
                         .result = result};
}

/* ---- clipping -------------------------------------------------------------------------------------------------------- */

typedef struct pass {
    tg_run *run;
    const tg_source *source;
    atomic_bool has_lanes; /* some unit is shared among lanes */
} pass;

/* The factor that bounds the norm of a unit's gradient, where the feedback asks for that. */
static void clip_unit(void *context, uint32_t worker, size_t i)
{
    const pass *p = context;
    const tg_unit_plan *u = &p->run->plan->units[i];
    tg_unit_work *w = &p->run->units[i];
    const tg_feedback_part *feedback = u->stages.feedback;
    double most = u->planes > 0 && feedback->norm_max != NULL ? feedback->norm_max(u->stages.feedback_params) : 0;
    tg_tree squares;
    squares.n = 0;
    w->clip = 1.0f;
    for (uint64_t at = u->lo; most > 0 && at < u->hi; at += TG_BLOCK) {
        size_t n = u->hi - at < TG_BLOCK ? (size_t)(u->hi - at) : TG_BLOCK;
        tg_encoded result;
        tg_encoding e = encoding_of(p->run, (uint32_t)i, p->source, worker, &result);
        const float *g = tg_load_gradient(&e, at, n);
        tg_tree_add_squares(&squares, g, g != NULL ? n : 0); /* what is refused is found again, and reported, later */
    }
    double norm = sqrt(tg_tree_sum(&squares));
    w->clip = most > 0 && norm > most ? (float)(most / norm) : 1.0f;
}

void tg_host_clip(tg_run *run, const tg_source *source)
{
    pass p = {.run = run, .source = source};
    run_jobs(run, run->plan->layout->unit_n, clip_unit, &p);
}

/* ---- the measuring pass ---------------------------------------------------------------------------------------------- */

/* gradient + residual of a block; with `keeps`, also into the next residual where the plan says so. NULL: it is refused. */
static const float *load(tg_encoding *e, uint64_t at, size_t n, bool keeps)
{
    if (e->unit->planes == 0) {
        return tg_load_gradient(e, at, n);
    }
    float *next = keeps && e->unit->presums ? tg_residual_at(e, at).next : NULL;
    bool non_temporal = next != NULL && e->plan->residual_n >= TG_NON_TEMPORAL_FROM;
    return tg_load_sum(e->scratch->u, next, e, at, n, non_temporal) == NULL ? NULL : e->scratch->u;
}

/* Short stretches from all over a unit, for a part that guesses from them; returns their number of elements. A sample costs as much
 * as measuring twice as many elements, so it is a small share of them; less than SAMPLE_MIN would tell too little. */
enum { STRETCH = 64, SAMPLE_SHARE = 64, SAMPLE_MIN = 1024 };

static size_t take_sample(float *sample, const pass *p, uint32_t i, uint32_t worker)
{
    const tg_unit_plan *u = &p->run->plan->units[i];
    uint64_t share = (u->hi - u->lo) / SAMPLE_SHARE;
    size_t stretches = (size_t)(share < TG_SAMPLE_MAX ? share : TG_SAMPLE_MAX) / STRETCH, n = 0;
    if (share < SAMPLE_MIN) {
        return 0;
    }
    for (size_t s = 0; s < stretches; s++) {
        uint64_t at = u->lo + (u->hi - u->lo - STRETCH) / stretches * s;
        tg_encoded result;
        tg_encoding e = encoding_of(p->run, i, p->source, worker, &result);
        const float *values = load(&e, at, STRETCH, false);
        if (values == NULL) {
            return 0; /* what is refused is found again, and reported, when it is measured */
        }
        memcpy(sample + n, values, STRETCH * sizeof *sample);
        n += STRETCH;
    }
    return n;
}

static void start_unit(const pass *p, uint32_t i)
{
    const tg_run *run = p->run;
    const tg_unit_plan *u = &run->plan->units[i];
    const tg_unit_work *w = &run->units[i];
    const tg_select_part *select = u->stages.select;
    double params[TG_PARAM_CAP];
    memcpy(params, u->stages.select_params, sizeof params);
    if (select->at_step != NULL) {
        select->at_step(params, run->work->step);
    }
    select->start(w->select, params, u->hi - u->lo, w->lanes, w->lane_n);
}

static void begin_unit(const pass *p, uint32_t unit, uint32_t worker)
{
    tg_unit_work *w = &p->run->units[unit];
    const tg_select_part *select = p->run->plan->units[unit].stages.select;
    w->measures = true;
    start_unit(p, unit);
    float *sample = p->run->work->scratch[worker].sum;
    size_t sample_n = select->estimate != NULL ? take_sample(sample, p, unit, worker) : 0;
    if (sample_n > 0) {
        select->estimate(w->select, sample, sample_n);
    }
}

static void measure_lane(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    tg_lane_job *lane = &p->run->lane_jobs[job];
    const tg_unit_plan *u = &p->run->plan->units[lane->unit];
    const tg_unit_work *w = &p->run->units[lane->unit];
    if (!w->measures) {
        return;
    }
    lane->bad_tensor = 0;
    uint64_t at = u->lo + lane->lane * w->lane_n;
    uint64_t end = u->hi - u->lo > (lane->lane + 1) * w->lane_n ? at + w->lane_n : u->hi;
    tg_encoded result;
    tg_encoding e = encoding_of(p->run, lane->unit, p->source, worker, &result);
    for (size_t n = 0; at < end; at += n) {
        n = end - at < TG_BLOCK ? (size_t)(end - at) : TG_BLOCK;
        const float *values = load(&e, at, n, true);
        if (values == NULL) {
            lane->bad_tensor = result.bad_tensor;
            return;
        }
        u->stages.select->measure(w->select, lane->lane, at, values, n);
    }
    if (u->presums && p->run->plan->residual_n >= TG_NON_TEMPORAL_FROM) {
        tg_store_fence();
    }
}

/* ---- the end of the measuring pass ------------------------------------------------------------------------------------- */

static void finish_unit(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    const tg_lane_job *lane = &p->run->lane_jobs[job];
    tg_unit_work *w = &p->run->units[lane->unit];
    const tg_select_part *select = p->run->plan->units[lane->unit].stages.select;
    (void)worker;
    if (lane->lane == 0 && w->measures) {
        w->measures = !select->finish(w->select);
        w->turns = w->measures || w->lanes == 1 ? 0 : select->turns;
    }
}

typedef struct turn_pass {
    const tg_run *run;
    uint32_t number;
} turn_pass;

static void sift_lane(void *context, uint32_t worker, size_t job)
{
    const turn_pass *turn = context;
    const tg_lane_job *lane = &turn->run->lane_jobs[job];
    const tg_unit_work *w = &turn->run->units[lane->unit];
    (void)worker;
    if (turn->number < w->turns) {
        turn->run->plan->units[lane->unit].stages.select->sift(w->select, lane->lane, turn->number);
    }
}

/* Turns in which the lanes of long units sift together. */
static void take_turns(const tg_run *run)
{
    uint32_t most = 0;
    for (size_t j = 0; j < run->lane_job_n; j++) {
        uint32_t turns = run->units[run->lane_jobs[j].unit].turns;
        most = turns > most ? turns : most;
    }
    for (uint32_t number = 0; number < most; number++) {
        turn_pass turn = {run, number};
        run_jobs(run, run->lane_job_n, sift_lane, &turn);
        for (size_t j = 0; j < run->lane_job_n; j++) {
            const tg_lane_job *lane = &run->lane_jobs[j];
            const tg_unit_work *w = &run->units[lane->unit];
            if (lane->lane == 0 && number < w->turns) {
                run->plan->units[lane->unit].stages.select->combine(w->select, number);
            }
        }
    }
    for (size_t j = 0; j < run->lane_job_n; j++) {
        run->units[run->lane_jobs[j].unit].turns = 0;
    }
}

/* The first job of a lane. A unit of one lane, as short ones are, is selected from at once, while it is in the caches. */
static void begin_lane(void *context, uint32_t worker, size_t job)
{
    enum { LATER = 8 };
    pass *p = context;
    tg_lane_job *lane = &p->run->lane_jobs[job];
    tg_unit_work *w = &p->run->units[lane->unit];
    lane->bad_tensor = 0;
    if (p->run->lane_job_n - job > LATER) {
        tg_host_prefetch_select(&p->run->units[lane[LATER].unit]);
    }
    if (lane->lane == 0) { /* once a unit */
        begin_unit(p, lane->unit, worker);
    }
    if (w->lanes > 1) {
        atomic_store_explicit(&p->has_lanes, true, memory_order_relaxed);
        return;
    }
    for (measure_lane(p, worker, job); lane->bad_tensor == 0; measure_lane(p, worker, job)) {
        finish_unit(p, worker, job);
        if (!w->measures) {
            break;
        }
        start_unit(p, lane->unit); /* again, without the estimate, which has misled it */
    }
    w->measures = false;
}

/* Starts units that were misled by an estimate again, without it. Returns whether there are such. */
static bool start_again(const pass *p)
{
    bool again = false;
    for (size_t j = 0; j < p->run->lane_job_n; j++) {
        const tg_lane_job *lane = &p->run->lane_jobs[j];
        if (lane->lane == 0 && p->run->units[lane->unit].measures) {
            start_unit(p, lane->unit);
            again = true;
        }
    }
    return again;
}

tg_status tg_host_select(tg_run *run, uint64_t step, const tg_source *source, tg_detail *why)
{
    pass p = {.run = run, .source = source};
    const tg_layout *l = run->plan->layout;
    for (size_t t = 0; source->grads != NULL && t < l->tensor_n; t++) {
        if (source->grads[t] == NULL && l->tensor_elements[t] > 0) {
            return tg_fail(TG_E_ARGUMENT, why, "no elements are given for tensor '%.150s'", l->tensors[t].name);
        }
    }
    if (run->parent == NULL) {
        run->work->step = step;
    }
    if (run->parent == NULL && run->plan->has_draws) {
        draw(run, step, true);
    }
    if (run->plan->has_clip) {
        tg_host_clip(run, source);
    }
    if (run->lane_job_n == 0) {
        return TG_OK;
    }
    run_jobs(run, run->lane_job_n, begin_lane, &p);
    for (bool again = true; again;) {
        bool has_lanes = atomic_load_explicit(&p.has_lanes, memory_order_relaxed);
        if (has_lanes) {
            run_jobs(run, run->lane_job_n, measure_lane, &p);
        }
        for (size_t j = 0; j < run->lane_job_n; j++) {
            if (run->lane_jobs[j].bad_tensor != 0) {
                return tg_host_refuse(run, run->lane_jobs[j].bad_tensor, source, why);
            }
        }
        if (has_lanes) {
            run_jobs(run, run->lane_job_n, finish_unit, &p);
            take_turns(run);
        }
        again = has_lanes && start_again(&p);
    }
    return TG_OK;
}
