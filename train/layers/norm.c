/* Batch norm (Ioffe and Szegedy 2015): normalises each channel to mean 0 and deviation 1, then applies a learned scale and shift.
 * Training uses the statistics of the batch, and updates the running statistics; testing uses the running ones. */
#include "layers.h"
#include "sums.h"

#include <math.h>

static const double epsilon = 1e-5, momentum = 0.1;

enum { SCALE, SHIFT };

static size_t plane_at(const tr_layer *l, size_t sample, size_t channel)
{
    return (sample * l->in->channels + channel) * tr_signal_area(l->in);
}

/* `kept` holds the batch's mean of each channel, then 1 / deviation of each. */
static float *mean_of(const tr_layer *l, size_t channel)
{
    return &l->kept[channel];
}

static float *sharpness_of(const tr_layer *l, size_t channel)
{
    return &l->kept[l->in->channels + channel];
}

static void measure(const tr_layer *l, const tr_pass *pass, size_t channel)
{
    size_t area = tr_signal_area(l->in), count = pass->n * area;
    double sum = 0, squares = 0;
    for (size_t s = 0; s < pass->n; s++) {
        sum += tr_sum(l->in->values + plane_at(l, s, channel), area);
    }
    float mean = (float)(sum / (double)count);
    for (size_t s = 0; s < pass->n; s++) {
        squares += tr_squares_about(l->in->values + plane_at(l, s, channel), mean, area);
    }
    *mean_of(l, channel) = mean;
    *sharpness_of(l, channel) = (float)(1 / sqrt(squares / (double)count + epsilon));

    float *running_mean = &l->buffers[channel], *running_variance = &l->buffers[l->in->channels + channel];
    double variance =
        squares / (double)(count > 1 ? count - 1 : 1); /* the unbiased estimate, for the running statistics */
    *running_mean += (float)(momentum * ((double)mean - (double)*running_mean));
    *running_variance += (float)(momentum * (variance - (double)*running_variance));
}

static void recall(const tr_layer *l, size_t channel)
{
    *mean_of(l, channel) = l->buffers[channel];
    *sharpness_of(l, channel) = (float)(1 / sqrt((double)l->buffers[l->in->channels + channel] + epsilon));
}

static void forward(const tr_layer *l, const tr_pass *pass)
{
    size_t area = tr_signal_area(l->in);
    for (size_t c = 0; c < l->in->channels; c++) {
        if (pass->training) {
            measure(l, pass, c);
        } else {
            recall(l, c);
        }
        float factor = l->learned[SCALE].weights[c] * *sharpness_of(l, c);
        float mean = *mean_of(l, c), shift = l->learned[SHIFT].weights[c];
        for (size_t s = 0; s < pass->n; s++) {
            const float *restrict in = l->in->values + plane_at(l, s, c);
            float *restrict out = l->out->values + plane_at(l, s, c);
            for (size_t i = 0; i < area; i++) {
                out[i] = (in[i] - mean) * factor + shift;
            }
        }
    }
}

/* With x^ = (x - mean) * sharpness and N numbers in the channel:
 *     dx = scale * sharpness * (dy - sum(dy) / N - x^ * sum(dy * x^) / N) */
static void backward(const tr_layer *l, const tr_pass *pass)
{
    size_t area = tr_signal_area(l->in), count = pass->n * area;
    for (size_t c = 0; c < l->in->channels; c++) {
        float mean = *mean_of(l, c), sharpness = *sharpness_of(l, c);
        double sum = 0, dot = 0;
        for (size_t s = 0; s < pass->n; s++) {
            const float *dy = l->out->grads + plane_at(l, s, c);
            sum += tr_sum(dy, area);
            dot += tr_dot_about(dy, l->in->values + plane_at(l, s, c), mean, area);
        }
        dot *= (double)sharpness;
        l->learned[SCALE].grads[c] = (float)dot;
        l->learned[SHIFT].grads[c] = (float)sum;
        float factor = l->learned[SCALE].weights[c] * sharpness;
        float level = (float)(sum / (double)count), tilt = (float)(dot / (double)count) * sharpness;
        for (size_t s = 0; s < pass->n; s++) {
            const float *restrict x = l->in->values + plane_at(l, s, c);
            const float *restrict dy = l->out->grads + plane_at(l, s, c);
            float *restrict dx = l->in->grads + plane_at(l, s, c);
            for (size_t i = 0; i < area; i++) {
                dx[i] = factor * (dy[i] - level - (x[i] - mean) * tilt);
            }
        }
    }
}

static void start(const tr_layer *l)
{
    for (size_t c = 0; c < l->in->channels; c++) {
        l->buffers[c] = 0;
        l->buffers[l->in->channels + c] = 1;
    }
}

tr_signal *tr_norm(tr_net *net, tr_signal *in, const char *name)
{
    static const tr_layer_kind kind = {.forward = forward, .backward = backward, .start = start};
    tr_signal *out = tr_net_signal(net, in->channels, in->height, in->width, 1);
    tr_layer *l = tr_net_layer(net, &kind, in, out);
    tr_net_add_param(net, l, name, "scale", TG_NORM, (tr_start){1, 0}, (uint64_t[]){in->channels}, 1);
    tr_net_add_param(net, l, name, "shift", TG_NORM, (tr_start){0, 0}, (uint64_t[]){in->channels}, 1);
    tr_net_buffer(net, l, 2 * in->channels);
    tr_net_keep(net, l, 2 * in->channels);
    return out;
}
