/* Whether a training run has diverged although all its numbers are finite: its loss rose far above its start, and at the end
 * the model is no better than guessing. */
#ifndef TR_DIVERGED_H
#define TR_DIVERGED_H

#include <stdint.h>

enum {
    TR_LOSS_WINDOW = 10,
    TR_LOSS_START = 3
}; /* steps whose mean counts: while it rises and at the end; at the start */

typedef struct tr_losses {
    double guess; /* loss of a model that gives all classes the same chance: ln(classes) */
    double start; /* mean of the first three losses, before updates can have done harm */
    double recent[TR_LOSS_WINDOW];
    uint64_t n;     /* losses so far */
    uint64_t risen; /* steps done when the mean of a window was first above 1.5 times the larger of both; 0: never */
} tr_losses;

void tr_losses_begin(tr_losses *l, uint32_t classes);
void tr_losses_add(tr_losses *l, uint64_t steps_done, double loss);

/* Steps done when the run diverged; 0: it has not. It has if the loss has risen as above, and the mean of the last window is
 * not below 0.8 times `guess`. Runs shorter than two windows are not judged. */
uint64_t tr_losses_diverged(const tr_losses *l);

#endif
