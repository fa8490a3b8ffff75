/* What every part of the pipe has: a name and parameters. Each stage's header builds on it. */
#ifndef TG_BASE_PART_H
#define TG_BASE_PART_H

#include <stdbool.h>
#include <stddef.h>

#define TG_PARAM_CAP 24 /* parameters that a part may have */

/* A parameter: a number in a range, or a choice, whose value is its position in the list. */
typedef struct tg_param {
    const char *name;
    const char *summary;
    const char *const *choices; /* ends with NULL; NULL for a number */
    double lowest, highest;     /* of a number, both allowed ... */
    bool above_lowest;          /* ... but `lowest` itself only if this is false */
    bool is_whole;              /* a number without a fraction */
    bool required;              /* has no standard value */
    bool is_main;               /* set by a bare value; at most one in a part */
    double standard;
    const char *word; /* of a number: stands for `standard`, which lies outside of the range; NULL: none */
} tg_param;

typedef struct tg_part {
    const char *name;
    const char *summary;
    const tg_param *params;
    size_t param_n;
} tg_part;

#endif
