/* Optimizers against a few lines of their definitions, and rates at the steps that matter. */
#include "support.h"

#include "optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tr_model *new_model(void)
{
    tr_shape shape = {TR_IMAGES, 1, 4, 4, 3, 1}; /* with a norm, biases and weights of two kinds */
    tr_model *m = NULL;
    char why[TR_WHY] = "";
    if (tr_model_new(&m, "resnet8", &shape, 1, 1, why) != 0) {
        fail_msg("%s", why);
    }
    return m;
}

static tr_optimizer *new_optimizer(const tr_model *m, const tr_optimizer_options *o)
{
    tr_optimizer *optimizer = NULL;
    char why[TR_WHY] = "";
    if (tr_optimizer_new(&optimizer, m, o, why) != 0) {
        fail_msg("%s", why);
    }
    return optimizer;
}

static tr_optimizer_options constant(tr_rule rule)
{
    tr_optimizer_options o = tr_optimizer_standard();
    o.rule = rule;
    o.decline = TR_CONSTANT;
    o.weight_decay = 0.01;
    return o;
}

/* ---- steps ------------------------------------------------------------------------------------------------------------- */

/* What is known of one weight. */
typedef struct point {
    double weight, first, second;
} point;

static void move_sgd(point *p, const tr_optimizer_options *o, double gradient, double decay, uint64_t step)
{
    (void)step;
    gradient += decay * p->weight;
    p->first = o->momentum * p->first + gradient;
    p->weight -= o->rate * (o->nesterov ? gradient + o->momentum * p->first : p->first);
}

static void move_adam(point *p, const tr_optimizer_options *o, double gradient, double decay, uint64_t step)
{
    p->first = o->beta1 * p->first + (1 - o->beta1) * gradient;
    p->second = o->beta2 * p->second + (1 - o->beta2) * gradient * gradient;
    double mean = p->first / (1 - pow(o->beta1, (double)step + 1));
    double square = p->second / (1 - pow(o->beta2, (double)step + 1));
    p->weight -= o->rate * (mean / (sqrt(square) + o->epsilon) + decay * p->weight);
}

static double decay_at(const tr_model *m, size_t i, const tr_optimizer_options *o)
{
    size_t k = 0;
    while (tr_model_param(m, k)->at + tr_model_param(m, k)->n <= i) {
        k++;
    }
    tg_kind kind = tr_model_param(m, k)->kind;
    return kind == TG_NORM || kind == TG_BIAS ? 0 : o->weight_decay;
}

static void check_steps(const tr_optimizer_options *o,
                        void (*move)(point *, const tr_optimizer_options *, double, double, uint64_t))
{
    test_random r = {1};
    tr_model *m = new_model();
    tr_optimizer *optimizer = new_optimizer(m, o);
    size_t n = 0;
    float *weights = tr_model_weights(m, &n), *grads = tr_model_grads(m, &n);
    point *points = test_room(n * sizeof *points);
    for (size_t i = 0; i < n; i++) {
        points[i] = (point){.weight = (double)weights[i]};
    }
    for (uint64_t step = 0; step < 5; step++) {
        for (size_t i = 0; i < n; i++) {
            grads[i] = test_gaussian(&r);
            move(&points[i], o, (double)grads[i], decay_at(m, i, o), step);
        }
        tr_optimizer_step(optimizer, m, step);
    }
    for (size_t i = 0; i < n; i++) {
        assert_true(fabs((double)weights[i] - points[i].weight) < 1e-5 * (1 + fabs(points[i].weight)));
    }
    free(points);
    tr_optimizer_free(optimizer);
    tr_model_free(m);
}

static void sgd_follows_its_rule(void **state)
{
    (void)state;
    tr_optimizer_options o = constant(TR_SGD);
    check_steps(&o, move_sgd);
    o.nesterov = 1;
    check_steps(&o, move_sgd);
    o.nesterov = 0;
    o.momentum = 0;
    check_steps(&o, move_sgd);
}

static void adam_follows_its_rule(void **state)
{
    (void)state;
    tr_optimizer_options o = constant(TR_ADAM);
    o.rate = 0.003;
    check_steps(&o, move_adam);
}

