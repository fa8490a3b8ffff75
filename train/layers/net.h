/* A net: signals, and the layers that compute one signal from another. Layers are added in order; forward runs them in that
 * order, backward in reverse.
 *
 * While layers are added, sizes are only counted. tr_net_take_memory then allocates all buffers at once. Running a net
 * allocates nothing. */
#ifndef TR_NET_H
#define TR_NET_H

#include "model.h"

#include <stdbool.h>

enum { TR_LAYER_MAX = 128, TR_PARAM_MAX = 128, TR_LEARNED_MAX = 3 };

/* What flows between layers (activations). Images: sample x channels x height x width. Text: step x sample x channels; step
 * comes first because a recurrent layer works on all samples of a step at once. `grads` is the gradient of the loss with respect to
 * `values`, NULL where it is not needed. */
typedef struct tr_signal {
    size_t channels, height, width;
    size_t steps; /* 1 for images */
    float *values, *grads;
    bool wants_grads;
    struct tr_layer *reader; /* the last layer so far that reads it */
} tr_signal;

static inline size_t tr_signal_area(const tr_signal *s)
{
    return s->height * s->width;
}

static inline size_t tr_signal_sample_n(const tr_signal *s)
{
    return s->steps * s->channels * tr_signal_area(s);
}

/* A window that moves over a plane. */
typedef struct tr_window {
    size_t height, width, stride, padding;
} tr_window;

/* One pass over a batch of n samples. */
typedef struct tr_pass {
    const tr_batch *batch;
    size_t n;
    bool training;
    float *scratch; /* scratch buffer that a layer may use within one call */
} tr_pass;

typedef struct tr_layer tr_layer;

typedef struct tr_layer_kind {
    void (*forward)(const tr_layer *l, const tr_pass *pass);
    /* Computes the gradients of `in`, where wanted, and of the layer's parameters from those of `out`. Overwrites the
     * parameters' gradients. */
    void (*backward)(const tr_layer *l, const tr_pass *pass);
    /* Sets initial values that are not drawn from one distribution per parameter; NULL for most layers. */
    void (*start)(const tr_layer *l);
    /* Whether backward can add to the gradients of `in`. The first of several readers of a signal must. */
    bool can_add;
} tr_layer_kind;

typedef struct tr_learned {
    size_t param; /* its number in the net */
    size_t at;
    float *weights, *grads;
} tr_learned;

struct tr_layer {
    const tr_layer_kind *kind;
    tr_signal *in, *out; /* the same signal if a layer works in place */
    bool adds;           /* backward adds to the gradients of `in`, which a later reader has set */
    tr_window window;    /* of convolutions and pools */
    size_t rows;         /* of an embedding: symbols */
    tr_learned learned[TR_LEARNED_MAX];
    size_t learned_n;
    size_t buffer_at, kept_at;
    float *buffers; /* running statistics */
    float *kept;    /* what forward stores for backward */
};

/* Initial values of a parameter: level + spread * (a random number from -1 to 1). */
typedef struct tr_start {
    float level, spread;
} tr_start;

typedef struct tr_net {
    tr_signal signals[TR_LAYER_MAX];
    tr_layer layers[TR_LAYER_MAX];
    tr_param params[TR_PARAM_MAX];
    tr_start starts[TR_PARAM_MAX];
    size_t signal_n, layer_n, param_n;
    size_t batch_max;
    size_t weight_n, buffer_n, kept_n, scratch_n; /* floats, for whole batches */
    float *memory, *weights, *grads, *buffers, *kept, *scratch;
} tr_net;

/* ---- building: for the files of layers and models ----------------------------------------------------------------- */

void tr_net_init(tr_net *net, size_t batch_max);
tr_signal *tr_net_signal(tr_net *net, size_t channels, size_t height, size_t width, size_t steps);
tr_layer *tr_net_layer(tr_net *net, const tr_layer_kind *kind, tr_signal *in, tr_signal *out);

/* Adds a parameter named "layer.part" to a layer. */
void tr_net_add_param(tr_net *net, tr_layer *l, const char *layer, const char *part, tg_kind kind, tr_start start,
                      const uint64_t *dims, uint32_t dim_n);

void tr_net_buffer(tr_net *net, tr_layer *l, size_t n);
void tr_net_keep(tr_net *net, tr_layer *l, size_t n);
void tr_net_scratch(tr_net *net, size_t n);

/* Spread of a uniform distribution that keeps the variance of signals: He's if ReLU follows, Glorot's otherwise. */
tr_start tr_start_he(size_t in_n);
tr_start tr_start_glorot(size_t in_n, size_t out_n);

/* ---- memory, initial values, running -------------------------------------------------------------------------------- */

int tr_net_take_memory(tr_net *net); /* 0, or -1 if out of memory */
void tr_net_release(tr_net *net);

/* Draws the initial parameters from the seed, the same on every machine. */
void tr_net_start(tr_net *net, uint64_t seed);

void tr_net_forward(const tr_net *net, const tr_pass *pass);
void tr_net_backward(const tr_net *net, const tr_pass *pass, const tr_ready *ready); /* `ready` may be NULL */

#endif
