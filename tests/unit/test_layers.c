/* Every layer against central finite differences; and against a plain computation where a wrong forward could be consistent with
 * its backward. */
#include "support.h"

#include "layers/exponential.h"
#include "layers/layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A net under test: the loss is the sum of its outputs, each times a fixed random number. */
typedef struct rig {
    tr_net net;
    tr_signal *in, *out;
    size_t n;
    float *input, *pulls; /* the input; the weight of each output in the loss */
    float *grads;         /* of the input, by backward */
    tr_batch batch;
    int32_t symbols[64];
} rig;

static size_t below(test_random *r, size_t n)
{
    return (size_t)(test_bits(r) % n);
}

static void fill(float *x, size_t n, test_random *r)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(2 * test_uniform(r) - 1);
    }
}

static void rig_begin(rig *g, size_t n, size_t channels, size_t height, size_t width, size_t steps)
{
    memset(g, 0, sizeof *g);
    tr_net_init(&g->net, n + 1); /* larger than the batch, as at the end of an epoch */
    g->n = n;
    g->in = tr_net_signal(&g->net, channels, height, width, steps);
}

static size_t rig_in_n(const rig *g)
{
    return g->n * tr_signal_sample_n(g->in);
}

static size_t rig_out_n(const rig *g)
{
    return g->n * tr_signal_sample_n(g->out);
}

/* Call when g->out is set. Parameters and input become random, whatever the layer's initial values. */
static void rig_ready(rig *g, test_random *r)
{
    assert_int_equal(tr_net_take_memory(&g->net), 0);
    tr_net_start(&g->net, 1);
    fill(g->net.weights, g->net.weight_n, r);
    g->input = test_room(rig_in_n(g) * sizeof(float));
    g->grads = test_room(rig_in_n(g) * sizeof(float));
    g->pulls = test_room(rig_out_n(g) * sizeof(float));
    fill(g->input, rig_in_n(g), r);
    fill(g->pulls, rig_out_n(g), r);
    g->batch = (tr_batch){.n = g->n, .symbols = g->symbols};
}

static void rig_end(rig *g)
{
    tr_net_release(&g->net);
    free(g->input);
    free(g->grads);
    free(g->pulls);
}

static double rig_loss(rig *g)
{
    tr_pass pass = {.batch = &g->batch, .n = g->n, .training = true, .scratch = g->net.scratch};
    memcpy(g->in->values, g->input, rig_in_n(g) * sizeof(float));
    tr_net_forward(&g->net, &pass);
    double loss = 0;
    for (size_t i = 0; i < rig_out_n(g); i++) {
        loss += (double)g->pulls[i] * (double)g->out->values[i];
    }
    return loss;
}

static void rig_backward(rig *g)
{
    tr_pass pass = {.batch = &g->batch, .n = g->n, .training = true, .scratch = g->net.scratch};
    (void)rig_loss(g);
    for (size_t i = 0; i < g->net.weight_n; i++) {
        g->net.grads[i] = 1e9f; /* must be overwritten, not added to */
    }
    memcpy(g->out->grads, g->pulls, rig_out_n(g) * sizeof(float));
    tr_net_backward(&g->net, &pass, NULL);
    memcpy(g->grads, g->in->grads, rig_in_n(g) * sizeof(float));
}

static void check_slopes(rig *g, float *x, const float *grads, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        float keep = x[i], step = 0.01f;
        x[i] = keep + step;
        double up = rig_loss(g), width = (double)x[i];
        x[i] = keep - step;
        double measured = (up - rig_loss(g)) / (width - (double)x[i]);
        x[i] = keep;
        if (!(fabs(measured - (double)grads[i]) <= 2e-3 * (1 + fabs(measured)))) {
            fail_msg("%s: slope %zu of %zu is %g, measured %g", what, i, n, (double)grads[i], measured);
        }
    }
}

