/* Whole models: scores, gradients along random directions, initial values, overfitting a batch, and errors. */
#include "support.h"

#include "layers/layers.h"
#include "model.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 5, SEQUENCE = 4, CLASSES = 6 };

/* A model, and a batch for it. */
typedef struct rig {
    tr_model *model;
    tr_batch batch;
    float *weights, *grads, *buffers, *pixels;
    size_t weight_n, buffer_n;
    int32_t symbols[SAMPLES * SEQUENCE], labels[SAMPLES * SEQUENCE];
} rig;

static tr_shape shape_for(const char *name)
{
    if (strcmp(name, "charlstm") == 0) {
        return (tr_shape){.task = TR_TEXT, .classes = CLASSES, .sequence = SEQUENCE};
    }
    if (strcmp(name, "lenet") == 0) {
        return (tr_shape){TR_IMAGES, 1, 17, 16, CLASSES, 1};
    }
    return (tr_shape){TR_IMAGES, 3, 9, 8, CLASSES, 1};
}

static rig *rig_new(const char *name, uint64_t seed)
{
    test_random r = {seed};
    char why[TR_WHY] = "";
    rig *g = test_room(sizeof *g);
    memset(g, 0, sizeof *g);
    tr_shape shape = shape_for(name);
    if (tr_model_new(&g->model, name, &shape, SAMPLES + 2, seed, why) != 0) {
        fail_msg("%s: %s", name, why);
    }
    g->weights = tr_model_weights(g->model, &g->weight_n);
    g->grads = tr_model_grads(g->model, &g->weight_n);
    g->buffers = tr_model_buffers(g->model, &g->buffer_n);
    size_t pixel_n = SAMPLES * shape.channels * shape.height * shape.width;
    g->pixels = test_room((pixel_n + 1) * sizeof *g->pixels);
    for (size_t i = 0; i < pixel_n; i++) {
        g->pixels[i] = test_gaussian(&r);
    }
    for (size_t i = 0; i < SAMPLES * SEQUENCE; i++) {
        g->symbols[i] = (int32_t)(test_bits(&r) % CLASSES);
        g->labels[i] = (int32_t)(test_bits(&r) % CLASSES);
    }
    g->batch = (tr_batch){SAMPLES, g->pixels, g->symbols, g->labels};
    return g;
}

static void rig_free(rig *g)
{
    tr_model_free(g->model);
    free(g->pixels);
    free(g);
}

static double mean_loss(rig *g)
{
    tr_score score = tr_model_train(g->model, &g->batch, NULL);
    return score.loss / (double)score.count;
}

/* ---- scores ------------------------------------------------------------------------------------------------------------ */

/* Two steps of three samples, five classes; rows are step-major, labels sample-major. */
static void softmax_scores_by_its_definition(void **state)
{
    (void)state;
    test_random r = {14};
    float x[30], grads[30];
    int32_t labels[6];
    for (size_t i = 0; i < 30; i++) {
        x[i] = 2 * test_gaussian(&r);
        labels[i % 6] = (int32_t)(test_bits(&r) % 5);
    }
    tr_batch batch = {.n = 3, .labels = labels};
    tr_signal in = {.channels = 5, .height = 1, .width = 1, .steps = 2, .values = x, .grads = grads};
    tr_score score = tr_softmax(&in, &(tr_pass){.batch = &batch, .n = 3});
    double loss = 0;
    uint64_t correct = 0;
    for (size_t i = 0; i < 30; i++) {
        size_t row = i / 5, label = (size_t)labels[row % 3 * 2 + row / 3];
        double sum = 0;
        bool best = true;
        for (size_t j = 0; j < 5; j++) {
            sum += exp((double)x[row * 5 + j]);
            best = best && x[row * 5 + j] <= x[i];
        }
        double p = exp((double)x[i]) / sum;
        assert_true(fabs((double)grads[i] - (p - (i % 5 == label)) / 6) < 1e-6);
        loss -= i % 5 == label ? log(p) : 0;
        correct += i % 5 == label && best;
    }
    assert_true(fabs(score.loss - loss) < 1e-5);
    assert_int_equal(score.correct, correct);
    assert_int_equal(score.count, 6);
}

