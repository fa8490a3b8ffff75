/* Quantize: how a value is written.
 *
 * A plain part writes each value by itself, in 2 or 4 bytes. All other parts turn values into symbols: integers below a
 * base. They work on buckets of consecutive values. The values of a bucket share something, such as a scale or levels,
 * which is sent with the bucket as its side data. */
#ifndef TG_QUANTIZE_QUANTIZE_H
#define TG_QUANTIZE_QUANTIZE_H

#include "base/part.h"
#include "kernels/draws.h"
#include "tersegrad/tersegrad.h"

#include <stdint.h>

#define TG_BUCKET_MAX 65536        /* values of a bucket */
#define TG_TABLE_MAX 256           /* symbols of a decoding table */
#define TG_BUCKET_CHUNK UINT32_MAX /* as the length of a bucket: a whole chunk; only for parts without random bits */

/* The scale of a whole unit. */
typedef enum tg_scale_rule {
    TG_SCALE_NONE = -1, /* the part has none */
    TG_SCALE_MEAN = 0,  /* the mean magnitude of the values that are sent */
    TG_SCALE_BINS,      /* the mean over bins of the largest magnitude of each bin */
    TG_SCALE_ONE        /* 1: signs are votes, and the owner counts the majority */
} tg_scale_rule;

/* What a part that fits a distribution to a chunk has found: the first five bytes of its side data. A step of 0: nothing yet. */
typedef struct tg_fit {
    float step, shape; /* the shape's row is a small integer */
} tg_fit;

/* A bucket to encode. */
typedef struct tg_bucket {
    uint16_t *symbols; /* out: one for each value */
    uint8_t *side;     /* out: side_len bytes */
    const float *values;
    float *clipped;        /* scratch buffer for n values */
    tg_draws draws;        /* random bits for each value, if the part uses them */
    void *scratch;         /* scratch buffer of scratch_len bytes, aligned for any type */
    size_t n;              /* at least 1 */
    bool is_finite;        /* all values are known to be finite; false: not known */
    const float *prefetch; /* prefetch hint: n values that will be read next; may point past the end. NULL: none */
    const tg_fit *fit;     /* of an earlier step, to be used in this one; NULL: fit to the values */
} tg_bucket;

/* Values to encode whose every few share a scale: whole blocks, but for the last one of a chunk. */
typedef struct tg_blocks {
    uint16_t *symbols;     /* out: one for each value */
    uint8_t *side;         /* out: side_len bytes for each block */
    const uint8_t *head;   /* head_len bytes of the chunk */
    const float *values;   /* rotated, if they are */
    const tg_draws *draws; /* NULL: the part uses none */
    size_t n;              /* at least 1 */
} tg_blocks;

/* A quantize part. A function that is NULL is not needed by the part. */
typedef struct tg_quantize_part {
    tg_part part;

    /* ---- parts with an exchange of their own, which are never written to a frame; all else is then unused ---- */

    const char *(*exchange)(const double *params); /* the name of that exchange; NULL: the part is written to frames */
    bool needs_leader;                             /* works on the leader's coordinates; false: on all elements */

    /* ---- plain parts ---- */

    uint32_t plain_len; /* bytes of a value, 2 or 4; 0: not a plain part */
    /* The 16-bit dtype that the bytes are in, little-endian, so that a gradient of that dtype can be copied. TG_FP32: none. */
    tg_dtype wire_dtype;
    bool
        adds_up; /* a mean of decoded values can be written by this part with no error but rounding; `allreduce` needs it */
    /* Values to bytes; returns whether all values are finite. */
    bool (*write)(uint8_t *bytes, const float *values, size_t n);
    void (*read)(float *values, const uint8_t *bytes, size_t n);
    /* sums += weight * values. */
    void (*add)(float *sums, const uint8_t *bytes, float weight, size_t n);

    /* ---- parts with symbols ---- */

    uint32_t (*base)(const double *params);
    /* The length of a bucket: bucket_fixed, or if that is 0 the parameter at position bucket_param. */
    uint32_t bucket_param, bucket_fixed;
    uint32_t (*side_len)(const double *params);    /* bytes of side data of each bucket */
    uint64_t (*scratch_len)(const double *params); /* bytes of scratch buffer; NULL: none */
    bool (*draws)(const double *params);           /* whether encoding uses random bits; NULL: never */
    /* The reason why these parameters do not go together, as part of a sentence; NULL if they do. NULL function: they
     * always do. */
    const char *(*refuses)(const double *params);
    void (*encode_bucket)(const tg_bucket *b, const double *params);
    /* Writes the decoded value of each symbol and returns their number. NULL or 0: decode_bucket must be used. */
    uint32_t (*table)(float table[TG_TABLE_MAX], const uint8_t *side, const double *params);
    /* Decodes n symbols of a bucket. NULL: there is always a table. */
    void (*decode_bucket)(float *values, const uint16_t *symbols, const uint8_t *side, size_t n, const double *params);

    /* ---- parts with a scale for every few values: these in place of the three above. A bucket is a block ---- */

    void (*encode_blocks)(const tg_blocks *b, const double *params);
    /* Decodes n symbols from the beginning of a block on; `head` is that of the chunk. */
    void (*decode_blocks)(float *values, const uint16_t *symbols, const uint8_t *side, const uint8_t *head, size_t n,
                          const double *params);
    uint32_t (*rotation)(const double *params); /* values that are rotated together, a multiple of a block; 0: none */
    uint32_t head_len;                          /* bytes before the side data of a chunk ... */
    void (*write_head)(uint8_t *head, uint32_t largest); /* ... from the key of its largest (rotated) magnitude */

    /* ---- parts that fit a distribution to each chunk (a bucket is a chunk); all or none ---- */

    /* Code lengths of a prefix code for the symbols, derived from the side data; false if there is no such code. */
    bool (*lengths)(uint8_t *lengths, const uint8_t *side, const double *params);
    /* The fitted distribution, for statistics. */
    void (*fit)(double *shape, double *scale, const uint8_t *side);
    uint32_t
        refit_param; /* the position of `refit`: every so many steps have a fit of their own, and others the last one */

    /* ---- parts with one scale for the whole unit (a bucket is a chunk) ---- */

    /* The side data is the unit's scale, which is known only after the whole unit is encoded. Symbols must not depend on
     * it. Residuals are corrected when it is known. */
    bool has_scale;
    tg_scale_rule (*scale)(const double *params);
} tg_quantize_part;

#endif
