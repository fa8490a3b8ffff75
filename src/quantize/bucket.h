/* What quantizers with buckets share: parameters, floats in side data, checks. */
#ifndef TG_QUANTIZE_BUCKET_H
#define TG_QUANTIZE_BUCKET_H

#include "base/bytes.h"
#include "base/half.h"
#include "quantize/quantize.h"

#define TG_BUCKET_PARAM                                                                                    \
    {                                                                                                      \
        .name = "bucket", .summary = "values of a bucket, which share their scale or levels", .lowest = 1, \
        .highest = TG_BUCKET_MAX, .is_whole = true, .standard = 2048                                       \
    }
#define TG_CLIP_PARAM                                                                                           \
    {                                                                                                           \
        .name = "clip", .summary = "clip values to this many standard deviations; 0: do not clip", .lowest = 0, \
        .highest = 1000, .standard = 0                                                                          \
    }

static inline void tg_put_float(uint8_t *at, float value)
{
    tg_put32(at, tg_float_bits(value));
}

static inline float tg_get_float(const uint8_t *at)
{
    return tg_bits_float(tg_get32(at));
}

/* Prefetches one of `parts` equal parts of the next bucket. A quantizer that makes several passes over its bucket prefetches
 * one part in each pass, so that memory keeps up. Of a short bucket the first part is all of it. */
static inline void tg_bucket_prefetch(const tg_bucket *b, size_t part, size_t parts)
{
    enum { LINE = 64 / sizeof(float), SHORT = 16 * LINE };
    if (b->n <= SHORT) {
        for (size_t i = 0; b->prefetch != NULL && part == 0 && i < b->n; i += LINE) {
            __builtin_prefetch(b->prefetch + i);
        }
        return;
    }
    for (size_t i = b->n * part / parts / LINE * LINE; b->prefetch != NULL && i < b->n * (part + 1) / parts;
         i += LINE) {
        __builtin_prefetch(b->prefetch + i);
    }
}

/* Returns whether all values are finite. If they are not, encodes the whole bucket as NaN: all symbols are 0, and the side
 * data is filled with NaNs of `len` bytes (4: fp32, 2: fp16). */
bool tg_bucket_check_finite(const tg_bucket *b, uint32_t side_len, uint32_t len);

/* The bucket with values clipped to plus or minus `clip` standard deviations, as a copy in *clipped; the bucket itself if clip
 * is 0. */
const tg_bucket *tg_bucket_clip(tg_bucket *clipped, const tg_bucket *b, double clip);

#endif
