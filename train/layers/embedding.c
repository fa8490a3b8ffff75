/* A row of learned numbers for each symbol. The batch has its symbols sample by sample; signals have them step by step. */
#include "layers.h"

#include <string.h>

static const int32_t *symbol_at(const tr_layer *l, const tr_pass *pass, size_t step, size_t sample)
{
    return &pass->batch->symbols[sample * l->out->steps + step];
}

static void forward(const tr_layer *l, const tr_pass *pass)
{
    size_t features = l->out->channels;
    float *row = l->out->values;
    for (size_t t = 0; t < l->out->steps; t++) {
        for (size_t s = 0; s < pass->n; s++, row += features) {
            size_t symbol = (size_t)*symbol_at(l, pass, t, s);
            memcpy(row, l->learned[0].weights + symbol * features, features * sizeof *row);
        }
    }
}

static void backward(const tr_layer *l, const tr_pass *pass)
{
    size_t features = l->out->channels, symbols = l->rows;
    const float *row = l->out->grads;
    memset(l->learned[0].grads, 0, symbols * features * sizeof *row);
    for (size_t t = 0; t < l->out->steps; t++) {
        for (size_t s = 0; s < pass->n; s++, row += features) {
            float *grads = l->learned[0].grads + (size_t)*symbol_at(l, pass, t, s) * features;
            for (size_t j = 0; j < features; j++) {
                grads[j] += row[j];
            }
        }
    }
}

tr_signal *tr_embedding(tr_net *net, const char *name, size_t symbols, size_t sequence, size_t features)
{
    static const tr_layer_kind kind = {.forward = forward, .backward = backward};
    tr_signal *out = tr_net_signal(net, features, 1, 1, sequence);
    tr_layer *l = tr_net_layer(net, &kind, NULL, out);
    l->rows = symbols;
    tr_net_add_param(net, l, name, "weight", TG_EMBEDDING, (tr_start){0, 1}, (uint64_t[]){symbols, features}, 2);
    return out;
}
