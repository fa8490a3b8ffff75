/* S equally spaced levels from a bucket's smallest value to its largest; values round to a level at random without bias. */
#include "quantize/bucket.h"

#include <math.h>

enum { S, BUCKET, CLIP };
enum { SIDE = 8 }; /* smallest value, largest value */

static const tg_param params[] = {
    {.name = "S",
     .summary = "number of levels",
     .lowest = 2,
     .highest = 256,
     .is_whole = true,
     .is_main = true,
     .standard = 16},
    TG_BUCKET_PARAM,
    TG_CLIP_PARAM,
};

static uint32_t base(const double *p)
{
    return (uint32_t)p[S];
}

static uint32_t side_len(const double *p)
{
    (void)p;
    return SIDE;
}

static float level(double least, double largest, uint32_t symbol, double steps)
{
    return (float)(least + (largest - least) * (symbol / steps));
}

static void decode_bucket(float *values, const uint16_t *symbols, const uint8_t *side, size_t n, const double *p)
{
    double least = (double)tg_get_float(side), largest = (double)tg_get_float(side + 4);
    for (size_t i = 0; i < n; i++) {
        values[i] = level(least, largest, symbols[i], p[S] - 1);
    }
}

/* r < fraction, in binary64; the draw decides if it can. */
static bool rounds_up(const tg_draws *draws, size_t i, double fraction)
{
    double low = (double)draws->upper[i] * 0x1p-16;
    return low + 0x1p-16 <= fraction || (low < fraction && (double)tg_draw_unit(draws, i) < fraction);
}

static void encode_bucket(const tg_bucket *given, const double *p)
{
    if (!tg_bucket_check_finite(given, SIDE, 4)) {
        return;
    }
    tg_bucket clipped;
    const tg_bucket *b = tg_bucket_clip(&clipped, given, p[CLIP]);
    float least = b->values[0], largest = b->values[0];
    for (size_t i = 1; i < b->n; i++) {
        least = b->values[i] < least ? b->values[i] : least;
        largest = b->values[i] > largest ? b->values[i] : largest;
    }
    double range = (double)largest - (double)least, steps = p[S] - 1;
    for (size_t i = 0; i < b->n; i++) {
        double at = range > 0 ? ((double)b->values[i] - (double)least) / range * steps : 0;
        double below = floor(at);
        uint32_t symbol = (uint32_t)below + (rounds_up(&b->draws, i, at - below) ? 1 : 0);
        b->symbols[i] = (uint16_t)symbol;
    }
    tg_put_float(b->side, least);
    tg_put_float(b->side + 4, largest);
}

static bool draws(const double *p)
{
    (void)p;
    return true;
}

const tg_quantize_part tg_quantize_linear = {
    .part = {.name = "linear",
             .summary = "S equally spaced levels over a bucket's range, unbiased",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .bucket_param = BUCKET,
    .side_len = side_len,
    .draws = draws,
    .encode_bucket = encode_bucket,
    .decode_bucket = decode_bucket,
};
