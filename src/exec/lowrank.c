/* PowerSGD's factors on the host; exchange/lowrank.c says what they are for. */
#include "exec/lowrank.h"

#include "base/half.h"
#include "base/philox.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

typedef struct matrix {
    size_t tensor;
    uint64_t rows, columns;
    uint32_t rank;
    float decay;     /* share of the residual that is added; 0 without feedback */
    float *residual; /* NULL without feedback */
    float *q;        /* columns x rank, what the step starts from */
    float *p;        /* rows x rank */
    float *q_next;
    float limit;    /* the largest magnitude in M for which nothing below can overflow */
    bool saturates; /* some of this step's M is beyond it, and is taken as it */
} matrix;

struct tg_lowrank {
    tg_allocator allocator;
    const tg_layout *layout;
    tg_nonfinite nonfinite;
    matrix *matrices;
    size_t matrix_n;
    size_t *matrix_of;      /* of each tensor, plus 1; 0: it travels as it is */
    void **first, **second; /* what the two all-reduces average */
    float *saved;           /* residuals, then the factors that the next step starts from */
    uint64_t saved_n;
    float *factors; /* space for all p and q_next */
    char *copies;   /* space for what travels as it is */
    float *row;     /* space for the longest row */
};

/* ---- making one ------------------------------------------------------------------------------------------------------ */

static bool matrix_of_tensor(matrix *out, const tg_layout *l, size_t t)
{
    const tg_recipe *recipe = l->units[l->tensor_unit[t]].recipe;
    const tg_tensor *tensor = &l->tensors[t];
    uint64_t rank = (uint64_t)recipe->value[TG_STAGE_quantize][0], n = l->tensor_elements[t];
    if (tg_recipe_quantize(recipe)->exchange == NULL || tensor->dim_n < 2 || n == 0) {
        return false;
    }
    uint64_t rows = tensor->dims[0], columns = n / rows;
    if (rank * (rows + columns) >= n) {
        return false;
    }
    float limit = 0x1p126f; /* over sqrt(rows): no element of Q or the average is larger than a column of M is long */
    for (uint64_t reach = 1; reach * reach < rows; reach *= 2) {
        limit *= 0.5f;
    }
    bool remembers = tg_recipe_feedback(recipe)->planes > 0;
    *out = (matrix){.tensor = t,
                    .rows = rows,
                    .columns = columns,
                    .rank = (uint32_t)rank,
                    .limit = limit,
                    .decay = remembers ? (float)recipe->value[TG_STAGE_feedback][0] : 0};
    return true;
}

/* Numbers between -1 and 1 to start from: any will do that are the same on all ranks. */
static void fill_random(float *out, size_t stride, const tg_lowrank *l, uint64_t step, size_t tensor, uint64_t at,
                        uint64_t n)
{
    tg_stream stream = tg_stream_of(l->layout->seed, step, (uint32_t)tensor, 0);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t word;
        tg_stream_words(&word, &stream, at + i, 1, 2);
        out[i * stride] = (float)((double)word * 0x1p-31 - 1.0);
    }
}

static tg_status acquire_matrices(tg_lowrank *l, tg_detail *why)
{
    const tg_allocator *a = &l->allocator;
    uint64_t factors = 0, longest = 0, copies = 0;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        matrix *m = &l->matrices[l->matrix_n];
        if (!matrix_of_tensor(m, l->layout, t)) {
            copies += l->layout->tensor_elements[t] * tg_dtype_len(l->layout->tensors[t].dtype);
            continue;
        }
        l->matrix_of[t] = ++l->matrix_n;
        factors += (m->rows + m->columns) * m->rank;
        l->saved_n += (m->decay > 0 ? m->rows * m->columns : 0) + m->columns * m->rank;
        longest = m->columns > longest ? m->columns : longest;
    }
    TG_TRY(tg_acquire(&l->saved, a, l->saved_n, sizeof *l->saved, why));
    TG_TRY(tg_acquire(&l->factors, a, factors, sizeof *l->factors, why));
    TG_TRY(tg_acquire(&l->row, a, longest, sizeof *l->row, why));
    return tg_acquire_room(&l->copies, a, copies, why);
}

