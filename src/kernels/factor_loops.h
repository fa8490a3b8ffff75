/* Products with the factors of a low-rank exchange, over vectors of TG_LANES floats that compilers map to registers; see
 * loops.h. Every sum has the order that factors.h gives, whatever TG_LANES is. */
#ifndef TG_KERNELS_FACTOR_LOOPS_H
#define TG_KERNELS_FACTOR_LOOPS_H

#include "kernels/factor_columns.h"
#include "kernels/factor_vectors.h"

/* ---- M Q ------------------------------------------------------------------------------------------------------------- */

/* What leaf_sums computes at a time; constants where it is inlined. */
typedef struct leaf_shape {
    size_t row_n, k_n; /* rows of M, at most four, and of the factor, one or four */
    size_t sweep;      /* vectors of partial sums */
    bool fed, checks;  /* adds the residual; looks for magnitudes above the limit */
    bool keeps;        /* writes M to `kept` */
} leaf_shape;

/* Adds TG_SUMS columns of row_n rows, times k_n rows of a factor, to the vectors of a sweep. `beyond` gets a negative lane where a
 * magnitude is above the limit. Only the first rows of a factor check, and find M in memory rather than in a cache. */
TG_FACTOR_INLINE void add_products(vector sums[4][4][SWEEP], integers *beyond, float *kept, const tg_matrix *m,
                                   size_t at, const float *factor, size_t stride, int32_t limit, const leaf_shape s)
{
    for (size_t v = 0; v < s.sweep; v++) {
        vector factors[4];
        for (size_t k = 0; k < s.k_n; k++) {
            factors[k] = *(const vector *)(factor + k * stride + v * TG_LANES);
        }
        for (size_t i = 0; i < s.row_n; i++) {
            size_t here = at + i * m->stride + v * TG_LANES;
            vector value = *(const vector *)(m->values + here);
            if (s.fed) {
                value += m->decay * *(const vector *)(m->residual + here);
            }
            if (s.checks) {
                prefetch(m->values + here);
                *beyond |= limit - ((integers)value & 0x7fffffff);
            }
            if (s.checks && s.fed) {
                prefetch(m->residual + here);
            }
            if (s.keeps) {
                *(vector *)(kept + i * TG_LEAF + v * TG_LANES) = value;
            }
            for (size_t k = 0; k < s.k_n; k++) {
                sums[i][k][v] += value * factors[k];
            }
        }
    }
}

/* The last columns of a leaf, fewer than TG_SUMS, followed by zeros. These change no partial sum, since none is -0. */
typedef struct leaf_end {
    float values[4][TG_SUMS], residuals[4][TG_SUMS], factors[4][TG_SUMS];
} leaf_end;

TG_FACTOR_INLINE void copy_end(leaf_end *end, const tg_matrix *m, size_t at, const float *factor, size_t stride,
                               size_t n, const leaf_shape s)
{
    memset(end, 0, sizeof *end);
    for (size_t i = 0; i < s.row_n; i++) {
        memcpy(end->values[i], m->values + at + i * m->stride, n * sizeof(float));
        if (s.fed) {
            memcpy(end->residuals[i], m->residual + at + i * m->stride, n * sizeof(float));
        }
    }
    for (size_t k = 0; k < s.k_n; k++) {
        memcpy(end->factors[k], factor + k * stride, n * sizeof(float));
    }
}

/* The sums of a leaf for rows of M, from row `first` on, and rows of a factor. `kept`: TG_LEAF columns for each row, if s.keeps. */
TG_FACTOR_INLINE bool leaf_sums(float *out, float *kept, const tg_matrix *m, size_t first, const float *factor,
                                size_t stride, uint32_t rank, int32_t limit, size_t n, const leaf_shape s)
{
    vector parts[16][VECTORS];
    float folded[16];
    integers beyond = {0};
    leaf_end end;
    const tg_matrix rest = {&end.values[0][0], &end.residuals[0][0], m->decay, TG_SUMS};
    size_t at = first * m->stride, whole = n / TG_SUMS * TG_SUMS;
    if (whole < n) {
        copy_end(&end, m, at + whole, factor + whole, stride, n - whole, s);
    }
    for (size_t lane = 0; lane < TG_SUMS; lane += s.sweep * TG_LANES) {
        vector sums[4][4][SWEEP];
        for (size_t i = 0; i < s.row_n; i++) {
            for (size_t k = 0; k < s.k_n; k++) {
                for (size_t v = 0; v < s.sweep; v++) {
                    sums[i][k][v] = (vector){0};
                }
            }
        }
        for (size_t j = lane; j < whole; j += TG_SUMS) {
            add_products(sums, &beyond, kept + j, m, at + j, factor + j, stride, limit, s);
        }
        if (whole < n) {
            add_products(sums, &beyond, kept + whole + lane, &rest, lane, end.factors[0] + lane, TG_SUMS, limit, s);
        }
        for (size_t i = 0; i < s.row_n; i++) {
            for (size_t k = 0; k < s.k_n; k++) {
                for (size_t v = 0; v < s.sweep; v++) {
                    parts[i * s.k_n + k][lane / TG_LANES + v] = sums[i][k][v];
                }
            }
        }
    }
    fold(folded, parts, s.row_n * s.k_n);
    for (size_t i = 0; i < s.row_n; i++) {
        for (size_t k = 0; k < s.k_n; k++) {
            out[(first + i) * rank + k] = folded[i * s.k_n + k];
        }
    }
    int32_t lanes[TG_LANES], any = 0;
    memcpy(lanes, &beyond, sizeof lanes);
    for (size_t l = 0; l < TG_LANES; l++) {
        any |= lanes[l];
    }
    return any < 0;
}

