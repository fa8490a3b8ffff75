/* The result of `tersegrad train` as JSON and as text; see train_result.h. */
#include "train_result.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "fail.h"
#include "json.h"
#include "settings.h"
#include "table.h"
#include "text.h"
#include "train_settings.h"

/* Bytes of fp32 gradients over `len`; NAN if there is no such length. */
static double ratio_of(uint64_t elements, uint64_t steps, uint64_t len)
{
    return len > 0 ? 4.0 * (double)elements * (double)steps / (double)len : NAN;
}

/* Over all parameters for which the scheme's paper has a count of its own. */
static double paper_ratio(const tr_settings *s, const tr_result *r)
{
    uint64_t elements = 0, len = 0;
    for (int kind = 0; kind < TR_KIND_N; kind++) {
        elements += r->kinds[kind].paper_len > 0 ? r->kinds[kind].elements : 0;
        len += r->kinds[kind].paper_len;
    }
    return ratio_of(elements, s->steps, len);
}

static double entries_per_bin(const tg_traffic *t)
{
    return t->bins > 0 ? (double)t->entries / (double)t->bins : NAN;
}

static void put_kinds(cli_json *j, const tr_settings *s, const tr_result *r)
{
    cli_json_array(j, "kinds");
    for (int kind = 0; kind < TR_KIND_N; kind++) {
        const tr_kind_traffic *k = &r->kinds[kind];
        if (k->elements > 0) {
            cli_json_object(j, NULL);
            cli_json_text(j, "kind", tg_kind_name((tg_kind)kind));
            cli_json_count(j, "elements", k->elements);
            cli_json_number(j, "ratio", ratio_of(k->elements, s->steps, k->sum.len));
            cli_json_number(j, "paper_ratio", ratio_of(k->elements, s->steps, k->paper_len));
            cli_json_number(j, "entries_per_step", (double)k->sum.entries / (double)s->steps);
            cli_json_number(j, "entries_per_bin", entries_per_bin(&k->sum));
            cli_json_end(j);
        }
    }
    cli_json_end(j);
}

/* Of steps whose values travelled as codes. */
static double code_ratio(const cli_training *t)
{
    return t->code_sent > 0 ? (double)t->code_dense / (double)t->code_sent : NAN;
}

static double code_bytes(const cli_training *t, double sum)
{
    return t->code_steps > 0 ? sum / (double)t->code_steps : NAN;
}

static void put_diverged(cli_json *j, const tr_result *r)
{
    if (r->diverged > 0) {
        cli_json_count(j, "diverged", r->diverged);
    } else {
        cli_json_null(j, "diverged");
    }
}

static void put_rounds(cli_json *j, const tr_settings *s, const tr_result *r)
{
    char rounds[TR_ROUNDS_CAP];
    tr_settings_rounds(rounds, s);
    cli_json_text(j, "local_steps", rounds);
    cli_json_count(j, "exchanges", r->exchanges);
    if (!tg_schedule_is_one(&s->local)) {
        cli_json_number(j, "outer_rate", (double)s->outer.rate);
        cli_json_number(j, "outer_momentum", (double)s->outer.momentum);
    }
    if (s->quorum > 0) {
        cli_json_count(j, "quorum", s->quorum);
        cli_json_count(j, "absences", r->absences);
    }
}

/* fp32 gradients of all steps over worker 0's frames, each counted once, however many workers it was sent to. */
static double frame_ratio(const tr_result *r)
{
    double elements = 0;
    for (int kind = 0; kind < TR_KIND_N; kind++) {
        elements += (double)r->kinds[kind].elements;
    }
    return r->frame_bytes > 0 ? 4 * elements / r->frame_bytes : NAN;
}

void cli_train_print_ended(const cli_args *args, const cli_training *t, const tr_result *r)
{
    cli_json j;
    cli_json_begin_as(&j, stdout, args->csv, NULL);
    cli_json_text(&j, "recipe", t->settings->recipe);
    cli_json_text(&j, "model", t->settings->model);
    cli_json_text(&j, "data", args->data);
    put_diverged(&j, r);
    (void)cli_json_finish(&j);
}

