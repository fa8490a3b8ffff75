/* SGD with momentum (Sutskever et al. 2013, in the form that multiplies the velocity by the rate), Adam (Kingma and Ba 2015) with
 * decoupled weight decay (Loshchilov and Hutter 2019), and learning-rate schedules.
 *
 * Only +, -, *, / and square roots are used, which give the same bits on every machine; cosines and powers of a math library
 * need not. */
#include "optimizer.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct tr_optimizer {
    tr_optimizer_options options;
    size_t weight_n, state_n;
    float *state; /* SGD: velocities. Adam: means, then mean squares. */
};

tr_optimizer_options tr_optimizer_standard(void)
{
    return (tr_optimizer_options){
        .rule = TR_SGD,
        .rate = 0.05,
        .momentum = 0.9,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .epsilon = 1e-8,
        .decline = TR_COSINE,
        .drop = 0.1,
    };
}

/* ---- the rate ------------------------------------------------------------------------------------------------------------ */

/* base^exponent by squaring. */
static double power(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent > 0; exponent >>= 1, base *= base) {
        result *= exponent & 1 ? base : 1;
    }
    return result;
}

/* (1 + cos(pi x)) / 2 for x from 0 to 1. cos(pi x) = -sin(pi (x - 1/2)), whose series is short there. */
static double half_cosine(double x)
{
    double angle = 3.14159265358979323846 * (x - 0.5), term = angle, sine = 0;
    for (int k = 1; k < 24; k += 2) {
        sine += term;
        term *= -angle * angle / ((k + 1) * (k + 2));
    }
    return (1 - sine) / 2;
}

double tr_optimizer_rate(const tr_optimizer_options *o, uint64_t step)
{
    if (step < o->warmup) {
        return o->rate * (double)(step + 1) / (double)o->warmup;
    }
    if (o->decline == TR_STEP) {
        return o->rate * power(o->drop, step / o->drop_every);
    }
    if (o->decline == TR_COSINE) {
        return step >= o->steps ? 0
                                : o->rate * half_cosine((double)(step - o->warmup) / (double)(o->steps - o->warmup));
    }
    return o->rate;
}

/* ---- creation -------------------------------------------------------------------------------------------------------------- */

/* The first invalid option, or NULL. Conditions are written so that NaN is invalid. */
static const char *find_fault(const tr_optimizer_options *o)
{
    if (!(o->rate > 0 && o->rate <= 1e6)) {
        return "the rate must be above 0";
    }
    if (!(o->weight_decay >= 0 && o->weight_decay <= 1e6)) {
        return "weight decay must be at least 0";
    }
    if (o->rule == TR_SGD && !(o->momentum >= 0 && o->momentum < 1)) {
        return "momentum must be from 0 to below 1";
    }
    if (o->rule == TR_SGD && o->nesterov && o->momentum == 0) {
        return "Nesterov momentum needs a momentum above 0";
    }
    if (o->rule == TR_ADAM && !(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1)) {
        return "the betas of Adam must be from 0 to below 1";
    }
    if (o->rule == TR_ADAM && !((float)o->epsilon > 0)) {
        return "the epsilon of Adam must be above 0";
    }
    if (o->decline == TR_COSINE && o->steps <= o->warmup) {
        return "a cosine schedule needs more steps than the warm-up has";
    }
    if (o->decline == TR_STEP && (o->drop_every == 0 || !(o->drop > 0 && o->drop <= 1))) {
        return "a step schedule needs a factor above 0 and at most 1, and the number of steps after which the rate "
               "drops";
    }
    return NULL;
}

/* The weights end with the last parameter. */
static size_t count_weights(const tr_model *m)
{
    size_t n = tr_model_param_n(m);
    return n == 0 ? 0 : tr_model_param(m, n - 1)->at + tr_model_param(m, n - 1)->n;
}

int tr_optimizer_new(tr_optimizer **out, const tr_model *m, const tr_optimizer_options *options, char why[TR_WHY])
{
    const char *fault = find_fault(options);
    if (fault != NULL) {
        (void)snprintf(why, TR_WHY, "%s", fault);
        return -1;
    }
    tr_optimizer *o = calloc(1, sizeof *o);
    if (o != NULL) {
        o->options = *options;
        o->weight_n = count_weights(m);
        o->state_n = o->weight_n * (options->rule == TR_ADAM ? 2 : 1);
        o->state = calloc(o->state_n, sizeof *o->state);
    }
    if (o == NULL || o->state == NULL) {
        (void)snprintf(why, TR_WHY, "there is not enough memory for the optimizer");
        tr_optimizer_free(o);
        return -1;
    }
    *out = o;
    return 0;
}

void tr_optimizer_free(tr_optimizer *o)
{
    if (o != NULL) {
        free(o->state);
        free(o);
    }
}

float *tr_optimizer_state(tr_optimizer *o, size_t *n)
{
    *n = o->state_n;
    return o->state;
}

/* ---- steps ------------------------------------------------------------------------------------------------------------------- */

static void step_sgd(const tr_optimizer_options *o, float rate, float decay, float *restrict weights,
                     float *restrict velocities, const float *restrict grads, size_t n)
{
    float momentum = (float)o->momentum;
    bool nesterov = o->nesterov != 0;
    for (size_t i = 0; i < n; i++) {
        float g = grads[i] + decay * weights[i];
        velocities[i] = momentum * velocities[i] + g;
        weights[i] -= rate * (nesterov ? g + momentum * velocities[i] : velocities[i]);
    }
}

static void step_adam(const tr_optimizer_options *o, uint64_t step, float rate, float decay, float *restrict weights,
                      float *restrict means, float *restrict squares, const float *restrict grads, size_t n)
{
    float beta1 = (float)o->beta1, beta2 = (float)o->beta2, epsilon = (float)o->epsilon;
    float rest1 = (float)(1 - o->beta1), rest2 = (float)(1 - o->beta2);
    /* Bias correction: both averages started at 0. */
    float unbias1 = (float)(1 / (1 - power(o->beta1, step + 1))),
          unbias2 = (float)(1 / (1 - power(o->beta2, step + 1)));
    for (size_t i = 0; i < n; i++) {
        means[i] = beta1 * means[i] + rest1 * grads[i];
        squares[i] = beta2 * squares[i] + rest2 * grads[i] * grads[i];
        float move = means[i] * unbias1 / (sqrtf(squares[i] * unbias2) + epsilon);
        weights[i] -= rate * (move + decay * weights[i]);
    }
}

void tr_optimizer_step(tr_optimizer *o, tr_model *m, uint64_t step)
{
    size_t n = 0;
    float *weights = tr_model_weights(m, &n), *grads = tr_model_grads(m, &n);
    float rate = (float)tr_optimizer_rate(&o->options, step);
    for (size_t i = 0; i < tr_model_param_n(m); i++) {
        const tr_param *p = tr_model_param(m, i);
        bool decays = p->kind != TG_NORM && p->kind != TG_BIAS;
        float decay = decays ? (float)o->options.weight_decay : 0;
        float *first = o->state + p->at;
        if (o->options.rule == TR_SGD) {
            step_sgd(&o->options, rate, decay, weights + p->at, first, grads + p->at, p->n);
        } else {
            step_adam(&o->options, step, rate, decay, weights + p->at, first, first + o->weight_n, grads + p->at, p->n);
        }
    }
}
