/* Hosts: ranks of a host sum first. All ranks then hold what a flat exchange gives of as many ranks as there are hosts, with the
 * hosts' means as gradients, to the bit. Between hosts travel the bytes of that flat exchange. */
#include "hosts.h"

#include "exchange/exchange.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ranks, and ranks of a host. */
static const struct {
    uint32_t n, size;
} worlds[] = {{4, 2}, {6, 2}, {6, 3}, {8, 4}, {12, 2}, {12, 4}, {4, 4}};
enum { WORLD_N = sizeof worlds / sizeof *worlds };

/* ---- the flat twin: one rank a host --------------------------------------------------------------------------------------- */

/* The mean of a host's gradients, in rank order, in fp32. */
static void take_means(test_world *twin, const test_world *w, uint32_t size)
{
    for (uint32_t h = 0; h < twin->n; h++) {
        for (size_t t = 0; t < w->models[0].tensor_n; t++) {
            for (uint64_t i = 0; i < w->models[0].dims[t]; i++) {
                float sum = test_model_get(&w->models[h * size], t, i);
                for (uint32_t r = 1; r < size; r++) {
                    sum += test_model_get(&w->models[h * size + r], t, i);
                }
                test_model_set(&twin->models[h], t, i, sum / (float)size);
            }
        }
    }
}

/* The residuals of an owner and all else that is saved, between the header and the checksum. */
static void check_saved(const tg_exchange *a, const tg_exchange *b)
{
    enum { HEADER = 72, CHECKSUM = 8 };
    size_t len = tg_state_len(a);
    uint8_t *of_a = test_room(len), *of_b = test_room(len);
    assert_int_equal(len, tg_state_len(b));
    MUST(tg_state_save(a, of_a, len, why));
    MUST(tg_state_save(b, of_b, len, why));
    assert_memory_equal(of_a + HEADER, of_b + HEADER, len - HEADER - CHECKSUM);
    free(of_b);
    free(of_a);
}

static void check_residuals(const test_world *w, const test_world *twin, uint32_t size)
{
    float *own = test_room(3000 * sizeof *own), *other = test_room(3000 * sizeof *other);
    for (uint32_t r = 0; r < w->n; r++) {
        for (size_t t = 0; t < w->models[0].tensor_n; t++) {
            MUST(tg_exchange_residual(w->ranks[r], own, t, why));
            if (r % size == 0) {
                MUST(tg_exchange_residual(twin->ranks[r / size], other, t, why));
            } else {
                memset(other, 0, 3000 * sizeof *other);
            }
            assert_memory_equal(own, other, w->models[0].dims[t] * sizeof *own);
        }
        if (r % size == 0) {
            check_saved(w->ranks[r], twin->ranks[r / size]);
        }
    }
    free(other);
    free(own);
}

/* Bytes of a vote that a rank sends to other hosts. */
static uint64_t vote_len(uint32_t n, uint32_t rank, uint32_t size)
{
    uint64_t len = 0;
    if (n <= TG_DIRECT_WORLD_MAX) {
        return (uint64_t)(n - size) * TG_VOTE_LEN;
    }
    for (uint32_t far = 1; far < n; far *= 2) {
        len += (rank + far) % n / size != rank / size ? TG_VOTE_LEN : 0;
    }
    return len;
}

static void check_bytes(const test_world *w, const test_world *twin, uint32_t size, uint64_t votes)
{
    for (uint32_t r = 0; r < w->n; r++) {
        tg_meter last, of_twin = {0};
        tg_exchange_meter(w->ranks[r], &last, NULL);
        if (r % size == 0) {
            tg_exchange_meter(twin->ranks[r / size], &of_twin, NULL);
            assert_int_equal(of_twin.between, of_twin.payload + of_twin.header);
            of_twin.between -= votes * vote_len(twin->n, r / size, 1);
        }
        assert_int_equal(last.between, of_twin.between + votes * vote_len(w->n, r, size));
        assert_true(last.between <= last.payload + last.header);
    }
}

static void check_same(const test_world *w, const test_world *twin, uint32_t size, size_t run, uint64_t step)
{
    for (uint32_t r = 0; r < w->n; r++) {
        if (!test_model_equal(&w->models[r], &twin->models[0])) {
            fail_msg("%s, %u ranks in hosts of %u, rank %u at step %d: other averages", test_hosts_runs[run].recipe,
                     w->n, size, r, (int)step);
        }
    }
    check_residuals(w, twin, size);
}

