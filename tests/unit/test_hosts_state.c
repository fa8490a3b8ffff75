/* Hosts: saved states, other recipes in the middle of a run, and arguments. */
#include "hosts.h"

#include "exchange/exchange.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- state ---------------------------------------------------------------------------------------------------------------------- */

typedef struct saved {
    tg_span spans[12];
    uint32_t n;
} saved;

static saved save_all(const test_world *w)
{
    saved s = {.n = w->n};
    for (uint32_t r = 0; r < w->n; r++) {
        s.spans[r].len = tg_state_len(w->ranks[r]);
        s.spans[r].data = test_room(s.spans[r].len);
        MUST(tg_state_save(w->ranks[r], s.spans[r].data, s.spans[r].len, why));
    }
    return s;
}

static void free_saved(saved *s)
{
    for (uint32_t r = 0; r < s->n; r++) {
        free(s->spans[r].data);
    }
}

static void a_saved_step_goes_on(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_HOSTS_RUN_N; run++) {
        test_setup setup = test_hosts_setup(run);
        test_world w = test_world_new_hosted(6, &setup, NULL, 3);
        test_world after = test_world_new_hosted(6, &setup, test_run_groups, 3);
        test_world_step(&w, 0);
        test_world_step(&w, 1);
        saved s = save_all(&w);
        assert_int_equal(s.spans[1].len, 80); /* a header and a checksum */
        for (uint32_t r = 0; r < 6; r++) {
            MUST(tg_state_load(after.ranks[r], &s.spans[r], 1, why));
        }
        test_world_step(&w, 2);
        test_world_step(&after, 2);
        assert_true(test_world_same(&w, &after));
        saved a = save_all(&w), b = save_all(&after);
        for (uint32_t r = 0; r < 6; r++) {
            assert_int_equal(a.spans[r].len, b.spans[r].len);
            assert_memory_equal(a.spans[r].data, b.spans[r].data, a.spans[r].len);
        }
        free_saved(&b);
        free_saved(&a);
        free_saved(&s);
        test_world_free(&after);
        test_world_free(&w);
    }
}

/* What the model has not received: the mean over hosts, and what owners keep. */
static void owed_by(double *out, const test_world *w, uint32_t size)
{
    test_world_owed(out, w); /* other ranks than leaders count as zeros */
    test_world leaders = {.n = w->n / size, .models = w->models, .ranks = calloc(w->n, sizeof(tg_exchange *))};
    assert_non_null(leaders.ranks);
    for (uint32_t h = 0; h < leaders.n; h++) {
        leaders.ranks[h] = size == 1 ? w->ranks[h] : w->ranks[h * size]->hosts->between;
    }
    test_world_owed(out, &leaders);
    free(leaders.ranks);
}

