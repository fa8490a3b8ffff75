/* Minifloats against brute force: every value, every midpoint, values out of range, every size of step; and the fitted step. */
#include "kernels/kernels.h"
#include "kernels/minifloat.h"
#include "quantize/minifloat.h"
#include "quantize/shapes.h"
#include "support.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tg_minifloat formats[] = {
    {2, 1, 1, TG_SHAPE_FP4, 11}, {5, 2, 15, TG_SHAPE_FP8, 247}, {4, 3, 10, TG_SHAPE_FP8E4M3, 239}};
enum { FORMAT_N = 3 };

/* All values, from their definition and in no clever way. */
static void list(double *values, const tg_minifloat *f)
{
    uint32_t n = 0;
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int e = 0; e < (1 << f->exponent_bits) - 1; e++) {
            for (int m = 0; m < 1 << f->fraction_bits; m++) {
                double fraction = m / pow(2, f->fraction_bits);
                double value = e == 0 ? fraction * pow(2, 1 - f->bias) : (1 + fraction) * pow(2, e - f->bias);
                if (value > 0 || sign > 0) {
                    values[n++] = sign * value;
                }
            }
        }
    }
    assert_int_equal(n, f->values);
    for (uint32_t i = 1; i < n; i++) {
        for (uint32_t j = i; j > 0 && values[j] < values[j - 1]; j--) {
            double swap = values[j];
            values[j] = values[j - 1];
            values[j - 1] = swap;
        }
    }
}

typedef struct result {
    float step;
    uint8_t row;
    uint16_t *symbols;
    float *decoded;
} result;

static result encode(const float *values, size_t n, const tg_minifloat *f)
{
    uint8_t side[TG_MINIFLOAT_SIDE];
    result r = {.symbols = test_room(n * sizeof *r.symbols), .decoded = test_room(n * sizeof *r.decoded)};
    tg_bucket b = {.symbols = r.symbols, .side = side, .values = values, .n = n};
    tg_minifloat_encode(&b, f);
    float table[TG_TABLE_MAX];
    assert_int_equal(tg_minifloat_table(table, side, f), f->values);
    tg_kernels_best()->symbols.look_up(r.decoded, r.symbols, table, f->values, n);
    r.step = tg_get_float(side);
    r.row = side[4];
    return r;
}

static void release(result *r)
{
    free(r->symbols);
    free(r->decoded);
}

/* The nearest multiple of the step, the lower of two; products and differences of these are exact in a long double. */
static uint16_t nearest(float t, float step, const double *values, uint32_t n)
{
    uint16_t best = 0;
    for (uint16_t i = 1; i < n; i++) {
        long double here = fabsl((long double)t - (long double)values[i] * (long double)step);
        long double there = fabsl((long double)t - (long double)values[best] * (long double)step);
        best = here < there ? i : best;
    }
    return best;
}

static void check_all(const float *values, size_t n, const tg_minifloat *f)
{
    double levels[TG_MINIFLOAT_MAX];
    list(levels, f);
    result r = encode(values, n, f);
    for (size_t i = 0; i < n; i++) {
        uint16_t expected = r.step == 0 ? (uint16_t)(f->values / 2) : nearest(values[i], r.step, levels, f->values);
        assert_int_equal(r.symbols[i], expected);
        float decoded = (float)(levels[r.symbols[i]] * (double)r.step);
        decoded = isinf(decoded) ? copysignf(FLT_MAX, decoded) : decoded;
        assert_true(r.decoded[i] == decoded);
    }
    release(&r);
}

