/* The table of all flags: for each its name, its values and where they go. */
#ifndef CLI_FLAGS_H
#define CLI_FLAGS_H

#include "args.h"

typedef enum cli_flag_type {
    CLI_SWITCH, /* int: takes no value */
    CLI_TEXT,   /* const char * */
    CLI_NAME,   /* const char *: one of `choices` */
    CLI_DATA,   /* const char *: a data set of the trainer, with its place */
    CLI_COUNT,  /* uint64_t from min to max */
    CLI_COUNT32,
    CLI_REAL,   /* double from min to max, min itself only if min_allowed */
    CLI_CHOICE, /* int: the place of the word in `choices` */
    CLI_LIST,   /* cli_texts: one more */
    CLI_LISTS,  /* cli_texts: some more, ';' between them */
    CLI_PAIRS,  /* cli_texts: PATTERN and value, '=' between them */
    CLI_LINK,   /* cli_link */
    CLI_HOSTS,  /* uint32_t: 0 for auto, 1 for flat, or a number */
    CLI_ROUNDS, /* tg_schedule */
    CLI_BITS,   /* double: bits a second, with a unit */
    CLI_TIME,   /* double: seconds, with a unit */
    CLI_SIZE,   /* uint64_t from min to max, also as 25e6 */
    CLI_OUTER,  /* tg_outer */
    CLI_LATE    /* cli_late */
} cli_flag_type;

typedef struct cli_flag_row {
    const char *name;
    const char *value; /* what stands for the value in help; NULL for a switch */
    cli_flag_type type;
    size_t at; /* in cli_args */
    int repeats;
    double min, max;
    int min_allowed;
    const char *const *choices; /* of a choice, or of the value of a pair; ends with NULL */
    const char *help;           /* lines */
} cli_flag_row;

extern const cli_flag_row cli_flags[CLI_FLAG_N_OF];

#endif
