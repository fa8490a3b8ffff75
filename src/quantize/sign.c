/* The sign alone; all values of a unit have one magnitude, its scale. */
#include "quantize/quantize.h"

#include "base/half.h"

enum { SCALE, SCALE_MEAN = 0, SCALE_MEANMAX = 1 };

static const char *const scale_choices[] = {"mean", "meanmax", NULL};

static const tg_param params[] = {
    {.name = "scale",
     .summary = "the magnitude: mean of what is sent, or (meanmax) mean over bins of the largest in each",
     .choices = scale_choices,
     .standard = SCALE_MEAN},
};

static bool of_bins(const double *p)
{
    return p[SCALE] == SCALE_MEANMAX;
}

static void encode(uint32_t *symbols, float *decoded, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        symbols[i] = tg_float_bits(values[i]) >> 31;
        decoded[i] = 0.0f;
    }
}

static void decode(float *values, const uint32_t *symbols, size_t n, float scale)
{
    uint32_t bits = tg_float_bits(scale);
    for (size_t i = 0; i < n; i++) {
        values[i] = tg_bits_float(bits ^ symbols[i] << 31);
    }
}

const tg_quantize_part tg_quantize_sign = {
    .part = {.name = "sign",
             .summary = "the sign alone, times one magnitude for the whole tensor",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .symbol_bits = 1,
    .has_scale = true,
    .of_bins = of_bins,
    .encode = encode,
    .decode = decode,
};
