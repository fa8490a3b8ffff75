/* `tersegrad recipes`: the parts and presets that the library has, with their parameters; or what one recipe
 * means. Everything is asked of the library, so a new part shows up here by itself.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "fail.h"
#include "json.h"
#include "table.h"

static int is_preset(const tg_part_info *part)
{
    return strcmp(part->stage, "preset") == 0;
}

/* One parameter as a row: '@' stands before the one that a bare value sets. */
static void add_parameter(cli_table *table, const tg_parameter_info *parameter)
{
    char name[64];
    snprintf(name, sizeof name, parameter->is_main ? "    @%s" : "    %s=", parameter->name);
    cli_table_row(table, name, parameter->range, parameter->standard[0] != '\0' ? parameter->standard : "(required)",
                  parameter->summary);
}

static int add_part(cli_table *table, size_t index, const tg_part_info *part)
{
    char name[64];
    snprintf(name, sizeof name, "  %s", part->name);
    cli_table_row(table, name, part->expansion != NULL ? part->expansion : "", "", part->summary);
    for (int is_main = 1; is_main >= 0; is_main--) { /* the main parameter first */
        for (size_t p = 0; p < part->parameter_n; p++) {
            tg_parameter_info parameter;
            tg_detail why;
            tg_status status = tg_part_parameter(&parameter, index, p, &why);
            if (status != TG_OK) {
                return cli_fail_status(NULL, status, &why);
            }
            if (!parameter.is_main == !is_main) {
                add_parameter(table, &parameter);
            }
        }
    }
    return CLI_OK;
}

static void add_title(cli_table *table, const tg_part_info *part, int is_first)
{
    if (!is_first) {
        cli_table_row(table, "", "", "", "");
    }
    if (is_preset(part)) {
        cli_table_row(table, "PRESETS", "STANDS FOR", "DEFAULT", "");
        return;
    }
    char title[64];
    snprintf(title, sizeof title, "%s", part->stage);
    for (char *at = title; *at != '\0'; at++) {
        *at = (char)toupper((unsigned char)*at);
    }
    cli_table_row(table, title, "RANGE", "DEFAULT", "");
}

static int print_parts(void)
{
    cli_table table;
    cli_table_init(&table, "llll");
    const char *stage = "";
    int code = CLI_OK;
    tg_part_info part;
    for (size_t i = 0; code == CLI_OK && tg_part_list(&part, i, NULL) == TG_OK; i++) {
        if (strcmp(stage, part.stage) != 0) {
            add_title(&table, &part, i == 0);
            stage = part.stage;
        }
        code = add_part(&table, i, &part);
    }
    if (code == CLI_OK) {
        puts("A recipe is parts joined by '+', at most one of each stage, such as ef+topk@0.01+fp16.\n"
             "A part is NAME, NAME@VALUE (which sets the parameter shown with '@'), NAME@KEY=VALUE,KEY=VALUE\n"
             "or NAME@VALUE,KEY=VALUE. A stage that is left out does nothing: no feedback, every\n"
             "element, fp32, the plain packs.\n");
        code = cli_table_print(&table, stdout, 0);
    }
    cli_table_free(&table);
    return code;
}

static int json_part(cli_json *json, size_t index, const tg_part_info *part)
{
    cli_json_object(json, NULL);
    cli_json_text(json, "name", part->name);
    cli_json_text(json, "stage", part->stage);
    cli_json_text(json, "summary", part->summary);
    if (is_preset(part)) {
        cli_json_text(json, "expansion", part->expansion);
    } else {
        cli_json_count(json, "id", part->id);
    }
    cli_json_array(json, "parameters");
    for (size_t p = 0; p < part->parameter_n; p++) {
        tg_parameter_info parameter;
        tg_detail why;
        tg_status status = tg_part_parameter(&parameter, index, p, &why);
        if (status != TG_OK) {
            return cli_fail_status(NULL, status, &why);
        }
        cli_json_object(json, NULL);
        cli_json_text(json, "name", parameter.name);
        cli_json_text(json, "summary", parameter.summary);
        cli_json_text(json, "range", parameter.range);
        cli_json_text(json, "default", parameter.standard[0] != '\0' ? parameter.standard : NULL);
        cli_json_bool(json, "main", parameter.is_main);
        cli_json_end(json);
    }
    cli_json_end(json);
    cli_json_end(json);
    return CLI_OK;
}

