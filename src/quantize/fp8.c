/* Floats of 8 bits: e5m2 (5 bits of exponent, 2 of fraction) has 247 values, e4m3 has 239. */
#include "quantize/minifloat.h"
#include "quantize/shapes.h"

static const char *const format_choices[] = {"e5m2", "e4m3", NULL};

static const tg_param params[] = {
    {.name = "format", .summary = "bits of exponent and of fraction", .choices = format_choices, .is_main = true},
    TG_REFIT_PARAM,
};

static const tg_minifloat *format(const double *p)
{
    static const tg_minifloat formats[] = {{5, 2, 15, TG_SHAPE_FP8, 247}, {4, 3, 10, TG_SHAPE_FP8E4M3, 239}};
    return &formats[(size_t)p[0]];
}

static uint32_t base(const double *p)
{
    return format(p)->values;
}

static uint32_t side_len(const double *p)
{
    (void)p;
    return TG_MINIFLOAT_SIDE;
}

static void encode_bucket(const tg_bucket *b, const double *p)
{
    tg_minifloat_encode(b, format(p));
}

static uint32_t table(float *decoded, const uint8_t *side, const double *p)
{
    return tg_minifloat_table(decoded, side, format(p));
}

static bool lengths(uint8_t *out, const uint8_t *side, const double *p)
{
    return tg_minifloat_lengths(out, side, format(p));
}

const tg_quantize_part tg_quantize_fp8 = {
    .part = {.name = "fp8",
             .summary = "floats of 8 bits (247 or 239 values), times a step that is fitted to the chunk",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .bucket_fixed = TG_BUCKET_CHUNK,
    .side_len = side_len,
    .encode_bucket = encode_bucket,
    .table = table,
    .lengths = lengths,
    .fit = tg_minifloat_fit,
    .refit_param = 1,
};