/* A probe keeps its place among many values, whose moments set the step: first find the step, then aim. */
static void every_value_and_every_midpoint(void **state)
{
    (void)state;
    test_random random = {31};
    for (int k = 0; k < FORMAT_N; k++) {
        const tg_minifloat *f = &formats[k];
        double levels[TG_MINIFLOAT_MAX];
        list(levels, f);
        enum { FILL = 20000 };
        size_t n = FILL + 8 * (size_t)f->values;
        float *values = test_room(n * sizeof *values);
        for (size_t i = 0; i < n; i++) {
            values[i] = i < FILL ? (float)(log(test_uniform(&random) + 1e-9) * (i % 2 ? 1 : -1)) : 0;
        }
        uint32_t ties = 0;
        for (int round = 0; round < 6; round++) { /* probes move the step a little, and then are put there again */
            result r = encode(values, n, f);
            size_t at = FILL;
            for (uint32_t i = 0; i < f->values; i++) {
                double level = levels[i] * (double)r.step;
                double middle = i + 1 < f->values ? (levels[i] + levels[i + 1]) / 2 * (double)r.step : level * 1.5;
                float probe = (float)middle;
                values[at++] = (float)level;
                values[at++] = probe;
                values[at++] = nextafterf(probe, INFINITY);
                values[at++] = nextafterf(probe, -INFINITY);
                values[at++] = (float)(level + (double)r.step * 1e-3);
                values[at++] = nextafterf((float)level, 0);
                values[at++] = -0.0f;
                values[at++] = 0.0f;
                ties += (double)probe == middle ? 1 : 0;
            }
            release(&r);
            check_all(values, n, f);
        }
        assert_true(ties > 0);
        free(values);
    }
}

/* With a step that is a power of two all midpoints are floats. The values around them are scaled until the fit gives exactly that
 * step; the largest midpoints would have too much weight in it. */
static void ties_go_to_the_lower(void **state)
{
    (void)state;
    test_random random = {33};
    enum { FILL = 5000 };
    for (int k = 0; k < FORMAT_N; k++) {
        const tg_minifloat *f = &formats[k];
        double levels[TG_MINIFLOAT_MAX];
        list(levels, f);
        size_t n = FILL + f->values - 1;
        float *values = test_room(n * sizeof *values), *base = test_room(FILL * sizeof *base);
        for (size_t i = 0; i < FILL; i++) {
            base[i] = (float)(test_uniform(&random) - 0.5) * 1e6f;
        }
        float middles[TG_MINIFLOAT_MAX];
        for (uint32_t m = 0; m + 1 < f->values; m++) {
            double middle = (levels[m] + levels[m + 1]) / 2;
            middles[m] = fabs(middle) < (k == 2 ? 1 : 40) ? (float)middle : 0;
        }
        double scale = 1;
        result r = {0};
        const float step = 8.0f;
        for (int round = 0; round < 2000 && r.step != step; round++) {
            for (size_t i = 0; i < n; i++) {
                values[i] = i < FILL ? (float)((double)base[i] * scale) : middles[i - FILL] * step;
            }
            release(&r);
            r = encode(values, n, f);
            scale *= (double)step / (double)r.step;
            scale *= round < 100 ? 1 : 1 + (test_uniform(&random) - 0.5) * 1e-7;
        }
        assert_true(r.step == step);
        for (uint32_t m = 0; m + 1 < f->values; m++) {
            assert_int_equal(r.symbols[FILL + m], middles[m] != 0 ? m : f->values / 2);
        }
        release(&r);
        free(base);
        free(values);
    }
}

/* ---- the kernel --------------------------------------------------------------------------------------------------------- */

enum { PROBES_MAX = 4096 };

