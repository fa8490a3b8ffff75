/* Settings of a run as text, which resuming compares. */
#include "support.h"

#include "settings.h"

#include <string.h>

static void sentences_name_both_values(void **state)
{
    (void)state;
    char why[TR_WHY] = "";
    assert_int_equal(tr_settings_compare("model mlp\nworkers 4\n", "model mlp\nworkers 2\n", why), 0);
    assert_int_equal(tr_settings_compare("model mlp\nseed 1\n", "model mlp\nseed 2\n", why), -1);
    assert_non_null(strstr(why, "seed 1"));
    assert_non_null(strstr(why, "has 2"));
}

/* A value from a damaged file can hold anything but a line feed. */
static void sentences_hold_no_control_characters(void **state)
{
    (void)state;
    char why[TR_WHY] = "";
    assert_int_equal(tr_settings_compare("model \033[2J\r\x7fmlp\n", "model lenet\n", why), -1);
    assert_non_null(strstr(why, "model ?[2J??mlp"));
    for (const char *c = why; *c != '\0'; c++) {
        assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences_name_both_values),
        cmocka_unit_test(sentences_hold_no_control_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
