/* The autoencoder against its definition in binary64: products, layers, codes, values, and gradients by finite differences of
 * the loss. */
#include "support.h"

#include "autoencoder/autoencoder.h"
#include "autoencoder/layers.h"
#include "autoencoder/product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *doubles(size_t n)
{
    double *room = test_room(n * sizeof *room);
    memset(room, 0, n * sizeof *room);
    return room;
}

/* From [-1, 1); uses no function whose result differs between machines. */
static float *random_floats(size_t n, test_random *r)
{
    float *values = test_room(n * sizeof *values);
    for (size_t i = 0; i < n; i++) {
        values[i] = (float)(2 * test_uniform(r) - 1);
    }
    return values;
}

/* A third of the values; the others are 0. */
static float *innovation_of(const float *values, size_t n)
{
    float *innovation = test_room(n * sizeof *innovation);
    for (size_t i = 0; i < n; i++) {
        innovation[i] = i % 3 == 1 ? values[i] : 0;
    }
    return innovation;
}

static double *widened(const float *values, size_t n)
{
    double *wide = doubles(n);
    for (size_t i = 0; i < n; i++) {
        wide[i] = (double)values[i];
    }
    return wide;
}

static void assert_near(double got, double wanted, double tolerance)
{
    if (!(fabs(got - wanted) <= tolerance)) {
        fail_msg("%.9g, not %.9g +- %g", got, wanted, tolerance);
    }
}

/* ---- products -------------------------------------------------------------------------------------------------------- */

enum { EDGE = 3 }; /* floats after each row of a result, which must not be written */

static void check_product(size_t rows, size_t columns, size_t inner, bool turn_a, bool turn_b)
{
    test_random r = {rows * 1000003 + columns * 1009 + inner};
    size_t stride = columns + EDGE, n = rows * stride;
    float *a = random_floats(rows * inner, &r), *b = random_floats(inner * columns, &r), *c = random_floats(n, &r);
    float *wanted = test_room(n * sizeof *wanted), *got = test_room(n * sizeof *got);
    tg_matrix left = turn_a ? tg_transposed(tg_rows(a, rows)) : tg_rows(a, inner);
    tg_matrix right = turn_b ? tg_transposed(tg_rows(b, inner)) : tg_rows(b, columns);
    memcpy(wanted, c, n * sizeof *wanted);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            double sum = (double)c[i * stride + j];
            for (size_t k = 0; k < inner; k++) {
                float x = left.at[i * left.row + k * left.column], y = right.at[k * right.row + j * right.column];
                wanted[i * stride + j] += x * y;
                sum += (double)x * (double)y;
            }
            assert_near((double)wanted[i * stride + j], sum, 1e-6 * (1 + (double)inner));
        }
    }
    for (size_t way = 0; way <= tg_product_variant_n(); way++) {
        memcpy(got, c, n * sizeof *got);
        if (way < tg_product_variant_n()) {
            tg_product_by(way, got, stride, left, right, rows, columns, inner);
        } else {
            tg_product(got, stride, left, right, rows, columns, inner);
        }
        assert_memory_equal(got, wanted, n * sizeof *got);
    }
    free(got);
    free(wanted);
    free(c);
    free(b);
    free(a);
}

static void products_have_the_same_bits_in_all_ways(void **state)
{
    (void)state;
    static const size_t rows[] = {1, 3, 4, 5, 11}, columns[] = {1, 7, 8, 9, 31, 32, 33, 71};
    static const size_t inners[] = {0, 1, 2, 127, 128, 129, 300};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t j = 0; j < sizeof columns / sizeof *columns; j++) {
            for (size_t k = 0; k < sizeof inners / sizeof *inners; k++) {
                for (int form = 0; form < 4; form++) {
                    check_product(rows[i], columns[j], inners[k], form % 2 == 1, form / 2 == 1);
                }
            }
        }
    }
}

/* ---- layers ---------------------------------------------------------------------------------------------------------- */

