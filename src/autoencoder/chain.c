/* A sequence of layers; see chain.h. */
#include "autoencoder/chain.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t input_n(const tg_layer *l)
{
    return l->in_channels * l->in_n;
}

static size_t output_n(const tg_layer *l)
{
    return l->out_channels * tg_layer_out_n(l);
}

void tg_chain_measure(tg_chain *c)
{
    for (size_t i = 0; i < c->layer_n; i++) {
        c->weight_at[i + 1] = c->weight_at[i] + tg_layer_weight_n(&c->layers[i]);
        c->tape_at[i + 1] = c->tape_at[i] + input_n(&c->layers[i]);
    }
    c->tape_at[c->layer_n + 1] = c->tape_at[c->layer_n] + output_n(&c->layers[c->layer_n - 1]);
}

size_t tg_chain_weight_n(const tg_chain *c)
{
    return c->weight_at[c->layer_n];
}

size_t tg_chain_tape_n(const tg_chain *c)
{
    return c->tape_at[c->layer_n + 1];
}

size_t tg_chain_flow_n(const tg_chain *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->layer_n; i++) {
        n = larger(n, larger(input_n(&c->layers[i]), output_n(&c->layers[i])));
    }
    return n;
}

size_t tg_chain_scratch_n(const tg_chain *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->layer_n; i++) {
        n = larger(n, tg_layer_scratch_n(&c->layers[i]));
    }
    return n;
}

void tg_chain_start(float *weights, const tg_chain *c, uint64_t seed, uint32_t first)
{
    for (size_t i = 0; i < c->layer_n; i++) {
        tg_layer_start(weights + c->weight_at[i], &c->layers[i], seed, first + (uint32_t)i);
    }
}

float *tg_chain_forward(float *tape, const tg_chain *c, const float *weights, const tg_chain_workspace *workspace)
{
    for (size_t i = 0; i < c->layer_n; i++) {
        tg_layer_forward(tape + c->tape_at[i + 1], &c->layers[i], weights + c->weight_at[i], tape + c->tape_at[i],
                         workspace->scratch);
    }
    return tape + c->tape_at[c->layer_n];
}

float *tg_chain_backward(float *gradients, const tg_chain *c, const float *weights, const float *tape,
                         const tg_chain_workspace *workspace, bool to_input)
{
    float *out = workspace->flow[0], *in = workspace->flow[1];
    for (size_t i = c->layer_n; i-- > 0;) {
        tg_layer_backward(i > 0 || to_input ? in : NULL, gradients + c->weight_at[i], out, &c->layers[i],
                          weights + c->weight_at[i], tape + c->tape_at[i], tape + c->tape_at[i + 1],
                          workspace->scratch);
        float *swap = out;
        out = in;
        in = swap;
    }
    return to_input ? out : NULL;
}
