/* Shapes of tensors; see shapes.h. A line of a file is "NAME DIMxDIMx...". Empty lines, and what follows a '#', are left out. */
#include "shapes.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "file.h"

enum { TENSOR_MAX = 1000000, DIM_MAX = 8, NAME_CAP = 24 };
#define ELEMENT_MAX (UINT64_C(1) << 40) /* of all tensors together, as of --n */

/* Reads "AxBx..." into dims; returns their number, 0 if that is not what it is. */
static size_t read_dims(uint64_t dims[DIM_MAX], const char *text)
{
    uint64_t product = 1;
    for (size_t n = 0; n < DIM_MAX; n++, text++) {
        char *end = NULL;
        if (*text < '1' || *text > '9') {
            return 0;
        }
        dims[n] = strtoull(text, &end, 10);
        if (dims[n] > ELEMENT_MAX / product) {
            return 0;
        }
        product *= dims[n];
        text = end;
        if (*text == '\0') {
            return n + 1;
        }
        if (*text != 'x') {
            return 0;
        }
    }
    return 0;
}

static int acquire(cli_shapes *s, size_t tensor_n, size_t name_len)
{
    s->tensors = calloc(tensor_n + 1, sizeof *s->tensors);
    s->dims = calloc(tensor_n * DIM_MAX + 1, sizeof *s->dims);
    s->names = malloc(name_len + 1);
    return s->tensors != NULL && s->dims != NULL && s->names != NULL ? CLI_OK : cli_fail_memory();
}

/* Adds a tensor whose dims are in place. */
static int add(cli_shapes *s, const char *name, size_t dim_n, tg_dtype dtype)
{
    uint64_t *dims = s->dims + s->tensor_n * DIM_MAX, n = 1;
    for (size_t d = 0; d < dim_n; d++) {
        n *= dims[d];
    }
    s->tensors[s->tensor_n++] = (tg_tensor){name, dims, (uint32_t)dim_n, TG_DENSE, dtype};
    s->element_n += n;
    return s->element_n <= ELEMENT_MAX ? CLI_OK : cli_fail(CLI_FAILED, "--shapes has more than 2^40 elements");
}

/* `count` tensors of n elements. */
static int make_equal(cli_shapes *s, uint64_t count, uint64_t n, tg_dtype dtype)
{
    if (count > TENSOR_MAX) {
        return cli_fail(CLI_MISUSE, "--shapes has %" PRIu64 " tensors; %d are the most", count, TENSOR_MAX);
    }
    int code = acquire(s, (size_t)count, (size_t)count * NAME_CAP);
    for (size_t t = 0; t < count && code == CLI_OK; t++) {
        char *name = s->names + t * NAME_CAP;
        snprintf(name, NAME_CAP, "t%zu", t);
        s->dims[t * DIM_MAX] = n;
        code = add(s, name, 1, dtype);
    }
    return code;
}

static int read_line(cli_shapes *s, char *line, tg_dtype dtype)
{
    static const char blanks[] = " \t\r";
    line[strcspn(line, "#")] = '\0';
    char *name = line + strspn(line, blanks);
    if (*name == '\0') {
        return CLI_OK;
    }
    char *end = name + strcspn(name, blanks), *dims = end + strspn(end, blanks), *rest = dims + strcspn(dims, blanks);
    bool has_more = rest[strspn(rest, blanks)] != '\0';
    *end = '\0';
    *rest = '\0';
    size_t dim_n = read_dims(s->dims + s->tensor_n * DIM_MAX, dims);
    if (dim_n == 0 || has_more) {
        return cli_fail(CLI_FAILED, "a line is a name and dimensions, such as 'conv1 64x3x7x7'");
    }
    return add(s, name, dim_n, dtype);
}

static int read_file(cli_shapes *s, const char *path, tg_dtype dtype)
{
    uint8_t *bytes = NULL;
    size_t len = 0, lines = 1;
    int code = cli_file_read(&bytes, &len, path);
    if (code != CLI_OK) {
        return code;
    }
    for (size_t i = 0; i < len; i++) {
        lines += bytes[i] == '\n';
    }
    code = lines <= TENSOR_MAX ? acquire(s, lines, len)
                               : cli_fail(CLI_FAILED, "%s has more than %d lines", path, TENSOR_MAX);
    if (code == CLI_OK) {
        memcpy(s->names, bytes, len);
        s->names[len] = '\0';
    }
    free(bytes);
    char *line = s->names, *end = line;
    for (size_t number = 1; code == CLI_OK && end != NULL; number++, line = end + 1) {
        end = strchr(line, '\n');
        if (end != NULL) {
            *end = '\0';
        }
        cli_fail_in(path, number);
        code = read_line(s, line, dtype);
        if (end == NULL) {
            break;
        }
    }
    cli_fail_in(NULL, 0);
    return code != CLI_OK || s->tensor_n > 0 ? code : cli_fail(CLI_FAILED, "%s names no tensor", path);
}

int cli_shapes_read(cli_shapes *out, const char *text, tg_dtype dtype)
{
    uint64_t dims[DIM_MAX];
    *out = (cli_shapes){0};
    size_t dim_n = read_dims(dims, text);
    return dim_n == 2 ? make_equal(out, dims[0], dims[1], dtype) : read_file(out, text, dtype);
}

void cli_shapes_free(cli_shapes *s)
{
    free(s->tensors);
    free(s->dims);
    free(s->names);
    *s = (cli_shapes){0};
}
