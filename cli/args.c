/* Flags: one table, and a strict reader of command lines; see args.h. A value that is not exactly what a flag
 * takes is misuse, and so is a flag given twice unless it may be: a typo must not pass for a default.
 */
#include "args.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

/* A flag, for the whole program. `set` stores a value or reports why it cannot. */
typedef struct flag_row {
    const char *name;
    const char *value; /* what stands for the value in help; NULL: the flag takes none */
    int repeats;
    int (*set)(cli_args *a, const char *name, const char *text);
    const char *help;
} flag_row;

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

static int read_count(uint64_t *out, const char *name, const char *text, uint64_t min, uint64_t max)
{
    uint64_t value = 0;
    int sound = text[0] != '\0';
    for (const char *at = text; *at != '\0' && sound; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        sound = *at >= '0' && *at <= '9' && value <= (UINT64_MAX - digit) / 10;
        value = value * 10 + digit;
    }
    if (!sound || value < min || value > max) {
        return cli_fail(CLI_MISUSE, "--%s takes a whole number from %" PRIu64 " to %" PRIu64 ", not '%s'", name, min,
                        max, text);
    }
    *out = value;
    return CLI_OK;
}

static int read_count32(uint32_t *out, const char *name, const char *text, uint32_t min, uint32_t max)
{
    uint64_t value = 0;
    int code = read_count(&value, name, text, min, max);
    if (code == CLI_OK) {
        *out = (uint32_t)value;
    }
    return code;
}

static int set_recipe(cli_args *a, const char *name, const char *text)
{
    (void)name;
    return append(&a->recipes, text, strlen(text));
}

static int set_recipes(cli_args *a, const char *name, const char *text)
{
    for (;;) {
        size_t len = strcspn(text, ";");
        if (len == 0) {
            return cli_fail(CLI_MISUSE, "--%s takes recipes with ';' between them, none empty", name);
        }
        int code = append(&a->recipes, text, len);
        if (code != CLI_OK || text[len] == '\0') {
            return code;
        }
        text += len + 1;
    }
}

/* Recipes hold '=' too, so the first one counts; '?' in the pattern stands for one in a name. */
static int append_pair(cli_texts *list, const char *text, size_t pattern_len)
{
    int code = append(list, text, pattern_len);
    const char *value = text + pattern_len + 1;
    return code != CLI_OK ? code : append(list, value, strlen(value));
}

static int set_rule(cli_args *a, const char *name, const char *text)
{
    size_t len = strcspn(text, "=");
    if (len == 0 || text[len] == '\0' || text[len + 1] == '\0') {
        return cli_fail(CLI_MISUSE, "--%s takes PATTERN=RECIPE, not '%s'", name, text);
    }
    return append_pair(&a->rules, text, len);
}

/* The kind of that name; 0 if there is none such. */
static int find_kind(tg_kind *out, const char *name)
{
    for (int kind = TG_OTHER; tg_kind_name((tg_kind)kind) != NULL; kind++) {
        if (strcmp(tg_kind_name((tg_kind)kind), name) != 0) {
            continue;
        }
        *out = (tg_kind)kind;
        return 1;
    }
    return 0;
}

static int set_kind(cli_args *a, const char *name, const char *text)
{
    size_t len = strcspn(text, "=");
    tg_kind kind;
    if (len == 0 || text[len] == '\0' || !find_kind(&kind, text + len + 1)) {
        return cli_fail(CLI_MISUSE,
                        "--%s takes PATTERN=KIND with a kind of conv, dense, recurrent, embedding, norm, bias or "
                        "other, not '%s'",
                        name, text);
    }
    return append_pair(&a->kinds, text, len);
}

