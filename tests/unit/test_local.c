/* Local steps: schedules, and the arithmetic of a round. */
#include "support.h"
#include "tersegrad/local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- schedules ---------------------------------------------------------------------------------------------------------- */

/* Rounds one after another, by the definition: a round has the steps of the last entry that its first step has reached. */
static void check_rounds(const char *text, uint64_t steps)
{
    tg_schedule s;
    MUST(tg_schedule_read(&s, text, why));
    uint64_t number = 0;
    for (uint64_t first = 0; first < steps; number++) {
        uint64_t every = 0;
        for (uint32_t i = 0; i < s.n && s.from[i] <= first; i++) {
            every = s.every[i];
        }
        for (uint64_t step = first; step < first + every; step++) {
            tg_round r;
            tg_schedule_round(&r, &s, step);
            assert_int_equal(r.number, number);
            assert_int_equal(r.first, first);
            assert_int_equal(r.steps, every);
        }
        first += every;
    }
}

static void rounds_follow_the_schedule(void **state)
{
    (void)state;
    check_rounds("1", 10);
    check_rounds("4", 30);
    check_rounds("1,200:4,2000:8", 5000);
    check_rounds("0:3,4:5,6:2,7:1", 50);
    check_rounds("100,5:1,50:7,120:2", 400); /* the first round covers two entries */
    check_rounds("8,16:1", 40);
    check_rounds("1000000000,1000000000:1", 3);
}

static void all_rounds_of_one_step_are_told(void **state)
{
    (void)state;
    tg_schedule s;
    MUST(tg_schedule_read(&s, "1", why));
    assert_int_equal(tg_schedule_is_one(&s), 1);
    MUST(tg_schedule_read(&s, "1,7:1", why));
    assert_int_equal(tg_schedule_is_one(&s), 1);
    MUST(tg_schedule_read(&s, "1,7:2", why));
    assert_int_equal(tg_schedule_is_one(&s), 0);
}

static void bad_schedules_are_refused(void **state)
{
    (void)state;
    tg_schedule s = {.n = 77};
    static const char *const senseless[] = {"",    "x",      "4,",    ",4",         "4,8",  "4 ", "-1",
                                            "4:8", "4,8:1:", "4,:8",  "4,8:",       "1.5",  "+4", "4;8",
                                            "0x4", "4,a:8",  "5:4,6", "1000000001", "4,8:b"};
    for (size_t i = 0; i < sizeof senseless / sizeof *senseless; i++) {
        MUST_FAIL(TG_E_ARGUMENT, "is not understood", tg_schedule_read(&s, senseless[i], why));
    }
    MUST_FAIL(TG_E_ARGUMENT, "would never end", tg_schedule_read(&s, "0", why));
    MUST_FAIL(TG_E_ARGUMENT, "would never end", tg_schedule_read(&s, "1,5:0", why));
    MUST_FAIL(TG_E_ARGUMENT, "goes backwards: step 5 comes after step 9", tg_schedule_read(&s, "1,9:2,5:4", why));
    MUST_FAIL(TG_E_ARGUMENT, "goes backwards", tg_schedule_read(&s, "1,0:4", why));
    assert_int_equal(s.n, 77); /* on failure nothing is written */
    char many[40 * TG_SCHEDULE_MAX] = "1";
    for (int i = 1; i < TG_SCHEDULE_MAX; i++) {
        (void)snprintf(many + strlen(many), sizeof many - strlen(many), ",%d:2", i);
    }
    MUST(tg_schedule_read(&s, many, why));
    strcat(many, ",1000:2");
    MUST_FAIL(TG_E_ARGUMENT, "is not understood", tg_schedule_read(&s, many, why));
}

/* ---- the outer step ------------------------------------------------------------------------------------------------------- */

static void check_outer(const char *text, float rate, float momentum)
{
    tg_outer o;
    MUST(tg_outer_read(&o, text, why));
    assert_true(o.rate == rate && o.momentum == momentum);
}

static void outer_steps_are_read(void **state)
{
    (void)state;
    tg_outer o = {3, 3};
    check_outer("average", 1, 0);
    check_outer("nesterov", 0.7f, 0.9f);
    check_outer("nesterov@lr=0.5", 0.5f, 0.9f);
    check_outer("nesterov@momentum=0.25,lr=1", 1, 0.25f);
    check_outer("nesterov@lr=1,momentum=0", 1, 0);
    static const char *const senseless[] = {"",
                                            "mean",
                                            "average@lr=1",
                                            "nesterov@",
                                            "nesterov@0.7",
                                            "nesterov@lr=",
                                            "nesterov@lr=x",
                                            "nesterov@rate=1",
                                            "nesterov@lr=1,",
                                            "nesterov@lr=nan",
                                            "Average"};
    for (size_t i = 0; i < sizeof senseless / sizeof *senseless; i++) {
        MUST_FAIL(TG_E_ARGUMENT, "is not understood", tg_outer_read(&o, senseless[i], why));
    }
    static const char *const outside[] = {"nesterov@lr=0", "nesterov@lr=-1", "nesterov@lr=1e9", "nesterov@momentum=1",
                                          "nesterov@momentum=-0.1"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        MUST_FAIL(TG_E_ARGUMENT, "needs lr above 0", tg_outer_read(&o, outside[i], why));
    }
    assert_true(o.rate == 3 && o.momentum == 3);
}

