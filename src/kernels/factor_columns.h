/* Dot products and projections of the columns of P, in binary64; see factor_loops.h. */
#ifndef TG_KERNELS_FACTOR_COLUMNS_H
#define TG_KERNELS_FACTOR_COLUMNS_H

#include "kernels/factor_vectors.h"

TG_FACTOR_INLINE doubles widen(const float *at)
{
    return __builtin_convertvector(*(const half_vector *)at, doubles);
}

/* Folds the partial sums of one dot product, of which those in front of `end` are complete. */
TG_FACTOR_INLINE double fold_doubles(const doubles parts[2 * VECTORS], const float *a, const float *b, size_t end)
{
    double sums[TG_SUMS];
    memcpy(sums, parts, sizeof sums);
    for (size_t l = 0; l < end; l++) {
        sums[l] += (double)a[l] * (double)b[l];
    }
    for (size_t half = TG_SUMS / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) {
            sums[l] += sums[l + half];
        }
    }
    return sums[0];
}

/* other_n is constant where this is inlined. */
TG_FACTOR_INLINE void some_dots(double *sums, const float *column, const float *others, size_t stride, uint32_t other_n,
                                size_t n)
{
    doubles parts[4][2 * VECTORS] = {{{0}}};
    size_t whole = n / TG_SUMS * TG_SUMS;
    for (size_t v = 0; v < 2 * VECTORS; v += DOT_SWEEP) {
        doubles some[4][DOT_SWEEP] = {{{0}}};
        for (size_t i = v * (TG_LANES / 2); i < whole; i += TG_SUMS) {
            for (size_t s = 0; s < DOT_SWEEP; s++) {
                size_t at = i + s * (TG_LANES / 2);
                doubles value = widen(column + at);
                for (uint32_t b = 0; b < other_n; b++) {
                    some[b][s] += value * widen(others + b * stride + at);
                }
            }
        }
        for (uint32_t b = 0; b < other_n; b++) {
            memcpy(&parts[b][v], some[b], sizeof some[b]);
        }
    }
    for (uint32_t b = 0; b < other_n; b++) {
        sums[b] = fold_doubles(parts[b], column + whole, others + b * stride + whole, n - whole);
    }
}

TG_TARGET static void dots(double *sums, const float *column, const float *others, size_t stride, uint32_t other_n,
                           size_t n)
{
    if (other_n == 4) {
        some_dots(sums, column, others, stride, 4, n);
        return;
    }
    for (uint32_t b = 0; b < other_n; b++) {
        some_dots(sums + b, column, others + b * stride, stride, 1, n);
    }
}

/* Four vectors at a time, whose subtractions do not wait for each other. */
TG_FACTOR_INLINE void project_some(float *column, const float *others, size_t stride, const double *shares,
                                   uint32_t other_n, size_t v_n)
{
    doubles values[4];
    for (size_t v = 0; v < v_n; v++) {
        values[v] = widen(column + v * (TG_LANES / 2));
    }
    for (uint32_t b = 0; b < other_n; b++) {
        for (size_t v = 0; v < v_n; v++) {
            values[v] -= shares[b] * widen(others + b * stride + v * (TG_LANES / 2));
        }
    }
    for (size_t v = 0; v < v_n; v++) {
        *(half_vector *)(column + v * (TG_LANES / 2)) = __builtin_convertvector(values[v], half_vector);
    }
}

TG_TARGET static void project(float *column, const float *others, size_t stride, const double *shares, uint32_t other_n,
                              size_t n)
{
    size_t i = 0;
    for (; n - i >= 2 * TG_LANES; i += 2 * TG_LANES) {
        project_some(column + i, others + i, stride, shares, other_n, 4);
    }
    for (; n - i >= TG_LANES / 2; i += TG_LANES / 2) {
        project_some(column + i, others + i, stride, shares, other_n, 1);
    }
    for (; i < n; i++) {
        double value = (double)column[i];
        for (uint32_t b = 0; b < other_n; b++) {
            value -= shares[b] * (double)others[b * stride + i];
        }
        column[i] = (float)value;
    }
}

#endif