static void check_rig(rig *g, const char *what)
{
    rig_backward(g);
    float *grads = test_room((g->net.weight_n + 1) * sizeof *grads);
    memcpy(grads, g->net.grads, g->net.weight_n * sizeof *grads);
    check_slopes(g, g->input, g->grads, rig_in_n(g), what);
    check_slopes(g, g->net.weights, grads, g->net.weight_n, what);
    free(grads);
}

/* ---- dense, relu, add -------------------------------------------------------------------------------------------------- */

static void dense_fits(void **state)
{
    (void)state;
    test_random r = {1};
    for (int i = 0; i < 10; i++) {
        rig g;
        rig_begin(&g, 1 + below(&r, 4), 1 + below(&r, 5), 1 + below(&r, 3), 1 + below(&r, 3), 1);
        g.out = tr_dense(&g.net, g.in, "dense", 1 + below(&r, 7), tr_start_he(1));
        rig_ready(&g, &r);
        check_rig(&g, "dense");
        rig_end(&g);
    }
}

static void relu_fits(void **state)
{
    (void)state;
    test_random r = {2};
    rig g;
    rig_begin(&g, 3, 5, 3, 7, 1);
    g.out = tr_relu(&g.net, g.in);
    rig_ready(&g, &r);
    for (size_t i = 0; i < rig_in_n(&g); i++) { /* away from the corner */
        g.input[i] += g.input[i] < 0 ? -0.1f : 0.1f;
    }
    rig_backward(&g);
    check_slopes(&g, g.input, g.grads, rig_in_n(&g), "relu");
    rig_end(&g);
}

static void add_fits(void **state)
{
    (void)state;
    test_random r = {3};
    rig g;
    rig_begin(&g, 3, 6, 1, 1, 1);
    tr_signal *main = tr_dense(&g.net, g.in, "dense", 6, tr_start_he(1)); /* shares its input with the side branch */
    tr_signal *side = tr_dense(&g.net, g.in, "side", 6, tr_start_he(1));
    g.out = tr_add(&g.net, tr_add(&g.net, main, side), g.in);
    rig_ready(&g, &r);
    check_rig(&g, "add");
    rig_end(&g);
}

/* ---- convolution -------------------------------------------------------------------------------------------------------- */

static tr_window random_window(test_random *r)
{
    tr_window w = {1 + below(r, 3), 1 + below(r, 3), 1 + below(r, 3), 0};
    w.padding = below(r, w.height < w.width ? w.height : w.width);
    return w;
}

static double pixel(const rig *g, size_t s, size_t c, size_t y, size_t x, const tr_window *w)
{
    if (y < w->padding || x < w->padding || y - w->padding >= g->in->height || x - w->padding >= g->in->width) {
        return 0;
    }
    size_t row = (s * g->in->channels + c) * g->in->height + y - w->padding;
    return (double)g->input[row * g->in->width + x - w->padding];
}

/* By the definition. */
static double convolve(const rig *g, const tr_window *w, size_t s, size_t f, size_t out_y, size_t out_x)
{
    const float *weight = g->net.weights + f * g->in->channels * w->height * w->width;
    double sum = g->net.param_n > 1 ? (double)g->net.weights[g->net.params[1].at + f] : 0;
    for (size_t c = 0; c < g->in->channels; c++) {
        for (size_t y = 0; y < w->height; y++) {
            for (size_t x = 0; x < w->width; x++) {
                sum += (double)*weight++ * pixel(g, s, c, out_y * w->stride + y, out_x * w->stride + x, w);
            }
        }
    }
    return sum;
}

static void check_convolution(rig *g, const tr_window *w)
{
    (void)rig_loss(g);
    const float *got = g->out->values;
    for (size_t s = 0; s < g->n; s++) {
        for (size_t f = 0; f < g->out->channels; f++) {
            for (size_t y = 0; y < g->out->height; y++) {
                for (size_t x = 0; x < g->out->width; x++) {
                    assert_true(fabs((double)*got++ - convolve(g, w, s, f, y, x)) < 1e-4);
                }
            }
        }
    }
}

