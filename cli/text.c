/* Readable numbers; see text.h. */
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *cli_text_count(char out[CLI_NUMBER_CAP], uint64_t value)
{
    char digits[CLI_NUMBER_CAP];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, value);
    char *to = out;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0) {
            *to++ = ',';
        }
        *to++ = digits[i];
    }
    *to = '\0';
    return out;
}

const char *cli_text_number(char out[CLI_NUMBER_CAP], double value, int digits)
{
    if (isfinite(value)) {
        snprintf(out, CLI_NUMBER_CAP, "%.*f", digits, value);
    } else {
        strcpy(out, "-");
    }
    return out;
}

const char *cli_text_short(char out[CLI_NUMBER_CAP], double value)
{
    double size = fabs(value);
    if (!isfinite(value) || size == 0) {
        return cli_text_number(out, value, 0);
    }
    if (size >= 1e-4 && size < 1e5) {
        int digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.01 ? 4 : 6;
        return cli_text_number(out, value, digits);
    }
    snprintf(out, CLI_NUMBER_CAP, "%.2e", value);
    return out;
}
