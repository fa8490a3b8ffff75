/* PowerSGD by ranks with and without a device: the same averages, residuals and factors, to the bit, as by ranks on the CPU alone, for
 * matrices with several leaves in both directions, all dtypes, any rank, and by every policy for NaN and Inf. */
#include "mixed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Beside matrices that are cut in both directions: vectors, an empty tensor, and a matrix that is no smaller as two factors. */
enum { TENSOR_N = 8 };
static const uint64_t lens[TENSOR_N] = {40 * 30, 7, 5 * 2500, 700 * 11, 0, 3, 2 * 3, 37 * 130};
static const uint64_t rows[TENSOR_N] = {40, 0, 5, 700, 4, 0, 2, 37};
static const uint32_t groups[TENSOR_N] = {2, 2, 1, 1, 0, 0, 1, 0};

/* `powersgd` sends factors in bf16, the others in fp32. */
static const char *const recipes[] = {"powersgd@1",   "ef+lowrank@2",           "powersgd@3",
                                      "ef+lowrank@4", "ef@decay=0.5+lowrank@7", "lowrank@4,factors=bf16"};
enum { RECIPE_N = sizeof recipes / sizeof *recipes };

static test_setup setup_of(const char *recipe, tg_dtype dtype, tg_nonfinite nonfinite)
{
    return (test_setup){.recipe = recipe,
                        .lens = lens,
                        .rows = rows,
                        .tensor_n = TENSOR_N,
                        .dtype = dtype,
                        .nonfinite = nonfinite,
                        .verify_every = nonfinite == TG_NONFINITE_PASS ? 0 : 2};
}

static void must_be_same(const mixed_flight *f, const test_world *twin, const test_setup *setup)
{
    if (!test_world_same(&f->flight.world, twin)) {
        fail_msg("%s, %u ranks, dtype %d", setup->recipe, twin->n, (int)setup->dtype);
    }
}

static void compare(const char *recipe, uint32_t n, mixed_kind kind, tg_dtype dtype, const uint32_t *group_of)
{
    test_setup setup = setup_of(recipe, dtype, TG_NONFINITE_ERROR);
    test_world twin = test_world_new(n, &setup);
    mixed_flight f;
    assert_true(test_world_exists(&twin));
    assert_string_equal(tg_exchange_name(twin.ranks[0]), "lowrank");
    mixed_take_off(&f, n, &setup, group_of, kind, n);
    for (uint64_t step = 0; step < 2; step++) {
        mixed_fly(&f, step, step + 1);
        test_world_step(&twin, step);
        must_be_same(&f, &twin, &setup);
    }
    mixed_land(&f);
    test_world_free(&twin);
}

/* Ranks of a host sum first; leaders have the residuals. */
static void hosts_change_no_bits(void **state)
{
    test_setup setup = setup_of("powersgd@2", TG_BF16, TG_NONFINITE_ERROR);
    (void)state;
    setup.host_size = 2;
    test_world twin = test_world_new(4, &setup);
    mixed_flight f;
    mixed_take_off(&f, 4, &setup, groups, MIXED_EVEN, 4);
    mixed_fly(&f, 0, 2);
    test_world_step(&twin, 0);
    test_world_step(&twin, 1);
    must_be_same(&f, &twin, &setup);
    mixed_land(&f);
    test_world_free(&twin);
}

static void devices_change_no_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < RECIPE_N; i++) {
        compare(recipes[i], 1, MIXED_ALL, (tg_dtype)(i % 3), NULL);
    }
    compare(recipes[1], 2, MIXED_ODD, TG_FP32, groups);
    compare(recipes[3], 3, MIXED_EVEN, TG_BF16, groups);
    compare(recipes[4], 2, MIXED_ALL, TG_FP16, groups);
    compare(recipes[0], 2, MIXED_EVEN, TG_FP32, groups);
    compare(recipes[2], 3, MIXED_ODD, TG_FP16, groups);
}

/* A rank above what is kept in shared memory, and rows with several leaves of dot products. */
static void long_columns(void **state)
{
    static const uint64_t n[] = {(uint64_t)3000 * 6, (uint64_t)300 * 90, (uint64_t)200 * 130},
                          height[] = {3000, 300, 200};
    (void)state;
    for (int i = 0; i < 3; i++) {
        test_setup setup = setup_of(i == 0   ? "powersgd@4"
                                    : i == 1 ? "powersgd@33"
                                             : "powersgd@64",
                                    TG_FP32, TG_NONFINITE_ERROR);
        setup.lens = &n[i];
        setup.rows = &height[i];
        setup.tensor_n = 1;
        test_world twin = test_world_new(1, &setup);
        mixed_flight f;
        mixed_take_off(&f, 1, &setup, NULL, MIXED_ALL, 1);
        mixed_fly(&f, 0, 1);
        test_world_step(&twin, 0);
        must_be_same(&f, &twin, &setup);
        mixed_land(&f);
        test_world_free(&twin);
    }
}

/* Puts values that a policy applies to into the gradients of a rank. */
static void spoil(test_world *w, uint64_t step)
{
    float largest = w->models[0].tensors[0].dtype == TG_FP16 ? 65504.0f : 3e38f;
    const float bad[] = {NAN, INFINITY, -INFINITY, largest, -largest};
    for (size_t i = 0; i < 5; i++) {
        test_model_set(&w->models[0], 2, 700 * i + step, bad[i]);
        test_model_set(&w->models[w->n - 1], 3, 900 * i + 17 * step, bad[4 - i]);
        test_model_set(&w->models[0], 5, i % 3, bad[i]);
    }
}