/* All rows of the factor: four at a time, then the rest one by one. */
TG_FACTOR_INLINE bool low_leaf_sums(float *sums, const tg_matrix *m, size_t first, const float *factor, size_t stride,
                                    uint32_t rank, int32_t limit, size_t n, size_t row_n, bool fed)
{
    const leaf_shape four = {row_n, 4, SWEEP, fed, true, false}, more = {row_n, 4, SWEEP, fed, false, false};
    const leaf_shape one = {row_n, 1, SWEEP, fed, true, false};
    bool beyond = false;
    uint32_t k = 0;
    for (; rank - k >= 4; k += 4) {
        beyond |= k == 0 ? leaf_sums(sums, NULL, m, first, factor, stride, rank, limit, n, four)
                         : leaf_sums(sums + k, NULL, m, first, factor + k * stride, stride, rank, limit, n, more);
    }
    for (; k < rank; k++) {
        beyond |= leaf_sums(sums + k, NULL, m, first, factor + k * stride, stride, rank, limit, n, one);
    }
    return beyond;
}

/* The same for a high rank, where M with its residual is kept for all but the first rows of the factor. */
TG_FACTOR_INLINE bool high_leaf_sums(float *sums, const tg_matrix *m, size_t first, const float *factor, size_t stride,
                                     uint32_t rank, int32_t limit, size_t n, size_t row_n, bool fed)
{
    const leaf_shape four = {row_n, 4, 1, fed, true, fed}, more = {row_n, 4, 1, false, false, false};
    const leaf_shape one = {row_n, 1, 1, false, false, false};
    float kept[TALL * TG_LEAF];
    bool beyond = leaf_sums(sums, kept, m, first, factor, stride, rank, limit, n, four);
    const tg_matrix rows = {fed ? kept : m->values + first * m->stride, NULL, 0, fed ? (size_t)TG_LEAF : m->stride};
    uint32_t k = 4;
    sums += first * rank;
    for (; rank - k >= 4; k += 4) {
        (void)leaf_sums(sums + k, NULL, &rows, 0, factor + k * stride, stride, rank, limit, n, more);
    }
    for (; k < rank; k++) {
        (void)leaf_sums(sums + k, NULL, &rows, 0, factor + k * stride, stride, rank, limit, n, one);
    }
    return beyond;
}

TG_FACTOR_INLINE bool multiply_as(float *sums, const tg_matrix *m, size_t row_n, const float *factor, size_t stride,
                                  uint32_t rank, int32_t limit, size_t n, bool fed)
{
    bool beyond = false;
    size_t i = 0;
    for (; rank >= HIGH_RANK && row_n - i >= TALL; i += TALL) {
        beyond |= high_leaf_sums(sums, m, i, factor, stride, rank, limit, n, TALL, fed);
    }
    for (; rank < HIGH_RANK && row_n - i >= 2; i += 2) {
        beyond |= low_leaf_sums(sums, m, i, factor, stride, rank, limit, n, 2, fed);
    }
    for (; i < row_n; i++) {
        beyond |= low_leaf_sums(sums, m, i, factor, stride, rank, limit, n, 1, fed);
    }
    return beyond;
}

TG_TARGET static bool multiply(float *sums, const tg_matrix *m, size_t row_n, const float *factor, size_t stride,
                               uint32_t rank, uint32_t limit_key, size_t n)
{
    int32_t limit = (int32_t)limit_key;
    return m->residual != NULL ? multiply_as(sums, m, row_n, factor, stride, rank, limit, n, true)
                               : multiply_as(sums, m, row_n, factor, stride, rank, limit, n, false);
}

/* ---- vectors times numbers ------------------------------------------------------------------------------------------- */

