/* The codec's inside: how gradients become the bodies of frames and back. A body is the chunks of one slice.
 *
 *     unit    what one selection spans                    layout.h
 *     slice   one of S equal parts of every unit          what one rank owns in an exchange by owners
 *     chunk   262,144 elements of a unit's slice          coded by itself, so chunks are work for threads
 *     block   4,096 elements of a chunk                   goes through all stages while it is in the cache
 *
 * A codec encodes its domain, which is the whole model or one slice of it. Encoding is in two halves so that a step
 * that fails leaves no trace: writing fills the next memory, and tg_codec_commit makes it the current one. */
#ifndef TG_CODEC_CODEC_H
#define TG_CODEC_CODEC_H

#include "base/pool.h"
#include "codec/layout.h"
#include "kernels/kernels.h"

#define TG_CHUNK TG_PACK_MAX
#define TG_CHUNK_HEADER 6u        /* of a chunk that tells its coordinates */
#define TG_CHUNK_MORE 16          /* words that one may take beyond its values: headers, and the form of a pack */
#define TG_STREAMS_FROM (1 << 21) /* elements whose memory or frame is too long for caches to keep */
#define TG_CODED_HEADER 4u        /* of one whose values are coded, behind that */

/* What a frame holds; bits of its flags. */
enum { TG_HAS_INDICES = 2, TG_HAS_VALUES = 4 };

typedef struct tg_chunk {
    uint32_t unit;
    uint32_t n;
    uint64_t at; /* of its first element in the unit */
} tg_chunk;

/* All chunks of all slices: those of slice s are chunks[first[s]] to chunks[first[s + 1] - 1]. */
typedef struct tg_grid {
    tg_chunk *chunks;
    size_t *first;
    uint32_t slices;
} tg_grid;

/* A chunk as it lies in a body. */
typedef struct tg_view {
    const uint8_t *start;
    const uint8_t *side; /* what travels with its buckets */
    const uint8_t *symbols, *indices;
    uint32_t count;
    uint32_t symbol_len; /* not of plain ones, nor where they are among the indices */
    uint16_t index_len;
    uint8_t mode;
    bool told;            /* its coordinates are in `indices`, not known otherwise */
    const uint32_t *list; /* the same, where they are few and were kept; else NULL */
} tg_view;

/* What a chunk became when it was written. */
typedef struct tg_written {
    size_t at; /* in the body's buffer */
    size_t len;
    size_t payload_len; /* without its header */
    tg_view view;       /* before chunks are moved together */
    double magnitudes;  /* their sum over what was sent, where a scale needs it */
    uint64_t hash;
    size_t bad_tensor; /* a tensor with a NaN or Inf that may not be there, plus 1; 0: none */
} tg_written;

/* A unit as this codec works on it. */
typedef struct tg_work {
    uint64_t lo, hi;    /* its part of the domain */
    uint64_t flat_at;   /* of that part in the domain laid end to end */
    uint64_t memory_at; /* of that part in the memory, plane by plane */
    const tg_feedback_part *feedback;
    const double *feedback_params;
    void *scratch;  /* of the select part */
    uint64_t *led;  /* mask of the coordinates that a leader gave, for units that are led */
    uint32_t lanes; /* of the measuring pass */
    uint64_t lane_n;
    uint32_t bin;  /* elements of the select part's bins; 0: it has none */
    float *maxima; /* of each bin, where a scale needs them */
    float gain;
    float shrink; /* of this step's gradient, where its norm is bounded */
    bool remembers;
    bool measures;             /* what is to be measured has not been, or not well */
    bool recalled;             /* this step's measuring pass has left what should be sent in the next memory */
    uint64_t sent_len, sent_n; /* bytes and entries of the last frames that were written or read ... */
    double shape, fitted;      /* ... and what quantizers have fitted to them, summed over chunks */
    uint64_t fit_n;
    double magnitudes;
    float scale;
} tg_work;

