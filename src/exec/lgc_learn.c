/* LGC: trains the autoencoder and ends a step. All ranks compute the same here, from the same numbers; only the residuals are
 * a rank's own. */
#include "exec/lgc.h"

#include "base/bits.h"
#include "base/philox.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

/* ---- learning -------------------------------------------------------------------------------------------------------- */

static double norm_of(const float *values, uint64_t n)
{
    return sqrt(tg_sum_squares(values, (size_t)n));
}

/* Encodes and decodes this step's values with the current autoencoder. l->of.decoded becomes the average sequence that ranks
 * would receive. */
static void decode_average(tg_lgc *l, uint32_t chosen)
{
    uint64_t m = l->size.coded_n;
    if (l->is_server) {
        memset(l->of.decoded, 0, m * sizeof *l->of.decoded);
        tg_autoencoder_encode(l->of.code, l->autoencoder, l->of.rows[chosen]);
        for (uint32_t p = 0; p < l->world; p++) {
            tg_autoencoder_decode(l->sum.average, l->autoencoder, p, l->of.code, l->of.rows[l->world + p]);
            for (uint64_t i = 0; i < m; i++) {
                l->of.decoded[i] += l->sum.average[i] / (float)l->world;
            }
        }
        return;
    }
    memset(l->of.mean_code, 0, l->size.code_n * sizeof *l->of.mean_code);
    for (uint32_t p = 0; p < l->world; p++) {
        tg_autoencoder_encode(l->of.code, l->autoencoder, l->of.rows[p]);
        for (uint64_t i = 0; i < l->size.code_n; i++) {
            l->of.mean_code[i] += l->of.code[i] / (float)l->world;
        }
    }
    tg_autoencoder_decode(l->of.decoded, l->autoencoder, 0, l->of.mean_code, NULL);
}

/* The relative error of the autoencoder, before it is trained on this step. */
static double measure_error(tg_lgc *l, uint32_t chosen)
{
    uint64_t m = l->size.coded_n;
    decode_average(l, chosen);
    float *mean = l->sum.vector; /* reused: the step has already been averaged */
    for (uint64_t i = 0; i < m; i++) {
        float sum = 0;
        for (uint32_t p = 0; p < l->world; p++) {
            sum += l->of.rows[p][i];
        }
        mean[i] = sum / (float)l->world;
        l->of.decoded[i] -= mean[i];
    }
    double norm = norm_of(mean, m);
    return norm > 0 ? norm_of(l->of.decoded, m) / norm : 0;
}

/* Trains the autoencoder for one step on the values of all ranks. If the loss is not finite, nothing changes. */
static void learn(tg_lgc *l, uint64_t step)
{
    uint64_t per_rank = l->size.coded_n + l->size.picked_n;
    for (uint32_t p = 0; p < l->world; p++) {
        float *sequence = l->of.sequences + p * l->size.coded_n;
        tg_lgc_to_sequence(sequence, l, l->of.values + p * per_rank);
        if (l->is_server) {
            tg_lgc_innovate(l->of.innovations + p * l->size.coded_n, l->lead.part, l, sequence);
        }
    }
    tg_stream stream = tg_stream_of(l->layout->seed, step, 0, 0);
    uint32_t word = 0;
    tg_stream_words(&word, &stream, 0, 1, 3);
    uint32_t chosen = (uint32_t)((uint64_t)word * l->world >> 32);
    double error = measure_error(l, chosen), loss = 0;
    tg_status status = l->is_server ? tg_autoencoder_train_common(&loss, l->autoencoder, l->of.rows,
                                                                  l->of.rows + l->world, chosen, NULL)
                                    : tg_autoencoder_train_mean(&loss, l->autoencoder, l->of.rows, l->world, NULL);
    if (status == TG_OK && isfinite(error)) {
        float *known = &l->progress.error;
        *known = *known < 0 ? (float)error : 0.9f * *known + 0.1f * (float)error;
    }
}

/* ---- phases ---------------------------------------------------------------------------------------------------------- */

static uint32_t steps_of(const tg_lgc *l, int param)
{
    return (uint32_t)l->params[param];
}

static void enter(tg_lgc *l, uint32_t phase, uint32_t left)
{
    l->progress.phase = phase;
    l->progress.left = left;
}

