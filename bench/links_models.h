/* The tensors of models that bench_links averages. */
#ifndef TG_BENCH_LINKS_MODELS_H
#define TG_BENCH_LINKS_MODELS_H

#include <stdbool.h>
#include <tersegrad/tersegrad.h>

enum { TENSOR_MAX = 400 };

typedef struct shapes {
    tg_tensor tensors[TENSOR_MAX];
    uint64_t dims[TENSOR_MAX][4];
    char names[TENSOR_MAX][64];
    size_t tensor_n;
    uint64_t n;
} shapes;

/* Adds the tensors of resnet50, gpt, small or a built-in model of the trainer. False: there is no such model. */
bool add_model(shapes *s, const char *name);

/* Writes the tensors to a file, as JSON for `tersegrad plan --shapes`. False: that failed. */
bool write_shapes(const shapes *s, const char *path);

#endif