/* Memory of the unit's elements from `at` on. */
static inline tg_memory tg_work_memory(const tg_work *w, float *const memory[2], uint64_t at)
{
    uint64_t from = w->memory_at + (at - w->lo);
    return (tg_memory){memory[0] + from, memory[1] + from, (size_t)(w->hi - w->lo)};
}

/* Bins of the unit's part of the domain; 0 if the select part has none. */
static inline uint64_t tg_work_bins(const tg_work *w)
{
    return w->bin == 0 ? 0 : (w->hi - w->lo + w->bin - 1) / w->bin;
}

typedef struct tg_lane_job {
    uint32_t unit, lane;
} tg_lane_job;

/* One thread's own space. */
typedef struct tg_desk {
    const float *gradient, *u; /* of the block that was loaded, and with what is remembered: below, or where they lie */
    bool saturated;            /* gradient plus residual of that block overflowed somewhere, and was saturated */
    float g[TG_BIN_MAX], sum_of[TG_BIN_MAX], values[TG_BIN_MAX], decoded[TG_BIN_MAX];
    uint8_t bytes[TG_BIN_MAX * sizeof(float)];
    uint64_t bin_mask[TG_BIN_MAX / 64], block_mask[TG_BIN_MAX / 64];
    uint64_t mask[TG_CHUNK / 64];
    uint32_t list[TG_BIN_MAX + TG_LIST_MORE]; /* what is marked, where it is little */
    /* of quantizers that have buckets, or values that are coded */
    float *sent;       /* values of a chunk that wait */
    uint8_t *held;     /* words of a chunk, in the same place: a quantizer has the one or the other */
    uint16_t *symbols; /* of a chunk */
    uint32_t *draws;   /* of a bucket */
    float *clipped;    /* values of a bucket */
    void *room;        /* of the quantizer */
    void *pack_room;   /* of the symbol pack */
    uint8_t lengths[TG_BASE_MAX];
    float sum[TG_CHUNK + TG_CHUNK_MORE]; /* of a chunk; or, as bytes, what one becomes */
} tg_desk;

struct tg_codec {
    tg_allocator allocator;
    tg_layout *layout;
    tg_grid *grid;
    tg_pool *pool;
    tg_codec *parent; /* whose layout, grid and pool these are; NULL if they are its own */
    tg_nonfinite nonfinite;
    uint32_t rank;
    uint32_t describe;
    bool any_scale;         /* a quantizer has a scale of the whole unit */
    bool only_decodes;      /* made from a frame: has nothing that encoding needs */
    uint32_t slice, slices; /* the domain: 0 of 1 is the whole model */
    tg_work *works;         /* one a unit */
    uint64_t flat_n;        /* elements of the domain */
    uint64_t memory_n;
    float *memory[2]; /* current and next */
    bool streams;     /* the memory is too long for caches to keep */
    tg_lane_job *lane_jobs;
    size_t *lane_bad; /* as bad_tensor, one a lane job */
    size_t lane_job_n;
    tg_written *written;    /* one a chunk of the grid */
    uint32_t *known_count;  /* coordinates in a chunk where they are known without a frame */
    struct tg_body *bodies; /* one a slice, while frames are written */
    tg_view *views;         /* of one frame, one a chunk */
    uint64_t *view_hashes;
    uint64_t list_n;
    uint32_t *lists; /* room for coordinates of chunks that send little, from one pass to the next; see tg_codec_list */
    tg_desk *desks;  /* one a worker ... */
    void *room;      /* ... and what they need for quantizers that have buckets, if there are such */
    uint64_t step;   /* of the coordinates that are drawn */
    bool drawn;
    bool led_given; /* led units use the coordinates of the leader */
};

/* A codec whose frames are cut into `slices`. The layout is the codec's from here on, also on failure. */
tg_status tg_codec_make(tg_codec **out, tg_layout *layout, uint32_t slices, bool only_decodes, const tg_options *opt,
                        tg_detail *why) TG_CHECKED;

void tg_grid_free(tg_grid *grid, const tg_allocator *a);
tg_status tg_grid_new(tg_grid **out, const tg_layout *layout, uint32_t slices, const tg_allocator *a,
                      tg_detail *why) TG_CHECKED;

