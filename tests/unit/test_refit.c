/* Fits that are kept for several steps (fp4 and fp8 with refit=N): which steps fit, what they send, and that a step that fails or a
 * saved state changes nothing of it. */
#include "world.h"

#include "pack/pack.h"
#include "quantize/minifloat.h"
#include "quantize/shapes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_N = 3, CHUNK = 262144, REFIT = 3, STEPS = 8 };
static const uint64_t lens[TENSOR_N] = {CHUNK + 1000, 700, 5};

typedef struct sent {
    float step;
    uint8_t row;
} sent;

static tg_codec *codec_of(const char *recipe, const test_model *m, uint32_t threads, tg_nonfinite policy)
{
    tg_codec *c = NULL;
    tg_options opt = TG_OPTIONS_INIT;
    opt.threads = threads;
    opt.nonfinite = policy;
    opt.describe = 1;
    MUST(tg_codec_new(&c, recipe, m->tensors, m->tensor_n, &opt, why));
    return c;
}

/* Gradients whose size and shape change from step to step. */
static void fill(test_model *m, uint64_t step)
{
    test_random random = {step + 1};
    test_model_fill(m, &random);
    for (size_t t = 0; t < m->tensor_n; t++) {
        for (uint64_t i = 0; i < m->dims[t]; i++) {
            float value = test_model_get(m, t, i);
            test_model_set(m, t, i, step % 2 == 0 ? value * (float)(1 + step) : value * value * value);
        }
    }
}

/* The fit at the end of a frame with one chunk of `n` values in fp4 and no residual: side data stands before packed symbols. */
static sent fit_of(const test_frame *f, uint64_t n)
{
    const uint8_t *side = f->bytes + f->len - 8 - tg_bits_len(n, 11) - TG_MINIFLOAT_SIDE;
    return (sent){tg_get_float(side), side[4]};
}

/* The fit that a step of its own would have. */
static sent fresh_fit(const test_model *m, uint64_t step)
{
    tg_codec *c = codec_of("fp4", m, 1, TG_NONFINITE_ERROR);
    test_frame f = test_encode(c, step, m);
    sent out = fit_of(&f, m->dims[0]);
    free(f.bytes);
    tg_codec_free(c);
    return out;
}

static bool is_same(sent a, sent b)
{
    return memcmp(&a.step, &b.step, sizeof a.step) == 0 && a.row == b.row;
}

static void every_nth_step_fits(void **state)
{
    test_model m = test_model_new(&lens[1], 1, TG_FP32);
    tg_codec *c = codec_of("fp4@refit=3", &m, 1, TG_NONFINITE_ERROR);
    sent last = {0, 0};
    (void)state;
    for (uint64_t step = 1; step < STEPS; step++) { /* the first step fits, whatever its number */
        fill(&m, step);
        test_frame f = test_encode(c, step, &m);
        sent fresh = fresh_fit(&m, step), got = fit_of(&f, lens[1]);
        bool fits = step == 1 || step % REFIT == 0;
        assert_true(is_same(got, fits ? fresh : last));
        assert_false(is_same(fresh, last));
        last = got;
        test_model back = test_model_new(&lens[1], 1, TG_FP32);
        test_decode(&back, &f);
        for (uint64_t i = 0; i < lens[1]; i++) { /* the nearest value of the format, times the step that was sent */
            static const float levels[] = {0, 0.5f, 1, 1.5f, 2, 3};
            float value = test_model_get(&m, 0, i), decoded = test_model_get(&back, 0, i), error = INFINITY;
            for (size_t k = 0; k < 6; k++) {
                error = fminf(error, fabsf(fabsf(value) - levels[k] * got.step));
            }
            assert_true(fabsf(fabsf(value - decoded) - error) <= 1e-6f * got.step);
        }
        test_model_free(&back);
        free(f.bytes);
    }
    tg_codec_free(c);
    test_model_free(&m);
}

/* Zeros, NaN and Inf have no fit: the last one is kept. So is it where a step is refused. */
static void steps_without_a_fit_keep_the_last(void **state)
{
    test_model m = test_model_new(&lens[1], 1, TG_FP32);
    (void)state;
    for (int pass = 0; pass < 3; pass++) {
        tg_codec *c = codec_of("fp4@refit=3", &m, 1, pass == 1 ? TG_NONFINITE_PASS : TG_NONFINITE_ERROR);
        fill(&m, 0);
        test_frame first = test_encode(c, 0, &m), third;
        sent expected = fit_of(&first, lens[1]);
        test_model odd = test_model_new(&lens[1], 1, TG_FP32);
        fill(&odd, 3);
        for (uint64_t i = 0; i < lens[1]; i++) {
            test_model_set(&odd, 0, i, pass == 0 ? 0 : i == 5 ? NAN : test_model_get(&odd, 0, i));
        }
        if (pass < 2) {
            test_frame second = test_encode(c, 3, &odd);
            free(second.bytes);
        } else {
            size_t len = 0, cap = tg_encode_bound(c);
            uint8_t *frame = test_room(cap);
            MUST_FAIL(TG_E_NONFINITE, "NaN", tg_encode(&len, c, frame, cap, 3, (const void *const *)odd.grads, why));
            free(frame);
        }
        fill(&m, 4);
        third = test_encode(c, 4, &m);
        assert_true(is_same(fit_of(&third, lens[1]), expected));
        free(first.bytes);
        free(third.bytes);
        tg_codec_free(c);
        test_model_free(&odd);
    }
    test_model_free(&m);
}

