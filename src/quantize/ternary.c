/* TernGrad (arXiv 1705.07878): 0, or the largest magnitude of the bucket with the sign, at random without bias. */
#include "quantize/bucket.h"

#include <math.h>

enum { BUCKET, CLIP };
enum { SIDE = 4 };
enum { MINUS = 0, ZERO = 1, PLUS = 2 };

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

static void decode_bucket(float *values, const uint16_t *symbols, const uint8_t *side, size_t n, const double *p)
{
    (void)p;
    float scale = tg_get_float(side);
    for (size_t i = 0; i < n; i++) {
        values[i] = symbols[i] == ZERO ? scale * 0 : symbols[i] == PLUS ? scale : -scale; /* NaN if the scale is */
    }
}

static void encode_bucket(const tg_bucket *given, const double *p)
{
    if (!tg_bucket_admit(given, SIDE, 4)) {
        return;
    }
    const tg_bucket clipped = tg_bucket_clip(given, p[CLIP]), *b = &clipped;
    float largest = 0;
    for (size_t i = 0; i < b->n; i++) {
        largest = fmaxf(largest, fabsf(b->values[i]));
    }
    for (size_t i = 0; i < b->n; i++) {
        double share = largest > 0 ? fabs((double)b->values[i]) / (double)largest : 0;
        bool sent = tg_unit(b->draws[i]) < share;
        b->symbols[i] = !sent ? ZERO : b->values[i] < 0 ? MINUS : PLUS;
    }
    tg_put_float(b->side, largest);
}

static bool draws(const double *p)
{
    (void)p;
    return true;
}

const tg_quantize_part tg_quantize_ternary = {
    .part = {.name = "ternary",
             .summary = "0 or plus or minus the largest of the bucket, without bias",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .bucket_at = BUCKET,
    .side_len = side_len,
    .draws = draws,
    .encode_bucket = encode_bucket,
    .decode_bucket = decode_bucket,
};
