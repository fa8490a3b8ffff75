/* Routes: each way of a chunk through the stages is one file, encoder and decoder. Which one a unit takes is in its plan.
 *
 * A chunk's bytes depend on nothing but its elements and what the select pass found, so they are the same for any number
 * of threads. A chunk is laid out as
 *
 *     [side of buckets] values [indices]
 *
 * and what a reader must know to find its parts is in a header elsewhere (header.h). */
#ifndef TG_ROUTES_ROUTE_H
#define TG_ROUTES_ROUTE_H

#include "routes/header.h"
#include "routes/scratch.h"

/* Gradients to encode: by tensor in their dtypes, or the domain laid end to end in fp32. */
typedef struct tg_source {
    const void *const *grads;
    const float *flat;
    bool is_first; /* what is written is the first body of the private sums of its cell, too (`add` of exec.h) */
} tg_source;

/* What a chunk became. */
typedef struct tg_encoded {
    tg_view view;      /* with offsets from the chunk's start */
    double magnitudes; /* their sum over what was sent, where the scale needs it */
    uint64_t hash;     /* of its bytes, if the route hashes */
    size_t bad_tensor; /* a tensor that is refused because of NaN or Inf, plus 1; 0: none */
    bool overflows;    /* gradient + residual was saturated, or the next residual is not finite */
} tg_encoded;

/* As zeros, but for the view, which a route sets as a whole: gcc would clear a struct of this size by a slow instruction. */
static inline void tg_encoded_start(tg_encoded *as)
{
    as->view.indices = as->view.index_len = 0;
    as->magnitudes = 0;
    as->hash = 0;
    as->bad_tensor = 0;
    as->overflows = false;
}

/* A chunk that is encoded. */
typedef struct tg_encoding {
    const tg_plan *plan;
    const tg_unit_plan *unit;
    const tg_unit_work *work;
    const tg_chunk *chunk;
    const tg_source *source;
    tg_residuals residuals; /* of the whole domain */
    tg_scratch *scratch;
    uint64_t step;
    uint8_t *out;   /* where its bytes go */
    uint64_t *kept; /* where its coordinates are kept, a bit an element, for whoever decodes it here; NULL: nowhere */
    tg_encoded *result; /* started */
} tg_encoding;

/* A chunk that is decoded. */
typedef struct tg_decoding {
    const tg_unit_plan *unit;
    const tg_unit_work *work;
    const tg_chunk *chunk;
    const tg_view *view;
    const uint8_t *body;
    uint64_t *kept; /* where `encode` or `check` keeps its coordinates and `add` and `set` find them; NULL: nowhere */
    tg_scratch *scratch;
} tg_decoding;

typedef struct tg_route {
    void (*encode)(tg_encoding *e);

    /* Prefetches what encoding a chunk will read at addresses that hardware does not predict, some chunks in advance. NULL: there
     * is nothing. */
    void (*prefetch)(const tg_unit_plan *unit, const tg_unit_work *work, const tg_chunk *chunk, const float *residual);

    /* Whether a chunk whose parts have the right lengths is sound: indices in range and ascending, symbols below their
     * base, codes complete. Trusts nothing. NULL: any bytes are. */
    bool (*check)(const tg_decoding *d);

    /* Adds weight times the chunk's values to out, its elements, or sets those that were sent. Checks what `check` does while
     * it reads. False: the chunk is damaged, and out may hold part of it; never of a chunk that was checked. */
    bool (*add)(float *out, const tg_decoding *d, float weight);
    bool (*set)(float *out, const tg_decoding *d);

    bool hashes; /* `encode` hashes the chunk as it goes */
} tg_route;

extern const tg_route tg_route_plain, tg_route_verbatim, tg_route_words, tg_route_buckets, tg_route_fitted,
    tg_route_scaled, tg_route_listed, tg_route_drawn, tg_route_tested, tg_route_bins, tg_route_leader;

/* ---- load.c: gradients and residuals of a block ---------------------------------------------------------------------- */

/* The unit's residual state from element `at` on. */
tg_residual_view tg_residual_at(const tg_encoding *e, uint64_t at);

/* A block of the gradient in place: fp32, inside one tensor, neither clipped nor subject to zeroing; not checked. NULL: it
 * cannot be read in place. */
const float *tg_gradient_in_place(const tg_encoding *e, uint64_t at, size_t n);

/* A block of the gradient, converted and clipped as needed, with the policy for NaN and Inf applied. NULL: it is refused. */
const float *tg_load_gradient(tg_encoding *e, uint64_t at, size_t n);

