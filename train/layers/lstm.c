/* Long short-term memory (Hochreiter and Schmidhuber 1997, with forget gates after Gers et al. 2000), over whole sequences.
 * Every sequence begins with a state of zeros:
 *
 *     input, forget, candidate, output = gates of (in_t * input^T + out_{t-1} * recurrent^T + bias)
 *     cell_t = forget * cell_{t-1} + input * candidate
 *     out_t  = output * tanh(cell_t)
 *
 * Only the recurrent product depends on the previous step. All other products are computed for all steps at once. */
#include "exponential.h"
#include "layers.h"
#include "matrix.h"

#include <string.h>

enum { INPUT, RECURRENT, BIAS };

/* Views of what forward keeps for backward, for n samples: gates; cells, with the zeros before the first step; tanh of the cells;
 * and the gradients of the cells, which backward passes from step to step. */
typedef struct lstm_state {
    float *gates, *cells, *cell_tanh, *cell_grads;
} lstm_state;

static lstm_state find_state(const tr_layer *l, size_t n)
{
    size_t steps = l->out->steps, block = n * l->out->channels;
    lstm_state m = {.gates = l->kept};
    m.cells = m.gates + steps * 4 * block;
    m.cell_tanh = m.cells + (steps + 1) * block;
    m.cell_grads = m.cell_tanh + steps * block;
    return m;
}

/* One sample, one step. `gates` holds four gates of n values, before their activation functions; it receives their outputs. */
static void step_forward(float *restrict out, float *restrict cell, float *restrict cell_tanh, float *restrict gates,
                         const float *restrict cell_before, size_t n)
{
    for (size_t j = 0; j < 2 * n; j++) {
        gates[j] = tr_logistic(gates[j]);
    }
    for (size_t j = 2 * n; j < 3 * n; j++) {
        gates[j] = tr_tanh(gates[j]);
    }
    for (size_t j = 3 * n; j < 4 * n; j++) {
        gates[j] = tr_logistic(gates[j]);
    }
    for (size_t j = 0; j < n; j++) {
        cell[j] = gates[n + j] * cell_before[j] + gates[j] * gates[2 * n + j];
    }
    for (size_t j = 0; j < n; j++) {
        cell_tanh[j] = tr_tanh(cell[j]);
        out[j] = gates[3 * n + j] * cell_tanh[j];
    }
}

static void forward(const tr_layer *l, const tr_pass *pass)
{
    size_t n = pass->n, steps = l->out->steps, features = l->out->channels, block = n * features;
    lstm_state m = find_state(l, n);
    for (size_t i = 0; i < steps * n; i++) {
        memcpy(m.gates + i * 4 * features, l->learned[BIAS].weights, 4 * features * sizeof *m.gates);
    }
    tr_multiply(m.gates, steps * n, 4 * features, l->in->channels, tr_as_is(l->in->values, l->in->channels),
                tr_transposed(l->learned[INPUT].weights, l->in->channels), true);
    memset(m.cells, 0, block * sizeof *m.cells);
    for (size_t t = 0; t < steps; t++) {
        float *gates = m.gates + t * 4 * block, *out = l->out->values + t * block;
        if (t > 0) {
            tr_multiply(gates, n, 4 * features, features, tr_as_is(out - block, features),
                        tr_transposed(l->learned[RECURRENT].weights, features), true);
        }
        for (size_t s = 0; s < n; s++) {
            size_t at = t * block + s * features;
            step_forward(l->out->values + at, m.cells + block + at, m.cell_tanh + at, m.gates + 4 * at, m.cells + at,
                         features);
        }
    }
}

/* One sample, one step. `gates` receives the gradients of the gates' inputs. `cell_grads` holds the gradients of this step's cell
 * that come from later steps, and receives those of the step before. */