/* Where everything lies, and what it is at the beginning. */
static void lay_out(tg_lowrank *l)
{
    float *factor = l->factors, *saved = l->saved;
    char *copy = l->copies;
    for (size_t i = 0; i < l->matrix_n; i++) { /* residuals first */
        matrix *m = &l->matrices[i];
        m->residual = m->decay > 0 ? saved : NULL;
        saved += m->decay > 0 ? m->rows * m->columns : 0;
    }
    for (size_t i = 0; i < l->matrix_n; i++) {
        matrix *m = &l->matrices[i];
        m->q = saved;
        saved += m->columns * m->rank;
        m->p = factor;
        m->q_next = factor + m->rows * m->rank;
        factor = m->q_next + m->columns * m->rank;
        fill_random(m->q, 1, l, UINT64_MAX, m->tensor, 0, m->columns * m->rank);
        l->second[i] = m->q_next;
    }
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        if (l->matrix_of[t] != 0) {
            l->first[t] = l->matrices[l->matrix_of[t] - 1].p;
        } else {
            l->first[t] = copy;
            copy += l->layout->tensor_elements[t] * tg_dtype_len(l->layout->tensors[t].dtype);
        }
    }
}

tg_status tg_lowrank_new(tg_lowrank **out, const tg_layout *layout, tg_nonfinite nonfinite, const tg_allocator *a,
                         tg_detail *why)
{
    tg_lowrank *l = NULL;
    size_t n = layout->tensor_n;
    TG_TRY(tg_acquire(&l, a, 1, sizeof *l, why));
    *out = l; /* freed by whoever called, whatever happens here */
    l->allocator = *a;
    l->layout = layout;
    l->nonfinite = nonfinite;
    TG_TRY(tg_acquire(&l->matrices, a, n + 1, sizeof *l->matrices, why));
    TG_TRY(tg_acquire(&l->matrix_of, a, n, sizeof *l->matrix_of, why));
    TG_TRY(tg_acquire(&l->first, a, n, sizeof *l->first, why));
    TG_TRY(tg_acquire(&l->second, a, n, sizeof *l->second, why));
    TG_TRY(acquire_matrices(l, why));
    lay_out(l);
    return TG_OK;
}

void tg_lowrank_free(tg_lowrank *l)
{
    if (l == NULL) {
        return;
    }
    tg_allocator a = l->allocator;
    tg_release(&a, l->copies);
    tg_release(&a, l->row);
    tg_release(&a, l->factors);
    tg_release(&a, l->saved);
    tg_release(&a, l->second);
    tg_release(&a, l->first);
    tg_release(&a, l->matrix_of);
    tg_release(&a, l->matrices);
    tg_release(&a, l);
}

size_t tg_lowrank_list(tg_tensor *tensors, uint64_t *dims, const tg_lowrank *l, bool first)
{
    size_t n = 0;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        bool is_matrix = l->matrix_of[t] != 0;
        tensors[n] = l->layout->tensors[t];
        if (is_matrix) {
            const matrix *m = &l->matrices[l->matrix_of[t] - 1];
            dims[2 * n] = first ? m->rows : m->columns;
            dims[2 * n + 1] = m->rank;
            tensors[n].dims = &dims[2 * n];
            tensors[n].dim_n = 2;
            tensors[n].dtype = TG_FP32;
        }
        n += first || is_matrix ? 1 : 0;
    }
    return n;
}

/* ---- arithmetic ------------------------------------------------------------------------------------------------------ */

/* Row i of M into l->row. */
static void load_row(const tg_lowrank *l, const matrix *m, void *const *grads, uint64_t i)
{
    tg_dtype dtype = l->layout->tensors[m->tensor].dtype;
    const char *grad = grads[m->tensor];
    tg_widen(l->row, grad + i * m->columns * tg_dtype_len(dtype), dtype, (size_t)m->columns);
    if (l->nonfinite == TG_NONFINITE_ZERO) {
        tg_zero_nonfinite(l->row, (size_t)m->columns);
    }
    for (uint64_t j = 0; j < m->columns && (m->residual != NULL || m->saturates); j++) {
        float g = l->row[j], sum = m->residual == NULL ? g : g + m->decay * m->residual[i * m->columns + j];
        l->row[j] = m->saturates && isfinite(g) ? fmaxf(fminf(sum, m->limit), -m->limit) : sum;
    }
}