/* The same, in place and unchecked where possible: for encoders that check while they convert. */
const float *tg_load_unchecked(tg_encoding *e, uint64_t at, size_t n);

/* u = gradient + residual of a block; returns the gradient. u goes to `also`, too, unless that is NULL; with `non_temporal`, by
 * non-temporal stores to `also`, or to u if there is no other. A sum that overflows is refused or saturates, by the policy.
 * NULL: it is refused. */
const float *tg_load_sum(float *u, float *also, tg_encoding *e, uint64_t at, size_t n, bool non_temporal);

/* Refuses the tensor of the first of n values that is not finite, from element `at` of the unit on, if there is one. */
void tg_encoding_refuse(tg_encoding *e, const float *values, uint64_t at, size_t n);

/* The end of a chunk with an overflow: refuses it, or clears what is not finite in its next residual. */
void tg_settle_overflow(tg_encoding *e);

/* The end of a block, if there are several planes: what the feedback keeps beside the residual, and no NaN or Inf in any of it. `mask` has the elements
 * that were sent, NULL: all. */
void tg_keep_block(const tg_encoding *e, const uint64_t *mask, const float *gradient, uint64_t at, size_t n);

/* ---- symbols.c: values in buckets and their symbols ------------------------------------------------------------------ */

/* Values from number `at` of a chunk of `chunk_n` on, where a bucket begins, to symbols; what travels with their buckets
 * goes to side + its offset. */
typedef struct tg_bucket_span {
    uint64_t chunk_n, at;
    size_t n;
    const float *prefetch; /* values that come next; may point past the end; NULL: none */
    bool is_unchecked;     /* NaN and Inf were not looked for: a bucket that holds some becomes NaN */
} tg_bucket_span;

/* Whether the chunk's fit is kept between steps. */
static inline bool tg_keeps_fit(const tg_encoding *e)
{
    return e->unit->format.refit > 0 && e->plan->fit_at != NULL;
}

/* Carries the chunk's fit over to the next residual state, where encoding values may replace it. */
void tg_fit_carry(const tg_encoding *e);

void tg_encode_buckets(uint16_t *symbols, uint8_t *side, const tg_encoding *e, const float *values,
                       const tg_bucket_span *span);
void tg_decode_buckets(float *values, const uint16_t *symbols, const uint8_t *side, const tg_unit_plan *u,
                       uint64_t chunk_n, uint64_t at, size_t n);

/* blocks.c: the same for quantizers with a scale for every few values. Symbols before and after those that are decoded are there, to
 * the ends of their block or rotation. */
void tg_encode_blocks(uint16_t *symbols, uint8_t *side, const tg_encoding *e, const float *values,
                      const tg_bucket_span *span);
void tg_decode_blocks(float *values, const uint16_t *symbols, const uint8_t *side, const tg_unit_plan *u,
                      uint64_t chunk_n, uint64_t at, size_t n);

/* What a coder needs to know of a chunk's values, given what travels with them. */
tg_coding tg_coding_of(const tg_unit_plan *u, tg_chunk_scratch *s, const uint8_t *side);

/* The symbols of a complete chunk as bytes at `out`; returns their number. */
size_t tg_write_symbols(uint8_t *out, const tg_encoding *e, const uint16_t *symbols, size_t n, const uint8_t *side);

/* All symbols, or coded words, of a chunk back into scratch. False: they are damaged. */
bool tg_read_symbols(const tg_decoding *d);

/* Whether tg_read_symbols would return true. What it leaves in scratch is undefined. */
bool tg_check_symbols(const tg_decoding *d);

/* check, add and set of chunks whose every element is a symbol. */
bool tg_symbols_check(const tg_decoding *d);
bool tg_symbols_add(float *out, const tg_decoding *d, float weight);
bool tg_symbols_set(float *out, const tg_decoding *d);

/* ---- sparse.c and unsparse.c: coordinates of a chunk ------------------------------------------------------------------- */

/* Writes the marked coordinates of a chunk after `view->indices`, or with the symbols as one. `list` has them too, or is NULL. */
void tg_write_indices(tg_encoding *e, const uint64_t *mask, const uint32_t *list);

/* Reads explicit indices into the list where the chunk selects few, or else into scratch->mask; joint symbols into scratch.
 * False: they are damaged. */
bool tg_read_indices(const tg_decoding *d, uint32_t *list);

/* Marks coordinates that are drawn or the leader's, of n elements from `at` on. */
void tg_mark_known(uint64_t *mask, const tg_unit_plan *u, const tg_unit_work *work, uint64_t at, size_t n);

#endif
