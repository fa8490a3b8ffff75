/* The plan: every choice that encoding and decoding would otherwise make, made once. Plain data, written by
 * tg_plan_new and then only read: by the encoder, the decoder, the exchange, and any executor.
 *
 * A plan covers a domain: the whole model, or one slice of it (an owner's answer). All frames of a plan hold the same:
 * indices and values, values alone, or indices alone. */
#ifndef TG_PLAN_PLAN_H
#define TG_PLAN_PLAN_H

#include "plan/grid.h"

#define TG_INDEX_HEADER 6u              /* bytes of a chunk's header: count, mode and length of explicit indices ... */
#define TG_CODED_HEADER 4u              /* ... and then the length of coded values */
#define TG_NON_TEMPORAL_FROM (1u << 21) /* elements from which residuals and frames outgrow the caches */

/* What a frame holds; bits of its flags. */
enum { TG_HAS_INDICES = 2, TG_HAS_VALUES = 4 };

/* How the decoder knows the coordinates of a unit's values. */
typedef enum tg_coordinates {
    TG_AT_EVERY,  /* every element is sent */
    TG_AT_DRAWN,  /* drawn from the shared seed */
    TG_AT_LEADER, /* the leader's, which arrived in a frame of their own */
    TG_AT_INDICES /* explicit indices in the frame */
} tg_coordinates;

/* The way of a unit's chunks through the stages. Each executor has one implementation of each. */
typedef enum tg_route_id {
    TG_ROUTE_NONE,     /* the frame holds nothing of the unit */
    TG_ROUTE_PLAIN,    /* dense, fixed bytes a value */
    TG_ROUTE_VERBATIM, /* dense, in the gradient's own half precision: bytes are copied */
    TG_ROUTE_WORDS,    /* dense, fixed bytes a value, then losslessly coded */
    TG_ROUTE_BUCKETS,  /* dense, symbols in buckets that fit in a block */
    TG_ROUTE_FITTED,   /* dense, symbols of buckets longer than a block: one fit a chunk (fp4, fp8) */
    TG_ROUTE_SCALED,   /* dense, symbols with one scale a unit (sign) */
    TG_ROUTE_LISTED,   /* sparse, coordinates listed by the measuring pass (topk) */
    TG_ROUTE_DRAWN,    /* sparse, coordinates known before values are read: drawn, or the leader's */
    TG_ROUTE_TESTED,   /* sparse, coordinates found by testing each value (threshold) */
    TG_ROUTE_BINS,     /* sparse, coordinates found bin by bin (adabins) */
    TG_ROUTE_LEADER,   /* indices alone: the leader's coordinates */
    TG_ROUTE_N
} tg_route_id;

/* How the selected values of a sparse unit are written. */
typedef enum tg_value_kind {
    TG_VALUES_PLAIN,   /* fixed bytes a value */
    TG_VALUES_WORDS,   /* the same, then losslessly coded */
    TG_VALUES_BUCKETS, /* symbols in buckets, encoded when the chunk is complete */
    TG_VALUES_SIGNS    /* symbols with one scale a unit */
} tg_value_kind;

/* The parts of a unit's recipe with their parameters. */
typedef struct tg_stages {
    const tg_feedback_part *feedback;
    const tg_select_part *select;
    const tg_quantize_part *quantize;
    const tg_index_part *index;
    const tg_symbol_part *symbol;
    const double *feedback_params, *select_params, *quantize_params, *symbol_params;
    tg_index_read index_read;
    tg_index_write index_write;
} tg_stages;

/* The quantizer's numbers. */
typedef struct tg_format {
    uint32_t plain_len; /* bytes of a value; 0: values are symbols */
    uint32_t base;      /* symbols are below it */
    uint32_t bucket_n;  /* values of a bucket; 0: all values of a chunk */
    uint32_t side_len;  /* bytes beside each bucket */
    uint32_t head_len;  /* bytes before those of all buckets of a chunk */
    uint32_t rotation;  /* values that are rotated together; 0: none */
    uint32_t bin;       /* elements of the select part's bins; 0: it has none */
    tg_scale_rule scale;
    uint32_t refit; /* every so many steps have a fit of their own; 0: there is none, or each step has */
    float gain;     /* selected values are multiplied by it */
    bool coded;     /* values have a length of their own */
    bool draws;     /* the quantizer rounds at random */
} tg_format;

