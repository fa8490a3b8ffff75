/* Trains the autoencoder: the two losses of LGC and their backward passes; see autoencoder.h.
 *
 * All workers share one encoder, so a training step runs every worker's values through it, forward and backward; for a common code
 * that need not be similar to others, the chosen worker's alone. The backward pass goes from the last worker to the first. So sums
 * have the same order for any number of kept tapes. */
#include "autoencoder/adam.h"
#include "autoencoder/inside.h"
#include "kernels/kernels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- backward passes ---------------------------------------------------------------------------------------------------- */

/* weight * MSE(decoded, wanted). Writes its gradient with respect to the decoded values to flow[0], where a backward pass
 * starts. */
static double loss_of_values(tg_autoencoder *ae, const float *decoded, const float *wanted, double weight)
{
    size_t n = ae->config.value_n;
    float *gradient = ae->workspace.flow[0], factor = (float)(2 * weight / (double)n);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        float error = decoded[i] - wanted[i];
        sum += (double)error * (double)error;
        gradient[i] = factor * error;
    }
    memset(gradient + n, 0, (ae->padded_n - n) * sizeof *gradient); /* the padding has no gradient */
    return weight * sum / (double)n;
}

/* Backward pass of the last decoding. Returns the gradient with respect to the code. */
static const float *decode_back(tg_autoencoder *ae, uint32_t decoder)
{
    return tg_chain_backward(tg_autoencoder_decoder_part(ae, ae->gradients, decoder), &ae->decoder,
                             tg_autoencoder_decoder_part(ae, ae->weights, decoder), ae->decoder_tape, &ae->workspace,
                             true);
}

/* The encoder tape of a worker. Workers without a tape of their own share the last one. */
static float *tape_of(const tg_autoencoder *ae, size_t worker)
{
    size_t last = ae->config.kept_n - 1;
    return ae->tapes + (worker < last ? worker : last) * tg_chain_tape_n(&ae->encoder);
}

/* Backward pass of the encoding of a worker below `end`, up to which they were encoded. The gradient with respect to its code is in
 * flow[0]. */
static void encode_back(tg_autoencoder *ae, const float *const *values, size_t worker, size_t end)
{
    float *tape = tape_of(ae, worker);
    if (worker + 1 >= ae->config.kept_n && worker + 1 < end) {
        /* A later worker has overwritten the shared tape. A forward pass does not touch flow[0]. */
        (void)tg_autoencoder_run_encoder(ae, tape, values[worker]);
    }
    (void)tg_chain_backward(ae->gradients, &ae->encoder, ae->weights, tape, &ae->workspace, false);
}

static tg_status learn(double *out, tg_autoencoder *ae, double loss, tg_detail *why)
{
    if (!isfinite(loss) || !tg_all_finite(ae->gradients, ae->weight_n)) {
        return tg_fail(TG_E_NONFINITE, why, "the loss of the autoencoder or its gradient is not finite");
    }
    ae->step++;
    tg_adam_step(ae->weights, ae->moments, ae->gradients, ae->weight_n, ae->config.rate, ae->step);
    *out = loss;
    return TG_OK;
}

static void add(float *sum, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sum[i] += values[i];
    }
}

static void divide(float *values, float divisor, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values[i] /= divisor;
    }
}

/* ---- training on the mean -------------------------------------------------------------------------------------------- */

tg_status tg_autoencoder_train_mean(double *loss, tg_autoencoder *ae, const float *const *values, size_t n,
                                    tg_detail *why)
{
    if (n == 0 || ae->config.decoder_n != 1) {
        return tg_fail(TG_E_ARGUMENT, why, "training on the mean needs at least one worker, and one decoder");
    }
    size_t value_n = ae->config.value_n, code_n = tg_autoencoder_code_n(ae);
    memset(ae->gradients, 0, ae->weight_n * sizeof *ae->gradients);
    memset(ae->mean, 0, value_n * sizeof *ae->mean);
    memset(ae->codes, 0, code_n * sizeof *ae->codes);
    for (size_t i = 0; i < n; i++) {
        add(ae->codes, tg_autoencoder_run_encoder(ae, tape_of(ae, i), values[i]), code_n);
        add(ae->mean, values[i], value_n);
    }
    divide(ae->codes, (float)n, code_n);
    divide(ae->mean, (float)n, value_n);
    double loss_sum = loss_of_values(ae, tg_autoencoder_run_decoder(ae, 0, ae->codes, NULL), ae->mean, 1);
    memcpy(ae->code_gradient, decode_back(ae, 0), code_n * sizeof *ae->code_gradient);
    divide(ae->code_gradient, (float)n, code_n);
    for (size_t i = n; i-- > 0;) {
        memcpy(ae->workspace.flow[0], ae->code_gradient, code_n * sizeof *ae->code_gradient);
        encode_back(ae, values, i, n);
    }
    return learn(loss, ae, loss_sum, why);
}

