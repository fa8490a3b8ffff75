/* Error feedback: the residual, what the decoder did not see, is added to the next gradient.
 * With decay < 1 it is CO3's correction (arXiv 2203.09044): older error counts less. */
#include "base/bits.h"
#include "feedback/feedback.h"
#include "kernels/kernels.h"

#include <string.h>

static const tg_param params[] = {
    {.name = "decay",
     .summary = "share of the residual that is added to the next gradient",
     .lowest = 0,
     .highest = 1,
     .standard = 1},
};

static void recall(float *u, const float *g, const tg_memory *m, const double *p, size_t n)
{
    float decay = (float)p[0];
    const float *old = m->old;
    if (decay == 1.0f) { /* saves a multiplication an element; the result is the same */
        tg_kernels_best()->add(u, g, old, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        u[i] = g[i] + decay * old[i];
    }
}

void tg_keep_residual(float *next, const float *u, const uint64_t *mask, const float *decoded, size_t n)
{
    if (mask == NULL) {
        tg_kernels_best()->subtract(next, u, decoded, n);
        return;
    }
    memcpy(next, u, n * sizeof *next);
    for (size_t w = 0; w < tg_words(n); w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
            next[w * 64 + tg_lowest(word)] -= *decoded++;
        }
    }
}

static void keep(const tg_memory *m, const double *p, const float *u, const float *g, const uint64_t *mask,
                 const float *decoded, size_t n)
{
    (void)p;
    (void)g;
    tg_keep_residual(m->next, u, mask, decoded, n);
}

const tg_feedback_part tg_feedback_ef = {
    .part = {.name = "ef",
             .summary = "error feedback: what was not sent is added to the next gradient",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .planes = 1,
    .recall = recall,
    .keep = keep,
};
