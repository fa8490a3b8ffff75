/* Loads gradients and residuals, and stores residuals: what all encoding kernels begin and end with. The policy for NaN and Inf
 * is applied here, element by element, with the results of routes/load.c. */
#ifndef TG_EXEC_CUDA_LOAD_H
#define TG_EXEC_CUDA_LOAD_H

#include "exec/cuda/halves.h"
#include "exec/cuda/kernel.h"
#include "exec/cuda/tables.h"

#define TG_FLOAT_MAX 3.402823466e+38f

enum { TG_GPU_ERROR, TG_GPU_ZERO, TG_GPU_PASS }; /* tg_nonfinite */

/* The step that is encoded. */
TG_DEVICE uint64_t tg_step_of(const tg_gpu_pass &p)
{
    return p.step_at != nullptr ? *p.step_at : p.step;
}

TG_DEVICE bool tg_is_finite(float value)
{
    return fabsf(value) <= TG_FLOAT_MAX;
}

/* A NaN as the CPU's arithmetic hands it on: quiet, and otherwise as it was. A GPU's would replace it by another. */
TG_DEVICE float tg_quiet(float nan)
{
    return __uint_as_float(__float_as_uint(nan) | 0x00400000u);
}

/* The piece of a unit that element `at` is in. */
TG_DEVICE const tg_gpu_piece *tg_piece_at(const tg_gpu_pass &p, const tg_gpu_unit &u, uint64_t at)
{
    const tg_gpu_piece *pieces = p.pieces + u.piece_first;
    uint32_t low = 0, high = u.piece_n;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (pieces[middle].at <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return pieces + low;
}

TG_DEVICE void tg_refuse_tensor(const tg_gpu_pass &p, uint32_t tensor)
{
    atomicMax(&p.verdict->bad_tensor, 0xffffffffu - tensor);
}

TG_DEVICE void tg_refuse_residual(const tg_gpu_pass &p, uint32_t tensor)
{
    atomicMax(&p.verdict->bad_residual, 0xffffffffu - tensor);
}

TG_DEVICE void tg_refuse_chunk(const tg_gpu_pass &p, uint32_t chunk)
{
    atomicMax(&p.verdict->bad_chunk, 0xffffffffu - chunk);
}

/* An element of a tensor of a dtype, as it is. */
TG_DEVICE float tg_load_element(const void *tensor, uint32_t dtype, uint64_t at)
{
    if (dtype == 0) {
        return ((const float *)tensor)[at];
    }
    uint16_t half = ((const uint16_t *)tensor)[at];
    return dtype == 1 ? tg_fp16_to_float(half) : tg_bf16_to_float(half);
}

/* The elements of tensor t. */
TG_DEVICE const void *tg_grad_of(const tg_gpu_pass &p, uint32_t t)
{
    return p.grads != nullptr ? p.grads[t] : p.few[t];
}

/* Element `at` of a unit's gradient, which is in `piece`, with the policy and the clip applied. */
TG_DEVICE float tg_load_gradient(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t unit, const tg_gpu_piece *piece,
                                 uint64_t at)
{
    float g = p.flat != nullptr ? p.flat[u.flat_at + (at - u.lo)]
                                : tg_load_element(tg_grad_of(p, piece->tensor), piece->dtype, at - piece->at);
    if (p.nonfinite != TG_GPU_PASS && !tg_is_finite(g)) {
        if (p.nonfinite == TG_GPU_ERROR) {
            tg_refuse_tensor(p, piece->tensor);
        }
        g = 0;
    }
    float clip = p.space.clips[unit];
    if (clip != 1.0f) {
        float scaled = clip * g;
        g = g != g ? tg_quiet(g) : !tg_is_finite(scaled) && tg_is_finite(g) ? copysignf(TG_FLOAT_MAX, scaled) : scaled;
    }
    return g;
}

/* Whether values are added to tensors, and to those of tensor t. */
TG_DEVICE bool tg_adds_to_tensors(const tg_gpu_pass &p)
{
    return p.added != nullptr || p.adds_few;
}

TG_DEVICE float *tg_added_of(const tg_gpu_pass &p, uint32_t t)
{
    return p.added != nullptr ? p.added[t] : (float *)p.few[t];
}

/* Where element `at` of a unit is added. */
TG_DEVICE float *tg_sum_at(const tg_gpu_pass &p, const tg_gpu_unit &u, uint64_t at)
{
    if (!tg_adds_to_tensors(p)) {
        return p.space.sums + u.flat_at + (at - u.lo);
    }
    const tg_gpu_piece *piece = tg_piece_at(p, u, at);
    return tg_added_of(p, piece->tensor) + (at - piece->at);
}

/* The velocity of an element after this step. */
TG_DEVICE float tg_velocity(const tg_gpu_pass &p, const tg_gpu_unit &u, float g, uint64_t at)
{
    return (float)u.feedback_params[0] * p.now[u.residual_at + (u.hi - u.lo) + (at - u.lo)] + g;
}

/* gradient + residual of element `at` of a unit with feedback, whose residual is given. */
TG_DEVICE float tg_add_to_residual(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece *piece, float g,
                                   uint64_t at, float residual)
{
    if (g != g) {
        return tg_quiet(g);
    }
    float sum = u.feedback == TG_GPU_FEEDBACK_EF ? g + (float)u.feedback_params[0] * residual
                                                 : residual + tg_velocity(p, u, g, at);
    if (!tg_is_finite(sum) && tg_is_finite(g)) {
        if (p.nonfinite == TG_GPU_ERROR) {
            tg_refuse_residual(p, piece->tensor);
        }
        sum = sum != sum ? 0.0f : copysignf(TG_FLOAT_MAX, sum);
    }
    return sum;
}

/* The same of any unit; the gradient itself if there is no feedback. */
TG_DEVICE float tg_add_residual(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece *piece, float g,
                                uint64_t at)
{
    return u.planes == 0 ? g : tg_add_to_residual(p, u, piece, g, at, p.now[u.residual_at + (at - u.lo)]);
}

/* Stores the residual of element `at`. */
TG_DEVICE void tg_store_residual(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece *piece, float residual,
                                 uint64_t at)
{
    if (!tg_is_finite(residual)) {
        if (p.nonfinite == TG_GPU_ERROR) {
            tg_refuse_residual(p, piece->tensor);
        }
        residual = 0;
    }
    p.next[u.residual_at + (at - u.lo)] = residual;
}

/* Updates what the feedback keeps beside the residual. The velocity of an element that a selection sends is cleared. */
TG_DEVICE void tg_keep_state(const tg_gpu_pass &p, const tg_gpu_unit &u, float g, uint64_t at, bool is_selected)
{
    if (u.planes > 1) {
        float velocity = is_selected ? 0.0f : tg_velocity(p, u, g, at);
        p.next[u.residual_at + (u.hi - u.lo) + (at - u.lo)] = tg_is_finite(velocity) ? velocity : 0.0f;
    }
}

#endif
