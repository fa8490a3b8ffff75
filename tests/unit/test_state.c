/* Saved state: a resumed run ends in the same bits; residuals survive another number of ranks. */
#include "world.h"

#include "exchange/exchange.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t lens[] = {400, 3, 0, 90};
enum { TENSOR_N = 4, ELEMENTS = 493 };

static const struct {
    const char *recipe, *exchange;
} runs[] = {{"ef+topk@0.05+fp16", "gather"},
            {"ef+topk@0.05+fp16", "shard"},
            {"ef@decay=0.5+topk@0.05,scope=model", "server"},
            {"ef+randomk@0.1+bf16", "shard"},
            {"ef+randomblock@0.1", "allreduce"},
            {"ef+topk@0.05,coords=shared", "allreduce"},
            {"ef+adabins@50+sign@scale=meanmax", "gather"},
            {"ef+adabins@50+sign@scale=meanmax", "shard"},
            {"ef+orq@3,bucket=100", "shard"},
            {"co3", "shard"},
            {"ef@decay=0.9+fp4@refit=4+huffman", "shard"},
            {"ef+topk@0.2+fp8@refit=5", "gather"},
            {"fp4@refit=3+rans", "server"},
            {"dgc@0.05", "gather"},
            {"dgc@0.05", "shard"},
            {"ef@again=fp32+adabins@50+sign@scale=meanmax", "gather"},
            {"ef@again=fp32+adabins@50+sign@scale=meanmax", "shard"},
            {"ef@small=fp16,again=fp16+topk@0.05", "shard"},
            {"ef@small=fp16,again=fp16+topk@0.05", "gather"},
            {"ef@decay=0.9,again=bf16+fp4@refit=4+huffman", "server"},
            {"ef@decay=0.9,again=bf16+fp4@refit=4+huffman", "gather"},
            {"momentum@again=fp16+topk@0.05", "shard"},
            {"dense", "allreduce"}};
enum { RUN_N = sizeof runs / sizeof *runs };

static test_world make_world(size_t run, uint32_t n)
{
    test_setup setup = {.recipe = runs[run].recipe, .exchange = runs[run].exchange, .lens = lens, .tensor_n = TENSOR_N};
    return test_world_new(n, &setup);
}

static tg_span *save_all(const test_world *w)
{
    tg_span *states = calloc(w->n, sizeof *states);
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

static void a_resumed_run_ends_in_the_same_bits(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        for (uint64_t stop = 0; stop < 6; stop += 2) {
            test_world straight = make_world(run, 3), first = make_world(run, 3), second = make_world(run, 3);
            for (uint64_t step = 0; step < 6; step++) {
                test_world_step(&straight, step);
            }
            for (uint64_t step = 0; step < stop; step++) {
                test_world_step(&first, step);
            }
            tg_span *states = save_all(&first);
            for (uint32_t r = 0; r < 3; r++) { /* its own state is enough, and all states do as well */
                MUST(r == 1 ? tg_state_load(second.ranks[r], states, 3, why)
                            : tg_state_load(second.ranks[r], &states[r], 1, why));
            }
            tg_span *again = save_all(&second);
            for (uint32_t r = 0; r < 3; r++) {
                assert_memory_equal(again[r].data, states[r].data, states[r].len);
            }
            for (uint64_t step = stop; step < 6; step++) {
                test_world_step(&second, step);
            }
            assert_true(test_world_same(&straight, &second));
            free_all(again, 3);
            free_all(states, 3);
            test_world_free(&second);
            test_world_free(&first);
            test_world_free(&straight);
        }
    }
}

static void move(size_t from_run, uint32_t from, size_t to_run, uint32_t to)
{
    test_world before = make_world(from_run, from), after = make_world(to_run, to);
    for (uint64_t step = 0; step < 3; step++) {
        test_world_step(&before, step);
    }
    tg_span *states = save_all(&before);
    for (uint32_t r = 0; r < to; r++) {
        MUST(tg_state_load(after.ranks[r], states, from, why));
    }
    double had[ELEMENTS], has[ELEMENTS];
    test_world_owed(had, &before);
    test_world_owed(has, &after);
    for (int i = 0; i < ELEMENTS; i++) { /* a mean in fp32 of values up to 10 */
        assert_true(fabs(had[i] - has[i]) < 10 * 0x1p-23);
    }
    test_world_step(&after, 3);
    free_all(states, from);
    test_world_free(&after);
    test_world_free(&before);
}

