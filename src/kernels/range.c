/* See range.h. */
#include "kernels/range.h"

#include "base/half.h"
#include "kernels/kernels.h"

#include <float.h>
#include <math.h>

bool tg_all_finite(const float *values, size_t n)
{
    return tg_kernels_best()->passes.all_finite(values, n);
}

static bool is_finite(float value)
{
    return (tg_float_bits(value) & 0x7f800000u) != 0x7f800000u;
}

void tg_zero_nonfinite(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = is_finite(values[i]) ? values[i] : 0.0f;
    }
}

void tg_scale(float *out, const float *values, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float scaled = factor * values[i];
        bool overflows = !is_finite(scaled) && is_finite(values[i]);
        out[i] = overflows ? copysignf(FLT_MAX, scaled) : scaled;
    }
}

void tg_saturate(float *sums, const float *given, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_finite(sums[i]) && is_finite(given[i])) {
            sums[i] = isnan(sums[i]) ? 0.0f : copysignf(FLT_MAX, sums[i]);
        }
    }
}

float tg_average_share(size_t n)
{
    float share = 0.5f;
    for (size_t reach = 1; reach < n; reach *= 2) {
        share *= 0.5f;
    }
    return share;
}

void tg_average_shared(float *sums, float share, size_t value_n, size_t n)
{
    float divisor = (float)value_n * share;
    for (size_t i = 0; i < n; i++) {
        float average = sums[i] / divisor;
        sums[i] = is_finite(sums[i]) && !is_finite(average) ? copysignf(FLT_MAX, average) : average;
    }
}
