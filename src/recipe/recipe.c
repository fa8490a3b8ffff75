/* The grammar of recipes.
 *
 *     recipe    = item { "+" item }
 *     item      = name [ "@" argument { "," argument } ]
 *     argument  = value | key "=" value        (a bare value, at most one and first, sets the main parameter)
 *
 * A name is that of a part or of a preset; a preset is replaced by its expansion. */
#include "recipe/recipe.h"

#include "base/number.h"
#include "recipe/presets.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TEXT_CAP 512 /* a recipe with its presets expanded */

typedef struct text {
    const char *at;
    size_t len;
} text;

/* Cuts `rest` at the first `separator`; returns what stands before it. */
static text cut(text *rest, char separator, bool *more)
{
    const char *found = memchr(rest->at, separator, rest->len);
    *more = found != NULL;
    text first = {rest->at, found == NULL ? rest->len : (size_t)(found - rest->at)};
    size_t used = first.len + (*more ? 1 : 0);
    rest->at += used;
    rest->len -= used;
    return first;
}

/* ---- presets ------------------------------------------------------------------------------------------------- */

static bool append(char *out, size_t *len, const char *from, size_t n)
{
    if (n >= TEXT_CAP - *len) {
        return false;
    }
    memcpy(out + *len, from, n);
    *len += n;
    out[*len] = '\0';
    return true;
}

static tg_status append_preset(char *out, size_t *len, const tg_preset *preset, text argument, tg_detail *why)
{
    const char *hole = strchr(preset->expansion, '$');
    if (hole == NULL && argument.len > 0) {
        return tg_fail(TG_E_RECIPE, why, "preset '%s' takes no value, but '%.*s' is given", preset->name,
                       (int)argument.len, argument.at);
    }
    if (hole != NULL && argument.len == 0) {
        argument = (text){preset->standard, strlen(preset->standard)};
    }
    size_t before = hole == NULL ? strlen(preset->expansion) : (size_t)(hole - preset->expansion);
    bool fits = append(out, len, preset->expansion, before);
    if (fits && hole != NULL) {
        fits = append(out, len, argument.at, argument.len) && append(out, len, hole + 1, strlen(hole + 1));
    }
    return fits ? TG_OK : tg_fail(TG_E_RECIPE, why, "the recipe is too long");
}

static tg_status expand(char out[TEXT_CAP], const char *recipe, tg_detail *why)
{
    size_t len = 0;
    text rest = {recipe, strlen(recipe)};
    bool more = true;
    out[0] = '\0';
    while (more) {
        text item = cut(&rest, '+', &more);
        text argument = item;
        bool has_argument = false;
        text name = cut(&argument, '@', &has_argument);
        const tg_preset *preset = tg_preset_find(name.at, name.len);
        if (preset != NULL && has_argument && argument.len == 0) {
            return tg_fail(TG_E_RECIPE, why, "'%s@' has no value behind the '@'", preset->name);
        }
        if (preset != NULL) {
            TG_TRY(append_preset(out, &len, preset, has_argument ? argument : (text){"", 0}, why));
        } else if (!append(out, &len, item.at, item.len)) {
            return tg_fail(TG_E_RECIPE, why, "the recipe is longer than the %d characters that one may have",
                           TEXT_CAP - 1);
        }
        if (more && !append(out, &len, "+", 1)) {
            return tg_fail(TG_E_RECIPE, why, "the recipe is too long");
        }
    }
    return TG_OK;
}

/* ---- parameters ---------------------------------------------------------------------------------------------- */

static void describe_range(char *out, size_t cap, const tg_param *param)
{
    if (param->choices == NULL) {
        char lowest[TG_NUMBER_CAP], highest[TG_NUMBER_CAP];
        tg_number_write(lowest, param->lowest);
        tg_number_write(highest, param->highest);
        const char *end = param->highest == (double)FLT_MAX ? "inf)" : NULL; /* whatever a gradient can hold */
        (void)snprintf(out, cap, "%c%s, %s%s%s%s%s", param->above_lowest ? '(' : '[', lowest,
                       end != NULL ? end : highest, end != NULL ? "" : "]", param->is_whole ? ", whole" : "",
                       param->word != NULL ? ", or " : "", param->word != NULL ? param->word : "");
        return;
    }
    out[0] = '\0';
    for (size_t i = 0; param->choices[i] != NULL; i++) {
        size_t len = strlen(out);
        (void)snprintf(out + len, cap - len, "%s%s", i > 0 ? "|" : "", param->choices[i]);
    }
}

static bool is_text(text value, const char *of)
{
    return strlen(of) == value.len && memcmp(of, value.at, value.len) == 0;
}

