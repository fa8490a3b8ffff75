/* Feedback: keeps the error of a step and adds it to the next gradient.
 *
 * For every block of a unit a route
 *
 *     1. calls `add_residual`, which adds the residual to the gradient,
 *     2. sends some of the result,
 *     3. writes the rest, minus what the decoder will see, as the new residual,
 *     4. calls `update_state`, which updates further state if the part has any.
 *
 * The state is one float an element, or several in planes. Old and new state are separate arrays, so a step that fails
 * changes nothing. */
#ifndef TG_FEEDBACK_FEEDBACK_H
#define TG_FEEDBACK_FEEDBACK_H

#include "base/part.h"

#include <stdint.h>

/* The error-feedback state of a block. Plane p of element i is at index p * stride + i. Plane 0 is the residual. */
typedef struct tg_residual_view {
    const float *now; /* before this step */
    float *next;      /* after it */
    size_t stride;
} tg_residual_view;

typedef struct tg_feedback_part {
    tg_part part;
    uint32_t planes; /* floats of state an element; 0: no state, and neither function is called */

    /* u = gradient g plus residual. u may be g. Returns whether all of u is finite, provided that g is. If `also` is not
     * NULL, it receives a copy of u. `nontemporal`: the result will not be read again soon, so it may be written with
     * non-temporal stores. That applies to `also` if it is given, else to u. */
    bool (*add_residual)(float *u, float *also, const float *g, const tg_residual_view *m, const double *params,
                         size_t n, bool nontemporal);

    /* Updates all planes but the residual, which the caller writes. g is the gradient; mask has the elements that are
     * sent (NULL: all). NULL: the part has only the residual. */
    void (*update_state)(const tg_residual_view *m, const double *params, const float *g, const uint64_t *mask,
                         size_t n);

    /* Also used for tensors that the policy exempts from the recipe and sends uncompressed. */
    bool also_dense;

    /* The largest norm of a unit's gradient; a larger gradient is scaled down to it. 0 or NULL: no limit. */
    double (*norm_max)(const double *params);

    /* The part that replaces this one, with default parameters, where an owner encodes a mean as its answer. NULL: the
     * part itself. */
    const struct tg_feedback_part *answer_part;
} tg_feedback_part;

extern const tg_feedback_part tg_feedback_ef;

/* A parameter of `ef` for a whole model: how tensors travel that are exempt otherwise. Choices after TG_SMALL_SAME are names of
 * quantizers. */
enum { TG_EF_SMALL = 1 };
enum { TG_SMALL_OWN = 0, TG_SMALL_SAME = 1 };

/* How owners answer with an average: by the recipe again, with a residual of their own; not at all, since frames are gathered; or with
 * all values, by the quantizer of that name, so that nothing is chosen again. The first two are of the model. */
enum { TG_AGAIN_YES, TG_AGAIN_NO, TG_AGAIN_FP32, TG_AGAIN_FP16, TG_AGAIN_BF16 };

extern const char *const tg_again_choices[]; /* ef.c */

#define TG_AGAIN_PARAM                                                                                             \
    {                                                                                                              \
        .name = "again",                                                                                           \
        .summary = "whether owners encode averages by the recipe again, with residuals of their own (shard); no: " \
                   "frames are gathered; fp32, fp16, bf16: owners answer with all values",                         \
        .choices = tg_again_choices, .of_model = true, .of_tensor = TG_AGAIN_FP32                                  \
    }

#endif
