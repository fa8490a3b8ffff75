/* Values of flags; see values.h. A value that is not exactly what a flag takes is misuse: a typo must not pass for
 * another value.
 */
#include "values.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fail.h"
#include "run.h"
#include "suggest.h"

int cli_texts_append(cli_texts *list, const char *text, size_t len)
{
    char **items = realloc(list->items, (list->n + 1) * sizeof *items);
    if (items == NULL) {
        return cli_fail_memory();
    }
    list->items = items;
    list->items[list->n] = strndup(text, len);
    if (list->items[list->n] == NULL) {
        return cli_fail_memory();
    }
    list->n++;
    return CLI_OK;
}

static int read_count(uint64_t *out, const cli_flag_row *row, const char *text)
{
    uint64_t value = 0;
    int sound = text[0] != '\0';
    for (const char *at = text; *at != '\0' && sound; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        sound = *at >= '0' && *at <= '9' && value <= (UINT64_MAX - digit) / 10;
        value = value * 10 + digit;
    }
    if (!sound || (double)value < row->min || (double)value > row->max) {
        uint64_t max = row->max < 0x1p64 ? (uint64_t)row->max : UINT64_MAX;
        return cli_fail(CLI_MISUSE, "--%s takes a whole number from %.0f to %" PRIu64 ", not '%s'", row->name, row->min,
                        max, text);
    }
    *out = value;
    return CLI_OK;
}

static int read_real(double *out, const cli_flag_row *row, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    int inside = value <= row->max && (row->min_allowed ? value >= row->min : value > row->min);
    if (end == text || *end != '\0' || !isfinite(value) || !inside) {
        return cli_fail(CLI_MISUSE, "--%s takes a number %s %g and up to %g, not '%s'", row->name,
                        row->min_allowed ? "from" : "above", row->min, row->max, text);
    }
    *out = value;
    return CLI_OK;
}

int cli_choice_find(const char *const *choices, const char *text)
{
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], text) == 0) {
            return i;
        }
    }
    return -1;
}

/* "A, B or C" */
static void list_choices(char *out, size_t cap, const char *const *choices)
{
    size_t len = 0;
    for (size_t i = 0; choices[i] != NULL && len < cap; i++) {
        const char *between = i == 0 ? "" : choices[i + 1] != NULL ? ", " : " or ";
        len += (size_t)snprintf(out + len, cap - len, "%s%s", between, choices[i]);
    }
}

static int read_choice(int *out, const cli_flag_row *row, const char *text)
{
    int found = cli_choice_find(row->choices, text);
    if (found < 0) {
        char list[256], hint[CLI_SUGGEST_CAP];
        list_choices(list, sizeof list, row->choices);
        return cli_fail(CLI_MISUSE, "--%s takes %s, not '%s'%s", row->name, list, text,
                        cli_suggest_from(hint, text, strlen(text), row->choices));
    }
    *out = found;
    return CLI_OK;
}

static int read_name(const char **out, const cli_flag_row *row, const char *text)
{
    int found = 0, code = read_choice(&found, row, text);
    *out = code == CLI_OK ? row->choices[found] : *out;
    return code;
}

/* A data set and its place, as far as the command line alone tells; what is at the place is for the run to see. */
static int read_data(const char **out, const cli_flag_row *row, const char *text)
{
    cli_suggest s = {.word = text, .len = strcspn(text, ":")};
    char list[256] = "", hint[CLI_SUGGEST_CAP];
    for (size_t i = 0, list_len = 0; tr_data_form(i) != NULL && list_len < sizeof list; i++) {
        const char *form = tr_data_form(i), *end = form + strcspn(form, ":["), *place = text + s.len;
        if ((size_t)(end - form) == s.len && memcmp(text, form, s.len) == 0) {
            int sound = *place == '\0' ? *end != ':' : place[1] != '\0' && *end != '\0';
            *out = text;
            return sound ? CLI_OK : cli_fail(CLI_MISUSE, "--%s takes %s, not '%s'", row->name, form, text);
        }
        const char *between = i == 0 ? "" : tr_data_form(i + 1) != NULL ? ", " : " or ";
        list_len += (size_t)snprintf(list + list_len, sizeof list - list_len, "%s%s", between, form);
        cli_suggest_offer(&s, form, (size_t)(end - form));
    }
    return cli_fail(CLI_MISUSE, "--%s takes %s, not '%s'%s", row->name, list, text, cli_suggest_text(hint, &s));
}

