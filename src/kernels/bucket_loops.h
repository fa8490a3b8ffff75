/* Quantizers and sums over buckets in plain C that compilers vectorise; see loops.h. */
#ifndef TG_KERNELS_BUCKET_LOOPS_H
#define TG_KERNELS_BUCKET_LOOPS_H

#include "base/half.h"
#include "kernels/kernels.h"

#include <math.h>

/* A random word as a number in [0, 1), exactly. */
TG_TARGET static inline float unit_of(uint32_t word)
{
    return (float)(int32_t)(word >> 8) * 0x1p-24f;
}

TG_TARGET static void ternary(uint16_t *symbols, const float *values, const uint32_t *draws, float largest, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t sent = unit_of(draws[i]) * largest < fabsf(values[i]) ? 1 : 0;
        int32_t sign = values[i] < 0 ? -1 : 1;
        symbols[i] = (uint16_t)(1 + sent * sign);
    }
}

TG_TARGET static void levels(uint16_t *symbols, const float *values, const uint32_t *draws, float shift, float factor,
                             uint32_t most, size_t n)
{
    float highest = (float)(int32_t)most;
    for (size_t i = 0; i < n; i++) {
        float at = fabsf(values[i]) * shift * factor;
        at = at < highest ? at : highest;
        int32_t below = (int32_t)at;
        int32_t level = below + (unit_of(draws[i]) < at - (float)below ? 1 : 0);
        symbols[i] = (uint16_t)((int32_t)most + (values[i] < 0 ? -level : level));
    }
}

TG_TARGET static void natural(uint16_t *symbols, const float *values, const uint32_t *draws, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = tg_float_bits(values[i]), exponent = bits >> 23 & 255;
        /* The fraction is the position between two powers of two, or between 0 and the least normal number. */
        uint32_t up = (draws[i] >> 9) < (bits & 0x7fffffu) ? 1 : 0;
        symbols[i] = (uint16_t)((bits >> 23) + (exponent < 254 ? up : 0));
    }
}

TG_TARGET static void signs(uint16_t *symbols, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        symbols[i] = (uint16_t)(tg_float_bits(values[i]) >> 31);
    }
}

TG_TARGET static void powers(float *values, const uint16_t *symbols, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = tg_bits_float((uint32_t)symbols[i] << 23);
    }
}

TG_TARGET static void mark_above(uint16_t *symbols, const float *values, float threshold, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        symbols[i] = values[i] > threshold ? 1 : 0;
    }
}

enum { SUMS = 16 }; /* partial sums */

TG_TARGET static inline double in_order(const double *sums)
{
    double sum = 0;
    for (int i = 0; i < SUMS; i++) {
        sum += sums[i];
    }
    return sum;
}

/* Multiplies by 0 or 1 instead of branching, which is exact. */
TG_TARGET static size_t sums_around(double around[2], const float *values, float threshold, float scale, size_t n)
{
    double below[SUMS] = {0}, above[SUMS] = {0};
    size_t count = 0;
    for (size_t at = 0; at < n; at += TG_STRETCH) {
        float some[2][SUMS] = {{0}};
        uint32_t counts[SUMS] = {0};
        size_t end = n - at < TG_STRETCH ? n : at + TG_STRETCH, i = at;
        for (; end - i >= SUMS; i += SUMS) {
            for (size_t l = 0; l < SUMS; l++) {
                float value = values[i + l] * scale, is_above = values[i + l] > threshold ? 1.0f : 0.0f;
                some[1][l] += is_above * value;
                some[0][l] += (1 - is_above) * value;
                counts[l] += values[i + l] > threshold ? 1 : 0;
            }
        }
        for (size_t l = 0; i < end; i++, l++) {
            float value = values[i] * scale;
            bool is_above = values[i] > threshold;
            some[is_above][l] += value;
            counts[l] += is_above ? 1 : 0;
        }
        for (size_t l = 0; l < SUMS; l++) {
            above[l] += (double)some[1][l];
            below[l] += (double)some[0][l];
            count += counts[l];
        }
    }
    around[0] = in_order(below);
    around[1] = in_order(above);
    return count;
}

TG_TARGET static size_t moments(double of[2], const float *values, size_t n)
{
    double magnitudes[SUMS] = {0}, squares[SUMS] = {0};
    uint32_t counts[SUMS] = {0};
    size_t i = 0, count = 0;
    for (; n - i >= SUMS; i += SUMS) {
        for (size_t l = 0; l < SUMS; l++) {
            double value = (double)values[i + l];
            magnitudes[l] += fabs(value);
            squares[l] += value * value;
            counts[l] += values[i + l] != 0 ? 1 : 0;
        }
    }
    for (size_t l = 0; i < n; i++, l++) {
        double value = (double)values[i];
        magnitudes[l] += fabs(value);
        squares[l] += value * value;
        counts[l] += values[i] != 0 ? 1 : 0;
    }
    for (size_t l = 0; l < SUMS; l++) {
        count += counts[l];
    }
    of[0] = in_order(magnitudes);
    of[1] = in_order(squares);
    return count;
}

TG_TARGET static double squares(const float *values, size_t n)
{
    double of[2];
    (void)moments(of, values, n);
    return of[1];
}

TG_TARGET static void count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n,
                                  size_t n)
{
    for (size_t i = 0; i < n; i++) {
        symbols[i] = 0;
    }
    for (size_t at = 0; at < n; at += 1024) {
        size_t end = n - at < 1024 ? n : at + 1024;
        for (uint32_t l = 0; l < limit_n; l++) {
            for (size_t i = at; i < end; i++) {
                symbols[i] = (uint16_t)(symbols[i] + (values[i] > limits[l] ? 1 : 0));
            }
        }
    }
}

TG_TARGET static void look_up(float *values, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n)
{
    (void)table_n;
    for (size_t i = 0; i < n; i++) {
        values[i] = table[symbols[i]];
    }
}

TG_TARGET static void look_up_add(float *sums, const uint16_t *symbols, const float *table, uint32_t table_n, size_t n)
{
    (void)table_n;
    for (size_t i = 0; i < n; i++) {
        sums[i] += table[symbols[i]];
    }
}

TG_TARGET static void round_between(uint16_t *symbols, const float *values, const uint32_t *draws, const float *bounds,
                                    uint32_t bound_n, float scale, size_t n)
{
    enum { PIECE = 1024 };
    for (size_t at = 0; at < n; at += PIECE) {
        size_t end = n - at < PIECE ? n : at + PIECE;
        for (size_t i = at; i < end; i++) {
            symbols[i] = 0;
        }
        for (uint32_t b = 1; b + 1 < bound_n; b++) {
            for (size_t i = at; i < end; i++) {
                symbols[i] = (uint16_t)(symbols[i] + (bounds[b] <= values[i] * scale ? 1 : 0));
            }
        }
        for (size_t i = at; i < end; i++) {
            float low = bounds[symbols[i]], width = bounds[symbols[i] + 1] - low;
            uint16_t up = unit_of(draws[i]) * width < values[i] * scale - low ? 1 : 0;
            symbols[i] = (uint16_t)(symbols[i] + up);
        }
    }
}

#endif
