/* The arithmetic of PowerSGD on one matrix; see factorization.h. */
#include "exec/factorization.h"

#include "base/half.h"
#include "base/philox.h"
#include "kernels/factors.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

/* Rows that are loaded at a time. Their columns are cut at leaves, so that a piece of the other factor stays in the L1 cache. For a
 * rank above LOW_RANK, products with P take TG_LEAF_ROWS rows and WIDE columns. TILE_STRIDE, from one row of such a tile to the
 * next, keeps its rows from sharing a set of the cache. */
enum { GROUP = 8, LOW_RANK = 8, WIDE = 256, TILE_STRIDE = WIDE + 16, TILE = TG_LEAF_ROWS * TILE_STRIDE };
_Static_assert((int)TILE >= GROUP * (int)TG_LEAF, "a tile has space for rows as long as a leaf");

/* ---- sums over leaves ------------------------------------------------------------------------------------------------ */

/* Adds up leaves that arrive in order, as a binary tree of neighbours. Level l holds the sum of 2^l leaves, if bit l of the number
 * of leaves is set: `width` sums side by side. */
typedef struct tree {
    float *sums;   /* the next leaf, and in the end the result */
    float *levels; /* after it */
    size_t width;
    uint64_t leaf_n;
} tree;

/* Enough levels for n numbers in leaves of `leaf`. */
static uint64_t levels_of(uint64_t n, uint64_t leaf)
{
    uint64_t levels = 1;
    for (uint64_t leaves = (n + leaf - 1) / leaf; leaves > 1; leaves /= 2) {
        levels++;
    }
    return levels;
}

static tree tree_of(float *scratch, size_t width)
{
    return (tree){.sums = scratch, .levels = scratch + width, .width = width};
}

static void tree_add(tree *t, uint64_t level)
{
    tg_kernels_best()->passes.add(t->sums, t->levels + level * t->width, 1.0f, t->width);
}

static void tree_push(tree *t)
{
    uint64_t level = 0;
    for (; (t->leaf_n >> level & 1) != 0; level++) {
        tree_add(t, level);
    }
    memcpy(t->levels + level * t->width, t->sums, t->width * sizeof *t->sums);
    t->leaf_n++;
}

static void tree_close(tree *t)
{
    uint64_t level = 0;
    for (; (t->leaf_n >> level & 1) == 0; level++) {
    }
    memcpy(t->sums, t->levels + level * t->width, t->width * sizeof *t->sums);
    for (level++; t->leaf_n >> level != 0; level++) {
        if ((t->leaf_n >> level & 1) != 0) {
            tree_add(t, level);
        }
    }
    t->leaf_n = 0;
}

/* The columns of Q that are computed at a time: their sums fit the L1 cache, or for a high rank the L2 cache. */
uint64_t tg_factorization_width(const tg_factorization *m)
{
    uint64_t width = 4096 / m->rank / 16 * 16;
    return m->rank > LOW_RANK ? WIDE : width < TG_LEAF ? width : TG_LEAF;
}

/* From one row of these sums to the next. Not a multiple of a page, lest all rows share a set of the cache. */
static size_t sum_stride(const tg_factorization *m)
{
    return (size_t)tg_factorization_width(m) + 16;
}

uint64_t tg_factorization_scratch(const tg_factorization *m)
{
    uint64_t along_rows = GROUP * (1 + levels_of(m->columns, TG_LEAF));
    uint64_t along_columns = sum_stride(m) * (1 + levels_of(m->rows, TG_LEAF_ROWS));
    return TILE + m->rank * (along_rows > along_columns ? along_rows : along_columns);
}

/* ---- M --------------------------------------------------------------------------------------------------------------- */

/* A part of M: at most GROUP rows, from one to the next `row_step`, and at most TG_LEAF columns; or TG_LEAF_ROWS and WIDE. `stride`:
 * from one row to the next, if they are loaded. */
typedef struct part {
    uint64_t row, row_step, column;
    size_t row_n, column_n, stride;
} part;

/* Loads a row of gradient plus residual into `out`. */
static void load_row(float *out, const tg_factorization_context *c, const tg_factorization *m, void *const *grads,
                     uint64_t row, uint64_t column, size_t n)
{
    tg_dtype dtype = c->layout->tensors[m->tensor].dtype;
    uint64_t at = row * m->columns + column;
    const char *grad = (const char *)grads[m->tensor] + at * tg_dtype_len(dtype);
    bool in_place = dtype == TG_FP32 && m->residual != NULL;
    if (!in_place) {
        tg_widen(out, grad, dtype, n);
    }
    if (m->residual != NULL) {
        (void)tg_kernels_best()->passes.accumulate(out, NULL, in_place ? (const float *)(const void *)grad : out,
                                                   m->residual + at, m->decay, n, false);
    }
}