/* Applies the policy to row i, which is loaded and has a magnitude beyond the limit, or a NaN. */
static tg_status admit_row(const tg_lowrank *l, matrix *m, void *const *grads, uint64_t i, tg_detail *why)
{
    const tg_tensor *tensor = &l->layout->tensors[m->tensor];
    if (l->nonfinite != TG_NONFINITE_ERROR) {
        m->saturates = true;
        load_row(l, m, grads, i);
        return TG_OK;
    }
    const char *grad = grads[m->tensor];
    tg_widen(l->row, grad + i * m->columns * tg_dtype_len(tensor->dtype), tensor->dtype, (size_t)m->columns);
    if (!tg_all_finite(l->row, (size_t)m->columns)) {
        return tg_fail(TG_E_NONFINITE, why, "the gradient of tensor '%.150s' holds NaN or Inf", tensor->name);
    }
    return tg_fail(TG_E_NONFINITE, why,
                   "gradient plus residual of tensor '%.100s' exceeds %.3g: a product with its factors overflows",
                   tensor->name, (double)m->limit);
}

/* P is made orthonormal, so any scale will do that all ranks have in common. This one, a power of two by Q, avoids overflow. */
static double scale_of_product(const matrix *m)
{
    float largest = tg_bits_float(tg_kernels_best()->select.largest_key(m->q, (size_t)(m->columns * m->rank)));
    int exponent = 0;
    (void)frexp((double)largest * (double)m->columns, &exponent);
    return exponent > 0 ? ldexp(1, -exponent) : 1;
}

/* P = M Q, sums in binary64. */
static tg_status multiply(const tg_lowrank *l, matrix *m, void *const *grads, tg_detail *why)
{
    double sums[64], scale = scale_of_product(m);
    m->saturates = false;
    for (uint64_t i = 0; i < m->rows; i++) {
        load_row(l, m, grads, i);
        if (tg_kernels_best()->select.largest_key(l->row, (size_t)m->columns) > tg_float_bits(m->limit)) {
            TG_TRY(admit_row(l, m, grads, i, why));
        }
        memset(sums, 0, sizeof sums);
        for (uint64_t j = 0; j < m->columns; j++) {
            for (uint32_t k = 0; k < m->rank; k++) {
                sums[k] += (double)l->row[j] * (double)m->q[j * m->rank + k];
            }
        }
        for (uint32_t k = 0; k < m->rank; k++) {
            m->p[i * m->rank + k] = (float)(sums[k] * scale);
        }
    }
    return TG_OK;
}

/* Q = M' P, in fp32, row after row. */
static void multiply_back(const tg_lowrank *l, const matrix *m, void *const *grads)
{
    memset(m->q_next, 0, m->columns * m->rank * sizeof *m->q_next);
    for (uint64_t i = 0; i < m->rows; i++) {
        load_row(l, m, grads, i);
        for (uint64_t j = 0; j < m->columns; j++) {
            for (uint32_t k = 0; k < m->rank; k++) {
                m->q_next[j * m->rank + k] += l->row[j] * m->p[i * m->rank + k];
            }
        }
    }
}

static double dot(const matrix *m, uint32_t a, uint32_t b)
{
    double sum = 0;
    for (uint64_t i = 0; i < m->rows; i++) {
        sum += (double)m->p[i * m->rank + a] * (double)m->p[i * m->rank + b];
    }
    return sum;
}

/* Takes what column k has in common with those before it out of it, and makes its length 1. False if nothing is left. */
static bool make_orthogonal(const matrix *m, uint32_t k)
{
    double before = dot(m, k, k);
    for (int again = 0; again < 2; again++) { /* twice is enough for what rounding leaves */
        for (uint32_t b = 0; b < k; b++) {
            double share = dot(m, k, b);
            for (uint64_t i = 0; i < m->rows; i++) {
                m->p[i * m->rank + k] -= (float)(share * (double)m->p[i * m->rank + b]);
            }
        }
    }
    double length = sqrt(dot(m, k, k));
    if (!(length * length > 1e-12 * before) || length < 1e-30) {
        return false;
    }
    for (uint64_t i = 0; i < m->rows; i++) {
        m->p[i * m->rank + k] = (float)((double)m->p[i * m->rank + k] / length);
    }
    return true;
}