static bool read_value(double *out, const tg_param *param, text value)
{
    if (param->word != NULL && is_text(value, param->word)) {
        *out = param->standard;
        return true;
    }
    if (param->choices == NULL) {
        return tg_number_read(out, value.at, value.len) && *out <= param->highest &&
               (param->above_lowest ? *out > param->lowest : *out >= param->lowest) &&
               (!param->is_whole || *out == floor(*out));
    }
    for (size_t i = 0; param->choices[i] != NULL; i++) {
        if (is_text(value, param->choices[i])) {
            *out = (double)i;
            return true;
        }
    }
    return false;
}

static const tg_param *find_param(const tg_part *part, text key, bool by_key)
{
    for (size_t i = 0; i < part->param_n; i++) {
        const tg_param *param = &part->params[i];
        if (by_key ? is_text(key, param->name) : param->is_main) {
            return param;
        }
    }
    return NULL;
}

static tg_status parse_argument(double *values, bool *given, const tg_part *part, text argument, bool first,
                                tg_detail *why)
{
    bool by_key = false;
    text value = argument;
    text key = cut(&value, '=', &by_key);
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
        describe_range(range, sizeof range, param);
        return tg_fail(TG_E_RECIPE, why, "'%s': %s must be in %s, not '%.*s'", part->name, param->name, range,
                       (int)value.len, value.at);
    }
    return TG_OK;
}

static tg_status parse_arguments(double *values, const tg_part *part, text arguments, tg_detail *why)
{
    bool given[TG_PARAM_CAP] = {false};
    bool more = arguments.at != NULL;
    for (bool first = true; more; first = false) {
        text argument = cut(&arguments, ',', &more);
        TG_TRY(parse_argument(values, given, part, argument, first, why));
    }
    for (size_t i = 0; i < part->param_n; i++) {
        if (part->params[i].required && !given[i]) {
            return tg_fail(TG_E_RECIPE, why, "'%s' needs its %s, as in %s@VALUE", part->name, part->params[i].name,
                           part->name);
        }
    }
    return TG_OK;
}

/* ---- recipes --------------------------------------------------------------------------------------------------- */

static void set_part(tg_recipe *r, tg_stage stage, const tg_part *part)
{
    r->part[stage] = part;
    for (size_t i = 0; i < TG_PARAM_CAP; i++) {
        r->value[stage][i] = i < part->param_n ? part->params[i].standard : 0.0;
    }
}

static tg_recipe standard_recipe(void)
{
    tg_recipe r;
    for (tg_stage stage = 0; stage < TG_STAGE_N; stage++) {
        set_part(&r, stage, tg_part_standard(stage));
    }
    return r;
}

static double named_value(const tg_recipe *r, tg_stage stage, const char *name)
{
    const tg_param *param = find_param(r->part[stage], (text){name, strlen(name)}, true);
    return param == NULL ? 0.0 : r->value[stage][param - r->part[stage]->params];
}

static bool has_rans_indices(const tg_recipe *r)
{
    return tg_recipe_symbol(r) == &tg_symbol_rans && tg_recipe_index(r)->read_rans != NULL;
}

static tg_status check_symbol_pack(const tg_recipe *r, tg_detail *why)
{
    const tg_symbol_part *pack = tg_recipe_symbol(r);
    const tg_quantize_part *quantize = tg_recipe_quantize(r);
    bool is_plain = quantize->plain_len != 0, has_gaps = tg_recipe_select(r)->by != TG_BY_NOTHING;
    if (!pack->codes_symbols && !pack->codes_words) {
        return TG_OK;
    }
    if (is_plain && !pack->codes_words && !(has_rans_indices(r) && has_gaps)) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs symbols, and '%s' makes none; 'lossless' packs floats",
                       pack->part.name, quantize->part.name);
    }
    if (!is_plain && !pack->codes_symbols) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs floats, and '%s' makes symbols", pack->part.name,
                       quantize->part.name);
    }
    if (tg_recipe_index(r)->cell_max != 0) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs signs itself, and leaves nothing to '%s'",
                       tg_recipe_index(r)->part.name, pack->part.name);
    }
    if (named_value(r, TG_STAGE_symbol, "table") != 0.0 && quantize->lengths == NULL) {
        return tg_fail(TG_E_RECIPE, why,
                       "'%s' with table=model needs a quantizer that fits one, as 'fp4' does, and not '%s'",
                       pack->part.name, quantize->part.name);
    }
    return TG_OK;
}

