/* Products with the factors of a low-rank exchange, over vectors of TG_LANES floats that compilers map to registers; see
 * loops.h. Every sum has the order that factors.h gives, whatever TG_LANES is. */
#ifndef TG_KERNELS_FACTOR_LOOPS_H
#define TG_KERNELS_FACTOR_LOOPS_H

#include "base/half.h"
#include "kernels/factors.h"

#include <string.h>

#define TG_FACTOR_INLINE static inline __attribute__((always_inline)) TG_TARGET

/* Vectors that hold the partial sums of a leaf, and those that one sweep over its columns computes: as many as have registers for
 * two rows of M times four rows of a factor. */
enum { VECTORS = TG_SUMS / TG_LANES, SWEEP = TG_LANES == 8 ? 1 : 2 };

typedef float vector __attribute__((vector_size(4 * TG_LANES), aligned(4), may_alias));
typedef int32_t integers __attribute__((vector_size(4 * TG_LANES), aligned(4), may_alias));
typedef float half_vector __attribute__((vector_size(2 * TG_LANES), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(4 * TG_LANES), aligned(8), may_alias));

/* Prefetches a page later than `at`, which may be past the end. The arithmetic fills the queues of a core, so that loads by
 * themselves do not run far ahead of it. */
TG_FACTOR_INLINE void prefetch(const float *at)
{
    __builtin_prefetch((const void *)((uintptr_t)at + 4096));
}

/* ---- M Q ------------------------------------------------------------------------------------------------------------- */

/* Adds TG_SUMS columns of row_n rows, times k_n rows of a factor, to SWEEP vectors of their partial sums. `beyond` gets a
 * negative lane where a magnitude is above the limit. Counts and conditions are constants where this is inlined. */
TG_FACTOR_INLINE void add_products(vector sums[2][4][SWEEP], integers *beyond, const tg_matrix *m, size_t at,
                                   const float *factor, size_t stride, int32_t limit, size_t row_n, size_t k_n,
                                   bool fed, bool checks)
{
    for (size_t v = 0; v < SWEEP; v++) {
        vector factors[4];
        for (size_t k = 0; k < k_n; k++) {
            factors[k] = *(const vector *)(factor + k * stride + v * TG_LANES);
        }
        for (size_t i = 0; i < row_n; i++) {
            size_t here = at + i * m->stride + v * TG_LANES;
            vector value = *(const vector *)(m->values + here);
            prefetch(m->values + here);
            if (fed) {
                prefetch(m->residual + here);
                value += m->decay * *(const vector *)(m->residual + here);
            }
            if (checks) {
                *beyond |= limit - ((integers)value & 0x7fffffff);
            }
            for (size_t k = 0; k < k_n; k++) {
                sums[i][k][v] += value * factors[k];
            }
        }
    }
}

/* The last columns of a leaf, fewer than TG_SUMS, followed by zeros. These change no partial sum, since none is -0. */
typedef struct leaf_end {
    float values[2][TG_SUMS], residuals[2][TG_SUMS], factors[4][TG_SUMS];
} leaf_end;

TG_FACTOR_INLINE void copy_end(leaf_end *end, const tg_matrix *m, size_t at, const float *factor, size_t stride,
                               size_t n, size_t row_n, size_t k_n, bool fed)
{
    memset(end, 0, sizeof *end);
    for (size_t i = 0; i < row_n; i++) {
        memcpy(end->values[i], m->values + at + i * m->stride, n * sizeof(float));
        if (fed) {
            memcpy(end->residuals[i], m->residual + at + i * m->stride, n * sizeof(float));
        }
    }
    for (size_t k = 0; k < k_n; k++) {
        memcpy(end->factors[k], factor + k * stride, n * sizeof(float));
    }
}

TG_FACTOR_INLINE void fold_half(float *sums, size_t half)
{
    for (size_t l = 0; l < half; l++) {
        sums[l] += sums[l + half];
    }
}