static void threads_change_nothing(void **state)
{
    static const char *const recipes[] = {"ef@decay=0.9+fp4@refit=3+huffman", "fp8@refit=3", "ef+fp8@e4m3,refit=3+rans",
                                          "ef+topk@0.1+fp4@refit=3+gaps", "fp4@refit=3+huffman@model"};
    (void)state;
    for (size_t k = 0; k < sizeof recipes / sizeof *recipes; k++) {
        test_model m = test_model_new(lens, TENSOR_N, TG_FP32);
        tg_codec *one = codec_of(recipes[k], &m, 1, TG_NONFINITE_ERROR);
        tg_codec *three = codec_of(recipes[k], &m, 3, TG_NONFINITE_ERROR);
        for (uint64_t step = 0; step < 5; step++) {
            fill(&m, step);
            test_expect_same_frames(one, three, step, &m);
        }
        tg_codec_free(one);
        tg_codec_free(three);
        test_model_free(&m);
    }
}

/* refit=1 is the default, and writes what was always written. */
static void one_is_the_default(void **state)
{
    test_model m = test_model_new(&lens[1], 2, TG_FP32);
    tg_codec *plain = codec_of("ef+fp4+rans", &m, 1, TG_NONFINITE_ERROR);
    tg_codec *one = codec_of("ef+fp4@refit=1+rans", &m, 1, TG_NONFINITE_ERROR);
    (void)state;
    for (uint64_t step = 0; step < 3; step++) {
        fill(&m, step);
        test_expect_same_frames(plain, one, step, &m);
    }
    tg_codec_free(plain);
    tg_codec_free(one);
    test_model_free(&m);
    MUST_FAIL(TG_E_RECIPE, "refit", tg_codec_new(&plain, "fp4@refit=0", NULL, 0, NULL, why));
    MUST_FAIL(TG_E_RECIPE, "refit", tg_codec_new(&plain, "fp8@refit=1.5", NULL, 0, NULL, why));
}

/* A step that another rank ends leaves the fits of all as they were. */
static void a_step_that_fails_leaves_the_fit(void **state)
{
    static const char *const exchanges[] = {"gather", "shard", "server"};
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        const test_setup setup = {
            .recipe = "ef+fp4@refit=3", .exchange = exchanges[k], .lens = &lens[1], .tensor_n = 2, .dtype = TG_FP32};
        test_world straight = test_world_new(3, &setup), disturbed = test_world_new(3, &setup);
        for (uint64_t step = 0; step < 3; step++) {
            test_world_step(&straight, step);
            test_world_step(&disturbed, step);
        }
        test_world_fill(&disturbed, 30);
        test_model_set(&disturbed.models[2], 0, 3, NAN);
        tg_detail reason = {""};
        assert_int_not_equal(test_world_reduce(&disturbed, 3, NULL, &reason), TG_OK);
        for (uint64_t step = 4; step < 6; step++) {
            test_world_step(&straight, step);
            test_world_step(&disturbed, step);
        }
        assert_true(test_world_same(&straight, &disturbed));
        test_world_free(&straight);
        test_world_free(&disturbed);
    }
}

/* In a world of another size chunks are others: fits are made anew, and residuals are shared as ever. Groups change nothing. */
static void states_of_other_worlds_and_groups(void **state)
{
    const test_setup setup = {
        .recipe = "ef+fp4@refit=4", .exchange = "shard", .lens = &lens[1], .tensor_n = 2, .dtype = TG_FP32};
    static const uint32_t groups[] = {1, 0};
    test_world three = test_world_new(3, &setup), two = test_world_new(2, &setup);
    test_world grouped = test_world_new_grouped(3, &setup, groups), fresh = test_world_new(2, &setup);
    tg_span states[3];
    (void)state;
    for (uint64_t step = 0; step < 2; step++) {
        test_world_step(&three, step);
    }
    for (uint32_t r = 0; r < 3; r++) {
        states[r].len = tg_state_len(three.ranks[r]);
        states[r].data = test_room(states[r].len);
        MUST(tg_state_save(three.ranks[r], states[r].data, states[r].len, why));
    }
    for (uint32_t r = 0; r < 3; r++) {
        MUST(tg_state_load(grouped.ranks[r], &states[r], 1, why));
    }
    test_world_step(&three, 2);
    test_world_step(&grouped, 2);
    assert_true(test_world_same(&three, &grouped));
    for (uint32_t r = 0; r < 2; r++) {
        test_world_step(&fresh, 20 + r); /* has fits, which loading forgets */
    }
    for (uint32_t r = 0; r < 2; r++) {
        MUST(tg_state_load(two.ranks[r], states, 3, why));
        MUST(tg_state_load(fresh.ranks[r], states, 3, why));
    }
    test_world_step(&two, 2);
    test_world_step(&fresh, 2);
    assert_true(test_world_same(&two, &fresh));
    for (uint32_t r = 0; r < 3; r++) {
        free(states[r].data);
    }
    test_world_free(&three);
    test_world_free(&two);
    test_world_free(&grouped);
    test_world_free(&fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_nth_step_fits),
                                       cmocka_unit_test(steps_without_a_fit_keep_the_last),
                                       cmocka_unit_test(threads_change_nothing),
                                       cmocka_unit_test(one_is_the_default),
                                       cmocka_unit_test(a_step_that_fails_leaves_the_fit),
                                       cmocka_unit_test(states_of_other_worlds_and_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
