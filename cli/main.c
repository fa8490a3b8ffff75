/* The program `tersegrad`: finds the command, has its flags read and runs it. Uses nothing of the library but
 * its public header.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "commands.h"
#include "fail.h"

static const cli_command *const commands[] = {&cli_recipes, &cli_encode, &cli_decode,  &cli_inspect,    &cli_bench,
                                              &cli_quality, &cli_train,  &cli_compare, &cli_similarity, &cli_demo};
enum { COMMAND_N = sizeof commands / sizeof *commands };

static void print_help(void)
{
    puts("tersegrad: workers of a data-parallel training job say less to each other and learn the same.\n"
         "\n"
         "Usage: tersegrad COMMAND [flags]\n"
         "\n"
         "Commands:");
    for (size_t i = 0; i < COMMAND_N; i++) {
        printf("  %-12s%s\n", commands[i]->name, commands[i]->summary);
    }
    puts("\n"
         "Each takes --help, with examples, and --json, to print one JSON object instead of text.\n"
         "The exit status is 0 for success, 1 for a failed run and 2 for misuse.\n"
         "\n"
         "Start with:\n"
         "  tersegrad demo\n"
         "  tersegrad bench --recipe ef+topk@0.01+fp16");
}

/* argv starts with the program; the command is behind it. */
static int run(const cli_command *command, int argc, char *const *argv)
{
    cli_args args;
    int code = cli_args_parse(&args, command, argc - 2, argv + 2);
    args.program = argv[0];
    if (code == CLI_OK && args.help) {
        cli_args_help(stdout, command);
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
        print_help();
        return CLI_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("tersegrad %s\n", tg_version());
        return CLI_OK;
    }
    for (size_t i = 0; i < COMMAND_N; i++) {
        if (strcmp(argv[1], commands[i]->name) == 0) {
            return run(commands[i], argc, argv);
        }
    }
    return cli_fail(CLI_MISUSE, "there is no command '%s'; 'tersegrad --help' lists them", argv[1]);
}

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
