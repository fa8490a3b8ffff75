/* Compared runs as a JSON object, for scripts and for the page; see compare_run.h. */
#include <math.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "compare_run.h"
#include "fail.h"
#include "json.h"
#include "page.h"
#include "settings.h"

const double cli_run_links[CLI_LINK_N] = {100e6, 1e9, 10e9};

double cli_run_step(const tr_times *t)
{
    return t->compute + t->exposed + t->update;
}

double cli_run_predict(const cli_run *r, double bits)
{
    return r->times.compute + r->times.encode + r->times.decode + r->times.update + 8 * r->busiest_bytes / bits;
}

static void put_machine(cli_json *j)
{
    struct utsname name;
    char text[300];
    if (uname(&name) != 0) {
        return;
    }
    snprintf(text, sizeof text, "%s, %ld processors", name.machine, sysconf(_SC_NPROCESSORS_ONLN));
    cli_json_text(j, "machine", text);
}

static void put_points(cli_json *j, const char *key, const char *value_key, const cli_point *points, size_t n)
{
    cli_json_array(j, key);
    for (size_t i = 0; i < n; i++) {
        cli_json_object(j, NULL);
        cli_json_number(j, "step", points[i].step);
        cli_json_number(j, value_key, points[i].value);
        cli_json_number(j, "bytes", points[i].bytes);
        cli_json_number(j, "seconds", points[i].seconds);
        cli_json_end(j);
    }
    cli_json_end(j);
}

/* The error of what an exchange has learned, at each point of the curve from when it is known. */
static void put_learned(cli_json *j, const cli_run *r)
{
    if (r->curve_n == 0 || !isfinite(r->learned[r->curve_n - 1])) {
        return;
    }
    cli_json_array(j, "learned_error");
    for (size_t k = 0; k < r->curve_n; k++) {
        cli_json_number(j, NULL, r->learned[k]);
    }
    cli_json_end(j);
}

static void put_layers(cli_json *j, const cli_run *r)
{
    cli_json_array(j, "layers");
    for (size_t i = 0; i < r->layer_n; i++) {
        const cli_layer *l = &r->layers[i];
        cli_json_object(j, NULL);
        cli_json_text(j, "name", l->name);
        cli_json_count(j, "elements", l->elements);
        cli_json_number(j, "ratio", l->len > 0 ? 4 * (double)l->elements / (double)l->len : NAN);
        if (r->curve_n > 0 && isfinite(l->rates[0])) {
            cli_json_array(j, "entries_per_bin");
            for (size_t k = 0; k < r->curve_n; k++) {
                cli_json_number(j, NULL, l->rates[k]);
            }
            cli_json_end(j);
        }
        cli_json_end(j);
    }
    cli_json_end(j);
}

static void put_rounds(cli_json *j, const cli_run *r)
{
    char rounds[TR_ROUNDS_CAP];
    tr_settings s = {.local = r->local};
    tr_settings_rounds(rounds, &s);
    cli_json_text(j, "local_steps", rounds);
}

