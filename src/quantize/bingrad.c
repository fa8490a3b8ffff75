/* BinGrad (arXiv 2002.11082): two levels that are chosen for each bucket.
 *
 *     pb     levels -b and b. Values in between round at random without bias; values outside are clipped. The error is
 *            smallest at the smallest b that is at least the sum of all |v| > b, divided by n
 *     b      levels are the mean of the values above a threshold and the mean of the others; rounding is deterministic.
 *            The error is smallest where the threshold is halfway between the levels. The threshold starts at the mean
 *            of all values and is improved in `iters` iterations; 0 iterations is the paper's shortcut
 *     zero   as b with a fixed threshold of 0: one-bit SGD (Seide et al. 2014) */
#include "base/bits.h"
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

/* For form pb: magnitudes, and two masks. */
static uint64_t scratch_len(const double *p)
{
    return (uint64_t)p[BUCKET] * sizeof(float) + 2 * tg_words((uint64_t)p[BUCKET]) * sizeof(uint64_t) +
           sizeof(uint64_t);
}

static uint32_t table(float *values, const uint8_t *side, const double *p)
{
    float first = tg_get_float(side);
    values[0] = p[FORM] == FORM_PB ? -first : first;
    values[1] = p[FORM] == FORM_PB ? first : tg_get_float(side + 4);
    return 2;
}

/* ---- pb -------------------------------------------------------------------------------------------------------------- */

/* The best level b of a bucket is the smallest for which S(b), the sum of all magnitudes above b, is at most n b. S falls with b
 * and n b grows, so comparing the two tells whether b is above or below. All sums are exact (docs/format.md, section 8), so that
 * the result does not depend on the way in which it is found. */
typedef struct search {
    const float *values;
    size_t n;
    float low, high; /* S(low) > n low, S(high) <= n high: b is above low and not above high */
    double low_sum;  /* S(low), */
    double high_sum; /* S(high) */
    size_t above_low, above_high;
} search;

/* Narrows the search to one side of a threshold, which is between low and high. */
static void narrow(search *s, float at)
{
    double sum = 0;
    size_t count = tg_kernels_best()->statistics.sum_above(&sum, s->values, at, s->n);
    if (sum > (double)s->n * (double)at) {
        s->low = at;
        s->low_sum = sum;
        s->above_low = count;
    } else {
        s->high = at;
        s->high_sum = sum;
        s->above_high = count;
    }
}

/* Narrows until few magnitudes are left between low and high. Where n b = S(b) is estimated by a straight line, and a threshold
 * is taken on either side of it in turn, at a distance of about FEW / 3 magnitudes. */
enum { FEW = 48, NARROW_MAX = 12 };

static void narrow_to_few(search *s)
{
    double n = (double)s->n, mean = s->low_sum / n;
    narrow(s, (float)(0.81 * mean)); /* b of a Gaussian and of a Laplace distribution, nearly */
    for (int turn = 0; turn < NARROW_MAX && s->above_low - s->above_high > FEW; turn++) {
        double low = (double)s->low, high = (double)s->high;
        double over = s->low_sum - n * low, under = n * high - s->high_sum; /* over > 0, under >= 0 */
        double guess = low + (high - low) * over / (over + under);
        double apart = FEW / 3.0 * (high - low) / (double)(s->above_low - s->above_high);
        double at = turn % 2 == 0 ? guess + apart : guess - apart;
        float next = (float)(at > low && at < high ? at : low + 0.5 * (high - low));
        if (!(next > s->low && next < s->high)) {
            return;
        }
        narrow(s, next);
    }
}

/* The magnitudes above low and not above high; returns their number. */
static size_t take_between(float *out, const search *s, uint64_t *masks)
{
    size_t count = 0, words = (size_t)tg_words(s->n);
    uint64_t *above_low = masks, *above_high = masks + words;
    tg_kernels_best()->select.mark_keys(above_low, s->values, tg_float_bits(s->low) + 1, s->n);
    tg_kernels_best()->select.mark_keys(above_high, s->values, tg_float_bits(s->high) + 1, s->n);
    for (size_t w = 0; w < words; w++) {
        for (uint64_t word = above_low[w] & ~above_high[w]; word != 0; word &= word - 1) {
            out[count++] = fabsf(s->values[w * 64 + tg_lowest(word)]);
        }
    }
    return count;
}