static void check_sent(const test_world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        tg_meter total;
        tg_exchange_meter(w->ranks[r], NULL, &total);
        assert_int_equal(total.payload + total.header, w->sent[r]);
    }
}

/* ---- the same bits ------------------------------------------------------------------------------------------------------------ */

static void compare_in_lockstep(size_t run, uint32_t n, uint32_t size, const uint32_t *group_of, tg_dtype dtype)
{
    test_setup setup = test_hosts_setup(run);
    setup.dtype = dtype;
    test_world w = test_world_new_hosted(n, &setup, group_of, size);
    test_world twin = test_world_new_grouped(n / size, &setup, group_of);
    assert_true(test_world_exists(&w) == test_world_exists(&twin));
    for (uint64_t step = 0; step < 4; step++) {
        test_world_fill(&w, step);
        take_means(&twin, &w, size);
        MUST(test_world_reduce(&w, step, NULL, why));
        MUST(test_world_reduce(&twin, step, NULL, why));
        check_same(&w, &twin, size, run, step);
        check_bytes(&w, &twin, size, step == 0 ? 2 : 1);
    }
    check_sent(&w);
    assert_string_equal(tg_exchange_name(w.ranks[1]), tg_exchange_name(twin.ranks[0]));
    test_world_free(&twin);
    test_world_free(&w);
}

static void all_ranks_hold_what_the_hosts_means_give(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_HOSTS_RUN_N; run++) {
        for (size_t i = 0; i < WORLD_N; i++) {
            compare_in_lockstep(run, worlds[i].n, worlds[i].size, NULL, TG_FP32);
        }
        compare_in_lockstep(run, 6, 2, test_run_groups, TG_FP32);
        compare_in_lockstep(run, 24, 2, test_run_groups, TG_FP32); /* more hosts than send lengths to each other */
    }
}

static void half_precision_means_are_rounded_once(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_HOSTS_RUN_N; run++) {
        compare_in_lockstep(run, 6, 3, test_run_groups, TG_FP16);
        compare_in_lockstep(run, 4, 2, NULL, TG_BF16);
    }
}

/* Tensors that are matrices, so that powersgd sends factors. */
static void factors_travel_between_hosts(void **state)
{
    enum { N = 6, SIZE = 2, HOSTS = 3 };
    static const uint64_t dims[2] = {60, 50};
    (void)state;
    for (int dtype = 0; dtype < 3; dtype++) {
        test_setup setup = test_hosts_setup(TEST_HOSTS_RUN_N - 1);
        setup.dtype = (tg_dtype)dtype;
        test_world w = test_world_new(N, &setup), twin = test_world_new(HOSTS, &setup);
        tg_options opt = test_setup_options(&setup), flat = test_setup_options(&setup);
        opt.group_of = test_run_groups;
        opt.host_size = SIZE;
        for (uint32_t r = 0; r < N + HOSTS; r++) {
            test_world *of = r < N ? &w : &twin;
            uint32_t rank = r < N ? r : r - N;
            of->models[rank].tensors[0].dims = dims;
            of->models[rank].tensors[0].dim_n = 2;
            tg_exchange_free(of->ranks[rank]);
            of->ranks[rank] = NULL;
            MUST(tg_exchange_new(&of->ranks[rank], setup.recipe, of->models[rank].tensors, TEST_RUN_TENSOR_N, rank,
                                 of->n, r < N ? &opt : &flat, why));
        }
        for (uint64_t step = 0; step < 5; step++) {
            test_world_fill(&w, step);
            take_means(&twin, &w, SIZE);
            MUST(test_world_reduce(&w, step, NULL, why));
            MUST(test_world_reduce(&twin, step, NULL, why));
            check_same(&w, &twin, SIZE, TEST_HOSTS_RUN_N - 1, step);
        }
        test_world_free(&twin);
        test_world_free(&w);
    }
}

/* A link that performs operations in any order, and groups that are ready in any order, change no bits. */
static void any_order_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_HOSTS_RUN_N; run++) {
        for (size_t i = 0; i < WORLD_N; i++) {
            uint32_t n = worlds[i].n, size = worlds[i].size;
            test_setup setup = test_hosts_setup(run);
            setup.verify_every = 2;
            test_world twin = test_world_new_hosted(n, &setup, NULL, size);
            test_flight f = test_take_off_hosted(&setup, n, test_run_groups, size, run * 100 + i);
            for (uint64_t step = 0; step < 3; step++) {
                test_world_fill(&f.world, step);
                test_fly(&f, step);
                test_must_succeed(&f);
                test_world_step(&twin, step);
                assert_true(test_world_same(&f.world, &twin));
            }
            test_land(&f);
            test_world_free(&twin);
        }
    }
}

