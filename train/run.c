/* A training run; see run.h. In every step a worker, which is a thread or a process, does this:
 *
 *     batch, forward, backward    its own samples; layers whose gradients are complete are reported to the reducer, which encodes and
 *                                 sends them meanwhile
 *     meet                        threads only, if a hook wants the gradients; then they are reported only afterwards
 *     wait, or reduce             for the exchange: afterwards all workers hold the same averages
 *     update                      the same arithmetic on the same bits, so that all weights stay equal
 *     meet                        worker 0 receives all reports, calls hooks and saves */
#include "hash.h"
#include "meeting.h"
#include "report.h"
#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- a step of one worker ------------------------------------------------------------------------------------------ */

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

static tg_status reduce(tr_worker *w, uint64_t step, tg_detail *why)
{
    const tg_meter *last = &w->report->last;
    tr_times *times = &w->report->times;
    tg_status status = w->reducer != NULL ? wait_for_averages(w, step, why) : reduce_at_once(w, step, why);
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

static void learn(tr_worker *w, uint64_t step)
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
    w->report->times = (tr_times){0};
    double start = now();
    /* The averages replace the gradients as soon as all workers have sent theirs; a hook that wants them comes first. If the step
     * cannot begin, it is tried again after the backward pass, and fails there. */
    int overlaps = w->reducer != NULL && w->team->hooks->gradients == NULL && begin(w, step, &why) == TG_OK;
    tr_batch batch = tr_loader_train(w->loader, &draw);
    w->report->score = tr_model_train(w->model, &batch, overlaps ? &ready : NULL);
    w->report->times.compute = now() - start;
}

static tg_status average_and_update(tr_worker *w, uint64_t step, tg_detail *why)
{
    tg_status status = reduce(w, step, why);
    if (status != TG_OK) {
        return status;
    }
    double start = now();
    tr_optimizer_step(w->optimizer, w->model, step);
    w->report->times.update = now() - start;
    return TG_OK;
}

/* ---- tests, shared by all workers ------------------------------------------------------------------------------------ */

/* The running statistics of worker 0; processes broadcast them. NULL if the link fails. */
static const float *leading_buffers(tr_worker *w)
{
    const tr_team *t = w->team;
    size_t n = 0;
    float *own = tr_model_buffers(t->workers[0].model, &n);
    if (t->settings->link == NULL || n == 0) {
        return own;
    }
    float *leading = w->rank == 0 ? own : w->leading;
    return tr_spread(w, leading, n * sizeof *leading) == 0 ? leading : NULL;
}

/* Each worker tests its share of the samples. All use the running statistics of worker 0, so that the result does not depend on
 * how samples are shared out. Workers other than 0 restore their own afterwards. */
static int test_share(tr_worker *w)
{
    const tr_team *t = w->team;
    size_t n = 0, samples = tr_data_count(t->data, TR_TEST);
    float *buffers = tr_model_buffers(w->model, &n), *kept = w->kept;
    const float *leading = leading_buffers(w);
    if (leading == NULL && n > 0) {
        return -1;
    }
    if (w->rank != 0 && n > 0) {
        memcpy(kept, buffers, n * sizeof *kept);
        memcpy(buffers, leading, n * sizeof *kept);
    }
    size_t batches = (samples + TR_TEST_BATCH - 1) / TR_TEST_BATCH;
    tr_score sum = {0};
    for (size_t b = w->rank; b < batches; b += t->settings->workers) {
        size_t first = b * TR_TEST_BATCH, left = samples - first;
        tr_batch batch = tr_loader_test(w->loader, first, left < TR_TEST_BATCH ? left : TR_TEST_BATCH);
        tr_score score = tr_model_test(w->model, &batch);
        sum.loss += score.loss;
        sum.correct += score.correct;
        sum.count += score.count;
    }
    w->report->score = sum;
    if (w->rank != 0 && n > 0) {
        memcpy(buffers, kept, n * sizeof *kept);
    }
    return 0;
}

