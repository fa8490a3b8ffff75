/* The input layer for images. */
#include "layers.h"

#include <string.h>

static void forward(const tr_layer *l, const tr_pass *pass)
{
    memcpy(l->out->values, pass->batch->pixels, pass->n * tr_signal_sample_n(l->out) * sizeof *l->out->values);
}

static void backward(const tr_layer *l, const tr_pass *pass)
{
    (void)l, (void)pass; /* pixels have no gradients */
}

tr_signal *tr_pixels(tr_net *net, const tr_shape *shape)
{
    static const tr_layer_kind kind = {.forward = forward, .backward = backward};
    tr_signal *out = tr_net_signal(net, shape->channels, shape->height, shape->width, 1);
    out->wants_grads = false; /* so that the first layer need not compute them */
    (void)tr_net_layer(net, &kind, NULL, out);
    return out;
}
