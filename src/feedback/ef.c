/* Error feedback: the residual, which is what the decoder did not see, is added to the next gradient.
 * With decay < 1 this is the correction of CO3 (arXiv 2203.09044): older errors count less. */
#include "feedback/feedback.h"
#include "kernels/kernels.h"

static const char *const small[] = {"own", "same", "fp16", "bf16", "fp8", NULL};

const char *const tg_again_choices[] = {"yes", "no", "fp32", "fp16", "bf16", NULL};

static const tg_param params[] = {
    {.name = "decay",
     .summary = "factor of the residual that is added to the next gradient",
     .lowest = 0,
     .highest = 1,
     .standard = 1},
    [TG_EF_SMALL] = {.name = "small",
                     .summary = "norms, biases and tensors below dense_below: in their own type, by the same recipe as "
                                "others, or rounded, with feedback",
                     .choices = small,
                     .standard = TG_SMALL_OWN,
                     .of_model = true},
    TG_AGAIN_PARAM,
};

static bool add_residual(float *u, float *also, const float *g, const tg_residual_view *m, const double *p, size_t n,
                         bool nontemporal)
{
    return tg_kernels_best()->passes.accumulate(u, also, g, m->now, (float)p[0], n, nontemporal);
}

const tg_feedback_part tg_feedback_ef = {
    .part = {.name = "ef",
             .summary = "error feedback: the residual is added to the next gradient",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .planes = 1,
    .add_residual = add_residual,
};