/* The same by the policies for NaN, Inf and overflow. */
static void load_extreme_row(float *out, const tg_factorization_context *c, const tg_factorization *m,
                             void *const *grads, uint64_t row, uint64_t column, size_t n)
{
    tg_dtype dtype = c->layout->tensors[m->tensor].dtype;
    uint64_t at = row * m->columns + column;
    tg_widen(out, (const char *)grads[m->tensor] + at * tg_dtype_len(dtype), dtype, n);
    if (c->nonfinite == TG_NONFINITE_ZERO) {
        tg_zero_nonfinite(out, n);
    }
    for (size_t j = 0; j < n; j++) {
        float g = out[j], sum = m->residual == NULL ? g : g + m->decay * m->residual[at + j];
        out[j] = isfinite(g) ? fmaxf(fminf(sum, m->limit), -m->limit) : sum;
    }
}

/* A part of M where it is, or loaded into `tile`. */
static tg_matrix view(const tg_factorization_context *c, const tg_factorization *m, void *const *grads, float *tile,
                      const part *of, bool is_extreme)
{
    uint64_t at = of->row * m->columns + of->column;
    if (c->layout->tensors[m->tensor].dtype == TG_FP32 && !is_extreme) {
        return (tg_matrix){.values = (const float *)grads[m->tensor] + at,
                           .residual = m->residual != NULL ? m->residual + at : NULL,
                           .decay = m->decay,
                           .stride = (size_t)(of->row_step * m->columns)};
    }
    for (size_t i = 0; i < of->row_n; i++) {
        (is_extreme ? load_extreme_row : load_row)(tile + i * of->stride, c, m, grads, of->row + i * of->row_step,
                                                   of->column, of->column_n);
    }
    return (tg_matrix){.values = tile, .stride = of->stride};
}

static size_t at_most(uint64_t n, size_t most)
{
    return n < most ? (size_t)n : most;
}

tg_status tg_factorization_refusal(const tg_factorization_context *c, const tg_factorization *m, bool is_finite,
                                   tg_detail *why)
{
    const tg_tensor *tensor = &c->layout->tensors[m->tensor];
    if (!is_finite) {
        return tg_fail(TG_E_NONFINITE, why, "the gradient of tensor '%.150s' holds NaN or Inf", tensor->name);
    }
    return tg_fail(TG_E_NONFINITE, why,
                   "gradient plus residual of tensor '%.100s' exceeds %.3g: its product with a factor overflows",
                   tensor->name, (double)m->limit);
}

tg_status tg_factorization_refuse(const tg_factorization_context *c, const tg_factorization *m, void *const *grads,
                                  float *scratch, tg_detail *why)
{
    const tg_tensor *tensor = &c->layout->tensors[m->tensor];
    bool is_found = false, is_finite = true;
    for (uint64_t i = 0; i < m->rows && !is_found; i++) {
        for (uint64_t j = 0; j < m->columns; j += TG_LEAF) {
            size_t n = at_most(m->columns - j, TG_LEAF);
            uint64_t at = i * m->columns + j;
            load_row(scratch, c, m, grads, i, j, n);
            is_found |= tg_kernels_best()->select.largest_key(scratch, n) > tg_float_bits(m->limit);
            tg_widen(scratch, (const char *)grads[m->tensor] + at * tg_dtype_len(tensor->dtype), tensor->dtype, n);
            is_finite = is_finite && tg_all_finite(scratch, n);
        }
    }
    return tg_factorization_refusal(c, m, is_finite, why);
}

/* ---- products -------------------------------------------------------------------------------------------------------- */

/* Which NaN an operation returns depends on the CPU; all become the same. */
static void unify_nans(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = isnan(values[i]) ? tg_bits_float(0x7fc00000u) : values[i];
    }
}

/* Q is scaled by a power of two, so that P neither overflows nor underflows: its largest magnitude times the columns becomes less
 * than 1. P is made orthonormal later, so that any scale works that is the same on all ranks. */
