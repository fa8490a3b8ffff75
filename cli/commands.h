/* The commands of the program, one file each. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "args.h"

extern const cli_command cli_recipes;
extern const cli_command cli_encode;
extern const cli_command cli_decode;
extern const cli_command cli_inspect;
extern const cli_command cli_bench;
extern const cli_command cli_quality;
extern const cli_command cli_plan_command;
extern const cli_command cli_probe_command;
extern const cli_command cli_demo;
extern const cli_command cli_train;
extern const cli_command cli_compare;
extern const cli_command cli_similarity;
extern const cli_command cli_help;
extern const cli_command cli_completion;

extern const cli_command
    *const cli_commands[]; /* all of them, in the order in which they are listed; NULL at the end */

#endif
