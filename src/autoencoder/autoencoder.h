/* The autoencoder of LGC (arXiv 2103.08870). It learns during the run to compress what the gradients of several workers have
 * in common into a code, by default a quarter of their length.
 *
 *     values, padded to a multiple of 16
 *       -> convolutions 1 -> 64 -> 128 -> 256 -> 64, each halving the length -> 1x1 convolution 64 -> 4: the code
 *       -> transposed convolutions 4 -> 32 -> 64 -> 128 -> 32, each doubling it -> 1x1 convolution 32 -> 1: values
 *
 * A leaky ReLU (slope 0.01) follows every layer but the two 1x1 convolutions. So code and values may have either sign, and
 * codes can be averaged. A worker's innovation, the values that it has sent exactly, takes the place of what is decoded there.
 *
 * The same calls on replicas with the same seed give the same bits on every machine, as long as none of them flushes
 * subnormal numbers to zero. There are no threads, and only tg_autoencoder_new allocates. Values should have a magnitude of
 * about 1; the caller scales them. */
#ifndef TG_AUTOENCODER_AUTOENCODER_H
#define TG_AUTOENCODER_AUTOENCODER_H

#include "base/memory.h"

typedef struct tg_autoencoder tg_autoencoder;

enum { TG_AUTOENCODER_HALVINGS = 4 };

typedef struct tg_autoencoder_config {
    size_t value_n; /* values of a sequence */
    uint32_t encoder_channels[TG_AUTOENCODER_HALVINGS];
    uint32_t code_channels; /* each has 1/16 of the padded length */
    uint32_t decoder_channels[TG_AUTOENCODER_HALVINGS];
    uint32_t decoder_n;  /* 1, or the number of workers */
    double rate;         /* learning rate of Adam */
    double value_weight; /* lambda 1 in the loss of tg_autoencoder_train_common */
    double code_weight;  /* lambda 2 in that loss */
    uint32_t kept_n; /* workers whose activations are kept for the backward pass, at about 100 floats a value; those of
                        other workers are recomputed. The result does not depend on it. */
} tg_autoencoder_config;

/* The paper's channels, one decoder, learning rate 0.001, both lambdas 0.5, kept_n 4. */
tg_autoencoder_config tg_autoencoder_standard(size_t value_n);

tg_status tg_autoencoder_new(tg_autoencoder **out, const tg_autoencoder_config *config, uint64_t seed,
                             const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_autoencoder_free(tg_autoencoder *ae);

/* ---- use ------------------------------------------------------------------------------------------------------------- */

/* Floats of a code. */
size_t tg_autoencoder_code_n(const tg_autoencoder *ae);
size_t tg_autoencoder_code_n_of(const tg_autoencoder_config *config);

/* Encodes value_n values. */
void tg_autoencoder_encode(float *code, tg_autoencoder *ae, const float *values);

/* Decodes with decoder number `decoder`. `innovation` is NULL, or value_n floats, 0 where the worker sent none; the others are
 * copied to `values`. */
void tg_autoencoder_decode(float *values, tg_autoencoder *ae, uint32_t decoder, const float *code,
                           const float *innovation);

/* ---- training -------------------------------------------------------------------------------------------------------- */

/* Each call is one training step; values[i] are the value_n values of worker i. `loss` is the loss before the step. If it or
 * a gradient is not finite, the call fails with TG_E_NONFINITE and changes nothing. */

/* Trains for averaged codes (ring): the mean of the n codes should decode to the mean of the n workers' values. The loss is
 * the mean squared error. Requires one decoder. */
tg_status tg_autoencoder_train_mean(double *loss, tg_autoencoder *ae, const float *const *values, size_t n,
                                    tg_detail *why) TG_CHECKED;

/* Trains for a common code (server): the code of worker `chosen` and a worker's own innovation should decode to that worker's
 * values, with that worker's decoder. There is one worker for each decoder. An element of innovations[i] is 0, or equals that of
 * values[i]. The loss is
 *     value_weight * sum over workers j of MSE(decoded by j, values of j)
 *     + code_weight * sum over all ordered pairs of different workers i, j of MSE(code of i, code of j). */
tg_status tg_autoencoder_train_common(double *loss, tg_autoencoder *ae, const float *const *values,
                                      const float *const *innovations, uint32_t chosen, tg_detail *why) TG_CHECKED;

/* ---- learned state, to save, load and compare ------------------------------------------------------------------ */

/* All weights: those of the encoder, then of decoder 0, 1, ... */
size_t tg_autoencoder_weight_n(const tg_autoencoder *ae);
float *tg_autoencoder_weights(tg_autoencoder *ae);

/* The state of the optimizer. */
typedef struct tg_optimizer_state {
    float *moments; /* first moments, then second moments */
    size_t moment_n;
    uint64_t *step; /* number of training steps done */
} tg_optimizer_state;

tg_optimizer_state tg_autoencoder_optimizer_state(tg_autoencoder *ae);

#endif
