/* Loads a block of gradients, alone or with the residual added. Policy for NaN and Inf is applied here. */
#include "routes/route.h"

#include <math.h>
#include <string.h>

tg_residual_view tg_residual_at(const tg_encoding *e, uint64_t at)
{
    const tg_unit_plan *u = e->unit;
    uint64_t from = u->residual_at + (at - u->lo);
    return (tg_residual_view){e->residuals.now + from, e->residuals.next + from, (size_t)(u->hi - u->lo)};
}

void tg_encoding_refuse(tg_encoding *e, const float *values, uint64_t at, size_t n)
{
    for (size_t i = 0; i < n && e->result->bad_tensor == 0; i++) {
        e->result->bad_tensor = isfinite(values[i]) ? 0 : tg_unit_piece(e->unit->unit, at + i)->tensor + 1;
    }
}

void tg_settle_overflow(tg_encoding *e)
{
    size_t n = e->chunk->n;
    tg_residual_view memory = tg_residual_at(e, e->chunk->at);
    if (e->plan->nonfinite == TG_NONFINITE_ERROR) {
        tg_encoding_refuse(e, memory.next, e->chunk->at, n);
        return;
    }
    for (uint32_t p = 0; p < e->unit->planes; p++) {
        tg_zero_nonfinite(memory.next + p * memory.stride, n);
    }
}

/* Applies the policy; false: the values are refused. */
static bool admit(tg_nonfinite policy, float *values, size_t n)
{
    if (policy == TG_NONFINITE_ERROR) {
        return tg_all_finite(values, n);
    }
    if (policy == TG_NONFINITE_ZERO) {
        tg_zero_nonfinite(values, n);
    }
    return true;
}

/* The block into scratch->gradient, tensor by tensor. NULL: it is refused. */
static const float *convert(tg_encoding *e, uint64_t at, size_t n)
{
    const tg_unit_plan *u = e->unit;
    const tg_piece *piece = tg_unit_piece(u->unit, at);
    float *g = e->scratch->gradient;
    for (size_t done = 0; done < n; piece++) {
        uint64_t from = at + done - piece->at; /* in the tensor */
        size_t m = piece->n - from < n - done ? (size_t)(piece->n - from) : n - done;
        if (e->source->flat != NULL) {
            memcpy(g + done, e->source->flat + u->flat_at + (at + done - u->lo), m * sizeof *g);
        } else {
            tg_dtype dtype = e->plan->layout->tensors[piece->tensor].dtype;
            const char *grad = e->source->grads[piece->tensor];
            tg_widen(g + done, grad + from * tg_dtype_len(dtype), dtype, m);
        }
        if (!admit(e->plan->nonfinite, g + done, m)) {
            e->result->bad_tensor = piece->tensor + 1;
            return NULL;
        }
        done += m;
    }
    if (e->work->clip != 1.0f) {
        tg_scale(g, g, e->work->clip, n);
    }
    return g;
}

const float *tg_gradient_in_place(const tg_encoding *e, uint64_t at, size_t n)
{
    const tg_unit_plan *u = e->unit;
    const tg_piece *piece = u->unit->piece_n == 1 ? u->unit->pieces : tg_unit_piece(u->unit, at);
    bool is_whole = n > 0 && at + n <= piece->at + piece->n;
    if (!is_whole || e->work->clip != 1.0f || e->plan->nonfinite == TG_NONFINITE_ZERO) {
        return NULL;
    }
    if (e->source->flat != NULL) {
        return e->source->flat + u->flat_at + (at - u->lo);
    }
    const float *grad = e->source->grads[piece->tensor];
    bool is_fp32 = e->plan->layout->tensors[piece->tensor].dtype == TG_FP32;
    return is_fp32 && (uintptr_t)grad % sizeof *grad == 0 ? grad + (at - piece->at) : NULL;
}

const float *tg_load_unchecked(tg_encoding *e, uint64_t at, size_t n)
{
    const float *g = tg_gradient_in_place(e, at, n);
    return g != NULL ? g : convert(e, at, n);
}

const float *tg_load_gradient(tg_encoding *e, uint64_t at, size_t n)
{
    const float *g = tg_gradient_in_place(e, at, n);
    if (g == NULL) {
        return convert(e, at, n);
    }
    if (e->plan->nonfinite == TG_NONFINITE_ERROR && !tg_all_finite(g, n)) {
        tg_encoding_refuse(e, g, at, n);
        return NULL;
    }
    return g;
}

const float *tg_load_sum(float *u, float *also, tg_encoding *e, uint64_t at, size_t n, bool non_temporal)
{
    const tg_stages *s = &e->unit->stages;
    const float *g = tg_load_unchecked(e, at, n);
    if (g == NULL) {
        return NULL;
    }
    tg_residual_view memory = tg_residual_at(e, at);
    if (s->feedback->add_residual(u, also, g, &memory, s->feedback_params, n, non_temporal)) {
        return g;
    }
    if (e->plan->nonfinite == TG_NONFINITE_ERROR) {
        tg_encoding_refuse(e, u, at, n);
        return NULL;
    }
    tg_saturate(u, g, n);
    if (also != NULL) {
        tg_saturate(also, g, n);
    }
    e->result->overflows = true;
    return g;
}

void tg_keep_block(const tg_encoding *e, const uint64_t *mask, const float *gradient, uint64_t at, size_t n)
{
    const tg_stages *s = &e->unit->stages;
    tg_residual_view memory = tg_residual_at(e, at);
    if (s->feedback->update_state != NULL) {
        s->feedback->update_state(&memory, s->feedback_params, gradient, mask, n);
    }
    for (uint32_t p = 1; e->plan->nonfinite == TG_NONFINITE_PASS && p < e->unit->planes; p++) {
        tg_zero_nonfinite(memory.next + p * memory.stride, n);
    }
}
