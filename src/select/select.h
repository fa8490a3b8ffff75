/* Select: which coordinates of a unit travel. A part marks bits; how they are written is for others to say. */
#ifndef TG_SELECT_SELECT_H
#define TG_SELECT_SELECT_H

#include "base/half.h"
#include "base/part.h"
#include "base/philox.h"
#include "tersegrad/tersegrad.h"

/* Every part but `all` starts its parameters with these two, at these places. */
enum { TG_SELECT_SCOPE = 0, TG_SELECT_COORDS = 1, TG_SELECT_OWN = 2 /* a part's own parameters from here */ };
/* Those that take a ratio have it here, and behind it whether they are unbiased. */
enum { TG_SELECT_RATIO = TG_SELECT_OWN, TG_SELECT_UNBIASED };
enum { TG_SCOPE_TENSOR = 0, TG_SCOPE_MODEL = 1 };
enum { TG_COORDS_OWN = 0, TG_COORDS_SHARED = 1, TG_COORDS_AUTO = 2 };

extern const char *const tg_scope_choices[];
extern const char *const tg_coords_choices[];      /* of parts that look at the data */
extern const char *const tg_coords_auto_choices[]; /* of parts that draw: `auto` shares if there is a seed */
extern const char *const tg_no_yes_choices[];

#define TG_SELECT_SCOPE_PARAM                                                                \
    {                                                                                        \
        .name = "scope", .summary = "whether a selection spans a tensor or the whole model", \
        .choices = tg_scope_choices, .standard = TG_SCOPE_TENSOR                             \
    }
#define TG_SELECT_COORDS_PARAM                                                                                    \
    {                                                                                                             \
        .name = "coords", .summary = "whether each rank sends its own coordinates or all send those of a leader", \
        .choices = tg_coords_choices, .standard = TG_COORDS_OWN                                                   \
    }
#define TG_SELECT_COORDS_AUTO_PARAM                                                                  \
    {                                                                                                \
        .name = "coords", .summary = "whether ranks draw alike; auto: they do if they share a seed", \
        .choices = tg_coords_auto_choices, .standard = TG_COORDS_AUTO                                \
    }
#define TG_SELECT_RATIO_PARAM                                                                        \
    {                                                                                                \
        .name = "ratio", .summary = "share of the elements that is sent", .lowest = 0, .highest = 1, \
        .above_lowest = true, .is_main = true, .standard = 0.01                                      \
    }

#define TG_SELECT_UNBIASED_PARAM                                                                     \
    {                                                                                                \
        .name = "unbiased", .summary = "scale what is sent so that its expectation is the gradient", \
        .choices = tg_no_yes_choices, .standard = 0                                                  \
    }

#define TG_BLOCK 4096
#define TG_BIN_MAX 16384
#define TG_SAMPLE_MAX 32768

/* Where coordinates come from. */
typedef enum tg_select_by {
    TG_BY_NOTHING, /* every element is sent */
    TG_BY_SEED,    /* drawn: who knows seed, step and rank knows the coordinates */
    TG_BY_DATA     /* looked up in the values */
} tg_select_by;

/* `at` is the position of the first of n values in the unit; blocks are at most TG_BLOCK long. The pass over a
 * unit is shared by `lanes`, each of which sees its own blocks in ascending order, at most lane_n elements. */
typedef struct tg_select_part {
    tg_part part;
    tg_select_by by;
    uint64_t n_max; /* longest unit that the part can handle; 0: any */

    /* The most entries that a unit of n elements may send. */
    uint64_t (*most)(const double *params, uint64_t n);
    /* What values are multiplied with before they are written; NULL: 1. */
    double (*gain)(const double *params, uint64_t n);
    /* Bytes that the part needs while it works on a unit of n elements; NULL: none. */
    uint64_t (*scratch_len)(const double *params, uint64_t n, uint32_t lanes, uint64_t lane_n);

    /* BY_SEED: draws the coordinates of a unit of n elements. */
    void (*draw)(void *scratch, const double *params, uint64_t n, const tg_stream *stream);

    /* Parameters as they are at a step; NULL: they do not change. `most` and `scratch_len` hold for all steps. */
    void (*at_step)(double *params, uint64_t step);

    /* BY_DATA, all three or none: the measuring pass. */
    void (*start)(void *scratch, const double *params, uint64_t n, uint32_t lanes, uint64_t lane_n);
    void (*measure)(void *scratch, uint32_t lane, uint64_t at, const float *u, size_t n);
    void (*settle)(void *scratch);

    /* Both or none: between `start` and the first block a part is told a sample of the unit's elements, at most TG_SAMPLE_MAX of
     * them. What it guesses from it may mislead it; then what it has measured is not enough, and it starts again without. */
    void (*guess)(void *scratch, const float *sample, size_t sample_n);
    bool (*is_enough)(const void *scratch);

    /* Parts whose measuring pass finds all there is to know: how many of the n elements from `at` on are sent, and which, from 0
     * on in ascending order, if they are not more than `most`. NULL: there is more to look at. */
    uint64_t (*list)(uint32_t *list, uint64_t most, const void *scratch, uint64_t at, uint64_t n);

    /* Marks the block's elements that are sent, in a mask that is clear. u is NULL for parts BY_SEED, and for those with a
     * list. */
    void (*mark)(uint64_t *mask, const void *scratch, const double *params, uint64_t at, const float *u, size_t n);

    /* BY_DATA, both or none: parts that choose in bins of so many consecutive elements, at most TG_BIN_MAX. In place of
     * `mark`, a part is given whole bins (the unit's last may be short): u, and the gradient g without what is
     * remembered. It tells the largest magnitude in u of each bin. */
    uint32_t (*bin)(const double *params);
    void (*mark_bins)(uint64_t *mask, float *maxima, const double *params, const float *u, const float *g, size_t n);

    /* Decides parameters that are left to the kind of the tensor; NULL: none are. */
    void (*resolve)(double *params, tg_kind kind);
} tg_select_part;

extern const tg_select_part tg_select_topk;

/* max(1, round(ratio * n)), 0 for n = 0: how many of n elements a ratio means. */
uint64_t tg_ratio_entries(double ratio, uint64_t n);

/* `most` of parts that take a ratio. */
uint64_t tg_ratio_most(const double *params, uint64_t n);

/* `gain` of parts that may be unbiased: elements over entries if they are, else 1. */
double tg_unbiased_gain(const double *params, uint64_t n);

/* Order of magnitudes as an integer: |a| < |b| exactly if key(a) < key(b); NaN above all. */
static inline uint32_t tg_magnitude_key(float value)
{
    return tg_float_bits(value) & 0x7fffffffu;
}

#endif
