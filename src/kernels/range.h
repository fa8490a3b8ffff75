/* Loops that check values for NaN and Inf, or keep results inside the range of fp32. One version for all instruction sets. */
#ifndef TG_KERNELS_RANGE_H
#define TG_KERNELS_RANGE_H

#include <stdbool.h>
#include <stddef.h>

bool tg_all_finite(const float *values, size_t n);
void tg_zero_nonfinite(float *values, size_t n);

/* out[i] = factor * values[i]; a finite value stays finite. `out` may be `values`. */
void tg_scale(float *out, const float *values, float factor, size_t n);

/* Replaces sums that overflowed by the largest finite value of their sign. A sum stays as it is where `given` is NaN or Inf. */
void tg_saturate(float *sums, const float *given, size_t n);

/* Averages of finite values whose sum would overflow. Every value is multiplied by tg_average_share(n), a power of two so
 * small that no sum of n values overflows; tg_average_shared then divides the sums by value_n * share. Averages that rounding
 * takes beyond the range saturate. A sum that is NaN or Inf because a value was stays so. */
float tg_average_share(size_t n);
void tg_average_shared(float *sums, float share, size_t value_n, size_t n);

#endif
