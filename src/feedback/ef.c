/* Error feedback: the residual, what the decoder did not see, is added to the next gradient.
 * With decay < 1 it is CO3's correction (arXiv 2203.09044): older error counts less. */
#include "feedback/feedback.h"
#include "kernels/kernels.h"

static const tg_param params[] = {
    {.name = "decay",
     .summary = "share of the residual that is added to the next gradient",
     .lowest = 0,
     .highest = 1,
     .standard = 1},
};

static bool recall(float *u, float *also, const float *g, const tg_memory *m, const double *p, size_t n, bool streams)
{
    return tg_kernels_best()->passes.accumulate(u, also, g, m->old, (float)p[0], n, streams);
}

const tg_feedback_part tg_feedback_ef = {
    .part = {.name = "ef",
             .summary = "error feedback: what was not sent is added to the next gradient",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .planes = 1,
    .recall = recall,
};
