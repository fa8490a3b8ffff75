/* A step of one worker; see step.h. */
#include "step.h"

#include "local.h"

#include <math.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Begins a step of the reducer. Other workers wait for this one if it cannot. */
static tg_status begin(tr_worker *w, uint64_t step, tg_detail *why)
{
    tg_status status = tg_reducer_begin(w->reducer, step, w->place.grads, why);
    if (status != TG_OK) {
        w->link->abort(w->link, why->text);
    }
    w->is_begun = status == TG_OK;
    return status;
}

static void report_ready(void *context, size_t param)
{
    tr_worker *w = context;
    tr_place_store(&w->place, param);
    tg_status status = tg_reducer_ready(w->reducer, param, NULL);
    (void)status; /* tg_reducer_wait returns why it fails */
}

static tg_status wait_for_averages(tr_worker *w, uint64_t step, tg_detail *why)
{
    if (!w->is_begun) {
        tg_status status = begin(w, step, why);
        if (status != TG_OK) {
            return status;
        }
        for (size_t p = w->team->tensor_n; p-- > 0;) {
            report_ready(w, p);
        }
    }
    w->is_begun = 0;
    return tg_reducer_wait(w->reducer, why);
}

static tg_status reduce_at_once(tr_worker *w, uint64_t step, tg_detail *why)
{
    for (size_t p = 0; p < w->team->tensor_n; p++) {
        tr_place_store(&w->place, p);
    }
    return tg_reduce(w->exchange, w->link, step, w->place.grads, why);
}

/* One exchange of what the model has in place of its gradients; the number of an exchange is that of its round. */
tg_status tr_step_reduce(tr_worker *w, uint64_t round, tg_detail *why)
{
    const tg_meter *last = &w->report->last;
    tr_times *times = &w->report->times;
    tg_status status = w->reducer != NULL ? wait_for_averages(w, round, why) : reduce_at_once(w, round, why);
    status = status == TG_OK ? tr_place_fetch(&w->place, why) : status;
    tg_exchange_meter(w->exchange, &w->report->last, &w->report->total);
    times->encode = 1e-9 * (double)last->encode_ns;
    times->exchange = 1e-9 * (double)last->wire_ns;
    times->decode = 1e-9 * (double)last->decode_ns;
    times->exposed = 1e-9 * (double)last->exposed_ns;
    w->report->carried = w->link->sent_len - w->between;
    w->report->between = w->between;
    if (status == TG_E_LINK && w->team->settings->link != NULL) {
        w->team->lost_link = 1;
    }
    return status;
}

/* The report is about the steps since the last one. */
void tr_step_begin_report(tr_report *r)
{
    r->score = (tr_score){0};
    r->times = (tr_times){0};
    r->last = (tg_meter){0};
}

/* A worker that is slow, as an emulation. */
static void lag(const tr_worker *w)
{
    const tr_settings *s = w->team->settings;
    double whole = floor(s->late_seconds);
    struct timespec left = {(time_t)whole, (long)((s->late_seconds - whole) * 1e9)};
    if (s->late_seconds > 0 && s->late_rank == w->rank) {
        while (nanosleep(&left, &left) != 0) {
            /* interrupted by a signal: the rest is left */
        }
    }
}

static void learn(tr_worker *w, uint64_t step, tr_report *r)
{
    const tr_settings *s = w->team->settings;
    const tr_ready ready = {report_ready, w};
    tg_detail why = {""};
    tr_draw draw = {.seed = s->seed,
                    .step = step,
                    .worker = w->rank,
                    .workers = s->workers,
                    .batch = s->batch,
                    .augment = s->augment};
    double start = now();
    lag(w);
    /* The averages replace the gradients as soon as all workers have sent theirs; a hook that wants them comes first. If the step
     * cannot begin, it is tried again after the backward pass, and fails there. */
    int overlaps =
        w->reducer != NULL && !tr_is_local(s) && w->team->hooks->gradients == NULL && begin(w, step, &why) == TG_OK;
    tr_batch batch = tr_loader_train(w->loader, &draw);
    tr_score score = tr_model_train(w->model, &batch, overlaps ? &ready : NULL);
    r->score.loss += score.loss;
    r->score.correct += score.correct;
    r->score.count += score.count;
    r->times.compute += now() - start;
}

void tr_step_learn(tr_worker *w, uint64_t step)
{
    if (w->done == w->told) {
        tr_step_begin_report(w->report);
    }
    learn(w, step, w->report);
}

static void optimize(const tr_worker *w, uint64_t step, tr_report *r)
{
    double start = now();
    tr_optimizer_step(w->optimizer, w->model, step);
    r->times.update += now() - start;
}

void tr_step_alone(tr_worker *w, uint64_t step, tr_report *tally)
{
    learn(w, step, tally);
    optimize(w, step, tally);
}

/* The end of a round: the average of all workers' moves, and the outer step. */
static tg_status exchange_moves(tr_worker *w, uint64_t round, tg_detail *why)
{
    double start = now();
    tr_local_before(w);
    w->report->times.update += now() - start;
    tg_status status = tr_step_reduce(w, round, why);
    start = now();
    if (status == TG_OK) {
        tr_local_after(w);
    }
    w->report->times.update += now() - start;
    return status;
}

tg_status tr_step_update(tr_worker *w, uint64_t step, tg_detail *why)
{
    const tr_settings *s = w->team->settings;
    if (tr_is_local(s)) {
        optimize(w, step, w->report);
        return tr_is_between_rounds(s, step + 1) ? exchange_moves(w, tr_round_of(s, step).number, why) : TG_OK;
    }
    tg_status status = tr_step_reduce(w, step, why);
    if (status == TG_OK) {
        optimize(w, step, w->report);
    }
    return status;
}