/* ---- threads -------------------------------------------------------------------------------------------------------------------- */

typedef struct worker {
    pthread_t thread;
    tg_reducer *reducer;
    test_model *model;
    uint32_t rank;
    tg_outcome outcome;
} worker;

enum { STEPS = 4 };

static void *work(void *argument)
{
    worker *w = argument;
    for (uint64_t step = 0; step < STEPS && w->outcome.status == TG_OK; step++) {
        test_random values = {step * 1000 + w->rank};
        test_model_fill(w->model, &values);
        w->outcome.status = tg_reducer_begin(w->reducer, step, w->model->grads, &w->outcome.why);
        for (size_t i = 0; i < TEST_RUN_TENSOR_N && w->outcome.status == TG_OK; i++) {
            w->outcome.status = tg_reducer_ready(w->reducer, (i + w->rank) % TEST_RUN_TENSOR_N, &w->outcome.why);
        }
        if (w->outcome.status == TG_OK) {
            w->outcome.status = tg_reducer_wait(w->reducer, &w->outcome.why);
        }
    }
    return NULL;
}

static void threads_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t run = 0; run < TEST_HOSTS_RUN_N; run++) {
        uint32_t n = worlds[run % WORLD_N].n, size = worlds[run % WORLD_N].size;
        test_setup setup = test_hosts_setup(run);
        test_world w = test_world_new_hosted(n, &setup, test_run_groups, size);
        test_world twin = test_world_new_hosted(n, &setup, NULL, size);
        worker *workers = calloc(n, sizeof *workers);
        tg_threads *hub = NULL;
        assert_non_null(workers);
        MUST(tg_threads_new(&hub, n, 60000, NULL, why));
        for (uint32_t r = 0; r < n; r++) {
            workers[r] = (worker){.model = &w.models[r], .rank = r};
            MUST(tg_reducer_new(&workers[r].reducer, w.ranks[r], tg_threads_link(hub, r), why));
        }
        for (uint32_t r = 0; r < n; r++) {
            assert_int_equal(pthread_create(&workers[r].thread, NULL, work, &workers[r]), 0);
        }
        for (uint32_t r = 0; r < n; r++) {
            pthread_join(workers[r].thread, NULL);
            if (workers[r].outcome.status != TG_OK) {
                fail_msg("%s, rank %u: %s", test_hosts_runs[run].recipe, r, workers[r].outcome.why.text);
            }
            tg_reducer_free(workers[r].reducer);
        }
        for (uint64_t step = 0; step < STEPS; step++) {
            test_world_step(&twin, step);
        }
        assert_true(test_world_same(&w, &twin));
        tg_threads_free(hub);
        free(workers);
        test_world_free(&twin);
        test_world_free(&w);
    }
}

/* ---- large values -------------------------------------------------------------------------------------------------------------- */

/* The sum of a host overflows; its mean does not. */
static void means_of_finite_values_are_finite(void **state)
{
    (void)state;
    test_setup setup = test_hosts_setup(0);
    test_world w = test_world_new_hosted(4, &setup, NULL, 2);
    test_world_fill(&w, 0);
    for (uint32_t r = 0; r < 4; r++) {
        test_model_set(&w.models[r], 0, 7, FLT_MAX);
        test_model_set(&w.models[r], 3, 1, r % 2 == 0 ? FLT_MAX : 0);
    }
    MUST(test_world_reduce(&w, 0, NULL, why));
    assert_true(test_world_identical(&w));
    assert_true(test_model_get(&w.models[3], 0, 7) == FLT_MAX);
    assert_true(test_model_get(&w.models[3], 3, 1) == FLT_MAX / 2);
    test_world_free(&w);
}

/* ---- two levels ------------------------------------------------------------------------------------------------------------- */

/* What a quantizer makes of a model. */
static void pass_through(test_model *m, const char *recipe)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 7;
    opt.describe = 1;
    tg_codec *c = NULL;
    MUST(tg_codec_new(&c, recipe, m->tensors, m->tensor_n, &opt, why));
    test_frame f = test_encode(c, 0, m);
    MUST(tg_decode(c, m->grads, f.bytes, f.len, why));
    free(f.bytes);
    tg_codec_free(c);
}

