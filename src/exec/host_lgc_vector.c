/* LGC on the host: loads a rank's gradient plus residual, and builds and averages the vector; see lgc.h. */
#include "exec/host_lgc.h"

#include "base/bits.h"
#include "base/bytes.h"
#include "base/half.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

/* ---- the gradient -------------------------------------------------------------------------------------------------- */

/* Clips the norm of a gradient, if its feedback part has a bound. */
static void clip_norm(float *u, size_t n, const tg_lgc_tensor *tensor)
{
    const tg_feedback_part *feedback = tensor->feedback;
    double most = feedback->norm_max != NULL ? feedback->norm_max(tensor->feedback_params) : 0;
    double norm = most > 0 ? sqrt(tg_sum_squares(u, n)) : 0;
    if (norm > most) {
        tg_scale(u, u, (float)(most / norm), n);
    }
}

tg_status tg_host_lgc_load(tg_lgc *l, void *const *grads, tg_detail *why)
{
    const tg_host_lgc *h = l->own;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        float *u = h->input.u + tensor->at;
        size_t n = (size_t)tensor->n;
        if (n == 0) {
            continue;
        }
        tg_widen(u, grads[t], l->layout->tensors[t].dtype, n);
        if (l->nonfinite == TG_NONFINITE_ERROR && !tg_all_finite(u, n)) {
            return tg_fail(TG_E_NONFINITE, why, "the gradient of tensor '%.150s' holds NaN or Inf",
                           l->layout->tensors[t].name);
        }
        if (l->nonfinite == TG_NONFINITE_ZERO) {
            tg_zero_nonfinite(u, n);
        }
        clip_norm(u, n, tensor);
        memcpy(h->input.g + tensor->at, u, n * sizeof *u);
        if (tensor->feedback->planes > 0) {
            tg_residual_view memory = {h->state.saved + tensor->feedback_at, h->state.next + tensor->feedback_at, n};
            bool finite = tensor->feedback->add_residual(u, NULL, u, &memory, tensor->feedback_params, n, false);
            if (!finite && l->nonfinite == TG_NONFINITE_ERROR) {
                return tg_refuse_overflow(l->layout->tensors[t].name, "gradient", why);
            }
            if (!finite) {
                tg_saturate(u, h->input.g + tensor->at, n);
            }
        }
    }
    return TG_OK;
}

float *tg_host_lgc_own(const tg_host_lgc *h)
{
    const tg_lgc *l = h->lgc;
    return h->of.values + l->rank * (l->size.coded_n + l->size.picked_n);
}

void tg_host_lgc_pick(const tg_host_lgc *h)
{
    const tg_lgc *l = h->lgc;
    float *coded = tg_host_lgc_own(h), *picked = coded + l->size.coded_n;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (tensor->role != TG_LGC_WHOLE) {
            float **out = tensor->role == TG_LGC_CODED ? &coded : &picked;
            tg_mask_extract(h->lead.part, h->lead.mask, tensor->sparse_at, (size_t)tensor->n);
            *out += tg_compress(*out, h->input.u + tensor->at, h->lead.part, (size_t)tensor->n);
        }
    }
}

/* ---- the vector ------------------------------------------------------------------------------------------------------ */

void tg_host_lgc_fill(tg_lgc *l)
{
    const tg_host_lgc *h = l->own;
    bool all = l->progress.phase == TG_LGC_PHASE_DENSE;
    float *out = h->sum.vector;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (all || tensor->role == TG_LGC_WHOLE) {
            memcpy(out, h->input.u + tensor->at, tensor->n * sizeof *out);
            out += tensor->n;
        }
    }
    if (all) {
        return;
    }
    const float *own = tg_host_lgc_own(h);
    memcpy(out, own + l->size.coded_n, l->size.picked_n * sizeof *out);
    out += l->size.picked_n;
    if (l->progress.phase == TG_LGC_PHASE_LEARN) {
        memcpy(out, own, l->size.coded_n * sizeof *out);
    } else if (!l->is_server) {
        tg_host_lgc_to_sequence(h->of.sequences, h, own);
        tg_host_lgc_encode(out, h, h->of.sequences);
    }
}

enum { AT_ONCE = 1024 }; /* values that are converted at a time */