/* Sets the phase of the next step, after one that succeeded. */
static void advance(tg_lgc *l)
{
    tg_lgc_progress *p = &l->progress;
    if (p->phase == TG_LGC_PHASE_CODE && steps_of(l, TG_LGC_REFRESH) == 0) {
        return;
    }
    p->left -= p->left > 0 ? 1 : 0;
    if (p->left > 0) {
        return;
    }
    switch (p->phase) {
    case TG_LGC_PHASE_DENSE: enter(l, TG_LGC_PHASE_LEARN, steps_of(l, TG_LGC_LEARN)); break;
    case TG_LGC_PHASE_LEARN:
        if (p->error >= 0 && (double)p->error <= l->params[TG_LGC_ENOUGH]) {
            enter(l, TG_LGC_PHASE_CODE, steps_of(l, TG_LGC_REFRESH));
        } else { /* not accurate enough: keep learning */
            p->extended++;
            p->left = steps_of(l, TG_LGC_LEARN) / 10 + 1;
        }
        break;
    default: enter(l, TG_LGC_PHASE_LEARN, steps_of(l, TG_LGC_AGAIN)); break;
    }
}

/* ---- the end of a step ----------------------------------------------------------------------------------------------- */

/* The mask of a sparse tensor, in l->lead.part. */
static const uint64_t *mask_of(const tg_lgc *l, const tg_lgc_tensor *t)
{
    tg_mask_extract(l->lead.part, l->lead.mask, t->sparse_at, (size_t)t->n);
    return l->lead.part;
}

/* Computes the new residual of a tensor: u minus what was sent. `sent` are the values sent at the leader's indices; NULL: all
 * of u was sent. */
static void update_residual(const tg_lgc *l, const tg_lgc_tensor *t, const float *sent)
{
    if (t->feedback->planes == 0 || t->n == 0) {
        return;
    }
    const float *u = l->input.u + t->at;
    const uint64_t *mask = sent == NULL ? NULL : mask_of(l, t);
    tg_residual_view memory = {l->state.saved + t->feedback_at, l->state.next + t->feedback_at, (size_t)t->n};
    if (mask == NULL) {
        (void)tg_kernels_best()->passes.subtract(memory.next, u, u, (size_t)t->n,
                                                 false); /* 0, or NaN, which is set to 0 below */
    } else {
        memcpy(memory.next, u, (size_t)t->n * sizeof *u);
        tg_expand_add(memory.next, mask, sent, -1.0f, (size_t)t->n);
    }
    if (t->feedback->update_state != NULL) {
        t->feedback->update_state(&memory, t->feedback_params, l->input.g + t->at, mask, (size_t)t->n);
    }
    if (l->nonfinite != TG_NONFINITE_ERROR) {
        tg_zero_nonfinite(memory.next, (size_t)(t->n * t->feedback->planes));
    }
}

static void update_scales(tg_lgc *l, const float *mean)
{
    uint64_t i = 0;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        uint64_t k = tg_lgc_coded(l, t);
        if (k > 0) {
            float rms = (float)sqrt(tg_sum_squares(mean + i, (size_t)k) / (double)k);
            float scale = l->state.scales[t] > 0 ? 0.9f * l->state.scales[t] + 0.1f * rms : rms;
            l->state.scales[t] =
                isfinite(scale) ? scale : l->state.scales[t]; /* unchanged if the policy passes NaN or Inf */
        }
        i += k;
    }
}

/* Writes the average of a tensor to its gradient: all elements, or those at the leader's indices. Overwrites u. */
static void write_gradient(void *const *grads, const tg_lgc *l, size_t t, const float *mean, bool whole)
{
    const tg_lgc_tensor *tensor = &l->tensors[t];
    float *out = l->input.u + tensor->at;
    if (tensor->n == 0) {
        return;
    }
    if (!whole) {
        memset(out, 0, tensor->n * sizeof *out);
        tg_expand_set(out, mask_of(l, tensor), mean, (size_t)tensor->n);
        mean = out;
    }
    tg_narrow(grads[t], mean, l->layout->tensors[t].dtype, (size_t)tensor->n);
}