/* Hosts of 2 with another wire inside: what the flat exchange between hosts gives of the means of decoded gradients, decoded once
 * more; on all ranks, and with bytes inside hosts as short as the wire is. */
static void a_wire_inside_gives_the_same_bits_on_all_ranks(void **state)
{
    static const char *const between[] = {"ef+mxfp4", "ef+topk@0.1+fp16", "dense", "bf16"};
    static const char *const wires[] = {"mxfp8", "mxfp8@e5m2,hadamard=64", "bf16", "nvfp4"};
    static const double shares[] = {1.04, 1.04, 2.01, 0.57}; /* bytes of an element */
    static const uint64_t lens[] = {1000, 33, 40000};
    (void)state;
    for (size_t c = 0; c < 4; c++) {
        char recipe[100];
        (void)snprintf(recipe, sizeof recipe, "%s+inside=%s", between[c], wires[c]);
        test_setup flat = {.recipe = between[c], .lens = lens, .tensor_n = 3};
        test_setup setup = flat;
        setup.recipe = recipe;
        test_world w = test_world_new_hosted(6, &setup, NULL, 2), twin = test_world_new(3, &flat);
        for (uint64_t step = 0; step < 3; step++) {
            test_world_fill(&w, step);
            for (uint32_t r = 0; r < w.n; r++) {
                pass_through(&w.models[r], wires[c]);
            }
            take_means(&twin, &w, 2);
            test_world_fill(&w, step);
            MUST(test_world_reduce(&twin, step, NULL, why));
            pass_through(&twin.models[0], wires[c]);
            MUST(test_world_reduce(&w, step, NULL, why));
            for (uint32_t r = 0; r < w.n; r++) {
                if (!test_model_equal(&w.models[r], &twin.models[0])) {
                    fail_msg("%s, rank %u at step %d: other averages", recipe, r, (int)step);
                }
            }
        }
        check_sent(&w);
        tg_meter last;
        tg_exchange_meter(w.ranks[1], &last, NULL); /* its gradients to the leader, and votes */
        assert_true((double)(last.payload + last.header) < shares[c] * 41033 + 1000);
        test_world_free(&twin);
        test_world_free(&w);
    }
}

static void another_wire_inside_is_another_setup(void **state)
{
    static const uint64_t len = 1000;
    (void)state;
    test_setup a = {.recipe = "mxfp4+inside=mxfp8", .lens = &len, .tensor_n = 1};
    test_setup b = {.recipe = "mxfp4+inside=bf16", .lens = &len, .tensor_n = 1};
    test_world w = test_world_new_hosted(4, &a, NULL, 2), other = test_world_new_hosted(4, &b, NULL, 2);
    tg_exchange *swapped = w.ranks[3];
    w.ranks[3] = other.ranks[3];
    test_world_fill(&w, 0);
    MUST_FAIL(TG_E_MISMATCH, "rank 3", test_world_reduce(&w, 0, NULL, why));
    w.ranks[3] = swapped;
    test_world_free(&other);
    test_world_free(&w);
    char out[TG_RECIPE_CAP];
    MUST(tg_recipe_canonical(out, "inside=mxfp8+ef+mxfp4", why));
    assert_string_equal(out, "ef+mxfp4+inside=mxfp8@e4m3");
    MUST_FAIL(TG_E_RECIPE, "a quantizer alone", tg_recipe_canonical(out, "mxfp4+inside=topk@0.1", why));
    MUST_FAIL(TG_E_RECIPE, "a quantizer alone", tg_recipe_canonical(out, "mxfp4+inside=lowrank@4", why));
    MUST_FAIL(TG_E_RECIPE, "twice", tg_recipe_canonical(out, "mxfp4+inside=bf16+inside=bf16", why));
    MUST_FAIL(TG_E_RECIPE, "no part", tg_recipe_canonical(out, "mxfp4+inside=nosuch", why));
    MUST_FAIL(TG_E_RECIPE, "no 'inside'", tg_recipe_canonical(out, "lgc-ring@0.1+inside=bf16", why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_hold_what_the_hosts_means_give),
        cmocka_unit_test(half_precision_means_are_rounded_once),
        cmocka_unit_test(factors_travel_between_hosts),
        cmocka_unit_test(any_order_gives_the_same_bits),
        cmocka_unit_test(threads_give_the_same_bits),
        cmocka_unit_test(a_wire_inside_gives_the_same_bits_on_all_ranks),
        cmocka_unit_test(another_wire_inside_is_another_setup),
        cmocka_unit_test(means_of_finite_values_are_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