/* By the definition, in binary64. */
static void define_layer(double *out, const tg_layer *l, const double *weights, const double *in)
{
    size_t in_n = l->in_n, out_n = tg_layer_out_n(l), ins = l->in_channels, outs = l->out_channels;
    const double *bias = weights + ins * outs * (l->kind == TG_LAYER_POINT ? 1 : 3);
    for (size_t i = 0; i < outs * out_n; i++) {
        out[i] = bias[i / out_n];
    }
    for (size_t o = 0; o < outs; o++) {
        for (size_t c = 0; c < ins; c++) {
            if (l->kind == TG_LAYER_POINT) {
                for (size_t t = 0; t < in_n; t++) {
                    out[o * out_n + t] += weights[o * ins + c] * in[c * in_n + t];
                }
                continue;
            }
            bool halves = l->kind == TG_LAYER_HALVE;
            for (size_t t = 0; t < (halves ? out_n : in_n); t++) {
                for (size_t k = 0; k < 3; k++) {
                    size_t far = 2 * t + k; /* the tap's position plus 1 */
                    if (far == 0 || far > (halves ? in_n : out_n)) {
                        continue;
                    }
                    if (halves) {
                        out[o * out_n + t] += weights[(o * ins + c) * 3 + k] * in[c * in_n + far - 1];
                    } else {
                        out[o * out_n + far - 1] += weights[(c * outs + o) * 3 + k] * in[c * in_n + t];
                    }
                }
            }
        }
    }
    for (size_t i = 0; !l->is_linear && i < outs * out_n; i++) {
        out[i] *= out[i] > 0 ? 1 : 0.01;
    }
}

/* The change of sum(weight of each output * output) with *at, of which it is a function with few kinks. */
static double slope_by(double *at, double *out, const tg_layer *l, const double *weights, const double *in,
                       const float *importance)
{
    double sums[2] = {0}, kept = *at;
    for (int side = 0; side < 2; side++) {
        *at = kept + (side == 0 ? -1e-6 : 1e-6);
        define_layer(out, l, weights, in);
        for (size_t i = 0; i < l->out_channels * tg_layer_out_n(l); i++) {
            sums[side] += (double)importance[i] * out[i];
        }
    }
    *at = kept;
    return (sums[1] - sums[0]) / 2e-6;
}

static void check_layer(const tg_layer *l)
{
    test_random r = {l->in_n + 31 * l->in_channels + 17 * (size_t)l->kind};
    size_t in_n = l->in_channels * l->in_n, out_n = l->out_channels * tg_layer_out_n(l), n = tg_layer_weight_n(l);
    float *in = random_floats(in_n, &r), *weights = random_floats(n, &r), *out = random_floats(out_n, &r);
    float *room = random_floats(tg_layer_scratch_n(l), &r), *importance = random_floats(out_n, &r);
    float *in_gradient = random_floats(in_n, &r), *weight_gradient = test_room(n * sizeof *weight_gradient);
    float *out_gradient = test_room(out_n * sizeof *out_gradient);
    double *wide_in = widened(in, in_n), *wide_weights = widened(weights, n), *wanted = doubles(out_n);
    define_layer(wanted, l, wide_weights, wide_in);
    tg_layer_forward(out, l, weights, in, room);
    for (size_t i = 0; i < out_n; i++) {
        assert_near((double)out[i], wanted[i], 1e-5);
    }
    memcpy(out_gradient, importance, out_n * sizeof *out_gradient);
    memset(weight_gradient, 0, n * sizeof *weight_gradient);
    tg_layer_backward(in_gradient, weight_gradient, out_gradient, l, weights, in, out, room);
    for (int draw = 0; draw < 40; draw++) {
        size_t w = draw == 0 ? n - 1 : (size_t)(test_uniform(&r) * (double)n);
        size_t i = draw == 0 ? 0 : draw == 1 ? in_n - 1 : (size_t)(test_uniform(&r) * (double)in_n);
        double by_weight = slope_by(&wide_weights[w], wanted, l, wide_weights, wide_in, importance);
        double by_input = slope_by(&wide_in[i], wanted, l, wide_weights, wide_in, importance);
        assert_near((double)weight_gradient[w], by_weight, 1e-3);
        assert_near((double)in_gradient[i], by_input, 1e-4);
    }
    free(wanted);
    free(wide_weights);
    free(wide_in);
    free(out_gradient);
    free(weight_gradient);
    free(in_gradient);
    free(importance);
    free(room);
    free(out);
    free(weights);
    free(in);
}

