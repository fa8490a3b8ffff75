/* Adds a side branch to the main one, in place: the end of a residual block. */
#include "layers.h"

#include <string.h>

static void add(float *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

static void forward(const tr_layer *l, const tr_pass *pass)
{
    add(l->out->values, l->in->values, pass->n * tr_signal_sample_n(l->out));
}

/* The main branch has the gradients of the sum, which are in place already. */
static void backward(const tr_layer *l, const tr_pass *pass)
{
    size_t n = pass->n * tr_signal_sample_n(l->out);
    if (l->in->grads == NULL) {
        return;
    }
    if (l->adds) {
        add(l->in->grads, l->out->grads, n);
    } else {
        memcpy(l->in->grads, l->out->grads, n * sizeof *l->in->grads);
    }
}

tr_signal *tr_add(tr_net *net, tr_signal *main, tr_signal *side)
{
    static const tr_layer_kind kind = {.forward = forward, .backward = backward, .can_add = true};
    (void)tr_net_layer(net, &kind, side, main);
    return main;
}