/* Extracts l->sum.means from the averaged vector of this phase; decodes the average code where there is one. */
static void find_means(tg_lgc *l)
{
    const float *picked = l->sum.average + l->size.whole_n; /* then coded values, or a code */
    if (l->progress.phase == TG_LGC_PHASE_CODE && !l->is_server) {
        float *sequence = l->of.sequences;
        tg_autoencoder_decode(sequence, l->autoencoder, 0, picked + l->size.picked_n, NULL);
        tg_lgc_from_sequence(l->sum.means, l, sequence);
    } else {
        memcpy(l->sum.means, picked + l->size.picked_n, l->size.coded_n * sizeof *l->sum.means);
    }
    memcpy(l->sum.means + l->size.coded_n, picked, l->size.picked_n * sizeof *l->sum.means);
}

/* Whether the residual of coded values is u minus their average, not u minus this rank's values. */
static bool subtracts_average(const tg_lgc *l)
{
    return l->progress.phase == TG_LGC_PHASE_CODE && l->params[TG_LGC_OWN] != 0;
}

/* Applies the policy for NaN and Inf to n averages of a tensor. `own`: the values that they are subtracted from, or NULL. */
static tg_status check_tensor(const tg_lgc *l, size_t t, float *average, const float *own, uint64_t n, tg_detail *why)
{
    bool finite = tg_all_finite(average, (size_t)n), residual_finite = true;
    if (l->nonfinite == TG_NONFINITE_ZERO && !finite) {
        tg_zero_nonfinite(average, (size_t)n);
    }
    for (uint64_t i = 0; own != NULL && i < n; i++) {
        residual_finite = residual_finite && isfinite(own[i] - average[i]);
    }
    if (l->nonfinite != TG_NONFINITE_ERROR || (finite && residual_finite)) {
        return TG_OK;
    }
    const char *name = l->layout->tensors[t].name;
    return finite
               ? tg_refuse_overflow(name, "gradient", why)
               : tg_fail(TG_E_NONFINITE, why,
                         "the average of tensor '%.100s' overflows: the gradients are finite, but too large to encode",
                         name);
}

tg_status tg_lgc_check_averages(tg_lgc *l, tg_detail *why)
{
    bool all = l->progress.phase == TG_LGC_PHASE_DENSE;
    if (!all) {
        find_means(l);
    }
    float *whole = l->sum.average, *coded = l->sum.means, *picked = l->sum.means + l->size.coded_n;
    const float *own = tg_lgc_own_values(l);
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        bool is_whole = all || tensor->role == TG_LGC_WHOLE, is_coded = !is_whole && tensor->role == TG_LGC_CODED;
        float **at = is_whole ? &whole : is_coded ? &coded : &picked;
        uint64_t n = is_whole ? tensor->n : tensor->k;
        const float *subtracted_from = is_coded && subtracts_average(l) ? own + (coded - l->sum.means) : NULL;
        TG_TRY(check_tensor(l, t, *at, subtracted_from, n, why));
        *at += n;
    }
    return TG_OK;
}

void tg_lgc_finish(tg_lgc *l, void *const *grads, uint64_t step)
{
    bool all = l->progress.phase == TG_LGC_PHASE_DENSE;
    bool learns = l->progress.phase == TG_LGC_PHASE_LEARN;
    const float *whole = l->sum.average, *mean = l->sum.means;
    const float *own = l->of.values + l->rank * (l->size.coded_n + l->size.picked_n);
    const float *coded = mean, *picked = mean + l->size.coded_n;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (all || tensor->role == TG_LGC_WHOLE) {
            update_residual(l, tensor, NULL);
            write_gradient(grads, l, t, whole, true);
            whole += tensor->n;
            continue;
        }
        const float **at = tensor->role == TG_LGC_CODED ? &coded : &picked;
        uint64_t number = (uint64_t)(*at - mean);
        update_residual(l, tensor, subtracts_average(l) && tensor->role == TG_LGC_CODED ? *at : own + number);
        write_gradient(grads, l, t, *at, false);
        *at += tensor->k;
    }
    if (l->state.feedback_n > 0) {
        memcpy(l->state.saved, l->state.next, l->state.feedback_n * sizeof *l->state.saved);
    }
    if (learns && l->progress.error < 0) {
        update_scales(l, mean); /* the first scales come from this step */
    }
    if (learns) {
        learn(l, step);
    }
    if (!all) {
        update_scales(l, mean);
    }
    l->sent.last_phase = l->progress.phase;
    advance(l);
}
