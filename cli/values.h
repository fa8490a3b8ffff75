/* From the text of a flag's value to its place in cli_args. All report misuse. */
#ifndef CLI_VALUES_H
#define CLI_VALUES_H

#include "flags.h"

/* Stores the value of a flag, or reports why it cannot. `text` of a CLI_TEXT must live as long as `a`. */
int cli_value_set(cli_args *a, const cli_flag_row *row, const char *text);

/* The place of a word in a list that ends with NULL; -1 if it is not there. */
int cli_choice_find(const char *const *choices, const char *text);

/* Adds a copy of text[0..len). */
int cli_texts_append(cli_texts *list, const char *text, size_t len);

#endif
