/* Rows of named cells, printed as comma-separated values (RFC 4180, but for its line ends). A row need not have every
 * column: columns are those of all rows, in the order in which they are first met.
 */
#ifndef CLI_CSV_H
#define CLI_CSV_H

#include <stddef.h>
#include <stdio.h>

typedef struct cli_csv cli_csv;

cli_csv *cli_csv_new(void); /* NULL: no memory, which the functions below bear and cli_csv_print reports */
void cli_csv_row(cli_csv *c);
void cli_csv_cell(cli_csv *c, const char *column, const char *text); /* of the last row; both are copied */

/* Prints the columns' names and all rows, or reports that there was not enough memory. Frees `c`. */
int cli_csv_print(cli_csv *c, FILE *out);

#endif
