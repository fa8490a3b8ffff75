/* A failure on one rank or in the link ends the step on every rank with an error that names the rank and the reason. It changes
 * nothing: the next step gives the bits that it would have given. */
#include "world.h"

#include "base/bytes.h"
#include "exchange/exchange.h"
#include "kernels/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t lens[] = {200, 3, 40};
enum { TENSOR_N = 3 };

static const struct {
    const char *recipe, *exchange;
} runs[] = {
    {"ef+topk@0.1+fp16", "gather"},
    {"ef+topk@0.1", "shard"},
    {"ef+topk@0.1+bf16", "server"},
    {"ef+randomblock@0.1", "allreduce"},
    {"ef+topk@0.1,coords=shared", "allreduce"},
    {"ef+adabins@50+sign@scale=meanmax", "gather"},
    {"ef+adabins@50+sign@scale=meanmax+adacomp8", "shard"},
    {"ef+topk@0.2+fp4+rans", "shard"},
    {"ef+fp4+rans", "gather"},
    {"fp16+lossless", "allreduce"},
    {"ef+fp8+huffman", "server"},
    {"ef@again=fp16+adabins@50+sign@scale=meanmax", "shard"},
    {"ef@again=fp32+topk@0.1", "server"},
};
enum { RUN_N = sizeof runs / sizeof *runs };

static test_world make_world(size_t run, uint32_t n)
{
    test_setup setup = {.recipe = runs[run].recipe, .exchange = runs[run].exchange, .lens = lens, .tensor_n = TENSOR_N};
    return test_world_new(n, &setup);
}

/* ---- a rank that fails ------------------------------------------------------------------------------------------------- */

static void a_rank_that_fails_is_named_everywhere(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        for (uint32_t bad = 0; bad < 4; bad++) {
            test_world w = make_world(run, 4), twin = make_world(run, 4);
            test_world_step(&w, 0);
            test_world_step(&twin, 0);
            test_world_fill(&w, 1);
            test_world_fill(&twin, 1);
            float kept = test_model_get(&w.models[bad], 2, 39);
            test_model_set(&w.models[bad], 2, 39, NAN);
            tg_detail ignored;
            assert_int_not_equal(test_world_reduce(&w, 1, NULL, &ignored), TG_OK);
            for (uint32_t r = 0; r < 4; r++) {
                assert_int_equal(w.outcomes[r].status, r == bad ? TG_E_NONFINITE : TG_E_PEER);
                assert_non_null(strstr(w.outcomes[r].why.text, "'t2' holds NaN or Inf"));
                char name[] = "rank 0:";
                name[5] = (char)('0' + bad);
                assert_true(r == bad || strstr(w.outcomes[r].why.text, name) != NULL);
            }
            test_model_set(&w.models[bad], 2, 39, kept);
            assert_true(test_world_same(&w, &twin)); /* gradients and residuals are as they were */
            MUST(test_world_reduce(&w, 1, NULL, why));
            MUST(test_world_reduce(&twin, 1, NULL, why));
            assert_true(test_world_same(&w, &twin));
            test_world_free(&twin);
            test_world_free(&w);
        }
    }
}

static void missing_gradients_fail_on_all_ranks(void **state)
{
    (void)state;
    test_world w = make_world(0, 3);
    test_world_fill(&w, 0);
    void *kept = w.models[1].grads[0];
    w.models[1].grads[0] = NULL;
    tg_detail reason = {""};
    assert_int_not_equal(test_world_reduce(&w, 0, NULL, &reason), TG_OK);
    assert_int_equal(w.outcomes[1].status, TG_E_ARGUMENT);
    assert_int_equal(w.outcomes[2].status, TG_E_PEER);
    assert_non_null(strstr(w.outcomes[2].why.text, "rank 1: no elements are given for tensor 't0'"));
    w.models[1].grads[0] = kept;
    test_world_step(&w, 0);
    test_world_free(&w);
}

/* ---- messages that are damaged or lost ----------------------------------------------------------------------------------- */

typedef struct fault {
    uint64_t at;   /* which message, from 0 */
    uint64_t seen; /* messages so far */
    uint64_t bit;  /* that is flipped in it */
    uint64_t len;  /* of the message */
    uint32_t to;   /* its receiver */
    bool lose;     /* instead of damaging it */
} fault;

static tg_status inject(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    fault *f = context;
    (void)kind;
    (void)from;
    if (f->seen++ != f->at) {
        return TG_OK;
    }
    f->len = len;
    f->to = to;
    if (f->lose) {
        return TG_E_LINK;
    }
    ((uint8_t *)data)[f->bit / 8 % len] ^= (uint8_t)(1u << f->bit % 8);
    return TG_OK;
}

static uint64_t messages_of(size_t run, uint32_t n)
{
    test_world w = make_world(run, n);
    fault f = {.at = UINT64_MAX};
    tg_tap tap = {inject, &f};
    test_world_fill(&w, 0);
    MUST(test_world_reduce(&w, 0, &tap, why));
    test_world_free(&w);
    return f.seen;
}

