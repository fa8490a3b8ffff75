/* Texts of local steps: schedules of rounds, and outer steps; see tersegrad/local.h. */
#include "tersegrad/local.h"

#include "base/number.h"
#include "base/status.h"

#include <inttypes.h>
#include <string.h>

/* ---- schedules ---------------------------------------------------------------------------------------------------------- */

#define SCHEDULE_FORM "a schedule is H, or H,STEP:H,STEP:H with increasing steps, such as 1,200:4"

enum { COUNT_MAX = 1000000000 }; /* of steps: sums of rounds cannot overflow */

/* Reads digits up to `end`. */
static bool read_count(uint64_t *out, const char *text, const char *end)
{
    uint64_t value = 0;
    if (text == end) {
        return false;
    }
    for (; text < end; text++) {
        if (*text < '0' || *text > '9' || value > COUNT_MAX) {
            return false;
        }
        value = 10 * value + (uint64_t)(*text - '0');
    }
    *out = value;
    return value <= COUNT_MAX;
}

static tg_status add_entry(tg_schedule *s, const char *text, const char *end, tg_detail *why)
{
    const char *colon = memchr(text, ':', (size_t)(end - text));
    uint64_t from = 0, every = 0;
    bool sound = colon == NULL ? s->n == 0 : read_count(&from, text, colon);
    sound = sound && read_count(&every, colon == NULL ? text : colon + 1, end);
    if (!sound || s->n == TG_SCHEDULE_MAX || (s->n == 0 && from != 0)) {
        return tg_fail(TG_E_ARGUMENT, why, "'%.*s' in a schedule of local steps is not understood; " SCHEDULE_FORM,
                       (int)(end - text < 60 ? end - text : 60), text);
    }
    if (every == 0) {
        return tg_fail(TG_E_ARGUMENT, why, "a round of 0 local steps would never end; 1 exchanges after every step");
    }
    if (s->n > 0 && from <= s->from[s->n - 1]) {
        return tg_fail(TG_E_ARGUMENT, why,
                       "the schedule of local steps goes backwards: step %" PRIu64 " comes after step %" PRIu64, from,
                       s->from[s->n - 1]);
    }
    s->from[s->n] = from;
    s->every[s->n] = every;
    s->n++;
    return TG_OK;
}

tg_status tg_schedule_read(tg_schedule *out, const char *text, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(text, why);
    tg_schedule s = {0};
    for (const char *at = text;; at++) {
        const char *end = at + strcspn(at, ",");
        TG_TRY(add_entry(&s, at, end, why));
        at = end;
        if (*at == '\0') {
            break;
        }
    }
    *out = s;
    return TG_OK;
}

void tg_schedule_round(tg_round *out, const tg_schedule *s, uint64_t step)
{
    tg_round r = {0, 0, 0};
    if (out == NULL) {
        return;
    }
    /* r is the first round of each entry in turn. One that began before the next entry may end after it. */
    for (uint32_t i = 0; s != NULL && i < s->n; i++) {
        uint64_t every = s->every[i], until = i + 1 < s->n ? s->from[i + 1] : UINT64_MAX;
        if (r.first >= until) {
            continue;
        }
        uint64_t rounds = until == UINT64_MAX ? UINT64_MAX : (until - r.first + every - 1) / every;
        uint64_t ahead = (step - r.first) / every;
        if (ahead < rounds) {
            *out = (tg_round){r.number + ahead, r.first + ahead * every, every};
            return;
        }
        r.number += rounds;
        r.first += rounds * every;
    }
    *out = r;
}

int tg_schedule_is_one(const tg_schedule *s)
{
    int is_one = s != NULL;
    for (uint32_t i = 0; s != NULL && i < s->n; i++) {
        is_one = is_one && s->every[i] == 1;
    }
    return is_one;
}

/* ---- the outer step ------------------------------------------------------------------------------------------------------- */

#define OUTER_FORM "it is average, nesterov or nesterov@lr=0.7,momentum=0.9"

static bool is_named(const char *text, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(text, name, len) == 0;
}

/* Reads "lr=X" or "momentum=X" up to `end`. */
static bool set_value(tg_outer *o, const char *text, const char *end)
{
    const char *equals = memchr(text, '=', (size_t)(end - text));
    double value = 0;
    if (equals == NULL || !tg_number_read(&value, equals + 1, (size_t)(end - equals - 1))) {
        return false;
    }
    size_t len = (size_t)(equals - text);
    if (is_named(text, len, "lr")) {
        o->rate = (float)value;
    } else if (is_named(text, len, "momentum")) {
        o->momentum = (float)value;
    } else {
        return false;
    }
    return true;
}

tg_status tg_outer_read(tg_outer *out, const char *text, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(text, why);
    tg_outer o = {0.7f, 0.9f};
    size_t name_len = strcspn(text, "@");
    bool has_values = text[name_len] == '@';
    if (is_named(text, name_len, "average") && !has_values) {
        *out = (tg_outer){1, 0};
        return TG_OK;
    }
    bool sound = is_named(text, name_len, "nesterov");
    for (const char *at = text + name_len; sound && has_values && *at != '\0';) {
        const char *value = at + 1, *end = value + strcspn(value, ",");
        sound = set_value(&o, value, end);
        at = end;
    }
    if (!sound) {
        return tg_fail(TG_E_ARGUMENT, why, "the outer step '%.60s' is not understood; " OUTER_FORM, text);
    }
    if (!(o.rate > 0 && o.rate <= 100) || !(o.momentum >= 0 && o.momentum < 1)) {
        return tg_fail(TG_E_ARGUMENT, why,
                       "the outer step needs lr above 0, and momentum from 0 to below 1, not '%.60s'", text);
    }
    *out = o;
    return TG_OK;
}
