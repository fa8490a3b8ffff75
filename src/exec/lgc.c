/* Creates LGC's object: roles of tensors, the autoencoder, buffers. Saves and restores its state. */
#include "exec/lgc.h"

#include "base/bits.h"
#include "base/half.h"

#include <string.h>

/* ---- creation -------------------------------------------------------------------------------------------------------- */

static bool is_learned(const tg_layout *layout, size_t t)
{
    return tg_recipe_quantize(layout->units[layout->tensor_unit[t]].recipe)->needs_leader;
}

static void count(tg_lgc *l, tg_lgc_tensor *tensor)
{
    l->size.n += tensor->n;
    if (tensor->role == TG_LGC_WHOLE) {
        l->size.whole_n += tensor->n;
        return;
    }
    tensor->sparse_at = l->size.sparse_n;
    l->size.sparse_n += tensor->n;
    *(tensor->role == TG_LGC_CODED ? &l->size.coded_n : &l->size.picked_n) += tensor->k;
}

static tg_lgc_role end_role(const tg_recipe *recipe, bool is_first)
{
    return is_first && recipe->value[TG_STAGE_quantize][TG_LGC_FIRST] == TG_LGC_FIRST_DENSE ? TG_LGC_WHOLE
                                                                                            : TG_LGC_PICKED;
}

/* Assigns roles. Of the tensors that the recipe applies to, the first is whole or picked, the last is picked, all others are
 * coded. */
static tg_status assign_roles(tg_lgc *l, tg_detail *why)
{
    const tg_layout *layout = l->layout;
    size_t first = 0, last = 0, learned = 0;
    for (size_t t = 0; t < layout->tensor_n; t++) {
        if (is_learned(layout, t)) {
            first = learned == 0 ? t : first;
            last = t;
            learned++;
        }
    }
    if (learned < 3) {
        return tg_fail(
            TG_E_RECIPE, why,
            "'autoencoder' needs a model with at least three tensors besides norms and biases, but this one has %zu",
            learned);
    }
    for (size_t t = 0; t < layout->tensor_n; t++) {
        const tg_recipe *recipe = layout->units[layout->tensor_unit[t]].recipe;
        tg_lgc_tensor *tensor = &l->tensors[t];
        tensor->n = layout->tensor_elements[t];
        tensor->at = l->size.n;
        tensor->role = !is_learned(layout, t)    ? TG_LGC_WHOLE
                       : t == first || t == last ? end_role(recipe, t == first)
                                                 : TG_LGC_CODED;
        tensor->feedback = tg_recipe_feedback(recipe);
        tensor->feedback_params = recipe->value[TG_STAGE_feedback];
        tensor->select_params = recipe->value[TG_STAGE_select];
        tensor->k = tensor->role == TG_LGC_WHOLE ? 0 : tg_select_topk.most(tensor->select_params, tensor->n);
        tensor->feedback_at = l->state.feedback_n;
        l->state.feedback_n += tensor->n * tensor->feedback->planes;
        l->params = is_learned(layout, t) ? recipe->value[TG_STAGE_quantize] : l->params;
        count(l, tensor);
    }
    if (l->size.coded_n == 0 || l->size.coded_n >= UINT32_MAX) {
        return tg_fail(TG_E_RECIPE, why, "'autoencoder' has %s values to encode",
                       l->size.coded_n == 0 ? "no" : "too many");
    }
    return TG_OK;
}

static tg_status make_autoencoder(tg_lgc *l, tg_detail *why)
{
    tg_autoencoder_config config = tg_autoencoder_standard((size_t)l->size.coded_n);
    for (int i = 0; i < TG_AUTOENCODER_HALVINGS; i++) {
        config.encoder_channels[i] = (uint32_t)l->params[TG_LGC_ENCODER + i];
        config.decoder_channels[i] = (uint32_t)l->params[TG_LGC_DECODER + i];
    }
    config.code_channels = (uint32_t)l->params[TG_LGC_CHANNELS];
    config.decoder_n = l->is_server ? l->world : 1;
    config.has_innovation = l->is_server;
    config.rate = l->params[TG_LGC_RATE];
    config.value_weight = l->params[TG_LGC_LAMBDA1];
    config.code_weight = l->params[TG_LGC_LAMBDA2];
    TG_TRY(tg_autoencoder_new(&l->autoencoder, &config, l->layout->seed, &l->allocator, why));
    l->size.code_n = tg_autoencoder_code_n(l->autoencoder);
    l->size.innovation_n = l->is_server ? tg_ratio_entries(l->params[TG_LGC_SHARE], l->size.coded_n) : 0;
    return TG_OK;
}

static uint64_t longest(const tg_lgc *l)
{
    uint64_t n = l->size.coded_n;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        n = l->tensors[t].n > n ? l->tensors[t].n : n;
    }
    return n;
}

