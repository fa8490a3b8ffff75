/* Any text as a recipe: it is refused with an error, or its canonical text means the same and is its own canonical text. */
#include "recipe/recipe.h"
#include "support.h"

#include <string.h>

/* The text of a recipe with all defaults resolved is canonical too: frames hold it. */
static void check_resolved(const char *canonical, bool has_seed)
{
    tg_recipe recipe;
    char resolved[TG_RECIPE_CAP], again[TG_RECIPE_CAP];
    PROMISE(tg_recipe_parse(&recipe, canonical, NULL) == TG_OK, "canonical text is understood");
    if (tg_recipe_resolve(&recipe, has_seed, TG_CONV, NULL) == TG_OK) {
        tg_recipe_write(resolved, &recipe);
        PROMISE(tg_recipe_canonical(again, resolved, NULL) == TG_OK, "resolved text is understood");
        PROMISE(strcmp(again, resolved) == 0, "resolved text is canonical");
    }
}

static void check_canonical(const char *canonical)
{
    char again[TG_RECIPE_CAP];
    PROMISE(memchr(canonical, '\0', TG_RECIPE_CAP) != NULL, "canonical text fits and is terminated");
    PROMISE(tg_recipe_canonical(again, canonical, NULL) == TG_OK, "canonical text is understood");
    PROMISE(strcmp(again, canonical) == 0, "canonical text is a fixed point");
    PROMISE(strstr(canonical, "@-0") == NULL && strstr(canonical, "=-0") == NULL, "zero has one text");
    check_resolved(canonical, false);
    check_resolved(canonical, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char *text = fuzz_room(len + 1, 0);
    if (len > 0) {
        memcpy(text, data, len);
    }
    char *canonical = fuzz_room(TG_RECIPE_CAP, 'x');
    tg_detail why;
    memset(&why, 'x', sizeof why);
    if (tg_recipe_canonical(canonical, text, &why) == TG_OK) {
        check_canonical(canonical);
    } else {
        PROMISE(memchr(canonical, '\0', TG_RECIPE_CAP) == NULL, "a failure writes no output");
        fuzz_check_sentence(why.text, sizeof why.text);
    }
    free(canonical);
    free(text);
    return 0;
}
