/* The program `tersegrad`: finds the command, has its flags read and runs it. Uses nothing of the library but
 * its public header.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "commands.h"
#include "fail.h"
#include "help.h"
#include "suggest.h"

const cli_command *const cli_commands[] = {
    &cli_recipes,       &cli_encode, &cli_decode,  &cli_inspect,    &cli_bench,
    &cli_quality,       &cli_train,  &cli_compare, &cli_similarity, &cli_plan_command,
    &cli_probe_command, &cli_demo,   &cli_help,    &cli_completion, NULL};

/* argv starts with the program; the command is behind it. */
static int run(const cli_command *command, int argc, char *const *argv)
{
    cli_args args;
    int code = cli_args_parse(&args, command, argc - 2, argv + 2);
    args.program = argv[0];
    if (code == CLI_OK && args.help) {
        cli_help_command(stdout, command);
    } else if (code == CLI_OK) {
        code = command->run(&args);
    }
    cli_args_free(&args);
    return code;
}

static int dispatch(int argc, char *const *argv)
{
    if (argc < 2) {
        return cli_fail(CLI_MISUSE, "no command given; 'tersegrad --help' lists them");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        cli_help_program(stdout);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("tersegrad %s\n", tg_version());
        return CLI_OK;
    }
    cli_suggest near = {.word = argv[1], .len = strlen(argv[1])};
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (strcmp(argv[1], cli_commands[i]->name) == 0) {
            return run(cli_commands[i], argc, argv);
        }
        cli_suggest_offer(&near, cli_commands[i]->name, strlen(cli_commands[i]->name));
    }
    char hint[CLI_SUGGEST_CAP];
    (void)cli_suggest_text(hint, &near);
    return cli_fail(CLI_MISUSE, "there is no command '%s'%s", argv[1],
                    hint[0] != '\0' ? hint : "; 'tersegrad --help' lists them");
}

#if defined(TG_BATCH) /* tests/cuda/batch.c runs many commands in one process */
int tersegrad_main(int argc, char **argv);
#define main tersegrad_main
#endif

int main(int argc, char **argv)
{
    int code = dispatch(argc, argv);
    /* What was printed may still be in a buffer, and the disk behind it full. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (code == CLI_OK) {
            code = cli_fail(CLI_FAILED, "cannot write to standard output: %s", strerror(errno));
        }
    }
    return code;
}