static int read_lists(cli_texts *out, const cli_flag_row *row, const char *text)
{
    for (;;) {
        size_t len = strcspn(text, ";");
        if (len == 0) {
            return cli_fail(CLI_MISUSE, "--%s takes recipes with ';' between them, none empty", row->name);
        }
        int code = cli_texts_append(out, text, len);
        if (code != CLI_OK || text[len] == '\0') {
            return code;
        }
        text += len + 1;
    }
}

/* Recipes hold '=' too, so the first one counts; '?' in the pattern stands for one in a name. */
static int read_pair(cli_texts *out, const cli_flag_row *row, const char *text)
{
    size_t len = strcspn(text, "=");
    const char *value = text[len] == '\0' ? "" : text + len + 1;
    if (len == 0 || value[0] == '\0') {
        return cli_fail(CLI_MISUSE, "--%s takes %s, not '%s'", row->name, row->value, text);
    }
    if (row->choices != NULL && cli_choice_find(row->choices, value) < 0) {
        return cli_fail(CLI_MISUSE,
                        "--%s takes PATTERN=KIND with a kind of conv, dense, recurrent, embedding, norm, bias or "
                        "other, not '%s'",
                        row->name, text);
    }
    int code = cli_texts_append(out, text, len);
    return code != CLI_OK ? code : cli_texts_append(out, value, strlen(value));
}

/* A number and one of the units, whose sizes are in `sizes`; leaves *text behind it. */
static int read_measure(double *out, const char **text, const char *const *units, const double *sizes)
{
    char *end;
    if (**text < '0' || **text > '9') { /* strtod takes signs, spaces, "inf" */
        return 0;
    }
    double value = strtod(*text, &end);
    for (size_t i = 0; units[i] != NULL; i++) {
        size_t len = strlen(units[i]);
        if (strncasecmp(end, units[i], len) == 0 && (end[len] == '\0' || end[len] == ',')) {
            *out = value * sizes[i];
            *text = end + len;
            return 1;
        }
    }
    return 0;
}

static const char *const rates[] = {"kbit", "mbit", "gbit", NULL}, *const times[] = {"us", "ms", "s", NULL};
static const double rate_sizes[] = {1e3, 1e6, 1e9}, time_sizes[] = {1e-6, 1e-3, 1};

static int read_bits(double *out, const cli_flag_row *row, const char *text)
{
    const char *at = text;
    double value = 0;
    if (!read_measure(&value, &at, rates, rate_sizes) || *at != '\0' || !(value >= 1e3) || !(value <= 1e12)) {
        return cli_fail(CLI_MISUSE, "--%s takes a rate from 1kbit to 1000gbit, such as 1gbit, not '%s'", row->name,
                        text);
    }
    *out = value;
    return CLI_OK;
}

static int read_time(double *out, const cli_flag_row *row, const char *text)
{
    const char *at = text;
    double value = 0;
    if (!read_measure(&value, &at, times, time_sizes) || *at != '\0' || !(value <= row->max)) {
        return cli_fail(CLI_MISUSE, "--%s takes a time in us, ms or s, such as 50us, up to %gs, not '%s'", row->name,
                        row->max, text);
    }
    *out = value;
    return CLI_OK;
}

/* A count that may be written with an exponent. */
static int read_size(uint64_t *out, const cli_flag_row *row, const char *text)
{
    char *end;
    double value = text[0] >= '0' && text[0] <= '9' ? strtod(text, &end) : -1;
    if (!(value >= row->min) || !(value <= row->max) || value != floor(value) || *end != '\0') {
        return cli_fail(CLI_MISUSE, "--%s takes a whole number from %.0f to %g, such as 25e6, not '%s'", row->name,
                        row->min, row->max, text);
    }
    *out = (uint64_t)value;
    return CLI_OK;
}