/* The sum of TG_SUMS partial sums, folded by halves. */
TG_FACTOR_INLINE float fold(const vector parts[VECTORS])
{
    float sums[TG_SUMS];
    memcpy(sums, parts, sizeof sums);
    fold_half(sums, 16);
    fold_half(sums, 8);
    fold_half(sums, 4);
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

/* The sums of a leaf for row_n rows of M, from row `first` on, and k_n rows of a factor. */
TG_FACTOR_INLINE bool leaf_sums(float *out, const tg_matrix *m, size_t first, const float *factor, size_t stride,
                                uint32_t rank, int32_t limit, size_t n, size_t row_n, size_t k_n, bool fed, bool checks)
{
    vector parts[2][4][VECTORS];
    integers beyond = {0};
    leaf_end end;
    const tg_matrix rest = {&end.values[0][0], &end.residuals[0][0], m->decay, TG_SUMS};
    size_t at = first * m->stride, whole = n / TG_SUMS * TG_SUMS;
    if (whole < n) {
        copy_end(&end, m, at + whole, factor + whole, stride, n - whole, row_n, k_n, fed);
    }
    for (size_t lane = 0; lane < TG_SUMS; lane += SWEEP * TG_LANES) {
        vector sums[2][4][SWEEP];
        for (size_t i = 0; i < row_n; i++) {
            for (size_t k = 0; k < k_n; k++) {
                for (size_t v = 0; v < SWEEP; v++) {
                    sums[i][k][v] = (vector){0};
                }
            }
        }
        for (size_t j = lane; j < whole; j += TG_SUMS) {
            add_products(sums, &beyond, m, at + j, factor + j, stride, limit, row_n, k_n, fed, checks);
        }
        if (whole < n) {
            add_products(sums, &beyond, &rest, lane, end.factors[0] + lane, TG_SUMS, limit, row_n, k_n, fed, checks);
        }
        for (size_t i = 0; i < row_n; i++) {
            for (size_t k = 0; k < k_n; k++) {
                memcpy(&parts[i][k][lane / TG_LANES], sums[i][k], sizeof sums[i][k]);
            }
        }
    }
    for (size_t i = 0; i < row_n; i++) {
        for (size_t k = 0; k < k_n; k++) {
            out[(first + i) * rank + k] = fold(parts[i][k]);
        }
    }
    int32_t lanes[TG_LANES], any = 0;
    memcpy(lanes, &beyond, sizeof lanes);
    for (size_t l = 0; l < TG_LANES; l++) {
        any |= lanes[l];
    }
    return any < 0;
}

/* All rows of M: four rows of the factor at a time, then the rest one by one. */
TG_FACTOR_INLINE bool all_leaf_sums(float *sums, const tg_matrix *m, size_t first, const float *factor, size_t stride,
                                    uint32_t rank, int32_t limit, size_t n, size_t row_n, bool fed)
{
    bool beyond = false;
    uint32_t k = 0;
    for (; rank - k >= 4; k += 4) {
        beyond |=
            k == 0 ? leaf_sums(sums, m, first, factor, stride, rank, limit, n, row_n, 4, fed, true)
                   : leaf_sums(sums + k, m, first, factor + k * stride, stride, rank, limit, n, row_n, 4, fed, false);
    }
    for (; k < rank; k++) {
        beyond |= leaf_sums(sums + k, m, first, factor + k * stride, stride, rank, limit, n, row_n, 1, fed, true);
    }
    return beyond;
}

TG_TARGET static bool multiply(float *sums, const tg_matrix *m, size_t row_n, const float *factor, size_t stride,
                               uint32_t rank, uint32_t limit_key, size_t n)
{
    bool beyond = false;
    int32_t limit = (int32_t)limit_key;
    size_t i = 0;
    for (; row_n - i >= 2; i += 2) {
        beyond |= m->residual != NULL ? all_leaf_sums(sums, m, i, factor, stride, rank, limit, n, 2, true)
                                      : all_leaf_sums(sums, m, i, factor, stride, rank, limit, n, 2, false);
    }
    if (i < row_n) {
        beyond |= m->residual != NULL ? all_leaf_sums(sums, m, i, factor, stride, rank, limit, n, 1, true)
                                      : all_leaf_sums(sums, m, i, factor, stride, rank, limit, n, 1, false);
    }
    return beyond;
}

/* ---- M' P ------------------------------------------------------------------------------------------------------------ */

/* Adds row_n rows of M, times k_n rows of a factor, to k_n rows of sums. */
TG_FACTOR_INLINE void add_rows(float *sums, size_t sum_stride, const tg_matrix *m, const float *factor, size_t stride,
                               size_t n, size_t row_n, size_t k_n, bool fed)
{
    float weights[4][4];
    size_t j = 0;
    for (size_t i = 0; i < row_n; i++) {
        for (size_t k = 0; k < k_n; k++) {
            weights[i][k] = factor[k * stride + i];
        }
    }
    for (; n - j >= TG_LANES; j += TG_LANES) {
        vector sum[4];
        for (size_t k = 0; k < k_n; k++) {
            sum[k] = *(const vector *)(sums + k * sum_stride + j);
        }
        for (size_t i = 0; i < row_n; i++) {
            vector value = *(const vector *)(m->values + i * m->stride + j);
            prefetch(m->values + i * m->stride + j);
            if (fed) {
                prefetch(m->residual + i * m->stride + j);
                value += m->decay * *(const vector *)(m->residual + i * m->stride + j);
            }
            for (size_t k = 0; k < k_n; k++) {
                sum[k] += value * weights[i][k];
            }
        }
        for (size_t k = 0; k < k_n; k++) {
            *(vector *)(sums + k * sum_stride + j) = sum[k];
        }
    }
    for (; j < n; j++) {
        for (size_t i = 0; i < row_n; i++) {
            float value = m->values[i * m->stride + j];
            value += fed ? m->decay * m->residual[i * m->stride + j] : 0;
            for (size_t k = 0; k < k_n; k++) {
                sums[k * sum_stride + j] += value * weights[i][k];
            }
        }
    }
}

TG_FACTOR_INLINE void add_all_rows(float *sums, size_t sum_stride, const tg_matrix *m, const float *factor,
                                   size_t stride, uint32_t rank, size_t n, size_t row_n, bool fed)
{
    uint32_t k = 0;
    for (; rank - k >= 4; k += 4) {
        add_rows(sums + k * sum_stride, sum_stride, m, factor + k * stride, stride, n, row_n, 4, fed);
    }
    for (; k < rank; k++) {
        add_rows(sums + k * sum_stride, sum_stride, m, factor + k * stride, stride, n, row_n, 1, fed);
    }
}

TG_TARGET static void multiply_back(float *sums, size_t sum_stride, const tg_matrix *m, size_t row_n,
                                    const float *factor, size_t stride, uint32_t rank, size_t n)
{
    tg_matrix rows = *m;
    for (size_t i = 0, step; i < row_n; i += step) {
        step = row_n - i >= 4 ? 4 : 1;
        rows.values = m->values + i * m->stride;
        if (m->residual == NULL) {
            step == 4 ? add_all_rows(sums, sum_stride, &rows, factor + i, stride, rank, n, 4, false)
                      : add_all_rows(sums, sum_stride, &rows, factor + i, stride, rank, n, 1, false);
        } else {
            rows.residual = m->residual + i * m->stride;
            step == 4 ? add_all_rows(sums, sum_stride, &rows, factor + i, stride, rank, n, 4, true)
                      : add_all_rows(sums, sum_stride, &rows, factor + i, stride, rank, n, 1, true);
        }
    }
}

/* ---- P Q' ------------------------------------------------------------------------------------------------------------ */

/* row_n rows. `fed`: the residual is part of M; `kept`: there is a residual to write. */
TG_FACTOR_INLINE void expand_rows(float *averages, float *residual, const tg_matrix *m, const float *weights,
                                  const float *factor, size_t stride, uint32_t rank, size_t n, size_t row_n, bool fed,
                                  bool kept)
{
    size_t j = 0;
    for (; n - j >= TG_LANES; j += TG_LANES) {
        vector sums[2], first = *(const vector *)(factor + j);
        for (size_t i = 0; i < row_n; i++) {
            sums[i] = weights[i * rank] * first;
        }
        for (uint32_t k = 1; k < rank; k++) {
            vector next = *(const vector *)(factor + k * stride + j);
            for (size_t i = 0; i < row_n; i++) {
                sums[i] += weights[i * rank + k] * next;
            }
        }
        for (size_t i = 0; i < row_n; i++) {
            size_t at = i * m->stride + j;
            if (kept) {
                vector value = *(const vector *)(m->values + at);
                if (fed) {
                    value += m->decay * *(const vector *)(m->residual + at);
                }
                *(vector *)(residual + at) = value - sums[i];
            }
            *(vector *)(averages + at) = sums[i];
        }
    }
    for (; j < n; j++) {
        for (size_t i = 0; i < row_n; i++) {
            size_t at = i * m->stride + j;
            float sum = weights[i * rank] * factor[j];
            for (uint32_t k = 1; k < rank; k++) {
                sum += weights[i * rank + k] * factor[k * stride + j];
            }
            if (kept) {
                float value = m->values[at];
                value = fed ? value + m->decay * m->residual[at] : value;
                residual[at] = value - sum;
            }
            averages[at] = sum;
        }
    }
}

TG_FACTOR_INLINE void expand_as(float *averages, float *residual, const tg_matrix *m, const float *weights,
                                const float *factor, size_t stride, uint32_t rank, size_t n, size_t row_n)
{
    if (residual == NULL) {
        expand_rows(averages, residual, m, weights, factor, stride, rank, n, row_n, false, false);
    } else if (m->residual == NULL) {
        expand_rows(averages, residual, m, weights, factor, stride, rank, n, row_n, false, true);
    } else {
        expand_rows(averages, residual, m, weights, factor, stride, rank, n, row_n, true, true);
    }
}

TG_TARGET static void expand(float *averages, float *residual, const tg_matrix *m, size_t row_n, const float *weights,
                             const float *factor, size_t stride, uint32_t rank, size_t n)
{
    if (row_n == 2 && rank == 4) { /* the default: its weights stay in registers */
        expand_as(averages, residual, m, weights, factor, stride, 4, n, 2);
    } else if (row_n == 2) {
        expand_as(averages, residual, m, weights, factor, stride, rank, n, 2);
    } else {
        expand_as(averages, residual, m, weights, factor, stride, rank, n, 1);
    }
}

/* ---- columns of P ---------------------------------------------------------------------------------------------------- */

TG_TARGET static double dot(const float *a, const float *b, size_t n)
{
    doubles parts[2 * VECTORS] = {{0}};
    double sums[TG_SUMS];
    size_t i = 0;
    for (; n - i >= TG_SUMS; i += TG_SUMS) {
        for (size_t v = 0; v < 2 * VECTORS; v++) {
            size_t at = i + v * (TG_LANES / 2);
            parts[v] += __builtin_convertvector(*(const half_vector *)(a + at), doubles) *
                        __builtin_convertvector(*(const half_vector *)(b + at), doubles);
        }
    }
    memcpy(sums, parts, sizeof sums);
    for (size_t l = 0; i < n; i++, l++) {
        sums[l] += (double)a[i] * (double)b[i];
    }
    for (size_t half = TG_SUMS / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) {
            sums[l] += sums[l + half];
        }
    }
    return sums[0];
}

TG_TARGET static void project(float *column, const float *others, size_t stride, const double *shares, uint32_t other_n,
                              size_t n)
{
    size_t i = 0;
    for (; n - i >= TG_LANES / 2; i += TG_LANES / 2) {
        doubles value = __builtin_convertvector(*(const half_vector *)(column + i), doubles);
        for (uint32_t b = 0; b < other_n; b++) {
            value -= shares[b] * __builtin_convertvector(*(const half_vector *)(others + b * stride + i), doubles);
        }
        *(half_vector *)(column + i) = __builtin_convertvector(value, half_vector);
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
