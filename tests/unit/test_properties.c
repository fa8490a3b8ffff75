/* Properties of every preset, in worlds of 1 to 16 ranks, over lockstep and threads, for random shapes, gradients of several
 * kinds and all dtypes:
 *
 *   - replicas: after each step all ranks hold the same bits, and the same over both links, residuals included;
 *   - conservation, if a tensor's recipe has feedback or sends every value unchanged: the mean gradient plus the mean of the old
 *     residuals is the average plus the mean of the new residuals. Element by element, within four roundings to binary32 of all
 *     magnitudes involved, and one rounding of the average to the tensor's dtype. */
#include "world.h"

#include "exchange/exchange.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_N = 7, STEPS = 5, RANK_MAX = 16, TEXT_CAP = 256, RECIPE_MAX = 48 };

static const uint32_t worlds[] = {1, 2, 3, 5, 8, 11, 16};
enum { WORLD_N = sizeof worlds / sizeof *worlds };

/* Quantizers that no preset has together with feedback. */
static const char *const more_recipes[] = {"ef+topk@0.05+fp16",
                                           "ef+linear@16",
                                           "ef+qsgd@8,bucket=64",
                                           "ef+natural",
                                           "ef+orq@5,bucket=64",
                                           "ef+ternary",
                                           "ef+fp8+rans",
                                           "ef+bf16",
                                           "ef+fp4",
                                           "ef+threshold@0.5,scope=model",
                                           "ef+topk@0.1,coords=shared"};

static char recipes[RECIPE_MAX][TEXT_CAP];
static size_t recipe_n;
static uint64_t checked_n;

/* ---- recipes ----------------------------------------------------------------------------------------------------------- */

/* A preset's recipe with its standard value; LGC with phases of two steps and a small autoencoder. */
static void add_preset(const tg_part_info *preset, size_t index)
{
    const char *value_at = strchr(preset->expansion, '$');
    char *out = recipes[recipe_n++];
    if (value_at == NULL) {
        (void)snprintf(out, TEXT_CAP, "%s", preset->expansion);
    } else {
        tg_parameter_info parameter;
        MUST(tg_part_parameter(&parameter, index, 0, why));
        (void)snprintf(out, TEXT_CAP, "%.*s%s%s", (int)(value_at - preset->expansion), preset->expansion,
                       parameter.standard, value_at + 1);
    }
    if (strstr(out, "autoencoder") != NULL) {
        size_t len = strlen(out);
        (void)snprintf(out + len, TEXT_CAP - len,
                       ",dense=1,learn=2,enough=1e9,e1=4,e2=8,e3=8,e4=4,z=2,d1=4,d2=8,d3=8,d4=4");
    }
}

static void list_recipes(void)
{
    tg_part_info part;
    for (size_t i = 0; tg_part_list(&part, i, NULL) == TG_OK; i++) {
        if (strcmp(part.stage, "preset") == 0) {
            assert_true(recipe_n < RECIPE_MAX);
            add_preset(&part, i);
        }
    }
    assert_true(recipe_n >= 16);
    for (size_t i = 0; i < sizeof more_recipes / sizeof *more_recipes; i++) {
        assert_true(recipe_n < RECIPE_MAX);
        (void)snprintf(recipes[recipe_n++], TEXT_CAP, "%s", more_recipes[i]);
    }
}

/* ---- worlds ------------------------------------------------------------------------------------------------------------ */

typedef struct shapes {
    uint64_t dims[TENSOR_N][2], lens[TENSOR_N];
    tg_dtype dtype;
} shapes;

/* Matrices, and among them one that is empty, one of a few elements, one of several blocks, and what is exempt. */
static shapes random_shapes(test_random *random)
{
    static const uint64_t most[TENSOR_N][2] = {{20, 30}, {1, 9}, {40, 40}, {30, 20}, {3, 2}, {70, 70}, {20, 20}};
    shapes s = {.dtype = (tg_dtype)(test_bits(random) % 3)};
    for (size_t t = 0; t < TENSOR_N; t++) {
        for (int d = 0; d < 2; d++) {
            s.dims[t][d] = t == 4 ? test_bits(random) % most[t][d] : 1 + test_bits(random) % most[t][d];
        }
        s.lens[t] = s.dims[t][0] * s.dims[t][1];
    }
    return s;
}

