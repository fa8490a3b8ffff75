/* Tables whose columns line up. Rows are collected first, because a column is as wide as its widest cell. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stddef.h>
#include <stdio.h>

typedef struct cli_table {
    const char *columns; /* one letter a column: 'l' or 'r', the side its cells stand on */
    char **cells;        /* row by row */
    size_t cell_n;
    size_t cell_cap;
    int has_head; /* the first row names the columns */
    int failed;   /* memory ran out: cli_table_print says so */
} cli_table;

void cli_table_init(cli_table *t, const char *columns);

/* Adds one row: as many `const char *` as there are columns, all copied. */
void cli_table_row(cli_table *t, ...);

void cli_table_cells(cli_table *t, const char *const *cells); /* the same from an array */

/* Prints all rows behind `indent` spaces, control characters in cells replaced; CLI_OK or reported. */
int cli_table_print(const cli_table *t, FILE *out, size_t indent);

void cli_table_free(cli_table *t);

#endif
