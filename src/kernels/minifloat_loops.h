/* Rounding to small floats in plain C that compilers vectorise; see loops.h.
 *
 * The upper bits of |value| / step, rounded in any way, are the number of a magnitude. The result is this one or the next,
 * because a quotient that is too large or too small by its rounding only is still nearest to one of both. So one comparison
 * with the middle between them decides, and only that must be exact. Middles have at most 5 bits and steps have 24, so products
 * of both are exact in binary64. */
#ifndef TG_KERNELS_MINIFLOAT_LOOPS_H
#define TG_KERNELS_MINIFLOAT_LOOPS_H

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/minifloat.h"

#include <math.h>

TG_TARGET static void minifloats(uint16_t *symbols, const float *values, float step, tg_float_format f, size_t n)
{
    const int32_t normal = 1 << f.fraction_bits, largest = (int32_t)f.largest;
    const uint32_t shift = 23 - f.fraction_bits, first = (127 - f.bias) << 23; /* bits of number 0, if it were normal */
    const float unit = ldexpf(1, 1 - (int)f.bias - (int)f.fraction_bits), per_unit = 1 / unit;
    const double inverse = 1 / (double)step;
    for (size_t i = 0; i < n; i++) { /* masks choose, since compilers do not vectorise branches */
        double value = (double)values[i];
        uint32_t sign = tg_float_bits(values[i]) & 0x80000000u;
        float quotient = (float)(fabs(value) * inverse), units = quotient * per_unit;
        units = units < 16 ? units : 16;
        int32_t number = (int32_t)(tg_float_bits(quotient) >> shift) - (int32_t)(first >> shift);
        int32_t is_normal = number < normal ? 0 : -1;
        number = number < largest ? number : largest - 1;
        number = (number & is_normal) | ((int32_t)units & ~is_normal);
        uint32_t middle = ((uint32_t)number << shift) + first + (1u << (shift - 1));
        uint32_t small_middle = tg_float_bits(((float)number + 0.5f) * unit);
        middle = (middle & (uint32_t)is_normal) | (small_middle & ~(uint32_t)is_normal);
        double limit = (double)tg_bits_float(middle | sign) * (double)step;
        /* Below 0, the next magnitude has the lower symbol: number becomes -1 - number. */
        int32_t lower = number ^ (sign != 0 ? -1 : 0), is_above = value > limit ? 1 : 0;
        symbols[i] = (uint16_t)(largest + lower + is_above);
    }
}

#endif
