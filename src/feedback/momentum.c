/* Momentum correction (Deep Gradient Compression, arXiv 1712.01887). Momentum is applied on each worker, before
 * sparsification, so that values which are sent later include their momentum. The optimizer must then have none.
 *
 *     velocity v = m v + g;   residual r = r + v;   some elements of r are sent
 *
 * When an element is sent its velocity is set to 0 too (momentum factor masking), so that stale momentum does not continue.
 * Where every element is sent in every step the velocity is kept: that is plain momentum. Tensors that are sent
 * uncompressed are treated this way as well. */
#include "base/bits.h"
#include "feedback/feedback.h"
#include "kernels/kernels.h"

#include <string.h>

enum { M, CLIP };

static const tg_param params[] = {
    {.name = "m", .summary = "momentum factor", .lowest = 0, .highest = 1, .is_main = true, .standard = 0.9},
    {.name = "clip",
     .summary = "largest norm of a tensor's gradient on a worker; larger gradients are scaled down; 0: no limit",
     .lowest = 0,
     .highest = 1e30,
     .standard = 0},
    TG_AGAIN_PARAM,
};

static double norm_max(const double *p)
{
    return p[CLIP];
}

static bool add_residual(float *u, float *also, const float *g, const tg_residual_view *m, const double *p, size_t n,
                         bool nontemporal)
{
    float factor = (float)p[M];
    const float *residual = m->now, *velocity = m->now + m->stride;
    (void)nontemporal;
    for (size_t i = 0; i < n; i++) {
        u[i] = residual[i] + (factor * velocity[i] + g[i]);
    }
    if (also != NULL) {
        memcpy(also, u, n * sizeof *also);
    }
    return tg_all_finite(u, n); /* then the velocity is finite too */
}

static void update_state(const tg_residual_view *m, const double *p, const float *g, const uint64_t *mask, size_t n)
{
    float factor = (float)p[M];
    const float *old = m->now + m->stride;
    float *velocity = m->next + m->stride;
    for (size_t i = 0; i < n; i++) {
        velocity[i] = factor * old[i] + g[i];
    }
    for (size_t w = 0; mask != NULL && w < tg_words(n); w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
            velocity[w * 64 + tg_lowest(word)] = 0;
        }
    }
}

const tg_feedback_part tg_feedback_momentum = {
    .part = {.name = "momentum",
             .summary = "error feedback with momentum correction (DGC); the optimizer must have no momentum",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .planes = 2,
    .add_residual = add_residual,
    .update_state = update_state,
    .also_dense = true,
    .norm_max = norm_max,
    .answer_part = &tg_feedback_ef,
};
