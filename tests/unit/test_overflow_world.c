/* Finite gradients that are so large that a sum overflows, over every preset, exchange and policy: averages and residuals are
 * finite, or the step is refused on all ranks and nothing has changed. */
#include "lgc.h"
#include "support.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_N = 5, RANK_MAX = 8, LONGEST = 30 * 20, PATTERN_N = 5, STEP_N = 4 };

static const uint64_t dims[TENSOR_N][2] = {{16, 8}, {9, 1}, {30, 20}, {25, 12}, {10, 30}};
static const char *const names[TENSOR_N] = {"first", "bias", "wide", "deep", "last"};
static const tg_kind kinds[TENSOR_N] = {TG_CONV, TG_BIAS, TG_DENSE, TG_RECURRENT, TG_DENSE};
static const uint32_t worlds[] = {1, 2, 3, 5, 8};
static const char *const exchanges[] = {NULL, "allreduce", "gather", "shard", "server"};

typedef struct world {
    uint32_t n;
    tg_nonfinite policy;
    tg_tensor tensors[TENSOR_N];
    tg_exchange *ranks[RANK_MAX];
    tg_outcome outcomes[RANK_MAX];
    float grads[RANK_MAX][TENSOR_N][LONGEST], given[RANK_MAX][TENSOR_N][LONGEST];
    float residuals[RANK_MAX][TENSOR_N][LONGEST], before[RANK_MAX][TENSOR_N][LONGEST];
} world;

static size_t len_of(size_t t)
{
    return (size_t)(dims[t][0] * dims[t][1]);
}

static void world_close(world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        tg_exchange_free(w->ranks[r]);
    }
    free(w);
}

/* NULL if the exchange does not carry the recipe. */
static world *world_open(uint32_t n, const char *recipe, const char *exchange, tg_nonfinite policy)
{
    world *w = test_room(sizeof *w);
    memset(w, 0, sizeof *w);
    w->n = n;
    w->policy = policy;
    for (size_t t = 0; t < TENSOR_N; t++) {
        w->tensors[t] = (tg_tensor){names[t], dims[t], 2, kinds[t], TG_FP32};
    }
    for (uint32_t r = 0; r < n; r++) {
        tg_options opt = TG_OPTIONS_INIT;
        opt.has_seed = 1;
        opt.seed = 11;
        opt.verify_every = 1;
        opt.nonfinite = policy;
        opt.exchange = exchange;
        tg_detail fault = {""};
        tg_status status = tg_exchange_new(&w->ranks[r], recipe, w->tensors, TENSOR_N, r, n, &opt, &fault);
        if (status == TG_E_RECIPE && exchange != NULL) {
            w->n = r;
            world_close(w);
            return NULL;
        }
        if (status != TG_OK) {
            fail_msg("%s: %s", recipe, fault.text);
        }
    }
    return w;
}

/* Patterns: all +FLT_MAX; ranks' signs differ; any sign; any value; ordinary ones beside a single 1e21. */
static float value_of(int pattern, uint32_t r, size_t t, size_t i, test_random *random)
{
    float sign = test_bits(random) % 2 == 0 ? 1.0f : -1.0f, share = (float)test_uniform(random);
    switch (pattern) {
    case 0: return FLT_MAX;
    case 1: return r % 3 == 2 ? -FLT_MAX : FLT_MAX;
    case 2: return sign * FLT_MAX;
    case 3: return sign * share * FLT_MAX;
    default: return r == 0 && t == 2 && i == 7 ? 1e21f : sign * share;
    }
}

static void world_fill(world *w, int pattern, uint64_t step)
{
    for (uint32_t r = 0; r < w->n; r++) {
        test_random random = {1000 * step + r};
        for (size_t t = 0; t < TENSOR_N; t++) {
            for (size_t i = 0; i < len_of(t); i++) {
                w->grads[r][t][i] = value_of(pattern, r, t, i, &random);
            }
        }
    }
    memcpy(w->given, w->grads, sizeof w->given);
}

