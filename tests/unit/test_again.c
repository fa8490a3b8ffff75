/* Owners that answer with all values (again=): nothing is chosen a second time. In fp32 all ranks get what gather gives them, to the bit;
 * what fp16 and bf16 round away stays in the owner's residual. */
#include "world.h"

#include "exchange/exchange.h"
#include "tersegrad/scatter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More ranks than elements among them. */
static const uint64_t lens[] = {1000, 7, 0, 1, 129};
static const uint32_t worlds[] = {1, 2, 3, 8, 11};
enum { TENSOR_N = 5, ELEMENTS = 1137, WORLD_N = sizeof worlds / sizeof *worlds, STEPS = 4 };

static const char *const owners[] = {"shard", "server"};
enum { OWNER_N = sizeof owners / sizeof *owners };

/* `%s` is the choice. The last ones have buckets or fits, which end with a slice: where there are several, frames differ from those that
 * are gathered. */
static const char *const forms[] = {
    "ef@again=%s+adabins@50+sign@scale=meanmax",
    "ef@again=%s+topk@0.05",
    "ef@decay=0.9,again=%s+topk@0.1,scope=model+fp16+rans",
    "ef@again=%s+randomk@0.1,coords=own",
    "momentum@again=%s+topk@0.05",
    "ef@small=fp16,again=%s+topk@0.02+fp4",
    "ef@again=%s+qsgd@4",
};
enum { FORM_N = sizeof forms / sizeof *forms, BUCKETS = FORM_N - 2 };

static test_world make_world(uint32_t n, const char *recipe, const char *exchange)
{
    const test_setup setup = {
        .recipe = recipe, .exchange = exchange, .lens = lens, .tensor_n = TENSOR_N, .verify_every = 1};
    test_world w = test_world_new(n, &setup);
    assert_true(test_world_exists(&w));
    return w;
}

static void write_recipe(char out[TG_RECIPE_CAP], size_t form, const char *choice)
{
    const char *at = strstr(forms[form], "%s");
    (void)snprintf(out, TG_RECIPE_CAP, "%.*s%s%s", (int)(at - forms[form]), forms[form], choice, at + 2);
}

static void answers_in_fp32_are_what_gather_gives(void **state)
{
    (void)state;
    for (size_t k = 0; k < (size_t)FORM_N * WORLD_N * OWNER_N; k++) {
        char recipe[TG_RECIPE_CAP];
        const char *owner = owners[k / FORM_N / WORLD_N];
        uint32_t n = worlds[k / FORM_N % WORLD_N];
        if (k % FORM_N >= BUCKETS && n > 1 && strcmp(owner, "shard") == 0) {
            continue;
        }
        write_recipe(recipe, k % FORM_N, "fp32");
        test_world w = make_world(n, recipe, owner), gathered = make_world(n, recipe, "gather");
        for (uint64_t step = 0; step < STEPS; step++) {
            test_world_step(&w, step);
            test_world_step(&gathered, step);
            for (uint32_t r = 0; r < n; r++) {
                const tg_codec *answer = test_answer_of(w.ranks[r]);
                assert_true(test_model_equal(&w.models[r], &gathered.models[r]));
                assert_true(answer == NULL || answer->plan->residual_n == 0);
            }
        }
        test_world_free(&gathered);
        test_world_free(&w);
    }
}

