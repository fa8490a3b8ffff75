/* Layers one behind the other, and the tape of a pass through them: every layer's input, then the output of the last.
 *
 *     tape:   | input | ... | input of layer i | ... | output |
 *
 * A layer may have more input channels than the layer before it has outputs; the others follow on the tape, and whoever
 * runs the chain writes them. */
#ifndef TG_AUTOENCODER_CHAIN_H
#define TG_AUTOENCODER_CHAIN_H

#include "autoencoder/layers.h"

enum { TG_CHAIN_CAP = 5 }; /* layers */

typedef struct tg_chain {
    tg_layer layers[TG_CHAIN_CAP];
    size_t layer_n;
    size_t weight_at[TG_CHAIN_CAP + 1]; /* of each layer; the last: floats of all weights */
    size_t tape_at[TG_CHAIN_CAP + 2];   /* of each layer's input and of the output; the last: floats of a tape */
} tg_chain;

/* What chains of any kind may share to work in: floats for tg_chain_flow_n, twice, and for tg_chain_room_n. */
typedef struct tg_chain_desk {
    float *flow[2]; /* gradients on their way back */
    float *room;    /* of a layer */
} tg_chain_desk;

/* Fills in all but the layers. */
void tg_chain_measure(tg_chain *c);

size_t tg_chain_weight_n(const tg_chain *c);
size_t tg_chain_tape_n(const tg_chain *c);
size_t tg_chain_flow_n(const tg_chain *c);
size_t tg_chain_room_n(const tg_chain *c);

/* Numbers its layers from `first` on. */
void tg_chain_start(float *weights, const tg_chain *c, uint64_t seed, uint32_t first);

/* Runs from the input on the tape, and returns the output on it. */
float *tg_chain_forward(float *tape, const tg_chain *c, const float *weights, const tg_chain_desk *desk);

/* From the gradient by the output, in desk->flow[0]: adds the gradient by the weights to `gradients`, and returns the
 * gradient by the input, or NULL if that is not wanted. */
float *tg_chain_backward(float *gradients, const tg_chain *c, const float *weights, const float *tape,
                         const tg_chain_desk *desk, bool to_input);

#endif