static void layers_are_as_defined(void **state)
{
    (void)state;
    static const tg_layer_kind kinds[] = {TG_LAYER_HALVE, TG_LAYER_DOUBLE, TG_LAYER_POINT};
    static const size_t lengths[] = {2, 4, 30, 126, 128, 130, 254, 256, 258, 514}, channels[][2] = {{1, 5}, {7, 3}};
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            for (size_t j = 0; j < 2; j++) {
                check_layer(&(tg_layer){kinds[k], j == 1 && i % 2 == 0, channels[j][0], channels[j][1], lengths[i]});
            }
        }
    }
}

/* ---- the whole, by the definition ------------------------------------------------------------------------------------ */

/* Weights in binary64, read layer by layer. */
typedef struct definition {
    const tg_autoencoder_config *config;
    double *weights;
    size_t padded_n, code_n, encoder_n, decoder_n; /* padded length, floats of a code, weights of encoder and decoder */
} definition;

/* Returns the weights of the next layer. */
static const double *next_layer(double **signal, const double *weights, tg_layer l)
{
    double *out = doubles(l.out_channels * tg_layer_out_n(&l));
    define_layer(out, &l, weights, *signal);
    free(*signal);
    *signal = out;
    return weights + tg_layer_weight_n(&l);
}

static double *define_code(definition *d, const double *values)
{
    double *signal = doubles(d->padded_n);
    const double *weights = d->weights;
    size_t channels = 1, n = d->padded_n;
    memcpy(signal, values, d->config->value_n * sizeof *signal);
    for (size_t i = 0; i < 4; i++) {
        uint32_t outs = d->config->encoder_channels[i];
        weights = next_layer(&signal, weights, (tg_layer){TG_LAYER_HALVE, false, channels, outs, n});
        channels = outs;
        n /= 2;
    }
    tg_layer last = {TG_LAYER_POINT, true, channels, d->config->code_channels, n};
    d->encoder_n = (size_t)(next_layer(&signal, weights, last) - d->weights);
    return signal;
}

static double *define_values(definition *d, size_t decoder, const double *code, const double *innovation)
{
    double *signal = doubles(d->code_n);
    const double *first = d->weights + d->encoder_n + decoder * d->decoder_n, *weights = first;
    size_t channels = d->config->code_channels, n = d->padded_n / 16;
    memcpy(signal, code, d->code_n * sizeof *signal);
    for (size_t i = 0; i < 4; i++) {
        uint32_t outs = d->config->decoder_channels[i];
        weights = next_layer(&signal, weights, (tg_layer){TG_LAYER_DOUBLE, false, channels, outs, n});
        channels = outs;
        n *= 2;
    }
    tg_layer last = {TG_LAYER_POINT, true, channels, 1, n};
    d->decoder_n = (size_t)(next_layer(&signal, weights, last) - first);
    for (size_t i = 0; innovation != NULL && i < d->config->value_n; i++) {
        signal[i] = innovation[i] != 0 ? innovation[i] : signal[i];
    }
    return signal;
}

static double mean_squared(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    }
    return sum / (double)n;
}

enum { WORKERS = 3 };