/* gradients + what was owed = averages + what is owed, up to rounding. */
static void what_is_rounded_is_owed(void **state)
{
    (void)state;
    static const char *const choices[] = {"fp16", "bf16"};
    for (size_t k = 0; k < (size_t)2 * WORLD_N * OWNER_N * 2; k++) {
        char recipe[TG_RECIPE_CAP];
        write_recipe(recipe, k % 2, choices[k / 2 % 2]);
        uint32_t n = worlds[k / 4 % WORLD_N];
        test_world w = make_world(n, recipe, owners[k / 4 / WORLD_N]);
        double total[ELEMENTS] = {0}, given[ELEMENTS] = {0}, owed[ELEMENTS];
        double rounded = 0;
        for (uint64_t step = 0; step < STEPS; step++) {
            for (int after = 0; after < 2; after++) {
                if (after == 0) {
                    test_world_fill(&w, step);
                } else {
                    MUST(test_world_reduce(&w, step, NULL, why));
                    assert_true(test_world_identical(&w));
                }
                uint64_t at = 0;
                for (size_t t = 0; t < TENSOR_N; at += lens[t++]) {
                    for (uint64_t i = 0; i < lens[t]; i++) {
                        for (uint32_t r = 0; r < n; r++) {
                            double value = (double)test_model_get(&w.models[r], t, i) / n;
                            (after == 0 ? total : given)[at + i] += value;
                        }
                    }
                }
            }
        }
        test_world_owed(owed, &w);
        for (size_t i = 0; i < ELEMENTS; i++) {
            assert_true(fabs(total[i] - given[i] - owed[i]) < 20 * STEPS * 0x1p-22);
        }
        for (uint32_t r = 0; r < n; r++) { /* there is something to owe */
            const tg_codec *answer = test_answer_of(w.ranks[r]);
            for (uint64_t i = 0; answer != NULL && i < answer->plan->residual_n; i++) {
                float kept = 0;
                answer->executor->save(&kept, answer->run, i, 1);
                rounded += fabs((double)kept);
            }
        }
        assert_true(rounded > 0);
        test_world_free(&w);
    }
}

/* The bytes of answers, by the link. */
typedef struct counted {
    uint64_t lens[16]; /* of each sender */
    uint32_t n[16];
} counted;

static tg_status count(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    counted *c = context;
    (void)to;
    if (kind == TG_ALLGATHERV && len > 8 && memcmp(data, "TGFR", 4) == 0) {
        c->lens[from] += len;
        c->n[from]++;
    }
    return TG_OK;
}

/* An answer is a frame of its values, two bytes each. */
static void answers_have_the_length_of_their_values(void **state)
{
    (void)state;
    enum { WORLD = 3 };
    const test_setup setup = {
        .recipe = "ef@again=fp16+topk@0.01", .exchange = "shard", .lens = lens, .tensor_n = TENSOR_N};
    test_world w = test_world_new(WORLD, &setup);
    counted c = {{0}, {0}};
    const tg_tap tap = {count, &c};
    test_world_fill(&w, 0);
    MUST(test_world_reduce(&w, 0, &tap, why));
    for (uint32_t r = 0; r < WORLD; r++) {
        uint64_t values = 0;
        for (size_t t = 0; t < TENSOR_N; t++) {
            uint64_t n = 0;
            tg_slice(NULL, &n, lens[t], r, WORLD);
            values += n;
        }
        assert_int_equal(c.n[r], WORLD - 1);
        assert_int_equal(c.lens[r], (WORLD - 1) * (TG_FRAME_HEADER + 2 * values + TG_FRAME_CHECKSUM));
    }
    test_world_free(&w);
}

