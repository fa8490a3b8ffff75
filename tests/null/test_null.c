/* NULL for each pointer of each function (generated), and NULL inside of what is given. */
#include "null/fixture.h"

#include <string.h>

void fixture_begin_mpi(fixture *f)
{
    (void)f;
}

void fixture_end_mpi(fixture *f)
{
    (void)f;
}

static void missing_members_of_arguments(void **state)
{
    fixture *f = *state;
    tg_codec *c = NULL;
    tg_exchange *x = NULL, *none[1] = {NULL};
    tg_threads *t = NULL;
    uint64_t n = 0;
    const tg_tensor nameless = {NULL, f->dims, 1, TG_DENSE, TG_FP32}, shapeless = {"w", NULL, 1, TG_DENSE, TG_FP32};
    MUST_FAIL(TG_E_ARGUMENT, "name", tg_tensor_elements(&n, &nameless, why));
    MUST_FAIL(TG_E_ARGUMENT, "dimensions", tg_tensor_elements(&n, &shapeless, why));
    MUST_FAIL(TG_E_ARGUMENT, "name", tg_codec_new(&c, "fp16", &nameless, 1, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "dimensions", tg_exchange_new(&x, "fp16", &shapeless, 1, 0, 1, NULL, why));

    const tg_rule patternless = {NULL, "fp16"}, recipeless = {"*", NULL};
    f->options.rule_n = 1;
    MUST_FAIL(TG_E_ARGUMENT, "no rules", tg_codec_new(&c, "fp16", &f->tensor, 1, &f->options, why));
    f->options.rules = &patternless;
    MUST_FAIL(TG_E_ARGUMENT, "no pattern", tg_codec_new(&c, "fp16", &f->tensor, 1, &f->options, why));
    f->options.rules = &recipeless;
    MUST_FAIL(TG_E_ARGUMENT, "no recipe", tg_exchange_new(&x, "fp16", &f->tensor, 1, 0, 1, &f->options, why));
    f->options.rule_n = 0;

    tg_allocator halves[2] = {{f->allocator.acquire, NULL, NULL}, {NULL, f->allocator.release, NULL}};
    for (int i = 0; i < 2; i++) {
        f->options.allocator = &halves[i];
        MUST_FAIL(TG_E_ARGUMENT, "allocator", tg_codec_new(&c, "fp16", &f->tensor, 1, &f->options, why));
        MUST_FAIL(TG_E_ARGUMENT, "allocator", tg_exchange_new(&x, "fp16", &f->tensor, 1, 0, 1, &f->options, why));
        MUST_FAIL(TG_E_ARGUMENT, "allocator", tg_codec_from_frame(&c, NULL, f->frame, f->frame_len, &f->options, why));
        MUST_FAIL(TG_E_ARGUMENT, "allocator", tg_threads_new(&t, 1, 1, &halves[i], why));
    }

    tg_link idle = {.sent_len = 0};
    void *const *const no_grads[1] = {NULL};
    const tg_tap deaf = {NULL, NULL};
    MUST_FAIL(TG_E_ARGUMENT, "carry", tg_reduce(f->exchange, &idle, 1, f->rows, why));
    MUST_FAIL(TG_E_ARGUMENT, "carry", tg_handshake(f->exchange, &idle, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "ranks[r]", tg_lockstep_reduce(NULL, none, 1, 1, f->all, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "grads", tg_lockstep_reduce(NULL, &f->exchange, 1, 1, no_grads, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "message", tg_lockstep_reduce(NULL, &f->exchange, 1, 1, f->all, &deaf, why));

    const tg_span nothing = {NULL, 100};
    MUST_FAIL(TG_E_ARGUMENT, "NULL", tg_state_load(f->exchange, &nothing, 1, why));
    f->sums[0] = NULL;
    MUST_FAIL(TG_E_ARGUMENT, "tensor 'weight'", tg_exchange_adopt(f->sums, f->exchange, f->other, why));
    MUST_FAIL(TG_E_ARGUMENT, "tensor 'weight'", tg_decode_add(f->codec, f->sums, 1, f->frame, f->frame_len, why));
    f->rows[0] = NULL;
    MUST_FAIL(TG_E_ARGUMENT, "tensor 'weight'", tg_decode(f->codec, f->rows, f->frame, f->frame_len, why));
    MUST_FAIL(TG_E_ARGUMENT, "tensor 'weight'",
              tg_encode(&f->made_len, f->codec, f->made_frame, f->frame_cap, 1, (const void *const *)f->rows, why));
    MUST_FAIL(TG_E_ARGUMENT, "tensor 'weight'",
              tg_reduce(f->exchange, tg_threads_link(f->threads, 0), 1, f->rows, why));
    assert_true(c == NULL && x == NULL && t == NULL);
}

static void empty_arrays_may_be_null(void **state)
{
    fixture *f = *state;
    size_t len = 0;
    MUST(tg_codec_new(&f->made.codec, "fp16", NULL, 0, NULL, why));
    assert_true(tg_encode_bound(f->made.codec) <= f->frame_cap);
    MUST(tg_encode(&len, f->made.codec, f->made_frame, f->frame_cap, 0, NULL, why));
    MUST(tg_decode(f->made.codec, NULL, f->made_frame, len, why));
    MUST(tg_exchange_new(&f->made.exchange, "fp16", NULL, 0, 0, 1, NULL, why));
    MUST(tg_reduce(f->made.exchange, tg_threads_link(f->threads, 0), 0, NULL, why));
    tg_widen(NULL, NULL, TG_FP16, 0);
    tg_narrow(NULL, NULL, TG_FP32, 0);
}

static void queries_of_nothing_give_zeros(void **state)
{
    fixture *f = *state;
    const tg_meter no_bytes = {0};
    const tg_learning no_learning = {0};
    memset(&f->meter, 1, sizeof f->meter);
    memset(&f->learning, 1, sizeof f->learning);
    tg_exchange_meter(NULL, &f->meter, NULL);
    tg_exchange_learning(&f->learning, NULL);
    assert_memory_equal(&f->meter, &no_bytes, sizeof no_bytes);
    assert_true(f->learning.phase == no_learning.phase && f->learning.left == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(missing_members_of_arguments, fixture_begin, fixture_end),
        cmocka_unit_test_setup_teardown(empty_arrays_may_be_null, fixture_begin, fixture_end),
        cmocka_unit_test_setup_teardown(queries_of_nothing_give_zeros, fixture_begin, fixture_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) + run_generated();
}
