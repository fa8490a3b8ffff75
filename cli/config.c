/* A configuration file, line by line; see config.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "file.h"

static const char blanks[] = " \t\r";

/* Ends the line where a comment or the blanks before the end begin; returns its first character that is no blank. */
static char *trim(char *line)
{
    for (char *at = line; *at != '\0'; at++) {
        if (*at == '#' && (at == line || strchr(blanks, at[-1]) != NULL)) {
            *at = '\0';
            break;
        }
    }
    line += strspn(line, blanks);
    size_t len = strlen(line);
    while (len > 0 && strchr(blanks, line[len - 1]) != NULL) {
        line[--len] = '\0';
    }
    return line;
}

/* The value behind a flag's name: what follows blanks, an '=' and blanks, without quotes around it. NULL: there is none. */
static char *value_of(char *at)
{
    at += strspn(at, blanks);
    int equals = *at == '=';
    at += equals;
    at += strspn(at, blanks);
    size_t len = strlen(at);
    if (len >= 2 && (*at == '"' || *at == '\'') && at[len - 1] == *at) {
        at[len - 1] = '\0';
        return at + 1;
    }
    return len > 0 || equals ? at : NULL;
}

/* Whether the command line has said already what the flag would say. */
static bool is_decided(const cli_given *given, cli_flag flag)
{
    static const cli_flag pairs[][2] = {
        {CLI_FLAG_RECIPE, CLI_FLAG_RECIPES}, {CLI_FLAG_STEPS, CLI_FLAG_EPOCHS}, {CLI_FLAG_JSON, CLI_FLAG_CSV}};
    bool decided = given->flags[flag];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (flag == pairs[i][0] || flag == pairs[i][1]) {
            decided = decided || given->flags[pairs[i][0]] || given->flags[pairs[i][1]];
        }
    }
    return decided;
}

static int read_line(cli_args *a, const cli_command *command, const cli_given *given, char *line)
{
    char *name = line;
    if (strncmp(name, "--", 2) == 0) {
        name += 2;
    }
    size_t len = strcspn(name, " \t=");
    cli_flag flag = cli_command_flag(command, name, len);
    if (flag == CLI_FLAG_N_OF) {
        return cli_args_unknown(command, name, len);
    }
    if (flag == CLI_FLAG_CONFIG) {
        return cli_fail(CLI_MISUSE, "a configuration file cannot name another");
    }
    return is_decided(given, flag) ? CLI_OK : cli_args_set(a, command, flag, value_of(name + len));
}

int cli_config_read(cli_args *a, const cli_command *command)
{
    uint8_t *bytes = NULL;
    size_t len = 0, number = 0;
    int code = cli_file_read(&bytes, &len, a->config);
    if (code != CLI_OK) {
        return code;
    }
    char *text = realloc(bytes, len + 1);
    if (text == NULL) {
        free(bytes);
        return cli_fail_memory();
    }
    a->config_text = text;
    text[len] = '\0';
    if (strlen(text) != len) {
        return cli_fail(CLI_MISUSE, "%s is not a text file: it holds a zero byte", a->config);
    }
    cli_given given = a->given;
    a->given = (cli_given){0};
    for (char *line = text, *next; line != NULL && code == CLI_OK; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        cli_fail_in(a->config, ++number);
        line = trim(line);
        code = *line == '\0' ? CLI_OK : read_line(a, command, &given, line);
    }
    cli_fail_in(NULL, 0);
    for (size_t flag = 0; flag < CLI_FLAG_N_OF; flag++) {
        a->given.flags[flag] = a->given.flags[flag] || given.flags[flag];
    }
    return code;
}