/* The last votes confirm the step to all ranks. A rank that cannot read one of them does not know whether the step succeeded,
 * while the others do. No protocol can avoid that, so this rank fails with TG_E_LINK, and the driver aborts the link. */
static void check_fault(const test_world *w, const test_world *before, const fault *f, bool last_vote)
{
    for (uint32_t r = 0; r < w->n; r++) {
        tg_status status = w->outcomes[r].status;
        if (last_vote && r != f->to) {
            continue;
        }
        assert_true(status < 0);
        assert_true(w->outcomes[r].why.text[0] != '\0');
    }
    assert_true(last_vote || test_world_same(w, before));
}

static void every_message_may_be_damaged(void **state)
{
    (void)state;
    enum { N = 3 };
    for (size_t run = 0; run < RUN_N; run++) {
        uint64_t messages = messages_of(run, N), closing = (uint64_t)N * (N - 1);
        for (uint64_t at = 0; at < messages; at++) {
            for (uint64_t bit = (run + at) % TEST_EVERY; bit < 10; bit += TEST_EVERY) {
                test_world w = make_world(run, N), twin = make_world(run, N);
                test_world_fill(&w, 0);
                test_world_fill(&twin, 0);
                fault f = {.at = at, .bit = bit * 77, .lose = bit == 9};
                tg_tap tap = {inject, &f};
                tg_detail reason = {""};
                assert_true(test_world_reduce(&w, 0, &tap, &reason) < 0);
                assert_true(reason.text[0] != '\0');
                bool last_vote = at >= messages - closing;
                check_fault(&w, &twin, &f, last_vote && !f.lose);
                if (!last_vote) {
                    MUST(test_world_reduce(&w, 0, NULL, why));
                    MUST(test_world_reduce(&twin, 0, NULL, why));
                    assert_true(test_world_same(&w, &twin));
                }
                test_world_free(&twin);
                test_world_free(&w);
            }
        }
    }
}

/* ---- ranks that do not agree ----------------------------------------------------------------------------------------------- */

static void ranks_set_up_differently_are_detected(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        uint64_t seed, verify_every;
        const char *exchange;
    } others[] = {{"ef+topk@0.2", 7, 0, "gather"},
                  {"ef+topk@0.1", 8, 0, "gather"},
                  {"ef+topk@0.1", 7, 5, "gather"},
                  {"ef+topk@0.1", 7, 0, "shard"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        test_setup setup = {.recipe = "ef+topk@0.1", .exchange = "gather", .lens = lens, .tensor_n = TENSOR_N};
        test_world w = test_world_new(3, &setup);
        tg_exchange_free(w.ranks[2]);
        setup.recipe = others[i].recipe;
        setup.exchange = others[i].exchange;
        setup.verify_every = others[i].verify_every;
        tg_options opt = test_setup_options(&setup);
        opt.seed = others[i].seed;
        MUST(tg_exchange_new(&w.ranks[2], setup.recipe, w.models[2].tensors, TENSOR_N, 2, 3, &opt, why));
        test_world_fill(&w, 0);
        MUST_FAIL(TG_E_MISMATCH, "rank 2 was set up with", test_world_reduce(&w, 0, NULL, why));
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(w.outcomes[r].status, TG_E_MISMATCH);
        }
        test_world_free(&w);
    }
}

/* Rewrites the hash in rank 1's vote of the audit, as if its averages were others. */
static tg_status forge_audit(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    enum { PHASE = 6, SMALLEST = 40, LARGEST = 76, HASH = TG_VOTE_LEN - 8 };
    uint8_t *vote = data;
    (void)context;
    (void)kind;
    (void)to;
    if (from == 1 && len == TG_VOTE_LEN && vote[PHASE] == TG_AUDIT) {
        tg_put64(vote + SMALLEST, tg_get64(vote + SMALLEST) ^ 1);
        tg_put64(vote + LARGEST, tg_get64(vote + LARGEST) ^ 1);
        tg_put64(vote + HASH, tg_hash(vote, HASH));
    }
    return TG_OK;
}

static void different_averages_are_an_error(void **state)
{
    (void)state;
    test_setup setup = {
        .recipe = "ef+topk@0.1", .exchange = "gather", .lens = lens, .tensor_n = TENSOR_N, .verify_every = 2};
    test_world w = test_world_new(3, &setup);
    for (uint64_t step = 0; step < 3; step++) { /* audits at 0 and 2 */
        test_world_step(&w, step);
    }
    test_world_fill(&w, 4);
    tg_tap tap = {forge_audit, NULL};
    MUST_FAIL(TG_E_DIVERGED, "rank 1 holds other averages", test_world_reduce(&w, 4, &tap, why));
    assert_int_equal(w.outcomes[0].status, TG_E_DIVERGED);
    assert_int_equal(w.outcomes[2].status, TG_E_DIVERGED);
    test_world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_fails_is_named_everywhere),
        cmocka_unit_test(missing_gradients_fail_on_all_ranks),
        cmocka_unit_test(every_message_may_be_damaged),
        cmocka_unit_test(ranks_set_up_differently_are_detected),
        cmocka_unit_test(different_averages_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
