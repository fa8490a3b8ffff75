/* Comma-separated values; see csv.h. */
#include "csv.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"

typedef struct cell {
    size_t row, column;
    char *text;
} cell;

struct cli_csv {
    char **columns;
    cell *cells; /* row by row */
    size_t column_n, cell_n, cell_cap, row_n;
    int failed;
};

cli_csv *cli_csv_new(void)
{
    return calloc(1, sizeof(cli_csv));
}

void cli_csv_row(cli_csv *c)
{
    if (c != NULL) {
        c->row_n++;
    }
}

/* The number of the column of this name, which is added if there is none. */
static size_t column_of(cli_csv *c, const char *name)
{
    for (size_t i = 0; i < c->column_n; i++) {
        if (strcmp(c->columns[i], name) == 0) {
            return i;
        }
    }
    char **grown = realloc(c->columns, (c->column_n + 1) * sizeof *grown);
    if (grown == NULL) {
        c->failed = 1;
        return 0;
    }
    c->columns = grown;
    grown[c->column_n] = strdup(name);
    if (grown[c->column_n] == NULL) {
        c->failed = 1;
        return 0;
    }
    return c->column_n++;
}

void cli_csv_cell(cli_csv *c, const char *column, const char *text)
{
    if (c == NULL || c->failed || c->row_n == 0) {
        return;
    }
    if (c->cell_n == c->cell_cap) {
        size_t cap = c->cell_cap * 2 + 64;
        cell *grown = realloc(c->cells, cap * sizeof *grown);
        if (grown == NULL) {
            c->failed = 1;
            return;
        }
        c->cells = grown;
        c->cell_cap = cap;
    }
    cell *to = &c->cells[c->cell_n];
    *to = (cell){c->row_n - 1, column_of(c, column), strdup(text)};
    c->failed |= to->text == NULL;
    c->cell_n += !c->failed;
}

static void put(FILE *out, const char *text)
{
    if (text[strcspn(text, ",\"\r\n")] == '\0') {
        fputs(text, out);
        return;
    }
    putc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            putc('"', out);
        }
        putc(*text, out);
    }
    putc('"', out);
}

static void print(const cli_csv *c, FILE *out, const char **row)
{
    for (size_t i = 0; i < c->column_n; i++) {
        fputs(i > 0 ? "," : "", out);
        put(out, c->columns[i]);
    }
    putc('\n', out);
    for (size_t r = 0, at = 0; r < c->row_n; r++) {
        memset(row, 0, c->column_n * sizeof *row);
        for (; at < c->cell_n && c->cells[at].row == r; at++) {
            row[c->cells[at].column] = c->cells[at].text;
        }
        for (size_t i = 0; i < c->column_n; i++) {
            fputs(i > 0 ? "," : "", out);
            put(out, row[i] != NULL ? row[i] : "");
        }
        putc('\n', out);
    }
}

int cli_csv_print(cli_csv *c, FILE *out)
{
    const char **row = c == NULL || c->failed ? NULL : malloc((c->column_n + 1) * sizeof *row);
    int code = row != NULL ? CLI_OK : cli_fail_memory();
    if (row != NULL) {
        print(c, out, row);
    }
    free(row);
    for (size_t i = 0; c != NULL && i < c->cell_n; i++) {
        free(c->cells[i].text);
    }
    for (size_t i = 0; c != NULL && i < c->column_n; i++) {
        free(c->columns[i]);
    }
    if (c != NULL) {
        free(c->cells);
        free(c->columns);
    }
    free(c);
    return code;
}