void tg_factorization_begin(tg_factorization *m)
{
    size_t n = (size_t)(m->columns * m->rank);
    float largest = tg_bits_float(tg_kernels_best()->select.largest_key(m->q, n));
    int exponent = 0;
    (void)frexp((double)largest * (double)m->columns, &exponent);
    double scale = ldexp(1, -exponent);
    for (size_t j = 0; j < n; j++) {
        m->q_next[j] = (float)((double)m->q[j] * scale);
    }
    m->is_extreme = false;
}

/* The sums of some rows, of which column and column_n are not set, in t->sums. Returns whether the rows are extreme. */
static bool sum_rows(tree *t, const tg_factorization_context *c, const tg_factorization *m, void *const *grads,
                     float *tile, part rows, bool is_extreme)
{
    bool beyond = false;
    for (uint64_t j = 0; j < m->columns; j += TG_LEAF) {
        rows.column = j;
        rows.column_n = at_most(m->columns - j, TG_LEAF);
        const tg_matrix here = view(c, m, grads, tile, &rows, is_extreme);
        beyond |= tg_kernels_best()->factors.multiply(t->sums, &here, rows.row_n, m->q_next + j, (size_t)m->columns,
                                                      m->rank, tg_float_bits(m->limit), rows.column_n);
        tree_push(t);
    }
    tree_close(t);
    return beyond;
}

/* Some rows of P. Returns whether they are extreme. */
static bool multiply_rows(tree *t, const tg_factorization_context *c, const tg_factorization *m, void *const *grads,
                          float *tile, part rows)
{
    bool is_extreme = sum_rows(t, c, m, grads, tile, rows, false);
    if (is_extreme) {
        (void)sum_rows(t, c, m, grads, tile, rows, true);
    }
    unify_nans(t->sums, rows.row_n * m->rank);
    for (size_t i = 0; i < rows.row_n; i++) {
        for (uint32_t k = 0; k < m->rank; k++) {
            m->p[k * m->rows + rows.row + i * rows.row_step] = t->sums[i * m->rank + k];
        }
    }
    return is_extreme;
}

/* The rows of a group are far apart: a core reads several pages at once faster than one after the other. */
bool tg_factorization_multiply(const tg_factorization_context *c, const tg_factorization *m, void *const *grads,
                               float *scratch, uint64_t from, uint64_t to)
{
    tree t = tree_of(scratch + TILE, GROUP * m->rank);
    uint64_t step = (to - from) / GROUP;
    bool is_extreme = false;
    for (uint64_t i = 0; i < step; i++) {
        const part rows = {.row = from + i, .row_step = step, .row_n = GROUP, .stride = TG_LEAF};
        is_extreme |= multiply_rows(&t, c, m, grads, scratch, rows);
    }
    if (step * GROUP < to - from) {
        const part rest = {
            .row = from + step * GROUP, .row_step = 1, .row_n = (size_t)(to - from - step * GROUP), .stride = TG_LEAF};
        is_extreme |= multiply_rows(&t, c, m, grads, scratch, rest);
    }
    return is_extreme;
}

void tg_factorization_multiply_back(const tg_factorization_context *c, const tg_factorization *m, void *const *grads,
                                    float *scratch, uint64_t from, uint64_t to)
{
    size_t stride = sum_stride(m), n = (size_t)(to - from);
    bool is_high = m->rank > LOW_RANK;
    size_t group = is_high ? TG_LEAF_ROWS : GROUP, tile_stride = is_high ? TILE_STRIDE : TG_LEAF;
    tree t = tree_of(scratch + TILE, stride * m->rank);
    memset(t.sums, 0, t.width * sizeof *t.sums);
    for (uint64_t i = 0; i < m->rows; i += group) {
        const part here = {i, 1, from, at_most(m->rows - i, group), n, tile_stride};
        const tg_matrix rows = view(c, m, grads, scratch, &here, m->is_extreme);
        tg_kernels_best()->factors.multiply_back(t.sums, stride, &rows, here.row_n, m->p + i, (size_t)m->rows, m->rank,
                                                 n);
        if ((i + here.row_n) % TG_LEAF_ROWS == 0 || i + here.row_n == m->rows) {
            tree_push(&t);
            memset(t.sums, 0, t.width * sizeof *t.sums);
        }
    }
    tree_close(&t);
    for (uint32_t k = 0; k < m->rank; k++) {
        float *column = m->q_next + k * m->columns + from;
        memcpy(column, t.sums + k * stride, n * sizeof *column);
        unify_nans(column, n);
    }
}

/* ---- orthonormal columns --------------------------------------------------------------------------------------------- */

