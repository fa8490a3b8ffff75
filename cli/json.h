/* Writes one JSON object on one line, member by member. Commas, quotes and escapes are the writer's concern:
 * bytes that are not UTF-8 become U+FFFD, numbers that are not finite become null.
 */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdint.h>
#include <stdio.h>

struct cli_csv;

typedef struct cli_json {
    FILE *out;           /* of JSON; NULL: rows are collected for CSV ... */
    struct cli_csv *csv; /* ... here ... */
    FILE *table;         /* ... and printed there */
    uint32_t depth;
    uint32_t filled;  /* bit d: something stands already at depth d, so a comma is due */
    uint32_t arrays;  /* bit d: depth d is an array */
    const char *rows; /* of CSV: the array whose objects are rows; NULL: the outermost object is one ... */
    uint32_t in_rows; /* ... and the depth of that array while it is open */
} cli_json;

/* Opens the outermost object. In all that follow, `key` is NULL inside an array. */
void cli_json_begin(cli_json *j, FILE *out);

/* The same; or, if `csv` is not 0, of all that follows only rows are printed, as comma-separated values: the objects of the
 * array `rows` of the outermost object, or that object itself if `rows` is NULL. Arrays and objects in a row are left out. */
void cli_json_begin_as(cli_json *j, FILE *out, int csv, const char *rows);

/* Closes it and ends the line. CLI_OK, or reported: CSV is collected first, which takes memory. */
int cli_json_finish(cli_json *j);

void cli_json_object(cli_json *j, const char *key);
void cli_json_array(cli_json *j, const char *key);
void cli_json_end(cli_json *j); /* of the innermost object or array */

void cli_json_text(cli_json *j, const char *key, const char *value); /* NULL: null */
void cli_json_count(cli_json *j, const char *key, uint64_t value);
void cli_json_number(cli_json *j, const char *key, double value);
void cli_json_bool(cli_json *j, const char *key, int value);
void cli_json_null(cli_json *j, const char *key);
void cli_json_hex(cli_json *j, const char *key, uint64_t value); /* as text: doubles hold no 64 bits */

#endif
