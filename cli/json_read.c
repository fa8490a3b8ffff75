/* A strict reader of JSON; see json_read.h. Strings are decoded in place, in a copy of the text. */
#include "json_read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 32, WHY_CAP = 96 };

typedef struct reader {
    cli_document *d;
    char *at, *begin;
    char *why;
} reader;

static size_t refuse(reader *r, const char *reason)
{
    if (r->why[0] == '\0') {
        snprintf(r->why, WHY_CAP, "%s at byte %zu", reason, (size_t)(r->at - r->begin));
    }
    return 0;
}

static void skip_blanks(reader *r)
{
    r->at += strspn(r->at, " \t\r\n");
}

static size_t add_node(reader *r, cli_node node)
{
    cli_document *d = r->d;
    if (d->n == d->cap) {
        size_t cap = d->cap == 0 ? 64 : 2 * d->cap;
        cli_node *nodes = realloc(d->nodes, cap * sizeof *nodes);
        if (nodes == NULL) {
            return refuse(r, "there is not enough memory");
        }
        d->nodes = nodes;
        d->cap = cap;
    }
    d->nodes[d->n] = node;
    return d->n++;
}

/* ---- strings ------------------------------------------------------------------------------------------------------- */

static int read_hex(uint32_t *out, const char *at)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16) {
            return 0;
        }
        *out = *out * 16 + digit;
    }
    return 1;
}

static char *put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 63));
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    }
    return to;
}

/* "\uXXXX", r->at being at the 'u'; of a surrogate pair both. 0 is refused: texts end with it. */
static int read_code(uint32_t *out, reader *r)
{
    uint32_t low = 0;
    if (!read_hex(out, r->at + 1) || *out == 0 || (*out >= 0xdc00 && *out < 0xe000)) {
        return 0;
    }
    r->at += 5;
    if (*out >= 0xd800 && *out < 0xdc00) {
        if (r->at[0] != '\\' || r->at[1] != 'u' || !read_hex(&low, r->at + 2) || low < 0xdc00 || low >= 0xe000) {
            return 0;
        }
        *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
        r->at += 6;
    }
    return 1;
}

/* The text of a string, at its opening quote; NULL if it is none. */
static const char *read_string(reader *r)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (*r->at != '"') {
        (void)refuse(r, "a string is missing");
        return NULL;
    }
    char *begin = ++r->at, *to = begin;
    while (*r->at != '"') {
        uint32_t code = 0;
        if ((unsigned char)*r->at < 0x20) {
            (void)refuse(r, "a string does not end");
            return NULL;
        }
        if (*r->at != '\\') {
            *to++ = *r->at++;
            continue;
        }
        r->at++;
        const char *name = *r->at != '\0' ? strchr(names, *r->at) : NULL;
        if (name != NULL) {
            *to++ = values[name - names];
            r->at++;
        } else if (*r->at == 'u' && read_code(&code, r)) {
            to = put_utf8(to, code);
        } else {
            (void)refuse(r, "an escape is not valid");
            return NULL;
        }
    }
    r->at++;
    *to = '\0'; /* at or before the closing quote */
    return begin;
}

/* ---- values -------------------------------------------------------------------------------------------------------- */

static size_t read_number(reader *r)
{
    const char *at = r->at + (*r->at == '-');
    size_t whole = strspn(at, "0123456789");
    int sound = whole > 0 && (whole == 1 || *at != '0');
    at += whole;
    if (*at == '.') {
        size_t digits = strspn(at + 1, "0123456789");
        sound = sound && digits > 0;
        at += 1 + digits;
    }
    if (*at == 'e' || *at == 'E') {
        at += 1 + (at[1] == '+' || at[1] == '-');
        size_t digits = strspn(at, "0123456789");
        sound = sound && digits > 0;
        at += digits;
    }
    double value = sound ? strtod(r->at, NULL) : 0;
    if (!sound || !isfinite(value)) {
        return refuse(r, "a number is not valid");
    }
    r->at += at - r->at;
    return add_node(r, (cli_node){.type = CLI_NUMBER, .number = value});
}

static size_t read_word(reader *r)
{
    static const struct {
        const char *word;
        cli_node node;
    } words[] = {{"null", {.type = CLI_NULL}},
                 {"true", {.type = CLI_BOOL, .number = 1}},
                 {"false", {.type = CLI_BOOL, .number = 0}}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i].word);
        if (strncmp(r->at, words[i].word, len) == 0) {
            r->at += len;
            return add_node(r, words[i].node);
        }
    }
    return refuse(r, "there is no value");
}

