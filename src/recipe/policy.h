/* Policy: chooses the recipe of each tensor by rules, kinds and sizes. */
#ifndef TG_RECIPE_POLICY_H
#define TG_RECIPE_POLICY_H

#include "recipe/recipe.h"

/* Writes the resolved recipe of each tensor to recipes[t]. */
tg_status tg_policy_apply(tg_recipe *recipes, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                          const tg_options *opt, tg_detail *why) TG_CHECKED;

/* What a recipe says of owners' answers (again=): one of TG_AGAIN_YES, ... */
int tg_policy_again(const char *recipe);

/* The recipe inside hosts. */
void tg_policy_inside(char out[TG_RECIPE_CAP], const char *recipe);

/* options.c: copies a caller's options, of this or of another version of the struct. NULL gives the defaults. The size is
 * checked before anything else is read. Members that the caller's version does not have become zero. */
tg_status tg_options_read(tg_options *out, const tg_options *given, tg_detail *why) TG_CHECKED;

#endif
