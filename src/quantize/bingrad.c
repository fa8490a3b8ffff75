/* BinGrad (arXiv 2002.11082): two levels that are chosen for each bucket.
 *
 *     pb     levels -b and b. Values in between round at random without bias; values outside are clipped. The error is
 *            smallest at the smallest b that is at least the sum of all |v| > b, divided by n
 *     b      levels are the mean of the values above a threshold and the mean of the others; rounding is deterministic.
 *            The error is smallest where the threshold is halfway between the levels. The threshold starts at the mean
 *            of all values and is improved in `iters` iterations; 0 iterations is the paper's shortcut
 *     zero   as b with a fixed threshold of 0: one-bit SGD (Seide et al. 2014) */
#include "kernels/kernels.h"
#include "quantize/bucket.h"

#include <math.h>

enum { FORM, BUCKET, ITERS, CLIP };
enum { FORM_B = 0, FORM_PB = 1, FORM_ZERO = 2 };

static const char *const form_choices[] = {"b", "pb", "zero", NULL};

static const tg_param params[] = {
    {.name = "form",
     .summary = "b: two means; pb: one magnitude with a random sign; zero: two means split at 0",
     .choices = form_choices,
     .is_main = true,
     .standard = FORM_B},
    TG_BUCKET_PARAM,
    {.name = "iters",
     .summary = "with form b: iterations that improve the threshold",
     .lowest = 0,
     .highest = 100,
     .is_whole = true,
     .standard = 3},
    TG_CLIP_PARAM,
};

static uint32_t base(const double *p)
{
    (void)p;
    return 2;
}

static uint32_t side_len(const double *p)
{
    return p[FORM] == FORM_PB ? 4 : 8;
}

static uint64_t scratch_len(const double *p)
{
    return (uint64_t)p[BUCKET] * sizeof(float);
}

static uint32_t table(float *values, const uint8_t *side, const double *p)
{
    float first = tg_get_float(side);
    values[0] = p[FORM] == FORM_PB ? -first : first;
    values[1] = p[FORM] == FORM_PB ? first : tg_get_float(side + 4);
    return 2;
}

/* The smallest b for which the sum of all magnitudes above b is at most n b. The sum falls with b and n b grows, so
 * comparing the two at a magnitude tells whether b is above it: a binary search by partitioning. */
static float balance(float *magnitudes, size_t n)
{
    size_t low = 0, high = n;   /* magnitudes before `low` are below b; from `high` on they are not */
    double above = 0;           /* the sum of those from `high` on */
    double smallest = INFINITY; /* the smallest of them */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        double pivot = (double)tg_partition(magnitudes + low, high - low, middle - low), larger = above;
        for (size_t i = middle + 1; i < high; i++) {
            larger += (double)magnitudes[i];
        }
        if (larger > (double)n * pivot) {
            low = middle + 1;
        } else {
            above = larger + pivot;
            smallest = pivot;
            high = middle;
        }
    }
    return (float)fmin(above / (double)n, smallest);
}

static void encode_random(const tg_bucket *b)
{
    float *magnitudes = b->scratch;
    for (size_t i = 0; i < b->n; i++) {
        magnitudes[i] = fabsf(b->values[i]);
    }
    float level = balance(magnitudes, b->n);
    for (size_t i = 0; i < b->n; i++) {
        double up = level > 0 ? 0.5 + 0.5 * (double)b->values[i] / (double)level : 0.5;
        b->symbols[i] = tg_unit(b->draws[i]) < up ? 1 : 0;
    }
    tg_put_float(b->side, level);
}

/* The mean of the values not above the threshold and the mean of those above it; if a group is empty, both are the mean of
 * the other. Returns the threshold rounded down to a float, which splits floats in the same way. Values are summed times
 * `scale`, so that the sum does not overflow. */
static float means_around(double means[2], const tg_bucket *b, double threshold, float scale)
{
    double sums[2];
    float limit = (float)threshold;
    limit = (double)limit > threshold ? nextafterf(limit, -INFINITY) : limit;
    size_t above = tg_kernels_best()->statistics.sums_around(sums, b->values, limit, scale, b->n);
    const size_t counts[2] = {b->n - above, above};
    for (int k = 0; k < 2; k++) {
        int of = counts[k] > 0 ? k : 1 - k;
        double sum = scale == 1 ? sums[of] : sums[of] / (double)scale;
        means[k] = sum / (double)counts[of];
    }
    return limit;
}

static void encode_means(const tg_bucket *b, const double *p)
{
    double threshold = 0, means[2];
    float largest = tg_bits_float(tg_kernels_best()->select.largest_key(b->values, b->n)),
          scale = largest < 0x1p100f ? 1 : 0x1p-30f;
    size_t part = 0, parts = 3 + (size_t)p[ITERS];
    tg_bucket_prefetch(b, part++, parts);
    if (p[FORM] == FORM_B) {
        (void)means_around(means, b, INFINITY, scale); /* the mean of all values */
        threshold = means[0];
    }
    tg_bucket_prefetch(b, part++, parts);
    float limit = means_around(means, b, threshold, scale);
    for (int i = 0; p[FORM] == FORM_B && i < (int)p[ITERS]; i++) {
        double before = threshold;
        tg_bucket_prefetch(b, part++, parts);
        threshold = 0.5 * (means[0] + means[1]);
        if (i > 0 && threshold == before) {
            break; /* so would be all that follow */
        }
        limit = means_around(means, b, threshold, scale);
    }
    tg_bucket_prefetch(b, part, parts);
    tg_kernels_best()->symbols.mark_above(b->symbols, b->values, limit, b->n);
    tg_put_float(b->side, (float)means[0]);
    tg_put_float(b->side + 4, (float)means[1]);
}

static void encode_bucket(const tg_bucket *given, const double *p)
{
    if (!tg_bucket_check_finite(given, side_len(p), 4)) {
        return;
    }
    const tg_bucket clipped = tg_bucket_clip(given, p[CLIP]), *b = &clipped;
    if (p[FORM] == FORM_PB) {
        encode_random(b);
    } else {
        encode_means(b, p);
    }
}

static bool draws(const double *p)
{
    return p[FORM] == FORM_PB;
}

const tg_quantize_part tg_quantize_bingrad = {
    .part = {.name = "bingrad",
             .summary = "BinGrad: two levels chosen for each bucket",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .bucket_param = BUCKET,
    .side_len = side_len,
    .scratch_len = scratch_len,
    .draws = draws,
    .encode_bucket = encode_bucket,
    .table = table,
};
