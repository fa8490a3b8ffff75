/* A strict reader of command lines; see args.h. A flag given twice is misuse unless it may be: a typo must not pass for a
 * default.
 */
#include "args.h"

#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "fail.h"
#include "flags.h"
#include "suggest.h"
#include "values.h"

/* ---- the command line ------------------------------------------------------------------------------ */

cli_flag cli_command_flag(const cli_command *command, const char *name, size_t len)
{
    for (size_t i = 0; i < command->flag_n; i++) {
        const char *known = cli_flags[command->flags[i].flag].name;
        if (strlen(known) == len && memcmp(name, known, len) == 0) {
            return command->flags[i].flag;
        }
    }
    return CLI_FLAG_N_OF;
}

int cli_args_unknown(const cli_command *command, const char *word, size_t len)
{
    size_t dashes = strspn(word, "-");
    cli_suggest s = {.word = word + dashes, .len = len - dashes};
    for (size_t i = 0; i < command->flag_n; i++) {
        const char *known = cli_flags[command->flags[i].flag].name;
        cli_suggest_offer(&s, known, strlen(known));
    }
    char hint[CLI_SUGGEST_CAP] = "";
    if (s.best != NULL) {
        snprintf(hint, sizeof hint, "; did you mean --%s?", s.best);
    } else {
        snprintf(hint, sizeof hint, "; see 'tersegrad %s --help'", command->name);
    }
    return cli_fail(CLI_MISUSE, "%s has no flag %.*s%s", command->name, (int)len, word, hint);
}

/* Whether a flag may be given again. A comparison runs several recipes, so there --recipe repeats; it is the command that
 * tells. */
static int repeats(const cli_command *command, cli_flag flag)
{
    return cli_flags[flag].repeats ||
           (flag == CLI_FLAG_RECIPE && cli_command_flag(command, "recipes", strlen("recipes")) != CLI_FLAG_N_OF);
}

int cli_args_set(cli_args *a, const cli_command *command, cli_flag flag, const char *value)
{
    const cli_flag_row *row = &cli_flags[flag];
    if (cli_args_has(a, flag) && !repeats(command, flag)) {
        return cli_fail(CLI_MISUSE, "--%s is given twice", row->name);
    }
    if (row->value == NULL && value != NULL) {
        return cli_fail(CLI_MISUSE, "--%s takes no value", row->name);
    }
    if (row->value != NULL && value == NULL) {
        return cli_fail(CLI_MISUSE, "--%s needs a value (%s)", row->name, row->value);
    }
    a->given.flags[flag] = true;
    a->has_seed |= flag == CLI_FLAG_SEED;
    return cli_value_set(a, row, value);
}

/* Reads the flag at argv[*at] and leaves *at on the last word that it took. */
static int read_flag(cli_args *a, const cli_command *command, int argc, char *const *argv, int *at)
{
    const char *word = argv[*at], *name = word + 2, *equals = strchr(word, '=');
    size_t len = strcspn(word, "=");
    cli_flag flag = strncmp(word, "--", 2) == 0 ? cli_command_flag(command, name, len - 2) : CLI_FLAG_N_OF;
    if (flag == CLI_FLAG_N_OF) {
        return cli_args_unknown(command, word, len);
    }
    const char *value = equals != NULL ? equals + 1 : NULL;
    if (equals == NULL && cli_flags[flag].value != NULL && *at + 1 < argc) {
        (*at)++;
        value = argv[*at];
    }
    return cli_args_set(a, command, flag, value);
}

static int set_standards(cli_args *a, const cli_command *command)
{
    int code = CLI_OK;
    for (size_t i = 0; i < command->flag_n && code == CLI_OK; i++) {
        const cli_flag_use *use = &command->flags[i];
        if (use->standard == NULL || cli_args_has(a, use->flag)) {
            continue;
        }
        code = cli_value_set(a, &cli_flags[use->flag], use->standard);
        a->has_seed |= use->flag == CLI_FLAG_SEED;
    }
    return code;
}

static int build_rules(cli_args *a)
{
    size_t rule_n = a->rules.n / 2;
    if (rule_n == 0) {
        return CLI_OK;
    }
    a->rule_list = calloc(rule_n, sizeof *a->rule_list);
    if (a->rule_list == NULL) {
        return cli_fail_memory();
    }
    for (size_t i = 0; i < rule_n; i++) {
        a->rule_list[i] = (tg_rule){a->rules.items[2 * i], a->rules.items[2 * i + 1]};
    }
    return CLI_OK;
}

int cli_args_parse(cli_args *out, const cli_command *command, int argc, char *const *argv)
{
    *out = (cli_args){0};
    int only_files = 0;
    for (int at = 0; at < argc; at++) {
        const char *word = argv[at];
        int code = CLI_OK;
        if (only_files || word[0] != '-' || word[1] == '\0') {
            code = cli_texts_append(&out->files, word, strlen(word));
        } else if (strcmp(word, "--") == 0) {
            only_files = 1;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            out->help = 1;
            return CLI_OK;
        } else {
            code = read_flag(out, command, argc, argv, &at);
        }
        if (code != CLI_OK) {
            return code;
        }
    }
    if (out->files.n < command->file_min || out->files.n > command->file_max) {
        return cli_fail(CLI_MISUSE, "usage: tersegrad %s %s; see 'tersegrad %s --help'", command->name, command->usage,
                        command->name);
    }
    int code = out->config != NULL ? cli_config_read(out, command) : CLI_OK;
    code = code != CLI_OK ? code : set_standards(out, command);
    if (code == CLI_OK && out->json && out->csv) {
        code = cli_fail(CLI_MISUSE, "--json and --csv both say how to print; give one");
    }
    return code != CLI_OK ? code : build_rules(out);
}

static void free_texts(cli_texts *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->items[i]);
    }
    free(list->items);
}

void cli_args_free(cli_args *a)
{
    free_texts(&a->files);
    free_texts(&a->recipes);
    free_texts(&a->rules);
    free_texts(&a->kinds);
    free(a->rule_list);
    free(a->config_text);
    *a = (cli_args){0};
}

/* ---- for the commands ------------------------------------------------------------------------------ */

tg_options cli_args_options(const cli_args *a)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.rules = a->rule_list;
    opt.rule_n = a->rules.n / 2;
    opt.seed = a->seed;
    opt.has_seed = (uint32_t)a->has_seed;
    opt.dense_below = a->dense_below;
    opt.threads = a->threads;
    opt.nonfinite = (tg_nonfinite)a->nonfinite;
    opt.rank = a->rank;
    return opt;
}

tg_kind cli_args_kind(const cli_args *a, const char *name, tg_kind standard)
{
    for (size_t i = 0; i + 1 < a->kinds.n; i += 2) {
        if (tg_name_matches(a->kinds.items[i], name)) {
            return (tg_kind)cli_choice_find(cli_flags[CLI_FLAG_KIND].choices, a->kinds.items[i + 1]);
        }
    }
    return standard;
}
