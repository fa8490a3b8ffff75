/* One-dimensional layers: convolutions of stride 2 that halve the length, transposed convolutions that double it, and 1x1
 * convolutions ("point"), which keep it.
 *
 * A signal is channels x positions; the positions of a channel are contiguous. Kernels have three taps. Position t of the
 * halved signal depends on positions 2t - 1, 2t and 2t + 1 of the other; positions outside are 0:
 *
 *     halve     out[o][t]          = bias[o] + sum over c, k of weight[o][c][k] in[c][2t + k - 1]
 *     double    out[o][2t + k - 1] = bias[o] + sum over c, k of weight[c][o][k] in[c][t]
 *     point     out[o][t]          = bias[o] + sum over c    of weight[o][c]    in[c][t]
 *
 * A leaky ReLU follows every layer that is not linear. Everything is computed in fp32, in the same order on every machine. */
#ifndef TG_AUTOENCODER_LAYERS_H
#define TG_AUTOENCODER_LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tg_layer_kind { TG_LAYER_HALVE, TG_LAYER_DOUBLE, TG_LAYER_POINT } tg_layer_kind;

typedef struct tg_layer {
    tg_layer_kind kind;
    bool is_linear; /* no activation function follows */
    size_t in_channels, out_channels;
    size_t in_n; /* positions of an input channel; even if the layer halves */
} tg_layer;

size_t tg_layer_out_n(const tg_layer *l); /* positions of an output channel */

/* Number of learned floats: the weights in the order above, then the biases. */
size_t tg_layer_weight_n(const tg_layer *l);

/* Floats of the scratch buffer `scratch` of the functions below. */
size_t tg_layer_scratch_n(const tg_layer *l);

/* Initialises the weights: uniform, with the range that preserves a signal's variance (He et al. 2015); biases are 0. The
 * result depends only on the layer, the seed and the number. */
void tg_layer_start(float *weights, const tg_layer *l, uint64_t seed, uint32_t number);

void tg_layer_forward(float *out, const tg_layer *l, const float *weights, const float *in, float *scratch);

/* Backward pass. out_gradient is the gradient with respect to the output, and is overwritten. Adds the gradient with respect to
 * the weights to weight_gradient. Writes the gradient with respect to the input to in_gradient, unless that is NULL. `in` and
 * `out` are those of the forward pass. */
void tg_layer_backward(float *in_gradient, float *weight_gradient, float *out_gradient, const tg_layer *l,
                       const float *weights, const float *in, const float *out, float *scratch);

#endif
