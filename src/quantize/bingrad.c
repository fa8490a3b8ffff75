/* BinGrad (arXiv 2002.11082): two levels that suit the bucket.
 *
 *     pb     -b and b: inside at random without bias, outside clipped. The error is least where b = E[|v|; |v| > b], or
 *            where b begins to be larger
 *     b      the means of what is above and of what is not above a threshold, by rule. The error is least where the
 *            threshold is halfway between the two; `iters` steps go there from the mean, and 0 is the paper's shortcut
 *     zero   the same with the threshold 0: one-bit SGD (Seide et al. 2014) */
#include "kernels/kernels.h"
#include "quantize/bucket.h"

#include <math.h>

enum { FORM, BUCKET, ITERS, CLIP };
enum { FORM_B = 0, FORM_PB = 1, FORM_ZERO = 2 };

static const char *const form_choices[] = {"b", "pb", "zero", NULL};

static const tg_param params[] = {
    {.name = "form",
     .summary = "two means (b), a random sign of one magnitude (pb), two means split at 0 (zero)",
     .choices = form_choices,
     .is_main = true,
     .standard = FORM_B},
    TG_BUCKET_PARAM,
    {.name = "iters",
     .summary = "of b: steps from the mean to the best threshold",
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

static uint64_t room_len(const double *p)
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

/* The least b for which the sum of all magnitudes above b is at most n b. The sum falls and n b grows with b, so every
 * magnitude tells on which side of it b lies. */
static float balance(float *magnitudes, size_t n)
{
    size_t low = 0, high = n; /* those before `low` are below b; those from `high` on are not ... */
    double above = 0;         /* ... and this is their sum */
    double least = INFINITY;  /* and this the least of them */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        double pivot = (double)tg_partition(magnitudes + low, high - low, middle - low), behind = above;
        for (size_t i = middle + 1; i < high; i++) {
            behind += (double)magnitudes[i];
        }
        if (behind > (double)n * pivot) {
            low = middle + 1;
        } else {
            above = behind + pivot;
            least = pivot;
            high = middle;
        }
    }
    return (float)fmin(above / (double)n, least);
}

static void encode_random(const tg_bucket *b)
{
    float *magnitudes = b->room;
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

/* The means of what is above the threshold and of what is not; that of nothing is the other. Returns the largest float that
 * is not above the threshold: the same floats are above it. Values times `scale` can be summed. */
static float means_around(double means[2], const tg_bucket *b, double threshold, float scale)
{
    double sums[2];
    float limit = (float)threshold;
    limit = (double)limit > threshold ? nextafterf(limit, -INFINITY) : limit;
    size_t above = tg_kernels_best()->statistics.sums_around(sums, b->values, limit, scale, b->n);
    const size_t counts[2] = {b->n - above, above};
    for (int k = 0; k < 2; k++) {
        int of = counts[k] > 0 ? k : 1 - k;
        means[k] = sums[of] / (double)scale / (double)counts[of];
    }
    return limit;
}

static void encode_means(const tg_bucket *b, const double *p)
{
    double threshold = 0, means[2];
    float largest = tg_bits_float(tg_kernels_best()->select.largest_key(b->values, b->n)),
          scale = largest < 0x1p100f ? 1 : 0x1p-30f;
    size_t part = 0, parts = 3 + (size_t)p[ITERS];
    tg_bucket_ask(b, part++, parts);
    if (p[FORM] == FORM_B) {
        (void)means_around(means, b, INFINITY, scale); /* of all */
        threshold = means[0];
    }
    tg_bucket_ask(b, part++, parts);
    float limit = means_around(means, b, threshold, scale);
    for (int i = 0; p[FORM] == FORM_B && i < (int)p[ITERS]; i++) {
        tg_bucket_ask(b, part++, parts);
        limit = means_around(means, b, 0.5 * (means[0] + means[1]), scale);
    }
    tg_bucket_ask(b, part, parts);
    tg_kernels_best()->symbols.mark_above(b->symbols, b->values, limit, b->n);
    tg_put_float(b->side, (float)means[0]);
    tg_put_float(b->side + 4, (float)means[1]);
}

static void encode_bucket(const tg_bucket *given, const double *p)
{
    if (!tg_bucket_admit(given, side_len(p), 4)) {
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
             .summary = "BinGrad: the two levels that suit the bucket best",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .bucket_at = BUCKET,
    .side_len = side_len,
    .room_len = room_len,
    .draws = draws,
    .encode_bucket = encode_bucket,
    .table = table,
};
