/* A training run; see run.h. Every worker does the same steps:
 *
 *     its batch, forward, backward     a thread each
 *     gate                             if a hook wants all gradients
 *     reduce                           through the exchange: afterwards all hold the same averages
 *     update                           the same arithmetic on the same bits: the weights stay the same
 *     gate                             worker 0 tells and saves while the others wait */
#include "team.h"

#include <math.h>
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

/* As tg_reduce, with a clock: the first call encodes, those behind a message decode. */
static tg_status reduce(tr_worker *w, uint64_t step, tg_detail *why)
{
    tg_op op;
    double start = now();
    tg_status status = tg_exchange_begin(w->exchange, step, w->grads, why);
    double *stage = &w->times.encode;
    while (status == TG_OK || status == TG_MORE) {
        status = tg_exchange_next(w->exchange, &op, why);
        double mid = now();
        *stage += mid - start;
        stage = &w->times.decode;
        if (status != TG_MORE) {
            break;
        }
        status = w->link->carry(w->link, &op, why);
        start = now();
        w->times.exchange += start - mid;
        if (status != TG_OK) {
            tg_exchange_cancel(w->exchange);
            break;
        }
    }
    if (status == TG_E_LINK) {
        w->link->abort(w->link, why->text);
    }
    return status;
}

static void learn(tr_worker *w, uint64_t step)
{
    const tr_settings *s = w->team->settings;
    tr_draw draw = {.seed = s->seed,
                    .step = step,
                    .worker = w->rank,
                    .workers = s->workers,
                    .batch = s->batch,
                    .augment = s->augment};
    w->times = (tr_times){0};
    double start = now();
    tr_batch batch = tr_loader_train(w->loader, &draw);
    w->score = tr_model_train(w->model, &batch);
    w->times.compute = now() - start;
}

static tg_status average_and_update(tr_worker *w, uint64_t step, tg_detail *why)
{
    tg_status status = reduce(w, step, why);
    if (status != TG_OK) {
        return status;
    }
    double start = now();
    tr_optimizer_step(w->optimizer, w->model, step);
    w->times.update = now() - start;
    return TG_OK;
}

/* ---- tests, shared by all workers ------------------------------------------------------------------------------------ */

/* Each worker tests its share of the samples, with the running statistics of worker 0, so that the result does not depend
 * on who tests what. Workers other than 0 get their own back afterwards; `kept` has room for them. */
static void test_share(tr_worker *w, float *kept)
{
    const tr_team *t = w->team;
    size_t n = 0, samples = tr_data_count(t->data, TR_TEST);
    float *buffers = tr_model_buffers(w->model, &n);
    const float *leading = tr_model_buffers(t->workers[0].model, &n);
    if (w->rank != 0 && n > 0) {
        memcpy(kept, buffers, n * sizeof *kept);
        memcpy(buffers, leading, n * sizeof *kept);
    }
    size_t batches = (samples + TR_TEST_BATCH - 1) / TR_TEST_BATCH;
    w->score = (tr_score){0};
    for (size_t b = w->rank; b < batches; b += t->settings->workers) {
        size_t first = b * TR_TEST_BATCH, left = samples - first;
        tr_batch batch = tr_loader_test(w->loader, first, left < TR_TEST_BATCH ? left : TR_TEST_BATCH);
        tr_score score = tr_model_test(w->model, &batch);
        w->score.loss += score.loss;
        w->score.correct += score.correct;
        w->score.count += score.count;
    }
    if (w->rank != 0 && n > 0) {
        memcpy(buffers, kept, n * sizeof *kept);
    }
}

static void hash_weights(tr_worker *w)
{
    size_t n = 0;
    const float *weights = tr_model_weights(w->model, &n);
    w->hash = tr_hash(weights, n * sizeof *weights);
}

/* ---- what worker 0 does while the others wait ---------------------------------------------------------------------------- */

static tr_score sum_scores(const tr_team *t)
{
    tr_score sum = {0};
    for (uint32_t r = 0; r < t->settings->workers; r++) {
        sum.loss += t->workers[r].score.loss;
        sum.correct += t->workers[r].score.correct;
        sum.count += t->workers[r].score.count;
    }
    sum.count = sum.count == 0 ? 1 : sum.count;
    return sum;
}

static void add_bytes(tg_meter *to, const tg_meter *from)
{
    to->steps += from->steps;
    to->logical += from->logical;
    to->dense += from->dense;
    to->payload += from->payload;
    to->header += from->header;
    to->received += from->received;
}

static void add_times(tr_times *to, const tr_times *from, double share)
{
    to->compute += from->compute * share;
    to->encode += from->encode * share;
    to->exchange += from->exchange * share;
    to->decode += from->decode * share;
    to->update += from->update * share;
}

static void add_traffic(tg_traffic *to, const tg_traffic *from)
{
    to->len += from->len;
    to->entries += from->entries;
    to->bins += from->bins;
    to->paper_len += from->paper_len;
}