static int set_nonfinite(cli_args *a, const char *name, const char *text)
{
    static const char *const names[] = {"error", "zero", "pass"};
    static const tg_nonfinite values[] = {TG_NONFINITE_ERROR, TG_NONFINITE_ZERO, TG_NONFINITE_PASS};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) != 0) {
            continue;
        }
        a->nonfinite = values[i];
        return CLI_OK;
    }
    return cli_fail(CLI_MISUSE, "--%s takes error, zero or pass, not '%s'", name, text);
}

static int set_dtype(cli_args *a, const char *name, const char *text)
{
    for (int dtype = TG_FP32; tg_dtype_name((tg_dtype)dtype) != NULL; dtype++) {
        if (strcmp(text, tg_dtype_name((tg_dtype)dtype)) != 0) {
            continue;
        }
        a->dtype = (tg_dtype)dtype;
        return CLI_OK;
    }
    return cli_fail(CLI_MISUSE, "--%s takes fp32, fp16 or bf16, not '%s'", name, text);
}

static int set_seconds(cli_args *a, const char *name, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value <= 0 || value > 3600) {
        return cli_fail(CLI_MISUSE, "--%s takes a number above 0 and up to 3600, not '%s'", name, text);
    }
    a->seconds = value;
    return CLI_OK;
}

static int set_input(cli_args *a, const char *name, const char *text)
{
    (void)name;
    a->input = text;
    return CLI_OK;
}

static int set_dense_below(cli_args *a, const char *name, const char *text)
{
    return read_count(&a->dense_below, name, text, 0, UINT64_MAX);
}

static int set_seed(cli_args *a, const char *name, const char *text)
{
    a->has_seed = 1;
    return read_count(&a->seed, name, text, 0, UINT64_MAX);
}

static int set_step(cli_args *a, const char *name, const char *text)
{
    return read_count(&a->step, name, text, 0, UINT64_MAX);
}

static int set_rank(cli_args *a, const char *name, const char *text)
{
    return read_count32(&a->rank, name, text, 0, UINT32_MAX - 1); /* rank + 1 must be a number as well */
}

static int set_n(cli_args *a, const char *name, const char *text)
{
    return read_count(&a->n, name, text, 1, UINT64_C(1) << 40);
}

static int set_threads(cli_args *a, const char *name, const char *text)
{
    return read_count32(&a->threads, name, text, 1, 256);
}

static int set_workers(cli_args *a, const char *name, const char *text)
{
    return read_count32(&a->workers, name, text, 1, CLI_WORKER_MAX);
}

static int set_steps(cli_args *a, const char *name, const char *text)
{
    return read_count(&a->steps, name, text, 1, 100000);
}

static int set_json(cli_args *a, const char *name, const char *text)
{
    (void)name;
    (void)text;
    a->json = 1;
    return CLI_OK;
}