static void softmax_survives_large_numbers(void **state)
{
    (void)state;
    float x[] = {-1e30f, 1e4f, 0}, grads[3];
    int32_t label = 2;
    tr_batch batch = {.n = 1, .labels = &label};
    tr_signal in = {.channels = 3, .height = 1, .width = 1, .steps = 1, .values = x, .grads = grads};
    tr_pass pass = {.batch = &batch, .n = 1};
    assert_true(fabs(tr_softmax(&in, &pass).loss - 1e4) < 1);
    assert_true(isfinite(grads[0]) && isfinite(grads[1]) && isfinite(grads[2]));
    x[2] = NAN; /* a model that has diverged must show */
    assert_true(isnan(tr_softmax(&in, &pass).loss));
}

/* ---- gradients --------------------------------------------------------------------------------------------------------- */

static double loss_at(rig *g, const float *from, const float *direction, double step)
{
    for (size_t i = 0; i < g->weight_n; i++) {
        g->weights[i] = from[i] + (float)(step * (double)direction[i]);
    }
    return mean_loss(g);
}

/* Each parameter has directions of its own, so that none can hide behind a larger one. They are mixed with the gradient,
 * as a random direction alone is nearly at a right angle to it. */
static double slope_along(float *direction, const float *grads, const tr_param *p, test_random *r)
{
    double length = 0, slope = 0;
    for (size_t i = 0; i < p->n; i++) {
        length += (double)grads[p->at + i] * (double)grads[p->at + i];
    }
    double noise = 2 * sqrt(length / (double)p->n);
    for (size_t i = 0; i < p->n; i++) {
        direction[p->at + i] = (float)((double)grads[p->at + i] + noise * (double)test_gaussian(r));
    }
    length = 1e-30;
    for (size_t i = p->at; i < p->at + p->n; i++) {
        length += (double)direction[i] * (double)direction[i];
    }
    for (size_t i = p->at; i < p->at + p->n; i++) {
        direction[i] = (float)((double)direction[i] / sqrt(length));
        slope += (double)direction[i] * (double)grads[i];
    }
    return slope;
}

static void check_gradient(const char *name)
{
    test_random r = {3};
    rig *g = rig_new(name, 11);
    float *from = test_room(g->weight_n * sizeof *from), *grads = test_room(g->weight_n * sizeof *grads);
    float *direction = test_room(g->weight_n * sizeof *direction);
    for (size_t i = 0; i < g->weight_n; i++) {
        g->grads[i] = NAN; /* shows an element that is not written */
    }
    (void)mean_loss(g);
    memcpy(from, g->weights, g->weight_n * sizeof *from);
    memcpy(grads, g->grads, g->weight_n * sizeof *grads);
    for (size_t k = 0; k < tr_model_param_n(g->model); k++) {
        const tr_param *p = tr_model_param(g->model, k);
        memset(direction, 0, g->weight_n * sizeof *direction);
        double expected = slope_along(direction, grads, p, &r), step = 2.5e-4;
        double measured = (loss_at(g, from, direction, step) - loss_at(g, from, direction, -step)) / (2 * step);
        /* Corners of ReLU and of pools lie within a step now and then. */
        if (!(fabs(measured - expected) <= 0.03 * fabs(expected) + 1e-3)) {
            fail_msg("%s: along %s the slope is %g, measured %g", name, p->name, expected, measured);
        }
    }
    free(from);
    free(grads);
    free(direction);
    rig_free(g);
}

static void gradients_match_finite_differences(void **state)
{
    (void)state;
    for (size_t i = 0; tr_model_names[i] != NULL; i++) {
        check_gradient(tr_model_names[i]);
    }
}

/* ---- parameters ---------------------------------------------------------------------------------------------------------- */

static const tr_param *find_param(const rig *g, const char *name)
{
    for (size_t i = 0; i < tr_model_param_n(g->model); i++) {
        if (strcmp(tr_model_param(g->model, i)->name, name) == 0) {
            return tr_model_param(g->model, i);
        }
    }
    fail_msg("there is no parameter '%s'", name);
    return NULL;
}

