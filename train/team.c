/* The objects of a run: allocated before the first step, freed after the last. */
#include "local.h"
#include "quorum.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATIENCE_MS = 600000 };

static int describe(tr_team *t, const tr_model *m, char why[TR_WHY])
{
    size_t largest = 0;
    t->tensor_n = tr_model_param_n(m);
    t->tensors = calloc(t->tensor_n, sizeof *t->tensors);
    t->residual_norms = calloc(t->tensor_n, sizeof *t->residual_norms);
    t->traffic = calloc(t->tensor_n, sizeof *t->traffic);
    t->lens = calloc(t->tensor_n, sizeof *t->lens);
    if (t->tensors == NULL || t->residual_norms == NULL || t->traffic == NULL || t->lens == NULL) {
        (void)snprintf(why, TR_WHY, "there is not enough memory");
        return -1;
    }
    for (size_t p = 0; p < t->tensor_n; p++) {
        const tr_param *param = tr_model_param(m, p);
        t->tensors[p] = (tg_tensor){param->name, param->dims, param->dim_n, param->kind, TG_FP32};
        t->kinds[param->kind].elements += param->n;
        t->lens[p] = param->n * sizeof(float);
        largest = param->n > largest ? param->n : largest;
    }
    t->residual = malloc((largest + 1) * sizeof *t->residual);
    if (t->residual == NULL) {
        (void)snprintf(why, TR_WHY, "there is not enough memory");
        return -1;
    }
    return 0;
}

static int fail(char why[TR_WHY], tg_status status, const tg_detail *reason)
{
    int misuse = status == TG_E_RECIPE || status == TG_E_ARGUMENT || status == TG_E_NO_EFFECT;
    (void)snprintf(why, TR_WHY, "%s", reason->text);
    return misuse ? TR_MISUSE : -1;
}

/* The worker's exchange, and its link to the others. */
static int connect(tr_worker *w, char why[TR_WHY])
{
    const tr_team *t = w->team;
    const tr_settings *s = t->settings;
    tg_options opt = TG_OPTIONS_INIT;
    opt.rules = s->rules;
    opt.rule_n = s->rule_n;
    opt.has_seed = 1;
    opt.seed = s->seed;
    opt.dense_below = s->dense_below;
    opt.nonfinite = s->nonfinite;
    opt.exchange = s->exchange;
    opt.verify_every = s->verify_every;
    opt.host_size = s->host_size;
    opt.group_len = s->group_len;
    opt.device = s->device != NULL ? s->device->device : NULL;
    tg_detail reason = {""};
    tg_status status =
        tg_exchange_new(&w->exchange, s->recipe, t->tensors, t->tensor_n, w->rank, s->workers, &opt, &reason);
    if (status != TG_OK) {
        return fail(why, status, &reason);
    }
    w->link = s->link != NULL ? s->link : tg_threads_link(t->hub, w->rank);
    if (s->link == NULL && s->slow_bits > 0) {
        tr_slow_init(&w->slow, w->link, s->slow_bits, s->slow_latency);
        w->slow.host_size = s->host_size;
        w->is_slow = 1;
        w->link = &w->slow.link;
    }
    status = tr_place_open(&w->place, s->device, w->grads, t->lens, t->tensor_n, &reason);
    if (status == TG_OK) {
        status = tr_place_link(&w->link, &w->place, w->link, s->workers, &reason);
    }
    return status == TG_OK ? 0 : fail(why, status, &reason);
}