static void hash_weights(tr_worker *w)
{
    size_t n = 0;
    const float *weights = tr_model_weights(w->model, &n);
    w->report->hash = tr_hash(0, weights, n * sizeof *weights);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------------- */

/* Passes the gradients of this process to the hook. Threads wait for each other before and after it. */
static int show_gradients(tr_worker *w)
{
    char why[TR_WHY] = "";
    if (w->team->settings->link == NULL) {
        return tr_meet(w, tr_tell_gradients);
    }
    if (w->rank == 0 && tr_tell_gradients(w->team, why) != 0) {
        tr_give_up(w, why);
        return -1;
    }
    return 0;
}

static int find_nonfinite(tr_team *t, char why[TR_WHY])
{
    (void)why;
    for (uint32_t r = 0; r < t->settings->workers; r++) {
        t->has_nonfinite = t->has_nonfinite || t->reports[r].status == TG_E_NONFINITE;
    }
    return 0;
}

/* A step fails on all workers alike, unless the link itself has failed. The worker whose gradients hold NaN or Inf has the status
 * TG_E_NONFINITE, the others TG_E_PEER. So worker 0 collects the statuses before it reports the reason. */
static void fail_step(tr_worker *w, uint64_t step, const char *reason)
{
    tr_team *t = w->team;
    char why[TR_WHY];
    int met = w->report->status != TG_E_LINK && tr_meet(w, find_nonfinite) == 0;
    if (met && t->has_nonfinite && w->rank == 0) {
        t->diverged = step + 1;
    }
    if (met && w->rank != 0 && t->settings->link == NULL) {
        return; /* worker 0 reports it for all threads */
    }
    (void)snprintf(why, sizeof why, "%s at step %llu%s", reason, (unsigned long long)step,
                   met && t->has_nonfinite ? ": training has diverged; try a lower --rate, or --warmup" : "");
    tr_gate_fail(&t->gate, why);
}

static void tell_saved(const tr_team *t)
{
    if (t->hooks->saved != NULL) {
        t->hooks->saved(t->hooks->context);
    }
}

/* Worker 0 gathers the parts of all workers and saves them. All workers wait until it has. */
static int save_together(tr_worker *w)
{
    char why[TR_WHY] = "";
    if (tr_saved_worker(w, why) != 0) {
        tr_give_up(w, why);
        return -1;
    }
    if (tr_meet_with(w, w->saved, w->saved_len, tr_save) != 0) {
        return -1;
    }
    uint8_t is_saved = 1;
    if (w->team->settings->link != NULL && tr_spread(w, &is_saved, sizeof is_saved) != 0) {
        return -1;
    }
    if (w == &w->team->workers[0]) {
        tell_saved(w->team);
    }
    return 0;
}

static int run_step(tr_worker *w, uint64_t step)
{
    tr_team *t = w->team;
    const tr_settings *s = t->settings;
    uint64_t done = step + 1;
    tg_detail why = {""};
    learn(w, step);
    if (t->hooks->gradients != NULL && show_gradients(w) != 0) {
        /* Workers that passed the barrier before another one failed may wait for this one in the exchange. */
        w->link->abort(w->link, "a worker has failed");
        return -1;
    }
    w->report->status = average_and_update(w, step, &why);
    if (w->report->status != TG_OK) {
        fail_step(w, step, why.text);
        return -1;
    }
    if (tr_is_due(done, s->verify_every, s->steps)) {
        hash_weights(w);
    }
    if (tr_meet(w, tr_finish_step) != 0) {
        return -1;
    }
    if (tr_is_due(done, s->test_every, s->steps) && (test_share(w) != 0 || tr_meet(w, tr_tell_test) != 0)) {
        return -1;
    }
    return s->save_every != 0 && tr_is_due(done, s->save_every, s->steps) ? save_together(w) : 0;
}

/* With a link that performs one operation at a time, nothing could overlap, and tg_reduce does as well. */
static int start_reducer(tr_worker *w)
{
    tg_detail why = {""};
    if (w->team->settings->group_len == 0 || w->link->start == NULL) {
        return 0;
    }
    if (tg_reducer_new(&w->reducer, w->exchange, w->link, &why) != TG_OK) {
        tr_give_up(w, why.text);
        return -1;
    }
    return 0;
}

static void *worker_main(void *argument)
{
    tr_worker *w = argument;
    const tr_settings *s = w->team->settings;
    if (start_reducer(w) != 0) {
        return NULL;
    }
    for (uint64_t step = w->team->first_step; step < s->steps && run_step(w, step) == 0; step++) {
    }
    return NULL;
}

/* ---- the run ------------------------------------------------------------------------------------------------------------- */

static void work_as_threads(tr_team *t)
{
    uint32_t started = 0, n = t->worker_n;
    while (started < n && pthread_create(&t->workers[started].thread, NULL, worker_main, &t->workers[started]) == 0) {
        started++;
    }
    if (started < n) {
        tr_gate_fail(&t->gate, "cannot start a thread for every worker; try fewer");
        t->workers[0].link->abort(t->workers[0].link, "not all workers could be started");
    }
    for (uint32_t r = 0; r < started; r++) {
        pthread_join(t->workers[r].thread, NULL);
    }
}

/* Runs this process's worker. At the end waits for worker 0 to confirm that it has finished. */
static void work_as_process(tr_team *t)
{
    uint8_t is_well = 1;
    (void)worker_main(&t->workers[0]);
    if (!t->gate.failed) {
        (void)tr_spread(&t->workers[0], &is_well, sizeof is_well);
    }
}

/* Processes only: compares the setup of all workers, then broadcasts worker 0's saved run. */
static int agree(tr_team *t, const void **saved, size_t *saved_len, void **room, char why[TR_WHY])
{
    tr_worker *w = &t->workers[0];
    char facts[TR_SETTINGS_CAP];
    tg_detail reason = {""};
    tr_settings_text(facts, t->settings, t->data);
    size_t len_so_far = strlen(facts);
    /* Not in the text itself: a checkpoint may be resumed with other groups. */
    (void)snprintf(facts + len_so_far, sizeof facts - len_so_far, "group-size %llu\n",
                   (unsigned long long)t->settings->group_len);
    tg_status status = tg_handshake(w->exchange, w->link, facts, &reason);
    w->between = w->link->sent_len;
    if (status != TG_OK) {
        t->lost_link = status == TG_E_LINK;
        (void)snprintf(why, TR_WHY, "%s", reason.text);
        if (status != TG_E_MISMATCH) {
            w->link->abort(w->link, reason.text);
        }
        return -1;
    }
    uint64_t len = w->rank == 0 && *saved != NULL ? *saved_len : 0;
    int code = tr_spread(w, &len, sizeof len);
    if (code == 0 && len > 0) {
        *room = malloc((size_t)len);
        if (*room == NULL) {
            tr_give_up(w, "there is not enough memory for the saved run");
            code = -1;
        } else if (w->rank == 0) {
            memcpy(*room, *saved, (size_t)len);
        }
        code = code == 0 ? tr_spread(w, *room, (size_t)len) : code;
        *saved = *room;
        *saved_len = (size_t)len;
    }
    (void)snprintf(why, TR_WHY, "%s", t->gate.why);
    return code;
}

int tr_run(tr_result *out, const tr_settings *s, const tr_data *data, const tr_hooks *hooks, const void *saved,
           size_t saved_len, char why[TR_WHY])
{
    tr_team t = {.settings = s, .data = data, .hooks = hooks};
    tr_losses_begin(&t.losses, tr_data_shape(data).classes);
    void *room = NULL;
    tr_gate_init(&t.gate, s->workers);
    int code = tr_team_gather(&t, why);
    if (code == 0 && s->link != NULL) {
        code = agree(&t, &saved, &saved_len, &room, why);
    }
    if (code == 0 && saved != NULL) {
        code = tr_saved_read(&t, saved, saved_len, why);
        if (code == 0) {
            tell_saved(&t);
        }
    }
    free(room);
    if (code == 0) {
        (s->link != NULL ? work_as_process : work_as_threads)(&t);
        (void)snprintf(why, TR_WHY, "%s", t.gate.why);
        code = t.gate.failed ? -1 : 0;
        *out = (tr_result){.diverged = t.diverged};
    }
    if (code == 0 && s->rank == 0) {
        tr_conclude(out, &t);
    }
    code = code != 0 && t.lost_link ? TR_LOST : code;
    tr_team_dismiss(&t);
    return code;
}
