/* Models: layers in a row, with everything that they need to learn. One model serves one thread.
 *
 * All parameters lie end to end in one array, all gradients in another, in the same order; so do the buffers that are not
 * learned (running statistics of norms). That makes a checkpoint, a hash and a comparison one call each. */
#ifndef TR_MODEL_H
#define TR_MODEL_H

#include "data.h"
#include "tersegrad/tersegrad.h"

#define TR_DIM_MAX 4

/* A parameter, as the exchange wants to know it. */
typedef struct tr_param {
    char name[64]; /* "conv1.weight" */
    tg_kind kind;
    uint32_t dim_n;
    uint64_t dims[TR_DIM_MAX];
    size_t at, n; /* its place in the arrays */
} tr_param;

typedef struct tr_model tr_model;

/* Names of models, a NULL at the end: "mlp", "lenet", "resnet8", "resnet20", "charlstm". */
extern const char *const tr_model_names[];

/* What a function here answers, in place of -1, to settings that can never work: no such model, a model for images given
 * text, a recipe that is not understood or that the exchange cannot carry. */
enum { TR_MISUSE = -3 };

/* A model for data of this shape and batches of up to batch_max samples. Its parameters are drawn from `seed`, alike on
 * every machine. 0, or TR_MISUSE or -1 (no memory) and one sentence in `why`. */
int tr_model_new(tr_model **out, const char *name, const tr_shape *shape, size_t batch_max, uint64_t seed,
                 char why[TR_WHY]);
void tr_model_free(tr_model *m);

size_t tr_model_param_n(const tr_model *m);
const tr_param *tr_model_param(const tr_model *m, size_t index);

/* The arrays; *n receives their length. */
float *tr_model_weights(tr_model *m, size_t *n);
float *tr_model_grads(tr_model *m, size_t *n);
float *tr_model_buffers(tr_model *m, size_t *n);

/* What a batch came to. */
typedef struct tr_score {
    double loss;      /* summed over predictions */
    uint64_t correct; /* predictions that were right */
    uint64_t count;   /* predictions: samples, or characters of text */
} tr_score;

/* Forward and backward: the gradients of the mean loss replace what was in the array. */
tr_score tr_model_train(tr_model *m, const tr_batch *batch);

/* Forward alone, with running statistics in place of the batch's. */
tr_score tr_model_test(tr_model *m, const tr_batch *batch);

#endif
