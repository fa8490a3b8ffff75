/* The hot loops, one function each, as every instruction set must compute them. Masks as in base/bits.h. */
#ifndef TG_KERNELS_KERNELS_H
#define TG_KERNELS_KERNELS_H

#include "tersegrad/tersegrad.h"

#include <stdbool.h>

/* tg_widen and tg_narrow of the public header are two of them. */

/* Elements, each divided by `divisor`, from fp32 to a gradient. */
void tg_store(void *out, tg_dtype dtype, const float *values, float divisor, size_t n);

/* out[i] = factor * values[i]; a finite value stays finite. `out` may be `values`. */
void tg_scale(float *out, const float *values, float factor, size_t n);

bool tg_all_finite(const float *values, size_t n);
void tg_zero_nonfinite(float *values, size_t n);

/* The sum of n magnitudes in binary64, in one order for all instruction sets: 16 sums of every 16th, then these in
 * order. */
double tg_sum_magnitudes(const float *values, size_t n);

/* Gathers the marked values to the front of out; returns their number. */
size_t tg_compress(float *out, const float *values, const uint64_t *mask, size_t n);

/* out[i] += weight * value for marked i, values in order; all i if mask is NULL. Or sets out[i] = value. */
void tg_expand_add(float *out, const uint64_t *mask, const float *values, float weight, size_t n);
void tg_expand_set(float *out, const uint64_t *mask, const float *values, size_t n);

#endif
