/* max(x, 0), in place: backward sees in the output whether x was above 0. */
#include "layers.h"

static void forward(const tr_layer *l, const tr_pass *pass)
{
    float *x = l->out->values;
    size_t n = pass->n * tr_signal_sample_n(l->out);
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] < 0 ? 0 : x[i]; /* keeps NaN */
    }
}

static void backward(const tr_layer *l, const tr_pass *pass)
{
    const float *restrict x = l->out->values;
    float *restrict grads = l->out->grads;
    size_t n = pass->n * tr_signal_sample_n(l->out);
    for (size_t i = 0; i < n; i++) {
        grads[i] = x[i] > 0 ? grads[i] : 0;
    }
}

tr_signal *tr_relu(tr_net *net, tr_signal *in)
{
    static const tr_layer_kind kind = {.forward = forward, .backward = backward};
    (void)tr_net_layer(net, &kind, in, in);
    return in;
}
