/* One line on stderr and an exit status; see fail.h. */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>

#include "colour.h"
#include "progress.h"
#include "suggest.h"

static int process = -1;  /* rank, of several processes */
static const char *place; /* the file that is read, if a sentence is to name it ... */
static size_t place_line; /* ... and its line */

void cli_fail_as(uint32_t rank)
{
    process = (int)rank;
}

void cli_fail_in(const char *path, size_t line)
{
    place = path;
    place_line = line;
}

void cli_note(const char *format, ...)
{
    if (process > 0) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%snote:%s ", cli_colour_code(stderr, CLI_BOLD), cli_colour_code(stderr, CLI_PLAIN));
    (void)vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

int cli_fail(int code, const char *format, ...)
{
    char line[8192]; /* two paths of any usual length and a sentence */
    va_list arguments;
    va_start(arguments, format);
    size_t start = place != NULL ? (size_t)snprintf(line, sizeof line / 2, "%s:%zu: ", place, place_line) : 0;
    start = start < sizeof line / 2 ? start : sizeof line / 2 - 1;
    int len = vsnprintf(line + start, sizeof line - start, format, arguments);
    va_end(arguments);
    if (len < 0) {
        line[start] = '\0';
    }

    /* Names of files and tensors may hold anything; a line feed in one must not make two lines of this. */
    for (char *at = line; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            *at = '?';
        }
    }
    cli_progress_clear();
    /* In one call, so that the lines of several processes do not mix. */
    const char *red = cli_colour_code(stderr, CLI_RED), *plain = cli_colour_code(stderr, CLI_PLAIN);
    if (process >= 0) {
        fprintf(stderr, "%stersegrad:%s rank %d: %s\n", red, plain, process, line);
    } else {
        fprintf(stderr, "%stersegrad:%s %s\n", red, plain, line);
    }
    return code;
}

const char *cli_reason(tg_status status, const tg_detail *why)
{
    return why != NULL && why->text[0] != '\0' ? why->text : tg_status_text(status);
}

int cli_fail_status(const char *what, tg_status status, const tg_detail *why)
{
    int misuse = status == TG_E_RECIPE || status == TG_E_ARGUMENT || status == TG_E_NO_EFFECT;
    const char *reason = cli_reason(status, why);
    char hint[CLI_SUGGEST_CAP];
    return cli_fail(misuse ? CLI_MISUSE : CLI_FAILED, "%s%s%s%s", what != NULL ? what : "", what != NULL ? ": " : "",
                    reason, cli_suggest_part(hint, reason));
}

int cli_fail_frame(const char *path, tg_status status, const tg_detail *why)
{
    return cli_fail(CLI_FAILED, "%s: %s", path, cli_reason(status, why));
}

int cli_fail_memory(void)
{
    return cli_fail(CLI_FAILED, "not enough memory");
}
