/* `tersegrad completion`: what bash and zsh need to complete the program's words, from the tables of commands and flags. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "fail.h"
#include "flags.h"
#include "help.h"
#include "run.h"

/* ---- words that a value may be -------------------------------------------------------------------------------------- */

typedef enum value_kind { VALUE_WORDS, VALUE_FILE, VALUE_FREE } value_kind;

static value_kind kind_of(cli_flag flag)
{
    const cli_flag_row *row = &cli_flags[flag];
    if (row->type == CLI_CHOICE || row->type == CLI_NAME || row->type == CLI_DATA || row->type == CLI_LINK ||
        flag == CLI_FLAG_RECIPE || flag == CLI_FLAG_RECIPES) {
        return VALUE_WORDS;
    }
    return row->type == CLI_TEXT ? VALUE_FILE : VALUE_FREE;
}

/* Prints the words, with spaces between them. */
static void put_words(cli_flag flag)
{
    const cli_flag_row *row = &cli_flags[flag];
    if (row->type == CLI_DATA) {
        for (size_t i = 0; tr_data_form(i) != NULL; i++) {
            const char *form = tr_data_form(i);
            size_t len = strcspn(form, ":[");
            printf("%s%.*s%s", i > 0 ? " " : "", (int)len, form, form[len] == ':' ? ":" : "");
        }
        return;
    }
    if (flag == CLI_FLAG_RECIPE || flag == CLI_FLAG_RECIPES) {
        tg_part_info part;
        for (size_t i = 0; tg_part_list(&part, i, NULL) == TG_OK; i++) {
            printf("%s%s", i > 0 ? " " : "", part.name);
        }
        return;
    }
    for (size_t i = 0; row->choices[i] != NULL; i++) {
        printf("%s%s", i > 0 ? " " : "", row->choices[i]);
    }
}

static void put_names(const char *command)
{
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        printf("%s ", cli_commands[i]->name);
    }
    if (strcmp(command, "help") == 0) {
        for (const cli_topic *t = cli_topics; t->name != NULL; t++) {
            printf("%s ", t->name);
        }
    }
}

/* ---- bash ------------------------------------------------------------------------------------------------------------- */

static void bash_values(void)
{
    for (int flag = 0; flag < CLI_FLAG_N_OF; flag++) {
        const cli_flag_row *row = &cli_flags[flag];
        if (row->value == NULL) {
            continue;
        }
        printf("    --%s) ", row->name);
        switch (kind_of((cli_flag)flag)) {
        case VALUE_WORDS:
            fputs("words=\"", stdout);
            put_words((cli_flag)flag);
            fputs("\" ;;\n", stdout);
            break;
        case VALUE_FILE: puts("files=1 ;;"); break;
        case VALUE_FREE: puts("return ;;"); break;
        }
    }
}

static void bash_flags(void)
{
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        const cli_command *command = cli_commands[i];
        printf("        %s) words=\"", command->name);
        for (size_t f = 0; f < command->flag_n; f++) {
            printf("--%s ", cli_flags[command->flags[f].flag].name);
        }
        puts("--help\" ;;");
    }
}

static void bash(void)
{
    puts("# Completion of tersegrad for bash; made by 'tersegrad completion bash'.\n"
         "_tersegrad() {\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words= files=\n"
         "    COMPREPLY=()\n"
         "    if [ \"$COMP_CWORD\" -eq 1 ]; then");
    fputs("        words=\"", stdout);
    put_names("");
    puts("--help --version\"\n"
         "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "        return\n"
         "    fi\n"
         "    case $prev in");
    bash_values();
    puts("    esac\n"
         "    if [ -z \"$words$files\" ]; then\n"
         "        if [[ $cur == -* ]]; then\n"
         "        case ${COMP_WORDS[1]} in");
    bash_flags();
    puts("        esac\n"
         "        else\n"
         "        case ${COMP_WORDS[1]} in");
    fputs("        help) words=\"", stdout);
    put_names("help");
    puts("man-page\" ;;\n"
         "        completion) words=\"bash zsh\" ;;\n"
         "        *) files=1 ;;\n"
         "        esac\n"
         "        fi\n"
         "    fi\n"
         "    if [ -n \"$files\" ]; then\n"
         "        compopt -o filenames 2>/dev/null\n"
         "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
         "    else\n"
         "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "    fi\n"
         "}\n"
         "complete -F _tersegrad tersegrad");
}

