/* PowerSGD's exchange: averages of low rank, conservation, equal replicas, saved state. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_N = 5, RANK_MAX = 5, LONGEST = 12 * 20 };

static const uint64_t dims[TENSOR_N][3] = {{12, 4, 5}, {7}, {30, 2}, {9, 16}, {0, 4}};
static const uint32_t dim_n[TENSOR_N] = {3, 1, 2, 2, 2};
static const size_t lens[TENSOR_N] = {240, 7, 60, 144, 0};

typedef struct world {
    uint32_t n;
    tg_tensor tensors[TENSOR_N];
    tg_exchange *ranks[RANK_MAX];
    float grads[RANK_MAX][TENSOR_N][LONGEST];
    float given[RANK_MAX][TENSOR_N][LONGEST]; /* before a step */
} world;

static void world_open(world *w, uint32_t n, const char *recipe)
{
    static const char *const names[TENSOR_N] = {"conv", "bias", "thin", "dense", "empty"};
    static const tg_kind kinds[TENSOR_N] = {TG_CONV, TG_BIAS, TG_DENSE, TG_DENSE, TG_DENSE};
    memset(w, 0, sizeof *w);
    w->n = n;
    for (size_t t = 0; t < TENSOR_N; t++) {
        w->tensors[t] = (tg_tensor){names[t], dims[t], dim_n[t], kinds[t], TG_FP32};
    }
    for (uint32_t r = 0; r < n; r++) {
        tg_options opt = TG_OPTIONS_INIT;
        opt.has_seed = 1;
        opt.seed = 5;
        opt.verify_every = 1;
        MUST(tg_exchange_new(&w->ranks[r], recipe, w->tensors, TENSOR_N, r, n, &opt, why));
    }
}

static void world_close(world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        tg_exchange_free(w->ranks[r]);
    }
}

static void world_fill(world *w, uint64_t step)
{
    for (uint32_t r = 0; r < w->n; r++) {
        test_random random = {1000 * step + r};
        for (size_t t = 0; t < TENSOR_N; t++) {
            for (size_t i = 0; i < lens[t]; i++) {
                w->given[r][t][i] = w->grads[r][t][i] = test_gaussian(&random);
            }
        }
    }
}

static tg_status world_reduce(world *w, uint64_t step, tg_detail *why)
{
    void *grads[RANK_MAX][TENSOR_N];
    void *const *all[RANK_MAX];
    for (uint32_t r = 0; r < w->n; r++) {
        for (size_t t = 0; t < TENSOR_N; t++) {
            grads[r][t] = w->grads[r][t];
        }
        all[r] = grads[r];
    }
    return tg_lockstep_reduce(NULL, w->ranks, w->n, step, all, NULL, why);
}

static void residual_of(float *out, const world *w, uint32_t r, size_t t)
{
    MUST(tg_exchange_residual(w->ranks[r], out, t, why));
}

/* gradient + old residual, over ranks, is average + new residual, over ranks. */
static void nothing_is_lost(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 5, 1, 2, 3, 5};
    static const char *const recipes[] = {"powersgd@2", "powersgd@1", "ef+lowrank@2", "ef+lowrank@1"};
    for (size_t k = 0; k < 8; k++) {
        world *w = test_room(sizeof *w);
        world_open(w, worlds[k], recipes[k % 2 + k / 4 * 2]);
        assert_string_equal(tg_exchange_name(w->ranks[0]), "lowrank");
        for (uint64_t step = 0; step < 8; step++) {
            double before[TENSOR_N][LONGEST] = {{0}}, after[TENSOR_N][LONGEST] = {{0}};
            float residual[LONGEST];
            world_fill(w, step);
            for (uint32_t r = 0; r < w->n; r++) {
                for (size_t t = 0; t < TENSOR_N; t++) {
                    residual_of(residual, w, r, t);
                    for (size_t i = 0; i < lens[t]; i++) {
                        before[t][i] += ((double)w->given[r][t][i] + (double)residual[i]) / w->n;
                    }
                }
            }
            MUST(world_reduce(w, step, why));
            for (uint32_t r = 0; r < w->n; r++) {
                assert_memory_equal(w->grads[r], w->grads[0], sizeof w->grads[0]);
                for (size_t t = 0; t < TENSOR_N; t++) {
                    residual_of(residual, w, r, t);
                    for (size_t i = 0; i < lens[t]; i++) {
                        after[t][i] += ((double)w->grads[r][t][i] + (double)residual[i]) / w->n;
                    }
                }
            }
            for (size_t t = 0; t < TENSOR_N; t++) {
                for (size_t i = 0; i < lens[t]; i++) {
                    assert_true(fabs(before[t][i] - after[t][i]) < 1e-5);
                    bool dense = t == 1 || t == 2; /* one dimension; two factors would be no smaller */
                    assert_true(!dense || worlds[k] > 1 || w->grads[0][t][i] == w->given[0][t][i]);
                }
            }
        }
        tg_meter last, total;
        tg_exchange_meter(w->ranks[0], &last, &total);
        assert_int_equal(total.steps, 8);
        assert_int_equal(last.logical, 451 * 4);
        assert_true(w->n == 1 || (last.payload > 0 && last.payload < last.dense));
        world_close(w);
        free(w);
    }
}

