/* LGC by ranks with and without a device, through all phases: the same averages, residuals, scales, weights and moments, to the bit, as by
 * ranks on the CPU alone. Failures and damaged messages change nothing. */
#include "exchange/lgc.h"
#include "mixed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_N = 6 };
static const uint64_t lens[TENSOR_N] = {60, 900, 0, 9, 700, 300};

#define CHANNELS ",dense=1,learn=2,enough=1e9,e1=4,e2=8,e3=8,e4=4,z=2,d1=4,d2=8,d3=8,d4=4"
#define RING "ef+topk@0.05,coords=shared+autoencoder@ring" CHANNELS
#define SERVER "ef+topk@0.05,coords=shared+autoencoder@server" CHANNELS

static const char *const recipes[] = {
    RING,
    RING ",order=index,first=sparse",
    RING ",code=fp16,refresh=1,again=1",
    RING ",code=bf16,own=yes",
    "momentum@0.9,clip=3+topk@0.05,coords=shared+autoencoder@ring" CHANNELS,
    "topk@0.05,coords=shared+autoencoder@ring" CHANNELS,
    SERVER,
    SERVER ",order=index,code=fp16,share=0.3,first=sparse",
    "ef@decay=0.9+topk@0.3,coords=shared+autoencoder@server" CHANNELS ",own=yes",
    RING ",code=fp16,whole=bf16",
    SERVER ",whole=fp16",
};
enum { RECIPE_N = sizeof recipes / sizeof *recipes, STEPS = 6 };

static test_setup setup_of(const char *recipe, tg_dtype dtype, tg_nonfinite nonfinite)
{
    return (test_setup){.recipe = recipe,
                        .lens = lens,
                        .tensor_n = TENSOR_N,
                        .dtype = dtype,
                        .nonfinite = nonfinite,
                        .verify_every = nonfinite == TG_NONFINITE_PASS ? 0 : 2};
}

static uint32_t phase_of(const test_world *w)
{
    tg_learning learning;
    tg_exchange_learning(&learning, w->ranks[0]);
    return learning.phase;
}

static void must_be_same(const mixed_flight *f, const test_world *twin, const test_setup *setup, uint64_t step)
{
    if (!test_world_same(&f->flight.world, twin)) {
        fail_msg("%s, %u ranks, dtype %d, after step %d, in phase %u", setup->recipe, twin->n, (int)setup->dtype,
                 (int)step, phase_of(twin));
    }
}

static void compare(const test_setup *setup, uint32_t n, mixed_kind kind, uint64_t steps)
{
    test_world twin = test_world_new(n, setup);
    mixed_flight f;
    assert_true(test_world_exists(&twin));
    mixed_take_off(&f, n, setup, NULL, kind, n);
    for (uint64_t step = 0; step < steps; step++) {
        mixed_fly(&f, step, step + 1);
        test_world_step(&twin, step);
        must_be_same(&f, &twin, setup, step);
        assert_int_equal(phase_of(&f.flight.world), phase_of(&twin));
    }
    mixed_land(&f);
    test_world_free(&twin);
}

static void devices_change_no_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < RECIPE_N; i++) {
        test_setup setup = setup_of(recipes[i], (tg_dtype)(i % 3), TG_NONFINITE_ERROR);
        compare(&setup, 1 + (uint32_t)i % 3, i % 2 == 0 ? MIXED_EVEN : MIXED_ODD, STEPS);
    }
    test_setup ring = setup_of(RING, TG_FP32, TG_NONFINITE_ERROR),
               server = setup_of(SERVER, TG_FP32, TG_NONFINITE_ERROR);
    compare(&ring, 3, MIXED_ALL, STEPS);
    compare(&server, 3, MIXED_ALL, STEPS);
}

/* Indices in several chunks. */
static void long_tensors(void **state)
{
    static const uint64_t long_lens[] = {100, 150000, 180000, 5000};
    test_setup setup =
        setup_of("ef+topk@0.001,coords=shared+autoencoder@ring,dense=0,learn=1,enough=1e9,e1=2,e2=2,e3=2,e4=2,z=1,"
                 "d1=2,d2=2,d3=2,d4=2",
                 TG_FP32, TG_NONFINITE_ERROR);
    (void)state;
    setup.lens = long_lens;
    setup.tensor_n = 4;
    compare(&setup, 2, MIXED_ODD, 2);
}

/* Puts values that a policy applies to into gradients: of a whole tensor, of coded and of picked ones. */
static void spoil(test_world *w, uint64_t step)
{
    static const float bad[] = {NAN, INFINITY, 3e38f, -INFINITY, -3e38f};
    for (size_t i = 0; i < 5; i++) {
        test_model_set(&w->models[0], 1, 100 * i + step, bad[i]);
        test_model_set(&w->models[w->n - 1], 4, 90 * i + step, bad[i]);
        test_model_set(&w->models[0], 0, 10 * i, bad[i]);
        test_model_set(&w->models[w->n - 1], 5, 50 * i, bad[i]);
    }
}

