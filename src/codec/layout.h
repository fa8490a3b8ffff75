/* The layout: a model's tensors, the recipe each travels by, and the units that selections span. Fixed for life. */
#ifndef TG_CODEC_LAYOUT_H
#define TG_CODEC_LAYOUT_H

#include "base/memory.h"
#include "codec/recipe.h"

#define TG_ELEMENT_MAX (UINT64_C(1) << 60) /* elements of all tensors together */
#define TG_RECIPE_MAX 255                  /* different recipes in one model */

typedef struct tg_recipe_row {
    tg_recipe recipe;
    char text[TG_RECIPE_CAP];
} tg_recipe_row;

/* A tensor's place inside a unit. */
typedef struct tg_piece {
    size_t tensor;
    uint64_t at; /* of its first element in the unit */
    uint64_t n;
} tg_piece;

/* What one selection spans: a tensor, or all tensors of a recipe with scope=model laid end to end. */
typedef struct tg_unit {
    const tg_recipe *recipe;
    const tg_piece *pieces;
    size_t piece_n;
    uint64_t at; /* of its first element, where all units are laid end to end */
    uint64_t n;
} tg_unit;

typedef struct tg_layout {
    tg_allocator allocator;
    tg_tensor *tensors; /* names and dims are the layout's own */
    uint64_t *tensor_elements;
    uint32_t *tensor_unit;
    uint16_t *tensor_recipe; /* which of recipes */
    size_t tensor_n;
    tg_recipe_row *recipes; /* in the order of their first use */
    size_t recipe_n;
    tg_unit *units;
    size_t unit_n;
    tg_piece *pieces;
    char *names;
    uint64_t *dims;
    uint64_t element_n;
    uint64_t seed;
    bool has_seed;
    uint8_t *description; /* the above as bytes, by docs/format.md section 2 */
    size_t description_len;
    uint64_t fingerprint; /* its hash */
} tg_layout;

/* A layout of tensors, tensor t travelling by recipes[t], which is resolved. */
tg_status tg_layout_new(tg_layout **out, const tg_tensor *tensors, size_t tensor_n, const tg_recipe *recipes,
                        bool has_seed, uint64_t seed, const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_layout_free(tg_layout *layout);

/* The tensor that holds element `at` of a unit. */
const tg_piece *tg_unit_piece(const tg_unit *unit, uint64_t at);

/* The exchange of their own by which some tensors travel; NULL: there is none. */
const char *tg_layout_exchange(const tg_layout *layout);

/* description.c: fills in description, description_len and fingerprint of a layout that is complete otherwise. */
tg_status tg_layout_describe(tg_layout *layout, tg_detail *why) TG_CHECKED;

/* description.c: the layout that a description tells of. Trusts nothing. */
tg_status tg_layout_from_description(tg_layout **out, const uint8_t *bytes, size_t len, const tg_allocator *a,
                                     tg_detail *why) TG_CHECKED;

/* options.c: the options of a caller, of this version of the struct or of another; NULL stands for the standard. The size is
 * checked before anything else is read. Members that the caller's version does not have are zero. */
tg_status tg_options_read(tg_options *out, const tg_options *given, tg_detail *why) TG_CHECKED;

/* policy.c: which recipe each tensor travels by, by rules, kinds and sizes. */
tg_status tg_policy_apply(tg_recipe *recipes, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                          const tg_options *opt, tg_detail *why) TG_CHECKED;

#endif