/* The largest error in averages of a matrix of rank 2. */
static float error_at_low_rank(const char *recipe)
{
    float error = 0;
    world *w = test_room(sizeof *w);
    world_open(w, 3, recipe);
    for (uint64_t step = 0; step < 4; step++) {
        memset(w->grads, 0, sizeof w->grads);
        for (uint32_t r = 0; r < w->n; r++) {
            for (int i = 0; i < 12; i++) {
                for (int j = 0; j < 20; j++) {
                    w->grads[r][0][i * 20 + j] =
                        (float)(r + 1) * (sinf((float)i) * cosf((float)j) + 0.1f * (float)(i * j));
                }
            }
        }
        memcpy(w->given, w->grads, sizeof w->given);
        MUST(world_reduce(w, step, why));
        for (int i = 0; i < 240; i++) {
            error = fmaxf(error, fabsf(w->grads[0][0][i] - w->given[1][0][i])); /* the mean of 1, 2 and 3 is 2 */
        }
    }
    world_close(w);
    free(w);
    return error;
}

/* A matrix of low rank is averaged exactly, or up to the rounding of factors: to 1/256, and its largest element is 43. */
static void low_rank_is_exact(void **state)
{
    (void)state;
    float rounded = error_at_low_rank("ef+lowrank@2,factors=bf16");
    assert_true(error_at_low_rank("ef+lowrank@2") < 1e-3f);
    assert_true(rounded > 1e-3f && rounded < 0.5f);
}

/* Factors in bf16 take half of the bytes of those in fp32; tensors that are no matrices take as many. */
static void factors_are_shorter(void **state)
{
    (void)state;
    static const char *const recipes[] = {"ef+lowrank@2", "ef+lowrank@2,factors=bf16"};
    tg_traffic sent[2][TENSOR_N];
    for (int k = 0; k < 2; k++) {
        world *w = test_room(sizeof *w);
        world_open(w, 2, recipes[k]);
        world_fill(w, 0);
        MUST(world_reduce(w, 0, why));
        for (size_t t = 0; t < TENSOR_N; t++) {
            MUST(tg_exchange_traffic(&sent[k][t], w->ranks[0], t, why));
        }
        world_close(w);
        free(w);
    }
    for (size_t t = 0; t < TENSOR_N; t++) {
        bool is_matrix = t == 0 || t == 3;
        assert_int_equal(sent[0][t].entries, sent[1][t].entries);
        assert_int_equal(sent[0][t].len - sent[1][t].len, is_matrix ? 2 * sent[0][t].entries : 0);
    }
}

static void zeros_and_then_something(void **state)
{
    (void)state;
    world *w = test_room(sizeof *w);
    world_open(w, 2, "powersgd@2");
    memset(w->grads, 0, sizeof w->grads);
    for (uint64_t step = 0; step < 3; step++) {
        MUST(world_reduce(w, step, why));
        for (size_t i = 0; i < 240; i++) {
            assert_true(w->grads[0][0][i] == 0);
        }
    }
    double energy = 0;
    for (uint64_t step = 3; step < 6; step++) {
        world_fill(w, step);
        MUST(world_reduce(w, step, why));
        for (size_t i = 0; i < 240; i++) {
            energy += fabs((double)w->grads[0][0][i]);
        }
    }
    assert_true(energy > 1);
    world_close(w);
    free(w);
}

