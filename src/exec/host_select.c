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

typedef struct count_pass {
    const tg_run *run;
    size_t first; /* chunk of the group */
} count_pass;

static void count_known(void *context, uint32_t worker, size_t job)
{
    const count_pass *p = context;
    const tg_run *run = p->run;
    size_t number = p->first + job;
    const tg_chunk *chunk = &run->plan->grid->chunks[number];
    const tg_unit_plan *u = &run->plan->units[chunk->unit];
    if (u->coordinates == TG_AT_DRAWN || u->coordinates == TG_AT_LEADER) {
        uint64_t *mask = run->work->scratch[worker].mask;
        tg_mark_known(mask, u, &run->units[chunk->unit], chunk->at, chunk->n);
        run->work->known_n[number] = (uint32_t)tg_mask_count(mask, chunk->n);
    }
}

static void count_group(tg_run *run, uint32_t group)
{
    const tg_grid *grid = run->plan->grid;
    count_pass p = {run, grid->first[group * grid->slices]};
    run_jobs(run, grid->first[(group + 1) * grid->slices] - p.first, count_known, &p);
}

/* Draws for a step: what all ranks share and, of an encoder, what is this rank's own. */
static void draw(tg_run *run, uint32_t group, uint64_t step, bool own_too)
{
    const tg_plan *plan = run->plan;
    for (size_t j = plan->grid->unit_first[group]; j < plan->grid->unit_first[group + 1]; j++) {
        uint32_t i = plan->grid->units[j];
        const tg_unit_plan *u = &plan->units[i];
        bool is_shared = u->coordinates == TG_AT_DRAWN;
        if (u->stages.select->by == TG_BY_SEED && u->unit->n > 0 && (is_shared || own_too)) {
            tg_stream stream = tg_stream_of(plan->layout->seed, step, i, is_shared ? 0 : plan->rank + 1);
            u->stages.select->draw(run->units[i].select, u->stages.select_params, u->unit->n, &stream);
        }
    }
    run->work->drawn[group] = (tg_drawn){step, true};
    count_group(run, group);
}

void tg_host_draw(tg_run *run, uint32_t group, uint64_t step)
{
    run = run->parent != NULL ? run->parent : run;
    if (run->plan->has_draws && !(run->work->drawn[group].is_drawn && run->work->drawn[group].step == step)) {
        draw(run, group, step, false);
    }
    run->work->step = step;
}

bool tg_host_length(uint64_t *len, tg_run *run, uint32_t cell, uint64_t step)
{
    tg_host_draw(run, cell / run->plan->grid->slices, step);
    return tg_body_len(len, run->plan, cell, run->work->known_n);
}

void tg_host_follow(tg_run *run, const tg_plan *plan, uint32_t group, const tg_body_view *body)
{
    for (size_t i = plan->grid->first[group]; i < plan->grid->first[group + 1]; i++) {
        const tg_chunk *chunk = &plan->grid->chunks[i];
        const tg_unit_plan *u = &plan->units[chunk->unit];
        const tg_view *v = &body->chunks[i - plan->grid->first[group]];
        if (u->route == TG_ROUTE_NONE) {
            continue;
        }
        uint64_t *mask = run->units[chunk->unit].leader + chunk->at / 64; /* chunks of one slice start at whole words */
        memset(mask, 0, tg_words(chunk->n) * sizeof *mask);
        if (v->count > 0) {
            (void)u->stages.index_read(mask, v->mode, body->bytes + v->indices, v->index_len, chunk->n, v->count);
        }
    }
    count_group(run, group);
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
    uint32_t group;
    tg_lane_job *lanes; /* of the group's units that are measured */
    size_t lane_n;
    atomic_bool has_lanes; /* some unit is shared among lanes */
} pass;

static pass pass_of(tg_run *run, uint32_t group, const tg_source *source)
{
    return (pass){.run = run,
                  .source = source,
                  .group = group,
                  .lanes = run->lane_jobs + run->lane_first[group],
                  .lane_n = run->lane_first[group + 1] - run->lane_first[group]};
}

/* The factor that bounds the norm of a unit's gradient, where the feedback asks for that. */
static void clip_unit(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    const tg_grid *grid = p->run->plan->grid;
    uint32_t i = grid->units[grid->unit_first[p->group] + job];
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
        tg_encoding e = encoding_of(p->run, i, p->source, worker, &result);
        const float *g = tg_load_gradient(&e, at, n);
        tg_tree_add_squares(&squares, g, g != NULL ? n : 0); /* what is refused is found again, and reported, later */
    }
    double norm = sqrt(tg_tree_sum(&squares));
    w->clip = most > 0 && norm > most ? (float)(most / norm) : 1.0f;
}

void tg_host_clip(tg_run *run, uint32_t group, const tg_source *source)
{
    const tg_grid *grid = run->plan->grid;
    pass p = pass_of(run, group, source);
    run_jobs(run, grid->unit_first[group + 1] - grid->unit_first[group], clip_unit, &p);
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
 * as measuring twice as many elements, so it is a small share of them; less than SAMPLE_MIN would tell too little. Of short units
 * a larger share is worth it. */
enum { STRETCH = 64, SAMPLE_MIN = 128 };

static uint64_t sample_of(uint64_t n)
{
    static const struct {
        uint64_t share, most;
    } steps[] = {{4, 256}, {16, 1024}, {64, TG_SAMPLE_MAX}};
    uint64_t sample_n = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        uint64_t share = n / steps[i].share < steps[i].most ? n / steps[i].share : steps[i].most;
        sample_n = share > sample_n ? share : sample_n;
    }
    return sample_n;
}