static void parameters_lie_end_to_end(void **state)
{
    (void)state;
    for (size_t k = 0; tr_model_names[k] != NULL; k++) {
        rig *g = rig_new(tr_model_names[k], 1);
        size_t at = 0;
        for (size_t i = 0; i < tr_model_param_n(g->model); i++) {
            const tr_param *p = tr_model_param(g->model, i);
            uint64_t n = 1;
            for (uint32_t d = 0; d < p->dim_n; d++) {
                n *= p->dims[d];
            }
            assert_int_equal(p->at, at);
            assert_int_equal(p->n, n);
            assert_ptr_equal(find_param(g, p->name), p); /* names differ */
            at += p->n;
        }
        assert_int_equal(at, g->weight_n);
        assert_null(tr_model_param(g->model, tr_model_param_n(g->model)));
        rig_free(g);
    }
}

static void parameters_have_their_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *model, *param;
        tg_kind kind;
        uint64_t n;
    } expected[] = {
        {"mlp", "dense1.weight", TG_DENSE, 256 * 216},
        {"mlp", "dense3.bias", TG_BIAS, CLASSES},
        {"lenet", "conv1.weight", TG_CONV, 20 * 25},
        {"lenet", "conv2.bias", TG_BIAS, 50},
        {"resnet8", "norm1.shift", TG_NORM, 16},
        {"resnet8", "stage3.block1.shortcut.weight", TG_CONV, 32 * 64},
        {"resnet20", "stage2.block1.norm1.scale", TG_NORM, 32},
        {"resnet20", "stage3.block3.conv2.weight", TG_CONV, 64 * 64 * 9},
        {"charlstm", "embedding.weight", TG_EMBEDDING, CLASSES * 64},
        {"charlstm", "lstm.recurrent", TG_RECURRENT, 1024 * 256},
        {"charlstm", "lstm.bias", TG_BIAS, 1024},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        rig *g = rig_new(expected[i].model, 1);
        const tr_param *p = find_param(g, expected[i].param);
        assert_int_equal(p->kind, expected[i].kind);
        assert_int_equal(p->n, expected[i].n);
        rig_free(g);
    }
}

static void models_have_their_usual_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        tr_shape shape;
        size_t n;
    } expected[] = {
        {"lenet", {TR_IMAGES, 1, 28, 28, 10, 1}, 431080},
        {"lenet", {TR_IMAGES, 3, 32, 32, 10, 1}, 657080},
        {"mlp", {TR_IMAGES, 1, 28, 28, 10, 1}, 269322},
        {"resnet20", {TR_IMAGES, 3, 32, 32, 10, 1}, 269722 + 2752}, /* of the paper, and two shortcuts */
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        tr_model *m = NULL;
        char why[TR_WHY];
        size_t n = 0;
        assert_int_equal(tr_model_new(&m, expected[i].name, &expected[i].shape, 1, 1, why), 0);
        (void)tr_model_weights(m, &n);
        assert_int_equal(n, expected[i].n);
        tr_model_free(m);
    }
}

/* ---- the same bits ---------------------------------------------------------------------------------------------------------- */

/* Drawn by integers and one product: these bits hold on every machine. */
static void starting_values_are_fixed(void **state)
{
    (void)state;
    rig *a = rig_new("mlp", 5), *b = rig_new("mlp", 6);
    assert_memory_not_equal(a->weights, b->weights, 1000 * sizeof(float));
    double sum = 0, squares = 0;
    const tr_param *p = find_param(a, "dense1.weight");
    for (size_t i = 0; i < p->n; i++) {
        sum += (double)a->weights[i];
        squares += (double)a->weights[i] * (double)a->weights[i];
    }
    assert_true(fabs(sum / (double)p->n) < 0.002);
    assert_true(fabs(squares / (double)p->n * 216 / 2 - 1) < 0.02); /* He: variance 2 / inputs */
    static const float first[] = {-0x1.6becp-6f, -0x1.552ebp-4f, 0x1.b86b6p-5f, 0x1.25efc4p-3f};
    assert_memory_equal(a->weights, first, sizeof first);
    rig_free(a);
    rig_free(b);
}

