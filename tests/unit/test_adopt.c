/* Another recipe in the middle of a run: residuals survive, whatever the exchanges are. */
#include "lgc.h"
#include "world.h"

#include "exchange/exchange.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t lens[] = {400, 3, 0, 90};
enum { TENSOR_N = 4, ELEMENTS = 493 };

#define LGC "ef+topk@0.05,coords=shared+autoencoder@ring,dense=1,learn=2,enough=1e9" TEST_LGC_SMALL

static const struct {
    const char *recipe, *exchange;
    bool remembers; /* the codec has a residual, which can take the adopted one */
} runs[] = {{"ef+topk@0.05+fp16", "gather", true},
            {"ef+topk@0.1", "shard", true},
            {"ef+topk@0.05,scope=model", "server", true},
            {"ef+threshold@0.5,scope=model", "shard", true},
            {"ef+randomblock@0.1", "allreduce", true},
            {"ef+topk@0.05,coords=shared", "allreduce", true},
            {"dgc@0.05", "gather", true},
            {"dgc@0.02", "shard", true},
            {"co3", "shard", true},
            {"ef+fp4@refit=5+huffman", "shard", true},
            {"ef@again=fp16+adabins@50+sign@scale=meanmax", "shard", true},
            {"ef@again=fp32+topk@0.05", "shard", true},
            {"momentum@again=bf16+topk@0.05,scope=model", "server", true},
            {LGC, "lgc-ring", false},
            {"topk@0.05", "gather", false},
            {"dense", "allreduce", false}};
enum { RUN_N = sizeof runs / sizeof *runs, LGC_RUN = RUN_N - 3, DENSE_RUN = RUN_N - 1 };

static test_world make_world(size_t run, uint32_t n)
{
    test_setup setup = {.recipe = runs[run].recipe, .exchange = runs[run].exchange, .lens = lens, .tensor_n = TENSOR_N};
    return test_world_new(n, &setup);
}

/* The remaining state of one rank. */
typedef struct rest {
    float elements[ELEMENTS];
    float *at[TENSOR_N];
} rest;

static void start(rest *r)
{
    float *at = r->elements;
    for (size_t t = 0; t < TENSOR_N; at += lens[t++]) {
        r->at[t] = at;
    }
    for (int i = 0; i < ELEMENTS; i++) {
        r->elements[i] = NAN; /* every element must be written */
    }
}

static void adopt(size_t from, size_t to, uint32_t n)
{
    test_world before = make_world(from, n), after = make_world(to, n);
    if (!test_world_exists(&before) || !test_world_exists(&after)) {
        fail_msg("%s or %s does not exist", runs[from].recipe, runs[to].recipe);
    }
    for (uint64_t step = 0; step < 3; step++) {
        test_world_step(&before, step);
    }
    double had[ELEMENTS], still[ELEMENTS], has[ELEMENTS], left[ELEMENTS] = {0};
    test_world_owed(had, &before);
    for (uint32_t r = 0; r < n; r++) {
        rest own;
        start(&own);
        MUST(tg_exchange_adopt(own.at, after.ranks[r], before.ranks[r], why));
        assert_true(after.ranks[r]->done.any && after.ranks[r]->done.step == 2);
        for (int i = 0; i < ELEMENTS; i++) {
            left[i] += (double)own.elements[i] / n;
        }
    }
    test_world_owed(still, &before);
    test_world_owed(has, &after);
    for (int i = 0; i < ELEMENTS; i++) { /* sums in fp32 of values up to 10, of `n` ranks */
        assert_true(had[i] == still[i]);
        assert_true(fabs(had[i] - has[i] - left[i]) < 10 * n * 0x1p-22);
        assert_true(!runs[to].remembers || left[i] == 0);
    }
    test_world_step(&after, 3);
    test_world_free(&after);
    test_world_free(&before);
}

static void residuals_survive_another_recipe(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 8};
    for (size_t from = 0; from < RUN_N; from++) {
        for (size_t to = 0; to < RUN_N; to++) {
            for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
                adopt(from, to, worlds[w]);
            }
        }
    }
}