static test_world open_world(uint32_t n, const char *recipe, const char *exchange, shapes *s)
{
    static const tg_kind kinds[TENSOR_N] = {TG_CONV, TG_NORM, TG_DENSE, TG_RECURRENT, TG_DENSE, TG_EMBEDDING, TG_DENSE};
    test_setup setup = {.recipe = recipe,
                        .exchange = exchange,
                        .lens = s->lens,
                        .tensor_n = TENSOR_N,
                        .dtype = s->dtype,
                        .verify_every = 1};
    tg_options opt = test_setup_options(&setup);
    test_world w = {.n = n,
                    .ranks = calloc(n, sizeof(tg_exchange *)),
                    .models = calloc(n, sizeof *w.models),
                    .grads = calloc(n, sizeof *w.grads),
                    .outcomes = calloc(n, sizeof *w.outcomes),
                    .sent = calloc(n, sizeof *w.sent)};
    for (uint32_t r = 0; r < n; r++) {
        w.models[r] = test_model_new(s->lens, TENSOR_N, s->dtype);
        w.grads[r] = w.models[r].grads;
        for (size_t t = 0; t < TENSOR_N; t++) {
            w.models[r].tensors[t].dims = s->dims[t];
            w.models[r].tensors[t].dim_n = 2;
            w.models[r].tensors[t].kind = kinds[t];
        }
        tg_detail reason = {""};
        tg_status status = tg_exchange_new(&w.ranks[r], recipe, w.models[r].tensors, TENSOR_N, r, n, &opt, &reason);
        if (status != TG_OK && (status != TG_E_RECIPE || exchange == NULL)) {
            fail_msg("%s by %s, %u ranks: %s", recipe, exchange, n, reason.text);
        }
    }
    return w;
}

/* ---- gradients --------------------------------------------------------------------------------------------------------- */

typedef enum gradient_kind { NORMAL, HEAVY_TAILED, CONSTANT, ZEROS, DENORMALS, MIXED, GRADIENT_KINDS } gradient_kind;

static double random_value(gradient_kind kind, test_random *random)
{
    double sign = test_bits(random) % 2 == 0 ? 1 : -1;
    switch (kind) {
    case HEAVY_TAILED: return sign * pow(1 - test_uniform(random), -2);
    case CONSTANT: return 0.37;
    case ZEROS: return 0;
    case DENORMALS: return sign * (double)(test_bits(random) % 1000) * 0x1p-149;
    case MIXED: return sign * pow(10, 40 * test_uniform(random) - 30);
    default: return (double)test_gaussian(random);
    }
}

/* A kind for each tensor, the same on all ranks. Values stay well within the range of the dtype, so that residuals fit too. */
static void fill(test_world *w, uint64_t seed, uint64_t step)
{
    double most = w->models[0].tensors[0].dtype == TG_FP16 ? 500 : 1e10;
    for (uint32_t r = 0; r < w->n; r++) {
        for (size_t t = 0; t < TENSOR_N; t++) {
            test_random kinds = {seed * 7919 + step / 2 * 31 + t}, random = {(seed * 64 + step) * 1009 + r * 37 + t};
            gradient_kind kind =
                test_bits(&kinds) % 2 == 0 ? NORMAL : (gradient_kind)(test_bits(&kinds) % GRADIENT_KINDS);
            for (uint64_t i = 0; i < w->models[r].dims[t]; i++) {
                double value = random_value(kind, &random);
                test_model_set(&w->models[r], t, i, (float)fmax(-most, fmin(most, value)));
            }
        }
    }
}

/* ---- both links -------------------------------------------------------------------------------------------------------- */

typedef struct worker {
    pthread_t thread;
    test_world *world;
    tg_link *link;
    uint32_t rank;
    uint64_t step;
    tg_outcome outcome;
} worker;

static void *reduce_one(void *argument)
{
    worker *w = argument;
    w->outcome.status =
        tg_reduce(w->world->ranks[w->rank], w->link, w->step, w->world->models[w->rank].grads, &w->outcome.why);
    return NULL;
}

static void reduce_by_threads(test_world *w, tg_threads *hub, uint64_t step)
{
    worker workers[RANK_MAX];
    for (uint32_t r = 0; r < w->n; r++) {
        workers[r] = (worker){.world = w, .link = tg_threads_link(hub, r), .rank = r, .step = step};
        assert_int_equal(pthread_create(&workers[r].thread, NULL, reduce_one, &workers[r]), 0);
    }
    for (uint32_t r = 0; r < w->n; r++) {
        pthread_join(workers[r].thread, NULL);
    }
    for (uint32_t r = 0; r < w->n; r++) {
        if (workers[r].outcome.status != TG_OK) {
            fail_msg("threads, rank %u of %u: %s", r, w->n, workers[r].outcome.why.text);
        }
    }
}

/* ---- conservation ------------------------------------------------------------------------------------------------------ */

/* Both sides of the conservation law, element by element over all tensors. */
typedef struct balance {
    double *before;    /* the mean of gradients plus residuals, those of owners included */
    double *after;     /* the mean of the residuals after the step */
    double *magnitude; /* the sum of all magnitudes, over ranks */
} balance;