static void convolution_fits(void **state)
{
    (void)state;
    test_random r = {4};
    for (int i = 0; i < 40; i++) {
        rig g;
        rig_begin(&g, 1 + below(&r, 3), 1 + below(&r, 3), 3 + below(&r, 5), 3 + below(&r, 5), 1);
        tr_window w = random_window(&r);
        g.out = tr_conv(&g.net, g.in, "conv", 1 + below(&r, 4), w, i % 2 == 0);
        rig_ready(&g, &r);
        check_convolution(&g, &w);
        check_rig(&g, "conv");
        rig_end(&g);
    }
}

/* Enough samples and places for several groups, the last one smaller; and one where a sample is a group. */
static void convolution_works_in_groups(void **state)
{
    (void)state;
    test_random r = {5};
    static const size_t sizes[][3] = {{60, 5, 6}, {2, 23, 25}};
    for (size_t i = 0; i < 2; i++) {
        rig g;
        tr_window w = {3, 3, 1, 1};
        rig_begin(&g, sizes[i][0], 2, sizes[i][1], sizes[i][2], 1);
        g.out = tr_conv(&g.net, g.in, "conv", 3, w, true);
        rig_ready(&g, &r);
        check_convolution(&g, &w);
        rig_backward(&g);
        float *grads = test_room(g.net.weight_n * sizeof *grads);
        memcpy(grads, g.net.grads, g.net.weight_n * sizeof *grads);
        check_slopes(&g, g.net.weights, grads, g.net.weight_n, "conv in groups");
        size_t end = rig_in_n(&g) - 200; /* the last group */
        check_slopes(&g, g.input + end, g.grads + end, 200, "conv in groups");
        free(grads);
        rig_end(&g);
    }
}

/* As at the start of a residual block: three readers of one signal. */
static void convolutions_share_an_input(void **state)
{
    (void)state;
    test_random r = {6};
    rig g;
    rig_begin(&g, 2, 2, 5, 5, 1);
    tr_signal *main = tr_conv(&g.net, g.in, "main", 2, (tr_window){3, 3, 1, 1}, false);
    tr_signal *side = tr_conv(&g.net, g.in, "side", 2, (tr_window){1, 1, 1, 0}, false);
    g.out = tr_add(&g.net, tr_add(&g.net, main, side), g.in);
    rig_ready(&g, &r);
    check_rig(&g, "shared input");
    rig_end(&g);
}

/* ---- norm --------------------------------------------------------------------------------------------------------------- */

static void norm_fits(void **state)
{
    (void)state;
    test_random r = {7};
    for (int i = 0; i < 10; i++) {
        rig g;
        rig_begin(&g, 2 + below(&r, 4), 1 + below(&r, 4), 2 + below(&r, 5), 2 + below(&r, 5), 1);
        g.out = tr_norm(&g.net, g.in, "norm");
        rig_ready(&g, &r);
        check_rig(&g, "norm");
        rig_end(&g);
    }
}

