/* Gradients between their own element type and fp32. tg_widen and tg_narrow are declared in the public header. */
#ifndef TG_KERNELS_CONVERSIONS_H
#define TG_KERNELS_CONVERSIONS_H

#include "base/half.h"
#include "tersegrad/tersegrad.h"

#include <stdbool.h>

/* Writes values[i] / divisor as elements of `dtype`. Returns whether all quotients are finite; with a divisor of 1 they are
 * not checked, and the result is true. `non_temporal` as in kernels.h. */
bool tg_store(void *out, tg_dtype dtype, const float *values, float divisor, size_t n, bool non_temporal);

/* Replaces elements of `out` that are NaN or Inf by values[i], as elements of `dtype`. */
void tg_replace_nonfinite(void *out, tg_dtype dtype, const float *values, size_t n);

/* Whether a number and its reciprocal are powers of two, neither of them subnormal. */
static inline bool tg_is_power_of_two(float number)
{
    uint32_t bits = tg_float_bits(number);
    return (bits & 0x007fffffu) == 0 && bits >> 23 >= 1 && bits >> 23 <= 253;
}

#endif
