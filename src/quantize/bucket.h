/* What quantizers that work in buckets share: parameters, numbers that travel with a bucket, random rounding. */
#ifndef TG_QUANTIZE_BUCKET_H
#define TG_QUANTIZE_BUCKET_H

#include "base/bytes.h"
#include "base/half.h"
#include "quantize/quantize.h"

#define TG_BUCKET_PARAM                                                                                       \
    {                                                                                                         \
        .name = "bucket", .summary = "values that share their levels", .lowest = 1, .highest = TG_BUCKET_MAX, \
        .is_whole = true, .standard = 2048                                                                    \
    }
#define TG_CLIP_PARAM                                                                                             \
    {                                                                                                             \
        .name = "clip", .summary = "values beyond so many standard deviations are clipped; 0: none", .lowest = 0, \
        .highest = 1000, .standard = 0                                                                            \
    }

/* A random word as a number in [0, 1). */
static inline double tg_unit(uint32_t word)
{
    return (double)(word >> 8) * 0x1p-24;
}

static inline void tg_put_float(uint8_t *at, float value)
{
    tg_put32(at, tg_float_bits(value));
}

static inline float tg_get_float(const uint8_t *at)
{
    return tg_bits_float(tg_get32(at));
}

/* Asks for one of some parts of what comes next. Memory takes its time, so a part that goes through its bucket several times asks
 * bit by bit. */
static inline void tg_bucket_ask(const tg_bucket *b, size_t part, size_t parts)
{
    enum { LINE = 64 / sizeof(float) };
    for (size_t i = b->n * part / parts / LINE * LINE; b->ahead != NULL && i < b->n * (part + 1) / parts; i += LINE) {
        __builtin_prefetch(b->ahead + i);
    }
}

/* Whether a bucket can be quantized: all of it is finite. If not, all of it travels as NaN: symbols 0, and NaN for each of
 * the side_len / len numbers of `len` bytes beside them. */
bool tg_bucket_admit(const tg_bucket *b, uint32_t side_len, uint32_t len);

/* The bucket with values clipped to `clip` standard deviations on both sides of 0; as it is if that is 0. */
tg_bucket tg_bucket_clip(const tg_bucket *b, double clip);

#endif
