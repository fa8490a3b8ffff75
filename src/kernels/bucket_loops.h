/* Quantizers and sums over buckets in plain C that compilers vectorise; see loops.h. */
#ifndef TG_KERNELS_BUCKET_LOOPS_H
#define TG_KERNELS_BUCKET_LOOPS_H

#include "base/half.h"
#include "kernels/scalar.h"

#include <math.h>

/* Random rounding goes in pieces. A piece with a value that its draw does not decide is left to the scalar kernel. */
enum { PIECE = 256 };

/* 1 if r x < y for certain, judging by the draw; *unsure counts the values for which it is not certain. */
TG_TARGET static inline int32_t is_below(uint16_t draw, float x, float y, int32_t *unsure)
{
    float low = (float)(int32_t)draw * 0x1p-16f, high = low + 0x1p-16f;
    int32_t certain = high * x < y ? 1 : 0, possible = low * x < y ? 1 : 0;
    *unsure += possible - certain;
    return certain;
}

TG_TARGET static void ternary(uint16_t *symbols, const float *values, const tg_draws *draws, float largest, size_t n)
{
    for (size_t at = 0; at < n; at += PIECE) {
        size_t end = n - at < PIECE ? n : at + PIECE;
        const uint16_t *upper = draws->upper;
        int32_t unsure = 0;
        for (size_t i = at; i < end; i++) {
            int32_t sent = is_below(upper[i], largest, fabsf(values[i]), &unsure);
            symbols[i] = (uint16_t)(1 + (values[i] < 0 ? -sent : sent));
        }
        if (unsure != 0) {
            tg_draws here = tg_draws_from(draws, at);
            tg_scalar_ternary(symbols + at, values + at, &here, largest, end - at);
        }
    }
}

TG_TARGET static void two_sided(uint16_t *symbols, const float *values, const tg_draws *draws, float level, size_t n)
{
    float half = level * 0.5f;
    for (size_t at = 0; at < n; at += PIECE) {
        size_t end = n - at < PIECE ? n : at + PIECE;
        const uint16_t *upper = draws->upper;
        int32_t unsure = 0;
        for (size_t i = at; i < end; i++) {
            symbols[i] = (uint16_t)is_below(upper[i], level, values[i] * 0.5f + half, &unsure);
        }
        if (unsure != 0) {
            tg_draws here = tg_draws_from(draws, at);
            tg_scalar_two_sided(symbols + at, values + at, &here, level, end - at);
        }
    }
}

TG_TARGET static void levels(uint16_t *symbols, const float *values, const tg_draws *draws, float shift, float factor,
                             uint32_t most, size_t n)
{
    float highest = (float)(int32_t)most;
    for (size_t at = 0; at < n; at += PIECE) {
        size_t end = n - at < PIECE ? n : at + PIECE;
        const uint16_t *upper = draws->upper;
        int32_t unsure = 0;
        for (size_t i = at; i < end; i++) {
            float place = fabsf(values[i]) * shift * factor;
            place = place < highest ? place : highest;
            int32_t below = (int32_t)place;
            int32_t level = below + is_below(upper[i], 1.0f, place - (float)below, &unsure);
            symbols[i] = (uint16_t)((int32_t)most + (values[i] < 0 ? -level : level));
        }
        if (unsure != 0) {
            tg_draws here = tg_draws_from(draws, at);
            tg_scalar_levels(symbols + at, values + at, &here, shift, factor, most, end - at);
        }
    }
}

