/* What worker 0 does with the reports of all workers; see report.h. */
#include "report.h"

#include "hash.h"
#include "local.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tr_score sum_scores(const tr_team *t)
{
    tr_score sum = {0};
    for (uint32_t r = 0; r < t->settings->workers; r++) {
        sum.loss += t->reports[r].score.loss;
        sum.correct += t->reports[r].score.correct;
        sum.count += t->reports[r].score.count;
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
    to->between += from->between;
}

static void add_times(tr_times *to, const tr_times *from, double share)
{
    to->compute += from->compute * share;
    to->encode += from->encode * share;
    to->exchange += from->exchange * share;
    to->decode += from->decode * share;
    to->exposed += from->exposed * share;
    to->update += from->update * share;
}

static void add_traffic(tg_traffic *to, const tg_traffic *from)
{
    to->len += from->len;
    to->entries += from->entries;
    to->bins += from->bins;
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
        tr_kind_traffic *kind = &t->kinds[tr_model_param(t->workers[0].model, p)->kind];
        add_traffic(&kind->sum, &t->traffic[p]);
        kind->paper_len += tg_exchange_paper_len(t->workers[0].exchange, p);
    }
    return 0;
}

int tr_tell_gradients(tr_team *t, char why[TR_WHY])
{
    return t->hooks->gradients(t->hooks->context, t->workers[0].done, t->models, t->worker_n, why);
}

/* Bytes of an exchange at the end of a round: all its steps count, because without local steps each would have had an exchange. */
static tg_meter count_round(const tg_meter *last, uint64_t steps)
{
    tg_meter out = *last;
    out.steps *= steps;
    out.logical *= steps;
    out.dense *= steps;
    return out;
}

static void keep_loss(tr_team *t, const tr_step *told)
{
    for (uint64_t step = told->step + 1 - told->steps; step <= told->step; step++) {
        t->recent[step % TR_RECENT] = told->loss;
        tr_losses_add(&t->losses, step + 1, told->loss);
    }
}

static int tell_steps(tr_team *t, int exchanged, char why[TR_WHY])
{
    tr_score score = sum_scores(t);
    uint64_t step = t->workers[0].done - 1, round_steps = tr_round_of(t->settings, step).steps;
    tr_step told = {.step = step,
                    .steps = step + 1 - t->done,
                    .exchanged = exchanged,
                    .loss = score.loss / (double)score.count,
                    .accuracy = (double)score.correct / (double)score.count,
                    .rate = tr_optimizer_rate(&t->settings->optimizer, step),
                    .model = t->workers[0].model,
                    .residual = t->residual_norms,
                    .traffic = t->traffic};
    tg_exchange_learning(&told.learning, t->workers[0].exchange);
    for (uint32_t r = 0; r < t->settings->workers; r++) {
        const tr_report *report = &t->reports[r];
        const tg_meter round = count_round(&report->last, round_steps), *last = &round;
        if (report->total.payload + report->total.header != report->carried) {
            (void)snprintf(why, TR_WHY, "worker %u reports other bytes than the link has carried for it", r);
            return -1;
        }
        add_bytes(&told.bytes, last);
        told.absent += report->is_absent ? 1 : 0;
        if (r > 0) { /* worker 0 is the server, where there is one */
            told.up += (double)(last->payload + last->header) / (t->settings->workers - 1);
            told.down += (double)last->received / (t->settings->workers - 1);
        }
        add_times(&told.times, &report->times, 1.0 / t->settings->workers);
    }
    add_bytes(&t->total, &told.bytes);
    add_times(&t->times, &told.times, 1);
    t->exchanges += exchanged ? 1 : 0;
    t->absences += told.absent;
    if (!isfinite(told.loss)) {
        t->diverged = step + 1;
        (void)snprintf(why, TR_WHY, "the loss is no longer a number at step %llu; try a lower --rate",
                       (unsigned long long)step);
        return -1;
    }
    keep_loss(t, &told);
    if (exchanged && measure_tensors(t, why) != 0) {
        return -1;
    }
    t->done = step + 1;
    return t->hooks->step(t->hooks->context, &told, why);
}