/* Low-rank factors: their residual moves to that of other recipes, and the residual of others to the next gradient. */
static void residuals_survive_to_and_from_factors(void **state)
{
    (void)state;
    enum { SIDE = 12, N = SIDE * SIDE, WORLD = 2 };
    static const char *const recipes[] = {"ef+topk@0.1", "powersgd@1", "ef+topk@0.1"};
    const uint64_t dims[] = {SIDE, SIDE};
    const tg_tensor tensor = {.name = "w", .dims = dims, .dim_n = 2, .kind = TG_DENSE, .dtype = TG_FP32};
    const tg_options opt = {.size = sizeof opt, .has_seed = 1, .seed = 7};
    tg_exchange *ranks[3][WORLD] = {{NULL}};
    float grads[WORLD][N], left[WORLD][N] = {{0}};
    void *places[WORLD] = {grads[0], grads[1]};
    void *const *const all[WORLD] = {&places[0], &places[1]};
    for (int k = 0; k < 3; k++) {
        double had[N] = {0}, has[N] = {0};
        float residual[N];
        for (uint32_t r = 0; r < WORLD; r++) {
            MUST(tg_exchange_new(&ranks[k][r], recipes[k], &tensor, 1, r, WORLD, &opt, why));
            float *const rest_of[] = {left[r]};
            if (k > 0) {
                MUST(tg_exchange_residual(ranks[k - 1][r], residual, 0, why));
                for (int i = 0; i < N; i++) {
                    had[i] += (double)residual[i];
                }
                MUST(tg_exchange_adopt(rest_of, ranks[k][r], ranks[k - 1][r], why));
            }
            MUST(tg_exchange_residual(ranks[k][r], residual, 0, why));
            for (int i = 0; i < N; i++) {
                has[i] += (double)residual[i] + (double)left[r][i];
            }
        }
        for (int i = 0; i < N; i++) {
            assert_true(fabs(had[i] - has[i]) < 1e-6);
            assert_true(k != 2 || left[0][i] == 0);
        }
        for (uint32_t r = 0; r < WORLD; r++) {
            test_random random = {(uint64_t)k * 10 + r};
            for (int i = 0; i < N; i++) {
                grads[r][i] = test_gaussian(&random) + left[r][i];
            }
        }
        MUST(tg_lockstep_reduce(NULL, ranks[k], WORLD, (uint64_t)k, all, NULL, why));
    }
    for (int k = 0; k < 3; k++) {
        for (uint32_t r = 0; r < WORLD; r++) {
            tg_exchange_free(ranks[k][r]);
        }
    }
}

/* With the same recipe the run continues with the same bits: velocities and owners' residuals are adopted too. */
static void the_same_recipe_goes_on_to_the_same_bits(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        if (run == LGC_RUN) {
            continue; /* it has also learned weights, which are not adopted */
        }
        test_world straight = make_world(run, 3), changed = make_world(run, 3);
        for (uint64_t step = 0; step < 3; step++) {
            test_world_step(&straight, step);
        }
        for (uint32_t r = 0; r < 3; r++) {
            MUST(tg_exchange_adopt(NULL, changed.ranks[r], straight.ranks[r], why));
        }
        test_world_step(&straight, 3);
        test_world_step(&changed, 3);
        assert_true(test_world_same(&straight, &changed));
        test_world_free(&changed);
        test_world_free(&straight);
    }
}

static void what_does_not_fit_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    static const uint64_t others[] = {400, 3, 0, 91};
    test_world from = make_world(0, 2), dense = make_world(DENSE_RUN, 2), three = make_world(0, 3),
               used = make_world(1, 2);
    test_setup setup = {.recipe = runs[0].recipe, .exchange = runs[0].exchange, .lens = others, .tensor_n = TENSOR_N};
    test_world other = test_world_new(2, &setup);
    test_world_step(&from, 0);
    test_world_step(&used, 0);
    MUST_FAIL(TG_E_MISMATCH, "keeps no residual", tg_exchange_adopt(NULL, dense.ranks[0], from.ranks[0], why));
    assert_false(dense.ranks[0]->done.any);
    MUST_FAIL(TG_E_MISMATCH, "of rank 1 of 2", tg_exchange_adopt(NULL, dense.ranks[0], from.ranks[1], why));
    MUST_FAIL(TG_E_MISMATCH, "this is rank 0 of 3", tg_exchange_adopt(NULL, three.ranks[0], from.ranks[0], why));
    MUST_FAIL(TG_E_MISMATCH, "another shape", tg_exchange_adopt(NULL, other.ranks[0], from.ranks[0], why));
    MUST_FAIL(TG_E_ARGUMENT, "by a new exchange", tg_exchange_adopt(NULL, used.ranks[0], from.ranks[0], why));
    rest own;
    start(&own);
    own.at[3] = NULL;
    MUST_FAIL(TG_E_ARGUMENT, "no buffer", tg_exchange_adopt(own.at, dense.ranks[0], from.ranks[0], why));
    test_world_free(&other);
    test_world_free(&used);
    test_world_free(&three);
    test_world_free(&dense);
    test_world_free(&from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residuals_survive_another_recipe),
        cmocka_unit_test(residuals_survive_to_and_from_factors),
        cmocka_unit_test(the_same_recipe_goes_on_to_the_same_bits),
        cmocka_unit_test(what_does_not_fit_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
