/* Elements of a unit while a block reads them: gradients, and gradients plus residuals. Where a region is in one tensor and its
 * gradient is not clipped, addresses are known beforehand and all loads of a thread are in flight at once; elements that are
 * not finite, and all other regions, go element by element through load.h. */
#ifndef TG_EXEC_CUDA_REGION_H
#define TG_EXEC_CUDA_REGION_H

#include "exec/cuda/load.h"
#include "exec/cuda/routes.h"

#if defined(__CUDACC__)
#define TG_UNROLL _Pragma("unroll")
#else
#define TG_UNROLL
#endif

/* Elements a thread has of a region: number 32 * j from `from` on. */
enum { TG_EACH = 16 };

typedef struct tg_region {
    const tg_gpu_unit *u;
    uint32_t unit;
    uint64_t at; /* of its first element in the unit */
    uint32_t n;
    const void *grad;          /* of its first element; NULL: not in one piece */
    const tg_gpu_piece *piece; /* of its first element */
    uint32_t dtype;
    bool keeps; /* next residuals are written */
} tg_region;

TG_DEVICE tg_region tg_region_of(const tg_gpu_pass &p, uint32_t unit, uint64_t at, uint32_t n)
{
    tg_region r;
    r.u = &p.units[unit];
    r.unit = unit;
    r.at = at;
    r.n = n;
    r.piece = tg_piece_at(p, *r.u, at);
    r.dtype = p.flat != nullptr ? 0 : r.piece->dtype;
    r.keeps = r.u->planes > 0 && r.u->route != TG_GPU_ROUTE_LEADER;
    r.grad = nullptr;
    if (p.space.clips[unit] == 1.0f && at + n <= r.piece->at + r.piece->n) {
        r.grad = p.flat != nullptr ? (const void *)(p.flat + r.u->flat_at + (at - r.u->lo))
                                   : (const void *)((const uint8_t *)p.grads[r.piece->tensor] +
                                                    (at - r.piece->at) * (r.dtype == 0 ? 4 : 2));
    }
    return r;
}

/* gradient + residual of one element, and its gradient. */
TG_DEVICE float tg_region_sum(float *gradient, const tg_gpu_pass &p, const tg_region &r, uint32_t i)
{
    const tg_gpu_piece *piece = tg_piece_at(p, *r.u, r.at + i);
    *gradient = tg_load_gradient(p, *r.u, r.unit, piece, r.at + i);
    return tg_add_residual(p, *r.u, piece, *gradient, r.at + i);
}

/* Gradients of this thread, without the policy; false: they are not in one piece. */
TG_DEVICE bool tg_region_load(float (&g)[TG_EACH], const tg_region &r, uint32_t from)
{
    if (r.grad == nullptr) {
        return false;
    }
    if (r.dtype == 0) {
        TG_UNROLL
        for (unsigned j = 0; j < TG_EACH; j++) {
            uint32_t i = from + j * TG_WARP;
            g[j] = i < r.n ? ((const float *)r.grad)[i] : 0.0f;
        }
        return true;
    }
    uint16_t halves[TG_EACH];
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        uint32_t i = from + j * TG_WARP;
        halves[j] = i < r.n ? ((const uint16_t *)r.grad)[i] : (uint16_t)0;
    }
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        g[j] = r.dtype == 1 ? tg_fp16_to_float(halves[j]) : tg_bf16_to_float(halves[j]);
    }
    return true;
}

/* Adds the residual: u = g on entry. Returns whether all sums are finite. */
TG_DEVICE bool tg_region_add(float (&u)[TG_EACH], const tg_gpu_pass &p, const tg_region &r, uint32_t from)
{
    const float *now = p.now + r.u->residual_at + (r.at - r.u->lo);
    float factor = (float)r.u->feedback_params[0];
    bool finite = true;
    if (r.u->planes == 2) {
        const float *velocity = now + (r.u->hi - r.u->lo);
        float v[TG_EACH];
        TG_UNROLL
        for (unsigned j = 0; j < TG_EACH; j++) {
            uint32_t i = from + j * TG_WARP;
            v[j] = i < r.n ? velocity[i] : 0.0f;
        }
        TG_UNROLL
        for (unsigned j = 0; j < TG_EACH; j++) {
            uint32_t i = from + j * TG_WARP;
            u[j] = (i < r.n ? now[i] : 0.0f) + (factor * v[j] + u[j]);
        }
    } else if (r.u->planes == 1) {
        float residual[TG_EACH];
        TG_UNROLL
        for (unsigned j = 0; j < TG_EACH; j++) {
            uint32_t i = from + j * TG_WARP;
            residual[j] = i < r.n ? now[i] : 0.0f;
        }
        TG_UNROLL
        for (unsigned j = 0; j < TG_EACH; j++) {
            u[j] = u[j] + factor * residual[j];
        }
    }
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        finite = finite && tg_is_finite(u[j]);
    }
    return finite;
}

/* Gradients g and sums u of this thread's elements; 0 past the end. */
TG_DEVICE void tg_region_sums(float (&g)[TG_EACH], float (&u)[TG_EACH], const tg_gpu_pass &p, const tg_region &r,
                              uint32_t from)
{
    bool loaded = tg_region_load(g, r, from);
    if (loaded) {
        TG_UNROLL
        for (unsigned j = 0; j < TG_EACH; j++) {
            u[j] = g[j];
        }
        loaded = tg_region_add(u, p, r, from);
    }
    if (!loaded) {
        TG_UNROLL
        for (unsigned j = 0; j < TG_EACH; j++) {
            uint32_t i = from + j * TG_WARP;
            g[j] = u[j] = 0.0f;
            if (i < r.n) {
                u[j] = tg_region_sum(&g[j], p, r, i);
            }
        }
    }
}

/* The whole sums to the next residual, and velocities as if nothing were sent, of elements [skip, skip + here). */
TG_DEVICE void tg_region_keep(const float (&g)[TG_EACH], const float (&u)[TG_EACH], const tg_gpu_pass &p,
                              const tg_region &r, uint32_t from, uint32_t skip, uint32_t here)
{
    if (!r.keeps) {
        return;
    }
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        uint32_t i = from + j * TG_WARP;
        if (i - skip < here) {
            if (tg_is_finite(u[j])) {
                p.next[r.u->residual_at + (r.at + i - r.u->lo)] = u[j];
            } else {
                tg_store_residual(p, *r.u, tg_piece_at(p, *r.u, r.at + i), u[j], r.at + i);
            }
            tg_keep_state(p, *r.u, g[j], r.at + i, false);
        }
    }
}

/* gradient + residual of one element again, after tg_region_keep. */
TG_DEVICE float tg_kept_sum(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t unit, uint64_t at)
{
    if (u.planes > 0 && u.route != TG_GPU_ROUTE_LEADER && p.nonfinite != TG_GPU_PASS) {
        return p.next[u.residual_at + (at - u.lo)];
    }
    const tg_gpu_piece *piece = tg_piece_at(p, u, at);
    float g = tg_load_gradient(p, u, unit, piece, at);
    return tg_add_residual(p, u, piece, g, at);
}

TG_DEVICE uint32_t tg_key_of(float value)
{
    return __float_as_uint(value) & 0x7fffffffu;
}

#endif