/* Bits, but for those of NaNs, which a CPU's operations choose. */
static bool same_but_nans(const test_world *a, const test_world *b)
{
    bool same = true;
    for (uint32_t r = 0; r < a->n; r++) {
        for (size_t t = 0; t < TENSOR_N; t++) {
            for (uint64_t i = 0; i < lens[t]; i++) {
                float x = test_model_get(&a->models[r], t, i), y = test_model_get(&b->models[r], t, i);
                same = same && (isnan(x) ? isnan(y) : memcmp(&x, &y, sizeof x) == 0);
            }
        }
    }
    return same;
}

static void policies_change_no_bits(void **state)
{
    (void)state;
    for (int policy = 0; policy < 3; policy++) {
        for (int i = 0; i < 2; i++) {
            test_setup setup = setup_of(i == 0 ? SERVER : RING ",own=yes", TG_FP32, (tg_nonfinite)policy);
            test_world twin = test_world_new(2, &setup);
            mixed_flight f;
            mixed_take_off(&f, 2, &setup, NULL, i == 1 ? MIXED_ALL : MIXED_ODD, 3);
            for (uint64_t step = 0; step < STEPS; step++) {
                test_world *worlds[] = {&f.flight.world, &twin};
                for (int w = 0; w < 2; w++) {
                    test_world_fill(worlds[w], step);
                    if (step != 1) {
                        spoil(worlds[w], step);
                    }
                }
                tg_detail reason = {""};
                test_fly(&f.flight, step);
                tg_status status = test_world_reduce(&twin, step, NULL, &reason);
                assert_int_equal(status == TG_OK, policy != TG_NONFINITE_ERROR || step == 1);
                for (uint32_t r = 0; r < 2; r++) {
                    assert_int_equal(f.flight.world.outcomes[r].status, twin.outcomes[r].status);
                    if (status != TG_OK) {
                        assert_string_equal(f.flight.world.outcomes[r].why.text, twin.outcomes[r].why.text);
                    }
                }
                if (policy == TG_NONFINITE_PASS) {
                    assert_true(same_but_nans(&f.flight.world, &twin));
                    for (uint32_t r = 0; r < 2; r++) {
                        for (size_t t = 0; t < TENSOR_N; t++) {
                            memcpy(f.flight.world.models[r].grads[t], twin.models[r].grads[t], lens[t] * 4);
                        }
                    }
                }
                must_be_same(&f, &twin, &setup, step);
            }
            mixed_land(&f);
            test_world_free(&twin);
        }
    }
}

/* Some steps by one kind of ranks, then some by another, as all on the CPU. */
static void runs_move_between_cpu_and_gpu(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        test_setup setup = setup_of(i % 2 == 0 ? RING : SERVER, TG_FP32, TG_NONFINITE_ERROR);
        test_world straight = test_world_new(2, &setup);
        mixed_flight first, second;
        uint64_t middle = i < 2 ? 2 : 4;
        mixed_take_off(&first, 2, &setup, NULL, i < 2 ? MIXED_NONE : MIXED_ALL, 1);
        mixed_take_off(&second, 2, &setup, NULL, i < 2 ? MIXED_ALL : MIXED_NONE, 2);
        mixed_fly(&first, 0, middle);
        for (uint32_t r = 0; r < 2; r++) {
            const tg_exchange *x = first.flight.world.ranks[r];
            tg_span saved = {test_room(tg_state_len(x)), tg_state_len(x)};
            MUST(tg_state_save(x, saved.data, (size_t)saved.len, why));
            MUST(tg_state_load(second.flight.world.ranks[r], &saved, 1, why));
            free(saved.data);
        }
        mixed_fly(&second, middle, STEPS);
        for (uint64_t step = 0; step < STEPS; step++) {
            test_world_step(&straight, step);
        }
        must_be_same(&second, &straight, &setup, STEPS);
        mixed_land(&second);
        mixed_land(&first);
        test_world_free(&straight);
    }
}

/* Residuals, and what is sent of each tensor. */
static void facts_are_the_same(void **state)
{
    test_setup setup = setup_of(RING, TG_FP32, TG_NONFINITE_ERROR);
    test_world twin = test_world_new(2, &setup);
    mixed_flight f;
    (void)state;
    mixed_take_off(&f, 2, &setup, NULL, MIXED_ALL, 1);
    for (uint64_t step = 0; step < 5; step++) {
        mixed_fly(&f, step, step + 1);
        test_world_step(&twin, step);
        for (uint32_t r = 0; r < 2; r++) {
            for (size_t t = 0; t < TENSOR_N; t++) {
                float on_device[900] = {0}, on_host[900] = {0};
                tg_traffic there, here;
                MUST(tg_exchange_residual(f.flight.world.ranks[r], on_device, t, why));
                MUST(tg_exchange_residual(twin.ranks[r], on_host, t, why));
                assert_memory_equal(on_device, on_host, sizeof on_host);
                MUST(tg_exchange_traffic(&there, f.flight.world.ranks[r], t, why));
                MUST(tg_exchange_traffic(&here, twin.ranks[r], t, why));
                assert_int_equal(there.len, here.len);
                assert_int_equal(there.entries, here.entries);
            }
        }
    }
    mixed_land(&f);
    test_world_free(&twin);
}