/* Two tensors by the recipe, one by a rule: each is answered as its own recipe says. */
static void a_rule_says_it_for_its_tensors(void **state)
{
    (void)state;
    enum { WORLD = 5 };
    tg_exchange *ranks[WORLD], *gathered[WORLD];
    test_model models[WORLD], others[WORLD];
    void *const *grads[WORLD], *const *other_grads[WORLD];
    const tg_rule rule = {.pattern = "t0", .recipe = "ef@again=fp32+adabins@50+sign@scale=meanmax"};
    test_random random = {5};
    for (uint32_t r = 0; r < WORLD; r++) {
        tg_options opt = TG_OPTIONS_INIT;
        opt.rules = &rule;
        opt.rule_n = 1;
        models[r] = test_model_new(lens, TENSOR_N, TG_FP32);
        others[r] = test_model_new(lens, TENSOR_N, TG_FP32);
        test_model_fill(&models[r], &random);
        test_model_copy(&others[r], &models[r]);
        grads[r] = models[r].grads;
        other_grads[r] = others[r].grads;
        opt.exchange = "shard";
        MUST(tg_exchange_new(&ranks[r], "ef+topk@0.05", models[r].tensors, TENSOR_N, r, WORLD, &opt, why));
        opt.exchange = "gather";
        MUST(tg_exchange_new(&gathered[r], "ef+topk@0.05", models[r].tensors, TENSOR_N, r, WORLD, &opt, why));
    }
    MUST(tg_lockstep_reduce(NULL, ranks, WORLD, 0, grads, NULL, why));
    MUST(tg_lockstep_reduce(NULL, gathered, WORLD, 0, other_grads, NULL, why));
    assert_memory_equal(models[0].grads[0], others[0].grads[0], lens[0] * sizeof(float));
    assert_memory_not_equal(models[0].grads[4], others[0].grads[4], lens[4] * sizeof(float));
    for (uint32_t r = 1; r < WORLD; r++) {
        assert_true(test_model_equal(&models[r], &models[0]));
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        tg_exchange_free(gathered[r]);
        tg_exchange_free(ranks[r]);
        test_model_free(&others[r]);
        test_model_free(&models[r]);
    }
}

/* A rank that would answer otherwise is found in the first step; a state of otherwise answered steps is another run's. */
static void ranks_agree_on_how_owners_answer(void **state)
{
    (void)state;
    test_world w = make_world(3, "ef@again=fp16+topk@0.1", "shard"), other = make_world(3, "ef+topk@0.1", "shard");
    tg_exchange *kept = w.ranks[2];
    tg_span saved = {test_room(tg_state_len(other.ranks[0])), tg_state_len(other.ranks[0])};
    MUST(tg_state_save(other.ranks[0], saved.data, (size_t)saved.len, why));
    MUST_FAIL(TG_E_MISMATCH, "another recipe", tg_state_load(w.ranks[0], &saved, 1, why));
    test_world_fill(&w, 0);
    w.ranks[2] = other.ranks[2];
    MUST_FAIL(TG_E_MISMATCH, "was set up with", test_world_reduce(&w, 0, NULL, why));
    w.ranks[2] = kept;
    free(saved.data);
    test_world_free(&other);
    test_world_free(&w);
}

/* Flips a bit of an answer, in its body. */
typedef struct damage {
    uint32_t from;
    uint64_t at; /* from the end, in bytes */
} damage;

static tg_status flip(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    const damage *d = context;
    (void)to;
    if (kind == TG_ALLGATHERV && from == d->from && len > 100 && memcmp(data, "TGFR", 4) == 0) {
        ((uint8_t *)data)[len - d->at] ^= 4;
    }
    return TG_OK;
}

static void damaged_answers_are_refused(void **state)
{
    (void)state;
    for (uint64_t at = 1; at <= 100; at += 9) { /* checksum, values */
        test_world w = make_world(3, "ef@again=fp16+adabins@50+sign@scale=meanmax", "shard"),
                   twin = make_world(3, "ef@again=fp16+adabins@50+sign@scale=meanmax", "shard");
        damage d = {1, at};
        const tg_tap tap = {flip, &d};
        test_world_fill(&w, 0);
        test_world_fill(&twin, 0);
        MUST_FAIL(TG_E_FRAME, "from rank 1: the frame is damaged", test_world_reduce(&w, 0, &tap, why));
        assert_true(test_world_same(&w, &twin)); /* nothing has changed */
        test_world_step(&w, 0);
        test_world_step(&twin, 0);
        assert_true(test_world_same(&w, &twin));
        test_world_free(&twin);
        test_world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_in_fp32_are_what_gather_gives),   cmocka_unit_test(what_is_rounded_is_owed),
        cmocka_unit_test(answers_have_the_length_of_their_values), cmocka_unit_test(a_rule_says_it_for_its_tensors),
        cmocka_unit_test(ranks_agree_on_how_owners_answer),        cmocka_unit_test(damaged_answers_are_refused),
    };
    return cmocka_run_group_tests_name("again", tests, NULL, NULL);
}
