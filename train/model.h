/* Models: a sequence of layers with parameters, gradients and buffers. A model is used by one thread.
 *
 * All parameters are in one contiguous array, all gradients in another, in the same order; a third array has the buffers that are
 * not learned (running statistics of norms). So a checkpoint, a hash and a comparison need one call each. */
#ifndef TR_MODEL_H
#define TR_MODEL_H

#include "data.h"
#include "tersegrad/tersegrad.h"

#define TR_DIM_MAX 4

/* A parameter: what the exchange needs to know of it. */
typedef struct tr_param {
    char name[64]; /* "conv1.weight" */
    tg_kind kind;
    uint32_t dim_n;
    uint64_t dims[TR_DIM_MAX];
    size_t at, n; /* its offset and length in the arrays */
} tr_param;

typedef struct tr_model tr_model;

/* Names of models, terminated by NULL: "mlp", "lenet", "resnet8", "resnet20", "charlstm". */
extern const char *const tr_model_names[];

/* Returned in place of -1 for settings that can never work: no such model, a model for images given text, a recipe that is not
 * understood or that the exchange cannot carry. */
enum { TR_MISUSE = -3 };

/* A model for data of this shape and batches of up to batch_max samples. Its parameters are drawn from `seed`, the same on every
 * machine. Returns 0, or TR_MISUSE or -1 (out of memory) and an error in `why`. */
int tr_model_new(tr_model **out, const char *name, const tr_shape *shape, size_t batch_max, uint64_t seed,
                 char why[TR_WHY]);
void tr_model_free(tr_model *m);

size_t tr_model_param_n(const tr_model *m);
const tr_param *tr_model_param(const tr_model *m, size_t index);

/* The arrays; *n receives their length. */
float *tr_model_weights(tr_model *m, size_t *n);
float *tr_model_grads(tr_model *m, size_t *n);
float *tr_model_buffers(tr_model *m, size_t *n);

/* The result of a batch. */
typedef struct tr_score {
    double loss;      /* summed over predictions */
    uint64_t correct; /* predictions that were right */
    uint64_t count;   /* predictions: samples, or characters of text */
} tr_score;

/* Called in the backward pass when the gradients of a layer's parameters are complete, for each of them, the last layer first. */
typedef struct tr_ready {
    void (*param)(void *context, size_t index);
    void *context;
} tr_ready;

/* Forward and backward. Overwrites the gradients with those of the mean loss. `ready` may be NULL. */
tr_score tr_model_train(tr_model *m, const tr_batch *batch, const tr_ready *ready);

/* Forward only, with running statistics instead of the batch's. */
tr_score tr_model_test(tr_model *m, const tr_batch *batch);

#endif