static const flag_row rows[CLI_FLAG_N_OF] = {
    [CLI_FLAG_RECIPE] = {"recipe", "R", 0, set_recipe, "the recipe, such as ef+topk@0.01+fp16"},
    [CLI_FLAG_RECIPES] = {"recipes", "'A;B;C'", 0, set_recipes, "recipes with ';' between them"},
    [CLI_FLAG_RULE] = {"rule", "'PATTERN=RECIPE'", 1, set_rule,
                       "another recipe for tensors whose name matches ('*' any run, '?' any one character);\n"
                       "may be repeated, the first that matches counts"},
    [CLI_FLAG_KIND] = {"kind", "'PATTERN=KIND'", 1, set_kind,
                       "the kind of tensors whose name matches: conv, dense, recurrent, embedding, norm,\n"
                       "bias, other; norm and bias travel uncompressed; may be repeated"},
    [CLI_FLAG_DENSE_BELOW] = {"dense-below", "N", 0, set_dense_below, "tensors of fewer elements travel uncompressed"},
    [CLI_FLAG_NONFINITE] = {"nonfinite", "POLICY", 0, set_nonfinite,
                            "what to do with NaN and Inf: error (refuse), zero (take as 0), pass"},
    [CLI_FLAG_SEED] = {"seed", "N", 0, set_seed, "the seed that all workers share"},
    [CLI_FLAG_STEP] = {"step", "N", 0, set_step, "the training step"},
    [CLI_FLAG_RANK] = {"rank", "N", 0, set_rank, "the worker whose gradient this is"},
    [CLI_FLAG_N] = {"n", "N", 0, set_n, "elements of a synthetic gradient"},
    [CLI_FLAG_INPUT] = {"input", "FILE.npy", 0, set_input, "take this gradient instead of a synthetic one"},
    [CLI_FLAG_DTYPE] = {"dtype", "TYPE", 0, set_dtype, "of a synthetic gradient: fp32, fp16, bf16"},
    [CLI_FLAG_SECONDS] = {"seconds", "S", 0, set_seconds, "time to spend on each measurement"},
    [CLI_FLAG_THREADS] = {"threads", "T", 0, set_threads, "threads that share the work, 1 to 256"},
    [CLI_FLAG_WORKERS] = {"workers", "W", 0, set_workers, "workers, each a thread, 1 to 64"},
    [CLI_FLAG_STEPS] = {"steps", "N", 0, set_steps, "training steps"},
    [CLI_FLAG_JSON] = {"json", NULL, 0, set_json, "print one JSON object instead of text"},
};

/* ---- the command line ------------------------------------------------------------------------------ */

/* Finds the flag "--NAME" or "--NAME=VALUE" among those of the command; CLI_FLAG_N_OF if it has none such. */
static cli_flag find_flag(const cli_command *command, const char *word)
{
    size_t len = strcspn(word + 2, "=");
    for (size_t i = 0; i < command->flag_n; i++) {
        const char *name = rows[command->flags[i].flag].name;
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
    const flag_row *row = &rows[flag];
    if (cli_args_has(a, flag) && !row->repeats) {
        /* A demo may run several recipes, so there --recipe repeats; it is the command that tells. */
        int several = flag == CLI_FLAG_RECIPE && find_flag(command, "--recipes") != CLI_FLAG_N_OF;
        if (!several) {
            return cli_fail(CLI_MISUSE, "--%s is given twice", row->name);
        }
    }
    a->given |= UINT32_C(1) << flag;
    const char *equals = strchr(word, '=');
    if (row->value == NULL) {
        if (equals != NULL) {
            return cli_fail(CLI_MISUSE, "--%s takes no value", row->name);
        }
        return row->set(a, row->name, NULL);
    }
    if (equals != NULL) {
        return row->set(a, row->name, equals + 1);
    }
    if (*at + 1 >= argc) {
        return cli_fail(CLI_MISUSE, "--%s needs a value (%s)", row->name, row->value);
    }
    (*at)++;
    return row->set(a, row->name, argv[*at]);
}

static int set_standards(cli_args *a, const cli_command *command)
{
    int code = CLI_OK;
    for (size_t i = 0; i < command->flag_n && code == CLI_OK; i++) {
        const cli_flag_use *use = &command->flags[i];
        if (use->standard == NULL || cli_args_has(a, use->flag)) {
            continue;
        }
        code = rows[use->flag].set(a, rows[use->flag].name, use->standard);
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
    opt.nonfinite = a->nonfinite;
    opt.rank = a->rank;
    return opt;
}

tg_kind cli_args_kind(const cli_args *a, const char *name, tg_kind standard)
{
    tg_kind kind = standard;
    for (size_t i = 0; i + 1 < a->kinds.n; i += 2) {
        if (tg_name_matches(a->kinds.items[i], name) && find_kind(&kind, a->kinds.items[i + 1])) {
            break;
        }
    }
    return kind;
}

/* ---- help ------------------------------------------------------------------------------------------ */

static void help_flag(FILE *out, const cli_flag_use *use)
{
    enum { COLUMN = 28 };
    const flag_row *row = &rows[use->flag];
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
