/* Gradients of a model from .npy files: one tensor a file, named after the file. */
#ifndef CLI_MODEL_H
#define CLI_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "tersegrad/tersegrad.h"

typedef struct cli_model {
    tg_tensor *tensors; /* their names and dims belong to the model */
    void **grads;       /* grads[t]: the elements of tensor t in its dtype, aligned for it */
    uint8_t **files;    /* files[t]: the bytes that grads[t] points into */
    size_t tensor_n;
    uint64_t element_n;
    uint64_t len; /* bytes of gradient */
} cli_model;

/* Loads files in the order given; a directory stands for the *.npy files in it, sorted by name, hidden ones
 * left out. Refuses two tensors of one name, and a directory without any. */
int cli_model_load(cli_model *out, const char *const *paths, size_t path_n);

/* The same for one file; refuses one without elements, with which nothing can be measured. */
int cli_model_load_one(cli_model *out, const char *path);

void cli_model_free(cli_model *m);

/* The name that a tensor gets from the path of its file, "conv1" from "layers/conv1.npy"; the caller frees
 * it, and NULL means that memory ran out. */
char *cli_model_stem(const char *path);

#endif