/* Rows of vectors, which may have a residual, and for each sum a row of numbers; both have term_n terms. */
typedef struct terms {
    tg_matrix rows;
    const float *numbers;
    size_t number_stride, term_n;
} terms;

/* sums[a][v]: adds number a of every term times vector v of the term, from term `first` on. a_n is at most four and v_n STRIP; both
 * are constants where this is inlined. If `kept` is not NULL, the vectors have a residual, and their sum is written there; and the
 * next TG_LEAF_ROWS rows are prefetched, which may be past the end. */
TG_FACTOR_INLINE void add_terms(vector sums[4][STRIP], float *kept, const terms *t, size_t first, size_t a_n,
                                size_t v_n)
{
    for (size_t i = first; i < t->term_n; i++) {
        vector values[STRIP];
        for (size_t v = 0; v < v_n; v++) {
            size_t at = i * t->rows.stride + v * TG_LANES;
            values[v] = *(const vector *)(t->rows.values + at);
            if (kept != NULL) {
                uintptr_t later = (at + TG_LEAF_ROWS * t->rows.stride) * sizeof(float);
                __builtin_prefetch((const void *)((uintptr_t)t->rows.values + later));
                __builtin_prefetch((const void *)((uintptr_t)t->rows.residual + later));
                values[v] += t->rows.decay * *(const vector *)(t->rows.residual + at);
                *(vector *)(kept + i * STRIP * TG_LANES + v * TG_LANES) = values[v];
            }
        }
        for (size_t a = 0; a < a_n; a++) {
            float number = t->numbers[a * t->number_stride + i];
            for (size_t v = 0; v < v_n; v++) {
                sums[a][v] += values[v] * number;
            }
        }
    }
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

/* For a high rank: v_n vectors of k_n rows of sums stay in registers for all rows of M. */
TG_FACTOR_INLINE void add_strip(float *sums, size_t sum_stride, float *kept, const terms *t, size_t k_n, size_t v_n)
{
    vector strip[4][STRIP];
    for (size_t k = 0; k < k_n; k++) {
        for (size_t v = 0; v < v_n; v++) {
            strip[k][v] = *(const vector *)(sums + k * sum_stride + v * TG_LANES);
        }
    }
    add_terms(strip, kept, t, 0, k_n, v_n);
    for (size_t k = 0; k < k_n; k++) {
        for (size_t v = 0; v < v_n; v++) {
            *(vector *)(sums + k * sum_stride + v * TG_LANES) = strip[k][v];
        }
    }
}

/* All rows of the factor. M with its residual is kept for all but the first four. */
TG_FACTOR_INLINE void add_strips(float *sums, size_t sum_stride, terms t, uint32_t rank, size_t v_n, bool fed)
{
    float kept[TG_LEAF_ROWS * STRIP * TG_LANES];
    uint32_t k = 4;
    add_strip(sums, sum_stride, fed ? kept : NULL, &t, 4, v_n);
    if (fed) {
        t.rows = (tg_matrix){.values = kept, .stride = STRIP * TG_LANES};
    }
    for (t.numbers += 4 * t.number_stride; rank - k >= 4; k += 4, t.numbers += 4 * t.number_stride) {
        add_strip(sums + k * sum_stride, sum_stride, NULL, &t, 4, v_n);
    }
    for (; k < rank; k++, t.numbers += t.number_stride) {
        add_strip(sums + k * sum_stride, sum_stride, NULL, &t, 1, v_n);
    }
}

/* At most TG_LEAF_ROWS rows. */
TG_FACTOR_INLINE void multiply_back_high(float *sums, size_t sum_stride, const tg_matrix *m, size_t row_n,
                                         const float *factor, size_t stride, uint32_t rank, size_t n, bool fed)
{
    terms t = {*m, factor, stride, row_n};
    size_t j = 0;
    for (; n - j >= STRIP * TG_LANES; j += STRIP * TG_LANES) {
        t.rows.values = m->values + j;
        t.rows.residual = fed ? m->residual + j : NULL;
        add_strips(sums + j, sum_stride, t, rank, STRIP, fed);
    }
    for (; n - j >= TG_LANES; j += TG_LANES) {
        t.rows.values = m->values + j;
        t.rows.residual = fed ? m->residual + j : NULL;
        add_strips(sums + j, sum_stride, t, rank, 1, fed);
    }
    for (; j < n; j++) {
        for (size_t i = 0; i < row_n; i++) {
            float value = m->values[i * m->stride + j];
            value += fed ? m->decay * m->residual[i * m->stride + j] : 0;
            for (uint32_t k = 0; k < rank; k++) {
                sums[k * sum_stride + j] += value * factor[k * stride + i];
            }
        }
    }
}

TG_TARGET static void multiply_back(float *sums, size_t sum_stride, const tg_matrix *m, size_t row_n,
                                    const float *factor, size_t stride, uint32_t rank, size_t n)
{
    tg_matrix rows = *m;
    if (rank >= HIGH_RANK) {
        m->residual != NULL ? multiply_back_high(sums, sum_stride, m, row_n, factor, stride, rank, n, true)
                            : multiply_back_high(sums, sum_stride, m, row_n, factor, stride, rank, n, false);
        return;
    }
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

/* row_n rows, at most four. `fed`: the residual is part of M; `kept`: there is a residual to write. */
typedef struct expand_shape {
    size_t row_n;
    bool fed, kept;
} expand_shape;

/* v_n vectors of these rows. */
TG_FACTOR_INLINE void expand_strip(float *averages, float *residual, const tg_matrix m, const terms *t, size_t j,
                                   const expand_shape s, size_t v_n)
{
    vector sums[4][STRIP];
    UNROLL for (size_t i = 0; i < s.row_n; i++)
    {
        UNROLL for (size_t v = 0; v < v_n; v++)
        {
            size_t at = i * m.stride + j + v * TG_LANES;
            sums[i][v] = *(const vector *)(t->rows.values + v * TG_LANES) * t->numbers[i * t->number_stride];
            if (s.kept) {
                __builtin_prefetch(m.values + at);
            }
            if (s.fed) {
                __builtin_prefetch(m.residual + at);
            }
        }
    }
    add_terms(sums, NULL, t, 1, s.row_n, v_n);
    UNROLL for (size_t i = 0; i < s.row_n; i++)
    {
        UNROLL for (size_t v = 0; v < v_n; v++)
        {
            size_t at = i * m.stride + j + v * TG_LANES;
            if (s.kept) {
                vector value = *(const vector *)(m.values + at);
                if (s.fed) {
                    value += m.decay * *(const vector *)(m.residual + at);
                }
                *(vector *)(residual + at) = value - sums[i][v];
            }
            *(vector *)(averages + at) = sums[i][v];
        }
    }
}

TG_FACTOR_INLINE void expand_rows(float *averages, float *residual, const tg_matrix *m, const float *weights,
                                  const float *factor, size_t stride, uint32_t rank, size_t n, const expand_shape s)
{
    terms t = {{.values = factor, .stride = stride}, weights, rank, rank};
    size_t j = 0;
    for (; n - j >= STRIP * TG_LANES; j += STRIP * TG_LANES, t.rows.values += STRIP * TG_LANES) {
        expand_strip(averages, residual, *m, &t, j, s, STRIP);
    }
    for (; n - j >= TG_LANES; j += TG_LANES, t.rows.values += TG_LANES) {
        expand_strip(averages, residual, *m, &t, j, s, 1);
    }
    for (; j < n; j++) {
        for (size_t i = 0; i < s.row_n; i++) {
            size_t at = i * m->stride + j;
            float sum = weights[i * rank] * factor[j];
            for (uint32_t k = 1; k < rank; k++) {
                sum += weights[i * rank + k] * factor[k * stride + j];
            }
            if (s.kept) {
                float value = m->values[at];
                value = s.fed ? value + m->decay * m->residual[at] : value;
                residual[at] = value - sum;
            }
            averages[at] = sum;
        }
    }
}

TG_FACTOR_INLINE void expand_as(float *averages, float *residual, const tg_matrix *m, const float *weights,
                                const float *factor, size_t stride, uint32_t rank, size_t n, size_t row_n)
{
    const expand_shape none = {row_n, false, false}, kept = {row_n, false, true}, fed = {row_n, true, true};
    if (residual == NULL) {
        expand_rows(averages, residual, m, weights, factor, stride, rank, n, none);
    } else if (m->residual == NULL) {
        expand_rows(averages, residual, m, weights, factor, stride, rank, n, kept);
    } else {
        expand_rows(averages, residual, m, weights, factor, stride, rank, n, fed);
    }
}

TG_TARGET static void expand(float *averages, float *residual, const tg_matrix *m, size_t row_n, const float *weights,
                             const float *factor, size_t stride, uint32_t rank, size_t n)
{
    switch (row_n) {
    case 1: expand_as(averages, residual, m, weights, factor, stride, rank, n, 1); break;
    case 2: expand_as(averages, residual, m, weights, factor, stride, rank, n, 2); break;
    case 3: expand_as(averages, residual, m, weights, factor, stride, rank, n, 3); break;
    default: expand_as(averages, residual, m, weights, factor, stride, rank, n, 4); break;
    }
}

#endif