/* Scratch bytes that the select part needs for any tensor, or for an innovation. */
static uint64_t scratch_len(const tg_lgc *l)
{
    const double share[TG_PARAM_CAP] = {[TG_SELECT_RATIO] = l->params[TG_LGC_SHARE]};
    uint64_t most = tg_select_topk.scratch_len(share, l->size.coded_n, 1, l->size.coded_n);
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (tensor->role != TG_LGC_WHOLE) {
            uint64_t len = tg_select_topk.scratch_len(tensor->select_params, tensor->n, 1, tensor->n);
            most = len > most ? len : most;
        }
    }
    return most;
}

enum { COUNTERS = 6 };

static uint64_t saved_n(tg_lgc *l)
{
    return l->state.feedback_n + l->layout->tensor_n + COUNTERS + tg_autoencoder_weight_n(l->autoencoder) +
           tg_autoencoder_optimizer_state(l->autoencoder).moment_n;
}

static tg_status acquire(tg_lgc *l, tg_detail *why)
{
    const tg_allocator *a = &l->allocator;
    uint64_t sequences = l->world * l->size.coded_n, vector = l->size.n + l->size.code_n + l->size.coded_n;
    TG_TRY(tg_acquire(&l->input.u, a, l->size.n, sizeof *l->input.u, why));
    TG_TRY(tg_acquire(&l->input.g, a, l->size.n, sizeof *l->input.g, why));
    TG_TRY(tg_acquire(&l->state.saved, a, saved_n(l), sizeof *l->state.saved, why));
    TG_TRY(tg_acquire(&l->state.next, a, l->state.feedback_n, sizeof *l->state.next, why));
    TG_TRY(tg_acquire(&l->lead.mask, a, tg_words(l->size.sparse_n) + 1, sizeof *l->lead.mask, why));
    TG_TRY(tg_acquire(&l->lead.part, a, tg_words(longest(l)) + 1, sizeof *l->lead.part, why));
    TG_TRY(tg_acquire_room(&l->lead.scratch, a, scratch_len(l), why));
    TG_TRY(tg_acquire(&l->lead.keys, a, l->size.coded_n, sizeof *l->lead.keys, why));
    TG_TRY(tg_acquire(&l->lead.order, a, l->size.coded_n, sizeof *l->lead.order, why));
    TG_TRY(tg_acquire(&l->lead.order_scratch, a, l->size.coded_n + 1, sizeof *l->lead.order_scratch, why));
    TG_TRY(tg_acquire(&l->of.values, a, l->world * (l->size.coded_n + l->size.picked_n), sizeof *l->of.values, why));
    TG_TRY(tg_acquire(&l->of.sequences, a, sequences, sizeof *l->of.sequences, why));
    TG_TRY(tg_acquire(&l->of.innovations, a, l->is_server ? sequences : 0, sizeof *l->of.innovations, why));
    TG_TRY(tg_acquire(&l->of.rows, a, 2 * (uint64_t)l->world, sizeof *l->of.rows, why));
    TG_TRY(tg_acquire(&l->of.code, a, l->size.code_n, sizeof *l->of.code, why));
    TG_TRY(tg_acquire(&l->of.mean_code, a, l->size.code_n, sizeof *l->of.mean_code, why));
    TG_TRY(tg_acquire(&l->of.decoded, a, l->size.coded_n, sizeof *l->of.decoded, why));
    TG_TRY(tg_acquire(&l->sum.means, a, l->size.coded_n + l->size.picked_n, sizeof *l->sum.means, why));
    TG_TRY(tg_acquire(&l->sum.vector, a, vector, sizeof *l->sum.vector, why));
    return tg_acquire(&l->sum.average, a, vector, sizeof *l->sum.average, why);
}

tg_status tg_lgc_new(tg_lgc **out, const tg_layout *layout, uint32_t rank, uint32_t world, tg_nonfinite nonfinite,
                     const tg_allocator *a, tg_detail *why)
{
    tg_lgc *l = NULL;
    TG_TRY(tg_acquire(&l, a, 1, sizeof *l, why));
    *out = l; /* the caller frees it, also on failure */
    l->allocator = *a;
    l->layout = layout;
    l->nonfinite = nonfinite;
    l->rank = rank;
    l->world = world;
    TG_TRY(tg_acquire(&l->tensors, &l->allocator, l->layout->tensor_n, sizeof *l->tensors, why));
    TG_TRY(assign_roles(l, why));
    l->is_server = l->params[TG_LGC_FORM] == TG_LGC_SERVER;
    TG_TRY(make_autoencoder(l, why));
    TG_TRY(acquire(l, why));
    l->state.scales = l->state.saved + l->state.feedback_n;
    for (uint32_t p = 0; p < l->world; p++) {
        l->of.rows[p] = l->of.sequences + p * l->size.coded_n;
        l->of.rows[l->world + p] = l->is_server ? l->of.innovations + p * l->size.coded_n : NULL;
    }
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        l->lead.order[i] = (uint32_t)i; /* with order=index it never changes */
    }
    uint32_t dense = (uint32_t)l->params[TG_LGC_DENSE], learn = (uint32_t)l->params[TG_LGC_LEARN];
    l->progress = (tg_lgc_progress){
        .phase = dense > 0 ? TG_LGC_PHASE_DENSE : TG_LGC_PHASE_LEARN, .left = dense > 0 ? dense : learn, .error = -1};
    return TG_OK;
}

