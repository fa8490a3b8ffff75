/* Select: which coordinates of a unit are sent. A select part marks them in a bit mask. How indices are written is decided
 * by the index pack. */
#ifndef TG_SELECT_SELECT_H
#define TG_SELECT_SELECT_H

#include "base/half.h"
#include "base/part.h"
#include "base/philox.h"
#include "tersegrad/tersegrad.h"

/* Positions of parameters. Every part but `all` begins with these two. */
enum { TG_SELECT_SCOPE = 0, TG_SELECT_COORDS = 1, TG_SELECT_OWN = 2 /* the part's own parameters start here */ };
/* Parts with a ratio have it first. Parts that may be unbiased have that next. */
enum { TG_SELECT_RATIO = TG_SELECT_OWN, TG_SELECT_UNBIASED };
enum { TG_SCOPE_TENSOR = 0, TG_SCOPE_MODEL = 1 };
enum { TG_COORDS_OWN = 0, TG_COORDS_SHARED = 1, TG_COORDS_AUTO = 2 };

extern const char *const tg_scope_choices[];
extern const char *const tg_coords_choices[]; /* for parts that choose by data */
extern const char
    *const tg_coords_auto_choices[]; /* for parts that choose by seed: `auto` is `shared` if there is a seed */
extern const char *const tg_no_yes_choices[];

#define TG_SELECT_SCOPE_PARAM                                                                    \
    {                                                                                            \
        .name = "scope", .summary = "what one selection spans: each tensor, or the whole model", \
        .choices = tg_scope_choices, .standard = TG_SCOPE_TENSOR                                 \
    }
#define TG_SELECT_COORDS_PARAM                                                                                  \
    {                                                                                                           \
        .name = "coords", .summary = "coordinates: each rank's own, or those of a leader, shared by all ranks", \
        .choices = tg_coords_choices, .standard = TG_COORDS_OWN                                                 \
    }
#define TG_SELECT_COORDS_AUTO_PARAM                                                                         \
    {                                                                                                       \
        .name = "coords",                                                                                   \
        .summary = "coordinates: each rank's own, or shared by all ranks; auto: shared if there is a seed", \
        .choices = tg_coords_auto_choices, .standard = TG_COORDS_AUTO                                       \
    }
#define TG_SELECT_RATIO_PARAM                                                                           \
    {                                                                                                   \
        .name = "ratio", .summary = "fraction of the elements that is sent", .lowest = 0, .highest = 1, \
        .above_lowest = true, .is_main = true, .standard = 0.01                                         \
    }

#define TG_SELECT_UNBIASED_PARAM                                                                 \
    {                                                                                            \
        .name = "unbiased", .summary = "scale values so that their expectation is the gradient", \
        .choices = tg_no_yes_choices, .standard = 0                                              \
    }

#define TG_BLOCK 4096       /* elements of a block */
#define TG_BIN_MAX 16384    /* elements of a bin */
#define TG_SAMPLE_MAX 32768 /* elements of a sample */

/* How a part chooses coordinates. */
typedef enum tg_select_by {
    TG_BY_NOTHING, /* it does not: every element is sent */
    TG_BY_SEED,    /* at random: seed, step and rank determine the coordinates */
    TG_BY_DATA     /* by the values */
} tg_select_by;

/* A select part. `u` are the values that could be sent: gradient plus residual. `at` is the position of the first of n
 * values in the unit. Blocks have at most TG_BLOCK elements. Where a pass over a unit is divided among `lanes`, each lane
 * sees its own blocks in ascending order, at most lane_n elements. A function that is NULL is not needed by the part. */
typedef struct tg_select_part {
    tg_part part;

    /* ---- every part ---- */

    tg_select_by by;
    uint64_t n_max; /* the longest unit that the part supports; 0: any */
    /* The maximum number of entries that a unit of n elements sends, in any step. */
    uint64_t (*most)(const double *params, uint64_t n);
    /* The factor that selected values are multiplied by before they are written; NULL: 1. */
    double (*gain)(const double *params, uint64_t n);
    /* Bytes of scratch buffer for a unit of n elements, in any step; NULL: none. */
    uint64_t (*scratch_len)(const double *params, uint64_t n, uint32_t lanes, uint64_t lane_n);
    /* Replaces parameters by their values at a step; NULL: they do not change. */
    void (*at_step)(double *params, uint64_t step);
    /* Decides parameters that depend on the kind of the tensor; NULL: there are none. */
    void (*resolve)(double *params, tg_kind kind);

    /* ---- TG_BY_SEED ---- */

    /* Draws the coordinates of a unit of n elements into the scratch buffer. */
    void (*draw)(void *scratch, const double *params, uint64_t n, const tg_stream *stream);

    /* ---- TG_BY_DATA: the measuring pass; all three or none ---- */

    void (*start)(void *scratch, const double *params, uint64_t n, uint32_t lanes, uint64_t lane_n);
    void (*measure)(void *scratch, uint32_t lane, uint64_t at, const float *u, size_t n);
    /* Combines the findings of all lanes, after the last block. False only after an estimate that was wrong: the pass is then
     * repeated without it. */
    bool (*finish)(void *scratch);

    /* For parts whose lanes have much to sift after `finish` has returned true, if there are several: `turns` times every lane
     * sifts what it has found, then `combine` brings that together. turns is 0 for all others. */
    uint32_t turns;
    void (*sift)(void *scratch, uint32_t lane, uint32_t turn);
    void (*combine)(void *scratch, uint32_t turn);

    /* For long units, between `start` and the first block: estimates a bound that makes `measure` faster, from a sample of at
     * most TG_SAMPLE_MAX elements. NULL: no use for it. */
    void (*estimate)(void *scratch, const float *sample, size_t sample_n);

    /* For parts whose measuring pass finds all selected coordinates. Returns how many of the n elements from `at` on are
     * selected. If they are at most `most`, also writes their positions relative to `at`, ascending. */
    uint64_t (*list)(uint32_t *list, uint64_t most, const void *scratch, uint64_t at, uint64_t n);

    /* ---- the writing pass ---- */

    /* Marks the selected elements of a block in a mask that is clear. u is NULL for parts that choose by seed and for parts
     * that have `list`. */
    void (*mark)(uint64_t *mask, const void *scratch, const double *params, uint64_t at, const float *u, size_t n);

    /* TG_BY_DATA, instead of `mark`; both or none. For parts that choose in bins of consecutive elements: `bin` is the
     * number of elements of a bin, at most TG_BIN_MAX. mark_bins is called with whole bins (only the last one of the unit
     * may be shorter); g is the gradient without the residual. It writes the largest magnitude in u of each bin to
     * `maxima`. */
    uint32_t (*bin)(const double *params);
    void (*mark_bins)(uint64_t *mask, float *maxima, const double *params, const float *u, const float *g, size_t n);
} tg_select_part;

extern const tg_select_part tg_select_topk;

/* The number of entries that a ratio of n elements is: max(1, round(ratio * n)), or 0 if n is 0. */
uint64_t tg_ratio_entries(double ratio, uint64_t n);

/* Implements `most` for parts with a ratio. */
uint64_t tg_ratio_most(const double *params, uint64_t n);

/* Implements `gain` for parts that may be unbiased: n / entries if they are, else 1. */
double tg_unbiased_gain(const double *params, uint64_t n);

/* A magnitude as an integer of the same order: |a| < |b| exactly if key(a) < key(b). NaN is above all. */
static inline uint32_t tg_magnitude_key(float value)
{
    return tg_float_bits(value) & 0x7fffffffu;
}

#endif
