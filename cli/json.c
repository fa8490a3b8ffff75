/* A small JSON writer; see json.h. */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "csv.h"

/* The length of the UTF-8 character at `at`, 0 if there is no valid one (overlong and surrogates included). */
static size_t utf8_len(const unsigned char *at)
{
    if (at[0] < 0x80) {
        return 1;
    }
    size_t len = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < len; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0; /* the end of the text, too, stops here */
        }
    }
    if (at[0] == 0xe0 && at[1] < 0xa0) {
        return 0;
    }
    if (at[0] == 0xed && at[1] > 0x9f) {
        return 0;
    }
    if (at[0] == 0xf0 && at[1] < 0x90) {
        return 0;
    }
    if (at[0] == 0xf4 && at[1] > 0x8f) {
        return 0;
    }
    return len;
}

static void write_text(FILE *out, const char *text)
{
    putc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        size_t len = utf8_len(at);
        if (len == 0) {
            fputs("\\ufffd", out);
            at++;
        } else if (*at == '"' || *at == '\\') {
            fprintf(out, "\\%c", *at++);
        } else if (*at < 0x20 || *at == 0x7f || *at == '<') { /* '<' could end the script of a page */
            fprintf(out, "\\u%04x", *at++);
        } else {
            fwrite(at, 1, len, out);
            at += len;
        }
    }
    putc('"', out);
}

/* CSV: whether what comes next is a cell of a row. */
static int is_cell(const cli_json *j)
{
    return j->rows == NULL ? j->depth == 1 : j->in_rows > 0 && j->depth == j->in_rows + 1;
}

/* CSV: takes a cell if it is one. 0: JSON is to be written. */
static int take(cli_json *j, const char *key, const char *text)
{
    if (j->out != NULL) {
        return 0;
    }
    if (key != NULL && is_cell(j)) {
        cli_csv_cell(j->csv, key, text);
    }
    return 1;
}

static void start(cli_json *j, const char *key)
{
    uint32_t bit = UINT32_C(1) << j->depth;
    if (j->filled & bit) {
        fputs(", ", j->out);
    }
    j->filled |= bit;
    if (key != NULL) {
        write_text(j->out, key);
        fputs(": ", j->out);
    }
}

static void nest(cli_json *j, const char *key, int is_array)
{
    if (j->out != NULL) {
        start(j, key);
        putc(is_array ? '[' : '{', j->out);
    } else if (is_array && j->depth == 1 && key != NULL && j->rows != NULL && strcmp(key, j->rows) == 0) {
        j->in_rows = j->depth + 1;
    } else if (!is_array && (j->rows == NULL ? j->depth == 0 : j->in_rows > 0 && j->depth == j->in_rows)) {
        cli_csv_row(j->csv);
    }
    j->depth++;
    uint32_t bit = UINT32_C(1) << j->depth;
    j->filled &= ~bit;
    j->arrays = is_array ? j->arrays | bit : j->arrays & ~bit;
}

void cli_json_begin(cli_json *j, FILE *out)
{
    *j = (cli_json){.out = out};
    nest(j, NULL, 0);
}

void cli_json_begin_as(cli_json *j, FILE *out, int csv, const char *rows)
{
    if (!csv) {
        cli_json_begin(j, out);
        return;
    }
    *j = (cli_json){.table = out, .csv = cli_csv_new(), .rows = rows};
    nest(j, NULL, 0);
}

int cli_json_finish(cli_json *j)
{
    while (j->depth > 0) {
        cli_json_end(j);
    }
    if (j->out == NULL) {
        return cli_csv_print(j->csv, j->table);
    }
    putc('\n', j->out);
    return 0;
}

void cli_json_object(cli_json *j, const char *key)
{
    nest(j, key, 0);
}

void cli_json_array(cli_json *j, const char *key)
{
    nest(j, key, 1);
}

void cli_json_end(cli_json *j)
{
    if (j->out != NULL) {
        putc(j->arrays >> j->depth & 1 ? ']' : '}', j->out);
    }
    j->in_rows = j->in_rows == j->depth ? 0 : j->in_rows;
    j->depth--;
}

/* A value that is written as it is. */
static void put(cli_json *j, const char *key, const char *text)
{
    if (!take(j, key, text)) {
        start(j, key);
        fputs(text, j->out);
    }
}

void cli_json_text(cli_json *j, const char *key, const char *value)
{
    if (value == NULL) {
        cli_json_null(j, key);
        return;
    }
    if (take(j, key, value)) {
        return;
    }
    start(j, key);
    write_text(j->out, value);
}

void cli_json_count(cli_json *j, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    put(j, key, text);
}

void cli_json_number(cli_json *j, const char *key, double value)
{
    if (!isfinite(value)) {
        cli_json_null(j, key);
        return;
    }
    /* The shortest of the forms that read back as the same number. */
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    put(j, key, text);
}

void cli_json_bool(cli_json *j, const char *key, int value)
{
    put(j, key, value ? "true" : "false");
}

void cli_json_null(cli_json *j, const char *key)
{
    if (!take(j, key, "")) {
        put(j, key, "null");
    }
}

void cli_json_hex(cli_json *j, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    cli_json_text(j, key, text);
}
