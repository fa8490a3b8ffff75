/* Only the sign of each value; all values of a unit decode to the same magnitude, the unit's scale. */
#include "quantize/quantize.h"

#include "base/fields.h"
#include "kernels/kernels.h"

#include <string.h>

static const char *const scale_choices[] = {"mean", "meanmax", "one", NULL}; /* in the order of tg_scale_rule */

static const tg_param params[] = {
    {.name = "scale",
     .summary = "magnitude: mean of the values sent; mean of the bins' largest (meanmax); 1, for a majority vote (one)",
     .choices = scale_choices,
     .standard = TG_SCALE_MEAN},
};

static tg_scale_rule scale(const double *p)
{
    return (tg_scale_rule)p[0];
}

static uint32_t base(const double *p)
{
    (void)p;
    return 2;
}

static uint32_t side_len(const double *p)
{
    (void)p;
    return sizeof(float);
}

static void encode_bucket(const tg_bucket *b, const double *p)
{
    (void)p;
    tg_kernels_best()->symbols.signs(b->symbols, b->values, b->n);
}

static uint32_t table(float *values, const uint8_t *side, const double *p)
{
    (void)p;
    uint32_t plus = (uint32_t)tg_get_field(side, sizeof plus), minus = plus ^ UINT32_C(1) << 31;
    memcpy(&values[0], &plus, sizeof plus);
    memcpy(&values[1], &minus, sizeof minus);
    return 2;
}

const tg_quantize_part tg_quantize_sign = {
    .part = {.name = "sign",
             .summary = "signs only, times one magnitude for the whole tensor",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .side_len = side_len,
    .encode_bucket = encode_bucket,
    .table = table,
    .has_scale = true,
    .scale = scale,
};
