/* A training run; see run.h. In every step a worker, which is a thread or a process, does this:
 *
 *     batch, forward, backward    its own samples; layers whose gradients are complete are reported to the reducer, which encodes and
 *                                 sends them meanwhile
 *     meet                        threads only, if a hook wants the gradients; then they are reported only afterwards
 *     wait, or reduce             for the exchange: afterwards all workers hold the same averages
 *     update                      the same arithmetic on the same bits, so that all weights stay equal
 *     meet                        worker 0 receives all reports, calls hooks and saves
 *
 * With local steps, the update comes first and is the worker's own; only at the end of a round, or to save, do workers exchange and
 * meet. With a quorum (quorum.h), they do not wait for all. */
#include "evaluate.h"
#include "local.h"
#include "meeting.h"
#include "quorum.h"
#include "report.h"
#include "settings.h"
#include "step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Workers are between two rounds: compares their weights, if that was due since the round's first step. If all are here, tests
 * them, if that was due since the last test. */
static int end_round(tr_worker *w, uint64_t since, int all_are_here)
{
    const tr_settings *s = w->team->settings;
    if (tr_is_due(since, w->done, s->verify_every, s->steps)) {
        tr_hash_weights(w);
    }
    if (tr_meet(w, tr_finish_round) != 0) {
        return -1;
    }
    w->told = w->done;
    if (!all_are_here || !tr_is_due(w->test_since, w->done, s->test_every, s->steps)) {
        return 0;
    }
    w->test_since = w->done;
    return tr_test_share(w) != 0 || tr_meet(w, tr_tell_test) != 0 ? -1 : 0;
}

/* Inside a round, to save: reports what was done of it. */
static int interrupt_round(tr_worker *w)
{
    if (tr_meet(w, tr_finish_part) != 0) {
        return -1;
    }
    w->told = w->done;
    return 0;
}

static int run_step(tr_worker *w)
{
    tr_team *t = w->team;
    const tr_settings *s = t->settings;
    uint64_t step = w->done, since = tr_round_of(s, step).first;
    tg_detail why = {""};
    tr_step_learn(w, step);
    if (t->hooks->gradients != NULL && show_gradients(w) != 0) {
        /* Workers that passed the barrier before another one failed may wait for this one in the exchange. */
        w->link->abort(w->link, "a worker has failed");
        return -1;
    }
    w->report->status = tr_step_update(w, step, &why);
    if (w->report->status != TG_OK) {
        fail_step(w, step, why.text);
        return -1;
    }
    w->done++;
    int ends = tr_is_between_rounds(s, w->done),
        saves = s->save_every != 0 && tr_is_due(step, w->done, s->save_every, s->steps);
    if ((ends && end_round(w, since, 1) != 0) || (!ends && saves && interrupt_round(w) != 0)) {
        return -1;
    }
    return saves ? save_together(w) : 0;
}

/* The same with a quorum, for a whole round: another thread takes the steps, and may be late for its end. */
static int run_round(tr_worker *w)
{
    const tr_settings *s = w->team->settings;
    tg_round round = tr_round_of(s, w->done);
    tr_members members;
    tg_detail why = {""};
    tr_step_begin_report(w->report);
    tr_quorum_begin(w, w->done, round.first + round.steps);
    if (tr_quorum_wait(&members, w, round.first + round.steps == s->steps) != 0) {
        return -1;
    }
    w->report->status = tr_quorum_exchange(w, &members, round.number, &why);
    if (w->report->status != TG_OK) {
        fail_step(w, round.first, why.text);
        return -1;
    }
    w->done = round.first + round.steps;
    if (end_round(w, round.first, members.are_all) != 0) {
        return -1;
    }
    if (s->save_every == 0 || !members.are_all || !tr_is_due(w->save_since, w->done, s->save_every, s->steps)) {
        return 0;
    }
    w->save_since = w->done;
    return save_together(w);
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
    w->done = w->told = w->save_since = w->team->first_step;
    w->test_since = w->done < s->steps ? tr_round_of(s, w->done).first : w->done;
    while (w->done < s->steps && (s->quorum > 0 ? run_round(w) : run_step(w)) == 0) {
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
    (void)snprintf(facts + len_so_far, sizeof facts - len_so_far, "group-size %llu\nquorum %u, grace %.17g\n",
                   (unsigned long long)t->settings->group_len, t->settings->quorum, t->settings->grace);
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
