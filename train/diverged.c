/* Divergence by the course of the loss; see diverged.h. The start is at least the loss of guessing, because a model that is
 * lucky at first has not diverged when it comes back to it; the factor leaves room for the bump of a first large step. */
#include "diverged.h"

#include <math.h>

static const double RISEN = 1.5, UNLEARNED = 0.8;

void tr_losses_begin(tr_losses *l, uint32_t classes)
{
    *l = (tr_losses){.guess = log(classes > 1 ? classes : 2)};
}

static double mean(const tr_losses *l)
{
    double sum = 0;
    for (int i = 0; i < TR_LOSS_WINDOW; i++) {
        sum += l->recent[i];
    }
    return sum / TR_LOSS_WINDOW;
}

void tr_losses_add(tr_losses *l, uint64_t steps_done, double loss)
{
    l->recent[l->n % TR_LOSS_WINDOW] = loss;
    l->n++;
    if (l->n <= TR_LOSS_START) {
        l->start += loss / TR_LOSS_START;
    }
    if (l->n >= TR_LOSS_WINDOW && l->risen == 0 && mean(l) > RISEN * fmax(l->start, l->guess)) {
        l->risen = steps_done;
    }
}

uint64_t tr_losses_diverged(const tr_losses *l)
{
    return l->n >= 2 * TR_LOSS_WINDOW && l->risen > 0 && mean(l) >= UNLEARNED * l->guess ? l->risen : 0;
}