/* Columns of length 1, at right angles. One that has nothing of its own is replaced by a random one. */
static void orthonormalise(const tg_lowrank *l, const matrix *m, uint64_t step)
{
    for (uint32_t k = 0; k < m->rank; k++) {
        if (!make_orthogonal(m, k)) {
            fill_random(m->p + k, m->rank, l, step, m->tensor, k * m->rows, m->rows);
            (void)make_orthogonal(m, k);
        }
    }
}

/* The average P Q' to the gradient, and what it misses to the residual. */
static void settle(const tg_lowrank *l, const matrix *m, void *const *grads)
{
    tg_dtype dtype = l->layout->tensors[m->tensor].dtype;
    for (uint64_t i = 0; i < m->rows; i++) {
        load_row(l, m, grads, i);
        char *out = (char *)grads[m->tensor] + i * m->columns * tg_dtype_len(dtype);
        for (uint64_t j = 0; j < m->columns; j++) {
            double sum = 0;
            for (uint32_t k = 0; k < m->rank; k++) {
                sum += (double)m->p[i * m->rank + k] * (double)m->q_next[j * m->rank + k];
            }
            float average = (float)sum;
            if (m->residual != NULL) {
                m->residual[i * m->columns + j] = l->row[j] - average;
            }
            l->row[j] = average;
        }
        tg_narrow(out, l->row, dtype, (size_t)m->columns);
    }
    if (m->residual != NULL && l->nonfinite == TG_NONFINITE_PASS) {
        tg_zero_nonfinite(m->residual, (size_t)(m->rows * m->columns));
    }
    if (tg_all_finite(m->q_next, (size_t)(m->columns * m->rank))) { /* otherwise NaN or Inf was let through */
        memcpy(m->q, m->q_next, m->columns * m->rank * sizeof *m->q);
    }
}

/* ---- a step ---------------------------------------------------------------------------------------------------------- */

static size_t copy_len(const tg_lowrank *l, size_t t)
{
    return (size_t)l->layout->tensor_elements[t] * tg_dtype_len(l->layout->tensors[t].dtype);
}

tg_status tg_lowrank_multiply(tg_lowrank *l, void *const *grads, tg_detail *why)
{
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        if (l->matrix_of[t] == 0 && copy_len(l, t) > 0) {
            memcpy(l->first[t], grads[t], copy_len(l, t));
        }
    }
    for (size_t i = 0; i < l->matrix_n; i++) {
        TG_TRY(multiply(l, &l->matrices[i], grads, why));
    }
    return TG_OK;
}

void tg_lowrank_multiply_back(tg_lowrank *l, void *const *grads, uint64_t step)
{
    for (size_t i = 0; i < l->matrix_n; i++) {
        orthonormalise(l, &l->matrices[i], step);
        multiply_back(l, &l->matrices[i], grads);
    }
}

void tg_lowrank_settle(tg_lowrank *l, void *const *grads)
{
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        if (l->matrix_of[t] == 0 && copy_len(l, t) > 0) {
            memcpy(grads[t], l->first[t], copy_len(l, t));
        }
    }
    for (size_t i = 0; i < l->matrix_n; i++) {
        settle(l, &l->matrices[i], grads);
    }
}

/* ---- facts ----------------------------------------------------------------------------------------------------------- */

void *const *tg_lowrank_first(const tg_lowrank *l)
{
    return l->first;
}

void *const *tg_lowrank_second(const tg_lowrank *l)
{
    return l->second;
}

size_t tg_lowrank_matrix(const tg_lowrank *l, size_t tensor)
{
    return l->matrix_of[tensor];
}

void tg_lowrank_residual(float *out, const tg_lowrank *l, size_t tensor)
{
    size_t n = (size_t)l->layout->tensor_elements[tensor];
    const float *of = l->matrix_of[tensor] == 0 ? NULL : l->matrices[l->matrix_of[tensor] - 1].residual;
    if (of == NULL) {
        memset(out, 0, n * sizeof *out);
    } else {
        memcpy(out, of, n * sizeof *out);
    }
}

float *tg_lowrank_saved(const tg_lowrank *l, uint64_t *n)
{
    *n = l->saved_n;
    return l->saved;
}