int cli_run_json(FILE *out, const cli_args *args, const cli_run *runs, size_t n, const tr_settings *s, int whole)
{
    static const char *const names[CLI_LINK_N] = {"step_seconds_100mbit", "step_seconds_1gbit", "step_seconds_10gbit"};
    int aims = cli_run_aims(args);
    double target = cli_run_target(args, runs, n);
    cli_json j;
    cli_json_begin_as(&j, out, args->csv && !whole, "results");
    cli_json_text(&j, "version", tg_version());
    cli_json_text(&j, "model", args->model);
    cli_json_text(&j, "data", args->data);
    cli_json_count(&j, "workers", args->workers);
    cli_json_count(&j, "host_size", s->host_size > 1 ? s->host_size : 1);
    cli_json_count(&j, "batch", args->batch);
    cli_json_count(&j, "steps", s->steps);
    cli_json_text(&j, "optimizer", s->optimizer.rule == TR_SGD ? "sgd" : "adam");
    cli_json_number(&j, "rate", s->optimizer.rate);
    put_machine(&j);
    cli_json_count(&j, "seed", args->seed);
    cli_json_count(&j, "seeds", args->seeds);
    cli_json_count(&j, "group_size", args->group_size);
    cli_json_number(&j, "link_bits", args->link.bits > 0 ? args->link.bits : NAN);
    cli_json_number(&j, "link_latency", args->link.bits > 0 ? args->link.latency : NAN);
    cli_json_number(&j, "target_accuracy", aims ? target : NAN);
    cli_json_array(&j, "results");
    for (size_t i = 0; i < n; i++) {
        const cli_run *r = &runs[i];
        cli_json_object(&j, NULL);
        cli_json_text(&j, "recipe", r->recipe);
        put_rounds(&j, r);
        cli_json_text(&j, "failed", r->failed[0] != '\0' ? r->failed : NULL);
        if (r->diverged > 0) {
            cli_json_count(&j, "diverged", r->diverged);
        } else {
            cli_json_null(&j, "diverged");
        }
        cli_json_count(&j, "diverged_seeds", r->diverged_n);
        cli_json_text(&j, "hint", r->diverged > 0 ? r->hint : NULL);
        if (r->failed[0] != '\0') {
            cli_json_end(&j);
            continue;
        }
        cli_json_text(&j, "bare_recipe", r->bare);
        cli_json_text(&j, "canonical", r->canonical);
        cli_json_text(&j, "exchange", r->exchange);
        cli_json_count(&j, "groups", r->groups);
        cli_json_number(&j, "test_accuracy", r->accuracy);
        cli_json_number(&j, "test_accuracy_spread", r->spread);
        cli_json_number(&j, "test_loss", r->loss);
        cli_json_number(&j, "train_loss", r->train_loss);
        cli_json_number(&j, "dense_bytes_per_step", r->dense_bytes);
        cli_json_number(&j, "wire_bytes_per_step", r->wire_bytes);
        cli_json_number(&j, "between_bytes_per_step", r->host_bytes);
        cli_json_number(&j, "ratio", r->wire_bytes > 0 ? r->dense_bytes / r->wire_bytes : NAN);
        cli_json_bool(&j, "on_frontier", cli_run_is_on_frontier(runs, n, r));
        cli_json_number(&j, "step_seconds", cli_run_step(&r->times));
        cli_json_number(&j, "compute_seconds", r->times.compute);
        cli_json_number(&j, "encode_seconds", r->times.encode);
        cli_json_number(&j, "exchange_seconds", r->times.exchange);
        cli_json_number(&j, "decode_seconds", r->times.decode);
        cli_json_number(&j, "exposed_seconds", r->times.exposed);
        cli_json_number(&j, "update_seconds", r->times.update);
        for (int k = 0; k < CLI_LINK_N; k++) {
            cli_json_number(&j, names[k], cli_run_predict(r, cli_run_links[k]));
        }
        if (aims) {
            const cli_point *reach = cli_run_reach(r, target);
            cli_json_number(&j, "steps_to_target", reach != NULL ? reach->step : NAN);
            cli_json_number(&j, "seconds_to_target", reach != NULL ? reach->seconds : NAN);
            cli_json_number(&j, "bytes_to_target", reach != NULL ? reach->bytes : NAN);
        }
        cli_json_bool(&j, "replicas_identical", 1); /* had they not been, the run would have failed */
        cli_json_number(&j, "seconds", r->seconds);
        if (whole) {
            put_points(&j, "curve", "loss", r->curve, r->curve_n);
            put_points(&j, "tests", "accuracy", r->tests, r->test_n);
            put_layers(&j, r);
            put_learned(&j, r);
        }
        cli_json_end(&j);
    }
    cli_json_end(&j);
    return cli_json_finish(&j);
}

int cli_run_page(const char *path, const cli_args *args, const cli_run *runs, size_t n, const tr_settings *s)
{
    cli_page page;
    int code = cli_page_open(&page, CLI_PAGE_COMPARE);
    if (code != CLI_OK) {
        return code;
    }
    code = cli_run_json(page.data, args, runs, n, s, 1);
    int closed = cli_page_close(&page, path);
    return code != CLI_OK ? code : closed;
}
