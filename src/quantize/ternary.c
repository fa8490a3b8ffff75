/* TernGrad (arXiv 1705.07878): each value becomes 0 or the bucket's largest magnitude with its sign, at random without
 * bias. */
#include "kernels/kernels.h"
#include "quantize/bucket.h"

enum { BUCKET, CLIP };
enum { SIDE = 4 };
enum { MINUS = 0, ZERO = 1, PLUS = 2 }; /* the symbols that the kernel writes */

static const tg_param params[] = {
    TG_BUCKET_PARAM,
    TG_CLIP_PARAM,
};

static uint32_t base(const double *p)
{
    (void)p;
    return 3;
}

static uint32_t side_len(const double *p)
{
    (void)p;
    return SIDE;
}

static uint32_t table(float *values, const uint8_t *side, const double *p)
{
    (void)p;
    float scale = tg_get_float(side);
    values[MINUS] = -scale;
    values[ZERO] = scale * 0; /* NaN if the scale is NaN */
    values[PLUS] = scale;
    return 3;
}

static void encode_bucket(const tg_bucket *given, const double *p)
{
    if (!tg_bucket_check_finite(given, SIDE, 4)) {
        return;
    }
    tg_bucket clipped;
    const tg_bucket *b = tg_bucket_clip(&clipped, given, p[CLIP]);
    float largest = tg_bits_float(tg_kernels_best()->select.largest_key(b->values, b->n));
    tg_kernels_best()->symbols.ternary(b->symbols, b->values, &b->draws, largest, b->n);
    tg_put_float(b->side, largest);
}

static bool draws(const double *p)
{
    (void)p;
    return true;
}

const tg_quantize_part tg_quantize_ternary = {
    .part = {.name = "ternary",
             .summary = "TernGrad: 0 or plus or minus the bucket's largest magnitude, unbiased",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .bucket_param = BUCKET,
    .side_len = side_len,
    .draws = draws,
    .encode_bucket = encode_bucket,
    .table = table,
};
