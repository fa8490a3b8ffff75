/* Quantize: how a value is written.
 *
 * A plain part writes each value by itself, in whole bytes. All others turn values into symbols below a base, in buckets
 * of consecutive values that have something in common, which travels beside them: a scale, or levels. */
#ifndef TG_QUANTIZE_QUANTIZE_H
#define TG_QUANTIZE_QUANTIZE_H

#include "base/part.h"
#include "tersegrad/tersegrad.h"

#include <stdint.h>

#define TG_BUCKET_MAX 65536
#define TG_TABLE_MAX 64
#define TG_BUCKET_CHUNK UINT32_MAX /* a bucket is a whole chunk, of a part that does not draw */

/* What a scale of a whole unit is. */
typedef enum tg_scale_rule {
    TG_SCALE_NONE = -1, /* there is none */
    TG_SCALE_MEAN = 0,  /* the mean magnitude of what was sent */
    TG_SCALE_BINS,      /* the mean over bins of the largest magnitude of each */
    TG_SCALE_ONE        /* 1: what is sent is a vote, and its owner counts */
} tg_scale_rule;

/* A bucket that is encoded. */
typedef struct tg_bucket {
    uint16_t *symbols; /* out: one a value */
    uint8_t *side;     /* out: side_len bytes */
    const float *values;
    float *clipped;        /* room for as many values */
    const uint32_t *draws; /* a random word a value, for parts that ask for them */
    void *room;            /* room_len bytes, aligned for any type */
    size_t n;              /* at least 1 */
    bool is_finite;        /* all values are, as is known already */
    const float *ahead;    /* as many values that come next, to be asked for; they need not be there. NULL: none */
} tg_bucket;

typedef struct tg_quantize_part {
    tg_part part;
    /* The exchange of its own by which it travels, never written to a frame; then nothing below is filled in. NULL: none. */
    const char *(*exchange)(const double *params);
    bool needs_leader;   /* of these: whether it goes with coordinates that a leader gives, or with all elements */
    tg_dtype travels_as; /* a dtype of halves that plain bytes are, as they lie; TG_FP32: none */
    bool adds_up;        /* the mean of decoded values can be written by the same part with nothing lost but rounding */

    /* Plain parts: bytes of a value, 2 or 4; 0 for all others. Values to bytes, and whether all of them are finite; bytes to
     * values; and to sums, to which `weight` times the values are added. */
    uint32_t plain_len;
    bool (*write)(uint8_t *bytes, const float *values, size_t n);
    void (*read)(float *values, const uint8_t *bytes, size_t n);
    void (*add)(float *sums, const uint8_t *bytes, float weight, size_t n);

    /* All others: the base; values in a bucket, as the parameter at this place says or always as many; and bytes that travel
     * with each bucket. */
    uint32_t (*base)(const double *params);
    uint32_t bucket_at, bucket_always;
    uint32_t (*side_len)(const double *params);
    uint64_t (*room_len)(const double *params); /* NULL: none */
    bool (*draws)(const double *params);        /* whether it wants random words; NULL: never */
    /* A sentence if the parameters do not go together; NULL: they do, as a NULL function says of all. */
    const char *(*refuses)(const double *params);
    void (*encode_bucket)(const tg_bucket *b, const double *params);
    /* What symbols mean, by what travels with their bucket: how many values, and they. NULL or 0: decode_bucket tells. */
    uint32_t (*table)(float table[TG_TABLE_MAX], const uint8_t *side, const double *params);
    /* The values of a bucket, or of a part of it. NULL: there is always a table. */
    void (*decode_bucket)(float *values, const uint16_t *symbols, const uint8_t *side, size_t n, const double *params);

    /* Of parts that fit a distribution, a whole chunk to a bucket: lengths of a prefix code for the symbols that follow from
     * what travels with it, none for no code; and what was fitted. NULL: all others. */
    bool (*lengths)(uint8_t *lengths, const uint8_t *side, const double *params);
    void (*fit)(double *shape, double *scale, const uint8_t *side);

    /* What travels with the bucket, which is a whole chunk, is one scale, and it is of the whole unit, known only when all
     * of that was seen: symbols must not depend on it, and what is decoded is settled then. */
    bool has_scale;
    tg_scale_rule (*scale)(const double *params);
} tg_quantize_part;

#endif