/* The velocity of a tensor, which the caller frees; NULL if its feedback has none. */
static float *velocity_of(const tg_exchange *x, size_t t)
{
    const tg_codec *c = x->codec;
    const tg_unit_plan *u = &c->plan->units[c->layout->tensor_unit[t]];
    if (u->planes < 2) {
        return NULL;
    }
    float *out = test_room((c->layout->tensor_elements[t] + 1) * sizeof *out);
    c->executor->save(out, c->run, u->residual_at + (u->hi - u->lo) + tg_unit_piece_of(u->unit, t)->at,
                      c->layout->tensor_elements[t]);
    return out;
}

/* Adds the residuals of all ranks and owners, multiplied by `share`, to a sum, and their magnitudes. */
static void add_residuals(double *out, double *magnitude, const test_world *w, size_t t, double share)
{
    const tg_layout *l = w->ranks[0]->codec->layout;
    uint32_t u = l->tensor_unit[t];
    uint64_t n = l->tensor_elements[t], piece_at = 0;
    float *residual = test_room(n * sizeof *residual);
    for (size_t k = 0; k < l->units[u].piece_n; k++) {
        piece_at = l->units[u].pieces[k].tensor == t ? l->units[u].pieces[k].at : piece_at;
    }
    for (uint32_t r = 0; r < w->n; r++) {
        const tg_codec *answer = test_answer_of(w->ranks[r]);
        const tg_unit_plan *kept =
            answer == NULL || answer->plan->units[u].planes == 0 ? NULL : &answer->plan->units[u];
        MUST(tg_exchange_residual(w->ranks[r], residual, t, why));
        for (uint64_t i = 0; i < n; i++) {
            uint64_t at = piece_at + i;
            assert_true(isfinite(residual[i]));
            out[i] += share * (double)residual[i] / w->n;
            magnitude[i] += fabs((double)residual[i]);
            if (kept != NULL && at >= kept->lo && at < kept->hi) {
                float one = 0;
                answer->executor->save(&one, answer->run, kept->residual_at + (at - kept->lo), 1);
                double value = (double)one;
                out[i] += share * value;
                magnitude[i] += w->n * fabs(value);
            }
        }
    }
    free(residual);
}

static void weigh_before(balance *b, const test_world *w)
{
    const tg_layout *l = w->ranks[0]->codec->layout;
    uint64_t from = 0;
    for (size_t t = 0; t < TENSOR_N; from += l->tensor_elements[t++]) {
        const tg_recipe *recipe = l->units[l->tensor_unit[t]].recipe;
        const tg_feedback_part *feedback = tg_recipe_feedback(recipe);
        double share = feedback->planes == 1 ? recipe->value[TG_STAGE_feedback][0] : 1;
        for (uint32_t r = 0; r < w->n; r++) {
            float *velocity = velocity_of(w->ranks[r], t);
            for (uint64_t i = 0; i < l->tensor_elements[t]; i++) {
                double g = (double)test_model_get(&w->models[r], t, i);
                g += velocity == NULL ? 0 : (double)(float)recipe->value[TG_STAGE_feedback][0] * (double)velocity[i];
                b->before[from + i] += g / w->n;
                b->magnitude[from + i] += fabs(g);
            }
            free(velocity);
        }
        add_residuals(b->before + from, b->magnitude + from, w, t, share);
    }
}

/* How far a value may be from what it was before it was rounded to a dtype. */
static double rounding_of(tg_dtype dtype, double value)
{
    switch (dtype) {
    case TG_FP16: return fabs(value) * 0x1.1p-11 + 0x1p-25;
    case TG_BF16: return fabs(value) * 0x1.1p-8 + 0x1p-133;
    default: return 0;
    }
}

/* Whether a tensor's gradient is conserved: it has feedback, or is sent unchanged. LGC's codes are lossy. */
static bool is_conserved(const test_world *w, size_t t, uint32_t phase)
{
    const tg_layout *l = w->ranks[0]->codec->layout;
    const tg_recipe *recipe = l->units[l->tensor_unit[t]].recipe;
    bool as_it_is = strcmp(tg_exchange_recipe(w->ranks[0], t), "fp32") == 0;
    return as_it_is || (tg_recipe_feedback(recipe)->planes > 0 && phase < 3);
}