/* Dot products of a column with others, at most four at a time: leaves in a binary tree, as above but in binary64. */
static void dots(double *out, const float *column, const float *others, uint32_t other_n, uint64_t rows)
{
    for (uint32_t b = 0, n; b < other_n; b += n) {
        double levels[64][4], sums[4] = {0};
        uint64_t leaf_n = 0;
        n = other_n - b < 4 ? other_n - b : 4;
        for (uint64_t i = 0; i < rows; i += TG_LEAF, leaf_n++) {
            int level = 0;
            tg_kernels_best()->factors.dots(sums, column + i, others + b * rows + i, (size_t)rows, n,
                                            at_most(rows - i, TG_LEAF));
            for (; (leaf_n >> level & 1) != 0; level++) {
                for (uint32_t k = 0; k < n; k++) {
                    sums[k] += levels[level][k];
                }
            }
            memcpy(levels[level], sums, sizeof sums);
        }
        for (uint32_t k = 0; k < n; k++) {
            out[b + k] = 0;
            for (int level = 0; leaf_n >> level != 0; level++) {
                out[b + k] += (leaf_n >> level & 1) != 0 ? levels[level][k] : 0;
            }
        }
    }
}

static double square(const float *column, uint64_t rows)
{
    double sum;
    dots(&sum, column, column, 1, rows);
    return sum;
}

/* Makes column k orthogonal to the columns before it, and its norm 1. False if nothing is left of it. */
static bool make_orthogonal(const tg_factorization *m, uint32_t k)
{
    float *column = m->p + k * m->rows;
    double before = square(column, m->rows), shares[64];
    for (int again = 0; again < 2 && k > 0; again++) { /* a second pass removes what rounding leaves */
        dots(shares, column, m->p, k, m->rows);
        tg_kernels_best()->factors.project(column, m->p, (size_t)m->rows, shares, k, (size_t)m->rows);
    }
    double norm = sqrt(k > 0 ? square(column, m->rows) : before);
    if (!(norm * norm > 1e-12 * before) || norm < 1e-30) {
        return false;
    }
    for (uint64_t i = 0; i < m->rows; i++) {
        column[i] = (float)((double)column[i] / norm);
    }
    return true;
}

void tg_factorization_fill_random(float *out, uint64_t seed, uint64_t step, size_t tensor, uint64_t at, uint64_t n)
{
    tg_stream stream = tg_stream_of(seed, step, (uint32_t)tensor, 0);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t word;
        tg_stream_words(&word, &stream, at + i, 1, 2);
        out[i] = (float)((double)word * 0x1p-31 - 1.0);
    }
}

void tg_factorization_orthonormalise(const tg_factorization_context *c, const tg_factorization *m, uint64_t step)
{
    for (uint32_t k = 0; k < m->rank; k++) {
        if (!make_orthogonal(m, k)) {
            tg_factorization_fill_random(m->p + k * m->rows, c->layout->seed, step, m->tensor, k * m->rows, m->rows);
            (void)make_orthogonal(m, k);
        }
    }
}

/* ---- the average and the residual ------------------------------------------------------------------------------------ */

void tg_factorization_end(tg_factorization *m)
{
    size_t n = (size_t)(m->columns * m->rank);
    m->is_diverged = !tg_all_finite(m->q_next, n);
    if (!m->is_diverged) {
        memcpy(m->q, m->q_next, n * sizeof *m->q);
    }
}

void tg_factorization_average(const tg_factorization_context *c, const tg_factorization *m, void *const *out,
                              float *scratch, uint64_t from, uint64_t to)
{
    float weights[64];
    tg_dtype dtype = c->layout->tensors[m->tensor].dtype;
    const tg_matrix nothing = {0};
    for (uint64_t row = from; row < to; row++) {
        for (uint32_t k = 0; k < m->rank; k++) {
            weights[k] = m->p[k * m->rows + row];
        }
        for (uint64_t j = 0; j < m->columns; j += TG_LEAF) {
            size_t n = at_most(m->columns - j, TG_LEAF);
            char *at = (char *)out[m->tensor] + (row * m->columns + j) * tg_dtype_len(dtype);
            tg_kernels_best()->factors.expand(scratch, NULL, &nothing, 1, weights, m->q_next + j, (size_t)m->columns,
                                              m->rank, n);
            unify_nans(scratch, n);
            tg_narrow(at, scratch, dtype, n);
        }
    }
}

