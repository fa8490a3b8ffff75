/* Optimizers: what a step makes of the averaged gradient. State lies in one array, so that it saves and loads whole. */
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
    uint64_t steps;      /* of the whole run, for cosine, which ends near 0 */
    double drop;         /* TR_STEP: factor ... */
    uint64_t drop_every; /* ... after so many steps each */
} tr_optimizer_options;

/* SGD with momentum 0.9, rate 0.05, no decay, cosine without warm-up. */
tr_optimizer_options tr_optimizer_standard(void);

/* The rate at a step, from 0. */
double tr_optimizer_rate(const tr_optimizer_options *o, uint64_t step);

typedef struct tr_optimizer tr_optimizer;
int tr_optimizer_new(tr_optimizer **out, const tr_model *m, const tr_optimizer_options *o, char why[TR_WHY]);
void tr_optimizer_free(tr_optimizer *o);

/* Moves the model's weights by its gradients, in a fixed order of operations: the same bits on every replica. */
void tr_optimizer_step(tr_optimizer *o, tr_model *m, uint64_t step);

/* Moments; *n receives their number. */
float *tr_optimizer_state(tr_optimizer *o, size_t *n);

#endif
