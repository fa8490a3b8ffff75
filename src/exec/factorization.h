/* PowerSGD's arithmetic on one matrix M, the gradient plus residual of a tensor. Its passes work on some rows or some columns, so
 * that threads can share a matrix; results do not depend on how it is cut. kernels/factors.h gives the order of sums. */
#ifndef TG_EXEC_FACTORIZATION_H
#define TG_EXEC_FACTORIZATION_H

#include "exec/exec.h"

/* Factors lie column after column: element i of column k of P is p[k * rows + i]. */
typedef struct tg_factorization {
    size_t tensor;
    uint64_t rows, columns;
    uint32_t rank;
    bool travels_in_bf16; /* its factors do */
    float decay;          /* the residual is multiplied by it before it is added; 0 without feedback */
    float *residual;      /* NULL without feedback */
    float *q;             /* the factor that the step starts from */
    float *p;
    float *q_next;    /* the factor that the next step starts from; before Q is computed, the scaled q */
    float limit;      /* the largest magnitude in M for which no result can overflow */
    bool is_extreme;  /* this step's M has larger magnitudes, NaN or Inf, to which a policy applies */
    bool is_diverged; /* this step's average Q has NaN or Inf, which the policy has passed */
} tg_factorization;

/* What all matrices share. */
typedef struct tg_factorization_context {
    const tg_layout *layout;
    tg_nonfinite nonfinite;
} tg_factorization_context;

/* The scratch buffer that passes over a matrix need, in floats. */
uint64_t tg_factorization_scratch(const tg_factorization *m);

/* The largest number of columns for tg_factorization_multiply_back. */
uint64_t tg_factorization_width(const tg_factorization *m);

/* Fills out with n numbers between -1 and 1, the same on all ranks. */
void tg_factorization_fill_random(float *out, uint64_t seed, uint64_t step, size_t tensor, uint64_t at, uint64_t n);

/* Begins a step: scales q. */
void tg_factorization_begin(tg_factorization *m);

/* Rows [from, to) of P = M Q. Returns whether they are extreme. */
bool tg_factorization_multiply(const tg_factorization_context *c, const tg_factorization *m, void *const *grads,
                               float *scratch, uint64_t from, uint64_t to);

/* The reason to refuse an extreme matrix; once it is known whether the gradient is finite. */
tg_status tg_factorization_refusal(const tg_factorization_context *c, const tg_factorization *m, bool is_finite,
                                   tg_detail *why) TG_CHECKED;
tg_status tg_factorization_refuse(const tg_factorization_context *c, const tg_factorization *m, void *const *grads,
                                  float *scratch, tg_detail *why) TG_CHECKED;

/* Makes the columns of P orthonormal. A column that depends on those before it is replaced by a random one. */
void tg_factorization_orthonormalise(const tg_factorization_context *c, const tg_factorization *m, uint64_t step);

/* Columns [from, to) of Q = M' P. */
void tg_factorization_multiply_back(const tg_factorization_context *c, const tg_factorization *m, void *const *grads,
                                    float *scratch, uint64_t from, uint64_t to);

/* Rows [from, to): writes the average P Q' to `out`, and changes nothing else. */
void tg_factorization_average(const tg_factorization_context *c, const tg_factorization *m, void *const *out,
                              float *scratch, uint64_t from, uint64_t to);

/* Ends a step: q becomes the average Q, if that is finite. */
void tg_factorization_end(tg_factorization *m);

/* Rows [from, to): writes the average P Q' to the gradient, and M - P Q' to the residual. After tg_factorization_end. */
void tg_factorization_settle(const tg_factorization_context *c, const tg_factorization *m, void *const *grads,
                             float *scratch, uint64_t from, uint64_t to);

#endif