/* ---- training on a common code ------------------------------------------------------------------------------------ */

/* Workers [first, end), those whose codes a step needs. */
typedef struct coders {
    uint32_t first, end;
} coders;

/* All, if their codes should be similar; else the chosen one. */
static coders coders_of(const tg_autoencoder *ae, uint32_t chosen)
{
    return ae->config.code_weight > 0 ? (coders){0, ae->config.decoder_n} : (coders){chosen, chosen + 1};
}

/* code_weight * sum over ordered pairs of MSE. Each unordered pair counts twice. */
static double loss_of_codes(const tg_autoencoder *ae, coders c)
{
    size_t code_n = tg_autoencoder_code_n(ae);
    double sum = 0;
    for (size_t i = c.first; i < c.end; i++) {
        for (size_t j = c.first; j < i; j++) {
            for (size_t k = 0; k < code_n; k++) {
                double error = (double)ae->codes[i * code_n + k] - (double)ae->codes[j * code_n + k];
                sum += error * error;
            }
        }
    }
    return ae->config.code_weight * 2 * sum / (double)code_n;
}

/* Its gradient with respect to the code of worker i: 2 (code i - code j) for every j, in both orders. */
static void gradient_of_codes(float *out, const tg_autoencoder *ae, size_t i, coders c)
{
    size_t code_n = tg_autoencoder_code_n(ae);
    double factor = 4 * ae->config.code_weight / (double)code_n;
    for (size_t k = 0; k < code_n; k++) {
        double sum = 0;
        for (size_t j = c.first; j < c.end; j++) {
            sum += (double)ae->codes[i * code_n + k] - (double)ae->codes[j * code_n + k];
        }
        out[k] = (float)(factor * sum);
    }
}

tg_status tg_autoencoder_train_common(double *loss, tg_autoencoder *ae, const float *const *values,
                                      const float *const *innovations, uint32_t chosen, tg_detail *why)
{
    uint32_t n = ae->config.decoder_n;
    if (chosen >= n) {
        return tg_fail(TG_E_ARGUMENT, why, "the chosen worker %" PRIu32 " is not below %" PRIu32, chosen, n);
    }
    size_t code_n = tg_autoencoder_code_n(ae);
    coders c = coders_of(ae, chosen);
    memset(ae->gradients, 0, ae->weight_n * sizeof *ae->gradients);
    memset(ae->code_gradient, 0, code_n * sizeof *ae->code_gradient);
    for (uint32_t i = c.first; i < c.end; i++) {
        memcpy(ae->codes + i * code_n, tg_autoencoder_run_encoder(ae, tape_of(ae, i), values[i]),
               code_n * sizeof *ae->codes);
    }
    double loss_sum = loss_of_codes(ae, c);
    for (uint32_t j = 0; j < n; j++) {
        const float *decoded = tg_autoencoder_run_decoder(ae, j, ae->codes + chosen * code_n, innovations[j]);
        loss_sum += loss_of_values(ae, decoded, values[j], ae->config.value_weight);
        add(ae->code_gradient, decode_back(ae, j), code_n);
    }
    for (uint32_t i = c.end; i-- > c.first;) {
        gradient_of_codes(ae->workspace.flow[0], ae, i, c);
        if (i == chosen) {
            add(ae->workspace.flow[0], ae->code_gradient, code_n);
        }
        encode_back(ae, values, i, c.end);
    }
    return learn(loss, ae, loss_sum, why);
}
