/* What the files that turn text into a recipe share. */
#ifndef TG_RECIPE_PARSING_H
#define TG_RECIPE_PARSING_H

#include "recipe/recipe.h"

#include <string.h>

#define TG_EXPANDED_CAP 512 /* bytes of a recipe whose presets are expanded, with the terminating zero */

/* Text that is not terminated: part of a longer one. */
typedef struct tg_text {
    const char *at;
    size_t len;
} tg_text;

static inline bool tg_text_is(tg_text text, const char *word)
{
    return strlen(word) == text.len && memcmp(word, text.at, text.len) == 0;
}

/* Splits `rest` at the first `separator`. Returns the text before it; `rest` becomes the text after it. `more` is whether
 * there was a separator. */
static inline tg_text tg_text_cut(tg_text *rest, char separator, bool *more)
{
    const char *found = memchr(rest->at, separator, rest->len);
    *more = found != NULL;
    tg_text first = {rest->at, found == NULL ? rest->len : (size_t)(found - rest->at)};
    size_t used = first.len + (*more ? 1 : 0);
    rest->at += used;
    rest->len -= used;
    return first;
}

/* expand.c: the recipe with its presets replaced by their expansions. */
tg_status tg_recipe_expand(char out[TG_EXPANDED_CAP], const char *recipe, tg_detail *why) TG_CHECKED;

/* check.c: whether the parts of a recipe go together. named[stage]: the text names a part of that stage, so it is not
 * there by default. */
tg_status tg_recipe_check(const tg_recipe *recipe, const bool *named, tg_detail *why) TG_CHECKED;

/* listing.c: the values that a parameter accepts, such as "(0, 1]" or "own|shared". */
void tg_param_range(char *out, size_t cap, const tg_param *param);

/* recipe.c: the recipe whose parts and parameters all are the defaults. */
tg_recipe tg_recipe_standard(void);

/* recipe.c: sets the part of a stage, with its parameters at their defaults. */
void tg_recipe_set_part(tg_recipe *recipe, tg_stage stage, const tg_part *part);

/* recipe.c: a parameter's value by its name; 0 if the part has no such parameter. */
double tg_recipe_value(const tg_recipe *recipe, tg_stage stage, const char *name);

/* recipe.c: sets a parameter by its name, if the part has it. */
void tg_recipe_set_value(tg_recipe *recipe, tg_stage stage, const char *name, double value);

/* recipe.c: whether `rans` in the recipe also codes the index gaps. */
bool tg_recipe_has_rans_indices(const tg_recipe *recipe);

#endif