/* Gradients, or averages, and residuals are finite; but what LGC decodes may overflow, and `pass` lets that through. */
static void world_check(world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        for (size_t t = 0; t < TENSOR_N; t++) {
            MUST(tg_exchange_residual(w->ranks[r], w->residuals[r][t], t, why));
            for (size_t i = 0; i < len_of(t); i++) {
                bool may_pass = w->policy == TG_NONFINITE_PASS && strncmp(tg_exchange_name(w->ranks[r]), "lgc", 3) == 0;
                if ((!isfinite(w->grads[r][t][i]) && !may_pass) || !isfinite(w->residuals[r][t][i])) {
                    fail_msg("%s of %u, policy %d: %g with residual %g", tg_exchange_recipe(w->ranks[r], t), w->n,
                             (int)w->policy, (double)w->grads[r][t][i], (double)w->residuals[r][t][i]);
                }
            }
        }
    }
}

/* One step on the current gradients; returns whether it succeeded. Only the policy `error` may refuse it. */
static bool world_step(world *w, uint64_t step)
{
    void *grads[RANK_MAX][TENSOR_N];
    void *const *all[RANK_MAX];
    for (uint32_t r = 0; r < w->n; r++) {
        for (size_t t = 0; t < TENSOR_N; t++) {
            grads[r][t] = w->grads[r][t];
        }
        all[r] = grads[r];
    }
    world_check(w);
    memcpy(w->before, w->residuals, sizeof w->before);
    tg_detail why = {""};
    tg_status status = tg_lockstep_reduce(w->outcomes, w->ranks, w->n, step, all, NULL, &why);
    world_check(w);
    if (status == TG_OK) {
        for (uint32_t r = 0; r < w->n; r++) {
            assert_memory_equal(w->grads[r], w->grads[0], sizeof w->grads[0]);
        }
        return true;
    }
    if (w->policy != TG_NONFINITE_ERROR) {
        fail_msg("%s of %u: %s", tg_exchange_name(w->ranks[0]), w->n, why.text);
    }
    uint32_t refused = 0;
    for (uint32_t r = 0; r < w->n; r++) {
        const tg_outcome *o = &w->outcomes[r];
        refused += o->status == TG_E_NONFINITE ? 1 : 0;
        if ((o->status != TG_E_NONFINITE && o->status != TG_E_PEER) || strstr(o->why.text, "overflows") == NULL) {
            fail_msg("%s of %u: %s", tg_exchange_name(w->ranks[0]), w->n, o->why.text);
        }
    }
    assert_int_equal(refused, 1);
    assert_memory_equal(w->grads, w->given, sizeof w->grads);
    assert_memory_equal(w->residuals, w->before, sizeof w->before);
    return false;
}

/* Steps of large gradients, then of ordinary ones. */
static void run(uint32_t n, const char *recipe, const char *exchange, tg_nonfinite policy, int pattern, uint64_t steps)
{
    world *w = world_open(n, recipe, exchange, policy);
    for (uint64_t step = 0; w != NULL && step < steps; step++) {
        world_fill(w, step < steps / 2 + 1 ? pattern : 3, step);
        for (uint32_t r = 0; step >= steps / 2 + 1 && r < n; r++) {
            for (size_t t = 0; t < TENSOR_N; t++) {
                for (size_t i = 0; i < len_of(t); i++) {
                    w->grads[r][t][i] /= 0x1p127f;
                }
            }
        }
        memcpy(w->given, w->grads, sizeof w->given);
        bool done = world_step(w, step);
        bool has_feedback = strstr(tg_exchange_recipe(w->ranks[0], 0), "ef") != NULL ||
                            strstr(tg_exchange_recipe(w->ranks[0], 0), "momentum") != NULL;
        if (!done && !has_feedback && strstr(recipe, "lowrank") == NULL) {
            fail_msg("%s of %u: %s", recipe, n, w->outcomes[0].why.text);
        }
        assert_true(done || pattern != 4); /* 1e21 is not too much for anything */
    }
    if (w != NULL) {
        world_close(w);
    }
}

