/* tg_options of other versions of the struct: shorter ones, longer ones, and sizes that no version has. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t dims[1] = {64};
static const tg_tensor tensor = {"weight", dims, 1, TG_DENSE, TG_FP32};

/* Options in a buffer of exactly `len` bytes, so that a sanitizer detects reads past its end; their member `size` is `size`. */
static tg_options *options_of(const tg_options *from, size_t len, size_t size)
{
    uint8_t *room = test_room(len);
    memset(room, 0, len);
    memcpy(room, from, len < sizeof *from ? len : sizeof *from);
    memcpy(room, &size, sizeof size);
    return (tg_options *)(void *)room;
}

/* All three functions that take options must accept them, or refuse them with an error that contains `part`. */
static void check(const tg_options *opt, const char *part)
{
    tg_options described = TG_OPTIONS_INIT;
    tg_codec *plain = NULL, *c = NULL, *read = NULL;
    tg_exchange *x = NULL;
    float grad[64] = {1};
    const void *rows[1] = {grad};
    size_t len = 0;
    described.describe = 1;
    MUST(tg_codec_new(&plain, "fp16", &tensor, 1, &described, why));
    size_t cap = tg_encode_bound(plain);
    uint8_t *frame = test_room(cap);
    MUST(tg_encode(&len, plain, frame, cap, 0, rows, why));
    if (part == NULL) {
        MUST(tg_codec_new(&c, "fp16", &tensor, 1, opt, why));
        MUST(tg_exchange_new(&x, "fp16", &tensor, 1, 0, 1, opt, why));
        MUST(tg_codec_from_frame(&read, NULL, frame, len, opt, why));
    } else {
        MUST_FAIL(TG_E_ARGUMENT, part, tg_codec_new(&c, "fp16", &tensor, 1, opt, why));
        MUST_FAIL(TG_E_ARGUMENT, part, tg_exchange_new(&x, "fp16", &tensor, 1, 0, 1, opt, why));
        MUST_FAIL(TG_E_ARGUMENT, part, tg_codec_from_frame(&read, NULL, frame, len, opt, why));
        assert_true(c == NULL && x == NULL && read == NULL);
    }
    tg_codec_free(read);
    tg_exchange_free(x);
    tg_codec_free(c);
    tg_codec_free(plain);
    free(frame);
}

static void shorter_ones_are_filled_with_zeros(void **state)
{
    (void)state;
    const tg_options standard = TG_OPTIONS_INIT;
    for (size_t size = sizeof(size_t); size <= sizeof standard; size += sizeof(size_t)) {
        tg_options *opt = options_of(&standard, size, size);
        check(opt, NULL);
        free(opt);
    }
    /* Members after the end of a short struct are not read: here invalid rules. */
    tg_options wrong = TG_OPTIONS_INIT;
    wrong.rule_n = 3;
    wrong.size = offsetof(tg_options, rule_n);
    check(&wrong, NULL);
}

static void members_of_a_short_one_count(void **state)
{
    (void)state;
    const tg_rule rule = {"weight", "fp32"};
    tg_options ruled = TG_OPTIONS_INIT;
    tg_codec *c = NULL;
    ruled.rules = &rule;
    ruled.rule_n = 1;
    size_t size = offsetof(tg_options, rule_n) + sizeof ruled.rule_n;
    tg_options *opt = options_of(&ruled, size, size);
    MUST(tg_codec_new(&c, "fp16", &tensor, 1, opt, why));
    assert_string_equal(tg_codec_recipe(c, 0), "fp32");
    tg_codec_free(c);
    free(opt);
}

static void longer_ones_must_end_in_zeros(void **state)
{
    (void)state;
    const tg_options standard = TG_OPTIONS_INIT;
    for (size_t more = sizeof(size_t); more <= 64; more += sizeof(size_t)) {
        size_t size = sizeof standard + more;
        tg_options *opt = options_of(&standard, size, size);
        check(opt, NULL);
        for (size_t i = sizeof standard; i < size; i++) {
            ((uint8_t *)opt)[i] = 1;
            check(opt, "this library knows only the first");
            ((uint8_t *)opt)[i] = 0;
        }
        free(opt);
    }
}

static void sizes_of_no_version_are_refused(void **state)
{
    (void)state;
    const tg_options standard = TG_OPTIONS_INIT;
    static const size_t sizes[] = {0,       1,       sizeof(size_t) - 1, sizeof(size_t) + 1, sizeof(tg_options) - 1,
                                   1 << 20, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tg_options *opt = options_of(&standard, sizeof(size_t), sizes[i]); /* only the size may be read */
        check(opt, "start from TG_OPTIONS_INIT");
        free(opt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shorter_ones_are_filled_with_zeros),
        cmocka_unit_test(members_of_a_short_one_count),
        cmocka_unit_test(longer_ones_must_end_in_zeros),
        cmocka_unit_test(sizes_of_no_version_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
