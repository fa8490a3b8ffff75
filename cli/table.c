/* Aligned tables; see table.h. */
#include "table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "colour.h"
#include "fail.h"

enum { GAP = 2 }; /* spaces between columns */

/* Columns that a cell takes on a terminal: its characters, not its bytes. */
static size_t cell_width(const char *cell)
{
    size_t width = 0;
    for (; *cell != '\0'; cell++) {
        width += ((unsigned char)*cell & 0xc0) != 0x80;
    }
    return width;
}

void cli_table_init(cli_table *t, const char *columns)
{
    *t = (cli_table){.columns = columns};
}

/* Adds a cell, as a copy. */
static void add(cli_table *t, const char *text)
{
    if (!t->failed) {
        if (t->cell_n == t->cell_cap) {
            size_t cap = t->cell_cap * 2 + 64;
            char **grown = realloc(t->cells, cap * sizeof *grown);
            if (grown == NULL) {
                t->failed = 1;
                return;
            }
            t->cells = grown;
            t->cell_cap = cap;
        }
        char *copy = strdup(text);
        if (copy == NULL) {
            t->failed = 1;
            return;
        }
        /* A tensor's name comes from a file that nobody vouches for; it must not steer the terminal. */
        for (char *at = copy; *at != '\0'; at++) {
            if ((unsigned char)*at < 0x20 || *at == 0x7f) {
                *at = '?';
            }
        }
        t->cells[t->cell_n++] = copy;
    }
}

void cli_table_row(cli_table *t, ...)
{
    va_list cells;
    va_start(cells, t);
    for (size_t c = 0; t->columns[c] != '\0'; c++) {
        add(t, va_arg(cells, const char *));
    }
    va_end(cells);
}

void cli_table_cells(cli_table *t, const char *const *cells)
{
    for (size_t c = 0; t->columns[c] != '\0'; c++) {
        add(t, cells[c]);
    }
}

static void spaces(FILE *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        putc(' ', out);
    }
}

static void print_row(const cli_table *t, FILE *out, size_t indent, const size_t *widths, char **row)
{
    size_t column_n = strlen(t->columns);
    size_t last = column_n; /* no spaces behind the last cell that holds anything */
    while (last > 0 && row[last - 1][0] == '\0') {
        last--;
    }
    if (last > 0) {
        spaces(out, indent);
    }
    for (size_t c = 0; c < last; c++) {
        size_t fill = widths[c] - cell_width(row[c]);
        if (c > 0) {
            spaces(out, GAP);
        }
        if (t->columns[c] == 'r') {
            spaces(out, fill);
        }
        int is_bad = strncmp(row[c], "diverged", 8) == 0 || strncmp(row[c], "failed", 6) == 0;
        int is_head = t->has_head && row == t->cells;
        if (is_bad || is_head) {
            fputs(cli_colour_code(out, is_bad ? CLI_RED : CLI_BOLD), out);
        }
        fputs(row[c], out);
        if (is_bad || is_head) {
            fputs(cli_colour_code(out, CLI_PLAIN), out);
        }
        if (t->columns[c] == 'l' && c + 1 < last) {
            spaces(out, fill);
        }
    }
    putc('\n', out);
}

int cli_table_print(const cli_table *t, FILE *out, size_t indent)
{
    enum { COLUMN_MAX = 16 };
    size_t widths[COLUMN_MAX] = {0};
    size_t column_n = strlen(t->columns);
    if (t->failed) {
        return cli_fail_memory();
    }
    for (size_t i = 0; i < t->cell_n; i++) {
        size_t width = cell_width(t->cells[i]);
        if (width > widths[i % column_n]) {
            widths[i % column_n] = width;
        }
    }
    for (size_t i = 0; i + column_n <= t->cell_n; i += column_n) {
        print_row(t, out, indent, widths, t->cells + i);
    }
    return CLI_OK;
}

void cli_table_free(cli_table *t)
{
    for (size_t i = 0; i < t->cell_n; i++) {
        free(t->cells[i]);
    }
    free(t->cells);
    *t = (cli_table){.columns = t->columns};
}
