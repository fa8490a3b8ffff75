/* Escape sequences for those who see them; see colour.h. */
#include "colour.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_on(FILE *out)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(out)) && (no == NULL || no[0] == '\0') && (term == NULL || strcmp(term, "dumb") != 0);
}

const char *cli_colour_code(FILE *out, cli_colour colour)
{
    static const char *const codes[] = {[CLI_PLAIN] = "\033[0m", [CLI_BOLD] = "\033[1m", [CLI_RED] = "\033[1;31m"};
    return is_on(out) ? codes[colour] : "";
}