static void nan_is_refused_and_leaves_no_trace(void **state)
{
    (void)state;
    world *w = test_room(sizeof *w), *twin = test_room(sizeof *twin);
    world_open(w, 3, "powersgd@2");
    world_open(twin, 3, "powersgd@2");
    for (uint64_t step = 0; step < 4; step++) {
        world_fill(w, step);
        float kept = w->grads[1][3][17];
        w->grads[1][3][17] = NAN;
        MUST_FAIL(TG_E_PEER, "'dense' holds NaN", world_reduce(w, step, why));
        w->grads[1][3][17] = kept;
        assert_memory_equal(w->grads, w->given, sizeof w->given[0] * 3);
        MUST(world_reduce(w, step, why));
        world_fill(twin, step);
        MUST(world_reduce(twin, step, why));
        assert_memory_equal(w->grads, twin->grads, sizeof w->grads[0] * 3);
    }
    world_close(twin);
    world_close(w);
    free(twin);
    free(w);
}

/* One element of 1e21 is carried like any other. Factors are rounded relative to a rank's own gradient plus residual, and that of rank 0
 * grows, since the average leaves 1 - 1/n of it. */
static void large_values_are_carried(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 5};
    for (size_t k = 0; k < 4; k++) {
        world *w = test_room(sizeof *w);
        for (int is_rounded = 0; is_rounded < 2; is_rounded++) {
            world_open(w, worlds[k], is_rounded ? "powersgd@2" : "ef+lowrank@2");
            for (uint64_t step = 0; step < 6; step++) {
                world_fill(w, step);
                w->grads[0][3][17] = 1e21f;
                MUST(world_reduce(w, step, why));
                double given = 1e21 / w->n;
                double off = fabs((double)w->grads[0][3][17] - given);
                assert_true(step == 0 || off < (is_rounded ? 0.05 : 1e-5) * given);
            }
            world_close(w);
        }
        free(w);
    }
}

/* Gradients times a power of two have averages times that, to the bit. */
static void scale_does_not_matter(void **state)
{
    (void)state;
    static const float scales[] = {0x1p-40f, 0x1p40f, 0x1p70f, 0x1p110f};
    for (size_t k = 0; k < 4; k++) {
        world *w = test_room(sizeof *w), *scaled = test_room(sizeof *scaled);
        world_open(w, 3, "powersgd@2");
        world_open(scaled, 3, "powersgd@2");
        for (uint64_t step = 0; step < 6; step++) {
            world_fill(w, step);
            world_fill(scaled, step);
            for (size_t i = 0; i < 3 * TENSOR_N * LONGEST; i++) {
                (&scaled->grads[0][0][0])[i] *= scales[k];
            }
            MUST(world_reduce(w, step, why));
            MUST(world_reduce(scaled, step, why));
            for (size_t i = 0; i < 3 * TENSOR_N * LONGEST; i++) {
                (&w->grads[0][0][0])[i] *= scales[k];
            }
            assert_memory_equal(w->grads, scaled->grads, sizeof w->grads[0] * 3);
        }
        world_close(scaled);
        world_close(w);
        free(scaled);
        free(w);
    }
}

/* Values that overflow in the factors are refused with the right reason. */
static void overflow_is_named(void **state)
{
    (void)state;
    world *w = test_room(sizeof *w);
    world_open(w, 3, "powersgd@2");
    world_fill(w, 0);
    w->grads[1][3][17] = w->given[1][3][17] = -3e38f;
    MUST_FAIL(TG_E_PEER, "gradient plus residual of tensor 'dense' exceeds", world_reduce(w, 0, why));
    assert_memory_equal(w->grads, w->given, sizeof w->given[0] * 3);
    w->grads[1][3][17] = 1;
    MUST(world_reduce(w, 0, why));
    world_close(w);
    free(w);
}

static void state_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    world *w = test_room(sizeof *w), *resumed = test_room(sizeof *resumed);
    world_open(w, 3, "powersgd@2");
    for (uint64_t step = 0; step < 3; step++) {
        world_fill(w, step);
        MUST(world_reduce(w, step, why));
    }
    world_open(resumed, 3, "powersgd@2");
    tg_span states[3];
    for (uint32_t r = 0; r < 3; r++) {
        size_t len = tg_state_len(w->ranks[r]);
        states[r] = (tg_span){test_room(len), len};
        MUST(tg_state_save(w->ranks[r], states[r].data, len, why));
        MUST(tg_state_load(resumed->ranks[r], &states[r], 1, why));
    }
    for (uint64_t step = 3; step < 6; step++) {
        world_fill(w, step);
        world_fill(resumed, step);
        MUST(world_reduce(w, step, why));
        MUST(world_reduce(resumed, step, why));
        assert_memory_equal(w->grads, resumed->grads, sizeof w->grads[0] * 3);
    }
    /* Another number of ranks: the mean residual is kept. */
    world *other = test_room(sizeof *other);
    world_open(other, 2, "powersgd@2");
    for (uint32_t r = 0; r < 2; r++) {
        MUST(tg_state_load(other->ranks[r], states, 3, why));
    }
    world_close(resumed);
    world_open(resumed, 3, "powersgd@2");
    float a[LONGEST], sum[LONGEST] = {0};
    for (uint32_t r = 0; r < 3; r++) {
        MUST(tg_state_load(resumed->ranks[r], &states[r], 1, why));
        residual_of(a, resumed, r, 0);
        for (int i = 0; i < 240; i++) {
            sum[i] += a[i] / 3;
        }
    }
    residual_of(a, other, 1, 0);
    for (int i = 0; i < 240; i++) {
        assert_true(fabsf(a[i] - sum[i]) < 1e-5f);
    }
    for (uint32_t r = 0; r < 3; r++) {
        free(states[r].data);
    }
    world_close(other);
    world_close(resumed);
    world_close(w);
    free(other);
    free(resumed);
    free(w);
}

