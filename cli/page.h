/* The report pages: HTML files that stand alone. Each is built into the program (cli/page/) with a hole for the JSON object
 * that it shows.
 */
#ifndef CLI_PAGE_H
#define CLI_PAGE_H

#include <stddef.h>
#include <stdio.h>

typedef enum cli_page_kind { CLI_PAGE_COMPARE, CLI_PAGE_QUALITY, CLI_PAGE_SIMILARITY, CLI_PAGE_PLAN } cli_page_kind;

/* A page in the making. */
typedef struct cli_page {
    cli_page_kind kind;
    FILE *data; /* the JSON object goes here */
    char *json; /* what has gone there */
    size_t json_len;
} cli_page;

/* Must be closed, and not be moved until then. */
int cli_page_open(cli_page *out, cli_page_kind kind);

/* Writes the page to `path`, all of it or nothing. */
int cli_page_close(cli_page *p, const char *path);

#endif