/* Floats at all middles, at all values and next to them; at all powers of two; and the ends. */
static size_t list_probes(float *probes, const double *levels, const double *middles, float step, uint32_t n,
                          test_random *r)
{
    size_t at = 0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        float middle = (float)middles[i], above = nextafterf(middle, INFINITY), below = nextafterf(middle, -INFINITY);
        const float near[] = {middle, above, below, nextafterf(above, INFINITY), nextafterf(below, -INFINITY)};
        memcpy(probes + at, near, sizeof near);
        at += 5;
        float level = (float)(levels[i] * (double)step);
        probes[at++] = level;
        probes[at++] = nextafterf(level, test_bits(r) % 2 == 0 ? INFINITY : -INFINITY);
    }
    for (int e = -149; e < 128; e++) {
        float power = ldexpf(1, e);
        probes[at++] = power;
        probes[at++] = -power * (1 + (float)test_uniform(r)); /* may be -Inf */
    }
    const float ends[] = {0, -0.0f, FLT_MAX, -FLT_MAX, INFINITY, -INFINITY, 1e-45f, -1e-45f, FLT_MIN, -FLT_MIN};
    memcpy(probes + at, ends, sizeof ends);
    return at + sizeof ends / sizeof *ends;
}

/* How many middles are below a value: products of a middle and a step are exact in a double. */
static uint16_t count_below(float value, const double *middles, uint32_t n)
{
    uint32_t low = 0, high = n - 1;
    while (low < high) {
        uint32_t at = (low + high) / 2;
        if ((double)value > middles[at]) {
            low = at + 1;
        } else {
            high = at;
        }
    }
    return (uint16_t)low;
}

static void compare_kernels(float step, const tg_minifloat *f, const double *levels, test_random *r)
{
    static float probes[PROBES_MAX];
    static uint16_t symbols[PROBES_MAX];
    const tg_float_format format = {(uint32_t)f->fraction_bits, (uint32_t)f->bias, f->values / 2};
    double middles[TG_MINIFLOAT_MAX];
    for (uint32_t i = 0; i + 1 < f->values; i++) {
        middles[i] = (levels[i] + levels[i + 1]) / 2 * (double)step;
    }
    size_t n = list_probes(probes, levels, middles, step, f->values, r);
    assert_true(n <= PROBES_MAX);
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        if (k != NULL) {
            memset(symbols, 0xff, sizeof symbols);
            k->symbols.minifloats(symbols, probes, step, format, n);
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(symbols[i], count_below(probes[i], middles, f->values));
            }
        }
    }
}

/* Steps of every exponent: powers of two, their neighbours, and any. */
static void any_step_gives_the_nearest(void **state)
{
    (void)state;
    test_random random = {34};
    for (int k = 0; k < FORMAT_N; k++) {
        double levels[TG_MINIFLOAT_MAX];
        list(levels, &formats[k]);
        for (int e = -149; e < 128; e++) {
            float power = ldexpf(1, e), any = power * (float)(1 + test_uniform(&random) * 0.999);
            const float steps[] = {power, nextafterf(power, INFINITY), nextafterf(power, 0), any};
            for (int s = 0; s < 4; s++) {
                if (steps[s] > 0) {
                    compare_kernels(steps[s], &formats[k], levels, &random);
                }
            }
        }
        compare_kernels(FLT_MAX, &formats[k], levels, &random);
    }
}

/* NaN has no nearest value, but the same symbol everywhere; and nothing is written past the end. */
static void any_length_is_the_same(void **state)
{
    (void)state;
    enum { N = 70 };
    test_random random = {35};
    for (int k = 0; k < FORMAT_N; k++) {
        const tg_float_format format = {(uint32_t)formats[k].fraction_bits, (uint32_t)formats[k].bias,
                                        formats[k].values / 2};
        for (size_t n = 0; n <= N; n++) {
            float *values = test_room(n * sizeof *values);
            for (size_t i = 0; i < n; i++) {
                uint32_t bits = (uint32_t)test_bits(&random) | (i % 9 == 0 ? 0x7f800001u : 0);
                memcpy(&values[i], &bits, sizeof bits);
            }
            uint16_t want[N + 1], got[N + 1];
            want[n] = got[n] = 0xa5a5;
            tg_kernels_scalar.symbols.minifloats(want, values, 1e-3f, format, n);
            assert_int_equal(want[n], 0xa5a5);
            for (int level = TG_SIMD_SCALAR + 1; level < TG_SIMD_LEVELS; level++) {
                const tg_kernels *fast = tg_kernels_of((tg_simd_level)level);
                if (fast != NULL) {
                    fast->symbols.minifloats(got, values, 1e-3f, format, n);
                    assert_memory_equal(got, want, (n + 1) * sizeof *got);
                }
            }
            free(values);
        }
    }
}