static void presets_and_exchanges(void **state)
{
    (void)state;
    tg_part_info info;
    for (size_t index = 0; tg_part_list(&info, index, NULL) == TG_OK; index++) {
        if (strcmp(info.stage, "preset") != 0 || strncmp(info.name, "lgc", 3) == 0) {
            continue;
        }
        for (size_t k = 0; k < 5 * 5 * 3; k++) {
            for (int pattern = (int)(index + k) % TEST_EVERY; pattern < PATTERN_N; pattern += TEST_EVERY) {
                run(worlds[k % 5], info.name, exchanges[k / 5 % 5], (tg_nonfinite)(k / 25), pattern, STEP_N);
            }
        }
    }
}

static void parts_without_preset(void **state)
{
    (void)state;
    static const char *const recipes[] = {"fp16",           "ef@decay=0.5+bf16",         "qsgd@4,bucket=100",
                                          "natural",        "ef+linear@3,bucket=100",    "orq@3,bucket=100",
                                          "fp4+rans",       "ef+randomk@0.1,coords=own", "randomk@0.1,unbiased=yes",
                                          "ef+threshold@1", "ef+topk@0.1,coords=shared", "lowrank@2"};
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++) {
        for (size_t k = 0; k < 5 * 5 * 3; k++) {
            run(worlds[k % 5], recipes[r], exchanges[k / 5 % 5], (tg_nonfinite)(k / 25), (int)(r + k) % PATTERN_N,
                STEP_N);
        }
    }
}

/* All three phases: dense, learning, coded. */
static void lgc_in_all_phases(void **state)
{
    (void)state;
    static const char *const forms[] = {"ring", "server", "ring,own=yes"};
    for (size_t k = 0; k < 3 * 3 * 3; k++) {
        char recipe[TG_RECIPE_CAP];
        (void)snprintf(recipe, sizeof recipe,
                       "%s+topk@0.05,coords=shared+autoencoder@%s,dense=2,learn=2,enough=1e9" TEST_LGC_SMALL,
                       k % 2 == 0 ? "ef" : "momentum", forms[k % 3]);
        for (int pattern = (int)k % TEST_EVERY; pattern < PATTERN_N; pattern += TEST_EVERY) {
            run(worlds[1 + k / 3 % 3], recipe, NULL, (tg_nonfinite)(k / 9), pattern, 10);
        }
    }
}

/* A sum may overflow although the average does not: the average is still exact. */
static void averages_are_right(void **state)
{
    (void)state;
    for (size_t k = 0; k < 5 * 5; k++) {
        world *w = world_open(worlds[k / 5], "dense", exchanges[k % 5], TG_NONFINITE_ERROR);
        for (int pattern = 0; w != NULL && pattern < PATTERN_N; pattern++) {
            world_fill(w, pattern, 1);
            assert_true(world_step(w, (uint64_t)pattern));
            for (size_t t = 0; t < TENSOR_N; t++) {
                for (size_t i = 0; i < len_of(t); i++) {
                    double sum = 0, magnitudes = 0;
                    for (uint32_t r = 0; r < w->n; r++) {
                        sum += (double)w->given[r][t][i];
                        magnitudes += fabs((double)w->given[r][t][i]);
                    }
                    assert_true(fabs(sum / w->n - (double)w->grads[0][t][i]) <= magnitudes * 0x1p-23);
                }
            }
        }
        if (w != NULL) {
            world_close(w);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_and_exchanges),
        cmocka_unit_test(parts_without_preset),
        cmocka_unit_test(lgc_in_all_phases),
        cmocka_unit_test(averages_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
