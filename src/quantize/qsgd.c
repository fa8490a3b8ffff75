/* QSGD (Alistarh et al. 2017): sends the norm of a bucket. Each value over the norm is rounded at random without bias to
 * one of S levels with its sign, -S to S. The symbol is that level plus S. */
#include "kernels/kernels.h"
#include "quantize/bucket.h"

#include <math.h>

enum { S, BUCKET, NORM, CLIP };
enum { NORM_L2 = 0, SIDE = 4 };

static const char *const norm_choices[] = {"l2", "max", NULL};

static const tg_param params[] = {
    {.name = "S",
     .summary = "levels of magnitude, not counting 0",
     .lowest = 1,
     .highest = 255,
     .is_whole = true,
     .is_main = true,
     .standard = 16},
    TG_BUCKET_PARAM,
    {.name = "norm",
     .summary = "norm that magnitudes are divided by: Euclidean, or the largest magnitude",
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
    if (!euclidean) {
        return tg_bits_float(tg_kernels_best()->select.largest_key(values, n));
    }
    return (float)fmin(sqrt(tg_sum_squares(values, n)), (double)3.4028235e38f);
}

static float level_of(double norm, int symbol, double levels)
{
    return (float)(norm * ((symbol - levels) / levels));
}

static uint32_t table(float *values, const uint8_t *side, const double *p)
{
    enum { MOST = 64 }; /* for a bucket, filling a longer table would cost more time than it saves */
    double norm = (double)tg_get_float(side);
    uint32_t n = base(p) <= MOST ? base(p) : 0;
    for (uint32_t s = 0; s < n; s++) {
        values[s] = level_of(norm, (int)s, p[S]);
    }
    return n;
}

static void decode_bucket(float *values, const uint16_t *symbols, const uint8_t *side, size_t n, const double *p)
{
    double norm = (double)tg_get_float(side);
    for (size_t i = 0; i < n; i++) {
        values[i] = level_of(norm, symbols[i], p[S]);
    }
}

static void encode_bucket(const tg_bucket *given, const double *p)
{
    if (!tg_bucket_check_finite(given, SIDE, 4)) {
        return;
    }
    tg_bucket clipped;
    const tg_bucket *b = tg_bucket_clip(&clipped, given, p[CLIP]);
    float norm = norm_of(b->values, b->n, p[NORM] == NORM_L2);
    /* Scale tiny and huge norms towards 1, so that S / norm neither overflows nor becomes subnormal. */
    float shift = norm < 0x1p-60f ? 0x1p80f : norm > 0x1p60f ? 0x1p-80f : 1.0f;
    float factor = norm > 0 ? (float)(p[S] / ((double)norm * (double)shift)) : 0.0f;
    tg_kernels_best()->symbols.levels(b->symbols, b->values, &b->draws, shift, factor, (uint32_t)p[S], b->n);
    tg_put_float(b->side, norm);
}

static bool draws(const double *p)
{
    (void)p;
    return true;
}

const tg_quantize_part tg_quantize_qsgd = {
    .part = {.name = "qsgd",
             .summary = "QSGD: magnitudes over the norm on S levels, unbiased",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .bucket_param = BUCKET,
    .side_len = side_len,
    .draws = draws,
    .encode_bucket = encode_bucket,
    .table = table,
    .decode_bucket = decode_bucket,
};