static void special_buckets(void **state)
{
    (void)state;
    for (int k = 0; k < FORMAT_N; k++) {
        const tg_minifloat *f = &formats[k];
        float zeros[5] = {0, -0.0f, 0, 0, 0}, one[1] = {3.7f}, equal[4] = {-2.3f, 2.3f, 2.3f, -2.3f};
        float tiny[3] = {1e-45f, -3e-45f, 0}, huge[3] = {FLT_MAX, -FLT_MAX, 1};
        float lonely[1000] = {[17] = -5};
        check_all(zeros, 5, f);
        check_all(one, 1, f);
        check_all(equal, 4, f);
        check_all(tiny, 3, f);
        check_all(huge, 3, f);
        check_all(lonely, 1000, f);
        result r = encode(equal, 4, f); /* all alike: nothing is lost but rounding */
        assert_float_equal(r.decoded[0], -2.3f, 1e-6);
        release(&r);
        r = encode(lonely, 1000, f); /* a single one is not clipped away */
        assert_true(r.decoded[17] < -3 && r.decoded[17] > -7 && r.decoded[0] == 0);
        release(&r);
        r = encode(zeros, 5, f);
        assert_true(r.step == 0 && r.decoded[1] == 0 && !signbit(r.decoded[1]));
        release(&r);
        float bad[3] = {1, NAN, 2}, infinite[2] = {1, -INFINITY};
        r = encode(bad, 3, f);
        assert_true(isnan(r.decoded[0]) && isnan(r.decoded[1]) && r.symbols[2] == 0);
        release(&r);
        r = encode(infinite, 2, f);
        assert_true(isnan(r.decoded[0]) && isnan(r.decoded[1]));
        release(&r);
    }
}

/* The error of a normal and of a Laplace distribution is that of the best scale (0.0199 and 0.036 for fp4). */
static void the_step_is_the_best(void **state)
{
    (void)state;
    test_random random = {32};
    enum { N = 200000 };
    float *values = test_room(N * sizeof *values);
    for (int law = 0; law < 2; law++) {
        double energy = 0;
        for (size_t i = 0; i < N; i++) {
            double u = test_uniform(&random), v = test_uniform(&random);
            double normal = sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
            values[i] = (float)(law == 0 ? normal : (v < 0.5 ? -1 : 1) * log(1 - u)) * 1e-4f;
            energy += (double)values[i] * (double)values[i];
        }
        for (int k = 0; k < FORMAT_N; k++) {
            static const double expected[FORMAT_N][2] = {{0.01994, 0.0362}, {0.00278, 0.00278}, {0.0007, 0.0007}};
            result r = encode(values, N, &formats[k]);
            double error = 0, shape = tg_shapes[r.row].shape;
            for (size_t i = 0; i < N; i++) {
                double off = (double)values[i] - (double)r.decoded[i];
                error += off * off;
            }
            print_message("format %d: shape %.3f, error %.5f\n", k, shape, error / energy);
            assert_true(fabs(error / energy / expected[k][law] - 1) < 0.03);
            assert_true(fabs(shape / (law == 0 ? 2 : 1) - 1) < 0.06);
            release(&r);
        }
    }
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_and_every_midpoint),
        cmocka_unit_test(ties_go_to_the_lower),
        cmocka_unit_test(any_step_gives_the_nearest),
        cmocka_unit_test(any_length_is_the_same),
        cmocka_unit_test(special_buckets),
        cmocka_unit_test(the_step_is_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
