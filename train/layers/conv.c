/* Convolution: images are unfolded into columns (im2col), and a matrix product does the rest.
 *
 *     out (features x places) = weight (features x taps) * columns (taps x places)
 *
 * A tap is a channel and a position in the window; a place is a position in the output. A few samples are done at a time: enough
 * for an efficient product, few enough for the columns to stay in the cache. */
#include "layers.h"
#include "matrix.h"
#include "sums.h"
#include "unfold.h"

#include <assert.h>
#include <string.h>

enum { PLACES = 256 }; /* that a product should at least have */

static size_t taps_of(const tr_layer *l)
{
    return l->in->channels * l->window.height * l->window.width;
}

/* Samples done at a time. */
static size_t group_of(const tr_layer *l)
{
    size_t area = tr_signal_area(l->out);
    return area >= PLACES ? 1 : (PLACES + area - 1) / area;
}

/* Copies a product (feature x sample x area) to a signal (sample x feature x area). */
static void product_to_signal(float *signal, const float *product, size_t group, size_t features, size_t area)
{
    for (size_t s = 0; s < group; s++) {
        for (size_t f = 0; f < features; f++) {
            memcpy(signal + (s * features + f) * area, product + (f * group + s) * area, area * sizeof *signal);
        }
    }
}

static void signal_to_product(float *product, const float *signal, size_t group, size_t features, size_t area)
{
    for (size_t f = 0; f < features; f++) {
        for (size_t s = 0; s < group; s++) {
            memcpy(product + (f * group + s) * area, signal + (s * features + f) * area, area * sizeof *signal);
        }
    }
}

/* The product is added to the bias of each feature. */
static void fill_bias(const tr_layer *l, float *product, size_t places)
{
    for (size_t f = 0; f < l->out->channels; f++) {
        for (size_t i = 0; i < places; i++) {
            product[f * places + i] = l->learned[1].weights[f];
        }
    }
}

static void forward_group(const tr_layer *l, float *columns, float *room, size_t first, size_t group)
{
    size_t taps = taps_of(l), features = l->out->channels, area = tr_signal_area(l->out), places = group * area;
    float *out = l->out->values + first * features * area;
    float *product = group == 1 ? out : room; /* with one sample, both have the same order */
    bool has_bias = l->learned_n > 1;
    tr_unfold(columns, l->in->values + first * tr_signal_sample_n(l->in), l, group);
    if (has_bias) {
        fill_bias(l, product, places);
    }
    tr_multiply(product, features, places, taps, tr_as_is(l->learned[0].weights, taps), tr_as_is(columns, places),
                has_bias);
    if (group > 1) {
        product_to_signal(out, product, group, features, area);
    }
}

static void forward(const tr_layer *l, const tr_pass *pass)
{
    size_t group = group_of(l);
    float *columns = pass->scratch, *room = columns + taps_of(l) * group * tr_signal_area(l->out);
    for (size_t first = 0; first < pass->n; first += group) {
        forward_group(l, columns, room, first, group < pass->n - first ? group : pass->n - first);
    }
}

static void backward_group(const tr_layer *l, float *columns, float *room, size_t first, size_t group)
{
    size_t taps = taps_of(l), features = l->out->channels, area = tr_signal_area(l->out), places = group * area;
    const float *grads = l->out->grads + first * features * area, *product = grads;
    if (group > 1) {
        signal_to_product(room, grads, group, features, area);
        product = room;
    }
    tr_unfold(columns, l->in->values + first * tr_signal_sample_n(l->in), l, group);
    tr_multiply(l->learned[0].grads, features, taps, places, tr_as_is(product, places), tr_transposed(columns, places),
                true);
    if (l->learned_n > 1) {
        for (size_t f = 0; f < features; f++) {
            l->learned[1].grads[f] += (float)tr_sum(product + f * places, places);
        }
    }
    if (l->in->grads != NULL) { /* the columns are no longer needed: their buffer receives their gradients */
        float *in_slopes = l->in->grads + first * tr_signal_sample_n(l->in);
        if (!l->adds) {
            memset(in_slopes, 0, group * tr_signal_sample_n(l->in) * sizeof *in_slopes);
        }
        tr_multiply(columns, taps, places, features, tr_transposed(l->learned[0].weights, taps),
                    tr_as_is(product, places), false);
        tr_fold_add(in_slopes, columns, l, group);
    }
}

static void backward(const tr_layer *l, const tr_pass *pass)
{
    size_t group = group_of(l), taps = taps_of(l), features = l->out->channels;
    float *columns = pass->scratch, *room = columns + taps * group * tr_signal_area(l->out);
    memset(l->learned[0].grads, 0, features * taps * sizeof *columns);
    if (l->learned_n > 1) {
        memset(l->learned[1].grads, 0, features * sizeof *columns);
    }
    for (size_t first = 0; first < pass->n; first += group) {
        backward_group(l, columns, room, first, group < pass->n - first ? group : pass->n - first);
    }
}

tr_signal *tr_conv(tr_net *net, tr_signal *in, const char *name, size_t features, tr_window window, bool bias)
{
    static const tr_layer_kind kind = {.forward = forward, .backward = backward, .can_add = true};
    assert(in->height + 2 * window.padding >= window.height && in->width + 2 * window.padding >= window.width);
    tr_signal *out = tr_net_signal(net, features, (in->height + 2 * window.padding - window.height) / window.stride + 1,
                                   (in->width + 2 * window.padding - window.width) / window.stride + 1, 1);
    tr_layer *l = tr_net_layer(net, &kind, in, out);
    l->window = window;
    size_t taps = taps_of(l);
    tr_net_add_param(net, l, name, "weight", TG_CONV, tr_start_he(taps),
                     (uint64_t[]){features, in->channels, window.height, window.width}, 4);
    if (bias) {
        tr_net_add_param(net, l, name, "bias", TG_BIAS, (tr_start){0, 0}, (uint64_t[]){features}, 1);
    }
    tr_net_scratch(net, group_of(l) * tr_signal_area(out) * (taps + features));
    return out;
}
