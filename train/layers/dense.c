/* Every output from every input: out = in * weight^T + bias, for every sample and step. */
#include "layers.h"
#include "matrix.h"

#include <string.h>

static size_t in_size(const tr_layer *l)
{
    return l->in->channels * tr_signal_area(l->in);
}

static void forward(const tr_layer *l, const tr_pass *pass)
{
    size_t rows = pass->n * l->in->steps, in_n = in_size(l), out_n = l->out->channels;
    for (size_t i = 0; i < rows; i++) {
        memcpy(l->out->values + i * out_n, l->learned[1].weights, out_n * sizeof *l->out->values);
    }
    tr_multiply(l->out->values, rows, out_n, in_n, tr_as_is(l->in->values, in_n),
                tr_transposed(l->learned[0].weights, in_n), true);
}

static void backward(const tr_layer *l, const tr_pass *pass)
{
    size_t rows = pass->n * l->in->steps, in_n = in_size(l), out_n = l->out->channels;
    const float *grads = l->out->grads;
    tr_multiply(l->learned[0].grads, out_n, in_n, rows, tr_transposed(grads, out_n), tr_as_is(l->in->values, in_n),
                false);
    tr_column_sums(l->learned[1].grads, grads, rows, out_n);
    if (l->in->grads != NULL) {
        tr_multiply(l->in->grads, rows, in_n, out_n, tr_as_is(grads, out_n), tr_as_is(l->learned[0].weights, in_n),
                    l->adds);
    }
}

tr_signal *tr_dense(tr_net *net, tr_signal *in, const char *name, size_t features, tr_start start)
{
    static const tr_layer_kind kind = {.forward = forward, .backward = backward, .can_add = true};
    tr_signal *out = tr_net_signal(net, features, 1, 1, in->steps);
    tr_layer *l = tr_net_layer(net, &kind, in, out);
    tr_net_add_param(net, l, name, "weight", TG_DENSE, start, (uint64_t[]){features, in_size(l)}, 2);
    tr_net_add_param(net, l, name, "bias", TG_BIAS, (tr_start){0, 0}, (uint64_t[]){features}, 1);
    return out;
}
