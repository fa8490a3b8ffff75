/* The grammar of recipes: text to a tg_recipe.
 *
 *     recipe    = item { "+" item }
 *     item      = name [ "@" argument { "," argument } ]
 *     argument  = value | key "=" value
 *
 * Two items are no parts: `hadamard@N`, a parameter of the quantizer, and `inside=QUANTIZER`, for the whole model.
 *
 * A bare value sets the part's main parameter. It must be the first argument. A name is that of a part or of a preset;
 * presets are replaced by their expansions first (expand.c). */
#include "base/number.h"
#include "recipe/parsing.h"

#include <math.h>
#include <string.h>

/* ---- parameters ------------------------------------------------------------------------------------------------------- */

static bool read_value(double *out, const tg_param *param, tg_text value)
{
    if (param->word != NULL && tg_text_is(value, param->word)) {
        *out = param->standard;
        return true;
    }
    if (param->choices == NULL) {
        return tg_number_read(out, value.at, value.len) && *out <= param->highest &&
               (param->above_lowest ? *out > param->lowest : *out >= param->lowest) &&
               (!param->is_whole || *out == floor(*out));
    }
    for (size_t i = 0; param->choices[i] != NULL; i++) {
        if (tg_text_is(value, param->choices[i])) {
            *out = (double)i;
            return true;
        }
    }
    return false;
}

static const tg_param *find_param(const tg_part *part, tg_text key, bool by_key)
{
    for (size_t i = 0; i < part->param_n; i++) {
        const tg_param *param = &part->params[i];
        if (by_key ? tg_text_is(key, param->name) : param->is_main) {
            return param;
        }
    }
    return NULL;
}

static tg_status parse_argument(double *values, bool *given, const tg_part *part, tg_text argument, bool first,
                                tg_detail *why)
{
    bool by_key = false;
    tg_text value = argument;
    tg_text key = tg_text_cut(&value, '=', &by_key);
    if (!by_key) {
        value = key;
        if (!first) {
            return tg_fail(TG_E_RECIPE, why, "'%s': the value '%.*s' needs a key, as in key=value", part->name,
                           (int)value.len, value.at);
        }
    }
    const tg_param *param = find_param(part, key, by_key);
    if (param == NULL) {
        return by_key ? tg_fail(TG_E_RECIPE, why, "'%s' has no parameter '%.*s'", part->name, (int)key.len, key.at)
                      : tg_fail(TG_E_RECIPE, why, "'%s' takes no bare value, but '%.*s' is given", part->name,
                                (int)value.len, value.at);
    }
    size_t index = (size_t)(param - part->params);
    if (given[index]) {
        return tg_fail(TG_E_RECIPE, why, "'%s': %s is given twice", part->name, param->name);
    }
    given[index] = true;
    if (!read_value(&values[index], param, value)) {
        char range[80];
        tg_param_range(range, sizeof range, param);
        return tg_fail(TG_E_RECIPE, why, "'%s': %s must be in %s, not '%.*s'", part->name, param->name, range,
                       (int)value.len, value.at);
    }
    return TG_OK;
}

static tg_status parse_arguments(double *values, const tg_part *part, tg_text arguments, tg_detail *why)
{
    bool given[TG_PARAM_CAP] = {false};
    bool more = arguments.at != NULL;
    for (bool first = true; more; first = false) {
        tg_text argument = tg_text_cut(&arguments, ',', &more);
        TG_TRY(parse_argument(values, given, part, argument, first, why));
    }
    for (size_t i = 0; i < part->param_n; i++) {
        if (part->params[i].required && !given[i]) {
            return tg_fail(TG_E_RECIPE, why, "'%s' needs a value for %s, as in %s@VALUE", part->name,
                           part->params[i].name, part->name);
        }
    }
    return TG_OK;
}

/* ---- items ------------------------------------------------------------------------------------------------------------ */

static tg_status parse_item(tg_recipe *r, bool *named, tg_text item, tg_detail *why)
{
    bool has_arguments = false;
    tg_text arguments = item;
    tg_text name = tg_text_cut(&arguments, '@', &has_arguments);
    if (item.len == 0) {
        return tg_fail(TG_E_RECIPE, why, "a part is missing before or after a '+'");
    }
    const tg_part_row *row = tg_part_find(name.at, name.len);
    if (row == NULL) {
        return tg_fail(TG_E_RECIPE, why, "there is no part or preset '%.*s'", (int)name.len, name.at);
    }
    if (named[row->stage]) {
        return tg_fail(TG_E_RECIPE, why,
                       "'%s' and '%s' are both parts of stage %s; a recipe has one part of each stage",
                       r->part[row->stage]->name, row->part->name, tg_stage_name(row->stage));
    }
    named[row->stage] = true;
    tg_recipe_set_part(r, row->stage, row->part);
    return parse_arguments(r->value[row->stage], row->part, has_arguments ? arguments : (tg_text){NULL, 0}, why);
}

