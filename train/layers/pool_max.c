/* Max pooling. Backward searches for the maximum again; forward does not store its position. */
#include "layers.h"

#include <string.h>

/* The position of the first maximum in the window at `at`; NaN is never larger. Branchless, because a branch could not be
 * predicted. */
static inline size_t find_largest(const float *plane, size_t at, size_t width, size_t window_height,
                                  size_t window_width)
{
    size_t best = at;
    float top = plane[at];
    for (size_t y = 0; y < window_height; y++) {
        for (size_t x = 0; x < window_width; x++) {
            size_t here = at + y * width + x;
            size_t larger = plane[here] > top;
            top = larger ? plane[here] : top;
            best += (here - best) * larger;
        }
    }
    return best;
}

/* The common 2 x 2 window has constant arguments, so that the compiler can unroll it. */
static inline size_t largest_of(const tr_layer *l, const float *plane, size_t at)
{
    const tr_window *w = &l->window;
    return w->height == 2 && w->width == 2 ? find_largest(plane, at, l->in->width, 2, 2)
                                           : find_largest(plane, at, l->in->width, w->height, w->width);
}

static void forward(const tr_layer *l, const tr_pass *pass)
{
    const tr_signal *in = l->in, *out = l->out;
    size_t planes = pass->n * in->channels, stride = l->window.stride;
    float *to = out->values;
    for (size_t p = 0; p < planes; p++) {
        const float *plane = in->values + p * tr_signal_area(in);
        for (size_t y = 0; y < out->height; y++) {
            for (size_t x = 0; x < out->width; x++) {
                *to++ = plane[largest_of(l, plane, y * stride * in->width + x * stride)];
            }
        }
    }
}

static void backward(const tr_layer *l, const tr_pass *pass)
{
    const tr_signal *in = l->in, *out = l->out;
    size_t planes = pass->n * in->channels, stride = l->window.stride;
    const float *from = out->grads;
    for (size_t p = 0; p < planes; p++) {
        const float *plane = in->values + p * tr_signal_area(in);
        float *grads = in->grads + p * tr_signal_area(in);
        memset(grads, 0, tr_signal_area(in) * sizeof *grads);
        for (size_t y = 0; y < out->height; y++) {
            for (size_t x = 0; x < out->width; x++) {
                grads[largest_of(l, plane, y * stride * in->width + x * stride)] += *from++;
            }
        }
    }
}

tr_signal *tr_pool_max(tr_net *net, tr_signal *in, tr_window window)
{
    static const tr_layer_kind kind = {.forward = forward, .backward = backward};
    return tr_pool(net, in, window, &kind);
}
