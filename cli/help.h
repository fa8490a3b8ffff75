/* Everything that the program says about itself, made from the tables of commands and flags: help, topics, the manual
 * page and shell completion.
 */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include <stdio.h>

#include "args.h"

/* A text that is not about one command. */
typedef struct cli_topic {
    const char *name;
    const char *summary;
    const char *text; /* lines, each ending in a line feed */
} cli_topic;

extern const cli_topic cli_topics[]; /* a NULL name at the end */

void cli_help_program(FILE *out);
void cli_help_command(FILE *out, const cli_command *command);

/* The manual page of the whole program, in roff. */
void cli_help_manual(FILE *out);

#endif
