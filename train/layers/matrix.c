/* Products by OpenBLAS. Sizes fit an int, because models refuse larger shapes. */
#include "matrix.h"

#include <cblas.h>
#include <pthread.h>
#include <string.h>

void tr_multiply(float *out, size_t rows, size_t columns, size_t inner, tr_matrix left, tr_matrix right, bool add)
{
    cblas_sgemm(CblasRowMajor, left.transposed ? CblasTrans : CblasNoTrans,
                right.transposed ? CblasTrans : CblasNoTrans, (int)rows, (int)columns, (int)inner, 1, left.at,
                (int)left.row, right.at, (int)right.row, add ? 1 : 0, out, (int)columns);
}

void tr_column_sums(float *restrict out, const float *restrict matrix, size_t rows, size_t columns)
{
    memset(out, 0, columns * sizeof *out);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            out[j] += matrix[i * columns + j];
        }
    }
}

static void set_one_thread(void)
{
    openblas_set_num_threads(1);
}

void tr_matrix_one_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, set_one_thread);
}
