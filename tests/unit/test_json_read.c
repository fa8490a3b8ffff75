/* The program's reader of JSON: what it reads, and what it refuses. */
#include "support.h"

#include "json_read.h"

#include <stdlib.h>
#include <string.h>

static int read_text(cli_document *d, const char *text)
{
    char why[96];
    int code = cli_document_read(d, why, text, strlen(text));
    assert_true((code == 0) == (why[0] == '\0'));
    return code;
}

static void test_values(void **state)
{
    cli_document d;
    (void)state;
    assert_int_equal(
        read_text(&d, " {\"a\": [1, -2.5e1, true, null], \"b\\u00e9\\n\": {\"c\": \"\\ud83d\\ude00\"}} \n"), 0);
    const cli_node *root = cli_document_root(&d), *a = cli_node_member(&d, root, "a");
    assert_int_equal(root->count, 2);
    assert_int_equal(a->count, 4);
    const cli_node *at = cli_node_next(&d, cli_node_first(&d, a));
    assert_true(at->number == -25);
    assert_int_equal(cli_node_next(&d, at)->type, CLI_BOOL);
    const cli_node *c = cli_node_member(&d, cli_node_member(&d, root, "b\xc3\xa9\n"), "c");
    assert_string_equal(c->text, "\xf0\x9f\x98\x80");
    assert_null(cli_node_member(&d, root, "x"));
    cli_document_free(&d);
}

static void test_refusals(void **state)
{
    static const char *const bad[] = {
        "",           "{",     "[1,]", "[1 2]",   "{\"a\" 1}", "{\"a\":1,\"a\":2}", "01",          "1.",  "1e",
        "-",          "nul",   "\"a",  "\"\\x\"", "\"\\u12\"", "\"\\ud800\"",       "\"\\u0000\"", "1 2", "1e999",
        "[\"a\nb\"]", "{a:1}", "+1",   "[1]]"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cli_document d;
        if (read_text(&d, bad[i]) == 0) {
            fail_msg("'%s' was read", bad[i]);
        }
        cli_document_free(&d);
    }
    char deep[128];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    cli_document d;
    assert_int_not_equal(read_text(&d, deep), 0);
    cli_document_free(&d);
    char why[96];
    assert_int_not_equal(cli_document_read(&d, why, "1\0 ", 3), 0); /* a zero byte */
    cli_document_free(&d);
}

/* Every beginning of a text is refused. */
static void test_cut(void **state)
{
    const char text[] = "{\"a\": [1.5, \"\\u00e9\", {\"b\": false}]}";
    (void)state;
    for (size_t len = 0; len < strlen(text); len++) {
        cli_document d;
        char why[96];
        assert_int_not_equal(cli_document_read(&d, why, text, len), 0);
        cli_document_free(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_cut)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