static size_t take_sample(float *sample, const pass *p, uint32_t i, uint32_t worker)
{
    const tg_unit_plan *u = &p->run->plan->units[i];
    uint64_t share = sample_of(u->hi - u->lo);
    size_t stretches = (size_t)share / STRETCH, n = 0;
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
    tg_lane_job *lane = &p->lanes[job];
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
    const tg_lane_job *lane = &p->lanes[job];
    tg_unit_work *w = &p->run->units[lane->unit];
    const tg_select_part *select = p->run->plan->units[lane->unit].stages.select;
    (void)worker;
    if (lane->lane == 0 && w->measures) {
        w->measures = !select->finish(w->select);
        w->turns = w->measures || w->lanes == 1 ? 0 : select->turns;
    }
}

typedef struct turn_pass {
    const pass *of;
    uint32_t number;
} turn_pass;

static void sift_lane(void *context, uint32_t worker, size_t job)
{
    const turn_pass *turn = context;
    const tg_run *run = turn->of->run;
    const tg_lane_job *lane = &turn->of->lanes[job];
    const tg_unit_work *w = &run->units[lane->unit];
    (void)worker;
    if (turn->number < w->turns) {
        run->plan->units[lane->unit].stages.select->sift(w->select, lane->lane, turn->number);
    }
}

/* Turns in which the lanes of long units sift together. */
static void take_turns(const pass *p)
{
    const tg_run *run = p->run;
    uint32_t most = 0;
    for (size_t j = 0; j < p->lane_n; j++) {
        uint32_t turns = run->units[p->lanes[j].unit].turns;
        most = turns > most ? turns : most;
    }
    for (uint32_t number = 0; number < most; number++) {
        turn_pass turn = {p, number};
        run_jobs(run, p->lane_n, sift_lane, &turn);
        for (size_t j = 0; j < p->lane_n; j++) {
            const tg_lane_job *lane = &p->lanes[j];
            const tg_unit_work *w = &run->units[lane->unit];
            if (lane->lane == 0 && number < w->turns) {
                run->plan->units[lane->unit].stages.select->combine(w->select, number);
            }
        }
    }
    for (size_t j = 0; j < p->lane_n; j++) {
        run->units[p->lanes[j].unit].turns = 0;
    }
}

/* The first job of a lane. A unit of one lane, as short ones are, is selected from at once, while it is in the caches. */
static void begin_lane(void *context, uint32_t worker, size_t job)
{
    enum { LATER = 8 };
    pass *p = context;
    tg_lane_job *lane = &p->lanes[job];
    tg_unit_work *w = &p->run->units[lane->unit];
    lane->bad_tensor = 0;
    if (p->lane_n - job > LATER) {
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
    for (size_t j = 0; j < p->lane_n; j++) {
        const tg_lane_job *lane = &p->lanes[j];
        if (lane->lane == 0 && p->run->units[lane->unit].measures) {
            start_unit(p, lane->unit);
            again = true;
        }
    }
    return again;
}

/* Refuses a group of which a tensor has no elements. */
static tg_status check_given(const pass *p, tg_detail *why)
{
    const tg_grid *grid = p->run->plan->grid;
    const tg_layout *l = p->run->plan->layout;
    for (size_t j = grid->unit_first[p->group]; p->source->grads != NULL && j < grid->unit_first[p->group + 1]; j++) {
        const tg_unit *unit = &l->units[grid->units[j]];
        for (size_t i = 0; i < unit->piece_n; i++) {
            size_t t = unit->pieces[i].tensor;
            if (p->source->grads[t] == NULL && l->tensor_elements[t] > 0) {
                return tg_fail(TG_E_ARGUMENT, why, "no elements are given for tensor '%.150s'", l->tensors[t].name);
            }
        }
    }
    return TG_OK;
}

tg_status tg_host_select(tg_run *run, uint32_t group, uint64_t step, const tg_source *source, tg_detail *why)
{
    pass p = pass_of(run, group, source);
    TG_TRY(check_given(&p, why));
    if (run->parent == NULL) {
        run->work->step = step;
    }
    if (run->parent == NULL && run->plan->has_draws) {
        draw(run, group, step, true);
    }
    if (run->plan->has_clip) {
        tg_host_clip(run, group, source);
    }
    if (p.lane_n == 0) {
        return TG_OK;
    }
    run_jobs(run, p.lane_n, begin_lane, &p);
    for (bool again = true; again;) {
        bool has_lanes = atomic_load_explicit(&p.has_lanes, memory_order_relaxed);
        if (has_lanes) {
            run_jobs(run, p.lane_n, measure_lane, &p);
        }
        for (size_t j = 0; j < p.lane_n; j++) {
            if (p.lanes[j].bad_tensor != 0) {
                return tg_host_refuse(run, p.lanes[j].bad_tensor, source, why);
            }
        }
        if (has_lanes) {
            run_jobs(run, p.lane_n, finish_unit, &p);
            take_turns(&p);
        }
        again = has_lanes && start_again(&p);
    }
    return TG_OK;
}
