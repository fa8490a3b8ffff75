/* Feedback: what the encoder remembers of what it did not send.
 *
 * For every block of a unit the codec calls `recall`, sends some of the result, remembers the rest, and then calls `keep`.
 * Memory is one number an element, or several, in planes; old and new memory are separate, so that a step that fails leaves
 * no trace. */
#ifndef TG_FEEDBACK_FEEDBACK_H
#define TG_FEEDBACK_FEEDBACK_H

#include "base/part.h"

#include <stdint.h>

/* A block of memory: plane p of element i is at[p * stride + i]. Plane 0 is the residual: what is still to be sent. */
typedef struct tg_memory {
    const float *old;
    float *next;
    size_t stride;
} tg_memory;

typedef struct tg_feedback_part {
    tg_part part;
    uint32_t planes; /* 0: there is no memory, and neither function is called */

    /* Turns the gradient g into what should be sent, u, given what is remembered. u may be g. Returns whether all of u is
     * finite, which takes a finite g. u goes to `also`, too, unless that is NULL. `streams`: nobody reads that, or u if there is no other, again soon. */
    bool (*recall)(float *u, float *also, const float *g, const tg_memory *m, const double *params, size_t n,
                   bool streams);

    /* What to remember beside the residual, which is u less what the decoder will see and whoever calls sees to; given the
     * gradient g and which elements are sent (NULL: all). NULL: nothing else is remembered. */
    void (*keep)(const tg_memory *m, const double *params, const float *g, const uint64_t *mask, size_t n);
    bool of_dense_too; /* tensors that are exempt from the recipe have this part of it all the same */

    /* The largest norm that the gradient of a unit may have before it is scaled down; 0: any. NULL: any. */
    double (*norm_max)(const double *params);

    /* What stands in its place, at its standards, where an owner answers with a mean; NULL: itself. */
    const struct tg_feedback_part *answers_as;
} tg_feedback_part;

extern const tg_feedback_part tg_feedback_ef;

#endif