/* A step of both on gradients that were spoiled; what fails must fail alike. */
static void step_spoiled(mixed_flight *f, test_world *twin, uint64_t step, bool must_fail)
{
    test_world *worlds[] = {&f->flight.world, twin};
    for (int i = 0; i < 2; i++) {
        test_world_fill(worlds[i], step);
        if (step > 0) {
            spoil(worlds[i], step);
        }
    }
    tg_detail reason = {""};
    test_fly(&f->flight, step);
    tg_status status = test_world_reduce(twin, step, NULL, &reason);
    assert_int_equal(status != TG_OK, must_fail);
    for (uint32_t r = 0; r < twin->n; r++) {
        assert_int_equal(f->flight.world.outcomes[r].status, twin->outcomes[r].status);
        assert_string_equal(f->flight.world.outcomes[r].why.text, twin->outcomes[r].why.text);
    }
}

static void policies_change_no_bits(void **state)
{
    (void)state;
    for (int policy = 0; policy < 3; policy++) {
        for (int dtype = 0; dtype < 3; dtype++) {
            test_setup setup = setup_of(dtype == 2 ? "lowrank@2" : "powersgd@2", (tg_dtype)dtype, (tg_nonfinite)policy);
            test_world twin = test_world_new(2, &setup);
            mixed_flight f;
            mixed_take_off(&f, 2, &setup, NULL, dtype == 1 ? MIXED_ALL : MIXED_ODD, 3);
            for (uint64_t step = 0; step < 3; step++) {
                step_spoiled(&f, &twin, step, policy == TG_NONFINITE_ERROR && step > 0);
                must_be_same(&f, &twin, &setup);
            }
            mixed_land(&f);
            test_world_free(&twin);
        }
    }
}

/* Gradients of rank 1, and of 0: columns of P depend on others and are drawn anew. */
static void dependent_columns(void **state)
{
    test_setup setup = setup_of("powersgd@4", TG_FP32, TG_NONFINITE_ERROR);
    test_world twin = test_world_new(2, &setup);
    mixed_flight f;
    (void)state;
    mixed_take_off(&f, 2, &setup, NULL, MIXED_EVEN, 5);
    for (uint64_t step = 0; step < 3; step++) {
        test_world *worlds[] = {&f.flight.world, &twin};
        for (int i = 0; i < 2; i++) {
            for (uint32_t r = 0; r < 2; r++) {
                for (size_t t = 0; t < TENSOR_N; t++) {
                    uint64_t columns = rows[t] == 0 ? 1 : lens[t] / rows[t];
                    for (uint64_t e = 0; e < lens[t]; e++) {
                        float value = step == 0 ? 0.0f : (float)(e / columns + 1) * (float)(e % columns + r);
                        test_model_set(&worlds[i]->models[r], t, e, value);
                    }
                }
            }
        }
        test_fly(&f.flight, step);
        test_must_succeed(&f.flight);
        MUST(test_world_reduce(&twin, step, NULL, why));
        must_be_same(&f, &twin, &setup);
    }
    mixed_land(&f);
    test_world_free(&twin);
}

/* Two steps by one kind of ranks, then two by another, as four on the CPU. */
static void runs_move_between_cpu_and_gpu(void **state)
{
    static const mixed_kind from[] = {MIXED_NONE, MIXED_ALL}, to[] = {MIXED_ALL, MIXED_NONE};
    test_setup setup = setup_of("powersgd@2", TG_FP32, TG_NONFINITE_ERROR);
    (void)state;
    for (int i = 0; i < 2; i++) {
        test_world straight = test_world_new(2, &setup);
        mixed_flight first, second;
        mixed_take_off(&first, 2, &setup, groups, from[i], 1);
        mixed_take_off(&second, 2, &setup, groups, to[i], 2);
        mixed_fly(&first, 0, 1);
        for (uint32_t r = 0; r < 2; r++) {
            const tg_exchange *x = first.flight.world.ranks[r];
            tg_span saved = {test_room(tg_state_len(x)), tg_state_len(x)};
            MUST(tg_state_save(x, saved.data, (size_t)saved.len, why));
            MUST(tg_state_load(second.flight.world.ranks[r], &saved, 1, why));
            free(saved.data);
        }
        mixed_fly(&second, 1, 2);
        test_world_step(&straight, 0);
        test_world_step(&straight, 1);
        must_be_same(&second, &straight, &setup);
        mixed_land(&second);
        mixed_land(&first);
        test_world_free(&straight);
    }
}

static void failures_change_nothing(void **state)
{
    test_setup setup = setup_of("powersgd@2", TG_FP32, TG_NONFINITE_ERROR);
    (void)state;
    for (uint32_t bad = 0; bad < 2; bad++) { /* with a device, and without */
        test_world twin = test_world_new(2, &setup);
        mixed_flight f;
        mixed_take_off(&f, 2, &setup, groups, MIXED_EVEN, bad);
        test_fail_and_go_on(&f.flight, &twin, bad);
        mixed_land(&f);
        test_world_free(&twin);
    }
    for (uint64_t at = 6; at < 40; at += 5) {
        test_world twin = test_world_new(2, &setup);
        mixed_flight f;
        mixed_take_off(&f, 2, &setup, groups, MIXED_EVEN, at);
        test_fail_by_damage(&f.flight, &twin, at);
        mixed_land(&f);
        test_world_free(&twin);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_change_no_bits),
        cmocka_unit_test(devices_change_no_bits),
        cmocka_unit_test(long_columns),
        cmocka_unit_test(policies_change_no_bits),
        cmocka_unit_test(dependent_columns),
        cmocka_unit_test(runs_move_between_cpu_and_gpu),
        cmocka_unit_test(failures_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