/* From a later step on, with a message damaged. */
static void damage_changes_nothing(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        test_setup setup = setup_of(form == 0 ? RING : SERVER, TG_FP32, TG_NONFINITE_ERROR);
        for (uint64_t at = 6; at < 20; at += 3) {
            test_world twin = test_world_new(2, &setup);
            mixed_flight f;
            mixed_take_off(&f, 2, &setup, NULL, MIXED_EVEN, at);
            test_fail_by_damage(&f.flight, &twin, at);
            mixed_land(&f);
            test_world_free(&twin);
        }
    }
}

/* ---- messages whose hash is right, and that are otherwise not to be trusted ----------------------------------------------------- */

/* A body with some bytes changed, or of another length. Returns its length. */
static uint64_t mutate(uint8_t *out, const uint8_t *body, uint64_t len, test_random *random)
{
    memcpy(out, body, len);
    switch (test_bits(random) % 4) {
    case 0: return test_bits(random) % (len + 1);
    case 1: out[len] = 0; return len + 1;
    default:
        for (uint64_t i = 1 + test_bits(random) % 3; i > 0; i--) { /* most in the header of the first chunk */
            uint64_t at = test_bits(random) % (test_bits(random) % 2 == 0 ? 8 : len);
            out[at] ^= (uint8_t)(1u << test_bits(random) % 8);
        }
        return len;
    }
}

typedef bool judge(tg_lgc *l, const uint8_t *body, uint64_t len);

static bool follow(tg_lgc *l, const uint8_t *body, uint64_t len)
{
    return l->executor->lgc->follow(l, body, len);
}

static bool add_innovation(tg_lgc *l, const uint8_t *body, uint64_t len)
{
    return l->executor->lgc->add_innovation(l, 0, body, len);
}

/* Both must judge a body and its mutants alike. */
static void judge_alike(judge *by, const mixed *m, tg_lgc *device, tg_lgc *host, const uint8_t *body, uint64_t len)
{
    uint8_t *bytes = test_room(len + 1);
    void *there = NULL;
    test_random random = {len};
    uint32_t accepted = 0;
    MUST(tg_cuda_acquire(&there, m->device, len + 1, why));
    for (int i = 0; i < 60; i++) {
        uint64_t mutant_len = i == 0 ? len : mutate(bytes, body, len, &random);
        memcpy(bytes, i == 0 ? body : bytes, i == 0 ? len : 0);
        MUST(tg_cuda_copy(m->device, there, bytes, mutant_len, why));
        bool is_good = by(host, bytes, mutant_len);
        assert_int_equal(by(device, there, mutant_len), is_good);
        accepted += is_good ? 1 : 0;
    }
    assert_in_range(accepted, 1, 40);
    tg_cuda_release(m->device, there);
    free(bytes);
}

static void mutants_are_judged_alike(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        test_setup setup = setup_of(form == 0 ? RING : SERVER, TG_FP32, TG_NONFINITE_ERROR);
        mixed_flight f;
        mixed_take_off(&f, 2, &setup, NULL, MIXED_EVEN, 1);
        mixed_fly(&f, 0, 4); /* to the last phase */
        tg_lgc *device = tg_lgc_of(f.flight.world.ranks[0]), *host = tg_lgc_of(f.flight.world.ranks[1]);
        assert_int_equal(host->progress.phase, TG_LGC_PHASE_CODE);
        uint8_t *body = test_room((size_t)tg_lgc_message_max(host));
        uint64_t lead_len = 0, code_len = 0;
        test_world_fill(&f.flight.world, 4);
        mixed_put(&f.mixed, 0);
        MUST(host->executor->lgc->load(host, f.flight.world.models[1].grads, why));
        MUST(device->executor->lgc->load(device, f.mixed.grads[0], why));
        host->executor->lgc->lead(body, &lead_len, &code_len, host);
        judge_alike(follow, &f.mixed, device, host, body, lead_len + code_len);
        if (form == 1) {
            judge_alike(add_innovation, &f.mixed, device, host, body, host->executor->lgc->innovate(body, host));
        }
        free(body);
        mixed_land(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_change_no_bits),   cmocka_unit_test(long_tensors),
        cmocka_unit_test(policies_change_no_bits),  cmocka_unit_test(runs_move_between_cpu_and_gpu),
        cmocka_unit_test(facts_are_the_same),       cmocka_unit_test(damage_changes_nothing),
        cmocka_unit_test(mutants_are_judged_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
