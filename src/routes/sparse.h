/* What sparse routes share: the selected values of a chunk as they are written, and how they are read. */
#ifndef TG_ROUTES_SPARSE_H
#define TG_ROUTES_SPARSE_H

#include "routes/route.h"

typedef struct tg_sparse {
    tg_encoding *e;
    uint8_t *side;         /* sides of buckets, then values */
    uint64_t count;        /* values so far */
    const float *gradient; /* of the block that was loaded last */
    const float *u;        /* gradient + residual */
    float *sum;            /* the same, to subtract from; NULL without feedback */
    float *waits_at;       /* where values of buckets wait for the end of the chunk; NULL: they do not */
    bool waits;            /* values are decoded after their block */
    bool listed;           /* scratch->list has all coordinates so far */
    bool non_temporal;     /* residuals are written by non-temporal stores */
    tg_summing magnitudes; /* of the values so far, where the scale is their mean */
} tg_sparse;

/* The start of a chunk. */
void tg_sparse_start(tg_sparse *s, tg_encoding *e);

/* Loads a block; false: it is refused. */
bool tg_sparse_load(tg_sparse *s, uint64_t at, size_t n);

/* Gathers and writes the marked values of the block that was loaded, and stores its residual. */
void tg_sparse_take(tg_sparse *s, const uint64_t *mask, uint64_t at, size_t n);

/* The same for a block whose sum is in the next residual already. */
void tg_sparse_take_presummed(tg_sparse *s, const uint64_t *mask, uint64_t at, size_t n);

/* Gathers and writes `count` values of a chunk, at the coordinates in scratch->list; their residual is taken out of `next`, if
 * that is not NULL. */
void tg_sparse_take_list(tg_sparse *s, const float *u, float *next, size_t count);

/* The end of a chunk: values that waited, indices. The mask has all coordinates of the chunk. */
void tg_sparse_finish(tg_sparse *s, const uint64_t *mask);

bool tg_sparse_check(const tg_decoding *d);
bool tg_sparse_add(float *out, const tg_decoding *d, float weight);
bool tg_sparse_set(float *out, const tg_decoding *d);

#endif
