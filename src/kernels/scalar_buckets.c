/* Quantizers and sums over buckets in plain C, element by element: part of the reference (scalar.c). */
#include "kernels/scalar.h"

#include "base/half.h"
#include "base/philox.h"

#include <math.h>
#include <string.h>

void tg_scalar_draw(uint16_t *upper, uint64_t key, uint64_t block, uint32_t other, size_t block_n, const void *prefetch)
{
    const tg_stream stream = {key};
    (void)prefetch;
    tg_stream_halves(upper, &stream, TG_HALVES * block, TG_HALVES * block_n, TG_HALF_UPPER, other);
}

void tg_scalar_ternary(uint16_t *symbols, const float *values, const tg_draws *draws, float largest, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool sent = tg_draw_below(draws, i, largest, fabsf(values[i]));
        symbols[i] = !sent ? 1 : values[i] < 0 ? 0 : 2;
    }
}

void tg_scalar_two_sided(uint16_t *symbols, const float *values, const tg_draws *draws, float level, size_t n)
{
    float half = level * 0.5f;
    for (size_t i = 0; i < n; i++) {
        symbols[i] = tg_draw_below(draws, i, level, values[i] * 0.5f + half) ? 1 : 0;
    }
}

void tg_scalar_levels(uint16_t *symbols, const float *values, const tg_draws *draws, float shift, float factor,
                      uint32_t most, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float at = fminf(fabsf(values[i]) * shift * factor, (float)most);
        uint32_t below = (uint32_t)at;
        uint32_t level = below + (tg_draw_below(draws, i, 1.0f, at - (float)below) ? 1 : 0);
        symbols[i] = (uint16_t)(values[i] < 0 ? most - level : most + level);
    }
}

void tg_scalar_natural(uint16_t *symbols, const float *values, const tg_draws *draws, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = tg_float_bits(values[i]), exponent = bits >> 23 & 255;
        /* The fraction is the position between two powers of two, or between 0 and the least normal number. */
        uint32_t fraction = bits & 0x7fffffu, draw = draws->upper[i], most = fraction >> 7;
        bool up = draw < most || (draw == most && tg_draw_bits(draws, i) >> 9 < fraction);
        symbols[i] = (uint16_t)((bits >> 23) + (up && exponent < 254 ? 1 : 0));
    }
}

void tg_scalar_signs(uint16_t *symbols, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        symbols[i] = (uint16_t)(tg_float_bits(values[i]) >> 31);
    }
}

void tg_scalar_powers(float *values, const uint16_t *symbols, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = tg_bits_float((uint32_t)symbols[i] << 23);
    }
}

void tg_scalar_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        symbols[i] = values[i] > threshold ? 1 : 0;
    }
}

void tg_scalar_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t symbol = 0;
        for (uint32_t l = 0; l < limit_n; l++) {
            symbol = (uint16_t)(symbol + (values[i] > limits[l] ? 1 : 0));
        }
        symbols[i] = symbol;
    }
}

void tg_scalar_round_between(uint16_t *symbols, const float *values, const tg_draws *draws, const float *bounds,
                             uint32_t bound_n, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float value = values[i] * scale;
        uint32_t below = 0;
        for (uint32_t b = 1; b + 1 < bound_n; b++) {
            below += bounds[b] <= value ? 1 : 0;
        }
        bool up = tg_draw_below(draws, i, bounds[below + 1] - bounds[below], value - bounds[below]);
        symbols[i] = (uint16_t)(below + (up ? 1 : 0));
    }
}

void tg_scalar_look_up(float *values, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n)
{
    (void)table_n;
    for (size_t i = 0; i < n; i++) {
        values[i] = table[symbols[i]];
    }
}

void tg_scalar_look_up_add(float *sums, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n)
{
    (void)table_n;
    for (size_t i = 0; i < n; i++) {
        sums[i] += table[symbols[i]];
    }
}

double tg_scalar_magnitudes(const float *values, size_t n)
{
    double parts[TG_SUM_PARTS] = {0};
    for (size_t i = 0; i < n; i++) {
        parts[i % TG_SUM_PARTS] += fabs((double)values[i]);
    }
    return tg_fold(parts);
}

double tg_scalar_squares(const float *values, size_t n)
{
    double parts[TG_SUM_PARTS] = {0};
    for (size_t i = 0; i < n; i++) {
        parts[i % TG_SUM_PARTS] += (double)values[i] * (double)values[i];
    }
    return tg_fold(parts);
}

size_t tg_scalar_moments(double of[2], const float *values, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += values[i] != 0 ? 1 : 0;
    }
    of[0] = tg_scalar_magnitudes(values, n);
    of[1] = tg_scalar_squares(values, n);
    return count;
}

size_t tg_scalar_sums_around(double around[2], const float *values, float threshold, float scale, size_t n)
{
    float parts[2][TG_SUM_PARTS] = {{0}};
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        bool above = values[i] > threshold;
        parts[above][i % TG_SUM_PARTS] += values[i] * scale;
        count += above ? 1 : 0;
    }
    for (int k = 0; k < 2; k++) {
        double wide[TG_SUM_PARTS];
        for (size_t l = 0; l < TG_SUM_PARTS; l++) {
            wide[l] = (double)parts[k][l];
        }
        around[k] = tg_fold(wide);
    }
    return count;
}

size_t tg_scalar_sum_above(double *sum, const float *values, float threshold, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        float magnitude = fabsf(values[i]);
        if (magnitude > threshold) {
            *sum += (double)magnitude;
            count++;
        }
    }
    return count;
}
