/* Layers over sequences: convolutions that halve the length, transposed ones that double it, and points, which keep it.
 *
 * A signal is channels x places, the places of a channel side by side. With two taps beside the middle one, a place t of a
 * halved signal sees places 2t - 1, 2t and 2t + 1 of the whole one, and what lies outside is 0:
 *
 *     halve     out[o][t]          = bias[o] + sum over c, k of weight[o][c][k] in[c][2t + k - 1]
 *     double    out[o][2t + k - 1] = bias[o] + sum over c, k of weight[c][o][k] in[c][t]
 *     point     out[o][t]          = bias[o] + sum over c    of weight[o][c]    in[c][t]
 *
 * A leaky ReLU stands behind every layer that is not linear. All is in fp32 and in one order, on every machine. */
#ifndef TG_AUTOENCODER_LAYERS_H
#define TG_AUTOENCODER_LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tg_layer_kind { TG_LAYER_HALVE, TG_LAYER_DOUBLE, TG_LAYER_POINT } tg_layer_kind;

typedef struct tg_layer {
    tg_layer_kind kind;
    bool is_linear;
    size_t in_channels, out_channels;
    size_t in_n; /* places of a channel; even if they are to be halved */
} tg_layer;

size_t tg_layer_out_n(const tg_layer *l); /* places of a channel */

/* Floats that are learned: the weights in the order above, then the biases. */
size_t tg_layer_weight_n(const tg_layer *l);

/* Floats of room that the functions below work in. */
size_t tg_layer_room_n(const tg_layer *l);

/* Weights to start from: uniform, so wide that a signal keeps its variance (He and others, 2015); biases of 0. The same
 * for the same seed and number. */
void tg_layer_start(float *weights, const tg_layer *l, uint64_t seed, uint32_t number);

void tg_layer_forward(float *out, const tg_layer *l, const float *weights, const float *in, float *room);

/* From the gradient of the loss by `out`, which is overwritten: adds the gradient by the weights to `weight_gradient` and
 * writes the gradient by `in` to `in_gradient`, unless that is NULL. `in` and `out` are those of the forward pass. */
void tg_layer_backward(float *in_gradient, float *weight_gradient, float *out_gradient, const tg_layer *l,
                       const float *weights, const float *in, const float *out, float *room);

#endif
