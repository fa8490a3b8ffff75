/* How every command reports a failure: exactly one line on stderr, and an exit status that tells a failed
 * run (a file, a frame, the machine) from misuse (the command line). Functions of the program that can fail
 * return such a status and have already reported when it is not CLI_OK.
 */
#ifndef CLI_FAIL_H
#define CLI_FAIL_H

#include <stddef.h>

#include "tersegrad/tersegrad.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_MISUSE = 2 };

#if defined(__GNUC__)
#define CLI_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#else
#define CLI_PRINTF(format_at, first_at)
#endif

/* From here on failures are those of this rank of several processes, and say so. */
void cli_fail_as(uint32_t rank);

/* From here on failures are those of a line of a file, and name both; NULL: no longer. */
void cli_fail_in(const char *path, size_t line);

/* A remark for whoever runs the program, "note: ..."; of several processes rank 0 makes it. */
void cli_note(const char *format, ...) CLI_PRINTF(1, 2);

/* Prints "tersegrad: ..." as one line, whatever bytes a name in it holds, and returns `code`. */
int cli_fail(int code, const char *format, ...) CLI_PRINTF(2, 3);

/* Reports what the library refused, after "`what`: " unless `what` is NULL. Misuse where the command line is
 * to blame: the recipe, an argument, or a recipe that would have no effect. */
int cli_fail_status(const char *what, tg_status status, const tg_detail *why);

/* The same for bytes that came from a file: nothing in them is ever misuse. */
int cli_fail_frame(const char *path, tg_status status, const tg_detail *why);

int cli_fail_memory(void);

/* The sentence of a failure: the detail, or a few words for the status where there is none. */
const char *cli_reason(tg_status status, const tg_detail *why);

#endif
