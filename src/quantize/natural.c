/* Natural compression (arXiv 1905.10988): rounds each magnitude to the power of two below or above it, at random without
 * bias, and sends only sign and exponent. A magnitude below the smallest normal number rounds to that number or to 0. A
 * magnitude above the largest power of two rounds down to it. */
#include "kernels/kernels.h"
#include "quantize/bucket.h"

enum { BUCKET = 4096 };

static uint32_t base(const double *p)
{
    (void)p;
    return 512;
}

static uint32_t side_len(const double *p)
{
    (void)p;
    return 0;
}

static void decode_bucket(float *values, const uint16_t *symbols, const uint8_t *side, size_t n, const double *p)
{
    (void)side;
    (void)p;
    tg_kernels_best()->symbols.powers(values, symbols, n);
}

static void encode_bucket(const tg_bucket *b, const double *p)
{
    (void)p;
    tg_kernels_best()->symbols.natural(b->symbols, b->values, &b->draws, b->n);
}

static bool draws(const double *p)
{
    (void)p;
    return true;
}

const tg_quantize_part tg_quantize_natural = {
    .part = {.name = "natural", .summary = "natural compression: powers of two (sign and exponent only), unbiased"},
    .base = base,
    .bucket_fixed = BUCKET, /* values share nothing; any length would do */
    .side_len = side_len,
    .draws = draws,
    .encode_bucket = encode_bucket,
    .decode_bucket = decode_bucket,
};
