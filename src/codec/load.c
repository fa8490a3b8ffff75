/* The first step of the way in: a block of gradients with what is remembered of it. */
#include "base/bytes.h"
#include "codec/codec.h"
#include "kernels/kernels.h"

#include <math.h>
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

size_t tg_codec_bad_tensor(const tg_codec *c, uint32_t unit, const float *values, uint64_t at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) {
            return tg_unit_piece(&c->layout->units[unit], at + i)->tensor + 1;
        }
    }
    return 0;
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
    desk->saturated = false;
    if (w->remembers) {
        tg_memory memory = tg_work_memory(w, c->memory, at);
        finite = w->feedback->recall(into, also, g, &memory, w->feedback_params, n, streams);
        desk->u = into;
    } else if (!looked && c->nonfinite == TG_NONFINITE_ERROR) {
        finite = tg_all_finite(g, n);
    }
    if (finite) {
        return 0;
    }
    if (c->nonfinite == TG_NONFINITE_ERROR) {
        return tg_codec_bad_tensor(c, unit, desk->u, at, n);
    }
    tg_saturate(into, g, n);
    if (also != NULL) {
        tg_saturate(also, g, n);
    }
    desk->saturated = true;
    return 0;
}

/* Whether a tensor is finite in the source. */
static bool is_given_finite(const tg_codec *c, size_t tensor, const tg_source *source)
{
    enum { SOME = 256 };
    uint32_t u = c->layout->tensor_unit[tensor];
    const tg_unit *unit = &c->layout->units[u];
    const tg_work *w = &c->works[u];
    const tg_piece *piece = unit->pieces;
    while (piece->tensor != tensor) {
        piece++;
    }
    uint64_t at = piece->at > w->lo ? piece->at : w->lo, end = piece->at + piece->n;
    end = end < w->hi ? end : w->hi;
    if (source->flat != NULL) {
        return at >= end || tg_all_finite(source->flat + w->flat_at + (at - w->lo), (size_t)(end - at));
    }
    tg_dtype dtype = c->layout->tensors[tensor].dtype;
    for (const char *grad = source->grads[tensor]; at < end; at += SOME) {
        float some[SOME];
        size_t n = end - at < SOME ? (size_t)(end - at) : SOME;
        tg_widen(some, grad + (at - piece->at) * tg_dtype_len(dtype), dtype, n);
        if (!tg_all_finite(some, n)) {
            return false;
        }
    }
    return true;
}

tg_status tg_refuse_overflow(const char *tensor, const char *of, tg_detail *why)
{
    return tg_fail(
        TG_E_NONFINITE, why,
        "the residual of tensor '%.100s' overflows: its %s is finite, but %s plus residual, or that less the "
        "decoded values, is not",
        tensor, of, of);
}

tg_status tg_codec_refuse(const tg_codec *c, size_t bad_tensor, const tg_source *source, tg_detail *why)
{
    const char *of = source->flat != NULL ? "average" : "gradient", *name = c->layout->tensors[bad_tensor - 1].name;
    if (!is_given_finite(c, bad_tensor - 1, source)) {
        return tg_fail(TG_E_NONFINITE, why, "the %s of tensor '%.150s' holds NaN or Inf", of, name);
    }
    return tg_refuse_overflow(name, of, why);
}
