/* Products with the factors of a low-rank exchange: the reference that faster versions match bit for bit. */
#include "base/half.h"
#include "kernels/factors.h"
#include "kernels/scalar.h"

static float element(const tg_matrix *m, size_t i, size_t j)
{
    size_t at = i * m->stride + j;
    return m->residual == NULL ? m->values[at] : m->values[at] + m->decay * m->residual[at];
}

bool tg_scalar_multiply(float *sums, const tg_matrix *m, size_t row_n, const float *factor, size_t stride,
                        uint32_t rank, uint32_t limit, size_t n)
{
    bool beyond = false;
    for (size_t i = 0; i < row_n; i++) {
        for (uint32_t k = 0; k < rank; k++) {
            float parts[TG_SUMS] = {0};
            for (size_t j = 0; j < n; j++) {
                parts[j % TG_SUMS] += element(m, i, j) * factor[k * stride + j];
            }
            for (size_t half = TG_SUMS / 2; half > 0; half /= 2) {
                for (size_t l = 0; l < half; l++) {
                    parts[l] += parts[l + half];
                }
            }
            sums[i * rank + k] = parts[0];
        }
        for (size_t j = 0; j < n; j++) {
            beyond |= (tg_float_bits(element(m, i, j)) & 0x7fffffffu) > limit;
        }
    }
    return beyond;
}

void tg_scalar_multiply_back(float *sums, size_t sum_stride, const tg_matrix *m, size_t row_n, const float *factor,
                             size_t stride, uint32_t rank, size_t n)
{
    for (size_t i = 0; i < row_n; i++) {
        for (uint32_t k = 0; k < rank; k++) {
            for (size_t j = 0; j < n; j++) {
                sums[k * sum_stride + j] += element(m, i, j) * factor[k * stride + i];
            }
        }
    }
}

void tg_scalar_expand(float *averages, float *residual, const tg_matrix *m, size_t row_n, const float *weights,
                      const float *factor, size_t stride, uint32_t rank, size_t n)
{
    for (size_t i = 0; i < row_n; i++) {
        for (size_t j = 0; j < n; j++) {
            float sum = weights[i * rank] * factor[j];
            for (uint32_t k = 1; k < rank; k++) {
                sum += weights[i * rank + k] * factor[k * stride + j];
            }
            if (residual != NULL) {
                residual[i * m->stride + j] = element(m, i, j) - sum;
            }
            averages[i * m->stride + j] = sum;
        }
    }
}

void tg_scalar_dots(double *sums, const float *column, const float *others, size_t stride, uint32_t other_n, size_t n)
{
    for (uint32_t b = 0; b < other_n; b++) {
        double parts[TG_SUMS] = {0};
        for (size_t i = 0; i < n; i++) {
            parts[i % TG_SUMS] += (double)column[i] * (double)others[b * stride + i];
        }
        for (size_t half = TG_SUMS / 2; half > 0; half /= 2) {
            for (size_t l = 0; l < half; l++) {
                parts[l] += parts[l + half];
            }
        }
        sums[b] = parts[0];
    }
}

void tg_scalar_project(float *column, const float *others, size_t stride, const double *shares, uint32_t other_n,
                       size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double value = (double)column[i];
        for (uint32_t b = 0; b < other_n; b++) {
            value -= shares[b] * (double)others[b * stride + i];
        }
        column[i] = (float)value;
    }
}
