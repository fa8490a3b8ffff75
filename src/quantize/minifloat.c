/* See minifloat.h. */
#include "quantize/minifloat.h"

#include "kernels/kernels.h"
#include "kernels/minifloat.h"
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

/* NaN stays as it is. */
static float within(float value, float most)
{
    float below = value > most ? most : value;
    return below < -most ? -most : below;
}

uint32_t tg_minifloat_table(float *decoded, const uint8_t *side, const tg_minifloat *f)
{
    const float step = tg_get_float(side), most = isfinite(step) ? FLT_MAX : INFINITY;
    const uint32_t zero = f->values / 2, normal = 1u << f->fraction_bits, shift = 23 - (uint32_t)f->fraction_bits;
    const uint32_t first = (127u - (uint32_t)f->bias) << 23; /* bits of magnitude 0, if it were normal */
    const float unit = ldexpf(1, 1 - f->bias - f->fraction_bits);
    float values[TG_MINIFLOAT_MAX / 2 + 1]; /* that are not negative; loops without branches vectorise */
    for (uint32_t m = 0; m <= zero; m++) {
        values[m] = tg_bits_float(first + (m << shift));
    }
    for (uint32_t m = 0; m < normal; m++) {
        values[m] = (float)(int32_t)m * unit;
    }
    for (uint32_t m = 0; m <= zero; m++) {
        decoded[zero + m] = within(values[m] * step, most);
    }
    const float opposite = isnan(step) ? 1 : -1; /* a product that is negated has another NaN on some CPUs */
    for (uint32_t m = 1; m <= zero; m++) {
        decoded[zero - m] = decoded[zero + m] * opposite;
    }
    return f->values;
}

/* All values become 0: they are zeros, or too small for a step. */
static void find_zero(uint16_t *symbols, size_t n, const tg_minifloat *f)
{
    for (size_t i = 0; i < n; i++) {
        symbols[i] = (uint16_t)(f->values / 2);
    }
}

/* Fits to the values of a bucket; false: some are NaN or Inf, and it is encoded as NaN. */
static bool fit_values(tg_fit *out, const tg_bucket *b, const tg_minifloat *f)
{
    uint8_t row = 0;
    double sums[2], n = (double)tg_sum_moments(sums, b->values, b->n);
    if (!isfinite(sums[1]) &&
        !tg_bucket_check_finite(b, sizeof(float), sizeof(float))) { /* sums of finite values are finite */
        return false;
    }
    /* Zeros are left out of the moments: they are sent as 0 with any step, and would make the shape too peaked. */
    out->step = fit_step(&row, n > 0 ? sums[0] / n : 0, n > 0 ? sums[1] / n : 0, f);
    out->shape = row;
    return true;
}

void tg_minifloat_encode(const tg_bucket *b, const tg_minifloat *f)
{
    tg_fit fit = {0};
    b->side[4] = 0;
    if (b->fit == NULL ? !fit_values(&fit, b, f) : !tg_bucket_check_finite(b, sizeof(float), sizeof(float))) {
        return;
    }
    fit = b->fit == NULL ? fit : *b->fit;
    b->side[4] = (uint8_t)fit.shape;
    const float step = fit.step;
    tg_put_float(b->side, step);
    if (step == 0) {
        find_zero(b->symbols, b->n, f);
    } else {
        const tg_float_format format = {(uint32_t)f->fraction_bits, (uint32_t)f->bias, f->values / 2};
        tg_kernels_best()->symbols.minifloats(b->symbols, b->values, step, format, b->n);
    }
}
