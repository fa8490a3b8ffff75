/* Gradients between their own element type and fp32. tg_widen and tg_narrow are declared in the public header. */
#ifndef TG_KERNELS_CONVERSIONS_H
#define TG_KERNELS_CONVERSIONS_H

#include "tersegrad/tersegrad.h"

#include <stdbool.h>

/* Writes values[i] / divisor as elements of `dtype`. Returns whether all quotients are finite; with a divisor of 1 they are
 * not checked, and the result is true. */
bool tg_store(void *out, tg_dtype dtype, const float *values, float divisor, size_t n);

#endif