/* `hadamard@N` stands for the parameter of that name of the quantizer, wherever it is in the recipe. */
static tg_status parse_rotation(tg_text *value, tg_text item, tg_detail *why)
{
    bool has_value = false;
    tg_text rest = item;
    (void)tg_text_cut(&rest, '@', &has_value);
    if (value->at != NULL) {
        return tg_fail(TG_E_RECIPE, why, "'hadamard' is given twice");
    }
    *value = has_value ? rest : (tg_text){"64", 2};
    return TG_OK;
}

static tg_status set_rotation(tg_recipe *r, tg_text value, tg_detail *why)
{
    const tg_part *part = r->part[TG_STAGE_quantize];
    const tg_param *param = find_param(part, (tg_text){"hadamard", 8}, true);
    if (param == NULL) {
        return tg_fail(TG_E_RECIPE, why, "'hadamard' rotates values for 'mxfp8', 'mxfp4' and 'nvfp4', not for '%s'",
                       part->name);
    }
    double *set = &r->value[TG_STAGE_quantize][param - part->params];
    if (*set != param->standard) {
        return tg_fail(TG_E_RECIPE, why, "'hadamard' is given twice");
    }
    if (!read_value(set, param, value) || *set == param->standard) {
        return tg_fail(TG_E_RECIPE, why, "'hadamard' rotates 32, 64 or 128 values, not '%.*s'", (int)value.len,
                       value.at);
    }
    return TG_OK;
}

static bool is_rotation(tg_text item)
{
    bool has_value = false;
    tg_text name = tg_text_cut(&item, '@', &has_value);
    return tg_text_is(name, "hadamard");
}

static tg_status parse(tg_recipe *out, const char *recipe, tg_detail *why);

/* `inside=QUANTIZER`: the wire inside a host. */
static tg_status parse_inside(tg_recipe *r, tg_text item, tg_detail *why)
{
    char text[TG_RECIPE_CAP];
    tg_recipe inner;
    bool has_value = false;
    (void)tg_text_cut(&item, '=', &has_value);
    if (r->inside != NULL) {
        return tg_fail(TG_E_RECIPE, why, "'inside' is given twice");
    }
    if (item.len >= sizeof text) {
        return tg_fail(TG_E_RECIPE, why, "'inside' has a value that is too long");
    }
    memcpy(text, item.at, item.len);
    text[item.len] = '\0';
    TG_TRY(parse(&inner, text, why));
    if (tg_recipe_feedback(&inner)->planes > 0 || tg_recipe_select(&inner)->by != TG_BY_NOTHING ||
        inner.part[TG_STAGE_symbol] != tg_part_standard(TG_STAGE_symbol) || inner.inside != NULL ||
        tg_recipe_quantize(&inner)->exchange != NULL) {
        return tg_fail(TG_E_RECIPE, why,
                       "'inside' is the wire inside a host: a quantizer alone, such as 'mxfp8', not '%s'", text);
    }
    r->inside = inner.part[TG_STAGE_quantize];
    memcpy(r->inside_value, inner.value[TG_STAGE_quantize], sizeof r->inside_value);
    return TG_OK;
}

static bool is_inside(tg_text item)
{
    return item.len >= 7 && memcmp(item.at, "inside=", 7) == 0;
}

/* A part, or what is said for the whole recipe. */
static tg_status parse_any(tg_recipe *r, bool *named, tg_text *rotation, tg_text item, tg_detail *why)
{
    if (is_inside(item)) {
        return parse_inside(r, item, why);
    }
    return is_rotation(item) ? parse_rotation(rotation, item, why) : parse_item(r, named, item, why);
}

static tg_status parse(tg_recipe *out, const char *recipe, tg_detail *why)
{
    char expanded[TG_EXPANDED_CAP];
    TG_TRY(tg_recipe_expand(expanded, recipe, why));
    if (expanded[0] == '\0') {
        return tg_fail(TG_E_RECIPE, why, "the recipe is empty");
    }
    tg_recipe r = tg_recipe_standard();
    bool named[TG_STAGE_N] = {false};
    tg_text rest = {expanded, strlen(expanded)}, rotation = {NULL, 0};
    for (bool more = true; more;) {
        tg_text item = tg_text_cut(&rest, '+', &more);
        TG_TRY(parse_any(&r, named, &rotation, item, why));
    }
    if (rotation.at != NULL) {
        TG_TRY(set_rotation(&r, rotation, why));
    }
    TG_TRY(tg_recipe_check(&r, named, why));
    *out = r;
    return TG_OK;
}

tg_status tg_recipe_parse(tg_recipe *out, const char *recipe, tg_detail *why)
{
    if (recipe == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "no recipe is given");
    }
    tg_detail reason = {""};
    tg_status status = parse(out, recipe, &reason);
    return status == TG_OK ? TG_OK : tg_fail(status, why, "recipe '%.100s': %s", recipe, reason.text);
}
