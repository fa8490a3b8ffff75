/* One-dimensional layers; see layers.h.
 *
 * A layer that halves and one that doubles connect the same two signals: a fine one, and a coarse one of half the length.
 * Unfolding (im2col) the fine signal gives three rows for each channel, one for each tap, with as many positions as the
 * coarse signal. The weights are a matrix W of coarse channels x (fine channels and taps). There are three products:
 *
 *     coarse += W unfold(fine)        forward to halve, backward to double
 *     fine += fold(W' coarse)         forward to double, backward to halve
 *     W += coarse unfold(fine)'       the gradient with respect to the weights of either
 *
 * A 1x1 convolution has one tap and nothing to unfold. A block of positions is done at a time, so that the unfolded signal stays
 * in the cache. No sum depends on how many. */
#include "autoencoder/layers.h"

#include "autoencoder/product.h"
#include "base/philox.h"

#include <math.h>
#include <string.h>

enum { TAPS = 3, POSITIONS = 128 };

static const float slope = 0.01f; /* slope of the leaky ReLU below 0 */

/* A layer in terms of its two signals. */
typedef struct pair {
    size_t coarse_channels, fine_channels;
    size_t n; /* positions of the coarse signal */
    size_t taps;
} pair;

static pair pair_of(const tg_layer *l)
{
    switch (l->kind) {
    case TG_LAYER_HALVE: return (pair){l->out_channels, l->in_channels, l->in_n / 2, TAPS};
    case TG_LAYER_DOUBLE: return (pair){l->in_channels, l->out_channels, l->in_n, TAPS};
    case TG_LAYER_POINT: break;
    }
    return (pair){l->out_channels, l->in_channels, l->in_n, 1};
}

/* Columns of W, which are the rows of the unfolded signal. */
static size_t row_n(const pair *p)
{
    return p->fine_channels * p->taps;
}

/* ---- sizes and initialisation ----------------------------------------------------------------------------------------------------------- */

size_t tg_layer_out_n(const tg_layer *l)
{
    return l->kind == TG_LAYER_HALVE ? l->in_n / 2 : l->kind == TG_LAYER_DOUBLE ? l->in_n * 2 : l->in_n;
}

static size_t bias_at(const tg_layer *l)
{
    pair p = pair_of(l);
    return p.coarse_channels * row_n(&p);
}

size_t tg_layer_weight_n(const tg_layer *l)
{
    return bias_at(l) + l->out_channels;
}

size_t tg_layer_scratch_n(const tg_layer *l)
{
    pair p = pair_of(l);
    return p.taps == 1 ? 0 : row_n(&p) * POSITIONS;
}

void tg_layer_start(float *weights, const tg_layer *l, uint64_t seed, uint32_t number)
{
    tg_stream stream = tg_stream_of(seed, UINT64_MAX, number, 0);
    size_t n = bias_at(l);
    double fan_in = (double)l->in_channels; /* inputs of an output; if doubling, 1.5 taps on average */
    fan_in *= l->kind == TG_LAYER_HALVE ? TAPS : l->kind == TG_LAYER_DOUBLE ? TAPS / 2.0 : 1;
    double kept = l->is_linear ? 1 : (1 + (double)slope * (double)slope) / 2; /* share of the variance after the ReLU */
    double bound = sqrt(3 / (fan_in * kept));
    for (size_t i = 0; i < n; i++) {
        uint32_t word;
        tg_stream_words(&word, &stream, i, 1, 3);
        weights[i] = (float)(bound * ((double)word * 0x1p-31 - 1.0));
    }
    memset(weights + n, 0, l->out_channels * sizeof *weights);
}

/* ---- between fine and coarse ----------------------------------------------------------------------------------------- */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Unfolds the fine signal for the coarse positions [at, at + n). */
static tg_matrix unfold(float *scratch, const pair *p, const float *fine, size_t at, size_t n)
{
    if (p->taps == 1) {
        return tg_rows(fine + at, p->n);
    }
    for (size_t c = 0; c < p->fine_channels; c++) {
        const float *from = fine + 2 * (c * p->n + at);
        float *before = scratch + c * TAPS * POSITIONS, *middle = before + POSITIONS, *after = middle + POSITIONS;
        before[0] = at == 0 ? 0 : from[-1];
        for (size_t t = 0; t < n; t++) {
            middle[t] = from[2 * t];
            after[t] = from[2 * t + 1];
        }
        memcpy(before + 1, after, (n - 1) * sizeof *after);
    }
    return tg_rows(scratch, POSITIONS);
}

