/* Policy: which recipe each tensor travels by, by rules, kinds and sizes. */
#ifndef TG_RECIPE_POLICY_H
#define TG_RECIPE_POLICY_H

#include "recipe/recipe.h"

/* Writes the recipe of each tensor, resolved. */
tg_status tg_policy_apply(tg_recipe *recipes, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                          const tg_options *opt, tg_detail *why) TG_CHECKED;

/* options.c: the options of a caller, of this version of the struct or of another; NULL stands for the defaults. The size is
 * checked before anything else is read. Members that the caller's version does not have are zero. */
tg_status tg_options_read(tg_options *out, const tg_options *given, tg_detail *why) TG_CHECKED;

#endif