static void weigh_after(balance *b, const test_world *w, uint32_t phase, const char *recipe)
{
    const tg_layout *l = w->ranks[0]->codec->layout;
    bool rounds_mean = strcmp(tg_exchange_name(w->ranks[0]), "allreduce") == 0;
    uint64_t from = 0;
    for (size_t t = 0; t < TENSOR_N; from += l->tensor_elements[t++]) {
        tg_dtype dtype = w->models[0].tensors[t].dtype;
        add_residuals(b->after + from, b->magnitude + from, w, t, 1);
        for (uint64_t i = 0; is_conserved(w, t, phase) && i < l->tensor_elements[t]; i++) {
            double average = (double)test_model_get(&w->models[0], t, i);
            double lost = b->before[from + i] - b->after[from + i] - average;
            double allowed = 4 * 0x1p-24 * b->magnitude[from + i] + 16 * 0x1p-149 + rounding_of(dtype, average);
            /* Allreduce rounds the mean once more, to the type on the wire. */
            allowed += rounds_mean && strstr(recipe, "16") != NULL ? rounding_of(TG_BF16, average) : 0;
            if (!(fabs(lost) <= allowed)) {
                fail_msg("%s by %s, %u ranks, %s, tensor %d, element %d: %g is lost of %g, and %g may be", recipe,
                         tg_exchange_name(w->ranks[0]), w->n, tg_dtype_name(dtype), (int)t, (int)i, lost,
                         b->before[from + i], allowed);
            }
            checked_n++;
        }
    }
}

/* Compares gradients and saved states, rank by rank, after runs over either link. */
static bool same_everywhere(const test_world *a, const test_world *b)
{
    bool same = test_world_identical(a) && test_world_identical(b) && test_model_equal(&a->models[0], &b->models[0]);
    for (uint32_t r = 0; r < a->n; r++) {
        size_t len = tg_state_len(a->ranks[r]);
        uint8_t *one = test_room(len), *other = test_room(len);
        assert_int_equal(len, tg_state_len(b->ranks[r]));
        MUST(tg_state_save(a->ranks[r], one, len, why));
        MUST(tg_state_save(b->ranks[r], other, len, why));
        same = same && memcmp(one, other, len) == 0;
        free(other);
        free(one);
    }
    return same;
}

/* ---- the property ------------------------------------------------------------------------------------------------------ */

static bool run_world(const char *recipe, const char *exchange, uint32_t n, uint64_t seed)
{
    test_random random = {seed};
    shapes s = random_shapes(&random);
    test_world lockstep = open_world(n, recipe, exchange, &s), threaded = open_world(n, recipe, exchange, &s);
    bool exists = test_world_exists(&lockstep);
    tg_threads *hub = NULL;
    MUST(tg_threads_new(&hub, n, 60000, NULL, why));
    uint64_t element_n = test_model_elements(&lockstep.models[0]);
    for (uint64_t step = 0; exists && step < STEPS; step++) {
        balance b = {calloc(element_n, sizeof(double)), calloc(element_n, sizeof(double)),
                     calloc(element_n, sizeof(double))};
        tg_learning learning;
        tg_exchange_learning(&learning, lockstep.ranks[0]);
        fill(&lockstep, seed, step);
        fill(&threaded, seed, step);
        weigh_before(&b, &lockstep);
        tg_detail reason = {""};
        if (test_world_reduce(&lockstep, step, NULL, &reason) != TG_OK) {
            fail_msg("%s by %s, %u ranks, seed %d, step %d: %s", recipe, tg_exchange_name(lockstep.ranks[0]), n,
                     (int)seed, (int)step, reason.text);
        }
        weigh_after(&b, &lockstep, learning.phase, recipe);
        reduce_by_threads(&threaded, hub, step);
        if (!same_everywhere(&lockstep, &threaded)) {
            fail_msg("%s, %u ranks, seed %d, step %d: ranks or links differ", recipe, n, (int)seed, (int)step);
        }
        checked_n += element_n * n;
        free(b.magnitude);
        free(b.after);
        free(b.before);
    }
    tg_threads_free(hub);
    test_world_free(&threaded);
    test_world_free(&lockstep);
    return exists;
}

static void nothing_is_lost_and_replicas_agree(void **state)
{
    (void)state;
    static const char *const exchanges[] = {"gather", "shard", "server", "allreduce"};
    list_recipes();
    uint64_t seed = 1, run_n = 0, other_n = 0;
    for (size_t k = 0; k < recipe_n; k++) {
        for (size_t i = k % TEST_EVERY; i < WORLD_N; i += TEST_EVERY, seed++) {
            assert_true(run_world(recipes[k], NULL, worlds[i], seed)); /* with the default exchange */
            run_n++;
            other_n +=
                run_world(recipes[k], exchanges[seed % 4], worlds[i], seed + 100000) ? 1 : 0; /* with another one */
        }
    }
    print_message("%d worlds and %d by other exchanges, %d elements checked\n", (int)run_n, (int)other_n,
                  (int)checked_n);
    assert_true(run_n >= recipe_n * (WORLD_N / TEST_EVERY) && other_n >= run_n / 3);
    assert_true(checked_n > 1000000 / TEST_EVERY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost_and_replicas_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