static size_t read_value(reader *r, int depth);

static int has_member(const reader *r, size_t of, const char *key)
{
    return cli_node_member(r->d, &r->d->nodes[of], key) != NULL;
}

/* A member's key and colon; or nothing, of an element. NULL in *key for an element. */
static int read_key(const char **key, reader *r, size_t of)
{
    *key = NULL;
    if (r->d->nodes[of].type == CLI_ARRAY) {
        return 1;
    }
    skip_blanks(r);
    *key = read_string(r);
    if (*key == NULL) {
        return 0;
    }
    if (has_member(r, of, *key)) {
        return (int)refuse(r, "a key is there twice, the second time");
    }
    skip_blanks(r);
    if (*r->at != ':') {
        return (int)refuse(r, "a ':' is missing");
    }
    r->at++;
    return 1;
}

static size_t read_list(reader *r, cli_node_type type, char closing, int depth)
{
    size_t of = add_node(r, (cli_node){.type = type}), last = 0;
    r->at++;
    skip_blanks(r);
    if (of != 0 && *r->at == closing) {
        r->at++;
        return of;
    }
    while (of != 0) {
        const char *key = NULL;
        size_t child = read_key(&key, r, of) ? read_value(r, depth + 1) : 0;
        if (child == 0) {
            return 0;
        }
        r->d->nodes[child].key = key;
        *(last == 0 ? &r->d->nodes[of].child : &r->d->nodes[last].next) = child;
        r->d->nodes[of].count++;
        last = child;
        skip_blanks(r);
        char c = *r->at;
        if (c != ',' && c != closing) {
            return refuse(r, type == CLI_ARRAY ? "a ',' or ']' is missing" : "a ',' or '}' is missing");
        }
        r->at++;
        if (c == closing) {
            return of;
        }
    }
    return 0;
}

static size_t read_value(reader *r, int depth)
{
    skip_blanks(r);
    if (depth > DEPTH_MAX) {
        return refuse(r, "lists are nested too deeply");
    }
    if (*r->at == '{') {
        return read_list(r, CLI_OBJECT, '}', depth);
    }
    if (*r->at == '[') {
        return read_list(r, CLI_ARRAY, ']', depth);
    }
    if (*r->at == '"') {
        const char *text = read_string(r);
        return text != NULL ? add_node(r, (cli_node){.type = CLI_STRING, .text = text}) : 0;
    }
    return *r->at == '-' || (*r->at >= '0' && *r->at <= '9') ? read_number(r) : read_word(r);
}

/* ---- documents ----------------------------------------------------------------------------------------------------- */

int cli_document_read(cli_document *out, char why[96], const void *bytes, size_t len)
{
    *out = (cli_document){0};
    why[0] = '\0';
    out->text = malloc(len + 1);
    if (out->text == NULL) {
        snprintf(why, WHY_CAP, "there is not enough memory");
        return -1;
    }
    memcpy(out->text, bytes, len);
    out->text[len] = '\0';
    reader r = {out, out->text, out->text, why};
    (void)add_node(&r, (cli_node){.type = CLI_NULL}); /* number 0: none */
    if (why[0] == '\0' && read_value(&r, 0) != 0) {
        skip_blanks(&r);
        if ((size_t)(r.at - r.begin) != len) {
            (void)refuse(&r, "something follows the value");
        }
    }
    return why[0] == '\0' ? 0 : -1;
}

void cli_document_free(cli_document *d)
{
    free(d->nodes);
    free(d->text);
    *d = (cli_document){0};
}

const cli_node *cli_node_first(const cli_document *d, const cli_node *of)
{
    return of != NULL && of->child != 0 ? &d->nodes[of->child] : NULL;
}

const cli_node *cli_node_next(const cli_document *d, const cli_node *of)
{
    return of != NULL && of->next != 0 ? &d->nodes[of->next] : NULL;
}

const cli_node *cli_node_member(const cli_document *d, const cli_node *of, const char *key)
{
    if (of == NULL || of->type != CLI_OBJECT) {
        return NULL;
    }
    for (const cli_node *m = cli_node_first(d, of); m != NULL; m = cli_node_next(d, m)) {
        if (strcmp(m->key, key) == 0) {
            return m;
        }
    }
    return NULL;
}