/* A codec for one slice of `parent`, which must live longer: how an owner answers. It remembers only if asked to,
 * sends the coordinates that the parent has drawn or was given, and does not apply gains a second time. Parent and
 * answer share their work space, so only one of them works at a time. */
tg_status tg_codec_make_answer(tg_codec **out, tg_codec *parent, uint32_t slice, bool remembers,
                               tg_detail *why) TG_CHECKED;

/* The layout of tensors by a recipe, rules and policy. */
tg_status tg_codec_layout(tg_layout **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                          const tg_options *opt, tg_detail *why) TG_CHECKED;

/* ---- encoding -------------------------------------------------------------------------------------------------- */

/* Gradients to encode: by tensor in their dtypes, or the domain laid end to end in fp32. */
typedef struct tg_source {
    const void *const *grads;
    const float *flat;
} tg_source;

/* bounds.c: bytes that a chunk may need, and the body of a slice. */
uint64_t tg_chunk_bound(const tg_codec *c, const tg_chunk *chunk, unsigned holds);
uint64_t tg_body_bound(const tg_codec *c, const tg_grid *grid, uint32_t slice, unsigned holds);

/* bounds.c: bytes that the body of a slice may have once its chunks are moved together, as whoever receives it must expect. */
uint64_t tg_body_limit(const tg_codec *c, const tg_grid *grid, uint32_t slice, unsigned holds);

/* choose.c: chooses the coordinates of this step: draws, and measures unless a leader has given the led ones. */
tg_status tg_codec_select(tg_codec *c, uint64_t step, const tg_source *source, tg_detail *why) TG_CHECKED;

/* choose.c: whether the unit's coordinates are those of a leader, who has given them. */
bool tg_codec_is_given(const tg_codec *c, uint32_t unit);

/* Works out how much this step's gradients are scaled down, where a feedback bounds their norm. Before anything is loaded
 * for this step; tg_codec_select does it by itself. */
void tg_codec_bound_norms(tg_codec *c, const tg_source *source);

/* load.c: elements [at, at + n) of a unit's gradient, at most TG_BIN_MAX, into desk->g. Returns the first tensor that is
 * refused, plus 1. */
size_t tg_codec_load_gradient(tg_desk *desk, const tg_codec *c, uint32_t unit, const tg_source *source, uint64_t at,
                              size_t n);

/* load.c: where they can be taken from as they lie, because they are fp32, of one tensor and not to be changed; not looked at.
 * NULL: nowhere. */
const float *tg_codec_in_place(const tg_codec *c, uint32_t unit, const tg_source *source, uint64_t at, size_t n);

/* load.c: where elements of a dtype lie as they would travel in its own bytes; not looked at. NULL: nowhere. */
const uint8_t *tg_codec_as_it_travels(const tg_codec *c, uint32_t unit, const tg_source *source, tg_dtype dtype,
                                      uint64_t at, size_t n);

/* load.c: desk->gradient, scaled down where its norm is bounded, and desk->u, with what is remembered of it: it is put `into`
 * where something is, and otherwise the gradient itself; and in the former case `also` to another place, if that is not NULL.
 * Nobody reads the latter, or else the former, again soon if it `streams`. Returns as above, also where the sum
 * overflows; by the other policies it saturates. */
size_t tg_codec_load(tg_desk *desk, const tg_codec *c, uint32_t unit, const tg_source *source, uint64_t at, size_t n,
                     float *into, float *also, bool streams);

/* load.c: the tensor of the first of n values of a unit, from element `at` on, that is NaN or Inf, plus 1; 0: none is. */
size_t tg_codec_bad_tensor(const tg_codec *c, uint32_t unit, const float *values, uint64_t at, size_t n);

/* load.c: refuses it with a sentence: what is NaN or Inf already in the source, or else has overflowed with its residual. */
tg_status tg_codec_refuse(const tg_codec *c, size_t bad_tensor, const tg_source *source, tg_detail *why) TG_CHECKED;

