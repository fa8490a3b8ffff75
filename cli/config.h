/* The configuration file of --config: the flags of a command, one a line.
 *
 *     # eight workers on a slow link
 *     recipe   ef-topk@0.01
 *     workers  8
 *     link     100mbit,1ms
 *     nesterov
 *
 * A line is a flag's name, with or without "--", and its value after spaces or '='. Quotes around a value are taken off.
 * '#' at the start of a line or after a space begins a comment. */
#ifndef CLI_CONFIG_H
#define CLI_CONFIG_H

#include "args.h"

/* Adds the flags in a->config to those of the command line, which win. Reports, with the file and the line. */
int cli_config_read(cli_args *a, const cli_command *command);

#endif
