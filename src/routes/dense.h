/* What dense routes share. */
#ifndef TG_ROUTES_DENSE_H
#define TG_ROUTES_DENSE_H

#include "kernels/hash.h"
#include "routes/route.h"

#include <string.h>

/* plain.c: a chunk of plain bytes while it is written. */
typedef struct tg_plain {
    tg_encoding *e;
    size_t len; /* of a value */
    size_t at;  /* bytes so far */
    bool non_temporal;
    tg_hashing hash;
} tg_plain;

void tg_plain_start(tg_plain *p, tg_encoding *e);

/* Hashes bytes and puts them into their place, prefetching what is read next. All but the last are whole leaves. */
void tg_plain_put(tg_plain *p, const uint8_t *bytes, size_t len, const void *prefetch, size_t prefetch_len);

/* The end of a chunk: its hash. */
void tg_plain_end(tg_plain *p);

/* A block without feedback; false: it is refused. */
bool tg_plain_block(tg_plain *p, uint64_t at, size_t n);

bool tg_plain_add(float *out, const tg_decoding *d, float weight);
bool tg_plain_set(float *out, const tg_decoding *d);

/* residual.c: the next residual of a block of which every element is sent: u - decoded. */
void tg_store_residual(tg_encoding *e, const float *u, const float *decoded, uint64_t at, size_t n);

/* verbatim.c: elements of a dtype where they are in the gradient, in the bytes in which they travel; not checked. NULL: they
 * span several tensors. */
const uint8_t *tg_gradient_bytes(const tg_encoding *e, uint64_t at, size_t n);

/* verbatim.c: whether such bytes hold neither NaN nor Inf. */
bool tg_bytes_are_finite(const tg_encoding *e, const uint8_t *bytes, size_t n);

/* packer.c: symbols of a chunk on their way into bytes. Symbols that no coder needs are packed block by block, while they
 * are in the nearest cache; the few that do not fill a byte yet stay in front of scratch->chunk->symbols. */
typedef struct tg_packer {
    tg_encoding *e;
    uint8_t *side;   /* what travels with buckets */
    uint8_t *out;    /* where symbols go */
    uint64_t count;  /* symbols so far */
    uint64_t packed; /* of them, those that are in their place */
} tg_packer;

void tg_packer_start(tg_packer *p, tg_encoding *e);

/* Where the next symbols go. */
uint16_t *tg_packer_next(const tg_packer *p);

/* n symbols were put there. */
void tg_packer_advance(tg_packer *p, size_t n);
void tg_packer_end(tg_packer *p);

#endif
