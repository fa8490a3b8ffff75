/* `tersegrad help`: the program's list of commands, a command's flags, or a topic; see help.h. */
#include "help.h"

#include <string.h>

#include "commands.h"
#include "fail.h"
#include "flags.h"
#include "suggest.h"

enum { COLUMN = 28 };

static void help_flag(FILE *out, const cli_flag_use *use)
{
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

void cli_help_command(FILE *out, const cli_command *command)
{
    fprintf(out, "Usage: tersegrad %s %s\n\n%s\n\nFlags:\n", command->name, command->usage, command->about);
    for (size_t i = 0; i < command->flag_n; i++) {
        help_flag(out, &command->flags[i]);
    }
    fprintf(out, "  %-*s%s\n\nExamples:\n", COLUMN, "--help", "print this");
    for (const char *line = command->examples; *line != '\0';) {
        size_t len = strcspn(line, "\n") + 1;
        fputs("  ", out);
        fwrite(line, 1, len, out);
        line += len;
    }
}

void cli_help_program(FILE *out)
{
    fputs("tersegrad: compresses the gradients that workers of data-parallel training exchange.\n"
          "\n"
          "Usage: tersegrad COMMAND [flags]\n"
          "\n"
          "Commands:\n",
          out);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        fprintf(out, "  %-13s%s\n", cli_commands[i]->name, cli_commands[i]->summary);
    }
    fputs("\nTopics ('tersegrad help TOPIC'):\n", out);
    for (const cli_topic *t = cli_topics; t->name != NULL; t++) {
        fprintf(out, "  %-13s%s\n", t->name, t->summary);
    }
    fputs("\n"
          "Each command takes --help, with examples. Those that print results take --json, to print one JSON object\n"
          "instead of text; those that print tables take --csv as well.\n"
          "The exit status is 0 for success, 1 for a failed run and 2 for misuse ('tersegrad help exit-codes').\n"
          "\n"
          "Start with:\n"
          "  tersegrad demo\n"
          "  tersegrad bench --recipe ef+topk@0.01+fp16\n",
          out);
}

static int fail_topic(const char *name)
{
    cli_suggest s = {.word = name, .len = strlen(name)};
    char hint[CLI_SUGGEST_CAP];
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        cli_suggest_offer(&s, cli_commands[i]->name, strlen(cli_commands[i]->name));
    }
    for (const cli_topic *t = cli_topics; t->name != NULL; t++) {
        cli_suggest_offer(&s, t->name, strlen(t->name));
    }
    (void)cli_suggest_text(hint, &s);
    return cli_fail(CLI_MISUSE, "there is no command or topic '%s'%s", name,
                    hint[0] != '\0' ? hint : "; 'tersegrad help' lists them");
}

/* A name may be that of a topic and of a command: the topic comes first. "exit codes" is "exit-codes". */
static int run(const cli_args *args)
{
    char name[64] = "";
    if (args->files.n == 0) {
        cli_help_program(stdout);
        return CLI_OK;
    }
    snprintf(name, sizeof name, "%s%s%s", args->files.items[0], args->files.n > 1 ? "-" : "",
             args->files.n > 1 ? args->files.items[1] : "");
    if (strcmp(name, "man-page") == 0) {
        cli_help_manual(stdout);
        return CLI_OK;
    }
    int found = 0;
    for (const cli_topic *t = cli_topics; t->name != NULL; t++) {
        if (strcmp(t->name, name) == 0) {
            fputs(t->text, stdout);
            found = 1;
        }
    }
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0) {
            fputs(found ? "\n" : "", stdout);
            cli_help_command(stdout, cli_commands[i]);
            found = 1;
        }
    }
    return found ? CLI_OK : fail_topic(name);
}

const cli_command cli_help = {
    .name = "help",
    .summary = "explain a command or a topic",
    .usage = "[COMMAND | TOPIC]",
    .about = "Without a name: the list of commands and topics. With one: the flags of that command, or the text on\n"
             "that topic. The topic man-page is the manual page of the whole program, in roff.",
    .examples = "tersegrad help train\n"
                "tersegrad help exit-codes\n"
                "tersegrad help man-page | man -l -\n",
    .file_max = 2,
    .run = run,
};
