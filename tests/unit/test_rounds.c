/* A run with local steps, beside the same done by hand: models, loaders and optimizers of the trainer, averages in one thread. */
#include "support.h"

#include "hash.h"
#include "run.h"

#include <stdlib.h>
#include <string.h>

enum { WORLD = 3, STEPS = 11, BATCH = 4, SEED = 9 };

static int on_step(void *context, const tr_step *step, char why[TR_WHY])
{
    uint64_t *steps = context;
    (void)why;
    *steps += step->steps;
    return 0;
}

static int on_test(void *context, const tr_test *test, char why[TR_WHY])
{
    (void)context, (void)test, (void)why;
    return 0;
}

static tr_settings settings_of(const char *recipe, const char *rounds, const char *outer, tr_rule rule)
{
    tr_settings s = {.model = "mlp", .recipe = recipe, .workers = WORLD, .batch = BATCH, .steps = STEPS, .seed = SEED};
    s.optimizer = tr_optimizer_standard();
    s.optimizer.rule = rule;
    s.optimizer.rate = rule == TR_ADAM ? 0.001 : 0.05;
    s.optimizer.steps = STEPS;
    MUST(tg_schedule_read(&s.local, rounds, why));
    MUST(tg_outer_read(&s.outer, outer, why));
    return s;
}

typedef struct hand {
    tr_model *model;
    tr_optimizer *optimizer;
    tr_loader *loader;
    tg_exchange *exchange;
    void **moves;
} hand;

static void open_hand(hand *h, const tr_settings *s, const tr_data *data, uint32_t rank)
{
    char why_text[TR_WHY] = "";
    tr_shape shape = tr_data_shape(data);
    assert_int_equal(tr_model_new(&h->model, s->model, &shape, 100, s->seed, why_text), 0);
    assert_int_equal(tr_optimizer_new(&h->optimizer, h->model, &s->optimizer, why_text), 0);
    assert_int_equal(tr_loader_new(&h->loader, data, 100, why_text), 0);
    size_t n = tr_model_param_n(h->model), all = 0;
    tg_tensor *tensors = calloc(n, sizeof *tensors);
    h->moves = calloc(n, sizeof *h->moves);
    for (size_t p = 0; p < n; p++) {
        const tr_param *param = tr_model_param(h->model, p);
        tensors[p] = (tg_tensor){param->name, param->dims, param->dim_n, param->kind, TG_FP32};
        h->moves[p] = tr_model_grads(h->model, &all) + param->at;
    }
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = s->seed;
    MUST(tg_exchange_new(&h->exchange, s->recipe, tensors, n, rank, WORLD, &opt, why));
    free(tensors);
}

static void close_hand(hand *h)
{
    tg_exchange_free(h->exchange);
    free(h->moves);
    tr_loader_free(h->loader);
    tr_optimizer_free(h->optimizer);
    tr_model_free(h->model);
}

/* W and V as the definition says, in plain loops. */
static void end_round(hand *hands, float *shared, float *velocity, size_t n, const tg_outer *o, uint64_t round)
{
    tg_exchange *ranks[WORLD];
    void *const *moves[WORLD];
    for (int r = 0; r < WORLD; r++) {
        float *weights = tr_model_weights(hands[r].model, &n), *grads = tr_model_grads(hands[r].model, &n);
        for (size_t i = 0; i < n; i++) {
            grads[i] = shared[i] - weights[i];
        }
        ranks[r] = hands[r].exchange;
        moves[r] = hands[r].moves;
    }
    MUST(tg_lockstep_reduce(NULL, ranks, WORLD, round, moves, NULL, why));
    const float *average = tr_model_grads(hands[0].model, &n);
    for (size_t i = 0; i < n; i++) {
        velocity[i] = o->momentum * velocity[i] + average[i];
        shared[i] -= o->rate * (average[i] + o->momentum * velocity[i]);
    }
    for (int r = 0; r < WORLD; r++) {
        memcpy(tr_model_weights(hands[r].model, &n), shared, n * sizeof *shared);
    }
}

static uint64_t train_by_hand(const tr_settings *s, const tr_data *data)
{
    hand hands[WORLD];
    size_t n = 0;
    for (uint32_t r = 0; r < WORLD; r++) {
        open_hand(&hands[r], s, data, r);
    }
    const float *first = tr_model_weights(hands[0].model, &n);
    float *shared = test_room(n * sizeof *shared), *velocity = calloc(n, sizeof *velocity);
    memcpy(shared, first, n * sizeof *shared);
    for (uint64_t step = 0; step < STEPS; step++) {
        tg_round round;
        tg_schedule_round(&round, &s->local, step);
        for (uint32_t r = 0; r < WORLD; r++) {
            tr_draw draw = {.seed = s->seed, .step = step, .worker = r, .workers = WORLD, .batch = s->batch};
            tr_batch batch = tr_loader_train(hands[r].loader, &draw);
            (void)tr_model_train(hands[r].model, &batch, NULL);
            tr_optimizer_step(hands[r].optimizer, hands[r].model, step);
        }
        if (step + 1 == round.first + round.steps || step + 1 == STEPS) {
            end_round(hands, shared, velocity, n, &s->outer, round.number);
        }
    }
    uint64_t hash = tr_hash(0, shared, n * sizeof *shared);
    for (uint32_t r = 0; r < WORLD; r++) {
        close_hand(&hands[r]);
    }
    free(velocity);
    free(shared);
    return hash;
}

static void check(const char *recipe, const char *rounds, const char *outer, tr_rule rule)
{
    tr_data *data = NULL;
    char why_text[TR_WHY] = "";
    assert_int_equal(tr_data_open(&data, "glyphs", why_text), 0);
    tr_settings s = settings_of(recipe, rounds, outer, rule);
    tr_result result = {0};
    uint64_t told = 0;
    const tr_hooks hooks = {.context = &told, .step = on_step, .test = on_test};
    if (tr_run(&result, &s, data, &hooks, NULL, 0, why_text) != 0) {
        fail_msg("%s", why_text);
    }
    assert_int_equal(told, STEPS);
    assert_int_equal(result.weights_hash, train_by_hand(&s, data));
    tr_data_free(data);
}

static void a_run_is_as_done_by_hand(void **state)
{
    (void)state;
    check("dense", "4", "average", TR_SGD);
    check("ef+topk@0.05", "1,3:4", "nesterov", TR_SGD);
    check("adacomp", "2,4:5", "nesterov@lr=1,momentum=0.5", TR_ADAM);
    check("ef+topk@0.05,coords=shared", "2", "average", TR_ADAM); /* leaders change from round to round */
    check("ef+randomblock@0.1", "3", "average", TR_SGD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_as_done_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