int tr_tell_test(tr_team *t, char why[TR_WHY])
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
        if (t->reports[r].hash != t->reports[0].hash) {
            (void)snprintf(why, TR_WHY, "after %llu steps worker %u has other weights than worker 0",
                           (unsigned long long)t->done, r);
            return -1;
        }
    }
    return 0;
}

int tr_save(tr_team *t, char why[TR_WHY])
{
    size_t len = tr_saved_len(t);
    uint8_t *bytes = malloc(len);
    if (bytes == NULL) {
        (void)snprintf(why, TR_WHY, "there is not enough memory to save the run");
        return -1;
    }
    tr_saved_write(bytes, len, t);
    int code = t->hooks->save(t->hooks->context, t->done, bytes, len, why);
    free(bytes);
    return code;
}

int tr_is_due(uint64_t since, uint64_t done, uint64_t every, uint64_t steps)
{
    return done == steps || (every != 0 && done / every > since / every);
}

int tr_finish_round(tr_team *t, char why[TR_WHY])
{
    const tr_settings *s = t->settings;
    uint64_t since = tr_round_of(s, t->workers[0].done - 1).first;
    int code = tell_steps(t, 1, why);
    return code == 0 && tr_is_due(since, t->done, s->verify_every, s->steps) ? compare_weights(t, why) : code;
}

int tr_finish_part(tr_team *t, char why[TR_WHY])
{
    return tell_steps(t, 0, why);
}

void tr_conclude(tr_result *out, tr_team *t)
{
    const tr_settings *s = t->settings;
    const tr_worker *first = &t->workers[0];
    uint64_t recent_n = t->done < TR_RECENT ? t->done : TR_RECENT;
    double shares = (double)t->total.steps, now_done = (double)(t->done - t->first_step);
    size_t largest = 0, n = 0;
    *out = (tr_result){.test = t->test, .diverged = tr_losses_diverged(&t->losses)};
    memcpy(out->kinds, t->kinds, sizeof out->kinds);
    for (uint64_t i = 0; i < recent_n; i++) {
        out->train_loss += t->recent[i] / (double)recent_n;
    }
    out->dense_bytes = (double)t->total.dense / shares;
    out->wire_bytes = (double)(t->total.payload + t->total.header) / shares;
    out->exchanges = t->exchanges;
    out->absences = t->absences;
    for (int kind = 0; kind < TR_KIND_N; kind++) {
        out->frame_bytes += (double)t->kinds[kind].sum.len / (double)(t->done > 0 ? t->done : 1);
    }
    for (uint32_t r = 0; r < s->workers; r++) {
        const tg_meter *sent = &t->reports[r].total;
        double bytes = (double)sent->between / (now_done > 0 ? now_done : 1);
        out->host_bytes += bytes / s->workers;
        out->between_bytes += t->reports[r].between;
        out->busiest_bytes = bytes > out->busiest_bytes ? bytes : out->busiest_bytes;
    }
    add_times(&out->times, &t->times, now_done > 0 ? 1 / now_done : 0);
    const float *weights = tr_model_weights(first->model, &n);
    out->weights_hash = tr_hash(0, weights, n * sizeof *weights);
    for (size_t p = 0; p < t->tensor_n; p++) {
        largest = tr_model_param(first->model, p)->n > tr_model_param(first->model, largest)->n ? p : largest;
    }
    out->groups = tg_exchange_groups(first->exchange);
    (void)snprintf(out->exchange, sizeof out->exchange, "%s", tg_exchange_name(first->exchange));
    (void)snprintf(out->recipe, sizeof out->recipe, "%s", tg_exchange_recipe(first->exchange, largest));
}