/* ---- zsh -------------------------------------------------------------------------------------------------------------- */

/* The first line of a text inside '...', where ':', '[' and ']' mean something. */
static void zsh_text(const char *text)
{
    for (const char *at = text; *at != '\0' && *at != '\n'; at++) {
        if (*at == '\'') {
            fputs("'\\''", stdout);
        } else if (strchr(":[]\\", *at) != NULL) {
            printf("\\%c", *at);
        } else {
            putchar(*at);
        }
    }
}

static void zsh_flag(const cli_flag_use *use)
{
    const cli_flag_row *row = &cli_flags[use->flag];
    printf("                '%s--%s%s[", row->repeats ? "*" : "", row->name, row->value != NULL ? "=" : "");
    zsh_text(row->help);
    fputs("]", stdout);
    if (row->value != NULL) {
        fputs(":", stdout);
        zsh_text(row->value);
        switch (kind_of(use->flag)) {
        case VALUE_WORDS:
            fputs(":(", stdout);
            put_words(use->flag);
            fputs(")", stdout);
            break;
        case VALUE_FILE: fputs(":_files", stdout); break;
        case VALUE_FREE: fputs(":", stdout); break;
        }
    }
    puts("' \\");
}

static void zsh_command(const cli_command *command)
{
    printf("        %s)\n            _arguments \\\n", command->name);
    for (size_t i = 0; i < command->flag_n; i++) {
        zsh_flag(&command->flags[i]);
    }
    fputs("                '--help[print the flags]' \\\n", stdout);
    if (strcmp(command->name, "help") == 0) {
        fputs("                '*:topic:(", stdout);
        put_names("help");
        puts("man-page)' ;;");
    } else if (strcmp(command->name, "completion") == 0) {
        puts("                '1:shell:(bash zsh)' ;;");
    } else {
        puts("                '*:file:_files' ;;");
    }
}

static void zsh(void)
{
    puts("#compdef tersegrad\n"
         "# Completion of tersegrad for zsh; made by 'tersegrad completion zsh'.\n"
         "_tersegrad() {\n"
         "    local -a commands=(");
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        printf("        '%s:", cli_commands[i]->name);
        zsh_text(cli_commands[i]->summary);
        puts("'");
    }
    puts("    )\n"
         "    if (( CURRENT == 2 )); then\n"
         "        _describe command commands\n"
         "        return\n"
         "    fi\n"
         "    local command=$words[2]\n"
         "    shift words\n"
         "    (( CURRENT-- ))\n"
         "    case $command in");
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        zsh_command(cli_commands[i]);
    }
    puts("    esac\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _tersegrad ]; then\n"
         "    _tersegrad \"$@\"\n"
         "else\n"
         "    compdef _tersegrad tersegrad\n"
         "fi");
}

static int run(const cli_args *args)
{
    const char *shell = args->files.items[0];
    if (strcmp(shell, "bash") != 0 && strcmp(shell, "zsh") != 0) {
        return cli_fail(CLI_MISUSE, "completion is there for bash and zsh, not for '%s'", shell);
    }
    (shell[0] == 'b' ? bash : zsh)();
    return CLI_OK;
}

const cli_command cli_completion = {
    .name = "completion",
    .summary = "completion of this program's words for bash or zsh",
    .usage = "bash|zsh",
    .about = "Prints a script that completes commands, flags and their values. 'cmake --install' and the Debian\n"
             "package install it for bash and zsh.",
    .examples = "source <(tersegrad completion bash)\n"
                "source <(tersegrad completion zsh)\n",
    .file_min = 1,
    .file_max = 1,
    .run = run,
};
