/* The manual page, in roff; see help.h. */
#include <string.h>

#include "commands.h"
#include "flags.h"
#include "help.h"

/* Text as roff: no character of it is a command. */
static void put(FILE *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int starts = i == 0 || text[i - 1] == '\n';
        if (starts && (text[i] == '.' || text[i] == '\'')) {
            fputs("\\&", out);
        }
        switch (text[i]) {
        case '\\': fputs("\\e", out); break;
        case '-': fputs("\\-", out); break;
        case '\'': fputs("\\(aq", out); break;
        default: putc(text[i], out);
        }
    }
}

static void put_text(FILE *out, const char *text)
{
    put(out, text, strlen(text));
}

/* Lines that keep their shape. */
static void put_lines(FILE *out, const char *text)
{
    fputs(".nf\n", out);
    put_text(out, text);
    fputs(".fi\n", out);
}

static void put_flag(FILE *out, const cli_flag_use *use)
{
    const cli_flag_row *row = &cli_flags[use->flag];
    fputs(".TP\n\\fB", out);
    put_text(out, "--");
    put_text(out, row->name);
    fputs("\\fR", out);
    if (row->value != NULL) {
        fputs(" \\fI", out);
        put_text(out, row->value);
        fputs("\\fR", out);
    }
    putc('\n', out);
    put_text(out, row->help);
    if (use->standard != NULL) {
        fputs(" [default: ", out);
        put_text(out, use->standard);
        fputs("]", out);
    }
    putc('\n', out);
}

static void put_command(FILE *out, const cli_command *command)
{
    fprintf(out, ".SS \"tersegrad %s\"\n\\fBtersegrad %s\\fR ", command->name, command->name);
    put_text(out, command->usage);
    fputs("\n.PP\n", out);
    put_text(out, command->about);
    putc('\n', out);
    for (size_t i = 0; i < command->flag_n; i++) {
        put_flag(out, &command->flags[i]);
    }
    fputs(".PP\nExamples:\n.PP\n.RS 4\n", out);
    put_lines(out, command->examples);
    fputs(".RE\n", out);
}

void cli_help_manual(FILE *out)
{
    fprintf(out, ".TH TERSEGRAD 1 \"\" \"tersegrad %s\" \"User Commands\"\n", tg_version());
    fputs(".SH NAME\n"
          "tersegrad \\- gradient compression for data\\-parallel training\n"
          ".SH SYNOPSIS\n"
          "\\fBtersegrad\\fR \\fICOMMAND\\fR [\\fIflags\\fR]\n"
          ".SH DESCRIPTION\n"
          "Compresses the gradients that workers of data\\-parallel training exchange: encodes and decodes them, "
          "measures\n"
          "recipes, and trains built\\-in models with them.\n"
          ".SH COMMANDS\n",
          out);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        put_command(out, cli_commands[i]);
    }
    for (const cli_topic *t = cli_topics; t->name != NULL; t++) {
        fputs(".SH ", out);
        for (const char *at = t->name; *at != '\0'; at++) {
            putc(*at == '-' ? ' ' : *at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at, out);
        }
        putc('\n', out);
        put_lines(out, t->text);
    }
}
