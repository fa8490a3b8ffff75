/* QSGD (Alistarh et al. 2017): the norm of a bucket, and magnitudes over the norm on S levels, rounded to at random
 * without bias, with their signs. Symbols are -S to S, laid on 0 to 2 S. */
#include "quantize/bucket.h"

#include <math.h>

enum { S, BUCKET, NORM, CLIP };
enum { NORM_L2 = 0, SIDE = 4 };

static const char *const norm_choices[] = {"l2", "max", NULL};

static const tg_param params[] = {
    {.name = "S",
     .summary = "levels of magnitudes, beside 0",
     .lowest = 1,
     .highest = 255,
     .is_whole = true,
     .is_main = true,
     .standard = 16},
    TG_BUCKET_PARAM,
    {.name = "norm",
     .summary = "what magnitudes are measured against: their Euclidean norm or the largest",
     .choices = norm_choices,
     .standard = NORM_L2},
    TG_CLIP_PARAM,
};

static uint32_t base(const double *p)
{
    return 2 * (uint32_t)p[S] + 1;
}

static uint32_t side_len(const double *p)
{
    (void)p;
    return SIDE;
}

static float norm_of(const float *values, size_t n, bool euclidean)
{
    double sum = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        double size = fabs((double)values[i]);
        sum += size * size;
        largest = size > largest ? size : largest;
    }
    return (float)(euclidean ? fmin(sqrt(sum), (double)3.4028235e38f) : largest);
}

static void decode_bucket(float *values, const uint16_t *symbols, const uint8_t *side, size_t n, const double *p)
{
    double norm = (double)tg_get_float(side);
    int levels = (int)p[S];
    for (size_t i = 0; i < n; i++) {
        values[i] = (float)(norm * ((symbols[i] - levels) / p[S]));
    }
}

static void encode_bucket(const tg_bucket *given, const double *p)
{
    if (!tg_bucket_admit(given, SIDE, 4)) {
        return;
    }
    const tg_bucket clipped = tg_bucket_clip(given, p[CLIP]), *b = &clipped;
    float norm = norm_of(b->values, b->n, p[NORM] == NORM_L2);
    int levels = (int)p[S];
    for (size_t i = 0; i < b->n; i++) {
        double at = norm > 0 ? fmin(fabs((double)b->values[i]) / (double)norm, 1) * p[S] : 0;
        int below = (int)at;
        int level = below + (tg_unit(b->draws[i]) < at - below ? 1 : 0);
        b->symbols[i] = (uint16_t)(b->values[i] < 0 ? levels - level : levels + level);
    }
    tg_put_float(b->side, norm);
}

static bool draws(const double *p)
{
    (void)p;
    return true;
}

const tg_quantize_part tg_quantize_qsgd = {
    .part = {.name = "qsgd",
             .summary = "QSGD: magnitudes over the norm on S levels, without bias",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .bucket_at = BUCKET,
    .side_len = side_len,
    .draws = draws,
    .encode_bucket = encode_bucket,
    .decode_bucket = decode_bucket,
};