/* load.c: the latter sentence; `of` is "gradient" or "average". */
tg_status tg_refuse_overflow(const char *tensor, const char *of, tg_detail *why) TG_CHECKED;

/* codec.c: a place of its own for the coordinates of a chunk, if there are few; else NULL. */
uint32_t *tg_codec_list(const tg_codec *c, const tg_chunk *chunk, uint64_t count);

/* encode.c: writes one chunk to `start`. */
void tg_chunk_write(tg_written *written, tg_codec *c, tg_desk *desk, const tg_chunk *chunk, unsigned holds,
                    const tg_source *source, uint8_t *start);

/* Where a body goes, which must have room for tg_body_bound, and what it came to. */
typedef struct tg_body {
    uint8_t *dst;
    size_t len;
    size_t payload_len;
} tg_body;

/* body.c: writes the body of every slice of `grid` from `from` up to but not `to` to bodies[slice - from], and what became of
 * its chunks into c->written. A grid other than the codec's own is for indices alone. */
tg_status tg_codec_write(tg_codec *c, tg_body *bodies, const tg_grid *grid, uint32_t from, uint32_t to, unsigned holds,
                         const tg_source *source, tg_detail *why) TG_CHECKED;

void tg_codec_commit(tg_codec *c);

/* ---- decoding -------------------------------------------------------------------------------------------------- */

/* choose.c: makes coordinates known that are drawn alike by all ranks at this step. */
void tg_codec_draw_shared(tg_codec *c, uint64_t step);

/* Finds the chunks of a slice in a body and checks all of it: lengths, indices, nothing left over. Hashes of the
 * chunks go to hashes. Views and hashes hold one entry a chunk of the slice. c->views keep lists until more is read or written. */
tg_status tg_body_read(tg_view *views, uint64_t *hashes, tg_codec *c, const tg_grid *grid, uint32_t slice,
                       unsigned holds, const uint8_t *bytes, size_t len, tg_detail *why) TG_CHECKED;

/* choose.c: takes the coordinates of led units from the views of slice 0 of `grid`, which has one slice. */
void tg_codec_take_led(tg_codec *c, const tg_grid *grid, const tg_view *views);

/* Where sums go. Exactly one of the three is set. */
typedef struct tg_sink {
    void *const *averages; /* by tensor, in its dtype: the sum over `divisor` */
    float *flat;           /* the domain laid end to end: the sum over `divisor` */
    float *const *added;   /* by tensor in fp32: `weight` times the value is added */
    float divisor, weight;
} tg_sink;

/* Values from number `at` on, of the `chunk_n` of a chunk, by their symbols and what travels with its buckets, which begins at
 * `side`. */
void tg_decode_symbols(float *values, const uint16_t *symbols, const tg_recipe *recipe, const uint8_t *side,
                       uint64_t chunk_n, uint64_t at, size_t n);

/* Adds weight times the values of one chunk to out, its elements; or sets those that were sent where `set`. */
void tg_codec_unpack(float *out, const tg_codec *c, const tg_chunk *chunk, const tg_view *view, tg_desk *desk, bool set,
                     float weight);

/* facts.c: forgets what was sent of a unit; notes what a quantizer has fitted to a chunk of it. */
void tg_work_note_nothing(tg_work *w);
void tg_work_note_fit(tg_work *w, const tg_recipe *recipe, const tg_view *view);

/* Notes what was sent of each unit, by the views of the chunks of a slice. */
void tg_codec_note(tg_codec *c, uint32_t slice, const tg_view *views);

/* Sums the values of `frame_n` bodies of a slice, in order; views of frame f start at views[f * chunks of slice]. */
void tg_codec_sum(tg_codec *c, uint32_t slice, const tg_view *views, size_t frame_n, const tg_sink *sink);

/* Refuses missing gradients: NULL, or NULL for a tensor that has elements. */
tg_status tg_check_grads(const tg_codec *c, const void *const *grads, tg_detail *why) TG_CHECKED;

/* The chunks of a slice. */
static inline size_t tg_grid_chunks(const tg_grid *g, uint32_t slice)
{
    return g->first[slice + 1] - g->first[slice];
}