/* The adjoint of unfold: adds each unfolded element to the position that it came from. */
static void fold(float *fine, const pair *p, const float *scratch, size_t at, size_t n)
{
    for (size_t c = 0; c < p->fine_channels; c++) {
        float *to = fine + 2 * (c * p->n + at);
        const float *before = scratch + c * TAPS * POSITIONS, *middle = before + POSITIONS, *after = middle + POSITIONS;
        if (at > 0) {
            to[-1] += before[0];
        }
        for (size_t t = 0; t < n; t++) {
            to[2 * t] += middle[t];
            to[2 * t + 1] += after[t];
        }
        for (size_t t = 1; t < n;
             t++) { /* after `after` of the previous position, in the same order as across blocks */
            to[2 * t - 1] += before[t];
        }
    }
}

static void add_to_coarse(float *coarse, const pair *p, const float *weights, const float *fine, float *scratch)
{
    for (size_t at = 0; at < p->n; at += POSITIONS) {
        size_t n = smaller(POSITIONS, p->n - at);
        tg_matrix rows = unfold(scratch, p, fine, at, n);
        tg_product(coarse + at, p->n, tg_rows(weights, row_n(p)), rows, p->coarse_channels, n, row_n(p));
    }
}

static void add_to_fine(float *fine, const pair *p, const float *weights, const float *coarse, float *scratch)
{
    tg_matrix back = tg_transposed(tg_rows(weights, row_n(p)));
    for (size_t at = 0; at < p->n; at += POSITIONS) {
        size_t n = smaller(POSITIONS, p->n - at);
        tg_matrix rows = tg_rows(coarse + at, p->n);
        if (p->taps == 1) {
            tg_product(fine + at, p->n, back, rows, row_n(p), n, p->coarse_channels);
            continue;
        }
        memset(scratch, 0, row_n(p) * POSITIONS * sizeof *scratch);
        tg_product(scratch, POSITIONS, back, rows, row_n(p), n, p->coarse_channels);
        fold(fine, p, scratch, at, n);
    }
}

static void add_to_weights(float *weights, const pair *p, const float *coarse, const float *fine, float *scratch)
{
    for (size_t at = 0; at < p->n; at += POSITIONS) {
        size_t n = smaller(POSITIONS, p->n - at);
        tg_matrix columns = tg_transposed(unfold(scratch, p, fine, at, n));
        tg_product(weights, row_n(p), tg_rows(coarse + at, p->n), columns, p->coarse_channels, row_n(p), n);
    }
}

/* ---- forward and backward -------------------------------------------------------------------------------------------- */

void tg_layer_forward(float *out, const tg_layer *l, const float *weights, const float *in, float *scratch)
{
    pair p = pair_of(l);
    const float *bias = weights + bias_at(l);
    size_t n = tg_layer_out_n(l);
    for (size_t o = 0; o < l->out_channels; o++) {
        for (size_t t = 0; t < n; t++) {
            out[o * n + t] = bias[o];
        }
    }
    if (l->kind == TG_LAYER_DOUBLE) {
        add_to_fine(out, &p, weights, in, scratch);
    } else {
        add_to_coarse(out, &p, weights, in, scratch);
    }
    for (size_t i = 0; !l->is_linear && i < l->out_channels * n; i++) {
        out[i] = out[i] > 0 ? out[i] : slope * out[i];
    }
}

/* 16 independent sums, of every 16th value, which are then added in order. */
static float sum_of(const float *values, size_t n)
{
    float sums[16] = {0};
    for (size_t i = 0; i + 16 <= n; i += 16) {
        for (size_t j = 0; j < 16; j++) {
            sums[j] += values[i + j];
        }
    }
    for (size_t i = n - n % 16; i < n; i++) {
        sums[i % 16] += values[i];
    }
    for (size_t j = 1; j < 16; j++) {
        sums[0] += sums[j];
    }
    return sums[0];
}

void tg_layer_backward(float *in_gradient, float *weight_gradient, float *out_gradient, const tg_layer *l,
                       const float *weights, const float *in, const float *out, float *scratch)
{
    pair p = pair_of(l);
    float *bias_gradient = weight_gradient + bias_at(l);
    size_t n = tg_layer_out_n(l);
    for (size_t i = 0; !l->is_linear && i < l->out_channels * n; i++) {
        out_gradient[i] *= out[i] > 0 ? 1.0f : slope; /* the output is above 0 exactly if the ReLU's input was */
    }
    for (size_t o = 0; o < l->out_channels; o++) {
        bias_gradient[o] += sum_of(out_gradient + o * n, n);
    }
    bool doubles = l->kind == TG_LAYER_DOUBLE;
    add_to_weights(weight_gradient, &p, doubles ? in : out_gradient, doubles ? out_gradient : in, scratch);
    if (in_gradient == NULL) {
        return;
    }
    memset(in_gradient, 0, l->in_channels * l->in_n * sizeof *in_gradient);
    if (doubles) {
        add_to_coarse(in_gradient, &p, weights, out_gradient, scratch);
    } else {
        add_to_fine(in_gradient, &p, weights, out_gradient, scratch);
    }
}
