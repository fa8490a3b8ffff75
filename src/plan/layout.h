/* The layout: the tensors of a model, the recipe of each, and the units that selections span. It never changes. */
#ifndef TG_PLAN_LAYOUT_H
#define TG_PLAN_LAYOUT_H

#include "base/memory.h"
#include "recipe/recipe.h"

#define TG_ELEMENT_MAX (UINT64_C(1) << 60) /* maximum number of elements of all tensors */
#define TG_RECIPE_MAX 255                  /* maximum number of different recipes in one model */

typedef struct tg_recipe_row {
    tg_recipe recipe;
    char text[TG_RECIPE_CAP]; /* its canonical text */
} tg_recipe_row;

/* The position of a tensor in a unit. */
typedef struct tg_piece {
    size_t tensor;
    uint64_t at; /* position of its first element in the unit */
    uint64_t n;  /* elements */
} tg_piece;

/* What one selection spans: a tensor, or with scope=model all tensors with the same recipe, concatenated. */
typedef struct tg_unit {
    const tg_recipe *recipe;
    const tg_piece *pieces;
    size_t piece_n;
    uint64_t at; /* position of its first element in the concatenation of all units */
    uint64_t n;  /* elements */
} tg_unit;

/* Memory that other members of a layout point into. */
typedef struct tg_layout_storage {
    tg_allocator allocator;
    tg_piece *pieces; /* of all units */
    char *names;      /* of all tensors, each terminated */
    uint64_t *dims;   /* of all tensors */
} tg_layout_storage;

/* A layout as bytes (docs/format.md section 2). Frames may contain it, so that a reader needs nothing else. */
typedef struct tg_description {
    uint8_t *bytes;
    size_t len;
    uint64_t fingerprint; /* the hash of the bytes, which every frame contains */
} tg_description;

typedef struct tg_layout {
    /* Arrays of tensor_n. Names and dims of `tensors` are copies. */
    size_t tensor_n;
    tg_tensor *tensors;
    uint64_t *tensor_elements;
    uint32_t *tensor_unit;   /* index into units */
    uint16_t *tensor_recipe; /* index into recipes */

    tg_recipe_row *recipes; /* different ones, in the order of their first use */
    size_t recipe_n;
    tg_unit *units;
    size_t unit_n;
    uint64_t element_n; /* of all tensors */

    uint64_t seed; /* that all ranks share; 0 if there is none */
    bool has_seed;

    tg_description description;
    tg_layout_storage storage;
} tg_layout;

/* Creates a layout. recipes[t] is the resolved recipe of tensor t. */
tg_status tg_layout_new(tg_layout **out, const tg_tensor *tensors, size_t tensor_n, const tg_recipe *recipes,
                        bool has_seed, uint64_t seed, const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_layout_free(tg_layout *layout);

/* The tensor that element `at` of a unit belongs to. */
const tg_piece *tg_unit_piece(const tg_unit *unit, uint64_t at);

/* The position of a tensor in a unit. The tensor must belong to the unit. */
const tg_piece *tg_unit_piece_of(const tg_unit *unit, size_t tensor);

/* The name of the exchange that the quantizer of some tensor requires (`lowrank`, `lgc-ring`, ...); NULL: none does. */
const char *tg_layout_exchange(const tg_layout *layout);

/* description.c: fills in the description. All other members must be complete. */
tg_status tg_layout_describe(tg_layout *layout, tg_detail *why) TG_CHECKED;

/* description.c: creates the layout that a description describes. Validates everything. */
tg_status tg_layout_from_description(tg_layout **out, const uint8_t *bytes, size_t len, const tg_allocator *a,
                                     tg_detail *why) TG_CHECKED;

#endif
