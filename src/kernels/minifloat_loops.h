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
    const float unit = ldexpf(1, 1 - (int)f.bias - (int)f.fraction_bits), units = 1 / unit;
    const double inverse = 1 / (double)step;
    for (size_t i = 0; i < n; i++) {
        double value = (double)values[i];
        float quotient = (float)(fabs(value) * inverse), small = quotient * units;
        int32_t number = (int32_t)(tg_float_bits(quotient) >> shift) - (int32_t)(first >> shift);
        small = small < 16 ? small : 16;
        number = number < normal ? (int32_t)small : number;
        number = number < largest ? number : largest - 1;
        float middle = tg_bits_float(((uint32_t)number << shift) + first + (1u << (shift - 1)));
        middle = number < normal ? ((float)number + 0.5f) * unit : middle;
        uint32_t sign = tg_float_bits(values[i]) & 0x80000000u;
        double limit = (double)tg_bits_float(tg_float_bits(middle) | sign) * (double)step;
        /* Below 0, the next magnitude has the lower symbol. */
        int32_t lower = sign != 0 ? -1 - number : number;
        symbols[i] = (uint16_t)(largest + lower + (value > limit ? 1 : 0));
    }
}

#endif
