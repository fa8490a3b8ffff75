/* Long short-term memory (Hochreiter and Schmidhuber 1997, with forget gates after Gers et al. 2000), over whole sequences
 * that each begin with an empty memory:
 *
 *     enter, forget, offer, show = gates of (in_t * input^T + out_{t-1} * recurrent^T + bias)
 *     cell_t = forget * cell_{t-1} + enter * offer
 *     out_t  = show * tanh(cell_t)
 *
 * Only the recurrent product waits for the step before; that of the inputs is made for all steps at once, and so are all
 * products of backward that nothing waits for. */
#include "exponential.h"
#include "layers.h"
#include "matrix.h"

#include <string.h>

enum { INPUT, RECURRENT, BIAS };

/* Views of what forward keeps, for n samples: gates, cells (one step more: the empty memory), tanh of cells, and the slopes
 * of the cells that backward carries from step to step. */
typedef struct memory {
    float *gates, *cells, *shown, *carried;
} memory;

static memory find_memory(const tr_layer *l, size_t n)
{
    size_t steps = l->out->steps, block = n * l->out->channels;
    memory m = {.gates = l->kept};
    m.cells = m.gates + steps * 4 * block;
    m.shown = m.cells + (steps + 1) * block;
    m.carried = m.shown + steps * block;
    return m;
}

/* One sample, one step. `gates` has four parts of n and is replaced by what the gates let through. */
static void step_forward(float *restrict out, float *restrict cell, float *restrict shown, float *restrict gates,
                         const float *restrict before, size_t n)
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
        cell[j] = gates[n + j] * before[j] + gates[j] * gates[2 * n + j];
    }
    for (size_t j = 0; j < n; j++) {
        shown[j] = tr_tanh(cell[j]);
        out[j] = gates[3 * n + j] * shown[j];
    }
}

static void forward(const tr_layer *l, const tr_pass *pass)
{
    size_t n = pass->n, steps = l->out->steps, features = l->out->channels, block = n * features;
    memory m = find_memory(l, n);
    for (size_t i = 0; i < steps * n; i++) {
        memcpy(m.gates + i * 4 * features, l->learned[BIAS].weights, 4 * features * sizeof *m.gates);
    }
    tr_multiply(m.gates, steps * n, 4 * features, l->in->channels, tr_as_is(l->in->values, l->in->channels),
                tr_turned(l->learned[INPUT].weights, l->in->channels), true);
    memset(m.cells, 0, block * sizeof *m.cells);
    for (size_t t = 0; t < steps; t++) {
        float *gates = m.gates + t * 4 * block, *out = l->out->values + t * block;
        if (t > 0) {
            tr_multiply(gates, n, 4 * features, features, tr_as_is(out - block, features),
                        tr_turned(l->learned[RECURRENT].weights, features), true);
        }
        for (size_t s = 0; s < n; s++) {
            size_t at = t * block + s * features;
            step_forward(l->out->values + at, m.cells + block + at, m.shown + at, m.gates + 4 * at, m.cells + at,
                         features);
        }
    }
}

/* One sample, one step. `gates` are replaced by the slopes of what went into them; `carried` comes with the slopes of this
 * step's cell, as far as later steps made them, and leaves with those of the step before. */
static void step_backward(float *restrict gates, float *restrict carried, const float *restrict slopes,
                          const float *restrict before, const float *restrict shown, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        float enter = gates[j], forget = gates[n + j], offer = gates[2 * n + j], show = gates[3 * n + j];
        float cell = carried[j] + slopes[j] * show * (1 - shown[j] * shown[j]);
        gates[j] = cell * offer * enter * (1 - enter);
        gates[n + j] = cell * before[j] * forget * (1 - forget);
        gates[2 * n + j] = cell * enter * (1 - offer * offer);
        gates[3 * n + j] = slopes[j] * shown[j] * show * (1 - show);
        carried[j] = cell * forget;
    }
}

static void learn(const tr_layer *l, const memory *m, size_t n)
{
    size_t steps = l->out->steps, features = l->out->channels, block = n * features, in_n = l->in->channels;
    tr_multiply(l->learned[INPUT].grads, 4 * features, in_n, steps * n, tr_turned(m->gates, 4 * features),
                tr_as_is(l->in->values, in_n), false);
    /* Step t + 1 saw the output of step t; the first step saw none. */
    if (steps > 1) {
        tr_multiply(l->learned[RECURRENT].grads, 4 * features, features, (steps - 1) * n,
                    tr_turned(m->gates + 4 * block, 4 * features), tr_as_is(l->out->values, features), false);
    } else {
        memset(l->learned[RECURRENT].grads, 0, 4 * features * features * sizeof *m->gates);
    }
    tr_column_sums(l->learned[BIAS].grads, m->gates, steps * n, 4 * features);
}

static void backward(const tr_layer *l, const tr_pass *pass)
{
    size_t n = pass->n, features = l->out->channels, block = n * features;
    memory m = find_memory(l, n);
    memset(m.carried, 0, block * sizeof *m.carried);
    for (size_t t = l->out->steps; t-- > 0;) {
        float *gates = m.gates + t * 4 * block, *slopes = l->out->slopes + t * block;
        for (size_t s = 0; s < n; s++) {
            size_t at = t * block + s * features;
            step_backward(m.gates + 4 * at, m.carried + s * features, l->out->slopes + at, m.cells + at, m.shown + at,
                          features);
        }
        if (t > 0) { /* this step read the output of the one before */
            tr_multiply(slopes - block, n, features, 4 * features, tr_as_is(gates, 4 * features),
                        tr_as_is(l->learned[RECURRENT].weights, features), true);
        }
    }
    learn(l, &m, n);
    if (l->in->slopes != NULL) {
        tr_multiply(l->in->slopes, l->out->steps * n, l->in->channels, 4 * features, tr_as_is(m.gates, 4 * features),
                    tr_as_is(l->learned[INPUT].weights, l->in->channels), l->adds);
    }
}

/* Gates that start open let a memory last long enough to learn from (Jozefowicz et al. 2015). */
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
    tr_net_learn(net, l, name, "input", TG_RECURRENT, tr_start_glorot(in->channels, features),
                 (uint64_t[]){4 * features, in->channels}, 2);
    tr_net_learn(net, l, name, "recurrent", TG_RECURRENT, tr_start_glorot(features, features),
                 (uint64_t[]){4 * features, features}, 2);
    tr_net_learn(net, l, name, "bias", TG_BIAS, (tr_start){0, 0}, (uint64_t[]){4 * features}, 1);
    tr_net_keep(net, l, net->batch_max * features * (6 * in->steps + 2));
    return out;
}
