/* PowerSGD's arithmetic on one matrix M, the gradient plus residual of a tensor. */
#ifndef TG_EXEC_FACTORIZATION_H
#define TG_EXEC_FACTORIZATION_H

#include "exec/exec.h"

typedef struct tg_factorization {
    size_t tensor;
    uint64_t rows, columns;
    uint32_t rank;
    float decay;     /* the residual is multiplied by it before it is added; 0 without feedback */
    float *residual; /* NULL without feedback */
    float *q;        /* columns x rank: the factor that the step starts from */
    float *p;        /* rows x rank */
    float *q_next;   /* columns x rank: the factor that the next step starts from */
    float limit;     /* the largest magnitude in M for which no result can overflow */
    bool saturates;  /* this step's M has larger magnitudes, which are clamped to the limit */
} tg_factorization;

/* What all matrices share. */
typedef struct tg_factorization_context {
    const tg_layout *layout;
    tg_nonfinite nonfinite;
    float *row; /* scratch buffer for the longest row */
} tg_factorization_context;

/* Fills out[0], out[stride], ... with n numbers between -1 and 1, the same on all ranks. */
void tg_factorization_fill_random(float *out, size_t stride, uint64_t seed, uint64_t step, size_t tensor, uint64_t at,
                                  uint64_t n);

/* P = M Q, with sums in binary64. Applies the policy for NaN and Inf. */
tg_status tg_factorization_multiply(const tg_factorization_context *c, tg_factorization *m, void *const *grads,
                                    tg_detail *why) TG_CHECKED;

/* Makes the columns of P orthonormal. A column that depends on those before it is replaced by a random one. */
void tg_factorization_orthonormalise(const tg_factorization_context *c, const tg_factorization *m, uint64_t step);

/* Q = M' P, in fp32. */
void tg_factorization_multiply_back(const tg_factorization_context *c, const tg_factorization *m, void *const *grads);

/* Writes the average P Q' to the gradient, and M - P Q' to the residual. */
void tg_factorization_settle(const tg_factorization_context *c, const tg_factorization *m, void *const *grads);

#endif
