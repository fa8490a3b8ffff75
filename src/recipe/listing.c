/* Lists all parts and presets with their parameters, for `tersegrad recipes` and other callers of the public interface. */
#include "base/number.h"
#include "recipe/parsing.h"
#include "recipe/presets.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

void tg_param_range(char *out, size_t cap, const tg_param *param)
{
    if (param->choices == NULL) {
        char lowest[TG_NUMBER_CAP], highest[TG_NUMBER_CAP];
        tg_number_write(lowest, param->lowest);
        tg_number_write(highest, param->highest);
        const char *end = param->highest == (double)FLT_MAX ? "inf)" : NULL; /* any finite magnitude */
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
        *out = (tg_parameter_info){.name = "value", .summary = "the value of '$' in the expansion", .is_main = 1};
        (void)snprintf(out->standard, sizeof out->standard, "%s", tg_presets[index - tg_part_n].standard);
        (void)snprintf(out->range, sizeof out->range, "as in the expansion");
        return TG_OK;
    }
    const tg_param *param = &tg_parts[index].part->params[parameter];
    *out = (tg_parameter_info){.name = param->name, .summary = param->summary, .is_main = param->is_main};
    tg_param_range(out->range, sizeof out->range, param);
    if (!param->required) {
        tg_param_write(out->standard, sizeof out->standard, param, param->standard);
    }
    return TG_OK;
}
