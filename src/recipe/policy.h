/* Policy: which recipe each tensor travels by, by rules, kinds and sizes. */
#ifndef TG_RECIPE_POLICY_H
#define TG_RECIPE_POLICY_H

#include "recipe/recipe.h"

/* Writes the recipe of each tensor, resolved. */
tg_status tg_policy_apply(tg_recipe *recipes, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                          const tg_options *opt, tg_detail *why) TG_CHECKED;

#endif
