/* Colours, on terminals alone: none where the environment sets NO_COLOR (no-color.org) or TERM is "dumb". */
#ifndef CLI_COLOUR_H
#define CLI_COLOUR_H

#include <stdio.h>

typedef enum cli_colour { CLI_PLAIN, CLI_BOLD, CLI_RED } cli_colour;

/* To be printed on `out`, so that what follows has this look; CLI_PLAIN ends it. Empty where there are no colours. */
const char *cli_colour_code(FILE *out, cli_colour colour);

#endif