static void norm_keeps_running_statistics(void **state)
{
    (void)state;
    test_random r = {8};
    rig g;
    rig_begin(&g, 4, 2, 3, 3, 1);
    g.out = tr_norm(&g.net, g.in, "norm");
    rig_ready(&g, &r);
    (void)rig_loss(&g);
    double sum = 0, squares = 0;
    for (size_t s = 0; s < 4; s++) { /* of the second channel */
        for (size_t i = 0; i < 9; i++) {
            double x = (double)g.input[(s * 2 + 1) * 9 + i];
            sum += x;
            squares += x * x;
        }
    }
    double mean = sum / 36, variance = (squares - 36 * mean * mean) / 35;
    assert_true(fabs((double)g.net.buffers[1] - 0.1 * mean) < 1e-6);
    assert_true(fabs((double)g.net.buffers[3] - (0.9 + 0.1 * variance)) < 1e-6);
    /* A test uses the running statistics and does not change them. */
    float before[4];
    memcpy(before, g.net.buffers, sizeof before);
    tr_pass pass = {.batch = &g.batch, .n = 4, .training = false, .scratch = g.net.scratch};
    tr_net_forward(&g.net, &pass);
    assert_memory_equal(before, g.net.buffers, sizeof before);
    double scale = (double)g.net.weights[1], shift = (double)g.net.weights[3];
    double expected = ((double)g.input[9] - (double)before[1]) / sqrt((double)before[3] + 1e-5) * scale + shift;
    assert_true(fabs((double)g.out->values[9] - expected) < 1e-5);
    rig_end(&g);
}

/* A channel of one number has no variance; nothing may become NaN. */
static void norm_takes_a_single_number(void **state)
{
    (void)state;
    test_random r = {9};
    rig g;
    rig_begin(&g, 1, 3, 1, 1, 1);
    g.out = tr_norm(&g.net, g.in, "norm");
    rig_ready(&g, &r);
    check_rig(&g, "norm of one");
    assert_true(isfinite(g.net.buffers[3]));
    rig_end(&g);
}

/* ---- pools --------------------------------------------------------------------------------------------------------------- */

/* Numbers that are all far enough apart for the largest to stay the largest. */
static void spread_out(float *x, size_t n, test_random *r)
{
    for (size_t i = 0; i < n; i++) {
        size_t other = below(r, i + 1);
        x[i] = x[other];
        x[other] = 0.1f * (float)i;
    }
}

static void pools_fit(void **state)
{
    (void)state;
    test_random r = {10};
    static const tr_window windows[] = {{2, 2, 2, 0}, {3, 3, 2, 0}, {2, 3, 1, 0}, {1, 1, 1, 0}};
    for (size_t i = 0; i < 16; i++) {
        rig g;
        rig_begin(&g, 1 + below(&r, 3), 1 + below(&r, 3), 3 + below(&r, 4), 3 + below(&r, 4), 1);
        tr_window w = windows[i / 2 % 4];
        g.out = i % 2 == 0 ? tr_pool_max(&g.net, g.in, w) : tr_pool_mean(&g.net, g.in, w);
        rig_ready(&g, &r);
        spread_out(g.input, rig_in_n(&g), &r);
        check_rig(&g, i % 2 == 0 ? "pool_max" : "pool_mean");
        rig_end(&g);
    }
}

static void a_pool_may_span_the_plane(void **state)
{
    (void)state;
    test_random r = {11};
    rig g;
    rig_begin(&g, 2, 3, 4, 5, 1);
    g.out = tr_pool_mean(&g.net, g.in, (tr_window){4, 5, 1, 0});
    rig_ready(&g, &r);
    check_rig(&g, "mean of planes");
    double sum = 0;
    for (size_t i = 0; i < 20; i++) {
        sum += (double)g.input[20 + i];
    }
    assert_true(fabs((double)g.out->values[1] - sum / 20) < 1e-6);
    rig_end(&g);
}

/* ---- text ------------------------------------------------------------------------------------------------------------------ */

