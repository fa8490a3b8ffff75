/* Natural compression (arXiv 1905.10988): a power of two below or above the magnitude, at random without bias: sign and
 * exponent alone. What is below the least normal number rounds to it or to 0; beyond the largest power of two stays it. */
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
    tg_kernels_best()->symbols.natural(b->symbols, b->values, b->draws, b->n);
}

static bool draws(const double *p)
{
    (void)p;
    return true;
}

const tg_quantize_part tg_quantize_natural = {
    .part = {.name = "natural", .summary = "powers of two, without bias: sign and exponent alone"},
    .base = base,
    .bucket_always = BUCKET, /* nothing is common to it */
    .side_len = side_len,
    .draws = draws,
    .encode_bucket = encode_bucket,
    .decode_bucket = decode_bucket,
};