int cli_train_print_json(const cli_args *args, const cli_training *t, const tr_result *r, double seconds)
{
    const tr_settings *s = t->settings;
    cli_json j;
    cli_json_begin_as(&j, stdout, args->csv, NULL);
    cli_json_text(&j, "recipe", r->recipe);
    cli_json_text(&j, "exchange", r->exchange);
    cli_json_text(&j, "model", s->model);
    cli_json_text(&j, "data", args->data);
    cli_json_count(&j, "workers", s->workers);
    cli_json_count(&j, "host_size", s->host_size > 1 ? s->host_size : 1);
    cli_json_count(&j, "batch", s->batch);
    cli_json_count(&j, "steps", s->steps);
    put_rounds(&j, s, r);
    cli_json_count(&j, "seed", s->seed);
    cli_json_count(&j, "group_size", s->group_len);
    cli_json_count(&j, "groups", r->groups);
    put_diverged(&j, r);
    cli_json_number(&j, "train_loss", r->train_loss);
    cli_json_number(&j, "test_loss", r->test.loss);
    cli_json_number(&j, "test_accuracy", r->test.accuracy);
    cli_json_number(&j, "dense_bytes_per_step", r->dense_bytes);
    cli_json_number(&j, "wire_bytes_per_step", r->wire_bytes);
    cli_json_number(&j, "between_bytes_per_step", r->host_bytes);
    cli_json_number(&j, "ratio", r->wire_bytes > 0 ? r->dense_bytes / r->wire_bytes : NAN);
    cli_json_text(&j, "ratio_against", "an fp32 all-reduce in every step");
    cli_json_number(&j, "frame_ratio", frame_ratio(r));
    cli_json_number(&j, "paper_ratio", paper_ratio(s, r));
    put_kinds(&j, s, r);
    if (t->learning.phase > 0) {
        cli_json_number(&j, "code_ratio", code_ratio(t));
        cli_json_number(&j, "code_up_bytes_per_step", code_bytes(t, t->code_up));
        cli_json_number(&j, "code_down_bytes_per_step", code_bytes(t, t->code_down));
        cli_json_number(&j, "learned_error", t->learning.error >= 0 ? t->learning.error : NAN);
        cli_json_count(&j, "learning_extended", t->learning.extended);
    }
    cli_json_bool(&j, "replicas_identical", 1); /* had they not been, the run would have failed */
    cli_json_hex(&j, "weights_hash", r->weights_hash);
    cli_json_number(&j, "seconds", seconds);
    cli_json_number(&j, "compute_seconds_per_step", r->times.compute);
    cli_json_number(&j, "encode_seconds_per_step", r->times.encode);
    cli_json_number(&j, "exchange_seconds_per_step", r->times.exchange);
    cli_json_number(&j, "decode_seconds_per_step", r->times.decode);
    cli_json_number(&j, "exposed_seconds_per_step", r->times.exposed);
    cli_json_number(&j, "update_seconds_per_step", r->times.update);
    return cli_json_finish(&j);
}

static void add_line(cli_table *table, const char *name, const char *format, ...) CLI_PRINTF(3, 4);

static void add_line(cli_table *table, const char *name, const char *format, ...)
{
    char text[240];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cli_table_row(table, name, text);
}