void tg_lgc_free(tg_lgc *l)
{
    if (l == NULL) {
        return;
    }
    tg_allocator a = l->allocator;
    void *const all[] = {
        l->sum.average,     l->sum.vector,     l->sum.means,    l->of.decoded, l->of.mean_code,       l->of.code,
        (void *)l->of.rows, l->of.innovations, l->of.sequences, l->of.values,  l->lead.order_scratch, l->lead.order,
        l->lead.keys,       l->lead.scratch,   l->lead.part,    l->lead.mask,  l->state.next,         l->state.saved,
        l->input.g,         l->input.u,        l->tensors};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tg_release(&a, all[i]);
    }
    tg_autoencoder_free(l->autoencoder);
    tg_release(&a, l);
}

/* ---- queries --------------------------------------------------------------------------------------------------------- */

void tg_lgc_residual(float *out, const tg_lgc *l, size_t t)
{
    const tg_lgc_tensor *tensor = &l->tensors[t];
    if (tensor->feedback->planes > 0) {
        memcpy(out, l->state.saved + tensor->feedback_at, tensor->n * sizeof *out);
    } else {
        memset(out, 0, tensor->n * sizeof *out);
    }
}

void tg_lgc_traffic(tg_traffic *out, const tg_lgc *l, size_t t)
{
    const tg_lgc_tensor *tensor = &l->tensors[t];
    bool all = l->sent.last_phase <= TG_LGC_PHASE_DENSE || tensor->role == TG_LGC_WHOLE;
    *out = (tg_traffic){.entries = all ? tensor->n : tensor->k};
    double entries = (double)out->entries,
           lead = (double)l->sent.lead_len / (double)(l->size.coded_n + l->size.picked_n);
    double each = tensor->role == TG_LGC_CODED ? (double)l->sent.coded_len / (double)l->size.coded_n : 4;
    out->len = (uint64_t)(entries * (all ? 4 : each + lead) + 0.5);
}

/* ---- saved state ----------------------------------------------------------------------------------------------------- */

/* Counters are stored as the bits of floats. They are too small to be the bits of a NaN, so that copying keeps them. */
float *tg_lgc_saved(tg_lgc *l, uint64_t *n)
{
    float *at = l->state.scales + l->layout->tensor_n;
    tg_optimizer_state optimizer = tg_autoencoder_optimizer_state(l->autoencoder);
    const tg_lgc_progress *p = &l->progress;
    const uint32_t counters[COUNTERS] = {p->phase, p->left, p->extended, l->sent.last_phase, (uint32_t)*optimizer.step};
    for (int i = 0; i < COUNTERS; i++) {
        at[i] = tg_bits_float(counters[i]);
    }
    at[COUNTERS - 1] = p->error;
    at += COUNTERS;
    size_t weight_n = tg_autoencoder_weight_n(l->autoencoder);
    memcpy(at, tg_autoencoder_weights(l->autoencoder), weight_n * sizeof *at);
    memcpy(at + weight_n, optimizer.moments, optimizer.moment_n * sizeof *at);
    *n = saved_n(l);
    return l->state.saved;
}

void tg_lgc_restored(tg_lgc *l)
{
    const float *at = l->state.scales + l->layout->tensor_n;
    tg_optimizer_state optimizer = tg_autoencoder_optimizer_state(l->autoencoder);
    uint32_t phase = tg_float_bits(at[0]);
    l->progress = (tg_lgc_progress){.phase = phase >= TG_LGC_PHASE_DENSE && phase <= TG_LGC_PHASE_CODE ? phase : 1,
                                    .left = tg_float_bits(at[1]),
                                    .extended = tg_float_bits(at[2]),
                                    .error = at[COUNTERS - 1]};
    l->sent.last_phase = tg_float_bits(at[3]);
    *optimizer.step = tg_float_bits(at[4]);
    at += COUNTERS;
    size_t weight_n = tg_autoencoder_weight_n(l->autoencoder);
    memcpy(tg_autoencoder_weights(l->autoencoder), at, weight_n * sizeof *at);
    memcpy(optimizer.moments, at + weight_n, optimizer.moment_n * sizeof *at);
}
