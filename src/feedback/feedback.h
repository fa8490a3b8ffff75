/* Feedback: what the encoder remembers of what it did not send.
 *
 * For every block of a unit the codec calls `recall`, sends some of the result, and then `keep`. Memory is one
 * number an element; old and new memory are separate, so that a step that fails leaves no trace. */
#ifndef TG_FEEDBACK_FEEDBACK_H
#define TG_FEEDBACK_FEEDBACK_H

#include "base/part.h"

#include <stdint.h>

typedef struct tg_feedback_part {
    tg_part part;
    bool remembers; /* if not, there is no memory and neither function is called */

    /* Turns the gradient in u into what should be sent, given what is remembered. */
    void (*recall)(float *u, const double *params, const float *memory, size_t n);

    /* What to remember, given what the decoder will see: decoded values of the marked elements in order, or of
     * all elements if mask is NULL. */
    void (*keep)(float *memory, const float *u, const uint64_t *mask, const float *decoded, size_t n);
} tg_feedback_part;

#endif