static int measure_tensors(tr_team *t, char why[TR_WHY])
{
    for (size_t p = 0; p < t->tensor_n; p++) {
        tg_detail reason = {""};
        if (tg_exchange_residual(t->workers[0].exchange, t->residual, p, &reason) != TG_OK ||
            tg_exchange_traffic(&t->traffic[p], t->workers[0].exchange, p, &reason) != TG_OK) {
            (void)snprintf(why, TR_WHY, "%s", reason.text);
            return -1;
        }
        double sum = 0;
        for (size_t i = 0; i < tr_model_param(t->workers[0].model, p)->n; i++) {
            sum += (double)t->residual[i] * (double)t->residual[i];
        }
        t->residual_norms[p] = sqrt(sum);
        add_traffic(&t->kinds[tr_model_param(t->workers[0].model, p)->kind].sum, &t->traffic[p]);
    }
    return 0;
}

static int tell_gradients(tr_team *t, char why[TR_WHY])
{
    return t->hooks->gradients(t->hooks->context, t->done, t->models, t->settings->workers, why);
}

static int tell_step(tr_team *t, uint64_t step, char why[TR_WHY])
{
    tr_score score = sum_scores(t);
    tr_step told = {.step = step,
                    .loss = score.loss / (double)score.count,
                    .accuracy = (double)score.correct / (double)score.count,
                    .rate = tr_optimizer_rate(&t->settings->optimizer, step),
                    .model = t->workers[0].model,
                    .residual = t->residual_norms,
                    .traffic = t->traffic};
    tg_exchange_learning(&told.learning, t->workers[0].exchange);
    for (uint32_t r = 0; r < t->settings->workers; r++) {
        tg_meter last, total;
        tg_exchange_meter(t->workers[r].exchange, &last, &total);
        if (total.payload + total.header != t->workers[r].link->sent_len) {
            (void)snprintf(why, TR_WHY, "worker %u reports other bytes than the link has carried for it", r);
            return -1;
        }
        add_bytes(&told.bytes, &last);
        if (r > 0) { /* worker 0 is the server, where there is one */
            told.up += (double)(last.payload + last.header) / (t->settings->workers - 1);
            told.down += (double)last.received / (t->settings->workers - 1);
        }
        add_times(&told.times, &t->workers[r].times, 1.0 / t->settings->workers);
    }
    add_bytes(&t->total, &told.bytes);
    add_times(&t->times, &told.times, 1);
    t->recent[step % TR_RECENT] = told.loss;
    if (!isfinite(told.loss)) {
        (void)snprintf(why, TR_WHY, "the loss is no longer a number at step %llu; try a lower --rate",
                       (unsigned long long)step);
        return -1;
    }
    return measure_tensors(t, why) != 0 ? -1 : t->hooks->step(t->hooks->context, &told, why);
}

static int tell_test(tr_team *t, char why[TR_WHY])
{
    tr_score score = sum_scores(t);
    t->test = (tr_test){.step = t->done,
                        .loss = score.loss / (double)score.count,
                        .accuracy = (double)score.correct / (double)score.count};
    return t->hooks->test(t->hooks->context, &t->test, why);
}

static int compare_weights(tr_team *t, char why[TR_WHY])
{
    for (uint32_t r = 1; r < t->settings->workers; r++) {
        if (t->workers[r].hash != t->workers[0].hash) {
            (void)snprintf(why, TR_WHY, "after %llu steps worker %u has other weights than worker 0",
                           (unsigned long long)t->done, r);
            return -1;
        }
    }
    return 0;
}