static void misuse_is_named(void **state)
{
    (void)state;
    world *w = test_room(sizeof *w);
    world_open(w, 2, "powersgd@2");
    tg_codec *c = NULL;
    tg_exchange *x = NULL;
    tg_options opt = TG_OPTIONS_INIT;
    MUST_FAIL(TG_E_RECIPE, "no frame", tg_codec_new(&c, "powersgd@2", w->tensors, TENSOR_N, NULL, why));
    opt.exchange = "gather";
    MUST_FAIL(TG_E_RECIPE, "exchange of its own",
              tg_exchange_new(&x, "powersgd@2", w->tensors, TENSOR_N, 0, 2, &opt, why));
    opt.exchange = "lowrank";
    MUST_FAIL(TG_E_RECIPE, "'lowrank' alone", tg_exchange_new(&x, "fp16", w->tensors, TENSOR_N, 0, 2, &opt, why));
    opt.exchange = NULL;
    const tg_rule rule = {"thin", "ef+topk@0.1"};
    opt.rules = &rule;
    opt.rule_n = 1;
    MUST_FAIL(TG_E_RECIPE, "'thin' has the recipe 'ef+topk@0.1+fp32', but the exchange lowrank sends it uncompressed",
              tg_exchange_new(&x, "powersgd@2", w->tensors, TENSOR_N, 0, 2, &opt, why));
    /* A gradient that is missing on one rank ends the step on all. */
    void *whole[TENSOR_N] = {w->grads[0][0], w->grads[0][1], w->grads[0][2], w->grads[0][3], w->grads[0][4]};
    void *partial[TENSOR_N] = {w->grads[1][0], w->grads[1][1], NULL, w->grads[1][3], w->grads[1][4]};
    void *const *const both[2] = {whole, partial};
    tg_outcome outcomes[2];
    MUST_FAIL(TG_E_PEER, "rank 1: no elements are given for tensor 'thin'",
              tg_lockstep_reduce(outcomes, w->ranks, 2, 0, both, NULL, why));
    assert_int_equal(outcomes[1].status, TG_E_ARGUMENT);
    world_close(w);
    free(w);
}

/* Whichever allocation fails, it is reported, and nothing leaks. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    world *w = test_room(sizeof *w);
    world_open(w, 1, "powersgd@2");
    bool made = false;
    for (uint64_t nth = 1; !made; nth++) {
        test_allocator a;
        test_allocator_start(&a, nth, true);
        tg_options opt = TG_OPTIONS_INIT;
        opt.allocator = &a.allocator;
        tg_exchange *x = NULL;
        tg_detail reason = {""};
        tg_status status = tg_exchange_new(&x, "powersgd@2", w->tensors, TENSOR_N, 0, 2, &opt, &reason);
        assert_true(status == TG_OK || (status == TG_E_MEMORY && x == NULL && reason.text[0] != '\0'));
        made = status == TG_OK;
        tg_exchange_free(x);
        assert_int_equal(a.held, 0);
    }
    world_close(w);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(low_rank_is_exact),
        cmocka_unit_test(factors_are_shorter),
        cmocka_unit_test(zeros_and_then_something),
        cmocka_unit_test(nan_is_refused_and_leaves_no_trace),
        cmocka_unit_test(large_values_are_carried),
        cmocka_unit_test(scale_does_not_matter),
        cmocka_unit_test(overflow_is_named),
        cmocka_unit_test(state_goes_on_with_the_same_bits),
        cmocka_unit_test(misuse_is_named),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