TG_TARGET static void natural(uint16_t *symbols, const float *values, const tg_draws *draws, size_t n)
{
    for (size_t at = 0; at < n; at += PIECE) {
        size_t end = n - at < PIECE ? n : at + PIECE;
        const uint16_t *upper = draws->upper;
        uint32_t unsure = 0;
        for (size_t i = at; i < end; i++) {
            uint32_t bits = tg_float_bits(values[i]), exponent = bits >> 23 & 255;
            /* The fraction is the position between two powers of two, or between 0 and the least normal number. */
            uint32_t most = bits >> 7 & 0xffffu, up = upper[i] < most ? 1 : 0;
            unsure |= upper[i] == most ? bits & 0x7fu : 0;
            symbols[i] = (uint16_t)((bits >> 23) + (exponent < 254 ? up : 0));
        }
        if (unsure != 0) {
            tg_draws here = tg_draws_from(draws, at);
            tg_scalar_natural(symbols + at, values + at, &here, end - at);
        }
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

enum { PARTS = TG_SUM_PARTS };

TG_TARGET static size_t moments(double of[2], const float *values, size_t n)
{
    double magnitudes_of[PARTS] = {0}, squares_of[PARTS] = {0};
    uint32_t counts[PARTS] = {0};
    size_t i = 0, count = 0;
    for (; n - i >= PARTS; i += PARTS) {
        for (size_t l = 0; l < PARTS; l++) {
            double value = (double)values[i + l];
            magnitudes_of[l] += fabs(value);
            squares_of[l] += value * value;
            counts[l] += values[i + l] != 0 ? 1 : 0;
        }
    }
    for (size_t l = 0; i < n; i++, l++) {
        double value = (double)values[i];
        magnitudes_of[l] += fabs(value);
        squares_of[l] += value * value;
        counts[l] += values[i] != 0 ? 1 : 0;
    }
    for (size_t l = 0; l < PARTS; l++) {
        count += counts[l];
    }
    of[0] = tg_fold(magnitudes_of);
    of[1] = tg_fold(squares_of);
    return count;
}

TG_TARGET static double magnitudes(const float *values, size_t n)
{
    double parts[PARTS] = {0};
    size_t i = 0;
    for (; n - i >= PARTS; i += PARTS) {
        for (size_t l = 0; l < PARTS; l++) {
            parts[l] += fabs((double)values[i + l]);
        }
    }
    for (size_t l = 0; i < n; i++, l++) {
        parts[l] += fabs((double)values[i]);
    }
    return tg_fold(parts);
}

TG_TARGET static double squares(const float *values, size_t n)
{
    double parts[PARTS] = {0};
    size_t i = 0;
    for (; n - i >= PARTS; i += PARTS) {
        for (size_t l = 0; l < PARTS; l++) {
            parts[l] += (double)values[i + l] * (double)values[i + l];
        }
    }
    for (size_t l = 0; i < n; i++, l++) {
        parts[l] += (double)values[i] * (double)values[i];
    }
    return tg_fold(parts);
}

/* Multiplies by 0 or 1 instead of branching, which is exact. */
TG_TARGET static size_t sums_around(double around[2], const float *values, float threshold, float scale, size_t n)
{
    float below[PARTS] = {0}, above[PARTS] = {0};
    double wide[PARTS];
    uint32_t counts[PARTS] = {0};
    size_t i = 0, count = 0;
    for (; n - i >= PARTS; i += PARTS) {
        for (size_t l = 0; l < PARTS; l++) {
            float value = values[i + l] * scale, is_above = values[i + l] > threshold ? 1.0f : 0.0f;
            above[l] += is_above * value;
            below[l] += (1 - is_above) * value;
            counts[l] += values[i + l] > threshold ? 1 : 0;
        }
    }
    for (size_t l = 0; i < n; i++, l++) {
        bool is_above = values[i] > threshold;
        *(is_above ? &above[l] : &below[l]) += values[i] * scale;
        counts[l] += is_above ? 1 : 0;
    }
    for (size_t l = 0; l < PARTS; l++) {
        wide[l] = (double)below[l];
        count += counts[l];
    }
    around[0] = tg_fold(wide);
    for (size_t l = 0; l < PARTS; l++) {
        wide[l] = (double)above[l];
    }
    around[1] = tg_fold(wide);
    return count;
}

TG_TARGET static size_t sum_above(double *sum, const float *values, float threshold, size_t n)
{
    enum { EIGHT = 8 };
    double parts[EIGHT] = {0};
    uint32_t counts[EIGHT] = {0};
    size_t i = 0, count = 0;
    for (; n - i >= EIGHT; i += EIGHT) {
        for (size_t l = 0; l < EIGHT; l++) {
            float magnitude = fabsf(values[i + l]);
            parts[l] += (double)(magnitude > threshold ? magnitude : 0.0f);
            counts[l] += magnitude > threshold ? 1 : 0;
        }
    }
    for (size_t l = 0; l < EIGHT; l++) {
        *sum += parts[l];
        count += counts[l];
    }
    return count + tg_scalar_sum_above(sum, values + i, threshold, n - i);
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

TG_TARGET static void round_between(uint16_t *symbols, const float *values, const tg_draws *draws, const float *bounds,
                                    uint32_t bound_n, float scale, size_t n)
{
    for (size_t at = 0; at < n; at += PIECE) {
        size_t end = n - at < PIECE ? n : at + PIECE;
        const uint16_t *upper = draws->upper;
        int32_t unsure = 0;
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
            symbols[i] = (uint16_t)(symbols[i] + is_below(upper[i], width, values[i] * scale - low, &unsure));
        }
        if (unsure != 0) {
            tg_draws here = tg_draws_from(draws, at);
            tg_scalar_round_between(symbols + at, values + at, &here, bounds, bound_n, scale, end - at);
        }
    }
}

#endif
