/* Settings as text; see settings.h. */
#include "settings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(char *out, size_t *len, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void put(char *out, size_t *len, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(out + *len, TR_SETTINGS_CAP - *len, format, arguments);
    va_end(arguments);
    *len += more < 0 ? 0 : (size_t)more;
    *len = *len < TR_SETTINGS_CAP ? *len : TR_SETTINGS_CAP - 1;
}

/* The shortest decimal that reads back as the same number. */
static void put_shortest(char *out, size_t *len, float value)
{
    char text[32] = "";
    for (int digits = 1; digits <= 9 && strtof(text, NULL) != value; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)value);
    }
    put(out, len, "%s", text[0] != '\0' ? text : "0");
}

static void put_local(char *out, size_t *len, const tr_settings *s)
{
    char rounds[TR_ROUNDS_CAP];
    tr_settings_rounds(rounds, s);
    put(out, len, "local-steps %s\nouter lr=", rounds);
    put_shortest(out, len, s->outer.rate);
    put(out, len, ",momentum=");
    put_shortest(out, len, s->outer.momentum);
    put(out, len, "\n");
}

void tr_settings_rounds(char out[TR_ROUNDS_CAP], const tr_settings *s)
{
    size_t len = (size_t)snprintf(out, TR_ROUNDS_CAP, "%" PRIu64, s->local.n > 0 ? s->local.every[0] : 1);
    for (uint32_t i = 1; i < s->local.n && len < TR_ROUNDS_CAP; i++) {
        len += (size_t)snprintf(out + len, TR_ROUNDS_CAP - len, ",%" PRIu64 ":%" PRIu64, s->local.from[i],
                                s->local.every[i]);
    }
}

void tr_settings_text(char out[TR_SETTINGS_CAP], const tr_settings *s, const tr_data *data)
{
    const tr_optimizer_options *o = &s->optimizer;
    size_t len = 0;
    out[0] = '\0';
    put(out, &len, "model %s\ndata %s\nsamples %zu\n", s->model, tr_data_name(data), tr_data_count(data, TR_TRAIN));
    put(out, &len, "training-data hash %016" PRIx64 "\ntest-data hash %016" PRIx64 "\n", tr_data_hash(data, TR_TRAIN),
        tr_data_hash(data, TR_TEST));
    put(out, &len, "recipe %s\n", s->recipe);
    put(out, &len, "chosen-exchange %s\n", s->exchange == NULL ? "auto" : s->exchange);
    for (size_t i = 0; i < s->rule_n; i++) {
        put(out, &len, "rule-%zu %s=%s\n", i + 1, s->rules[i].pattern, s->rules[i].recipe);
    }
    put(out, &len, "rules %zu\ndense-below %" PRIu64 "\nnonfinite %d\n", s->rule_n, s->dense_below, (int)s->nonfinite);
    put(out, &len, "workers %u\nbatch %zu\nsteps %" PRIu64 "\nseed %" PRIu64 "\naugment %d\n", s->workers, s->batch,
        s->steps, s->seed, s->augment);
    put(out, &len, "optimizer %s\nrate %.17g\nmomentum %.17g\nnesterov %d\nbeta1 %.17g\nbeta2 %.17g\nepsilon %.17g\n",
        o->rule == TR_SGD ? "sgd" : "adam", o->rate, o->momentum, o->nesterov, o->beta1, o->beta2, o->epsilon);
    put_local(out, &len, s);
    put(out, &len, "weight-decay %.17g\nschedule %d\nwarmup %" PRIu64 "\ndrop %.17g\ndrop-every %" PRIu64 "\n",
        o->weight_decay, (int)o->decline, o->warmup, o->drop, o->drop_every);
}

static size_t line_len(const char *text)
{
    return strcspn(text, "\n");
}

static const char *next_line(const char *text)
{
    text += line_len(text);
    return *text == '\n' ? text + 1 : text;
}

static int is_named(const char *line, const char *name)
{
    size_t len = strlen(name);
    return strncmp(line, name, len) == 0 && line[len] == ' ';
}

static int is_of_data(const char *line)
{
    return is_named(line, "data") || is_named(line, "samples") || is_named(line, "training-data") ||
           is_named(line, "test-data");
}

/* A run may be resumed with another number of workers, and so with another batch size. */
static int may_differ(const char *line)
{
    return is_named(line, "workers") || is_named(line, "batch");
}

/* Replaces control characters, which a damaged file may contain, so that an error is one line that a terminal can show. */
static void replace_controls(char *text)
{
    for (; *text != '\0'; text++) {
        *text = (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text;
    }
}

int tr_settings_compare(const char *saved, const char *now, char why[TR_WHY])
{
    for (; *saved != '\0' || *now != '\0'; saved = next_line(saved), now = next_line(now)) {
        size_t a = line_len(saved), b = line_len(now);
        size_t name = strcspn(saved, " \n"), same = strcspn(now, " \n");
        if ((a == b && memcmp(saved, now, a) == 0) || (name == same && may_differ(saved) && may_differ(now))) {
            continue;
        }
        if (name == same && name < a && same < b && memcmp(saved, now, name) == 0) {
            (void)snprintf(
                why, TR_WHY,
                "it was saved by a run with %.*s %.*s, and this one has %.*s; give the same %s to go on with it",
                (int)name, saved, (int)(a - name - 1), saved + name + 1, (int)(b - same - 1), now + same + 1,
                is_of_data(saved) ? "data" : "flags");
        } else {
            (void)snprintf(why, TR_WHY,
                           "it was saved by a run with other settings; give the same flags to go on with it");
        }
        replace_controls(why);
        return -1;
    }
    return 0;
}

uint32_t tr_settings_workers(const char *text)
{
    for (; *text != '\0'; text = next_line(text)) {
        if (is_named(text, "workers")) {
            return (uint32_t)strtoul(text + strlen("workers "), NULL, 10);
        }
    }
    return 0;
}