/* "threads", "mpi" or RATE[,LATENCY]. */
static int read_link(cli_link *out, const cli_flag_row *row, const char *text)
{
    cli_link link = {0};
    int found = cli_choice_find(row->choices, text), sound = found >= 0;
    if (sound) {
        link.kind = found;
    } else {
        const char *at = text;
        link.kind = CLI_LINK_THREADS;
        sound = read_measure(&link.bits, &at, rates, rate_sizes) && link.bits >= 1e3 && link.bits <= 1e12;
        if (sound && *at == ',') {
            at++;
            sound = read_measure(&link.latency, &at, times, time_sizes) && link.latency <= 10;
        }
        sound = sound && *at == '\0';
    }
    if (!sound) {
        return cli_fail(CLI_MISUSE,
                        "--%s takes threads, mpi, or RATE[,LATENCY] such as 100mbit,1ms (1kbit to 1000gbit; us, ms or "
                        "s, up to 10s), not '%s'",
                        row->name, text);
    }
    *out = link;
    return CLI_OK;
}

/* "auto", "flat" or a number of workers. */
static int read_hosts(uint32_t *out, const cli_flag_row *row, const char *text)
{
    enum { MOST = 65536 }; /* processes may be more than threads */
    char *end;
    unsigned long size = text[0] >= '1' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
    if (strcmp(text, "auto") == 0) {
        *out = 0;
    } else if (strcmp(text, "flat") == 0) {
        *out = 1;
    } else if (size > 0 && size <= MOST && *end == '\0') {
        *out = (uint32_t)size;
    } else {
        return cli_fail(CLI_MISUSE, "--%s takes auto, flat, or the workers of a host, 1 to %d, not '%s'", row->name,
                        (int)MOST, text);
    }
    return CLI_OK;
}

static int read_rounds(tg_schedule *out, const cli_flag_row *row, const char *text)
{
    tg_detail why = {""};
    return tg_schedule_read(out, text, &why) == TG_OK ? CLI_OK : cli_fail(CLI_MISUSE, "--%s: %s", row->name, why.text);
}

static int read_outer(tg_outer *out, const cli_flag_row *row, const char *text)
{
    tg_detail why = {""};
    return tg_outer_read(out, text, &why) == TG_OK ? CLI_OK : cli_fail(CLI_MISUSE, "--%s: %s", row->name, why.text);
}

/* RANK:TIME, such as 2:300ms. */
static int read_late(cli_late *out, const cli_flag_row *row, const char *text)
{
    cli_late late = {0};
    char *at = NULL;
    int is_number = text[0] >= '0' && text[0] <= '9';
    unsigned long rank = is_number ? strtoul(text, &at, 10) : 0;
    const char *time = is_number && *at == ':' ? at + 1 : "";
    if (rank >= 65536 || !read_measure(&late.seconds, &time, times, time_sizes) || *time != '\0' ||
        late.seconds > 3600) {
        return cli_fail(CLI_MISUSE, "--%s takes RANK:TIME such as 2:300ms (us, ms or s, up to 3600s), not '%s'",
                        row->name, text);
    }
    late.rank = (uint32_t)rank;
    *out = late;
    return CLI_OK;
}

int cli_value_set(cli_args *a, const cli_flag_row *row, const char *text)
{
    void *to = (char *)a + row->at;
    uint64_t count = 0;
    switch (row->type) {
    case CLI_SWITCH: *(int *)to = 1; return CLI_OK;
    case CLI_TEXT: *(const char **)to = text; return CLI_OK;
    case CLI_NAME: return read_name(to, row, text);
    case CLI_DATA: return read_data(to, row, text);
    case CLI_COUNT: return read_count(to, row, text);
    case CLI_REAL: return read_real(to, row, text);
    case CLI_CHOICE: return read_choice(to, row, text);
    case CLI_LIST: return cli_texts_append(to, text, strlen(text));
    case CLI_LISTS: return read_lists(to, row, text);
    case CLI_PAIRS: return read_pair(to, row, text);
    case CLI_LINK: return read_link(to, row, text);
    case CLI_HOSTS: return read_hosts(to, row, text);
    case CLI_ROUNDS: return read_rounds(to, row, text);
    case CLI_OUTER: return read_outer(to, row, text);
    case CLI_LATE: return read_late(to, row, text);
    case CLI_BITS: return read_bits(to, row, text);
    case CLI_TIME: return read_time(to, row, text);
    case CLI_SIZE: return read_size(to, row, text);
    case CLI_COUNT32: break;
    }
    int code = read_count(&count, row, text);
    *(uint32_t *)to = code == CLI_OK ? (uint32_t)count : *(uint32_t *)to;
    return code;
}
