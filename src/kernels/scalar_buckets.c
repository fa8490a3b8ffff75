/* Quantizers and sums over buckets in plain C, element by element: part of the reference (scalar.c). */
#include "kernels/scalar.h"

#include "base/half.h"
#include "base/philox.h"

#include <math.h>
#include <string.h>

void tg_scalar_draw(uint32_t *words, uint64_t key, uint64_t block, uint32_t other, size_t block_n, const void *prefetch)
{
    const tg_stream stream = {key};
    (void)prefetch;
    tg_stream_words(words, &stream, 4 * block, 4 * block_n, other);
}

/* A random word as a number in [0, 1), exactly. */
static float unit_of(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

void tg_scalar_ternary(uint16_t *symbols, const float *values, const uint32_t *draws, float largest, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool sent = unit_of(draws[i]) * largest < fabsf(values[i]);
        symbols[i] = !sent ? 1 : values[i] < 0 ? 0 : 2;
    }
}

void tg_scalar_levels(uint16_t *symbols, const float *values, const uint32_t *draws, float shift, float factor,
                      uint32_t most, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float at = fminf(fabsf(values[i]) * shift * factor, (float)most);
        uint32_t below = (uint32_t)at;
        uint32_t level = below + (unit_of(draws[i]) < at - (float)below ? 1 : 0);
        symbols[i] = (uint16_t)(values[i] < 0 ? most - level : most + level);
    }
}

void tg_scalar_natural(uint16_t *symbols, const float *values, const uint32_t *draws, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = tg_float_bits(values[i]), exponent = bits >> 23 & 255;
        /* The fraction is the position between two powers of two, or between 0 and the least normal number. */
        bool up = exponent < 254 && (draws[i] >> 9) < (bits & 0x7fffffu);
        symbols[i] = (uint16_t)((bits >> 23) + (up ? 1 : 0));
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

void tg_scalar_round_between(uint16_t *symbols, const float *values, const uint32_t *draws, const float *bounds,
                             uint32_t bound_n, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float value = values[i] * scale;
        uint32_t below = 0;
        for (uint32_t b = 1; b + 1 < bound_n; b++) {
            below += bounds[b] <= value ? 1 : 0;
        }
        bool up = unit_of(draws[i]) * (bounds[below + 1] - bounds[below]) < value - bounds[below];
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

enum { SUMS = 16 }; /* partial sums */

static double in_order(const double *sums)
{
    double sum = 0;
    for (int i = 0; i < SUMS; i++) {
        sum += sums[i];
    }
    return sum;
}

size_t tg_scalar_sums_around(double around[2], const float *values, float threshold, float scale, size_t n)
{
    double sums[2][SUMS] = {{0}};
    size_t count = 0;
    for (size_t at = 0; at < n; at += TG_STRETCH) {
        float stretch[2][SUMS] = {{0}};
        size_t end = n - at < TG_STRETCH ? n : at + TG_STRETCH;
        for (size_t i = at; i < end; i++) {
            bool above = values[i] > threshold;
            stretch[above][i % SUMS] += values[i] * scale;
            count += above ? 1 : 0;
        }
        for (size_t l = 0; l < SUMS; l++) {
            sums[0][l] += (double)stretch[0][l];
            sums[1][l] += (double)stretch[1][l];
        }
    }
    around[0] = in_order(sums[0]);
    around[1] = in_order(sums[1]);
    return count;
}

double tg_scalar_squares(const float *values, size_t n)
{
    double squares[SUMS] = {0};
    for (size_t i = 0; i < n; i++) {
        squares[i % SUMS] += (double)values[i] * (double)values[i];
    }
    return in_order(squares);
}

size_t tg_scalar_moments(double of[2], const float *values, size_t n)
{
    double magnitudes[SUMS] = {0}, squares[SUMS] = {0};
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        double value = (double)values[i];
        magnitudes[i % SUMS] += fabs(value);
        squares[i % SUMS] += value * value;
        count += value != 0 ? 1 : 0;
    }
    of[0] = in_order(magnitudes);
    of[1] = in_order(squares);
    return count;
}
