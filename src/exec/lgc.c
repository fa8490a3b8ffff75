/* LGC's object: roles of tensors, sizes, phases, saved state. See lgc.h. */
#include "exec/lgc.h"

#include "base/half.h"

#include <math.h>
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
        tensor->feedback_at = l->size.feedback_n;
        l->size.feedback_n += tensor->n * tensor->feedback->planes;
        l->params = is_learned(layout, t) ? recipe->value[TG_STAGE_quantize] : l->params;
        count(l, tensor);
    }
    if (l->size.coded_n == 0 || l->size.coded_n >= UINT32_MAX) {
        return tg_fail(TG_E_RECIPE, why, "'autoencoder' has %s values to encode",
                       l->size.coded_n == 0 ? "no" : "too many");
    }
    return TG_OK;
}

static void configure(tg_lgc *l)
{
    l->is_server = l->params[TG_LGC_FORM] == TG_LGC_SERVER;
    l->config = tg_autoencoder_standard((size_t)l->size.coded_n);
    for (int i = 0; i < TG_AUTOENCODER_HALVINGS; i++) {
        l->config.encoder_channels[i] = (uint32_t)l->params[TG_LGC_ENCODER + i];
        l->config.decoder_channels[i] = (uint32_t)l->params[TG_LGC_DECODER + i];
    }
    l->config.code_channels = (uint32_t)l->params[TG_LGC_CHANNELS];
    l->config.decoder_n = l->is_server ? l->world : 1;
    l->config.rate = l->params[TG_LGC_RATE];
    l->config.value_weight = l->params[TG_LGC_LAMBDA1];
    l->config.code_weight = l->params[TG_LGC_LAMBDA2];
    l->size.code_n = tg_autoencoder_code_n_of(&l->config);
    l->size.innovation_n = l->is_server ? tg_ratio_entries(l->params[TG_LGC_SHARE], l->size.coded_n) : 0;
}

tg_status tg_lgc_new(tg_lgc **out, const tg_layout *layout, tg_nonfinite nonfinite, const tg_lgc_place *place,
                     const tg_allocator *a, tg_detail *why)
{
    tg_lgc *l = NULL;
    if (place->executor->lgc == NULL) {
        return tg_fail(TG_E_RECIPE, why, "'autoencoder' has no passes on %s", place->executor->name);
    }
    TG_TRY(tg_acquire(&l, a, 1, sizeof *l, why));
    *out = l; /* the caller frees it, also on failure */
    l->allocator = *a;
    l->executor = place->executor;
    l->device = place->device;
    l->run = place->run;
    l->layout = layout;
    l->nonfinite = nonfinite;
    l->rank = place->rank;
    l->world = place->world;
    TG_TRY(tg_acquire(&l->tensors, &l->allocator, l->layout->tensor_n, sizeof *l->tensors, why));
    TG_TRY(assign_roles(l, why));
    configure(l);
    uint32_t dense = (uint32_t)l->params[TG_LGC_DENSE], learn = (uint32_t)l->params[TG_LGC_LEARN];
    l->progress = (tg_lgc_progress){
        .phase = dense > 0 ? TG_LGC_PHASE_DENSE : TG_LGC_PHASE_LEARN, .left = dense > 0 ? dense : learn, .error = -1};
    return l->executor->lgc->open(l, why);
}

void tg_lgc_free(tg_lgc *l)
{
    if (l == NULL) {
        return;
    }
    tg_allocator a = l->allocator;
    l->executor->lgc->close(l);
    tg_release(&a, l->tensors);
    tg_release(&a, l);
}

/* ---- the vector ------------------------------------------------------------------------------------------------------ */

uint64_t tg_lgc_vector_n(const tg_lgc *l)
{
    switch (l->progress.phase) {
    case TG_LGC_PHASE_DENSE: return l->size.n;
    case TG_LGC_PHASE_LEARN: return l->size.whole_n + l->size.picked_n + l->size.coded_n;
    default: return l->size.whole_n + l->size.picked_n + (l->is_server ? 0 : l->size.code_n);
    }
}

tg_dtype tg_lgc_code_type(const tg_lgc *l)
{
    return (tg_dtype)l->params[TG_LGC_CODE];
}

static tg_dtype whole_type(const tg_lgc *l)
{
    return (tg_dtype)l->params[TG_LGC_WHOLE_TYPE];
}

void tg_lgc_spans(tg_lgc_span spans[TG_LGC_SPANS], const tg_lgc *l, uint64_t from, uint64_t to)
{
    bool has_code = l->progress.phase == TG_LGC_PHASE_CODE && !l->is_server;
    const uint64_t ends[TG_LGC_SPANS] = {l->progress.phase == TG_LGC_PHASE_DENSE ? l->size.n : l->size.whole_n,
                                         has_code ? l->size.whole_n + l->size.picked_n : UINT64_MAX, UINT64_MAX};
    const tg_dtype types[TG_LGC_SPANS] = {whole_type(l), TG_FP32, tg_lgc_code_type(l)};
    for (int i = 0; i < TG_LGC_SPANS; i++) {
        uint64_t end = to < ends[i] ? to : ends[i];
        spans[i] = (tg_lgc_span){.n = end > from ? end - from : 0, .type = types[i]};
        from += spans[i].n;
    }
}