static int hire(tr_team *t, tr_worker *w, char why[TR_WHY])
{
    const tr_settings *s = t->settings;
    tr_shape shape = tr_data_shape(t->data);
    size_t batch_max = s->batch > TR_TEST_BATCH ? s->batch : TR_TEST_BATCH, n = 0;
    int code = tr_model_new(&w->model, s->model, &shape, batch_max, s->seed, why);
    if (code != 0) {
        return code;
    }
    if (tr_optimizer_new(&w->optimizer, w->model, &s->optimizer, why) != 0 ||
        tr_loader_new(&w->loader, t->data, batch_max, why) != 0 ||
        (t->tensors == NULL && describe(t, w->model, why) != 0)) {
        return -1;
    }
    w->grads = calloc(t->tensor_n + 1, sizeof *w->grads);
    if (w->grads == NULL) {
        (void)snprintf(why, TR_WHY, "there is not enough memory");
        return -1;
    }
    (void)tr_model_buffers(w->model, &n);
    w->kept = malloc((n + 1) * sizeof *w->kept);
    w->leading = malloc((n + 1) * sizeof *w->leading);
    if (w->kept == NULL || w->leading == NULL) {
        (void)snprintf(why, TR_WHY, "there is not enough memory");
        return -1;
    }
    if (tr_local_open(w, why) != 0 || tr_quorum_open(w, why) != 0) {
        return -1;
    }
    for (size_t p = 0; p < t->tensor_n; p++) {
        w->grads[p] = w->moves + tr_model_param(w->model, p)->at;
    }
    return connect(w, why);
}

static int take_room(tr_team *t, char why[TR_WHY])
{
    uint32_t n = t->settings->workers;
    t->worker_n = t->settings->link != NULL ? 1 : n;
    t->workers = calloc(t->worker_n, sizeof *t->workers);
    t->models = calloc(t->worker_n, sizeof(tr_model *));
    t->reports = calloc(n, sizeof *t->reports);
    t->parts = calloc(n, sizeof *t->parts);
    t->part_lens = calloc(n, sizeof *t->part_lens);
    t->sends = calloc(n, sizeof *t->sends);
    t->recvs = calloc(n, sizeof *t->recvs);
    if (t->workers == NULL || t->models == NULL || t->reports == NULL || t->parts == NULL || t->part_lens == NULL ||
        t->sends == NULL || t->recvs == NULL) {
        (void)snprintf(why, TR_WHY, "there is not enough memory");
        return -1;
    }
    return 0;
}

int tr_team_gather(tr_team *t, char why[TR_WHY])
{
    tg_detail reason = {""};
    if (take_room(t, why) != 0) {
        return -1;
    }
    if (t->settings->link == NULL &&
        tg_threads_new(&t->hub, t->settings->workers, PATIENCE_MS, NULL, &reason) != TG_OK) {
        (void)snprintf(why, TR_WHY, "%s", reason.text);
        return -1;
    }
    for (uint32_t i = 0; i < t->worker_n; i++) {
        tr_worker *w = &t->workers[i];
        w->team = t;
        w->rank = t->settings->link != NULL ? t->settings->rank : i;
        w->report = &t->reports[w->rank];
        int code = hire(t, w, why);
        if (code != 0) {
            return code;
        }
        t->models[i] = w->model;
    }
    return 0;
}

void tr_team_dismiss(tr_team *t)
{
    for (uint32_t r = 0; t->workers != NULL && r < t->worker_n; r++) {
        tr_worker *w = &t->workers[r];
        tr_quorum_close(w);
        tg_reducer_free(w->reducer);
        tg_exchange_free(w->exchange);
        tr_place_close(&w->place);
        if (w->is_slow) {
            tr_slow_destroy(&w->slow);
        }
        free(w->saved);
        free(w->leading);
        free(w->kept);
        free(w->grads);
        tr_local_close(w);
        tr_loader_free(w->loader);
        tr_optimizer_free(w->optimizer);
        tr_model_free(w->model);
    }
    tg_threads_free(t->hub);
    free(t->recvs);
    free(t->sends);
    free(t->part_lens);
    free(t->parts);
    free(t->reports);
    free(t->models);
    free(t->workers);
    free(t->residual);
    free(t->residual_norms);
    free(t->lens);
    free(t->traffic);
    free(t->tensors);
    tr_gate_destroy(&t->gate);
}