/* From and to worlds of other hosts, all states together keep what is owed. */
static void states_move_to_other_hosts(void **state)
{
    static const struct {
        uint32_t n, size, to_n, to_size;
    } moves[] = {{6, 2, 6, 3}, {6, 2, 4, 2}, {6, 2, 6, 1}, {4, 1, 4, 2}, {4, 2, 12, 4}, {8, 2, 2, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        for (size_t run = 3; run < 5; run++) {
            test_setup setup = test_hosts_setup(run);
            test_world w = test_world_new_hosted(moves[i].n, &setup, NULL, moves[i].size);
            test_world to = test_world_new_hosted(moves[i].to_n, &setup, NULL, moves[i].to_size);
            uint64_t n = test_model_elements(&w.models[0]);
            double *before = test_room(n * sizeof *before), *after = test_room(n * sizeof *after);
            test_world_step(&w, 0);
            test_world_step(&w, 1);
            saved s = save_all(&w);
            MUST_FAIL(TG_E_MISMATCH, "give all", tg_state_load(to.ranks[0], s.spans, 1, why));
            for (uint32_t r = 0; r < to.n; r++) {
                MUST(tg_state_load(to.ranks[r], s.spans, s.n, why));
            }
            owed_by(before, &w, moves[i].size);
            owed_by(after, &to, moves[i].to_size);
            for (uint64_t k = 0; k < n; k++) {
                assert_true(fabs(before[k] - after[k]) < 1e-5);
            }
            test_world_step(&to, 2);
            free_saved(&s);
            free(after);
            free(before);
            test_world_free(&to);
            test_world_free(&w);
        }
    }
}

static void damaged_states_are_refused(void **state)
{
    (void)state;
    test_setup setup = test_hosts_setup(3);
    test_world w = test_world_new_hosted(4, &setup, NULL, 2);
    test_world_step(&w, 0);
    saved s = save_all(&w);
    MUST_FAIL(TG_E_MISMATCH, "the state is of rank 1, and this is rank 0",
              tg_state_load(w.ranks[0], &s.spans[1], 1, why));
    for (uint32_t r = 0; r < 2; r++) {
        for (uint64_t i = 0; i < s.spans[r].len; i += 1 + i / 80) {
            ((uint8_t *)s.spans[r].data)[i] ^= 4;
            assert_true(tg_state_load(w.ranks[r], &s.spans[r], 1, NULL) < 0);
            ((uint8_t *)s.spans[r].data)[i] ^= 4;
        }
        MUST(tg_state_load(w.ranks[r], &s.spans[r], 1, why));
    }
    free_saved(&s);
    test_world_free(&w);
}

/* ---- another recipe ---------------------------------------------------------------------------------------------------------- */

/* Residuals go over to another recipe; what has no place there is left to the leaders' gradients, and counts once in the mean. */
static void another_recipe_takes_residuals_over(void **state)
{
    enum { N = 4, SIZE = 2 };
    (void)state;
    test_setup setup = test_hosts_setup(3),
               fp16 = {.recipe = "fp16", .exchange = "gather", .lens = test_run_lens, .tensor_n = TEST_RUN_TENSOR_N};
    test_setup topk = {
        .recipe = "ef+topk@0.1", .exchange = "gather", .lens = test_run_lens, .tensor_n = TEST_RUN_TENSOR_N};
    test_world w = test_world_new_hosted(N, &setup, NULL, SIZE);
    test_world plain = test_world_new_hosted(N, &fp16, NULL, SIZE), kept = test_world_new_hosted(N, &topk, NULL, SIZE);
    test_model left = test_model_new(test_run_lens, TEST_RUN_TENSOR_N, TG_FP32);
    uint64_t n = test_model_elements(&left);
    double *before = test_room(n * sizeof *before), *after = test_room(n * sizeof *after);
    test_world_step(&w, 0);
    owed_by(before, &w, SIZE);
    memset(after, 0, n * sizeof *after);
    for (uint32_t r = 0; r < N; r++) {
        MUST(tg_exchange_adopt((float *const *)left.grads, plain.ranks[r], w.ranks[r], why));
        uint64_t at = 0;
        for (size_t t = 0; t < TEST_RUN_TENSOR_N; t++) {
            for (uint64_t i = 0; i < test_run_lens[t]; i++) {
                float value = test_model_get(&left, t, i);
                assert_true(r % SIZE == 0 || value == 0);
                after[at++] += (double)value / N; /* as a part of a gradient of N */
            }
        }
        MUST(tg_exchange_adopt((float *const *)left.grads, kept.ranks[r], w.ranks[r], why));
    }
    for (uint64_t k = 0; k < n; k++) {
        assert_true(fabs(before[k] - after[k]) < 1e-5);
    }
    owed_by(after, &kept, SIZE);
    for (uint64_t k = 0; k < n; k++) {
        assert_true(fabs(before[k] - after[k]) < 1e-5);
    }
    test_world_step(&kept, 1);
    test_world other = test_world_new(N, &setup);
    MUST_FAIL(TG_E_MISMATCH, "hosts of 1 ranks", tg_exchange_adopt(NULL, other.ranks[0], w.ranks[0], why));
    test_world_free(&other);
    free(after);
    free(before);
    test_model_free(&left);
    test_world_free(&kept);
    test_world_free(&plain);
    test_world_free(&w);
}

/* ---- arguments ------------------------------------------------------------------------------------------------------------------- */

static void host_sizes_must_fit(void **state)
{
    (void)state;
    test_model m = test_model_new(test_run_lens, TEST_RUN_TENSOR_N, TG_FP32);
    tg_options opt = TG_OPTIONS_INIT;
    tg_exchange *x = NULL;
    opt.has_seed = 1;
    opt.host_size = 4;
    MUST_FAIL(TG_E_ARGUMENT, "6 ranks cannot be divided into hosts of 4",
              tg_exchange_new(&x, "fp16", m.tensors, TEST_RUN_TENSOR_N, 0, 6, &opt, why));
    MUST_FAIL(TG_E_ARGUMENT, "2 ranks cannot be divided into hosts of 4",
              tg_exchange_new(&x, "fp16", m.tensors, TEST_RUN_TENSOR_N, 0, 2, &opt, why));
    MUST_FAIL(TG_E_RECIPE, "use a host size of 1",
              tg_exchange_new(&x, "lgc-ring@0.1", m.tensors, TEST_RUN_TENSOR_N, 0, 4, &opt, why));
    opt.host_size = 1;
    MUST(tg_exchange_new(&x, "fp16", m.tensors, TEST_RUN_TENSOR_N, 0, 6, &opt, why));
    assert_null(x->hosts);
    tg_exchange_free(x);
    test_model_free(&m);
}

/* Ranks that disagree about hosts find out in the first step. */
static void ranks_must_agree_about_hosts(void **state)
{
    (void)state;
    test_setup setup = test_hosts_setup(0);
    test_world w = test_world_new_hosted(4, &setup, NULL, 2);
    tg_options opt = test_setup_options(&setup);
    opt.host_size = 4;
    tg_exchange_free(w.ranks[3]);
    w.ranks[3] = NULL;
    MUST(tg_exchange_new(&w.ranks[3], setup.recipe, w.models[3].tensors, TEST_RUN_TENSOR_N, 3, 4, &opt, why));
    test_world_fill(&w, 0);
    MUST_FAIL(TG_E_MISMATCH, "rank 3 was set up with", test_world_reduce(&w, 0, NULL, why));
    test_world_free(&w);
}

/* An allocation that fails while an exchange is made is an error, and nothing leaks. */
static void too_little_memory_is_an_error(void **state)
{
    (void)state;
    test_model m = test_model_new(test_run_lens, TEST_RUN_TENSOR_N, TG_FP32);
    for (uint32_t rank = 0; rank < 2; rank++) {
        tg_status status = TG_E_MEMORY;
        for (uint64_t fail_at = 1; status == TG_E_MEMORY; fail_at++) {
            test_allocator a;
            test_allocator_start(&a, fail_at, false);
            tg_options opt = TG_OPTIONS_INIT;
            tg_exchange *x = NULL;
            opt.allocator = &a.allocator;
            opt.host_size = 2;
            opt.group_of = test_run_groups;
            status = tg_exchange_new(&x, "ef+topk@0.1", m.tensors, TEST_RUN_TENSOR_N, rank, 4, &opt, NULL);
            assert_true(status == TG_OK || status == TG_E_MEMORY);
            tg_exchange_free(x);
            assert_int_equal(a.held, 0);
        }
    }
    test_model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_saved_step_goes_on),          cmocka_unit_test(states_move_to_other_hosts),
        cmocka_unit_test(damaged_states_are_refused),    cmocka_unit_test(another_recipe_takes_residuals_over),
        cmocka_unit_test(host_sizes_must_fit),           cmocka_unit_test(ranks_must_agree_about_hosts),
        cmocka_unit_test(too_little_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