/* Finds b among the magnitudes between low and high by partitioning. */
static float settle(const search *s, float *magnitudes, size_t count)
{
    size_t low = 0, high = count; /* magnitudes before `low` are below b; from `high` on they are not */
    double above = s->high_sum;   /* the sum of those from `high` on, and of those above s->high */
    double smallest = INFINITY;   /* the smallest from `high` on */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        double pivot = (double)tg_partition(magnitudes + low, high - low, middle - low), larger = above;
        for (size_t i = middle + 1; i < high; i++) {
            larger += (double)magnitudes[i];
        }
        if (larger > (double)s->n * pivot) {
            low = middle + 1;
        } else {
            above = larger + pivot;
            smallest = pivot;
            high = middle;
        }
    }
    return (float)fmin(above / (double)s->n, smallest);
}

/* Magnitudes as multiples of 2^-36 of the largest one's power of two: sums of TG_BUCKET_MAX of them are exact in binary64. In
 * short buckets those that matter are such multiples anyway: b is at least the largest over n. */
enum { SHORT = 8192 };

static const float *on_grid(float *out, const tg_bucket *b, float largest)
{
    if (b->n <= SHORT) {
        return b->values;
    }
    int exponent = 0;
    (void)frexpf(largest, &exponent); /* largest is below 2^exponent */
    double round = ldexp(1.5, 52 + exponent - 1 - 36);
    for (size_t i = 0; i < b->n; i++) {
        out[i] = (float)(fabs((double)b->values[i]) + round - round);
    }
    return out;
}

static float balance(const tg_bucket *b)
{
    float largest = tg_bits_float(tg_kernels_best()->select.largest_key(b->values, b->n));
    float *magnitudes = b->scratch;
    uint64_t *masks = (uint64_t *)(void *)((char *)b->scratch + (b->n * sizeof(float) + 7) / 8 * 8);
    if (largest == 0) {
        return 0;
    }
    search s = {.values = on_grid(magnitudes, b, largest), .n = b->n, .high = largest};
    s.above_low = tg_kernels_best()->statistics.sum_above(&s.low_sum, s.values, 0, s.n);
    narrow_to_few(&s);
    return settle(&s, magnitudes, take_between(magnitudes, &s, masks));
}

static void encode_random(const tg_bucket *b)
{
    float level = balance(b);
    tg_kernels_best()->symbols.two_sided(b->symbols, b->values, &b->draws, level, b->n);
    tg_put_float(b->side, level);
}

/* ---- b and zero ------------------------------------------------------------------------------------------------------ */

/* As nextafterf(x, -INFINITY), of a number that is neither NaN nor -Inf. */
static float next_below(float x)
{
    uint32_t bits = tg_float_bits(x);
    return tg_bits_float(x > 0 ? bits - 1 : x < 0 ? bits + 1 : 0x80000001u);
}

/* The mean of the values not above the threshold and the mean of those above it; if a group is empty, both are the mean of
 * the other. Returns the threshold rounded down to a float, which splits floats in the same way. Values are summed times
 * `scale`, so that the sum does not overflow. */
static float means_around(double means[2], const tg_bucket *b, double threshold, float scale)
{
    double sums[2];
    float limit = (float)threshold;
    limit = (double)limit > threshold ? next_below(limit) : limit;
    size_t above = tg_sum_around(sums, b->values, limit, scale, b->n);
    if (scale != 1) {
        sums[0] /= (double)scale;
        sums[1] /= (double)scale;
    }
    means[0] = sums[0] / (double)(int64_t)(b->n - above);
    means[1] = sums[1] / (double)(int64_t)above;
    if (above == b->n) {
        means[0] = means[1];
    } else if (above == 0) {
        means[1] = means[0];
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
    tg_bucket clipped;
    const tg_bucket *b = tg_bucket_clip(&clipped, given, p[CLIP]);
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
