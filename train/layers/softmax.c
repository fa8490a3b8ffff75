/* Softmax and cross-entropy. The maximum is subtracted first, so that no exponential overflows. The loss is computed from
 * logarithms, so that it stays finite where a probability is too small for a float. */
#include "exponential.h"
#include "layers.h"

#include <math.h>

static size_t find_largest(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t j = 1; j < n; j++) {
        best = x[j] > x[best] ? j : best;
    }
    return best;
}

/* The loss of one prediction. `grads` receives the exponentials, before they are normalised. */
static double predict(float *restrict grads, const float *restrict x, size_t n, size_t label, float largest,
                      float share)
{
    for (size_t j = 0; j < n; j++) {
        grads[j] = tr_exp(x[j] - largest);
    }
    double sum = (double)grads[0]; /* there is at least one class */
    for (size_t j = 1; j < n; j++) {
        sum += (double)grads[j];
    }
    float factor = (float)((double)share / sum);
    for (size_t j = 0; j < n; j++) {
        grads[j] *= factor;
    }
    grads[label] -= share;
    return log(sum) - ((double)x[label] - (double)largest);
}

tr_score tr_softmax(const tr_signal *in, const tr_pass *pass)
{
    size_t classes = in->channels, rows = in->steps * pass->n;
    tr_score score = {.count = rows};
    for (size_t i = 0; i < rows; i++) {
        const float *x = in->values + i * classes;
        size_t step = i / pass->n, sample = i % pass->n; /* labels are in sample-major order */
        size_t label = (size_t)pass->batch->labels[sample * in->steps + step];
        size_t best = find_largest(x, classes);
        score.loss += predict(in->grads + i * classes, x, classes, label, x[best], 1.0f / (float)rows);
        score.correct += best == label;
    }
    return score;
}