static tg_status check_sense(const tg_recipe *r, const bool *named, tg_detail *why)
{
    TG_TRY(check_symbol_pack(r, why));
    if (named[TG_STAGE_index] && tg_recipe_select(r)->by == TG_BY_NOTHING) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs indices, but '%s' sends none", r->part[TG_STAGE_index]->name,
                       r->part[TG_STAGE_select]->name);
    }
    if (tg_recipe_feedback(r)->planes > 0 && named_value(r, TG_STAGE_select, "unbiased") != 0.0) {
        return tg_fail(TG_E_RECIPE, why, "'unbiased' is for recipes without feedback: '%s' sends the rest later",
                       r->part[TG_STAGE_feedback]->name);
    }
    if (tg_recipe_scale_is(r, TG_SCALE_BINS) && tg_recipe_select(r)->bin == NULL) {
        return tg_fail(TG_E_RECIPE, why, "'%s' takes its scale from bins, and '%s' has none",
                       r->part[TG_STAGE_quantize]->name, r->part[TG_STAGE_select]->name);
    }
    const tg_quantize_part *quantize = tg_recipe_quantize(r);
    const char *refused = quantize->refuses == NULL ? NULL : quantize->refuses(r->value[TG_STAGE_quantize]);
    if (refused != NULL) {
        return tg_fail(TG_E_RECIPE, why, "'%s': %s", quantize->part.name, refused);
    }
    if (tg_recipe_scale_is(r, TG_SCALE_ONE) && tg_recipe_feedback(r)->planes > 0) {
        return tg_fail(TG_E_RECIPE, why, "'%s' with scale=one is a vote, of which no rest can be sent later",
                       quantize->part.name);
    }
    bool plain_else = tg_recipe_select(r)->by == TG_BY_NOTHING && !named[TG_STAGE_index] && !named[TG_STAGE_symbol];
    if (quantize->needs_leader) {
        bool led = r->part[TG_STAGE_select] == &tg_select_topk.part && tg_recipe_is_led(r) && !tg_recipe_spans_model(r);
        if (!led || named_value(r, TG_STAGE_select, "warmup") != 0.0 || named[TG_STAGE_index] ||
            named[TG_STAGE_symbol]) {
            return tg_fail(TG_E_RECIPE, why,
                           "'%s' goes with 'topk' by coords=shared alone: a leader tells its coordinates",
                           quantize->part.name);
        }
    } else if (quantize->exchange != NULL && (!plain_else || tg_recipe_feedback(r)->planes > 1)) {
        return tg_fail(TG_E_RECIPE, why, "'%s' goes with 'ef' or 'none' alone: it sends whole matrices, in factors",
                       quantize->part.name);
    }
    if (tg_recipe_index(r)->cell_max != 0 && (!tg_recipe_quantize(r)->has_scale || tg_recipe_select(r)->bin == NULL)) {
        return tg_fail(TG_E_RECIPE, why, "'%s' packs signs in bins, as of 'adabins' with 'sign'",
                       r->part[TG_STAGE_index]->name);
    }
    return TG_OK;
}

static tg_status parse_item(tg_recipe *r, bool *named, text item, tg_detail *why)
{
    bool has_arguments = false;
    text arguments = item;
    text name = cut(&arguments, '@', &has_arguments);
    if (item.len == 0) {
        return tg_fail(TG_E_RECIPE, why, "a part is missing beside a '+'");
    }
    const tg_part_row *row = tg_part_find(name.at, name.len);
    if (row == NULL) {
        return tg_fail(TG_E_RECIPE, why, "there is no part or preset '%.*s'", (int)name.len, name.at);
    }
    if (named[row->stage]) {
        return tg_fail(TG_E_RECIPE, why, "'%s' and '%s' are both of the stage %s, which has one part",
                       r->part[row->stage]->name, row->part->name, tg_stage_name(row->stage));
    }
    named[row->stage] = true;
    set_part(r, row->stage, row->part);
    return parse_arguments(r->value[row->stage], row->part, has_arguments ? arguments : (text){NULL, 0}, why);
}