static void step_backward(float *restrict gates, float *restrict cell_grads, const float *restrict grads,
                          const float *restrict cell_before, const float *restrict cell_tanh, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        float input = gates[j], forget = gates[n + j], candidate = gates[2 * n + j], output = gates[3 * n + j];
        float cell = cell_grads[j] + grads[j] * output * (1 - cell_tanh[j] * cell_tanh[j]);
        gates[j] = cell * candidate * input * (1 - input);
        gates[n + j] = cell * cell_before[j] * forget * (1 - forget);
        gates[2 * n + j] = cell * input * (1 - candidate * candidate);
        gates[3 * n + j] = grads[j] * cell_tanh[j] * output * (1 - output);
        cell_grads[j] = cell * forget;
    }
}

static void param_grads(const tr_layer *l, const lstm_state *m, size_t n)
{
    size_t steps = l->out->steps, features = l->out->channels, block = n * features, in_n = l->in->channels;
    tr_multiply(l->learned[INPUT].grads, 4 * features, in_n, steps * n, tr_transposed(m->gates, 4 * features),
                tr_as_is(l->in->values, in_n), false);
    /* Step t + 1 reads the output of step t; the first step reads none. */
    if (steps > 1) {
        tr_multiply(l->learned[RECURRENT].grads, 4 * features, features, (steps - 1) * n,
                    tr_transposed(m->gates + 4 * block, 4 * features), tr_as_is(l->out->values, features), false);
    } else {
        memset(l->learned[RECURRENT].grads, 0, 4 * features * features * sizeof *m->gates);
    }
    tr_column_sums(l->learned[BIAS].grads, m->gates, steps * n, 4 * features);
}

static void backward(const tr_layer *l, const tr_pass *pass)
{
    size_t n = pass->n, features = l->out->channels, block = n * features;
    lstm_state m = find_state(l, n);
    memset(m.cell_grads, 0, block * sizeof *m.cell_grads);
    for (size_t t = l->out->steps; t-- > 0;) {
        float *gates = m.gates + t * 4 * block, *grads = l->out->grads + t * block;
        for (size_t s = 0; s < n; s++) {
            size_t at = t * block + s * features;
            step_backward(m.gates + 4 * at, m.cell_grads + s * features, l->out->grads + at, m.cells + at,
                          m.cell_tanh + at, features);
        }
        if (t > 0) { /* this step has read the output of the one before */
            tr_multiply(grads - block, n, features, 4 * features, tr_as_is(gates, 4 * features),
                        tr_as_is(l->learned[RECURRENT].weights, features), true);
        }
    }
    param_grads(l, &m, n);
    if (l->in->grads != NULL) {
        tr_multiply(l->in->grads, l->out->steps * n, l->in->channels, 4 * features, tr_as_is(m.gates, 4 * features),
                    tr_as_is(l->learned[INPUT].weights, l->in->channels), l->adds);
    }
}

/* Forget gates that start open let gradients reach far back (Jozefowicz et al. 2015). */
static void start(const tr_layer *l)
{
    size_t features = l->out->channels;
    for (size_t j = 0; j < features; j++) {
        l->learned[BIAS].weights[features + j] = 1;
    }
}

tr_signal *tr_lstm(tr_net *net, tr_signal *in, const char *name, size_t features)
{
    static const tr_layer_kind kind = {.forward = forward, .backward = backward, .start = start, .can_add = true};
    tr_signal *out = tr_net_signal(net, features, 1, 1, in->steps);
    tr_layer *l = tr_net_layer(net, &kind, in, out);
    tr_net_add_param(net, l, name, "input", TG_RECURRENT, tr_start_glorot(in->channels, features),
                     (uint64_t[]){4 * features, in->channels}, 2);
    tr_net_add_param(net, l, name, "recurrent", TG_RECURRENT, tr_start_glorot(features, features),
                     (uint64_t[]){4 * features, features}, 2);
    tr_net_add_param(net, l, name, "bias", TG_BIAS, (tr_start){0, 0}, (uint64_t[]){4 * features}, 1);
    tr_net_keep(net, l, net->batch_max * features * (6 * in->steps + 2));
    return out;
}
