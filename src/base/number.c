/* See number.h. Uses the C library's conversions under the "C" locale. */
#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t enter_c_locale(locale_t *c)
{
    *c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    return *c == (locale_t)0 ? (locale_t)0 : uselocale(*c);
}

static void leave_c_locale(locale_t c, locale_t previous)
{
    if (c != (locale_t)0) {
        uselocale(previous);
        freelocale(c);
    }
}

bool tg_number_read(double *out, const char *text, size_t len)
{
    char copy[TG_NUMBER_CAP];
    if (len == 0 || len >= sizeof copy || strspn(text, "0123456789.eE+-") < len) {
        return false;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    locale_t c;
    locale_t previous = enter_c_locale(&c);
    char *end = NULL;
    double value = strtod(copy, &end);
    leave_c_locale(c, previous);
    if (end != copy + len || !isfinite(value)) {
        return false;
    }
    *out = value == 0.0 ? 0.0 : value; /* -0 equals 0 and must not be written differently */
    return true;
}

/* "1e+20" to "1e20" and "1e-05" to "1e-5": in a recipe, a plus ends a part. */
static void tidy_exponent(char *text)
{
    char *to = strchr(text, 'e');
    if (to == NULL) {
        return;
    }
    const char *from = ++to;
    if (*from == '-') {
        to++;
        from++;
    }
    from += strspn(from, "+0");
    memmove(to, from, strlen(from) + 1);
}

void tg_number_write(char out[TG_NUMBER_CAP], double value)
{
    locale_t c;
    locale_t previous = enter_c_locale(&c);
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(out, TG_NUMBER_CAP, "%.*g", digits, value);
        if (strtod(out, NULL) == value) {
            break;
        }
    }
    leave_c_locale(c, previous);
    tidy_exponent(out);
}
