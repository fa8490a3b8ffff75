/* Replaces every preset in a recipe by its expansion. */
#include "recipe/parsing.h"
#include "recipe/presets.h"

#include <string.h>

static bool append(char *out, size_t *len, const char *from, size_t n)
{
    if (n >= TG_EXPANDED_CAP - *len) {
        return false;
    }
    memcpy(out + *len, from, n);
    *len += n;
    out[*len] = '\0';
    return true;
}

static tg_status append_preset(char *out, size_t *len, const tg_preset *preset, tg_text argument, tg_detail *why)
{
    const char *dollar = strchr(preset->expansion, '$');
    if (dollar == NULL && argument.len > 0) {
        return tg_fail(TG_E_RECIPE, why, "preset '%s' takes no value, but '%.*s' is given", preset->name,
                       (int)argument.len, argument.at);
    }
    if (dollar != NULL && argument.len == 0) {
        argument = (tg_text){preset->standard, strlen(preset->standard)};
    }
    size_t before = dollar == NULL ? strlen(preset->expansion) : (size_t)(dollar - preset->expansion);
    bool fits = append(out, len, preset->expansion, before);
    if (fits && dollar != NULL) {
        fits = append(out, len, argument.at, argument.len) && append(out, len, dollar + 1, strlen(dollar + 1));
    }
    return fits ? TG_OK : tg_fail(TG_E_RECIPE, why, "the recipe is too long");
}

tg_status tg_recipe_expand(char out[TG_EXPANDED_CAP], const char *recipe, tg_detail *why)
{
    size_t len = 0;
    tg_text rest = {recipe, strlen(recipe)};
    bool more = true;
    out[0] = '\0';
    while (more) {
        tg_text item = tg_text_cut(&rest, '+', &more);
        tg_text argument = item;
        bool has_argument = false;
        tg_text name = tg_text_cut(&argument, '@', &has_argument);
        const tg_preset *preset = tg_preset_find(name.at, name.len);
        if (preset != NULL && has_argument && argument.len == 0) {
            return tg_fail(TG_E_RECIPE, why, "'%s@' has no value after the '@'", preset->name);
        }
        if (preset != NULL) {
            TG_TRY(append_preset(out, &len, preset, has_argument ? argument : (tg_text){"", 0}, why));
        } else if (!append(out, &len, item.at, item.len)) {
            return tg_fail(TG_E_RECIPE, why, "the recipe is longer than %d characters", TG_EXPANDED_CAP - 1);
        }
        if (more && !append(out, &len, "+", 1)) {
            return tg_fail(TG_E_RECIPE, why, "the recipe is too long");
        }
    }
    return TG_OK;
}
