/* The first step of the way in: a block of gradients with what is remembered of it. */
#include "base/bytes.h"
#include "codec/codec.h"
#include "kernels/kernels.h"

#include <string.h>

/* Applies the policy for NaN and Inf; false if they are refused. */
static bool admit(const tg_codec *c, float *u, size_t n)
{
    switch (c->nonfinite) {
    case TG_NONFINITE_ERROR: return tg_all_finite(u, n);
    case TG_NONFINITE_ZERO: tg_zero_nonfinite(u, n); return true;
    case TG_NONFINITE_PASS: return true;
    }
    return true;
}

size_t tg_codec_load_gradient(tg_desk *desk, const tg_codec *c, uint32_t unit, const tg_source *source, uint64_t at,
                              size_t n)
{
    const tg_work *w = &c->works[unit];
    const tg_piece *piece = tg_unit_piece(&c->layout->units[unit], at);
    float *g = desk->g;
    for (size_t done = 0; done < n; piece++) {
        uint64_t from = at + done - piece->at; /* in the tensor */
        size_t m = piece->n - from < n - done ? (size_t)(piece->n - from) : n - done;
        if (source->flat != NULL) {
            memcpy(g + done, source->flat + w->flat_at + (at + done - w->lo), m * sizeof *g);
        } else {
            tg_dtype dtype = c->layout->tensors[piece->tensor].dtype;
            const char *grad = source->grads[piece->tensor];
            tg_widen(g + done, grad + from * tg_dtype_len(dtype), dtype, m);
        }
        if (!admit(c, g + done, m)) {
            return piece->tensor + 1;
        }
        done += m;
    }
    return 0;
}

const float *tg_codec_in_place(const tg_codec *c, uint32_t unit, const tg_source *source, uint64_t at, size_t n)
{
    const tg_work *w = &c->works[unit];
    const tg_piece *piece = tg_unit_piece(&c->layout->units[unit], at);
    bool whole = n > 0 && at + n <= piece->at + piece->n;
    if (!whole || w->shrink != 1.0f || c->nonfinite == TG_NONFINITE_ZERO) {
        return NULL;
    }
    if (source->flat != NULL) {
        return source->flat + w->flat_at + (at - w->lo);
    }
    const float *grad = source->grads[piece->tensor];
    bool is_fp32 = c->layout->tensors[piece->tensor].dtype == TG_FP32;
    return is_fp32 && (uintptr_t)grad % sizeof *grad == 0 ? grad + (at - piece->at) : NULL;
}

const uint8_t *tg_codec_as_it_travels(const tg_codec *c, uint32_t unit, const tg_source *source, tg_dtype dtype,
                                      uint64_t at, size_t n)
{
    const tg_piece *piece = tg_unit_piece(&c->layout->units[unit], at);
    bool whole = n > 0 && at + n <= piece->at + piece->n;
    if (!TG_IS_LITTLE_ENDIAN || !whole || source->flat != NULL || c->works[unit].shrink != 1.0f ||
        c->layout->tensors[piece->tensor].dtype != dtype) {
        return NULL;
    }
    return (const uint8_t *)source->grads[piece->tensor] + (at - piece->at) * tg_dtype_len(dtype);
}

size_t tg_codec_load(tg_desk *desk, const tg_codec *c, uint32_t unit, const tg_source *source, uint64_t at, size_t n,
                     float *into, float *also, bool streams)
{
    const tg_work *w = &c->works[unit];
    const float *g = tg_codec_in_place(c, unit, source, at, n);
    bool looked = g == NULL;
    if (g == NULL) {
        size_t bad_tensor = tg_codec_load_gradient(desk, c, unit, source, at, n);
        if (bad_tensor != 0) {
            return bad_tensor;
        }
        if (w->shrink != 1.0f) {
            tg_scale(desk->g, desk->g, w->shrink, n);
        }
        g = desk->g;
    }
    bool finite = true;
    desk->gradient = desk->u = g;
    if (w->remembers) {
        tg_memory memory = tg_work_memory(w, c->memory, at);
        finite = w->feedback->recall(into, also, g, &memory, w->feedback_params, n, streams);
        desk->u = into;
    } else if (!looked && c->nonfinite == TG_NONFINITE_ERROR) {
        finite = tg_all_finite(g, n);
    }
    bool refused = !looked && !finite && c->nonfinite == TG_NONFINITE_ERROR;
    return refused ? tg_unit_piece(&c->layout->units[unit], at)->tensor + 1 : 0;
}

tg_status tg_codec_refuse(const tg_codec *c, size_t bad_tensor, const tg_source *source, tg_detail *why)
{
    return tg_fail(TG_E_NONFINITE, why, "%s of tensor '%.150s' holds NaN or Inf",
                   source->flat != NULL ? "the average" : "the gradient", c->layout->tensors[bad_tensor - 1].name);
}