/* A piece of Q, `stride` from row to row, and its columns [column, column + n). */
typedef struct piece {
    const float *factor;
    size_t stride;
    uint64_t column;
    size_t n;
} piece;

/* Up to ABREAST rows, `step` apart, that lie in memory as they are computed. */
static void settle_in_place(const tg_factorization *m, float *grad, uint64_t row, uint64_t step, size_t row_n,
                            const piece *q, const float *weights)
{
    uint64_t at = row * m->columns + q->column;
    float *residual = m->residual != NULL ? m->residual + at : NULL;
    const tg_matrix rows = {
        .values = grad + at, .residual = residual, .decay = m->decay, .stride = (size_t)(step * m->columns)};
    tg_kernels_best()->factors.expand(grad + at, residual, &rows, row_n, weights, q->factor, q->stride, m->rank, q->n);
}

/* One row that is loaded first. */
static void settle_loaded(const tg_factorization_context *c, const tg_factorization *m, void *const *grads, float *tile,
                          uint64_t row, const piece *q, const float *weights)
{
    tg_dtype dtype = c->layout->tensors[m->tensor].dtype;
    uint64_t at = row * m->columns + q->column;
    float *averages = tile + TG_LEAF, *residual = m->residual != NULL ? m->residual + at : NULL;
    (m->is_extreme ? load_extreme_row : load_row)(tile, c, m, grads, row, q->column, q->n);
    const tg_matrix loaded = {.values = tile};
    tg_kernels_best()->factors.expand(averages, residual, &loaded, 1, weights, q->factor, q->stride, m->rank, q->n);
    unify_nans(averages, q->n);
    tg_narrow((char *)grads[m->tensor] + at * tg_dtype_len(dtype), averages, dtype, q->n);
    if (residual != NULL && c->nonfinite == TG_NONFINITE_PASS) {
        tg_zero_nonfinite(residual, q->n);
    }
}

/* Rows that are settled together, and how many times so many have their elements of P gathered at a time, after the two rows that
 * settle_loaded needs. */
enum { ABREAST = 4, TIMES = (TILE - 2 * TG_LEAF) / (ABREAST * 64) };

/* The elements of P of the rows first + i + r * step: for each i < n, ABREAST rows one after the other; 0 for those from `to` on. */
static void gather_weights(float *weights, const tg_factorization *m, uint64_t first, uint64_t step, size_t n,
                           uint64_t to)
{
    for (uint32_t k = 0; k < m->rank; k++) {
        for (size_t r = 0; r < ABREAST; r++) {
            uint64_t from = first + r * step;
            size_t row_n = from < to ? at_most(to - from, n) : 0;
            for (size_t i = 0; i < n; i++) {
                weights[(i * ABREAST + r) * m->rank + k] = i < row_n ? m->p[k * m->rows + from + i] : 0;
            }
        }
    }
}

/* Some rows at a time, which are far apart for the same reason as above. A piece of Q is copied to where its rows do not share a set
 * of the cache. */
void tg_factorization_settle(const tg_factorization_context *c, const tg_factorization *m, void *const *grads,
                             float *scratch, uint64_t from, uint64_t to)
{
    float *weights = scratch + 2 * TG_LEAF, *copy = scratch + TILE;
    uint64_t step = (to - from + ABREAST - 1) / ABREAST, width = tg_factorization_width(m);
    bool in_place = c->layout->tensors[m->tensor].dtype == TG_FP32 && !m->is_extreme && !m->is_diverged;
    for (uint64_t first = from; first < from + step; first += TIMES) {
        size_t n = at_most(from + step - first, TIMES);
        gather_weights(weights, m, first, step, n, to);
        for (uint64_t j = 0; j < m->columns; j += width) {
            const piece q = {copy, sum_stride(m), j, at_most(m->columns - j, (size_t)width)};
            for (uint32_t k = 0; k < m->rank; k++) {
                memcpy(copy + k * q.stride, m->q_next + k * m->columns + j, q.n * sizeof *copy);
            }
            for (size_t i = 0; i < n; i++) {
                const float *own = weights + ABREAST * i * m->rank;
                size_t row_n = at_most((to - first - i + step - 1) / step, ABREAST);
                if (in_place) {
                    settle_in_place(m, grads[m->tensor], first + i, step, row_n, &q, own);
                }
                for (size_t r = 0; !in_place && r < row_n; r++) {
                    settle_loaded(c, m, grads, scratch, first + i + r * step, &q, own + r * m->rank);
                }
            }
        }
    }
}
