/* All layers. Each function adds a layer that reads `in` to a net, and returns its output signal. */
#ifndef TR_LAYERS_H
#define TR_LAYERS_H

#include "net.h"

/* Copies the pixels of the batch into the net. */
tr_signal *tr_pixels(tr_net *net, const tr_shape *shape);

/* A row of numbers for each symbol of the batch. */
tr_signal *tr_embedding(tr_net *net, const char *name, size_t symbols, size_t sequence, size_t features);

tr_signal *tr_dense(tr_net *net, tr_signal *in, const char *name, size_t features, tr_start start);

/* A layer that a norm follows needs no bias. */
tr_signal *tr_conv(tr_net *net, tr_signal *in, const char *name, size_t features, tr_window window, bool bias);

tr_signal *tr_norm(tr_net *net, tr_signal *in, const char *name);
tr_signal *tr_relu(tr_net *net, tr_signal *in); /* in place */

/* Pooling over a window that moves over each plane, without padding. */
tr_signal *tr_pool_max(tr_net *net, tr_signal *in, tr_window window);
tr_signal *tr_pool_mean(tr_net *net, tr_signal *in, tr_window window);

/* Adds a pooling layer of this kind; for pool_max.c and pool_mean.c. */
tr_signal *tr_pool(tr_net *net, tr_signal *in, tr_window window, const tr_layer_kind *kind);

/* Adds `side` to `main`, in place. */
tr_signal *tr_add(tr_net *net, tr_signal *main, tr_signal *side);

tr_signal *tr_lstm(tr_net *net, tr_signal *in, const char *name, size_t features);

/* Softmax and cross-entropy of the last signal against the labels. Sets its gradients, those of the mean loss. */
tr_score tr_softmax(const tr_signal *in, const tr_pass *pass);

#endif
