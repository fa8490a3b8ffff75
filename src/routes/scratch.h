/* Scratch buffers of one thread, and what belongs to a unit beside its plan. Both are reused from chunk to chunk. */
#ifndef TG_ROUTES_SCRATCH_H
#define TG_ROUTES_SCRATCH_H

#include "kernels/kernels.h"
#include "plan/plan.h"

/* Elements of a block: 16 KiB of floats, which stay in the first-level cache through all stages. Blocks of whole bins or
 * buckets have up to TG_BIN_MAX. */

/* For routes that keep a whole chunk: symbols in buckets, and coded values. */
typedef struct tg_chunk_scratch {
    float values[TG_CHUNK];
    uint8_t words[TG_CHUNK * sizeof(float)];
    uint16_t symbols[TG_CHUNK];
    uint16_t draws[TG_BUCKET_MAX + TG_DRAWS_MORE];
    float clipped[TG_BUCKET_MAX];
    uint8_t lengths[TG_BASE_MAX]; /* of the prefix code that a quantizer proposes */
    void *quantize_space, *pack_space;
} tg_chunk_scratch;

typedef struct tg_scratch {
    float gradient[TG_BIN_MAX]; /* a block of it in fp32, where it cannot be read in place */
    float u[TG_BIN_MAX];        /* gradient + residual of a block */
    float values[TG_BIN_MAX];   /* its selected values */
    float decoded[TG_BIN_MAX];  /* what the decoder will make of them */
    uint8_t bytes[TG_BIN_MAX * sizeof(float)];
    uint64_t bin_mask[TG_BIN_MAX / 64], block_mask[TG_BIN_MAX / 64];
    uint64_t mask[TG_CHUNK / 64];
    uint32_t list[TG_CHUNK + TG_LIST_MORE];         /* coordinates of a chunk */
    float sum[TG_CHUNK];                            /* of a chunk over all frames */
    uint8_t encoded[TG_CHUNK * sizeof(float) + 64]; /* a chunk that waits for its place in the body */
    tg_chunk_scratch *chunk;                        /* NULL if no unit needs it */
} tg_scratch;

/* A unit's buffers, and what the select pass found. */
typedef struct tg_unit_work {
    void *select;     /* scratch of the select part */
    uint64_t *leader; /* mask of the leader's coordinates, for units that follow a leader */
    float *maxima;    /* largest magnitude of each bin, where the scale is their mean */
    uint32_t lanes;   /* of the measuring pass */
    uint64_t lane_n;
    float clip;          /* the gradient is scaled by it, so that its norm is bounded; 1: as it is */
    tg_tree *magnitudes; /* sums of its chunks over what was sent, where the scale is their mean; else NULL */
    uint64_t sent;       /* values of its chunks, where the scale is their mean */
    float scale;         /* of the whole unit, once all of its chunks are encoded */
    bool measures;       /* in this run of the measuring pass: not if an earlier one has found all */
    uint32_t turns;      /* in which its lanes sift together what they have found */
} tg_unit_work;

/* Residual state, current and next: a step that fails changes nothing. */
typedef struct tg_residuals {
    float *now, *next;
} tg_residuals;

#endif