int cli_train_print_text(const cli_args *args, const cli_training *t, const tr_result *r, double seconds)
{
    const tr_settings *s = t->settings;
    char a[CLI_NUMBER_CAP], b[CLI_NUMBER_CAP];
    double ms = 1e3;
    cli_table table;
    cli_table_init(&table, "ll");
    add_line(&table, "trained", "%s on %s: %u workers, batch %zu each, %" PRIu64 " steps, seed %" PRIu64, s->model,
             args->data, s->workers, s->batch, s->steps, s->seed);
    add_line(&table, "recipe", "%s, by %s", r->recipe, r->exchange);
    if (!tg_schedule_is_one(&s->local)) {
        char rounds[TR_ROUNDS_CAP];
        tr_settings_rounds(rounds, s);
        add_line(&table, "local steps",
                 "%.60s: %" PRIu64 " exchanges of moves in %" PRIu64 " steps; ratios count all steps", rounds,
                 r->exchanges, s->steps);
    }
    if (s->quorum > 0) {
        add_line(&table, "quorum", "%u of %u workers, and %g s: %" PRIu64 " times a worker was late", s->quorum,
                 s->workers, s->grace, r->absences);
    }
    add_line(&table, "loss", "%.4f training, %.4f test", r->train_loss, r->test.loss);
    add_line(&table, "accuracy", "%.2f%% test", 100 * r->test.accuracy);
    if (r->diverged > 0) {
        add_line(&table, "diverged", "at step %" PRIu64 ": the loss rose and did not come back", r->diverged);
        add_line(&table, "", "%s", cli_train_hint(s));
    }
    if (s->workers > 1) {
        add_line(&table, "sent", "%s bytes a worker and step, of %s in an fp32 all-reduce: ratio %.1f",
                 cli_text_count(a, (uint64_t)(r->wire_bytes + 0.5)),
                 cli_text_count(b, (uint64_t)(r->dense_bytes + 0.5)), r->dense_bytes / r->wire_bytes);
    }
    if (s->host_size > 1) {
        add_line(&table, "hosts", "of %u workers each, of which one sends to other hosts: %s bytes a worker and step",
                 s->host_size, cli_text_count(a, (uint64_t)(r->host_bytes + 0.5)));
    }
    for (int kind = 0; kind < TR_KIND_N; kind++) {
        const tr_kind_traffic *k = &r->kinds[kind];
        char paper[64] = "", rate[64] = "";
        if (k->paper_len > 0) {
            snprintf(paper, sizeof paper, " (%.1f as the paper counts)", ratio_of(k->elements, s->steps, k->paper_len));
        }
        if (k->sum.bins > 0) {
            snprintf(rate, sizeof rate, ", %.2f entries a bin", entries_per_bin(&k->sum));
        }
        if (k->sum.len > 0) {
            snprintf(b, sizeof b, "  %s", tg_kind_name((tg_kind)kind));
            add_line(&table, b, "%s values, ratio %.1f in a frame%s%s", cli_text_count(a, k->elements),
                     ratio_of(k->elements, s->steps, k->sum.len), paper, rate);
        }
    }
    if (t->learning.phase > 0) {
        char error[64] = "nothing yet";
        if (t->learning.error >= 0) {
            snprintf(error, sizeof error, "to a relative error of %.2f%s", t->learning.error,
                     t->learning.extended > 0 ? ", for longer than asked" : "");
        }
        add_line(&table, "learned", "%s", error);
        if (t->code_sent > 0) {
            add_line(&table, "codes", "ratio %.1f while they travel: %s bytes up and %s down a worker", code_ratio(t),
                     cli_text_count(a, (uint64_t)(code_bytes(t, t->code_up) + 0.5)),
                     cli_text_count(b, (uint64_t)(code_bytes(t, t->code_down) + 0.5)));
        }
    }
    if (s->group_len == 0) {
        add_line(&table, "step", "%.1f ms compute, %.1f encode, %.1f exchange, %.1f decode, %.1f update",
                 ms * r->times.compute, ms * r->times.encode, ms * r->times.exchange, ms * r->times.decode,
                 ms * r->times.update);
    } else {
        add_line(&table, "step", "%.1f ms compute, %.1f exposed exchange, %.1f update", ms * r->times.compute,
                 ms * r->times.exposed, ms * r->times.update);
        add_line(&table, "overlap", "%zu group%s: %.1f ms encode, %.1f exchange, %.1f decode beside the backward pass",
                 r->groups, r->groups == 1 ? "" : "s", ms * r->times.encode, ms * r->times.exchange,
                 ms * r->times.decode);
    }
    add_line(&table, "weights", "%016" PRIx64 ", the same on all workers", r->weights_hash);
    add_line(&table, "time", "%.1f s", seconds);
    int code = cli_table_print(&table, stdout, 0);
    cli_table_free(&table);
    return code;
}
