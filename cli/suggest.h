/* "Did you mean": the known name that is nearest to a mistyped word. */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

#include <stddef.h>

#define CLI_SUGGEST_CAP 128

/* A search in progress. Start with {word, len} and offer every known name. */
typedef struct cli_suggest {
    const char *word;
    size_t len;
    const char *best; /* NULL: no name is near enough */
    size_t best_len;
    size_t distance; /* of the best */
} cli_suggest;

void cli_suggest_offer(cli_suggest *s, const char *name, size_t name_len);

/* "; did you mean 'NAME'?", or "" if no name is near enough. Returns `out`. */
const char *cli_suggest_text(char out[CLI_SUGGEST_CAP], const cli_suggest *s);

/* The same for a word and a list of names that ends with NULL. */
const char *cli_suggest_from(char out[CLI_SUGGEST_CAP], const char *word, size_t len, const char *const *names);

/* The same for the part or preset that the library's sentence says it does not have; "" for any other sentence. */
const char *cli_suggest_part(char out[CLI_SUGGEST_CAP], const char *sentence);

#endif
