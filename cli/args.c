/* A strict reader of command lines; see args.h. A value that is not exactly what a flag
 * takes is misuse, and so is a flag given twice unless it may be: a typo must not pass for a default.
 */
#include "args.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "flags.h"

/* ---- values ---------------------------------------------------------------------------------------- */

static int append(cli_texts *list, const char *text, size_t len)
{
    char **items = realloc(list->items, (list->n + 1) * sizeof *items);
    if (items == NULL) {
        return cli_fail_memory();
    }
    list->items = items;
    list->items[list->n] = strndup(text, len);
    if (list->items[list->n] == NULL) {
        return cli_fail_memory();
    }
    list->n++;
    return CLI_OK;
}

static int read_count(uint64_t *out, const cli_flag_row *row, const char *text)
{
    uint64_t value = 0;
    int sound = text[0] != '\0';
    for (const char *at = text; *at != '\0' && sound; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        sound = *at >= '0' && *at <= '9' && value <= (UINT64_MAX - digit) / 10;
        value = value * 10 + digit;
    }
    if (!sound || (double)value < row->min || (double)value > row->max) {
        uint64_t max = row->max < 0x1p64 ? (uint64_t)row->max : UINT64_MAX;
        return cli_fail(CLI_MISUSE, "--%s takes a whole number from %.0f to %" PRIu64 ", not '%s'", row->name, row->min,
                        max, text);
    }
    *out = value;
    return CLI_OK;
}

static int read_real(double *out, const cli_flag_row *row, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    int inside = value <= row->max && (row->min_allowed ? value >= row->min : value > row->min);
    if (end == text || *end != '\0' || !isfinite(value) || !inside) {
        return cli_fail(CLI_MISUSE, "--%s takes a number %s %g and up to %g, not '%s'", row->name,
                        row->min_allowed ? "from" : "above", row->min, row->max, text);
    }
    *out = value;
    return CLI_OK;
}

/* The place of a word in a list; -1 if it is not there. */
static int find_choice(const char *const *choices, const char *text)
{
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], text) == 0) {
            return i;
        }
    }
    return -1;
}

static int read_choice(int *out, const cli_flag_row *row, const char *text)
{
    int found = find_choice(row->choices, text);
    if (found < 0) {
        char list[128] = "";
        for (size_t i = 0; row->choices[i] != NULL; i++) {
            size_t len = strlen(list);
            const char *between = i == 0 ? "" : row->choices[i + 1] != NULL ? ", " : " or ";
            snprintf(list + len, sizeof list - len, "%s%s", between, row->choices[i]);
        }
        return cli_fail(CLI_MISUSE, "--%s takes %s, not '%s'", row->name, list, text);
    }
    *out = found;
    return CLI_OK;
}

static int read_lists(cli_texts *out, const cli_flag_row *row, const char *text)
{
    for (;;) {
        size_t len = strcspn(text, ";");
        if (len == 0) {
            return cli_fail(CLI_MISUSE, "--%s takes recipes with ';' between them, none empty", row->name);
        }
        int code = append(out, text, len);
        if (code != CLI_OK || text[len] == '\0') {
            return code;
        }
        text += len + 1;
    }
}

/* Recipes hold '=' too, so the first one counts; '?' in the pattern stands for one in a name. */
static int read_pair(cli_texts *out, const cli_flag_row *row, const char *text)
{
    size_t len = strcspn(text, "=");
    const char *value = text[len] == '\0' ? "" : text + len + 1;
    if (len == 0 || value[0] == '\0') {
        return cli_fail(CLI_MISUSE, "--%s takes %s, not '%s'", row->name, row->value, text);
    }
    if (row->choices != NULL && find_choice(row->choices, value) < 0) {
        return cli_fail(CLI_MISUSE,
                        "--%s takes PATTERN=KIND with a kind of conv, dense, recurrent, embedding, norm, bias or "
                        "other, not '%s'",
                        row->name, text);
    }
    int code = append(out, text, len);
    return code != CLI_OK ? code : append(out, value, strlen(value));
}

/* Stores the value of a flag, or reports why it cannot. */
static int set(cli_args *a, const cli_flag_row *row, const char *text)
{
    void *to = (char *)a + row->at;
    uint64_t count = 0;
    switch (row->type) {
    case CLI_SWITCH: *(int *)to = 1; return CLI_OK;
    case CLI_TEXT: *(const char **)to = text; return CLI_OK;
    case CLI_COUNT: return read_count(to, row, text);
    case CLI_REAL: return read_real(to, row, text);
    case CLI_CHOICE: return read_choice(to, row, text);
    case CLI_LIST: return append(to, text, strlen(text));
    case CLI_LISTS: return read_lists(to, row, text);
    case CLI_PAIRS: return read_pair(to, row, text);
    case CLI_COUNT32: break;
    }
    int code = read_count(&count, row, text);
    *(uint32_t *)to = code == CLI_OK ? (uint32_t)count : *(uint32_t *)to;
    return code;
}

