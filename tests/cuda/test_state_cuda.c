/* Saved states of ranks with a device are those of ranks on the CPU, byte for byte. A run moves between them, also to another number of
 * ranks, and another recipe takes over residuals. */
#include "mixed.h"

#include <stdlib.h>
#include <string.h>

enum { TENSOR_N = 4, ELEMENTS = 493 };
static const uint64_t lens[TENSOR_N] = {400, 3, 0, 90};
static const uint32_t groups[TENSOR_N] = {1, 1, 0, 0};

static const test_run runs[] = {
    {"ef+fp16", "gather"},
    {"ef+bf16", "shard"},
    {"momentum+fp16", "server"},
    {"ef@decay=0.5+fp16", "shard"},
    {"ef+fp16", "allreduce"},
    {"ef+sign", "gather"},
    {"momentum+sign", "server"},
    {"ef+sign", "shard"},
    {"fp8@refit=3", "gather"},
    {"ef+fp4@refit=3", "shard"},
    {"ef@again=fp16+topk@0.1", "shard"},
};
enum { RUN_N = sizeof runs / sizeof *runs };

static void take_off(mixed_flight *f, const test_run *run, uint32_t n, mixed_kind kind)
{
    const test_setup setup = {.recipe = run->recipe,
                              .exchange = run->exchange,
                              .lens = lens,
                              .tensor_n = TENSOR_N,
                              .dtype = TG_FP32,
                              .verify_every = 1};
    mixed_take_off(f, n, &setup, groups, kind, n);
}

static tg_span *save_all(const test_world *w)
{
    tg_span *states = calloc(w->n, sizeof *states);
    assert_non_null(states);
    for (uint32_t r = 0; r < w->n; r++) {
        states[r] = (tg_span){test_room(tg_state_len(w->ranks[r])), tg_state_len(w->ranks[r])};
        MUST(tg_state_save(w->ranks[r], states[r].data, (size_t)states[r].len, why));
    }
    return states;
}

static void free_all(tg_span *states, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        free(states[r].data);
    }
    free(states);
}

static void must_be_equal(const tg_span *a, const tg_span *b, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        assert_int_equal(a[r].len, b[r].len);
        assert_memory_equal(a[r].data, b[r].data, a[r].len);
    }
}

/* Two steps by `from`, then two by `to`, which has done so many others before, as four steps on the CPU. */
static void move(const test_run *run, mixed_kind from, mixed_kind to, uint64_t done)
{
    mixed_flight straight, first, second;
    take_off(&straight, run, 3, MIXED_NONE);
    take_off(&first, run, 3, from);
    take_off(&second, run, 3, to);
    mixed_fly(&straight, 0, 2);
    mixed_fly(&first, 0, 2);
    mixed_fly(&second, 0, done);
    tg_span *expected = save_all(&straight.flight.world), *saved = save_all(&first.flight.world);
    must_be_equal(saved, expected, 3);
    for (uint32_t r = 0; r < 3; r++) {
        MUST(tg_state_load(second.flight.world.ranks[r], &saved[r], 1, why));
    }
    tg_span *again = save_all(&second.flight.world);
    must_be_equal(again, expected, 3);
    mixed_fly(&straight, 2, 4);
    mixed_fly(&second, 2, 4);
    assert_true(test_world_same(&straight.flight.world, &second.flight.world));
    free_all(again, 3);
    free_all(saved, 3);
    free_all(expected, 3);
    mixed_land(&second);
    mixed_land(&first);
    mixed_land(&straight);
}

static void runs_move_between_cpu_and_gpu(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        move(&runs[run], MIXED_NONE, MIXED_ALL, run % 2);
        move(&runs[run], MIXED_ALL, MIXED_NONE, 0);
        move(&runs[run], MIXED_ODD, MIXED_EVEN, 1);
    }
}