static void residuals_survive_another_world(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 8, 11};
    for (size_t run = 0; run < RUN_N; run++) {
        for (size_t k = 0; k < (size_t)5 * 5; k++) {
            move(run, worlds[k % 5], run, worlds[k / 5]);
        }
    }
}

/* With more ranks another exchange may be chosen; the owners' residuals then move to all ranks, or are 0. */
static void residuals_survive_another_exchange_in_another_world(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 8, 11};
    for (size_t run = 0; run < RUN_N; run++) {
        for (size_t other = 0; other < RUN_N; other++) {
            for (size_t k = 0; k < (size_t)5 * 5; k++) {
                if (run != other && strcmp(runs[run].recipe, runs[other].recipe) == 0 && k % 5 != k / 5) {
                    move(run, worlds[k % 5], other, worlds[k / 5]);
                }
            }
        }
    }
}

/* ---- what is not a state of this run ------------------------------------------------------------------------------------- */

static void damaged_states_are_refused_and_change_nothing(void **state)
{
    (void)state;
    test_world w = make_world(1, 2), reader = make_world(1, 2);
    test_world_step(&w, 0);
    test_world_step(&reader, 5);
    tg_span *states = save_all(&w), *before = save_all(&reader);
    uint8_t *bytes = states[0].data;
    size_t len = (size_t)states[0].len;
    for (size_t bit = 0; bit < 8 * len; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        tg_detail reason = {""};
        assert_true(tg_state_load(reader.ranks[0], &states[0], 1, &reason) < 0 && reason.text[0] != '\0');
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t cut = 0; cut < len; cut++) {
        uint8_t *shorter = test_room(cut);
        memcpy(shorter, bytes, cut);
        tg_span span = {shorter, cut};
        assert_true(tg_state_load(reader.ranks[0], &span, 1, NULL) < 0);
        free(shorter);
    }
    tg_span *after = save_all(&reader);
    assert_memory_equal(before[0].data, after[0].data, len);
    free_all(after, 2);
    free_all(before, 2);
    free_all(states, 2);
    test_world_free(&reader);
    test_world_free(&w);
}

static void foreign_states_are_named(void **state)
{
    (void)state;
    test_world w = make_world(0, 2), shard = make_world(1, 2), other = make_world(3, 2), three = make_world(0, 3);
    test_world_step(&w, 0);
    tg_span *states = save_all(&w);
    MUST_FAIL(TG_E_MISMATCH, "another exchange than 'shard'", tg_state_load(shard.ranks[0], states, 1, why));
    MUST_FAIL(TG_E_MISMATCH, "another recipe", tg_state_load(other.ranks[0], states, 1, why));
    MUST_FAIL(TG_E_MISMATCH, "is of rank 0, and this is rank 1", tg_state_load(w.ranks[1], states, 1, why));
    MUST_FAIL(TG_E_MISMATCH, "give all 2 states", tg_state_load(three.ranks[1], states, 1, why));
    tg_span twice[] = {states[1], states[1]};
    MUST_FAIL(TG_E_MISMATCH, "given twice", tg_state_load(three.ranks[1], twice, 2, why));
    test_world_step(&w, 1);
    tg_span *later = save_all(&w);
    tg_span mixed[] = {states[0], later[1]};
    MUST_FAIL(TG_E_MISMATCH, "saved after steps 0 and 1", tg_state_load(three.ranks[1], mixed, 2, why));
    MUST_FAIL(TG_E_ARGUMENT, "at least one", tg_state_load(w.ranks[1], states, 0, why));
    MUST_FAIL(TG_E_SPACE, "the destination has", tg_state_save(w.ranks[0], states[0].data, 10, why));
    free_all(later, 2);
    free_all(states, 2);
    test_world_free(&three);
    test_world_free(&other);
    test_world_free(&shard);
    test_world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_ends_in_the_same_bits),
        cmocka_unit_test(residuals_survive_another_world),
        cmocka_unit_test(residuals_survive_another_exchange_in_another_world),
        cmocka_unit_test(damaged_states_are_refused_and_change_nothing),
        cmocka_unit_test(foreign_states_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
