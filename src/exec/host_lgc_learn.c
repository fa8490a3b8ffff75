/* LGC on the host: trains the autoencoder and ends a step. All ranks compute the same here, from the same numbers; only the residuals are
 * a rank's own. */
#include "exec/host_lgc.h"

#include "base/bits.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

/* ---- learning -------------------------------------------------------------------------------------------------------- */

static double norm_of(const float *values, uint64_t n)
{
    return sqrt(tg_sum_squares(values, (size_t)n));
}

/* Encodes and decodes this step's values with the current autoencoder. h->of.decoded becomes the average sequence that ranks
 * would receive. */
static void decode_average(const tg_host_lgc *h, uint32_t leader)
{
    const tg_lgc *l = h->lgc;
    uint64_t m = l->size.coded_n;
    if (l->is_server) {
        memset(h->of.decoded, 0, m * sizeof *h->of.decoded);
        tg_host_lgc_encode(h->of.code, h, h->of.rows[leader]);
        for (uint32_t p = 0; p < l->world; p++) {
            tg_host_lgc_decode(h->sum.average, h, p, h->of.code, h->of.rows[l->world + p]);
            for (uint64_t i = 0; i < m; i++) {
                h->of.decoded[i] += h->sum.average[i] / (float)l->world;
            }
        }
        return;
    }
    memset(h->of.mean_code, 0, l->size.code_n * sizeof *h->of.mean_code);
    for (uint32_t p = 0; p < l->world; p++) {
        tg_host_lgc_encode(h->of.code, h, h->of.rows[p]);
        for (uint64_t i = 0; i < l->size.code_n; i++) {
            h->of.mean_code[i] += h->of.code[i] / (float)l->world;
        }
    }
    tg_host_lgc_decode(h->of.decoded, h, 0, h->of.mean_code, NULL);
}

/* The relative error of the autoencoder, before it is trained on this step. */
static double measure_error(const tg_host_lgc *h, uint32_t leader)
{
    const tg_lgc *l = h->lgc;
    uint64_t m = l->size.coded_n;
    decode_average(h, leader);
    float *mean = h->sum.vector; /* reused: the step has already been averaged */
    for (uint64_t i = 0; i < m; i++) {
        float sum = 0;
        for (uint32_t p = 0; p < l->world; p++) {
            sum += h->of.rows[p][i];
        }
        mean[i] = sum / (float)l->world;
        h->of.decoded[i] -= mean[i];
    }
    double norm = norm_of(mean, m);
    return norm > 0 ? norm_of(h->of.decoded, m) / norm : 0;
}

/* Trains the autoencoder for one step on the values of all ranks. If the loss is not finite, nothing changes. */
static void learn(const tg_host_lgc *h, uint64_t step)
{
    tg_lgc *l = h->lgc;
    uint64_t per_rank = l->size.coded_n + l->size.picked_n;
    for (uint32_t p = 0; p < l->world; p++) {
        float *sequence = h->of.sequences + p * l->size.coded_n;
        tg_host_lgc_to_sequence(sequence, h, h->of.values + p * per_rank);
        if (l->is_server) {
            tg_host_lgc_keep_largest(h->of.innovations + p * l->size.coded_n, h->lead.part, h, sequence);
        }
    }
    uint32_t leader = tg_lgc_leader(l, step);
    uint64_t *steps = tg_autoencoder_optimizer_state(h->autoencoder).step;
    *steps = l->optimizer_steps;
    double error = measure_error(h, leader), loss = 0;
    tg_status status = l->is_server ? tg_autoencoder_train_common(&loss, h->autoencoder, h->of.rows,
                                                                  h->of.rows + l->world, leader, NULL)
                                    : tg_autoencoder_train_mean(&loss, h->autoencoder, h->of.rows, l->world, NULL);
    if (status == TG_OK) {
        tg_lgc_note_error(l, error);
    }
    l->optimizer_steps = *steps;
}

/* ---- the end of a step ----------------------------------------------------------------------------------------------- */

/* The mask of a sparse tensor, in h->lead.part. */
static const uint64_t *mask_of(const tg_host_lgc *h, const tg_lgc_tensor *t)
{
    tg_mask_extract(h->lead.part, h->lead.mask, t->sparse_at, (size_t)t->n);
    return h->lead.part;
}

/* Computes the new residual of a tensor: u minus what was sent. `sent` are the values sent at the leader's indices; NULL: all
 * of u was sent. */
static void update_residual(const tg_host_lgc *h, const tg_lgc_tensor *t, const float *sent)
{
    const tg_lgc *l = h->lgc;
    if (t->feedback->planes == 0 || t->n == 0) {
        return;
    }
    const float *u = h->input.u + t->at;
    const uint64_t *mask = sent == NULL ? NULL : mask_of(h, t);
    tg_residual_view memory = {h->state.saved + t->feedback_at, h->state.next + t->feedback_at, (size_t)t->n};
    if (mask == NULL) {
        (void)tg_kernels_best()->passes.subtract(memory.next, u, u, (size_t)t->n,
                                                 false); /* 0, or NaN, which is set to 0 below */
    } else {
        memcpy(memory.next, u, (size_t)t->n * sizeof *u);
        tg_expand_add(memory.next, mask, sent, -1.0f, (size_t)t->n);
    }
    if (t->feedback->update_state != NULL) {
        t->feedback->update_state(&memory, t->feedback_params, h->input.g + t->at, mask, (size_t)t->n);
    }
    if (l->nonfinite != TG_NONFINITE_ERROR) {
        tg_zero_nonfinite(memory.next, (size_t)(t->n * t->feedback->planes));
    }
}