/* States of 3 ranks are loaded by `n` ranks, with devices and without. */
static void move_to(const test_run *run, uint32_t n, mixed_kind from)
{
    mixed_flight first, on_device, on_host;
    take_off(&first, run, 3, from);
    take_off(&on_device, run, n, MIXED_ALL);
    take_off(&on_host, run, n, MIXED_NONE);
    mixed_fly(&first, 0, 2);
    tg_span *saved = save_all(&first.flight.world);
    for (uint32_t r = 0; r < n; r++) {
        MUST(tg_state_load(on_device.flight.world.ranks[r], saved, 3, why));
        MUST(tg_state_load(on_host.flight.world.ranks[r], saved, 3, why));
    }
    tg_span *a = save_all(&on_device.flight.world), *b = save_all(&on_host.flight.world);
    must_be_equal(a, b, n);
    mixed_fly(&on_device, 2, 3);
    mixed_fly(&on_host, 2, 3);
    assert_true(test_world_same(&on_device.flight.world, &on_host.flight.world));
    free_all(b, n);
    free_all(a, n);
    free_all(saved, 3);
    mixed_land(&on_host);
    mixed_land(&on_device);
    mixed_land(&first);
}

static void residuals_survive_another_number_of_ranks(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        move_to(&runs[run], 2, MIXED_ALL);
        move_to(&runs[run], 5, MIXED_NONE);
    }
}

/* What is left of each rank. */
typedef struct rest {
    float elements[3][ELEMENTS];
} rest;

static void adopt(rest *left, mixed_flight *to, const mixed_flight *from)
{
    memset(left, 0, sizeof *left);
    for (uint32_t r = 0; r < 3; r++) {
        float *at[TENSOR_N], *next = left->elements[r];
        for (size_t t = 0; t < TENSOR_N; next += lens[t++]) {
            at[t] = next;
        }
        MUST(tg_exchange_adopt(at, to->flight.world.ranks[r], from->flight.world.ranks[r], why));
    }
}

/* From recipe to recipe and from device to device, as on the CPU. */
static void take_over(const test_run *from, const test_run *to, mixed_kind before, mixed_kind after)
{
    mixed_flight first, second, first_twin, second_twin;
    rest left, left_twin;
    take_off(&first, from, 3, before);
    take_off(&second, to, 3, after);
    take_off(&first_twin, from, 3, MIXED_NONE);
    take_off(&second_twin, to, 3, MIXED_NONE);
    mixed_fly(&first, 0, 2);
    mixed_fly(&first_twin, 0, 2);
    adopt(&left, &second, &first);
    adopt(&left_twin, &second_twin, &first_twin);
    assert_memory_equal(&left, &left_twin, sizeof left);
    mixed_fly(&second, 2, 4);
    mixed_fly(&second_twin, 2, 4);
    assert_true(test_world_same(&second.flight.world, &second_twin.flight.world));
    mixed_land(&second_twin);
    mixed_land(&first_twin);
    mixed_land(&second);
    mixed_land(&first);
}

static void another_recipe_takes_over(void **state)
{
    static const test_run dense = {"dense", NULL};
    (void)state;
    take_over(&runs[0], &runs[1], MIXED_ALL, MIXED_ALL);
    take_over(&runs[1], &runs[0], MIXED_ALL, MIXED_NONE);
    take_over(&runs[2], &runs[3], MIXED_NONE, MIXED_ALL);
    take_over(&runs[3], &runs[4], MIXED_ODD, MIXED_EVEN);
    take_over(&runs[1], &dense, MIXED_ALL, MIXED_ALL);
    take_over(&runs[5], &runs[7], MIXED_ALL, MIXED_ALL);
    take_over(&runs[7], &runs[0], MIXED_ALL, MIXED_NONE);
    take_over(&runs[1], &runs[6], MIXED_NONE, MIXED_ALL);
}

static void residuals_are_read(void **state)
{
    float on_device[400], on_host[400];
    mixed_flight f, twin;
    (void)state;
    take_off(&f, &runs[0], 2, MIXED_ALL);
    take_off(&twin, &runs[0], 2, MIXED_NONE);
    mixed_fly(&f, 0, 2);
    mixed_fly(&twin, 0, 2);
    for (uint32_t r = 0; r < 2; r++) {
        for (size_t t = 0; t < TENSOR_N; t++) {
            memset(on_device, 0, sizeof on_device);
            memset(on_host, 0, sizeof on_host);
            MUST(tg_exchange_residual(f.flight.world.ranks[r], on_device, t, why));
            MUST(tg_exchange_residual(twin.flight.world.ranks[r], on_host, t, why));
            assert_memory_equal(on_device, on_host, sizeof on_host);
        }
    }
    mixed_land(&twin);
    mixed_land(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_move_between_cpu_and_gpu),
        cmocka_unit_test(residuals_survive_another_number_of_ranks),
        cmocka_unit_test(another_recipe_takes_over),
        cmocka_unit_test(residuals_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
