/* The canonical text of a recipe. Every recipe has exactly one, and parsing it gives the same recipe. */
#include "base/number.h"
#include "recipe/recipe.h"

#include <stdio.h>
#include <string.h>

void tg_param_write(char *out, size_t cap, const tg_param *param, double value)
{
    char number[TG_NUMBER_CAP];
    const char *text = number;
    if (param->choices != NULL) {
        text = param->choices[(size_t)value];
    } else if (param->word != NULL && value == param->standard) {
        text = param->word;
    } else if (param->is_whole) {
        (void)snprintf(number, sizeof number, "%.0f", value);
    } else {
        tg_number_write(number, value);
    }
    (void)snprintf(out, cap, "%s", text);
}

static void write_part(char *out, const tg_part *part, const double *values)
{
    size_t len = strlen(out);
    len += (size_t)snprintf(out + len, TG_RECIPE_CAP - len, "%s%s", len > 0 ? "+" : "", part->name);
    char separator = '@';
    for (int main_first = 1; main_first >= 0; main_first--) {
        for (size_t i = 0; i < part->param_n; i++) {
            const tg_param *param = &part->params[i];
            bool at_standard = !param->required && values[i] == param->standard;
            if (param->is_main != (main_first == 1) || (at_standard && !param->is_main)) {
                continue;
            }
            char value[64];
            tg_param_write(value, sizeof value, param, values[i]);
            len += (size_t)snprintf(out + len, TG_RECIPE_CAP - len, "%c%s%s%s", separator,
                                    param->is_main ? "" : param->name, param->is_main ? "" : "=", value);
            separator = ',';
        }
    }
}

void tg_recipe_write_inside(char out[TG_RECIPE_CAP], const tg_recipe *r)
{
    out[0] = '\0';
    if (r->inside == NULL) {
        (void)snprintf(out, TG_RECIPE_CAP, "dense");
    } else {
        write_part(out, r->inside, r->inside_value);
    }
}

void tg_recipe_write(char out[TG_RECIPE_CAP], const tg_recipe *r)
{
    char inside[TG_RECIPE_CAP];
    out[0] = '\0';
    for (tg_stage stage = 0; stage < TG_STAGE_N; stage++) {
        if (stage == TG_STAGE_quantize || r->part[stage] != tg_part_standard(stage)) {
            write_part(out, r->part[stage], r->value[stage]);
        }
    }
    if (r->inside != NULL) {
        size_t len = strlen(out);
        tg_recipe_write_inside(inside, r);
        (void)snprintf(out + len, TG_RECIPE_CAP - len, "+inside=%.100s", inside);
    }
}

tg_status tg_recipe_canonical(char out[TG_RECIPE_CAP], const char *recipe, tg_detail *why)
{
    tg_recipe r;
    TG_NEED(out, why);
    TG_TRY(tg_recipe_parse(&r, recipe, why));
    tg_recipe_write(out, &r);
    return TG_OK;
}
