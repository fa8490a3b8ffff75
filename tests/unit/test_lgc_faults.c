/* LGC's two exchanges: state, damage, and what is refused. */
#include "lgc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- state ------------------------------------------------------------------------------------------------------------- */

typedef struct saved {
    uint8_t *bytes[TEST_LGC_RANKS];
    tg_span spans[TEST_LGC_RANKS];
} saved;

static saved save(const test_lgc *w)
{
    saved s;
    for (uint32_t r = 0; r < w->n; r++) {
        size_t len = tg_state_len(w->ranks[r]);
        s.bytes[r] = test_room(len);
        MUST(tg_state_save(w->ranks[r], s.bytes[r], len, why));
        s.spans[r] = (tg_span){s.bytes[r], len};
    }
    return s;
}

static void release(saved *s, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        free(s->bytes[r]);
    }
}

static void a_resumed_run_ends_in_the_same_bits(void **state)
{
    (void)state;
    static const uint64_t stops[] = {2, 5, 8, 12};
    for (size_t k = 0; k < TEST_LGC_RECIPES * 4; k++) {
        test_lgc *w = test_lgc_open(3, test_lgc_recipes[k / 4]), *other = test_lgc_open(3, test_lgc_recipes[k / 4]);
        uint64_t stop = stops[k % 4];
        for (uint64_t step = 0; step < stop; step++) {
            test_lgc_step(w, step);
        }
        saved s = save(w);
        for (uint32_t r = 0; r < 3; r++) {
            MUST(tg_state_load(other->ranks[r], &s.spans[r], 1, why));
        }
        for (uint64_t step = stop; step < stop + 6; step++) {
            test_lgc_step(w, step);
            test_lgc_step(other, step);
            assert_memory_equal(w->grads[0], other->grads[0], sizeof w->grads[0]);
        }
        saved a = save(w), b = save(other);
        for (uint32_t r = 0; r < 3; r++) {
            assert_memory_equal(a.bytes[r], b.bytes[r], a.spans[r].len);
        }
        release(&a, 3);
        release(&b, 3);
        release(&s, 3);
        test_lgc_close(other);
        test_lgc_close(w);
    }
}

static void another_number_of_ranks(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        test_lgc *w = test_lgc_open(3, form == 0 ? TEST_LGC_RING : TEST_LGC_SERVER),
                 *two = test_lgc_open(2, form == 0 ? TEST_LGC_RING : TEST_LGC_SERVER);
        for (uint64_t step = 0; step < 11; step++) {
            test_lgc_step(w, step);
        }
        saved s = save(w);
        if (form == 0) {
            for (uint32_t r = 0; r < 2; r++) {
                MUST(tg_state_load(two->ranks[r], s.spans, 3, why));
            }
            assert_int_equal(test_lgc_phase(two), 3);
            test_lgc_step(two, 11);
        } else {
            MUST_FAIL(TG_E_MISMATCH, "decoders for 3 ranks", tg_state_load(two->ranks[0], s.spans, 3, why));
        }
        release(&s, 3);
        test_lgc_close(two);
        test_lgc_close(w);
    }
}

/* ---- what can go wrong ------------------------------------------------------------------------------------------------- */

typedef struct damage {
    uint64_t left; /* messages until the one that is hit */
    uint64_t at;
    bool hit;
} damage;

static tg_status hit_message(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    damage *d = context;
    (void)kind;
    (void)from;
    (void)to;
    if (len > 16 && len != 96 && len != sizeof(tg_detail) && d->left-- == 0) { /* no length, no vote, no reason */
        ((uint8_t *)data)[d->at % len] ^= 0x10;
        d->hit = true;
    }
    return TG_OK;
}

/* A damaged message fails the step on all ranks and changes nothing; the next step succeeds. */
static void damage_ends_a_step_and_no_more(void **state)
{
    (void)state;
    int hits = 0;
    for (int form = 0; form < 2; form++) {
        test_lgc *w = test_lgc_open(3, form == 0 ? TEST_LGC_RING : TEST_LGC_SERVER),
                 *twin = test_lgc_open(3, form == 0 ? TEST_LGC_RING : TEST_LGC_SERVER);
        test_random random = {41};
        for (uint64_t step = 0; step < 13; step++) {
            for (uint64_t left = 0; left < 12; left++) {
                damage d = {.left = left, .at = test_bits(&random)};
                tg_tap tap = {hit_message, &d};
                tg_detail why = {""};
                test_lgc_fill(w, step);
                tg_status status = test_lgc_reduce(w, step, &tap, &why);
                assert_true((status != TG_OK) == d.hit);
                if (!d.hit) { /* the step has fewer messages, and went well */
                    break;
                }
                hits++;
                saved a = save(w), b = save(twin);
                for (uint32_t r = 0; r < 3; r++) {
                    assert_memory_equal(a.bytes[r], b.bytes[r], a.spans[r].len);
                }
                release(&a, 3);
                release(&b, 3);
                if (left == 11) {
                    test_lgc_step(w, step);
                }
            }
            test_lgc_step(twin, step);
        }
        test_lgc_close(twin);
        test_lgc_close(w);
    }
    assert_true(hits > 100);
}

