/* A recipe: the part of each stage with its parameters, as text and as a struct. */
#ifndef TG_RECIPE_RECIPE_H
#define TG_RECIPE_RECIPE_H

#include "base/status.h"
#include "recipe/parts.h"

typedef struct tg_recipe {
    const tg_part *part[TG_STAGE_N];
    double value[TG_STAGE_N][TG_PARAM_CAP]; /* value[stage][i]: parameter i of that part */
    /* For the whole model: the quantizer of the wire inside a host, and its parameters. NULL: gradients travel as they are. */
    const tg_part *inside;
    double inside_value[TG_PARAM_CAP];
} tg_recipe;

/* The part of a stage, with the type of that stage. A tg_part is the first member of each type, so the cast is valid. */
static inline const tg_feedback_part *tg_recipe_feedback(const tg_recipe *r)
{
    return (const tg_feedback_part *)(const void *)r->part[TG_STAGE_feedback];
}

static inline const tg_select_part *tg_recipe_select(const tg_recipe *r)
{
    return (const tg_select_part *)(const void *)r->part[TG_STAGE_select];
}

static inline const tg_quantize_part *tg_recipe_quantize(const tg_recipe *r)
{
    return (const tg_quantize_part *)(const void *)r->part[TG_STAGE_quantize];
}

static inline const tg_index_part *tg_recipe_index(const tg_recipe *r)
{
    return (const tg_index_part *)(const void *)r->part[TG_STAGE_index];
}

static inline const tg_symbol_part *tg_recipe_symbol(const tg_recipe *r)
{
    return (const tg_symbol_part *)(const void *)r->part[TG_STAGE_symbol];
}

/* How the recipe's indices are read and written. The symbol pack `rans` adds a mode. */
typedef bool (*tg_index_read)(uint64_t *mask, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count);
typedef size_t (*tg_index_write)(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint32_t *list, size_t n,
                                 size_t count);
tg_index_read tg_recipe_index_read(const tg_recipe *r);
tg_index_write tg_recipe_index_write(const tg_recipe *r);

/* parse.c: parses a recipe. Presets are expanded, and parts that do not go together are refused. */
tg_status tg_recipe_parse(tg_recipe *out, const char *text, tg_detail *why) TG_CHECKED;

/* Resolves parameters that depend on more than the text: `coords=auto` depends on whether ranks share a seed, `bin=auto` on
 * the kind of the tensor. Fails if the recipe is not valid for this kind or without a seed. */
tg_status tg_recipe_resolve(tg_recipe *recipe, bool has_seed, tg_kind kind, tg_detail *why) TG_CHECKED;

/* canonical.c: writes the canonical text of a parameter's value, and of a recipe. */
void tg_param_write(char *out, size_t cap, const tg_param *param, double value);
void tg_recipe_write(char out[TG_RECIPE_CAP], const tg_recipe *recipe);

/* The text of the recipe inside a host. */
void tg_recipe_write_inside(char out[TG_RECIPE_CAP], const tg_recipe *recipe);

/* The recipe that sends all values uncompressed in this dtype. */
tg_recipe tg_recipe_dense(tg_dtype dtype);

/* The recipe by which an owner answers with a mean. Returns whether it has all values (again=), so that the owner does not choose again;
 * else it is the recipe itself. */
bool tg_recipe_answer(tg_recipe *out, const tg_recipe *recipe);

/* Whether the quantizer has one scale for the whole unit, computed by this rule. */
bool tg_recipe_scale_is(const tg_recipe *recipe, tg_scale_rule rule);

/* Elements of the select part's bins; 0 if it has no bins. The recipe must be resolved. */
uint32_t tg_recipe_bin(const tg_recipe *recipe);

/* Whether one selection spans all tensors with this recipe (scope=model). */
bool tg_recipe_spans_model(const tg_recipe *recipe);

/* Whether all ranks send the coordinates that a leader selected by its data (coords=shared). */
bool tg_recipe_follows_leader(const tg_recipe *recipe);

#endif