static void train_a_little(rig *g)
{
    for (int step = 0; step < 3; step++) {
        (void)mean_loss(g);
        for (size_t i = 0; i < g->weight_n; i++) {
            g->weights[i] -= 0.05f * g->grads[i];
        }
    }
}

static void *train_in_thread(void *g)
{
    train_a_little(g);
    return NULL;
}

static void two_threads_come_to_the_same_bits(void **state)
{
    (void)state;
    for (size_t k = 0; tr_model_names[k] != NULL; k++) {
        rig *a = rig_new(tr_model_names[k], 5), *b = rig_new(tr_model_names[k], 5), *c = rig_new(tr_model_names[k], 5);
        assert_memory_equal(a->weights, b->weights, a->weight_n * sizeof(float));
        pthread_t threads[2];
        assert_int_equal(pthread_create(&threads[0], NULL, train_in_thread, a), 0);
        assert_int_equal(pthread_create(&threads[1], NULL, train_in_thread, b), 0);
        train_a_little(c);
        assert_int_equal(pthread_join(threads[0], NULL), 0);
        assert_int_equal(pthread_join(threads[1], NULL), 0);
        assert_memory_equal(a->weights, b->weights, a->weight_n * sizeof(float));
        assert_memory_equal(a->weights, c->weights, a->weight_n * sizeof(float));
        assert_memory_equal(a->buffers, b->buffers, a->buffer_n * sizeof(float));
        rig_free(a);
        rig_free(b);
        rig_free(c);
    }
}

/* ---- learning ---------------------------------------------------------------------------------------------------------------- */

/* Steps down the gradient, with momentum: enough to learn a batch by heart. */
static void learn(rig *g, int steps, float rate)
{
    float *velocity = test_room(g->weight_n * sizeof *velocity);
    memset(velocity, 0, g->weight_n * sizeof *velocity);
    for (int step = 0; step < steps; step++) {
        (void)mean_loss(g);
        for (size_t i = 0; i < g->weight_n; i++) {
            velocity[i] = 0.9f * velocity[i] + g->grads[i];
            g->weights[i] -= rate * velocity[i];
        }
    }
    free(velocity);
}

static void every_model_learns_a_batch_by_heart(void **state)
{
    (void)state;
    for (size_t k = 0; tr_model_names[k] != NULL; k++) {
        rig *g = rig_new(tr_model_names[k], 9);
        bool text = strcmp(tr_model_names[k], "charlstm") == 0;
        for (size_t i = 0; text && i < SAMPLES * SEQUENCE; i++) { /* a rule that can be known from what came before */
            g->labels[i] = i % SEQUENCE == 0 ? g->symbols[i] : g->symbols[i - 1];
        }
        double before = mean_loss(g);
        learn(g, text ? 200 : 60, text ? 0.05f : 0.005f);
        tr_score after = tr_model_train(g->model, &g->batch, NULL);
        if (!(after.loss / (double)after.count < 0.05 && before > 1)) {
            fail_msg("%s: the loss went from %g to %g", tr_model_names[k], before, after.loss / (double)after.count);
        }
        assert_int_equal(after.count, text ? SAMPLES * SEQUENCE : SAMPLES);
        assert_int_equal(after.correct, after.count);
        rig_free(g);
    }
}

/* What was reported in a backward pass: copies of the gradients at that moment. */
typedef struct reports {
    const rig *rig;
    float *copy;
    size_t n, last;
} reports;

static void note_ready(void *context, size_t index)
{
    reports *r = context;
    const tr_param *p = tr_model_param(r->rig->model, index);
    assert_true(index < r->last); /* so every parameter at most once */
    memcpy(r->copy + p->at, r->rig->grads + p->at, p->n * sizeof *r->copy);
    r->last = index;
    r->n++;
}

