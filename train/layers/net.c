/* The list of layers, its buffers, and initial weights. */
#include "net.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- building -------------------------------------------------------------------------------------------------------- */

void tr_net_init(tr_net *net, size_t batch_max)
{
    *net = (tr_net){.batch_max = batch_max};
}

tr_signal *tr_net_signal(tr_net *net, size_t channels, size_t height, size_t width, size_t steps)
{
    assert(net->signal_n < TR_LAYER_MAX);
    tr_signal *s = &net->signals[net->signal_n++];
    *s = (tr_signal){.channels = channels, .height = height, .width = width, .steps = steps, .wants_grads = true};
    return s;
}

tr_layer *tr_net_layer(tr_net *net, const tr_layer_kind *kind, tr_signal *in, tr_signal *out)
{
    assert(net->layer_n < TR_LAYER_MAX);
    tr_layer *l = &net->layers[net->layer_n++];
    *l = (tr_layer){.kind = kind, .in = in, .out = out};
    if (in != NULL && in != out) {
        if (in->reader != NULL) {
            assert(in->reader->kind->can_add);
            in->reader->adds = true; /* backward runs the last reader first */
        }
        in->reader = l;
    }
    return l;
}

void tr_net_add_param(tr_net *net, tr_layer *l, const char *layer, const char *part, tg_kind kind, tr_start start,
                      const uint64_t *dims, uint32_t dim_n)
{
    assert(net->param_n < TR_PARAM_MAX && l->learned_n < TR_LEARNED_MAX && dim_n <= TR_DIM_MAX);
    size_t index = net->param_n++;
    net->starts[index] = start;
    tr_param *p = &net->params[index];
    *p = (tr_param){.kind = kind, .dim_n = dim_n, .at = net->weight_n, .n = 1};
    int len = snprintf(p->name, sizeof p->name, "%s.%s", layer, part);
    assert(len > 0 && (size_t)len < sizeof p->name);
    (void)len;
    for (uint32_t d = 0; d < dim_n; d++) {
        p->dims[d] = dims[d];
        p->n *= dims[d];
    }
    l->learned[l->learned_n++] = (tr_learned){.param = index, .at = p->at};
    net->weight_n += p->n;
}

/* Buffers begin on cache lines. */
static size_t whole_lines(size_t n)
{
    return (n + 15) / 16 * 16;
}

void tr_net_buffer(tr_net *net, tr_layer *l, size_t n)
{
    l->buffer_at = net->buffer_n;
    net->buffer_n += n;
}

void tr_net_keep(tr_net *net, tr_layer *l, size_t n)
{
    l->kept_at = net->kept_n;
    net->kept_n += whole_lines(n);
}

void tr_net_scratch(tr_net *net, size_t n)
{
    net->scratch_n = n > net->scratch_n ? n : net->scratch_n;
}

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

static size_t signal_len(const tr_net *net, const tr_signal *s)
{
    return whole_lines(net->batch_max * tr_signal_sample_n(s));
}

static float *take(float **rest, size_t n)
{
    float *part = *rest;
    *rest += whole_lines(n);
    return part;
}

static void place_layers(tr_net *net)
{
    for (size_t i = 0; i < net->layer_n; i++) {
        tr_layer *l = &net->layers[i];
        for (size_t k = 0; k < l->learned_n; k++) {
            l->learned[k].weights = net->weights + l->learned[k].at;
            l->learned[k].grads = net->grads + l->learned[k].at;
        }
        l->buffers = net->buffers + l->buffer_at;
        l->kept = net->kept + l->kept_at;
    }
}

int tr_net_take_memory(tr_net *net)
{
    size_t n = 2 * whole_lines(net->weight_n) + whole_lines(net->buffer_n) + net->kept_n + whole_lines(net->scratch_n);
    for (size_t i = 0; i < net->signal_n; i++) {
        n += signal_len(net, &net->signals[i]) * (net->signals[i].wants_grads ? 2 : 1);
    }
    if (n > SIZE_MAX / sizeof *net->memory) {
        return -1;
    }
    net->memory = aligned_alloc(64, n * sizeof *net->memory);
    if (net->memory == NULL) {
        return -1;
    }
    memset(net->memory, 0, n * sizeof *net->memory);
    float *rest = net->memory;
    net->weights = take(&rest, net->weight_n);
    net->grads = take(&rest, net->weight_n);
    net->buffers = take(&rest, net->buffer_n);
    net->kept = take(&rest, net->kept_n);
    net->scratch = take(&rest, net->scratch_n);
    for (size_t i = 0; i < net->signal_n; i++) {
        tr_signal *s = &net->signals[i];
        s->values = take(&rest, signal_len(net, s));
        s->grads = s->wants_grads ? take(&rest, signal_len(net, s)) : NULL;
    }
    place_layers(net);
    return 0;
}

void tr_net_release(tr_net *net)
{
    free(net->memory);
    net->memory = NULL;
}

/* ---- initial values ---------------------------------------------------------------------------------------------------- */

tr_start tr_start_he(size_t in_n)
{
    return (tr_start){0, (float)sqrt(6.0 / (double)in_n)};
}

tr_start tr_start_glorot(size_t in_n, size_t out_n)
{
    return (tr_start){0, (float)sqrt(6.0 / (double)(in_n + out_n))};
}

/* The output function of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Uniform draws need no function of the math library, whose last bits differ between machines. */
static void draw(float *weights, size_t n, tr_start start, uint64_t key)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = mix(key + (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
        float uniform = (float)((int32_t)(bits >> 40) - (1 << 23)) * 0x1p-23f;
        weights[i] = start.level + start.spread * uniform;
    }
}

void tr_net_start(tr_net *net, uint64_t seed)
{
    for (size_t p = 0; p < net->param_n; p++) {
        uint64_t key = mix(mix(seed) + (p + 1) * UINT64_C(0x9e3779b97f4a7c15));
        draw(net->weights + net->params[p].at, net->params[p].n, net->starts[p], key);
    }
    for (size_t i = 0; i < net->layer_n; i++) {
        if (net->layers[i].kind->start != NULL) {
            net->layers[i].kind->start(&net->layers[i]);
        }
    }
}

/* ---- running ------------------------------------------------------------------------------------------------------------ */

void tr_net_forward(const tr_net *net, const tr_pass *pass)
{
    for (size_t i = 0; i < net->layer_n; i++) {
        net->layers[i].kind->forward(&net->layers[i], pass);
    }
}

void tr_net_backward(const tr_net *net, const tr_pass *pass, const tr_ready *ready)
{
    for (size_t i = net->layer_n; i-- > 0;) {
        const tr_layer *l = &net->layers[i];
        l->kind->backward(l, pass);
        for (size_t k = l->learned_n; ready != NULL && k-- > 0;) {
            ready->param(ready->context, l->learned[k].param);
        }
    }
}