uint64_t tg_lgc_bytes_of(const tg_lgc *l, uint64_t from, uint64_t to)
{
    tg_lgc_span spans[TG_LGC_SPANS];
    uint64_t len = 0;
    tg_lgc_spans(spans, l, from, to);
    for (int i = 0; i < TG_LGC_SPANS; i++) {
        len += spans[i].n * tg_dtype_len(spans[i].type);
    }
    return len;
}

bool tg_lgc_subtracts_average(const tg_lgc *l)
{
    return l->progress.phase == TG_LGC_PHASE_CODE && l->params[TG_LGC_OWN] != 0;
}

tg_status tg_lgc_refuse(const tg_lgc *l, size_t tensor, bool average_is_finite, tg_detail *why)
{
    const char *name = l->layout->tensors[tensor].name;
    return average_is_finite
               ? tg_refuse_overflow(name, "gradient", why)
               : tg_fail(TG_E_NONFINITE, why,
                         "the average of tensor '%.100s' overflows: the gradients are finite, but too large to encode",
                         name);
}

/* ---- phases ---------------------------------------------------------------------------------------------------------- */

void tg_lgc_note_error(tg_lgc *l, double error)
{
    float *known = &l->progress.error;
    if (isfinite(error)) {
        *known = *known < 0 ? (float)error : 0.9f * *known + 0.1f * (float)error;
    }
}

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

void tg_lgc_finish(tg_lgc *l, void *const *grads, uint64_t step)
{
    l->executor->lgc->finish(l, grads, step);
    l->sent.last_phase = l->progress.phase;
    advance(l);
}

/* ---- queries --------------------------------------------------------------------------------------------------------- */

/* n floats of a section to the host. */
static void fetch(float *out, const tg_lgc *l, const float *from, uint64_t n)
{
    const uint8_t *there = NULL;
    size_t len = (size_t)n * sizeof *out;
    tg_status status = l->executor->fetch(&there, out, l->device, NULL, (const uint8_t *)from, len, NULL);
    if (status == TG_OK && n > 0 && (const void *)there != (const void *)out) {
        memcpy(out, there, len);
    } /* a device that has failed stays failed, and says so in the next step */
}

void tg_lgc_residual(float *out, const tg_lgc *l, size_t t)
{
    const tg_lgc_tensor *tensor = &l->tensors[t];
    if (tensor->feedback->planes > 0) {
        fetch(out, l, l->saved[0].at + tensor->feedback_at, tensor->n);
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
    out->len = (uint64_t)(entries * (all ? (double)tg_dtype_len(whole_type(l)) : each + lead) + 0.5);
}

/* ---- saved state ----------------------------------------------------------------------------------------------------- */

uint64_t tg_lgc_saved_n(const tg_lgc *l)
{
    uint64_t n = TG_LGC_COUNTERS;
    for (int i = 0; i < TG_LGC_SECTIONS; i++) {
        n += l->saved[i].n;
    }
    return n;
}

/* Copies between numbers [at, at + n) of the saved state and one of both arrays, which is not NULL. Counters are after the first
 * section. */
static void copy_saved(tg_lgc *l, float *out, uint64_t at, const float *values, uint64_t n)
{
    for (int i = 0; i <= TG_LGC_SECTIONS && n > 0; i++) {
        bool is_here = i == 1;
        const tg_lgc_section here = {l->counters, TG_LGC_COUNTERS},
                             *s = is_here ? &here : &l->saved[i == 0 ? 0 : i - 1];
        uint64_t some = at >= s->n ? 0 : s->n - at < n ? s->n - at : n;
        if (some > 0 && out != NULL) {
            if (is_here) {
                memcpy(out, s->at + at, some * sizeof *out);
            } else {
                fetch(out, l, s->at + at, some);
            }
            out += some;
        } else if (some > 0) {
            if (is_here) {
                memcpy(s->at + at, values, some * sizeof *values);
            } else {
                l->executor->store(l->device, (uint8_t *)(s->at + at), values, (size_t)some * sizeof *values);
            }
            values += some;
        }
        at = some > 0 ? 0 : at - s->n;
        n -= some;
    }
}

/* Counters are stored as the bits of floats. They are too small to be the bits of a NaN, so that copying keeps them. */
void tg_lgc_save(float *out, tg_lgc *l, uint64_t at, uint64_t n)
{
    const tg_lgc_progress *p = &l->progress;
    const uint32_t counters[TG_LGC_COUNTERS - 1] = {p->phase, p->left, p->extended, l->sent.last_phase,
                                                    (uint32_t)l->optimizer_steps};
    for (int i = 0; i < TG_LGC_COUNTERS - 1; i++) {
        l->counters[i] = tg_bits_float(counters[i]);
    }
    l->counters[TG_LGC_COUNTERS - 1] = p->error;
    copy_saved(l, out, at, NULL, n);
}

void tg_lgc_load_saved(tg_lgc *l, uint64_t at, const float *values, uint64_t n)
{
    copy_saved(l, NULL, at, values, n);
}

void tg_lgc_restored(tg_lgc *l)
{
    const float *counters = l->counters;
    uint32_t phase = tg_float_bits(counters[0]);
    l->progress = (tg_lgc_progress){.phase = phase >= TG_LGC_PHASE_DENSE && phase <= TG_LGC_PHASE_CODE ? phase : 1,
                                    .left = tg_float_bits(counters[1]),
                                    .extended = tg_float_bits(counters[2]),
                                    .error = counters[TG_LGC_COUNTERS - 1]};
    l->sent.last_phase = tg_float_bits(counters[3]);
    l->optimizer_steps = tg_float_bits(counters[4]);
}
