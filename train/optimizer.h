/* Optimizers: update the weights with the averaged gradient. The state is one array, so that it is saved and loaded at once. */
#ifndef TR_OPTIMIZER_H
#define TR_OPTIMIZER_H

#include "model.h"

typedef enum tr_rule { TR_SGD, TR_ADAM } tr_rule;
typedef enum tr_decline { TR_CONSTANT, TR_STEP, TR_COSINE } tr_decline;

typedef struct tr_optimizer_options {
    tr_rule rule;
    double rate;
    double momentum;              /* of SGD */
    int nesterov;                 /* of SGD */
    double beta1, beta2, epsilon; /* of Adam */
    double weight_decay;          /* of all parameters but norms and biases; decoupled in Adam (AdamW) */
    tr_decline decline;
    uint64_t warmup;     /* steps in which the rate grows linearly from rate / warmup */
    uint64_t steps;      /* TR_COSINE: of the whole run, at the end of which the rate is near 0 */
    double drop;         /* TR_STEP: factor of each drop */
    uint64_t drop_every; /* TR_STEP: steps between drops */
} tr_optimizer_options;

/* SGD with momentum 0.9, rate 0.05, no decay, cosine without warm-up. */
tr_optimizer_options tr_optimizer_standard(void);

/* The learning rate at a step; the first step is 0. */
double tr_optimizer_rate(const tr_optimizer_options *o, uint64_t step);

typedef struct tr_optimizer tr_optimizer;
int tr_optimizer_new(tr_optimizer **out, const tr_model *m, const tr_optimizer_options *o, char why[TR_WHY]);
void tr_optimizer_free(tr_optimizer *o);

/* Updates the model's weights with its gradients. The order of operations is fixed: the same bits on every replica. */
void tr_optimizer_step(tr_optimizer *o, tr_model *m, uint64_t step);

/* Moments; *n receives their number. */
float *tr_optimizer_state(tr_optimizer *o, size_t *n);

#endif