static int json_parts(void)
{
    cli_json json;
    int code = CLI_OK;
    cli_json_begin(&json, stdout);
    for (int presets = 0; presets <= 1; presets++) {
        tg_part_info part;
        cli_json_array(&json, presets ? "presets" : "parts");
        for (size_t i = 0; code == CLI_OK && tg_part_list(&part, i, NULL) == TG_OK; i++) {
            if (is_preset(&part) == presets) {
                code = json_part(&json, i, &part);
            }
        }
        cli_json_end(&json);
    }
    cli_json_finish(&json);
    return code;
}

/* A row for each parameter, and one for each part that has none. */
static int csv_parts(void)
{
    cli_json json;
    tg_part_info part;
    int code = CLI_OK;
    cli_json_begin_as(&json, stdout, 1, "rows");
    cli_json_array(&json, "rows");
    for (size_t i = 0; code == CLI_OK && tg_part_list(&part, i, NULL) == TG_OK; i++) {
        for (size_t p = 0; p < part.parameter_n || p == 0; p++) {
            tg_parameter_info parameter;
            tg_detail why;
            tg_status status = p < part.parameter_n ? tg_part_parameter(&parameter, i, p, &why) : TG_OK;
            if (status != TG_OK) {
                code = cli_fail_status(NULL, status, &why);
                break;
            }
            cli_json_object(&json, NULL);
            cli_json_text(&json, "stage", part.stage);
            cli_json_text(&json, "name", part.name);
            cli_json_text(&json, "summary", part.summary);
            cli_json_text(&json, "expansion", part.expansion);
            if (p < part.parameter_n) {
                cli_json_text(&json, "parameter", parameter.name);
                cli_json_bool(&json, "main", parameter.is_main);
                cli_json_text(&json, "range", parameter.range);
                cli_json_text(&json, "default", parameter.standard[0] != '\0' ? parameter.standard : NULL);
                cli_json_text(&json, "parameter_summary", parameter.summary);
            }
            cli_json_end(&json);
        }
    }
    int finished = cli_json_finish(&json);
    return code != CLI_OK ? code : finished;
}

static int explain(const cli_args *args)
{
    const char *recipe = args->files.items[0];
    char canonical[TG_RECIPE_CAP];
    tg_detail why;
    tg_status status = tg_recipe_canonical(canonical, recipe, &why);
    if (status != TG_OK) {
        return cli_fail_status(NULL, status, &why);
    }
    if (!args->json && !args->csv) {
        puts(canonical);
        return CLI_OK;
    }
    cli_json json;
    cli_json_begin_as(&json, stdout, args->csv, NULL);
    cli_json_text(&json, "recipe", recipe);
    cli_json_text(&json, "canonical", canonical);
    return cli_json_finish(&json);
}

static int run(const cli_args *args)
{
    if (args->files.n > 0) {
        return explain(args);
    }
    return args->json ? json_parts() : args->csv ? csv_parts() : print_parts();
}

static const cli_flag_use flags[] = {{CLI_FLAG_JSON, NULL}, {CLI_FLAG_CSV, NULL}};

const cli_command cli_recipes = {
    .name = "recipes",
    .summary = "list parts and presets, or say what a recipe means",
    .usage = "[--json | --csv] [RECIPE]",
    .about = "Lists the parts that a recipe can be made of, stage by stage, and the presets, with their\n"
             "parameters, ranges and defaults. With a RECIPE: checks it and prints its canonical text.",
    .examples = "tersegrad recipes\n"
                "tersegrad recipes ef+topk@ratio=0.010\n"
                "tersegrad recipes --json\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 0,
    .file_max = 1,
    .run = run,
};
