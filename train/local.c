/* Rounds of local steps; see local.h. */
#include "local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tr_is_local(const tr_settings *s)
{
    return !tg_schedule_is_one(&s->local);
}

tg_round tr_round_of(const tr_settings *s, uint64_t step)
{
    tg_round r = {step, step, 1};
    if (tr_is_local(s)) {
        tg_schedule_round(&r, &s->local, step);
        r.steps = r.first + r.steps > s->steps ? s->steps - r.first : r.steps;
    }
    return r;
}

int tr_is_between_rounds(const tr_settings *s, uint64_t done)
{
    return done >= s->steps || tr_round_of(s, done).first == done;
}

int tr_local_open(tr_worker *w, char why[TR_WHY])
{
    const tr_settings *s = w->team->settings;
    size_t n = 0;
    const float *weights = tr_model_weights(w->model, &n);
    w->moves = tr_model_grads(w->model, &n);
    if (!tr_is_local(s)) {
        return 0;
    }
    w->start = malloc((n + 1) * sizeof *w->start);
    w->velocity = s->outer.momentum > 0 ? calloc(n + 1, sizeof *w->velocity) : NULL;
    if (w->start == NULL || (s->outer.momentum > 0 && w->velocity == NULL)) {
        (void)snprintf(why, TR_WHY, "there is not enough memory for the shared weights");
        return -1;
    }
    memcpy(w->start, weights, n * sizeof *weights);
    return 0;
}

void tr_local_close(tr_worker *w)
{
    free(w->velocity);
    free(w->start);
}

void tr_local_before(tr_worker *w)
{
    size_t n = 0;
    const float *weights = tr_model_weights(w->model, &n);
    tg_local_move(w->moves, w->start, weights, TG_FP32, n);
}

void tr_local_after(tr_worker *w)
{
    size_t n = 0;
    float *weights = tr_model_weights(w->model, &n);
    tg_local_outer(w->start, w->velocity, w->moves, &w->team->settings->outer, n);
    tg_local_mix(weights, TG_FP32, w->start, 0, n);
}
