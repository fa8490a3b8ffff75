/* A float of 4 bits: 1 sign, 2 exponent, 1 fraction. It has 11 values. */
#include "quantize/minifloat.h"
#include "quantize/shapes.h"

static const tg_param params[] = {TG_REFIT_PARAM};

static const tg_minifloat format = {2, 1, 1, TG_SHAPE_FP4, 11};

static uint32_t base(const double *p)
{
    (void)p;
    return format.values;
}

static uint32_t side_len(const double *p)
{
    (void)p;
    return TG_MINIFLOAT_SIDE;
}

static void encode_bucket(const tg_bucket *b, const double *p)
{
    (void)p;
    tg_minifloat_encode(b, &format);
}

static uint32_t table(float *decoded, const uint8_t *side, const double *p)
{
    (void)p;
    return tg_minifloat_table(decoded, side, &format);
}

static bool lengths(uint8_t *out, const uint8_t *side, const double *p)
{
    (void)p;
    return tg_minifloat_lengths(out, side, &format);
}

const tg_quantize_part tg_quantize_fp4 = {
    .part = {.name = "fp4",
             .summary = "floats of 4 bits (11 values), times a step that is fitted to the chunk",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .bucket_fixed = TG_BUCKET_CHUNK,
    .side_len = side_len,
    .encode_bucket = encode_bucket,
    .table = table,
    .lengths = lengths,
    .fit = tg_minifloat_fit,
    .refit_param = 0,
};