/* Either loss: with a decoder for each worker, that of a common code. */
static double define_loss(definition *d, double *const *values, double *const *innovations, uint32_t chosen)
{
    bool common = d->config->decoder_n > 1;
    double *codes[WORKERS], *code = doubles(d->code_n), *mean = doubles(d->config->value_n), loss = 0;
    for (size_t i = 0; i < WORKERS; i++) {
        codes[i] = define_code(d, values[i]);
        for (size_t k = 0; k < d->code_n; k++) {
            code[k] += codes[i][k] / WORKERS;
        }
        for (size_t k = 0; k < d->config->value_n; k++) {
            mean[k] += values[i][k] / WORKERS;
        }
    }
    for (size_t j = 0; j < d->config->decoder_n; j++) {
        double *decoded = define_values(d, j, common ? codes[chosen] : code, common ? innovations[j] : NULL);
        loss += (common ? d->config->value_weight : 1) *
                mean_squared(decoded, common ? values[j] : mean, d->config->value_n);
        free(decoded);
    }
    for (size_t i = 0; common && i < WORKERS * WORKERS; i++) {
        loss += d->config->code_weight * mean_squared(codes[i / WORKERS], codes[i % WORKERS], d->code_n);
    }
    for (size_t i = 0; i < WORKERS; i++) {
        free(codes[i]);
    }
    free(mean);
    free(code);
    return loss;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------- */

static tg_autoencoder_config small_config(size_t value_n, bool common)
{
    tg_autoencoder_config config = tg_autoencoder_standard(value_n);
    static const uint32_t encoder[] = {3, 5, 4, 6}, decoder[] = {5, 3, 4, 2};
    memcpy(config.encoder_channels, encoder, sizeof encoder);
    memcpy(config.decoder_channels, decoder, sizeof decoder);
    config.code_channels = 2;
    config.decoder_n = common ? WORKERS : 1;
    config.value_weight = 0.7;
    config.code_weight = 0.3;
    return config;
}

/* An autoencoder with biases other than 0, and its definition. */
static tg_autoencoder *open_small(definition *d, const tg_autoencoder_config *config)
{
    tg_autoencoder *ae = NULL;
    MUST(tg_autoencoder_new(&ae, config, 9, NULL, why));
    test_random r = {1};
    for (size_t i = 0; i < tg_autoencoder_weight_n(ae); i++) {
        tg_autoencoder_weights(ae)[i] += (float)(0.2 * test_uniform(&r) - 0.1);
    }
    *d = (definition){.config = config,
                      .weights = widened(tg_autoencoder_weights(ae), tg_autoencoder_weight_n(ae)),
                      .padded_n = (config->value_n + 15) / 16 * 16};
    d->code_n = d->padded_n / 16 * config->code_channels;
    assert_int_equal(tg_autoencoder_code_n(ae), d->code_n);
    return ae;
}

static void any_length_is_padded_and_cropped(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 2, 15, 16, 17, 33, 1000};
    for (size_t i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
        test_random r = {i};
        size_t n = lengths[i / 2];
        tg_autoencoder_config config = small_config(n, i % 2 == 1);
        definition d;
        tg_autoencoder *ae = open_small(&d, &config);
        float *values = random_floats(n, &r), *innovation = innovation_of(values, n), *decoded = random_floats(n, &r);
        float *code = random_floats(d.code_n, &r);
        double *wide = widened(values, n), *wide_innovation = widened(innovation, n);
        tg_autoencoder_encode(code, ae, values);
        double *wanted_code = define_code(&d, wide);
        for (uint32_t decoder = 0; decoder < config.decoder_n; decoder++) {
            tg_autoencoder_decode(decoded, ae, decoder, code, config.decoder_n > 1 ? innovation : NULL);
            double *wanted = define_values(&d, decoder, wanted_code, config.decoder_n > 1 ? wide_innovation : NULL);
            for (size_t k = 0; k < n; k++) {
                assert_near((double)decoded[k], wanted[k], 1e-5);
                if (config.decoder_n > 1 && innovation[k] != 0) {
                    assert_float_equal(decoded[k], values[k], 0);
                }
            }
            free(wanted);
        }
        for (size_t k = 0; k < d.code_n; k++) {
            assert_near((double)code[k], wanted_code[k], 1e-5);
        }
        assert_int_equal(d.encoder_n + config.decoder_n * d.decoder_n, tg_autoencoder_weight_n(ae));
        free(wanted_code);
        free(wide_innovation);
        free(wide);
        free(code);
        free(decoded);
        free(innovation);
        free(values);
        free(d.weights);
        tg_autoencoder_free(ae);
    }
}