static void gradients_that_are_not_numbers(void **state)
{
    (void)state;
    test_lgc *w = test_lgc_open(2, TEST_LGC_RING);
    for (uint64_t step = 0; step < 12; step++) {
        test_lgc_fill(w, step);
        w->grads[1][2][5] = NAN;
        MUST_FAIL(TG_E_PEER, "rank 1: the gradient of tensor 'second'", test_lgc_reduce(w, step, NULL, why));
        test_lgc_step(w, step);
    }
    test_lgc_close(w);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *exchange, *rule, *sentence;
    } cases[] = {
        {"topk@0.1+autoencoder", NULL, NULL, "'autoencoder' needs 'topk' with coords=shared"},
        {"threshold@0.1,coords=shared+autoencoder", NULL, NULL, "needs 'topk'"},
        {"topk@0.1,coords=shared,scope=model+autoencoder", NULL, NULL, "needs 'topk'"},
        {"topk@0.1,coords=shared+autoencoder+bitmap", NULL, NULL, "needs 'topk'"},
        {"autoencoder@star", NULL, NULL, "form must be in ring|server"},
        {"lgc-ring", "gather", NULL, "has an exchange of its own, lgc-ring"},
        {"lgc-ring", "lgc-server", NULL, "has an exchange of its own, lgc-ring"},
        {"dense", "lgc-ring", NULL, "only carry recipes with 'autoencoder'"},
        {"lgc-ring", "star", NULL, "there is no exchange 'star'"},
        {"lgc-ring", NULL, "fp16", "'third' has the recipe 'fp16', but the exchange lgc-ring sends it uncompressed"},
        {"lgc-server", NULL, "ef+topk@0.1", "'third' has the recipe 'ef+topk@0.1+fp32', but the exchange lgc-server"},
        {"ef@small=bf16+topk@0.1,coords=shared+autoencoder", NULL, NULL,
         "'norm' has the recipe 'ef+bf16', but the exchange"},
    };
    test_lgc *w = test_lgc_open(1, "dense");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tg_options opt = test_lgc_options();
        tg_exchange *x = NULL;
        tg_detail why = {""};
        const tg_rule rule = {"third", cases[i].rule};
        opt.exchange = cases[i].exchange;
        opt.rules = &rule;
        opt.rule_n = cases[i].rule != NULL;
        assert_true(tg_exchange_new(&x, cases[i].recipe, w->tensors, TEST_LGC_TENSORS, 0, 2, &opt, &why) != TG_OK);
        if (strstr(why.text, cases[i].sentence) == NULL) {
            fail_msg("%s: %s", cases[i].recipe, why.text);
        }
    }
    tg_exchange *x = NULL;
    tg_options opt = test_lgc_options(); /* that rule changes nothing, so it is no mistake */
    const tg_rule dense = {"n*", "fp32"};
    opt.rules = &dense;
    opt.rule_n = 1;
    MUST(tg_exchange_new(&x, "lgc-ring", w->tensors, TEST_LGC_TENSORS, 0, 2, &opt, why));
    tg_exchange_free(x);
    MUST_FAIL(TG_E_RECIPE, "at least three tensors", tg_exchange_new(&x, "lgc-ring", w->tensors, 3, 0, 2, NULL, why));
    tg_codec *c = NULL;
    MUST_FAIL(TG_E_RECIPE, "has no frame to write to",
              tg_codec_new(&c, "lgc-ring", w->tensors, TEST_LGC_TENSORS, NULL, why));
    test_lgc_close(w);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        uint64_t fail_at = 1;
        for (bool failed = true; failed; fail_at++) {
            test_allocator a;
            test_allocator_start(&a, fail_at, fail_at % 2 == 0);
            test_lgc w = {.n = 1};
            test_lgc_name(&w);
            tg_options opt = test_lgc_options();
            opt.allocator = &a.allocator;
            tg_exchange *x = NULL;
            tg_detail why = {""};
            tg_status status = tg_exchange_new(&x, form == 0 ? TEST_LGC_RING : TEST_LGC_SERVER, w.tensors,
                                               TEST_LGC_TENSORS, 0, 2, &opt, &why);
            assert_true(status == TG_OK || status == TG_E_MEMORY);
            failed = status != TG_OK;
            tg_exchange_free(x);
            assert_int_equal(a.held, 0);
        }
        assert_true(fail_at > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_ends_in_the_same_bits), cmocka_unit_test(another_number_of_ranks),
        cmocka_unit_test(damage_ends_a_step_and_no_more),      cmocka_unit_test(gradients_that_are_not_numbers),
        cmocka_unit_test(what_makes_no_sense_is_refused),      cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
