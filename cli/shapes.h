/* The shapes of a model's tensors, for measurements: COUNTxELEMENTS as text, or a file with a line a tensor, as in bench/shapes. */
#ifndef CLI_SHAPES_H
#define CLI_SHAPES_H

#include <stddef.h>
#include <stdint.h>

#include "tersegrad/tersegrad.h"

typedef struct cli_shapes {
    tg_tensor *tensors; /* all of one kind, so that a recipe applies to each of them */
    size_t tensor_n;
    uint64_t *dims;
    char *names;
    uint64_t element_n;
} cli_shapes;

/* Reads `text`, or the file of that name. Reports what is wrong. Free `out` in any case. */
int cli_shapes_read(cli_shapes *out, const char *text, tg_dtype dtype);
void cli_shapes_free(cli_shapes *s);

#endif