/* The first moments after the first step are a tenth of the gradient. */
static void check_gradient(size_t value_n, bool common, uint32_t chosen, double code_weight)
{
    test_random r = {value_n};
    tg_autoencoder_config config = small_config(value_n, common);
    config.code_weight = code_weight;
    definition d;
    tg_autoencoder *ae = open_small(&d, &config);
    float *values[WORKERS], *innovations[WORKERS];
    double *wide[WORKERS], *wide_innovations[WORKERS], loss = 0, sum = 0;
    for (size_t i = 0; i < WORKERS; i++) {
        values[i] = random_floats(value_n, &r);
        innovations[i] = innovation_of(values[i], value_n);
        wide[i] = widened(values[i], value_n);
        wide_innovations[i] = widened(innovations[i], value_n);
    }
    double *code = define_code(&d, wide[0]); /* computed to know the number of weights of each part */
    free(define_values(&d, 0, code, common ? wide_innovations[0] : NULL));
    const float *const *all = (const float *const *)values, *const *own = (const float *const *)innovations;
    MUST(common ? tg_autoencoder_train_common(&loss, ae, all, own, chosen, why)
                : tg_autoencoder_train_mean(&loss, ae, all, WORKERS, why));
    assert_near(loss, define_loss(&d, wide, wide_innovations, chosen), 1e-5);
    const float *moments = tg_autoencoder_optimizer_state(ae).moments;
    size_t n = tg_autoencoder_weight_n(ae);
    for (size_t i = 0; i < n; i++) {
        sum += 100 * (double)moments[i] * (double)moments[i];
    }
    for (size_t i = 0; i < n; i++) {
        double sides[2], kept = d.weights[i];
        for (int side = 0; side < 2; side++) {
            d.weights[i] = kept + (side == 0 ? -1e-6 : 1e-6);
            sides[side] = define_loss(&d, wide, wide_innovations, chosen);
        }
        d.weights[i] = kept;
        double wanted = (sides[1] - sides[0]) / 2e-6, got = 10 * (double)moments[i];
        assert_near(got, wanted, 1e-4 * fabs(wanted) + 1e-4 * sqrt(sum / (double)n));
        assert_near((double)moments[n + i], 0.001 * got * got, 1e-4 * got * got);
        double moved = got == 0 ? 0 : -0.001 * got / (fabs(got) + 1e-8);
        assert_near((double)tg_autoencoder_weights(ae)[i] - kept, moved, 2e-7);
    }
    free(code);
    for (size_t i = 0; i < WORKERS; i++) {
        free(wide_innovations[i]);
        free(wide[i]);
        free(innovations[i]);
        free(values[i]);
    }
    free(d.weights);
    tg_autoencoder_free(ae);
}

static void gradients_are_differences_of_the_loss(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 37, 64};
    for (size_t i = 0; i < 3; i++) {
        check_gradient(lengths[i], false, 0, 0.3);
        check_gradient(lengths[i], true, (uint32_t)i, 0.3);
        check_gradient(lengths[i], true, (uint32_t)i, 0); /* other workers' codes are not needed */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_have_the_same_bits_in_all_ways),
        cmocka_unit_test(layers_are_as_defined),
        cmocka_unit_test(any_length_is_padded_and_cropped),
        cmocka_unit_test(gradients_are_differences_of_the_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