/* A unit in the domain. */
typedef struct tg_unit_plan {
    const tg_unit *unit;
    tg_stages stages;
    tg_format format;
    tg_route_id route;
    tg_value_kind values; /* of sparse routes */
    tg_coordinates coordinates;
    uint32_t signs[4];    /* of a rotation: bits, 1: negative */
    uint32_t header_len;  /* bytes of the header of each of its chunks; 0: the plan fixes their lengths */
    uint64_t lo, hi;      /* its part of the domain */
    uint64_t flat_at;     /* of that part in the domain laid end to end */
    uint64_t residual_at; /* of that part in the residual state, plane by plane */
    uint32_t planes;      /* numbers of residual state an element; 0: no feedback */
    bool verbatim;        /* dense, and the gradient is in the half precision that values travel in */
    bool presums;         /* the measuring pass leaves gradient + residual in the next residual */
} tg_unit_plan;

typedef struct tg_plan {
    const tg_layout *layout;
    const tg_grid *grid;
    tg_unit_plan *units;
    uint64_t *header_at;    /* of each chunk of the grid: where its header is in the body of its cell */
    uint64_t *headers_len;  /* of each cell: of all headers, which its body begins with */
    uint64_t *fit_at;       /* of each chunk of the grid: where its fit is in the residual state; NULL: none is kept */
    tg_recipe *recipes;     /* of units, by which owners answer with a mean; NULL: the units' own */
    unsigned holds;         /* what frames hold */
    uint32_t slice, slices; /* the domain: slice 0 of 1 is the whole model */
    uint32_t rank;          /* named in frames; random rounding and own coordinates are drawn for it */
    tg_nonfinite nonfinite;
    uint64_t flat_n;     /* elements of the domain */
    uint64_t residual_n; /* numbers of residual state ... */
    uint64_t fit_n;      /* ... of which these, the last ones, are fits of chunks */
    bool is_answer;      /* re-encodes a mean: draws apart from the gradients' plan, takes its coordinates */
    bool has_scale;      /* some unit has one scale for the whole unit */
    bool has_draws;      /* some unit's coordinates are drawn */
    bool has_clip;       /* some unit's gradient has a bounded norm */
} tg_plan;

/* What a plan is made for, beside layout and grid. */
typedef struct tg_purpose {
    unsigned holds;
    uint32_t slice, slices;
    uint32_t rank;
    tg_nonfinite nonfinite;
    bool is_answer;
    bool has_feedback; /* false: residuals are not kept, whatever the recipe says */
    bool heeds_again;  /* an answer: by tg_recipe_answer */
} tg_purpose;

/* Layout and grid must outlive the plan. */
tg_status tg_plan_new(tg_plan **out, const tg_layout *layout, const tg_grid *grid, const tg_purpose *purpose,
                      const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_plan_free(tg_plan *plan, const tg_allocator *a);

/* The quantizer's numbers of a recipe that is resolved. */
tg_format tg_recipe_format(const tg_recipe *recipe);

/* ---- lengths (lengths.c) ----------------------------------------------------------------------------------------------- */

/* Bytes beside the buckets of `count` values of one chunk. */
uint64_t tg_side_len(const tg_format *f, uint64_t count);

/* Bytes of `count` values of one chunk without their side: exact, or the maximum if they are coded. */
uint64_t tg_symbols_len(const tg_format *f, uint64_t count);

/* The most bytes that a chunk takes while it is encoded, its header apart; and the body of a cell. */
uint64_t tg_chunk_bound(const tg_plan *plan, const tg_chunk *chunk);
uint64_t tg_body_bound(const tg_plan *plan, uint32_t cell);

/* The exact length of chunk i of the grid, and of the body of a cell, if it does not depend on the gradients. known_n[i]: the number
 * of coordinates in chunk i that are drawn. */
bool tg_chunk_len(uint64_t *len, const tg_plan *plan, size_t i, const uint32_t *known_n);
bool tg_body_len(uint64_t *len, const tg_plan *plan, uint32_t cell, const uint32_t *known_n);

/* The most bytes that the body of a cell has on the wire: less than its bound, since chunks stand side by side. */
uint64_t tg_body_limit(const tg_plan *plan, uint32_t cell);

/* The fewest bytes that the body of the whole model can have. Computed without drawing anything, so that a short frame
 * cannot demand long work. */
uint64_t tg_body_least(const tg_layout *layout);

#endif