/* ---- arithmetic --------------------------------------------------------------------------------------------------------- */

static const size_t lengths[] = {0, 1, 7, 8, 9, 31, 33, 1023, 1024, 1025, 4100};

static float *draw(test_random *random, size_t n)
{
    float *out = test_room((n + (n == 0)) * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        out[i] = test_gaussian(random);
    }
    return out;
}

/* Every product and sum is rounded to fp32 on its own. */
static float once(float value)
{
    volatile float rounded = value;
    return rounded;
}

static void a_round_is_as_defined(void **state)
{
    (void)state;
    test_random random = {5};
    const tg_outer outers[] = {{1, 0}, {0.7f, 0.9f}, {1, 0.5f}, {0.3f, 0}};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        for (size_t o = 0; o < sizeof outers / sizeof *outers; o++) {
            size_t n = lengths[k];
            float *start = draw(&random, n), *weights = draw(&random, n), *velocity = draw(&random, n);
            float *move = test_room((n + (n == 0)) * sizeof *move), *alone = test_room((n + (n == 0)) * sizeof *alone);
            float *now = test_room((n + (n == 0)) * sizeof *now), *fast = test_room((n + (n == 0)) * sizeof *fast);
            const tg_outer by = outers[o];
            tg_local_move(move, start, weights, TG_FP32, n);
            memcpy(now, start, n * sizeof *now);
            memcpy(alone, start, n * sizeof *now);
            memcpy(fast, velocity, n * sizeof *now);
            tg_local_outer(now, fast, move, &by, n);
            tg_local_outer(alone, NULL, move, &by, n);
            for (size_t i = 0; i < n; i++) {
                float d = once(start[i] - weights[i]);
                float v = once(once(by.momentum * velocity[i]) + d);
                float step = once(by.rate * once(d + once(by.momentum * v)));
                assert_memory_equal(&move[i], &d, sizeof d);
                assert_memory_equal(&fast[i], &v, sizeof v);
                assert_true(now[i] == once(start[i] - step));
                assert_true(alone[i] == once(start[i] - once(by.rate * d)));
            }
            tg_local_mix(weights, TG_FP32, now, 0, n);
            assert_memory_equal(weights, now, n * sizeof *now);
            free(start), free(weights), free(velocity), free(move), free(alone), free(now), free(fast);
        }
    }
}

/* The move of half-precision weights does not hold what rounding the start to them takes away. */
static void half_precision_moves_from_the_rounded_start(void **state)
{
    (void)state;
    test_random random = {6};
    const tg_dtype dtypes[] = {TG_FP16, TG_BF16};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        for (int d = 0; d < 2; d++) {
            size_t n = lengths[k];
            float *start = draw(&random, n), *move = test_room((n + (n == 0)) * sizeof *move);
            uint16_t *weights = test_room((n + (n == 0)) * sizeof *weights),
                     *mixed = test_room((n + (n == 0)) * sizeof *mixed);
            tg_local_mix(weights, dtypes[d], start, 0, n);
            tg_local_move(move, start, weights, dtypes[d], n);
            for (size_t i = 0; i < n; i++) {
                assert_true(move[i] == 0);
            }
            memset(mixed, 0, n * sizeof *mixed);
            tg_local_mix(mixed, dtypes[d], start, 0.75f, n);
            for (size_t i = 0; i < n; i++) {
                float quarter = once(0.25f * start[i]);
                uint16_t expected = 0;
                tg_narrow(&expected, &quarter, dtypes[d], 1);
                assert_true((mixed[i] & 0x7fff) == (expected & 0x7fff));
            }
            free(start), free(move), free(weights), free(mixed);
        }
    }
}

static void weights_are_mixed_by_a_factor(void **state)
{
    (void)state;
    test_random random = {7};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        size_t n = lengths[k];
        float *start = draw(&random, n), *weights = draw(&random, n),
              *mixed = test_room((n + (n == 0)) * sizeof *mixed);
        memcpy(mixed, weights, n * sizeof *mixed);
        tg_local_mix(mixed, TG_FP32, start, 0.3f, n);
        float rest = once(1 - 0.3f);
        for (size_t i = 0; i < n; i++) {
            assert_true(mixed[i] == once(once(0.3f * weights[i]) + once(rest * start[i])));
        }
        tg_local_mix(mixed, TG_FP32, start, 1, n);
        free(start), free(weights), free(mixed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_follow_the_schedule),    cmocka_unit_test(all_rounds_of_one_step_are_told),
        cmocka_unit_test(bad_schedules_are_refused),     cmocka_unit_test(outer_steps_are_read),
        cmocka_unit_test(a_round_is_as_defined),         cmocka_unit_test(half_precision_moves_from_the_rounded_start),
        cmocka_unit_test(weights_are_mixed_by_a_factor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