/* ---- between the two --------------------------------------------------------------------------------------------- */

/* How a unit's coordinates are known. */
typedef enum tg_known { TG_KNOWN_EVERY, TG_KNOWN_DRAWN, TG_KNOWN_LED, TG_KNOWN_TOLD } tg_known;

/* `holds` is that of the frame in question. */
tg_known tg_codec_known(const tg_codec *c, uint32_t unit, unsigned holds);

/* Whether a frame that holds these has anything of the unit. */
bool tg_codec_carries(const tg_codec *c, uint32_t unit, unsigned holds);

/* Marks the coordinates of a stretch of a unit where they are drawn or led; clears the mask first. */
void tg_codec_mark_known(uint64_t *mask, const tg_codec *c, uint32_t unit, tg_known known, uint64_t at, size_t n);

/* Values in a bucket, if `count` are in the chunk; only where the quantizer is not plain. */
static inline uint64_t tg_bucket_n(const tg_recipe *r, uint64_t count)
{
    const tg_quantize_part *q = tg_recipe_quantize(r);
    if (q->has_scale || q->bucket_always == TG_BUCKET_CHUNK) {
        return count;
    }
    return q->bucket_always != 0 ? q->bucket_always : (uint64_t)r->value[TG_STAGE_quantize][q->bucket_at];
}

/* Bytes that travel with the buckets of a chunk of `count` values, and of them and the values together. */
static inline uint64_t tg_side_len(const tg_recipe *r, uint64_t count)
{
    const tg_quantize_part *q = tg_recipe_quantize(r);
    if (q->plain_len != 0 || count == 0) {
        return 0;
    }
    uint64_t bucket = tg_bucket_n(r, count);
    return (count + bucket - 1) / bucket * q->side_len(r->value[TG_STAGE_quantize]);
}

/* Whether values are coded: they have a length that travels before them. */
static inline bool tg_recipe_is_coded(const tg_recipe *r)
{
    const tg_symbol_part *pack = tg_recipe_symbol(r);
    return tg_recipe_quantize(r)->plain_len != 0 ? pack->codes_words : pack->codes_symbols;
}

/* What a pack needs to know of a chunk's values, given what travels with them. */
static inline tg_coding tg_coding_of(const tg_recipe *r, tg_desk *desk, const uint8_t *side)
{
    const tg_quantize_part *q = tg_recipe_quantize(r);
    const double *params = r->value[TG_STAGE_quantize];
    bool proposes = q->lengths != NULL && q->lengths(desk->lengths, side, params);
    return (tg_coding){.base = q->plain_len != 0 ? 0 : q->base(params),
                       .word_len = q->plain_len,
                       .lengths = proposes ? desk->lengths : NULL,
                       .params = r->value[TG_STAGE_symbol],
                       .room = desk->pack_room};
}

/* The same length: exactly, or if values are coded the most that it can be. */
static inline uint64_t tg_values_len(const tg_recipe *r, uint64_t count)
{
    const tg_quantize_part *q = tg_recipe_quantize(r);
    uint64_t form_len = count > 0 && tg_recipe_is_coded(r) ? 1 : 0;
    if (q->plain_len != 0) {
        return count * q->plain_len + form_len;
    }
    return tg_side_len(r, count) + tg_bits_len(count, q->base(r->value[TG_STAGE_quantize])) + form_len;
}

/* Bytes of a chunk's header. */
static inline size_t tg_header_len(const tg_recipe *r, bool told, unsigned holds, uint64_t count)
{
    bool coded = count > 0 && (holds & TG_HAS_VALUES) != 0 && tg_recipe_is_coded(r);
    return (told ? TG_CHUNK_HEADER : 0) + (coded ? TG_CODED_HEADER : 0);
}

/* Start of slice s of S of n elements. */
static inline uint64_t tg_slice_start(uint64_t n, uint32_t s, uint32_t slices)
{
    uint64_t more = n % slices;
    return (uint64_t)s * (n / slices) + (s < more ? s : more);
}

#endif
