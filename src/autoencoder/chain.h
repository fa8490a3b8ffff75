/* A sequence of layers. A forward pass records on a tape what the backward pass needs: every layer's input, then the output
 * of the last layer.
 *
 *     tape:   | input | ... | input of layer i | ... | output | */
#ifndef TG_AUTOENCODER_CHAIN_H
#define TG_AUTOENCODER_CHAIN_H

#include "autoencoder/layers.h"

enum { TG_CHAIN_CAP = 5 }; /* maximum number of layers */

typedef struct tg_chain {
    tg_layer layers[TG_CHAIN_CAP];
    size_t layer_n;
    size_t weight_at[TG_CHAIN_CAP + 1]; /* where each layer's weights begin; the last entry is their total number */
    size_t tape_at[TG_CHAIN_CAP +
                   2]; /* where each input, then the output, begins; the last entry is the length of a tape */
} tg_chain;

/* The workspace of a pass; several chains may share one. */
typedef struct tg_chain_workspace {
    float *flow[2]; /* tg_chain_flow_n floats each: gradients of a layer's output and input in the backward pass */
    float *scratch; /* tg_chain_scratch_n floats: scratch buffer of a layer */
} tg_chain_workspace;

/* Computes weight_at and tape_at from the layers. */
void tg_chain_measure(tg_chain *c);

/* Lengths in floats: of the weights, of a tape, and of the two kinds of buffers in a workspace. */
size_t tg_chain_weight_n(const tg_chain *c);
size_t tg_chain_tape_n(const tg_chain *c);
size_t tg_chain_flow_n(const tg_chain *c);
size_t tg_chain_scratch_n(const tg_chain *c);

/* Initialises the weights at random. Layer i draws as number first + i. */
void tg_chain_start(float *weights, const tg_chain *c, uint64_t seed, uint32_t first);

/* Runs all layers on the input at the start of the tape. Returns the output, which is on the tape. */
float *tg_chain_forward(float *tape, const tg_chain *c, const float *weights, const tg_chain_workspace *workspace);

/* Backward pass. The gradient with respect to the output is in workspace->flow[0]. Adds the gradient with respect to the weights to
 * `gradients`. Returns the gradient with respect to the input if to_input, else NULL. */
float *tg_chain_backward(float *gradients, const tg_chain *c, const float *weights, const float *tape,
                         const tg_chain_workspace *workspace, bool to_input);

#endif