/* ---- the command line ------------------------------------------------------------------------------ */

/* Finds the flag "--NAME" or "--NAME=VALUE" among those of the command; CLI_FLAG_N_OF if it has none such. */
static cli_flag find_flag(const cli_command *command, const char *word)
{
    size_t len = strcspn(word + 2, "=");
    for (size_t i = 0; i < command->flag_n; i++) {
        const char *name = cli_flags[command->flags[i].flag].name;
        if (strlen(name) == len && strncmp(word + 2, name, len) == 0) {
            return command->flags[i].flag;
        }
    }
    return CLI_FLAG_N_OF;
}

/* Reads the flag at argv[*at] and leaves *at on the last word that it took. */
static int read_flag(cli_args *a, const cli_command *command, int argc, char *const *argv, int *at)
{
    const char *word = argv[*at];
    cli_flag flag = strncmp(word, "--", 2) == 0 ? find_flag(command, word) : CLI_FLAG_N_OF;
    if (flag == CLI_FLAG_N_OF) {
        return cli_fail(CLI_MISUSE, "%s has no flag %.*s; see 'tersegrad %s --help'", command->name,
                        (int)strcspn(word, "="), word, command->name);
    }
    const cli_flag_row *row = &cli_flags[flag];
    if (cli_args_has(a, flag) && !row->repeats) {
        /* A demo may run several recipes, so there --recipe repeats; it is the command that tells. */
        int several = flag == CLI_FLAG_RECIPE && find_flag(command, "--recipes") != CLI_FLAG_N_OF;
        if (!several) {
            return cli_fail(CLI_MISUSE, "--%s is given twice", row->name);
        }
    }
    a->given |= UINT64_C(1) << flag;
    a->has_seed |= flag == CLI_FLAG_SEED;
    const char *equals = strchr(word, '=');
    if (row->value == NULL) {
        if (equals != NULL) {
            return cli_fail(CLI_MISUSE, "--%s takes no value", row->name);
        }
        return set(a, row, NULL);
    }
    if (equals != NULL) {
        return set(a, row, equals + 1);
    }
    if (*at + 1 >= argc) {
        return cli_fail(CLI_MISUSE, "--%s needs a value (%s)", row->name, row->value);
    }
    (*at)++;
    return set(a, row, argv[*at]);
}

static int set_standards(cli_args *a, const cli_command *command)
{
    int code = CLI_OK;
    for (size_t i = 0; i < command->flag_n && code == CLI_OK; i++) {
        const cli_flag_use *use = &command->flags[i];
        if (use->standard == NULL || cli_args_has(a, use->flag)) {
            continue;
        }
        code = set(a, &cli_flags[use->flag], use->standard);
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
            code = append(&out->files, word, strlen(word));
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
    int code = set_standards(out, command);
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
            return (tg_kind)find_choice(cli_flags[CLI_FLAG_KIND].choices, a->kinds.items[i + 1]);
        }
    }
    return standard;
}

/* ---- help ------------------------------------------------------------------------------------------ */

static void help_flag(FILE *out, const cli_flag_use *use)
{
    enum { COLUMN = 28 };
    const cli_flag_row *row = &cli_flags[use->flag];
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", row->name, row->value != NULL ? " " : "",
             row->value != NULL ? row->value : "");
    fprintf(out, "  %-*s", COLUMN, left);
    for (const char *line = row->help;;) {
        size_t len = strcspn(line, "\n");
        fwrite(line, 1, len, out);
        if (line[len] == '\0') {
            break;
        }
        fprintf(out, "\n  %-*s", COLUMN, "");
        line += len + 1;
    }
    if (use->standard != NULL) {
        fprintf(out, " [default: %s]", use->standard);
    }
    fputc('\n', out);
}

void cli_args_help(FILE *out, const cli_command *command)
{
    fprintf(out, "Usage: tersegrad %s %s\n\n%s\n\nFlags:\n", command->name, command->usage, command->about);
    for (size_t i = 0; i < command->flag_n; i++) {
        help_flag(out, &command->flags[i]);
    }
    fprintf(out, "  %-28s%s\n\nExamples:\n", "--help", "print this");
    for (const char *line = command->examples; *line != '\0';) {
        size_t len = strcspn(line, "\n") + 1;
        fputs("  ", out);
        fwrite(line, 1, len, out);
        line += len;
    }
}