static int save(tr_team *t, char why[TR_WHY])
{
    size_t len = tr_saved_len(t);
    uint8_t *bytes = malloc(len);
    if (bytes == NULL) {
        (void)snprintf(why, TR_WHY, "there is not enough memory to save the run");
        return -1;
    }
    int code = tr_saved_write(bytes, len, t, why);
    if (code == 0) {
        code = t->hooks->save(t->hooks->context, t->done, bytes, len, why);
    }
    free(bytes);
    return code;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------------- */

static int is_due(uint64_t done, uint64_t every, uint64_t steps)
{
    return done == steps || (every != 0 && done % every == 0);
}

/* Meets the others, lets worker 0 do its work, meets them again. */
static int meet_around(tr_worker *w, int (*work)(tr_team *t, char why[TR_WHY]))
{
    tr_team *t = w->team;
    char why[TR_WHY] = "";
    if (tr_gate_meet(&t->gate) != 0) {
        return -1;
    }
    if (w->rank == 0 && work(t, why) != 0) {
        tr_gate_fail(&t->gate, why);
    }
    return tr_gate_meet(&t->gate);
}

static int finish_step(tr_team *t, char why[TR_WHY])
{
    int code = tell_step(t, t->done, why);
    t->done++;
    return code;
}

/* The exchange refuses NaN and Inf, whichever worker has them; what a person needs to hear is why they came. */
static void fail_step(tr_team *t, uint64_t step, const char *reason)
{
    char why[TR_WHY];
    int diverged = strstr(reason, "NaN or Inf") != NULL;
    (void)snprintf(why, sizeof why, "%s at step %llu%s", reason, (unsigned long long)step,
                   diverged ? ": training has diverged; try a lower --rate, or --warmup" : "");
    tr_gate_fail(&t->gate, why);
}

static int run_worker(tr_worker *w, float *kept)
{
    tr_team *t = w->team;
    const tr_settings *s = t->settings;
    for (uint64_t step = t->first_step; step < s->steps; step++) {
        tg_detail why = {""};
        learn(w, step);
        if (t->hooks->gradients != NULL && meet_around(w, tell_gradients) != 0) {
            /* Those who have passed the gate before another one failed wait for this worker in the exchange. */
            w->link->abort(w->link, "a worker has failed");
            return -1;
        }
        if (average_and_update(w, step, &why) != TG_OK) {
            fail_step(t, step, why.text);
            return -1;
        }
        if (meet_around(w, finish_step) != 0) {
            return -1;
        }
        uint64_t done = step + 1;
        if (is_due(done, s->verify_every, s->steps)) {
            hash_weights(w);
            if (meet_around(w, compare_weights) != 0) {
                return -1;
            }
        }
        if (is_due(done, s->test_every, s->steps)) {
            test_share(w, kept);
            if (meet_around(w, tell_test) != 0) {
                return -1;
            }
        }
        if (s->save_every != 0 && is_due(done, s->save_every, s->steps) && meet_around(w, save) != 0) {
            return -1;
        }
    }
    return 0;
}

static void *worker_main(void *argument)
{
    tr_worker *w = argument;
    size_t n = 0;
    (void)tr_model_buffers(w->model, &n);
    float *kept = malloc((n + 1) * sizeof *kept);
    if (kept == NULL) {
        tr_gate_fail(&w->team->gate, "there is not enough memory");
        w->link->abort(w->link, "there is not enough memory");
        return NULL;
    }
    (void)run_worker(w, kept);
    free(kept);
    return NULL;
}

/* ---- the run ------------------------------------------------------------------------------------------------------------- */

static int work(tr_team *t, char why[TR_WHY])
{
    uint32_t started = 0, n = t->settings->workers;
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
    (void)snprintf(why, TR_WHY, "%s", t->gate.why);
    return t->gate.failed ? -1 : 0;
}

static void conclude(tr_result *out, tr_team *t)
{
    const tr_settings *s = t->settings;
    const tr_worker *first = &t->workers[0];
    uint64_t recent_n = t->done < TR_RECENT ? t->done : TR_RECENT;
    double shares = (double)s->workers * (double)t->done, now_done = (double)(t->done - t->first_step);
    size_t largest = 0, n = 0;
    *out = (tr_result){.test = t->test};
    memcpy(out->kinds, t->kinds, sizeof out->kinds);
    for (uint64_t i = 0; i < recent_n; i++) {
        out->train_loss += t->recent[i] / (double)recent_n;
    }
    out->dense_bytes = (double)t->total.dense / shares;
    out->wire_bytes = (double)(t->total.payload + t->total.header) / shares;
    for (uint32_t r = 0; r < s->workers; r++) {
        tg_meter sent;
        tg_exchange_meter(t->workers[r].exchange, NULL, &sent);
        double bytes = (double)(sent.payload + sent.header) / (now_done > 0 ? now_done : 1);
        out->busiest_bytes = bytes > out->busiest_bytes ? bytes : out->busiest_bytes;
    }
    add_times(&out->times, &t->times, now_done > 0 ? 1 / now_done : 0);
    const float *weights = tr_model_weights(first->model, &n);
    out->weights_hash = tr_hash(weights, n * sizeof *weights);
    for (size_t p = 0; p < t->tensor_n; p++) {
        largest = tr_model_param(first->model, p)->n > tr_model_param(first->model, largest)->n ? p : largest;
    }
    (void)snprintf(out->exchange, sizeof out->exchange, "%s", tg_exchange_name(first->exchange));
    (void)snprintf(out->recipe, sizeof out->recipe, "%s", tg_exchange_recipe(first->exchange, largest));
}

int tr_run(tr_result *out, const tr_settings *s, const tr_data *data, const tr_hooks *hooks, const void *saved,
           size_t saved_len, char why[TR_WHY])
{
    tr_team t = {.settings = s, .data = data, .hooks = hooks};
    tr_gate_init(&t.gate, s->workers);
    int code = tr_team_gather(&t, why);
    if (code == 0 && saved != NULL) {
        code = tr_saved_read(&t, saved, saved_len, why);
    }
    if (code == 0) {
        code = work(&t, why);
    }
    if (code == 0) {
        conclude(out, &t);
    }
    tr_team_dismiss(&t);
    return code;
}
