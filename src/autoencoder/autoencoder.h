/* The autoencoder of LGC (arXiv 2103.08870): what the gradients of several workers have in common, as a code of a quarter
 * of their length (by default), learned during the run.
 *
 *     values, padded to a multiple of 16
 *       -> convolutions 1 -> 64 -> 128 -> 256 -> 64, each halving the length -> point 64 -> 4: the code
 *       -> transposed convolutions 4 -> 32 -> 64 -> 128 -> 32, each doubling it -> point 32 -> 1: values again
 *
 * A leaky ReLU (slope 0.01) stands behind every layer but the two points: the code is linear, so that codes of either sign
 * add up, and so are values. With innovations, the last point sees a worker's innovation as one more channel.
 *
 * The same calls on replicas with the same seed give the same bits on every machine, as long as none of them flushes
 * subnormal numbers to zero. Pure computation: no threads, and no memory is taken but by tg_autoencoder_new. Values should
 * be of magnitude 1 or so; to make them so is up to the caller. */
#ifndef TG_AUTOENCODER_AUTOENCODER_H
#define TG_AUTOENCODER_AUTOENCODER_H

#include "base/memory.h"

typedef struct tg_autoencoder tg_autoencoder;

enum { TG_AUTOENCODER_HALVINGS = 4 };

typedef struct tg_autoencoder_config {
    size_t value_n; /* of a sequence */
    uint32_t encoder_channels[TG_AUTOENCODER_HALVINGS];
    uint32_t code_channels; /* with a sixteenth of the padded length each */
    uint32_t decoder_channels[TG_AUTOENCODER_HALVINGS];
    uint32_t decoder_n;  /* 1, or one for each worker */
    bool has_innovation; /* decoders also see an innovation */
    double rate;         /* of learning, by Adam */
    double value_weight; /* in the loss of tg_autoencoder_train_common: lambda 1 ... */
    double code_weight;  /* ... and lambda 2 */
    uint32_t kept_n; /* workers whose encodings training keeps, at about 100 floats a value; the others' are computed
                            again on the way back. No bit depends on it. */
} tg_autoencoder_config;

/* The paper's channels, one decoder, no innovation, a rate of 0.001, lambdas of 0.5, four kept. */
tg_autoencoder_config tg_autoencoder_standard(size_t value_n);

tg_status tg_autoencoder_new(tg_autoencoder **out, const tg_autoencoder_config *config, uint64_t seed,
                             const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_autoencoder_free(tg_autoencoder *ae);

/* ---- use ------------------------------------------------------------------------------------------------------------- */

/* Floats of a code. */
size_t tg_autoencoder_code_n(const tg_autoencoder *ae);

/* `values` are value_n floats, here and below. */
void tg_autoencoder_encode(float *code, tg_autoencoder *ae, const float *values);

/* By decoder number `decoder`. `innovation` are value_n floats, 0 where nothing is known; NULL exactly if decoders see
 * none. */
void tg_autoencoder_decode(float *values, tg_autoencoder *ae, uint32_t decoder, const float *code,
                           const float *innovation);

/* ---- training -------------------------------------------------------------------------------------------------------- */

/* One step each. The loss is that from before the step. If it or a gradient is not finite, TG_E_NONFINITE, and nothing has
 * changed. */

/* For codes that are averaged: the mean of the n codes is to decode to the mean of the n sequences of values.
 * The loss is the mean squared error. For one decoder without innovation. */
tg_status tg_autoencoder_train_mean(double *loss, tg_autoencoder *ae, const float *const *values, size_t n,
                                    tg_detail *why) TG_CHECKED;

/* For one code that stands for all: the code of worker `chosen` and a worker's own innovation are to decode to its values,
 * with its own decoder. There are as many sequences and innovations as decoders; `innovations` is NULL if decoders see none.
 * The loss is
 *     value_weight * sum over workers j of MSE(decoded by j, values of j)
 *     + code_weight * sum over all ordered pairs of different workers i, j of MSE(code of i, code of j). */
tg_status tg_autoencoder_train_common(double *loss, tg_autoencoder *ae, const float *const *values,
                                      const float *const *innovations, uint32_t chosen, tg_detail *why) TG_CHECKED;

/* ---- what it has learned, to save, load and compare ------------------------------------------------------------------ */

/* All weights: the encoder's, then those of decoder 0, 1, ... */
size_t tg_autoencoder_weight_n(const tg_autoencoder *ae);
float *tg_autoencoder_weights(tg_autoencoder *ae);

/* What training goes on from, besides the weights. */
typedef struct tg_optimizer_state {
    float *moments; /* first ones, then second ones */
    size_t moment_n;
    uint64_t *step; /* steps done */
} tg_optimizer_state;

tg_optimizer_state tg_autoencoder_optimizer_state(tg_autoencoder *ae);

#endif
