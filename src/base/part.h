/* What all parts of a recipe have in common: a name and parameters. The header of each stage builds on it. */
#ifndef TG_BASE_PART_H
#define TG_BASE_PART_H

#include <stdbool.h>
#include <stddef.h>

#define TG_PARAM_CAP 24 /* the most parameters of a part */

/* A parameter: a number in a range, or a choice, whose value is its index in the list. */
typedef struct tg_param {
    const char *name;
    const char *summary;
    const char *const *choices; /* ends with NULL; NULL for a number */
    double lowest, highest;     /* of a number, both inclusive ... */
    bool above_lowest;          /* ... unless this is true: then `lowest` is excluded */
    bool is_whole;              /* an integer */
    bool required;              /* has no default */
    bool is_main;               /* set by a value without a name; at most one per part */
    double standard;
    const char *word; /* of a number: a name for the default, which is outside the range; NULL: none */
    bool of_model;    /* read where tensors get their recipes, in which it has its default ... */
    double of_tensor; /* ... unless it is this choice or a later one, which is the tensor's own; 0: none is */
} tg_param;

typedef struct tg_part {
    const char *name;
    const char *summary;
    const tg_param *params;
    size_t param_n;
} tg_part;

#endif