static void embedding_fits(void **state)
{
    (void)state;
    test_random r = {12};
    rig g;
    rig_begin(&g, 3, 1, 1, 1, 1);
    g.out = tr_embedding(&g.net, "embedding", 7, 5, 3);
    rig_ready(&g, &r);
    for (size_t i = 0; i < 15; i++) {
        g.symbols[i] = (int32_t)below(&r, 7);
    }
    check_rig(&g, "embedding");
    /* Input is sample-major, output step-major: step 1 of sample 2 is row 1 * 3 + 2. */
    assert_memory_equal(g.out->values + 5 * 3, g.net.weights + g.symbols[2 * 5 + 1] * 3, 3 * sizeof(float));
    rig_end(&g);
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* One sample through the whole sequence, by the definition. */
static void check_lstm(const rig *g, size_t sample)
{
    size_t in_n = g->in->channels, n = g->out->channels;
    const float *input = g->net.weights, *recurrent = input + g->net.params[1].at, *bias = input + g->net.params[2].at;
    double out[8] = {0}, cell[8] = {0}, gates[32];
    for (size_t t = 0; t < g->in->steps; t++) {
        const float *x = g->input + (t * g->n + sample) * in_n;
        for (size_t k = 0; k < 4 * n; k++) {
            gates[k] = (double)bias[k];
            for (size_t j = 0; j < in_n; j++) {
                gates[k] += (double)input[k * in_n + j] * (double)x[j];
            }
            for (size_t j = 0; j < n; j++) {
                gates[k] += (double)recurrent[k * n + j] * out[j];
            }
        }
        for (size_t j = 0; j < n; j++) {
            cell[j] = logistic(gates[n + j]) * cell[j] + logistic(gates[j]) * tanh(gates[2 * n + j]);
            out[j] = logistic(gates[3 * n + j]) * tanh(cell[j]);
            assert_true(fabs((double)g->out->values[(t * g->n + sample) * n + j] - out[j]) < 1e-5);
        }
    }
}

static void lstm_fits(void **state)
{
    (void)state;
    test_random r = {13};
    for (int i = 0; i < 12; i++) {
        rig g;
        rig_begin(&g, 1 + below(&r, 3), 1 + below(&r, 4), 1, 1, 1 + below(&r, 5));
        g.out = tr_lstm(&g.net, g.in, "lstm", 1 + below(&r, 7));
        rig_ready(&g, &r);
        (void)rig_loss(&g);
        for (size_t s = 0; s < g.n; s++) {
            check_lstm(&g, s);
        }
        check_rig(&g, "lstm");
        rig_end(&g);
    }
}

static void lstm_starts_open(void **state)
{
    (void)state;
    rig g;
    rig_begin(&g, 1, 2, 1, 1, 1);
    g.out = tr_lstm(&g.net, g.in, "lstm", 3);
    assert_int_equal(tr_net_take_memory(&g.net), 0);
    tr_net_start(&g.net, 1);
    const float *bias = g.net.weights + g.net.params[2].at;
    for (size_t j = 0; j < 12; j++) {
        assert_true(bias[j] == (j >= 3 && j < 6 ? 1.0f : 0.0f));
    }
    rig_end(&g);
}

/* ---- exponential --------------------------------------------------------------------------------------------------------- */

static void exponential_is_close(void **state)
{
    (void)state;
    for (float x = -87; x <= 87; x += 0.0137f) {
        assert_true(fabs((double)tr_exp(x) / exp((double)x) - 1) < 3e-7);
        assert_true(fabs((double)tr_tanh(x) - tanh((double)x)) < 3e-7);
    }
    assert_true(tr_tanh(1000) == 1 && tr_tanh(-1000) == -1 && tr_exp(0) == 1);
    assert_true(isnan(tr_exp(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_fits),
        cmocka_unit_test(relu_fits),
        cmocka_unit_test(add_fits),
        cmocka_unit_test(convolution_fits),
        cmocka_unit_test(convolution_works_in_groups),
        cmocka_unit_test(convolutions_share_an_input),
        cmocka_unit_test(norm_fits),
        cmocka_unit_test(norm_keeps_running_statistics),
        cmocka_unit_test(norm_takes_a_single_number),
        cmocka_unit_test(pools_fit),
        cmocka_unit_test(a_pool_may_span_the_plane),
        cmocka_unit_test(embedding_fits),
        cmocka_unit_test(lstm_fits),
        cmocka_unit_test(lstm_starts_open),
        cmocka_unit_test(exponential_is_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