uint8_t *tg_host_lgc_put_values(uint8_t *out, tg_dtype type, const float *values, uint64_t n)
{
    uint16_t halves[AT_ONCE];
    for (uint64_t i = 0; type == TG_FP32 && i < n; i++, out += 4) {
        tg_put32(out, tg_float_bits(values[i]));
    }
    for (uint64_t at = 0; type != TG_FP32 && at < n; at += AT_ONCE) {
        size_t some = n - at < AT_ONCE ? (size_t)(n - at) : AT_ONCE;
        tg_narrow(halves, values + at, type, some);
        for (size_t i = 0; i < some; i++, out += 2) {
            tg_put16(out, halves[i]);
        }
    }
    return out;
}

const uint8_t *tg_host_lgc_get_values(float *values, tg_dtype type, const uint8_t *bytes, uint64_t n)
{
    uint16_t halves[AT_ONCE];
    for (uint64_t i = 0; type == TG_FP32 && i < n; i++, bytes += 4) {
        values[i] = tg_bits_float(tg_get32(bytes));
    }
    for (uint64_t at = 0; type != TG_FP32 && at < n; at += AT_ONCE) {
        size_t some = n - at < AT_ONCE ? (size_t)(n - at) : AT_ONCE;
        for (size_t i = 0; i < some; i++, bytes += 2) {
            halves[i] = tg_get16(bytes);
        }
        tg_widen(values + at, halves, type, some);
    }
    return bytes;
}

void tg_host_lgc_put(uint8_t *out, const tg_lgc *l, bool of_average, uint64_t from, uint64_t to)
{
    const tg_host_lgc *h = l->own;
    const float *values = (of_average ? h->sum.average : h->sum.vector) + from;
    tg_lgc_span spans[TG_LGC_SPANS];
    tg_lgc_spans(spans, l, from, to);
    for (int i = 0; i < TG_LGC_SPANS; i++) {
        out = tg_host_lgc_put_values(out, spans[i].type, values, spans[i].n);
        values += spans[i].n;
    }
}

static void get(float *vector, const tg_lgc *l, const uint8_t *bytes, uint64_t from, uint64_t to)
{
    float *values = vector + from;
    tg_lgc_span spans[TG_LGC_SPANS];
    tg_lgc_spans(spans, l, from, to);
    for (int i = 0; i < TG_LGC_SPANS; i++) {
        bytes = tg_host_lgc_get_values(values, spans[i].type, bytes, spans[i].n);
        values += spans[i].n;
    }
}

void tg_host_lgc_take(tg_lgc *l, const uint8_t *bytes, uint64_t from, uint64_t to)
{
    get(((const tg_host_lgc *)l->own)->sum.average, l, bytes, from, to);
}

/* Sums elements [from, to) of all ranks' vectors, multiplied by `share`, in rank order. */
static void add(const tg_host_lgc *h, const uint8_t *const *bodies, uint64_t from, uint64_t to, float share)
{
    const tg_lgc *l = h->lgc;
    for (uint32_t p = 0; p < l->world; p++) {
        float *into = p == 0 ? h->sum.average : h->sum.vector;
        get(into, l, bodies[p], from, to);
        if (l->progress.phase == TG_LGC_PHASE_LEARN) {
            memcpy(h->of.values + p * (l->size.coded_n + l->size.picked_n), into + l->size.whole_n + l->size.picked_n,
                   l->size.coded_n * sizeof *into);
        }
        for (uint64_t i = from; i < to; i++) {
            h->sum.average[i] = p == 0 ? share * h->sum.average[i] : h->sum.average[i] + share * h->sum.vector[i];
        }
    }
}

/* If the sum overflows, sums again with values scaled down first: the average of finite values is finite. */
void tg_host_lgc_average(tg_lgc *l, const uint8_t *const *bodies, uint64_t from, uint64_t to)
{
    const tg_host_lgc *h = l->own;
    float share = 1.0f;
    add(h, bodies, from, to, share);
    if (!tg_all_finite(h->sum.average + from, (size_t)(to - from))) {
        share = tg_average_share(l->world);
        add(h, bodies, from, to, share);
    }
    tg_average_shared(h->sum.average + from, share, l->world, (size_t)(to - from));
}
