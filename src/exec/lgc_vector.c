/* LGC: loads a rank's gradient plus residual, and builds the vector that is summed over ranks:
 *
 *     phase 1    all elements
 *     phase 2    whole tensors, picked values, coded values
 *     phase 3    whole tensors, picked values, and in a ring the code of the coded values
 *
 * A code's values may have a shorter type on the wire; all others are fp32. */
#include "exec/lgc.h"

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

tg_status tg_lgc_load(tg_lgc *l, void *const *grads, tg_detail *why)
{
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        float *u = l->input.u + tensor->at;
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
        memcpy(l->input.g + tensor->at, u, n * sizeof *u);
        if (tensor->feedback->planes > 0) {
            tg_residual_view memory = {l->state.saved + tensor->feedback_at, l->state.next + tensor->feedback_at, n};
            bool finite = tensor->feedback->add_residual(u, NULL, u, &memory, tensor->feedback_params, n, false);
            if (!finite && l->nonfinite == TG_NONFINITE_ERROR) {
                return tg_refuse_overflow(l->layout->tensors[t].name, "gradient", why);
            }
            if (!finite) {
                tg_saturate(u, l->input.g + tensor->at, n);
            }
        }
    }
    return TG_OK;
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

/* Where the code begins in the vector; UINT64_MAX if there is none. */
static uint64_t code_at(const tg_lgc *l)
{
    bool has_code = l->progress.phase == TG_LGC_PHASE_CODE && !l->is_server;
    return has_code ? l->size.whole_n + l->size.picked_n : UINT64_MAX;
}

tg_dtype tg_lgc_code_type(const tg_lgc *l)
{
    return (tg_dtype)l->params[TG_LGC_CODE];
}

uint64_t tg_lgc_stretch_len(const tg_lgc *l, uint64_t from, uint64_t to)
{
    uint64_t code = code_at(l), codes = to > code ? to - (from > code ? from : code) : 0;
    return 4 * (to - from - codes) + tg_dtype_len(tg_lgc_code_type(l)) * codes;
}

uint8_t *tg_lgc_put_code(uint8_t *out, tg_dtype type, float value)
{
    if (type == TG_FP32) {
        tg_put32(out, tg_float_bits(value));
    } else {
        tg_put16(out, type == TG_FP16 ? tg_float_to_fp16(value) : tg_float_to_bf16(value));
    }
    return out + tg_dtype_len(type);
}

const uint8_t *tg_lgc_get_code(float *value, tg_dtype type, const uint8_t *bytes)
{
    *value = type == TG_FP32   ? tg_bits_float(tg_get32(bytes))
             : type == TG_FP16 ? tg_fp16_to_float(tg_get16(bytes))
                               : tg_bf16_to_float(tg_get16(bytes));
    return bytes + tg_dtype_len(type);
}

uint8_t *tg_lgc_put_stretch(uint8_t *out, const tg_lgc *l, const float *vector, uint64_t from, uint64_t to)
{
    uint64_t code = code_at(l);
    for (uint64_t i = from; i < to && i < code; i++, out += 4) {
        tg_put32(out, tg_float_bits(vector[i]));
    }
    for (uint64_t i = from > code ? from : code; i < to; i++) {
        out = tg_lgc_put_code(out, tg_lgc_code_type(l), vector[i]);
    }
    return out;
}

void tg_lgc_get_stretch(float *vector, const tg_lgc *l, const uint8_t *bytes, uint64_t from, uint64_t to)
{
    uint64_t code = code_at(l);
    for (uint64_t i = from; i < to && i < code; i++, bytes += 4) {
        vector[i] = tg_bits_float(tg_get32(bytes));
    }
    for (uint64_t i = from > code ? from : code; i < to; i++) {
        bytes = tg_lgc_get_code(&vector[i], tg_lgc_code_type(l), bytes);
    }
}

float *tg_lgc_own_values(const tg_lgc *l)
{
    return l->of.values + l->rank * (l->size.coded_n + l->size.picked_n);
}

void tg_lgc_pick_values(const tg_lgc *l)
{
    float *coded = tg_lgc_own_values(l), *picked = coded + l->size.coded_n;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (tensor->role != TG_LGC_WHOLE) {
            float **out = tensor->role == TG_LGC_CODED ? &coded : &picked;
            tg_mask_extract(l->lead.part, l->lead.mask, tensor->sparse_at, (size_t)tensor->n);
            *out += tg_compress(*out, l->input.u + tensor->at, l->lead.part, (size_t)tensor->n);
        }
    }
}

void tg_lgc_fill_vector(tg_lgc *l)
{
    bool all = l->progress.phase == TG_LGC_PHASE_DENSE;
    float *out = l->sum.vector;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (all || tensor->role == TG_LGC_WHOLE) {
            memcpy(out, l->input.u + tensor->at, tensor->n * sizeof *out);
            out += tensor->n;
        }
    }
    if (all) {
        return;
    }
    const float *own = tg_lgc_own_values(l);
    memcpy(out, own + l->size.coded_n, l->size.picked_n * sizeof *out);
    out += l->size.picked_n;
    if (l->progress.phase == TG_LGC_PHASE_LEARN) {
        memcpy(out, own, l->size.coded_n * sizeof *out);
    } else if (!l->is_server) {
        tg_lgc_to_sequence(l->of.sequences, l, own);
        tg_autoencoder_encode(out, l->autoencoder, l->of.sequences);
    }
}
