/* See minifloat.h. */
#include "quantize/minifloat.h"

#include "kernels/kernels.h"
#include "quantize/shapes.h"

#include <float.h>
#include <math.h>

/* ---- the format ------------------------------------------------------------------------------------------------------ */

/* The m-th magnitude, counted from 0; exact. */
static double magnitude(const tg_minifloat *f, uint32_t m)
{
    int steps = 1 << f->fraction_bits, exponent = (int)m / steps, fraction = (int)m % steps;
    return exponent == 0 ? ldexp(fraction, 1 - f->bias - f->fraction_bits)
                         : ldexp(steps + fraction, exponent - f->bias - f->fraction_bits);
}

/* All values in ascending order. */
static void list_values(double *values, const tg_minifloat *f)
{
    uint32_t zero = f->values / 2;
    for (uint32_t m = 0; m <= zero; m++) {
        values[zero - m] = -magnitude(f, m);
        values[zero + m] = magnitude(f, m); /* 0 is positive */
    }
}

/* ---- the fit --------------------------------------------------------------------------------------------------------- */

/* The step for values with this mean magnitude and mean square, and the nearest row of the table of shapes. Between two rows
 * the step is interpolated. Before the first row it is extrapolated. After the last row it is interpolated towards the case
 * in which all magnitudes are equal and are represented exactly. */
static float fit_step(uint8_t *shape, double mean, double square, const tg_minifloat *f)
{
    *shape = 0;
    if (mean == 0) {
        return 0.0f;
    }
    double rho = mean * mean / square, reach = 0;
    const tg_shape *first = tg_shapes, *last = &tg_shapes[TG_SHAPE_N - 1];
    if (rho <= first->rho) {
        reach = first->format[f->in_shapes].reach * rho / first->rho;
    } else if (rho >= last->rho) {
        *shape = TG_SHAPE_N - 1;
        uint32_t m = 0;
        while (magnitude(f, m) < last->format[f->in_shapes].reach) {
            m++;
        }
        double share = fmin((rho - last->rho) / (1 - last->rho), 1);
        reach = last->format[f->in_shapes].reach;
        reach += share * (magnitude(f, m) - reach);
    } else {
        uint8_t row = 0;
        while (tg_shapes[row + 1].rho <= rho) {
            row++;
        }
        const tg_shape *low = &tg_shapes[row], *high = low + 1;
        double share = (rho - low->rho) / (high->rho - low->rho);
        *shape = (uint8_t)(row + (share > 0.5 ? 1 : 0));
        reach = low->format[f->in_shapes].reach;
        reach += share * (high->format[f->in_shapes].reach - reach);
    }
    return (float)fmin(mean / reach, (double)FLT_MAX);
}

void tg_minifloat_fit(double *shape, double *scale, const uint8_t *side)
{
    float step = tg_get_float(side);
    *shape = side[4] < TG_SHAPE_N ? tg_shapes[side[4]].shape : 0;
    *scale = step > 0 ? 1 / (double)step : 0;
}

bool tg_minifloat_lengths(uint8_t *lengths, const uint8_t *side, const tg_minifloat *f)
{
    if (side[4] >= TG_SHAPE_N) {
        return false;
    }
    const char *digits = tg_shapes[side[4]].format[f->in_shapes].lengths;
    for (uint32_t i = 0; i < f->values; i++) {
        lengths[i] = (uint8_t)(digits[i] <= '9' ? digits[i] - '0' : digits[i] - 'a' + 10);
    }
    return true;
}

/* ---- values and symbols ---------------------------------------------------------------------------------------------- */

/* The decoded value of each symbol: the exact product, in binary64, rounded once to fp32. If the step is finite, so is every
 * value: it saturates. */
static void list_decoded(float *decoded, float step, const tg_minifloat *f)
{
    double values[TG_MINIFLOAT_MAX];
    list_values(values, f);
    for (uint32_t i = 0; i < f->values; i++) {
        double product = values[i] * (double)step;
        decoded[i] = (float)(product > (double)FLT_MAX && isfinite(step)    ? (double)FLT_MAX
                             : product < -(double)FLT_MAX && isfinite(step) ? -(double)FLT_MAX
                                                                            : product);
    }
}

/* limits[i] is the largest float that rounds to value i or to a lower one. */
static void list_limits(float *limits, float step, const tg_minifloat *f)
{
    double values[TG_MINIFLOAT_MAX];
    list_values(values, f);
    for (uint32_t i = 0; i + 1 < f->values; i++) {
        double middle = (values[i] + values[i + 1]) / 2 * (double)step; /* exact */
        float limit = (float)fmax(fmin(middle, (double)FLT_MAX), -(double)FLT_MAX);
        limits[i] = (double)limit > middle ? nextafterf(limit, -INFINITY) : limit;
    }
    limits[f->values - 1] = INFINITY;
}

/* All values become 0: they are zeros, or too small for a step. */
static void find_zero(uint16_t *symbols, size_t n, const tg_minifloat *f)
{
    for (size_t i = 0; i < n; i++) {
        symbols[i] = (uint16_t)(f->values / 2);
    }
}

/* For formats with many values. The bits of value / step give the symbol or one next to it; the limits decide. */
static void find_by_bits(uint16_t *symbols, const float *values, size_t n, const float *limits, float step,
                         const tg_minifloat *f)
{
    uint32_t zero = f->values / 2, shift = 23 - (uint32_t)f->fraction_bits;
    uint32_t lowest = (uint32_t)(127 - f->bias)
                      << f->fraction_bits; /* the smallest normal value, as upper bits of a binary32 */
    float inverse = (float)fmin(1 / (double)step, (double)FLT_MAX);
    for (size_t i = 0; i < n; i++) {
        float t = values[i];
        uint32_t bits = tg_float_bits(t * inverse), number = (bits & 0x7fffffffu) >> shift;
        number = number < lowest ? 0 : number - lowest;
        number = number > zero ? zero : number;
        uint32_t symbol = bits >> 31 ? zero - number : zero + number;
        while (t > limits[symbol]) {
            symbol++;
        }
        while (symbol > 0 && t <= limits[symbol - 1]) {
            symbol--;
        }
        symbols[i] = (uint16_t)symbol;
    }
}

void tg_minifloat_encode(const tg_bucket *b, const tg_minifloat *f)
{
    b->side[4] = 0;
    double sums[2], n = (double)tg_sum_moments(sums, b->values, b->n);
    if (!isfinite(sums[1]) &&
        !tg_bucket_check_finite(b, sizeof(float), sizeof(float))) { /* sums of finite values are finite */
        return;
    }
    /* Zeros are left out of the moments: they are sent as 0 with any step, and would make the shape too peaked. */
    float step = fit_step(&b->side[4], n > 0 ? sums[0] / n : 0, n > 0 ? sums[1] / n : 0, f);
    tg_put_float(b->side, step);
    float limits[TG_MINIFLOAT_MAX];
    list_limits(limits, step, f);
    if (step == 0) {
        find_zero(b->symbols, b->n, f);
    } else if (f->values <= 16) {
        tg_kernels_best()->symbols.count_above(b->symbols, b->values, limits, f->values - 1, b->n);
    } else {
        find_by_bits(b->symbols, b->values, b->n, limits, step, f);
    }
}

void tg_minifloat_decode(float *values, const uint16_t *symbols, const uint8_t *side, size_t n, const tg_minifloat *f)
{
    float decoded[TG_MINIFLOAT_MAX];
    list_decoded(decoded, tg_get_float(side), f);
    tg_kernels_best()->symbols.look_up(values, symbols, decoded, f->values, n);
}
