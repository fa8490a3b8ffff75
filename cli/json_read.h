/* Reads JSON (RFC 8259), strictly: one value, nothing after it, no duplicate keys, no zero bytes. */
#ifndef CLI_JSON_READ_H
#define CLI_JSON_READ_H

#include <stddef.h>
#include <stdint.h>

typedef enum cli_node_type { CLI_NULL, CLI_BOOL, CLI_NUMBER, CLI_STRING, CLI_ARRAY, CLI_OBJECT } cli_node_type;

/* A value. Members of an object and elements of an array are a list. */
typedef struct cli_node {
    cli_node_type type;
    double number;    /* of a number; 1 or 0 of a bool */
    const char *text; /* of a string, in UTF-8 */
    const char *key;  /* of a member */
    size_t child;     /* the first; 0: none */
    size_t next;      /* in the list that this is in; 0: none */
    size_t count;     /* of members or elements */
} cli_node;

typedef struct cli_document {
    cli_node *nodes; /* 1 is the root; 0 stands for none */
    size_t n, cap;
    char *text; /* that strings point into */
} cli_document;

/* Reads bytes[0..len). Returns 0, or -1 and a reason, such as "a ',' or ']' is missing at byte 17"; out of memory is such a reason,
 * too. Free `out` in any case. */
int cli_document_read(cli_document *out, char why[96], const void *bytes, size_t len);
void cli_document_free(cli_document *d);

static inline const cli_node *cli_document_root(const cli_document *d)
{
    return &d->nodes[1];
}

/* The member of that key; NULL if there is none, or if `of` is NULL or no object. */
const cli_node *cli_node_member(const cli_document *d, const cli_node *of, const char *key);

/* The first element or member, and the one after it; NULL: there is none. */
const cli_node *cli_node_first(const cli_document *d, const cli_node *of);
const cli_node *cli_node_next(const cli_document *d, const cli_node *of);

#endif