static void gradients_are_complete_when_reported(void **state)
{
    (void)state;
    for (size_t k = 0; tr_model_names[k] != NULL; k++) {
        rig *g = rig_new(tr_model_names[k], 4);
        size_t param_n = tr_model_param_n(g->model);
        reports r = {g, test_room(g->weight_n * sizeof *r.copy), 0, param_n};
        (void)tr_model_train(g->model, &g->batch, &(tr_ready){note_ready, &r});
        assert_int_equal(r.n, param_n);
        assert_memory_equal(r.copy, g->grads, g->weight_n * sizeof *r.copy);
        free(r.copy);
        rig_free(g);
    }
}

static void tests_change_nothing(void **state)
{
    (void)state;
    rig *g = rig_new("resnet8", 2);
    learn(g, 30, 0.005f);
    float *kept = test_room(g->buffer_n * sizeof *kept);
    memcpy(kept, g->buffers, g->buffer_n * sizeof *kept);
    tr_score all = tr_model_test(g->model, &g->batch), one = {0};
    assert_memory_equal(kept, g->buffers, g->buffer_n * sizeof *kept);
    /* With running statistics, samples are independent of each other. */
    for (size_t s = 0; s < SAMPLES; s++) {
        tr_batch single = {1, g->pixels + s * 3 * 9 * 8, NULL, g->labels + s};
        one.loss += tr_model_test(g->model, &single).loss;
    }
    assert_true(fabs(one.loss - all.loss) < 1e-3 * (1 + all.loss));
    (void)mean_loss(g);
    assert_memory_not_equal(kept, g->buffers, g->buffer_n * sizeof *kept);
    free(kept);
    rig_free(g);
}

/* ---- what is refused ------------------------------------------------------------------------------------------------------------ */

static void check_refusal(const char *name, tr_shape shape, size_t batch, const char *part)
{
    tr_model *m = NULL;
    char why[TR_WHY] = "";
    if (tr_model_new(&m, name, &shape, batch, 1, why) == 0 || strstr(why, part) == NULL || m != NULL) {
        fail_msg("expected '%s', got '%s'", part, why);
    }
}

static void refusals_are_sentences(void **state)
{
    (void)state;
    tr_shape images = {TR_IMAGES, 1, 28, 28, 10, 1}, text = {TR_TEXT, 0, 0, 0, 65, 64}, tiny = images, wrong = images;
    check_refusal("vgg", images, 32, "there is no model 'vgg'; there are mlp, lenet, resnet8, resnet20, charlstm");
    check_refusal("lenet", text, 32, "the model 'lenet' learns from images, but the data are text");
    check_refusal("charlstm", images, 32, "the model 'charlstm' learns from text, but the data are images");
    tiny.height = 12;
    check_refusal("lenet", tiny, 32, "images of 12 x 28 are too small for the model 'lenet', which needs 16 x 16");
    check_refusal("mlp", images, 0, "a batch must have");
    wrong.classes = 0;
    check_refusal("mlp", wrong, 1, "classes");
    wrong = images;
    wrong.width = 0;
    check_refusal("mlp", wrong, 1, "no pixels");
    wrong.width = UINT32_MAX;
    check_refusal("mlp", wrong, 1, "more than 2^24");
    text.sequence = 0;
    check_refusal("charlstm", text, 1, "at least one character");
    images.height = images.width = 4096;
    check_refusal("resnet20", images, 1 << 24, "not enough memory for the model 'resnet20'");
    tr_model_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_scores_by_its_definition),
        cmocka_unit_test(softmax_survives_large_numbers),
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(parameters_lie_end_to_end),
        cmocka_unit_test(parameters_have_their_kinds),
        cmocka_unit_test(models_have_their_usual_sizes),
        cmocka_unit_test(starting_values_are_fixed),
        cmocka_unit_test(two_threads_come_to_the_same_bits),
        cmocka_unit_test(every_model_learns_a_batch_by_heart),
        cmocka_unit_test(gradients_are_complete_when_reported),
        cmocka_unit_test(tests_change_nothing),
        cmocka_unit_test(refusals_are_sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