/* A run that is resumed from saved weights and state ends in the same bits. */
static void state_is_all_there_is(void **state)
{
    (void)state;
    for (int rule = TR_SGD; rule <= TR_ADAM; rule++) {
        tr_optimizer_options o = constant((tr_rule)rule);
        tr_model *a = new_model(), *b = new_model();
        tr_optimizer *run = new_optimizer(a, &o), *resumed = new_optimizer(b, &o);
        size_t n = 0, state_n = 0;
        float *weights = tr_model_weights(a, &n), *other = tr_model_weights(b, &n);
        for (size_t i = 0; i < n; i++) {
            tr_model_grads(a, &n)[i] = tr_model_grads(b, &n)[i] = 0.001f * (float)(i % 100);
        }
        tr_optimizer_step(run, a, 0);
        memcpy(other, weights, n * sizeof *weights);
        float *from = tr_optimizer_state(run, &state_n), *to = tr_optimizer_state(resumed, &state_n);
        assert_int_equal(state_n, rule == TR_ADAM ? 2 * n : n);
        memcpy(to, from, state_n * sizeof *to);
        tr_optimizer_step(run, a, 1);
        tr_optimizer_step(resumed, b, 1);
        assert_memory_equal(weights, other, n * sizeof *weights);
        tr_optimizer_free(run);
        tr_optimizer_free(resumed);
        tr_model_free(a);
        tr_model_free(b);
    }
}

/* ---- rates --------------------------------------------------------------------------------------------------------------- */

static void check_rate(const tr_optimizer_options *o, uint64_t step, double expected)
{
    double rate = tr_optimizer_rate(o, step);
    if (!(fabs(rate - expected) <= 1e-14)) {
        fail_msg("the rate at step %d is %.17g, not %.17g", (int)step, rate, expected);
    }
}

static void rates_decline(void **state)
{
    (void)state;
    tr_optimizer_options o = tr_optimizer_standard();
    o.rate = 0.4;
    o.warmup = 4;
    o.steps = 104;
    for (uint64_t step = 0; step < 4; step++) {
        check_rate(&o, step, 0.1 * (double)(step + 1));
    }
    for (uint64_t step = 4; step < 104; step++) {
        check_rate(&o, step, 0.2 * (1 + cos(3.14159265358979323846 * (double)(step - 4) / 100)));
    }
    check_rate(&o, 104, 0);
    check_rate(&o, 1000, 0);
    o.decline = TR_STEP;
    o.drop = 0.5;
    o.drop_every = 10;
    o.warmup = 0;
    check_rate(&o, 0, 0.4);
    check_rate(&o, 9, 0.4);
    check_rate(&o, 10, 0.2);
    check_rate(&o, 35, 0.05);
    o.decline = TR_CONSTANT;
    check_rate(&o, 0, 0.4);
    check_rate(&o, UINT64_MAX, 0.4);
}

static void standard_is_as_written(void **state)
{
    (void)state;
    tr_optimizer_options o = tr_optimizer_standard();
    assert_true(o.rule == TR_SGD && o.momentum == 0.9 && o.rate == 0.05 && o.weight_decay == 0);
    assert_true(o.decline == TR_COSINE && o.warmup == 0 && o.nesterov == 0);
}

/* ---- what is refused -------------------------------------------------------------------------------------------------------- */

static void check_refusal(const tr_optimizer_options *o, const char *part)
{
    tr_model *m = new_model();
    tr_optimizer *optimizer = NULL;
    char why[TR_WHY] = "";
    if (tr_optimizer_new(&optimizer, m, o, why) != -1 || strstr(why, part) == NULL || optimizer != NULL) {
        fail_msg("expected '%s', got '%s'", part, why);
    }
    tr_model_free(m);
}

static void refusals_are_sentences(void **state)
{
    (void)state;
    tr_optimizer_options good = constant(TR_SGD), o = good;
    o.rate = NAN;
    check_refusal(&o, "the rate must be");
    o = good;
    o.momentum = 1;
    check_refusal(&o, "momentum must be");
    o = good;
    o.momentum = 0;
    o.nesterov = 1;
    check_refusal(&o, "Nesterov");
    o = good;
    o.weight_decay = -1;
    check_refusal(&o, "weight decay");
    o = good;
    o.decline = TR_COSINE;
    check_refusal(&o, "cosine schedule needs more steps");
    o.decline = TR_STEP;
    check_refusal(&o, "step schedule needs");
    o = constant(TR_ADAM);
    o.beta2 = 1;
    check_refusal(&o, "betas");
    o = constant(TR_ADAM);
    o.epsilon = 0;
    check_refusal(&o, "epsilon");
    tr_optimizer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_follows_its_rule),   cmocka_unit_test(adam_follows_its_rule),
        cmocka_unit_test(state_is_all_there_is),  cmocka_unit_test(rates_decline),
        cmocka_unit_test(standard_is_as_written), cmocka_unit_test(refusals_are_sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
