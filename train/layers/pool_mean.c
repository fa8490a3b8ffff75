/* Mean pooling; with a window as large as the plane, global mean pooling. */
#include "layers.h"

#include <string.h>

static float mean_at(const tr_layer *l, const float *plane, size_t at)
{
    float sum = 0;
    for (size_t y = 0; y < l->window.height; y++) {
        for (size_t x = 0; x < l->window.width; x++) {
            sum += plane[at + y * l->in->width + x];
        }
    }
    return sum / (float)(l->window.height * l->window.width);
}

static void spread_at(const tr_layer *l, float *grads, size_t at, float slope)
{
    float share = slope / (float)(l->window.height * l->window.width);
    for (size_t y = 0; y < l->window.height; y++) {
        for (size_t x = 0; x < l->window.width; x++) {
            grads[at + y * l->in->width + x] += share;
        }
    }
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
                *to++ = mean_at(l, plane, y * stride * in->width + x * stride);
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
        float *grads = in->grads + p * tr_signal_area(in);
        memset(grads, 0, tr_signal_area(in) * sizeof *grads);
        for (size_t y = 0; y < out->height; y++) {
            for (size_t x = 0; x < out->width; x++) {
                spread_at(l, grads, y * stride * in->width + x * stride, *from++);
            }
        }
    }
}

tr_signal *tr_pool_mean(tr_net *net, tr_signal *in, tr_window window)
{
    static const tr_layer_kind kind = {.forward = forward, .backward = backward};
    return tr_pool(net, in, window, &kind);
}