static tg_status parse(tg_recipe *out, const char *recipe, tg_detail *why)
{
    char expanded[TEXT_CAP];
    TG_TRY(expand(expanded, recipe, why));
    if (expanded[0] == '\0') {
        return tg_fail(TG_E_RECIPE, why, "it is empty");
    }
    tg_recipe r = standard_recipe();
    bool named[TG_STAGE_N] = {false};
    text rest = {expanded, strlen(expanded)};
    for (bool more = true; more;) {
        text item = cut(&rest, '+', &more);
        TG_TRY(parse_item(&r, named, item, why));
    }
    TG_TRY(check_sense(&r, named, why));
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

tg_status tg_recipe_resolve(tg_recipe *r, bool has_seed, tg_kind kind, tg_detail *why)
{
    const tg_select_part *select = tg_recipe_select(r);
    if (select->resolve != NULL) {
        select->resolve(r->value[TG_STAGE_select], kind);
    }
    uint32_t cell_max = tg_recipe_index(r)->cell_max;
    uint32_t bin = tg_recipe_bin(r);
    if (cell_max != 0 && bin > cell_max) {
        return tg_fail(TG_E_RECIPE, why, "'%s' is for bins of at most %u elements, and tensors of kind '%s' have %u",
                       r->part[TG_STAGE_index]->name, cell_max, tg_kind_name(kind), bin);
    }
    if (select->by != TG_BY_SEED) {
        return TG_OK;
    }
    double *coords = &r->value[TG_STAGE_select][TG_SELECT_COORDS];
    if (*coords == TG_COORDS_AUTO) {
        *coords = has_seed ? TG_COORDS_SHARED : TG_COORDS_OWN;
    }
    if (*coords == TG_COORDS_SHARED && !has_seed) {
        return tg_fail(TG_E_RECIPE, why, "'%s' with coords=shared needs a seed that all ranks share, and none is given",
                       r->part[TG_STAGE_select]->name);
    }
    return TG_OK;
}

tg_recipe tg_recipe_dense(tg_dtype dtype)
{
    tg_recipe r = standard_recipe();
    const tg_part_row *row = tg_part_find(tg_dtype_name(dtype), strlen(tg_dtype_name(dtype)));
    set_part(&r, TG_STAGE_quantize, row->part); /* every dtype has a quantizer of its name */
    return r;
}

tg_index_read tg_recipe_index_read(const tg_recipe *r)
{
    return has_rans_indices(r) ? tg_recipe_index(r)->read_rans : tg_recipe_index(r)->read;
}

tg_index_write tg_recipe_index_write(const tg_recipe *r)
{
    return has_rans_indices(r) ? tg_recipe_index(r)->write_rans : tg_recipe_index(r)->write;
}

bool tg_recipe_scale_is(const tg_recipe *r, tg_scale_rule rule)
{
    const tg_quantize_part *quantize = tg_recipe_quantize(r);
    return quantize->has_scale && quantize->scale(r->value[TG_STAGE_quantize]) == rule;
}

uint32_t tg_recipe_bin(const tg_recipe *r)
{
    const tg_select_part *select = tg_recipe_select(r);
    return select->bin == NULL ? 0 : select->bin(r->value[TG_STAGE_select]);
}

bool tg_recipe_spans_model(const tg_recipe *r)
{
    return tg_recipe_select(r)->by != TG_BY_NOTHING && r->value[TG_STAGE_select][TG_SELECT_SCOPE] == TG_SCOPE_MODEL;
}

bool tg_recipe_is_led(const tg_recipe *r)
{
    return tg_recipe_select(r)->by == TG_BY_DATA && r->value[TG_STAGE_select][TG_SELECT_COORDS] == TG_COORDS_SHARED;
}

/* ---- lists ------------------------------------------------------------------------------------------------------ */

tg_status tg_part_list(tg_part_info *out, size_t index, tg_detail *why)
{
    TG_NEED(out, why);
    if (index < tg_part_n) {
        const tg_part_row *row = &tg_parts[index];
        *out = (tg_part_info){.name = row->part->name,
                              .stage = tg_stage_name(row->stage),
                              .summary = row->part->summary,
                              .id = row->id,
                              .parameter_n = row->part->param_n};
        return TG_OK;
    }
    if (index - tg_part_n < tg_preset_n) {
        const tg_preset *preset = &tg_presets[index - tg_part_n];
        *out = (tg_part_info){.name = preset->name,
                              .stage = "preset",
                              .summary = preset->summary,
                              .expansion = preset->expansion,
                              .parameter_n = preset->standard == NULL ? 0 : 1};
        return TG_OK;
    }
    return tg_fail(TG_E_ARGUMENT, why, "there are only %zu parts and presets", tg_part_n + tg_preset_n);
}

tg_status tg_part_parameter(tg_parameter_info *out, size_t index, size_t parameter, tg_detail *why)
{
    tg_part_info info;
    TG_NEED(out, why);
    TG_TRY(tg_part_list(&info, index, why));
    if (parameter >= info.parameter_n) {
        return tg_fail(TG_E_ARGUMENT, why, "'%s' has only %zu parameters", info.name, info.parameter_n);
    }
    if (index >= tg_part_n) {
        *out = (tg_parameter_info){.name = "value", .summary = "what '$' stands for", .is_main = 1};
        (void)snprintf(out->standard, sizeof out->standard, "%s", tg_presets[index - tg_part_n].standard);
        (void)snprintf(out->range, sizeof out->range, "as in the expansion");
        return TG_OK;
    }
    const tg_param *param = &tg_parts[index].part->params[parameter];
    *out = (tg_parameter_info){.name = param->name, .summary = param->summary, .is_main = param->is_main};
    describe_range(out->range, sizeof out->range, param);
    if (!param->required) {
        tg_param_write(out->standard, sizeof out->standard, param, param->standard);
    }
    return TG_OK;
}
