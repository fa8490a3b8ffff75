/* A quorum; see quorum.h. */
#include "quorum.h"

#include "meeting.h"
#include "step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A vote: the learner has taken its steps; and, from worker 0, the grace is over. */
enum { HAS_LEARNED = 1, GRACE_IS_OVER = 2 };

/* ---- the learner ------------------------------------------------------------------------------------------------------- */

static int must_quit(tr_learner *l)
{
    pthread_mutex_lock(&l->lock);
    int quits = l->quits;
    pthread_mutex_unlock(&l->lock);
    return quits;
}

static void *learner_main(void *argument)
{
    tr_worker *w = argument;
    tr_learner *l = &w->learner;
    pthread_mutex_lock(&l->lock);
    while (!l->quits) {
        if (!l->learns) {
            pthread_cond_wait(&l->change, &l->lock);
            continue;
        }
        pthread_mutex_unlock(&l->lock);
        tr_step_begin_report(&l->tally);
        for (uint64_t step = l->first; step < l->end && !must_quit(l); step++) {
            tr_step_alone(w, step, &l->tally);
        }
        pthread_mutex_lock(&l->lock);
        l->learns = 0;
        pthread_cond_broadcast(&l->change);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

int tr_quorum_open(tr_worker *w, char why[TR_WHY])
{
    tr_learner *l = &w->learner;
    uint32_t workers = w->team->settings->workers;
    size_t n = 0;
    if (w->team->settings->quorum == 0) {
        return 0;
    }
    (void)tr_model_weights(w->model, &n);
    w->moves = malloc((n + 1) * sizeof *w->moves);
    l->begun = malloc((n + 1) * sizeof *l->begun);
    l->sends = calloc(workers, sizeof *l->sends);
    l->recvs = calloc(workers, sizeof *l->recvs);
    l->votes = calloc(workers, sizeof *l->votes);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&l->change, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&l->lock, NULL);
    l->is_open = 1;
    if (w->moves == NULL || l->begun == NULL || l->sends == NULL || l->recvs == NULL || l->votes == NULL) {
        (void)snprintf(why, TR_WHY, "there is not enough memory for a quorum");
        return -1;
    }
    l->is_started = pthread_create(&l->thread, NULL, learner_main, w) == 0;
    if (!l->is_started) {
        (void)snprintf(why, TR_WHY, "cannot start a second thread for every worker; try fewer");
        return -1;
    }
    return 0;
}

void tr_quorum_close(tr_worker *w)
{
    tr_learner *l = &w->learner;
    if (!l->is_open) {
        return;
    }
    if (l->is_started) {
        pthread_mutex_lock(&l->lock);
        l->quits = 1;
        pthread_cond_broadcast(&l->change);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    free(l->votes);
    free(l->recvs);
    free(l->sends);
    free(l->begun);
    free(w->moves);
    pthread_cond_destroy(&l->change);
    pthread_mutex_destroy(&l->lock);
}

void tr_quorum_begin(tr_worker *w, uint64_t first, uint64_t end)
{
    tr_learner *l = &w->learner;
    size_t n = 0;
    (void)tr_model_weights(w->model, &n);
    if (w->report->is_absent) {
        return; /* it is still in an earlier round, or has done it, and brings its move next */
    }
    memcpy(l->begun, w->start, n * sizeof *w->start);
    l->first = first;
    l->end = end;
    pthread_mutex_lock(&l->lock);
    l->learns = 1;
    pthread_cond_broadcast(&l->change);
    pthread_mutex_unlock(&l->lock);
}

/* ---- votes --------------------------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Whether the learner has taken its steps; waits for it for a while if not. */
static int has_learned(tr_learner *l, double seconds)
{
    double until = now() + seconds, whole = floor(until);
    struct timespec deadline = {(time_t)whole, (long)((until - whole) * 1e9)};
    pthread_mutex_lock(&l->lock);
    int is_late = 0;
    while (l->learns && !is_late) {
        is_late = pthread_cond_timedwait(&l->change, &l->lock, &deadline) != 0;
    }
    int learned = !l->learns;
    pthread_mutex_unlock(&l->lock);
    return learned;
}

/* Workers whose learners wait vote at once, and are held by those whose learners work, which vote a few times within the grace. */
int tr_quorum_wait(tr_members *out, tr_worker *w, int needs_all)
{
    const tr_settings *s = w->team->settings;
    tr_learner *l = &w->learner;
    double interval = fmin(fmax(s->grace / 8, 1e-3), 0.05), enough_since = INFINITY;
    for (;;) {
        int learned = has_learned(l, interval), is_over = w->rank == 0 && now() - enough_since >= s->grace;
        uint32_t n = 0;
        if (tr_vote(w, l->votes, (uint8_t)((learned ? HAS_LEARNED : 0) | (is_over ? GRACE_IS_OVER : 0)), l->sends,
                    l->recvs) != 0) {
            return -1;
        }
        for (uint32_t r = 0; r < s->workers; r++) {
            n += (l->votes[r] & HAS_LEARNED) != 0 ? 1 : 0;
        }
        if (n == s->workers || (!needs_all && n >= s->quorum && (l->votes[0] & GRACE_IS_OVER) != 0)) {
            *out = (tr_members){.is_one = learned, .are_all = n == s->workers};
            return 0;
        }
        enough_since = n >= s->quorum ? fmin(enough_since, now()) : INFINITY;
    }
}

/* ---- the exchange -------------------------------------------------------------------------------------------------------- */

tg_status tr_quorum_exchange(tr_worker *w, const tr_members *members, uint64_t round, tg_detail *why)
{
    tr_learner *l = &w->learner;
    size_t n = 0;
    float *weights = tr_model_weights(w->model, &n);
    double start = now();
    w->report->is_absent = !members->is_one;
    if (members->is_one) {
        tg_local_move(w->moves, l->begun, weights, TG_FP32, n);
        w->report->score = l->tally.score;
        w->report->times = l->tally.times;
    } else {
        memset(w->moves, 0, n * sizeof *w->moves);
    }
    w->report->times.update += now() - start;
    tg_status status = tr_step_reduce(w, round, why);
    if (status != TG_OK) {
        return status;
    }
    start = now();
    tg_local_outer(w->start, w->velocity, w->moves, &w->team->settings->outer, n);
    if (members->is_one) {
        tg_local_mix(weights, TG_FP32, w->start, 0, n);
    }
    w->report->times.update += now() - start;
    return TG_OK;
}
