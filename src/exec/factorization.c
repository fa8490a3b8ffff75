/* The arithmetic of PowerSGD on one matrix; see factorization.h. */
#include "exec/factorization.h"

#include "base/half.h"
#include "base/philox.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

void tg_factorization_fill_random(float *out, size_t stride, uint64_t seed, uint64_t step, size_t tensor, uint64_t at,
                                  uint64_t n)
{
    tg_stream stream = tg_stream_of(seed, step, (uint32_t)tensor, 0);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t word;
        tg_stream_words(&word, &stream, at + i, 1, 2);
        out[i * stride] = (float)((double)word * 0x1p-31 - 1.0);
    }
}

/* Loads row i of M, gradient plus residual, into c->row. */
static void load_row(const tg_factorization_context *c, const tg_factorization *m, void *const *grads, uint64_t i)
{
    tg_dtype dtype = c->layout->tensors[m->tensor].dtype;
    const char *grad = grads[m->tensor];
    tg_widen(c->row, grad + i * m->columns * tg_dtype_len(dtype), dtype, (size_t)m->columns);
    if (c->nonfinite == TG_NONFINITE_ZERO) {
        tg_zero_nonfinite(c->row, (size_t)m->columns);
    }
    for (uint64_t j = 0; j < m->columns && (m->residual != NULL || m->saturates); j++) {
        float g = c->row[j], sum = m->residual == NULL ? g : g + m->decay * m->residual[i * m->columns + j];
        c->row[j] = m->saturates && isfinite(g) ? fmaxf(fminf(sum, m->limit), -m->limit) : sum;
    }
}

/* Applies the policy for NaN and Inf to row i. The row is loaded and holds a magnitude beyond the limit, or a NaN. */
static tg_status admit_row(const tg_factorization_context *c, tg_factorization *m, void *const *grads, uint64_t i,
                           tg_detail *why)
{
    const tg_tensor *tensor = &c->layout->tensors[m->tensor];
    if (c->nonfinite != TG_NONFINITE_ERROR) {
        m->saturates = true;
        load_row(c, m, grads, i);
        return TG_OK;
    }
    const char *grad = grads[m->tensor];
    tg_widen(c->row, grad + i * m->columns * tg_dtype_len(tensor->dtype), tensor->dtype, (size_t)m->columns);
    if (!tg_all_finite(c->row, (size_t)m->columns)) {
        return tg_fail(TG_E_NONFINITE, why, "the gradient of tensor '%.150s' holds NaN or Inf", tensor->name);
    }
    return tg_fail(TG_E_NONFINITE, why,
                   "gradient plus residual of tensor '%.100s' exceeds %.3g: its product with a factor overflows",
                   tensor->name, (double)m->limit);
}

/* The scale of P: a power of two, computed from Q, that avoids overflow. P is made orthonormal later, so that any scale works
 * that is the same on all ranks. */
static double scale_of_product(const tg_factorization *m)
{
    float largest = tg_bits_float(tg_kernels_best()->select.largest_key(m->q, (size_t)(m->columns * m->rank)));
    int exponent = 0;
    (void)frexp((double)largest * (double)m->columns, &exponent);
    return exponent > 0 ? ldexp(1, -exponent) : 1;
}

tg_status tg_factorization_multiply(const tg_factorization_context *c, tg_factorization *m, void *const *grads,
                                    tg_detail *why)
{
    double sums[64], scale = scale_of_product(m);
    m->saturates = false;
    for (uint64_t i = 0; i < m->rows; i++) {
        load_row(c, m, grads, i);
        if (tg_kernels_best()->select.largest_key(c->row, (size_t)m->columns) > tg_float_bits(m->limit)) {
            TG_TRY(admit_row(c, m, grads, i, why));
        }
        memset(sums, 0, sizeof sums);
        for (uint64_t j = 0; j < m->columns; j++) {
            for (uint32_t k = 0; k < m->rank; k++) {
                sums[k] += (double)c->row[j] * (double)m->q[j * m->rank + k];
            }
        }
        for (uint32_t k = 0; k < m->rank; k++) {
            m->p[i * m->rank + k] = (float)(sums[k] * scale);
        }
    }
    return TG_OK;
}

void tg_factorization_multiply_back(const tg_factorization_context *c, const tg_factorization *m, void *const *grads)
{
    memset(m->q_next, 0, m->columns * m->rank * sizeof *m->q_next);
    for (uint64_t i = 0; i < m->rows; i++) {
        load_row(c, m, grads, i);
        for (uint64_t j = 0; j < m->columns; j++) {
            for (uint32_t k = 0; k < m->rank; k++) {
                m->q_next[j * m->rank + k] += c->row[j] * m->p[i * m->rank + k];
            }
        }
    }
}

static double dot(const tg_factorization *m, uint32_t a, uint32_t b)
{
    double sum = 0;
    for (uint64_t i = 0; i < m->rows; i++) {
        sum += (double)m->p[i * m->rank + a] * (double)m->p[i * m->rank + b];
    }
    return sum;
}

/* Makes column k orthogonal to the columns before it, and its norm 1. False if nothing is left of it. */
static bool make_orthogonal(const tg_factorization *m, uint32_t k)
{
    double before = dot(m, k, k);
    for (int again = 0; again < 2; again++) { /* a second pass removes what rounding leaves */
        for (uint32_t b = 0; b < k; b++) {
            double projection = dot(m, k, b);
            for (uint64_t i = 0; i < m->rows; i++) {
                m->p[i * m->rank + k] -= (float)(projection * (double)m->p[i * m->rank + b]);
            }
        }
    }
    double norm = sqrt(dot(m, k, k));
    if (!(norm * norm > 1e-12 * before) || norm < 1e-30) {
        return false;
    }
    for (uint64_t i = 0; i < m->rows; i++) {
        m->p[i * m->rank + k] = (float)((double)m->p[i * m->rank + k] / norm);
    }
    return true;
}

void tg_factorization_orthonormalise(const tg_factorization_context *c, const tg_factorization *m, uint64_t step)
{
    for (uint32_t k = 0; k < m->rank; k++) {
        if (!make_orthogonal(m, k)) {
            tg_factorization_fill_random(m->p + k, m->rank, c->layout->seed, step, m->tensor, k * m->rows, m->rows);
            (void)make_orthogonal(m, k);
        }
    }
}

void tg_factorization_settle(const tg_factorization_context *c, const tg_factorization *m, void *const *grads)
{
    tg_dtype dtype = c->layout->tensors[m->tensor].dtype;
    for (uint64_t i = 0; i < m->rows; i++) {
        load_row(c, m, grads, i);
        char *out = (char *)grads[m->tensor] + i * m->columns * tg_dtype_len(dtype);
        for (uint64_t j = 0; j < m->columns; j++) {
            double sum = 0;
            for (uint32_t k = 0; k < m->rank; k++) {
                sum += (double)m->p[i * m->rank + k] * (double)m->q_next[j * m->rank + k];
            }
            float average = (float)sum;
            if (m->residual != NULL) {
                m->residual[i * m->columns + j] = c->row[j] - average;
            }
            c->row[j] = average;
        }
        tg_narrow(out, c->row, dtype, (size_t)m->columns);
    }
    if (m->residual != NULL && c->nonfinite == TG_NONFINITE_PASS) {
        tg_zero_nonfinite(m->residual, (size_t)(m->rows * m->columns));
    }
    if (tg_all_finite(m->q_next,
                      (size_t)(m->columns * m->rank))) { /* otherwise the policy has passed NaN or Inf: keep Q */
        memcpy(m->q, m->q_next, m->columns * m->rank * sizeof *m->q);
    }
}
