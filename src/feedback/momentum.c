/* Momentum correction (Deep Gradient Compression, arXiv 1712.01887): momentum is applied before sparsification, so that what
 * waits waits with its momentum. The optimizer then has none of its own.
 *
 *     velocity v = m v + g;   residual r = r + v, of which some is sent
 *
 * Where an element is sent its velocity is cleared as well, so that old momentum does not carry a stale gradient on; but not
 * where everything is sent in every step, which is plain momentum. Tensors that travel uncompressed have that, too. */
#include "base/bits.h"
#include "feedback/feedback.h"
#include "kernels/kernels.h"

#include <string.h>

enum { M, CLIP };

static const tg_param params[] = {
    {.name = "m",
     .summary = "share of the velocity that is kept from step to step",
     .lowest = 0,
     .highest = 1,
     .is_main = true,
     .standard = 0.9},
    {.name = "clip",
     .summary = "largest norm of a tensor's gradient on a worker; larger ones are scaled down to it; 0: any",
     .lowest = 0,
     .highest = 1e30,
     .standard = 0},
};

static double norm_max(const double *p)
{
    return p[CLIP];
}

static bool recall(float *u, float *also, const float *g, const tg_memory *m, const double *p, size_t n, bool streams)
{
    float keep_share = (float)p[M];
    const float *residual = m->old, *velocity = m->old + m->stride;
    (void)streams;
    for (size_t i = 0; i < n; i++) {
        u[i] = residual[i] + (keep_share * velocity[i] + g[i]);
    }
    if (also != NULL) {
        memcpy(also, u, n * sizeof *also);
    }
    return tg_all_finite(u, n); /* so is the velocity, then */
}

static void keep(const tg_memory *m, const double *p, const float *g, const uint64_t *mask, size_t n)
{
    float keep_share = (float)p[M];
    const float *old = m->old + m->stride;
    float *velocity = m->next + m->stride;
    for (size_t i = 0; i < n; i++) {
        velocity[i] = keep_share * old[i] + g[i];
    }
    for (size_t w = 0; mask != NULL && w < tg_words(n); w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
            velocity[w * 64 + tg_lowest(word)] = 0;
        }
    }
}

const tg_feedback_part tg_feedback_momentum = {
    .part = {.name = "momentum",
             .summary = "error feedback of the momentum, for an optimizer that has none (DGC)",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .planes = 2,
    .recall = recall,
    .keep = keep,
    .of_dense_too = true,
    .norm_max = norm_max,
    .answers_as = &tg_feedback_ef,
};