static void update_scales(const tg_host_lgc *h, const float *mean)
{
    const tg_lgc *l = h->lgc;
    uint64_t i = 0;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        uint64_t k = tg_lgc_coded(l, t);
        if (k > 0) {
            float rms = (float)sqrt(tg_sum_squares(mean + i, (size_t)k) / (double)k);
            float scale = h->state.scales[t] > 0 ? 0.9f * h->state.scales[t] + 0.1f * rms : rms;
            h->state.scales[t] =
                isfinite(scale) ? scale : h->state.scales[t]; /* unchanged if the policy passes NaN or Inf */
        }
        i += k;
    }
}

/* Writes the average of a tensor to its gradient: all elements, or those at the leader's indices. Overwrites u. */
static void write_gradient(void *const *grads, const tg_host_lgc *h, size_t t, const float *mean, bool whole)
{
    const tg_lgc *l = h->lgc;
    const tg_lgc_tensor *tensor = &l->tensors[t];
    float *out = h->input.u + tensor->at;
    if (tensor->n == 0) {
        return;
    }
    if (!whole) {
        memset(out, 0, tensor->n * sizeof *out);
        tg_expand_set(out, mask_of(h, tensor), mean, (size_t)tensor->n);
        mean = out;
    }
    tg_narrow(grads[t], mean, l->layout->tensors[t].dtype, (size_t)tensor->n);
}

/* Extracts h->sum.means from the averaged vector of this phase; decodes the average code where there is one. */
static void find_means(const tg_host_lgc *h)
{
    const tg_lgc *l = h->lgc;
    const float *picked = h->sum.average + l->size.whole_n; /* then coded values, or a code */
    if (l->progress.phase == TG_LGC_PHASE_CODE && !l->is_server) {
        float *sequence = h->of.sequences;
        tg_host_lgc_decode(sequence, h, 0, picked + l->size.picked_n, NULL);
        tg_host_lgc_from_sequence(h->sum.means, h, sequence);
    } else {
        memcpy(h->sum.means, picked + l->size.picked_n, l->size.coded_n * sizeof *h->sum.means);
    }
    memcpy(h->sum.means + l->size.coded_n, picked, l->size.picked_n * sizeof *h->sum.means);
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
    return tg_lgc_refuse(l, t, finite, why);
}

tg_status tg_host_lgc_check(tg_lgc *l, tg_detail *why)
{
    const tg_host_lgc *h = l->own;
    bool all = l->progress.phase == TG_LGC_PHASE_DENSE;
    if (!all) {
        find_means(h);
    }
    float *whole = h->sum.average, *coded = h->sum.means, *picked = h->sum.means + l->size.coded_n;
    const float *own = tg_host_lgc_own(h);
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        bool is_whole = all || tensor->role == TG_LGC_WHOLE, is_coded = !is_whole && tensor->role == TG_LGC_CODED;
        float **at = is_whole ? &whole : is_coded ? &coded : &picked;
        uint64_t n = is_whole ? tensor->n : tensor->k;
        const float *subtracted_from = is_coded && tg_lgc_subtracts_average(l) ? own + (coded - h->sum.means) : NULL;
        TG_TRY(check_tensor(l, t, *at, subtracted_from, n, why));
        *at += n;
    }
    return TG_OK;
}

void tg_host_lgc_finish(tg_lgc *l, void *const *grads, uint64_t step)
{
    const tg_host_lgc *h = l->own;
    bool all = l->progress.phase == TG_LGC_PHASE_DENSE;
    bool learns = l->progress.phase == TG_LGC_PHASE_LEARN;
    const float *whole = h->sum.average, *mean = h->sum.means;
    const float *own = h->of.values + l->rank * (l->size.coded_n + l->size.picked_n);
    const float *coded = mean, *picked = mean + l->size.coded_n;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (all || tensor->role == TG_LGC_WHOLE) {
            update_residual(h, tensor, NULL);
            write_gradient(grads, h, t, whole, true);
            whole += tensor->n;
            continue;
        }
        const float **at = tensor->role == TG_LGC_CODED ? &coded : &picked;
        uint64_t number = (uint64_t)(*at - mean);
        update_residual(h, tensor, tg_lgc_subtracts_average(l) && tensor->role == TG_LGC_CODED ? *at : own + number);
        write_gradient(grads, h, t, *at, false);
        *at += tensor->k;
    }
    if (l->size.feedback_n > 0) {
        memcpy(h->state.saved, h->state.next, l->size.feedback_n * sizeof *h->state.saved);
    }
    if (learns && l->progress.error < 0) {
        update_scales(h, mean); /* the first scales come from this step */
    }
    if (learns) {
        learn(h, step);
    }
    if (!all) {
        update_scales(h, mean);
    }
}
