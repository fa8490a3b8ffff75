/* The table, the JSON object and the page of `tersegrad plan`; see plan_report.h. */
#include "plan_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "json.h"
#include "page.h"
#include "progress.h"
#include "table.h"
#include "text.h"

/* ---- text ---------------------------------------------------------------------------------------------------------- */

static const char *ms_text(char out[CLI_NUMBER_CAP], double seconds)
{
    return cli_text_short(out, 1e3 * seconds);
}

static const char *rate_text(char out[CLI_NUMBER_CAP], double bits)
{
    if (bits == 0 || isinf(bits)) {
        return strcpy(out, bits == 0 ? "at no rate" : "at every rate");
    }
    const char *unit = bits >= 1e9 ? "Gbit/s" : bits >= 1e6 ? "Mbit/s" : "kbit/s";
    snprintf(out, CLI_NUMBER_CAP, "%.3g %s", bits / (bits >= 1e9 ? 1e9 : bits >= 1e6 ? 1e6 : 1e3), unit);
    return out;
}

static const char *risk_text(char out[64], const cli_plan_row *r)
{
    if (r->risk == NULL) {
        return strcpy(out, "not known");
    }
    int is_same = strcmp(r->risk->recipe, r->canonical) == 0;
    snprintf(out, 64, "%+.2f%s", r->risk->points, is_same ? "" : " *");
    return out;
}

enum { COLUMN_N = 11, BY_HOSTS = 3 };

/* Whether workers of a host can sum first. */
static int has_hosts(const cli_plan *p)
{
    return p->setting.workers > p->setting.hosts;
}

static void add_cells(cli_table *t, const cli_plan *p, const char *const cells[COLUMN_N])
{
    const char *shown[COLUMN_N];
    size_t n = 0;
    for (size_t c = 0; c < COLUMN_N; c++) {
        if (c != BY_HOSTS || has_hosts(p)) {
            shown[n++] = cells[c];
        }
    }
    cli_table_cells(t, shown);
}

static void add_plain(cli_table *t, const cli_plan *p, const char *name, const cli_plan_plain *x)
{
    char text[5][CLI_NUMBER_CAP];
    add_cells(t, p,
              (const char *[COLUMN_N]){name, ms_text(text[0], x->alone.time.step),
                                       ms_text(text[1], x->overlapped.time.step), "",
                                       cli_text_count(text[2], (uint64_t)x->alone.bytes),
                                       cli_text_number(text[3], p->fp32.best / x->best, 2),
                                       cli_text_number(text[4], p->bf16.best / x->best, 2), "", "", "", "all-reduce"});
}

static void add_row(cli_table *t, const cli_plan *p, const cli_plan_row *r)
{
    char text[8][CLI_NUMBER_CAP], risk[64], exchange[32];
    snprintf(exchange, sizeof exchange, "%s%s", r->alone.exchange, r->alone.phase > 0 ? ", coded" : "");
    add_cells(t, p,
              (const char *[COLUMN_N]){
                  r->recipe, ms_text(text[0], r->step), ms_text(text[1], r->step_overlapped),
                  isnan(r->step_hosts) ? "" : ms_text(text[2], r->step_hosts),
                  cli_text_count(text[3], (uint64_t)r->bytes), cli_text_number(text[4], p->fp32.best / r->best, 2),
                  cli_text_number(text[5], p->bf16.best / r->best, 2), rate_text(text[6], r->break_even),
                  cli_text_count(text[7], r->alone.residual_len), risk_text(risk, r), exchange});
}

/* Recipes that are not predicted, with the reason. */
static void print_refused(const cli_plan *p)
{
    const char *before = "\n";
    for (size_t i = 0; i < p->row_n; i++) {
        if (p->rows[i].reason.text[0] != '\0') {
            printf("%snot predicted: %s: %s\n", before, p->rows[i].recipe, p->rows[i].reason.text);
            before = "";
        }
    }
}

static void print_setting(const cli_plan *p, const cli_plan_facts *f)
{
    const cli_setting *s = &p->setting;
    char n[CLI_NUMBER_CAP], rate[CLI_NUMBER_CAP], latency[CLI_NUMBER_CAP], compute[CLI_NUMBER_CAP];
    printf("%s of %s parameters in %zu tensors, %u workers on %u hosts, %s and %s us between them%s.\n", f->model,
           cli_text_count(n, s->n), s->tensor_n, s->workers, s->hosts, rate_text(rate, 8 * s->rate),
           cli_text_short(latency, 1e6 * s->latency), s->is_measured ? " (measured)" : "");
    printf("Computing takes %s ms a step%s; a host has %g cores, ", ms_text(compute, s->compute),
           s->computes_on_device ? ", on a device" : "", s->cores);
    if (s->encodes_on_device) {
        printf("and codecs work on GPUs (%s). Costs: %s.\n", s->probe->gpu.kind, f->from);
    } else {
        printf("a codec %u thread%s. Costs: %s.\n", s->threads, s->threads == 1 ? "" : "s", f->from);
    }
    if (!s->computes_on_device && s->workers / s->hosts > s->cores) {
        puts("Workers of a host are more than its cores, which slows computing down: see --cores and --compute-on.");
    }
    if (p->local_steps > 1) {
        printf("Recipes exchange after %u local steps, plain all-reduces after each.\n", p->local_steps);
    }
    putchar('\n');
}

/* Whether a recipe learns that is predicted. */
static int has_learned(const cli_plan *p)
{
    for (size_t i = 0; i < p->row_n; i++) {
        if (p->rows[i].reason.text[0] == '\0' && p->rows[i].alone.phase > 0) {
            return 1;
        }
    }
    return 0;
}

int cli_plan_print(const cli_plan *p, const cli_plan_facts *f)
{
    cli_table t;
    print_setting(p, f);
    cli_table_init(&t, has_hosts(p) ? "lrrrrrrrrrl" : "lrrrrrrrrl");
    t.has_head = 1;
    add_cells(&t, p,
              (const char *[COLUMN_N]){"recipe", "step ms", "overlapped", "by hosts", "bytes", "x fp32", "x bf16",
                                       "pays below", "residual B", "points", "exchange"});
    add_plain(&t, p, "fp32", &p->fp32);
    add_plain(&t, p, "bf16", &p->bf16);
    for (size_t i = 0; i < p->row_n; i++) {
        if (p->rows[i].reason.text[0] == '\0') {
            add_row(&t, p, &p->rows[i]);
        }
    }
    int code = cli_table_print(&t, stdout, 0);
    cli_table_free(&t);
    print_refused(p);
    printf("\nstep ms     exchange after the backward pass; overlapped: during it%s\n",
           has_hosts(p) ? "; by hosts: workers of a host average first" : "");
    puts("bytes       bytes that a worker sends in a step\n"
         "pays below  the link rate below which the recipe is faster than bf16\n"
         "residual B  bytes of memory for residuals and their next values\n"
         "points      test accuracy minus that of dense in kept trainings; *: of the same parts with other values");
    if (has_learned(p)) {
        puts("coded       a step in which codes are sent; the earlier steps (dense, and learning) take longer");
    }
    printf("\n%s\n", p->recommendation);
    return code;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

static void put_risk(cli_json *j, const cli_plan_row *r)
{
    if (r->risk == NULL) {
        cli_json_null(j, "risk");
        return;
    }
    cli_json_object(j, "risk");
    cli_json_text(j, "recipe", r->risk->recipe);
    cli_json_number(j, "points", r->risk->points);
    cli_json_count(j, "seeds", r->risk->seeds);
    cli_json_count(j, "epochs", r->risk->epochs);
    cli_json_text(j, "trained", r->risk->trained);
    cli_json_end(j);
}

static void put_row(cli_json *j, const cli_plan *p, const cli_plan_row *r)
{
    cli_json_object(j, NULL);
    cli_json_text(j, "recipe", r->recipe);
    cli_json_text(j, "canonical", r->canonical);
    cli_json_text(j, "exchange", r->alone.exchange);
    cli_json_text(j, "phase", r->alone.phase > 0 ? "coded" : NULL);
    cli_json_number(j, "step_ms", 1e3 * r->step);
    cli_json_number(j, "step_overlapped_ms", 1e3 * r->step_overlapped);
    cli_json_number(j, "step_hosts_ms", 1e3 * r->step_hosts);
    cli_json_number(j, "bytes", r->bytes);
    cli_json_number(j, "hosts_bytes", isnan(r->step_hosts) ? (double)NAN : r->hosts.bytes / p->local_steps);
    cli_json_number(j, "speedup_vs_fp32", p->fp32.best / r->best);
    cli_json_number(j, "speedup_vs_bf16", p->bf16.best / r->best);
    cli_json_number(j, "break_even_gbps", r->break_even / 1e9);
    cli_json_count(j, "residual_bytes", r->alone.residual_len);
    cli_json_count(j, "groups", r->overlapped.groups);
    cli_json_number(j, "work_ms", 1e3 * r->alone.time.work);
    cli_json_number(j, "wire_ms", 1e3 * r->alone.time.wire);
    put_risk(j, r);
    cli_json_end(j);
}

static void put_plain(cli_json *j, const char *key, const cli_plan_plain *x)
{
    cli_json_object(j, key);
    cli_json_number(j, "step_ms", 1e3 * x->alone.time.step);
    cli_json_number(j, "step_overlapped_ms", 1e3 * x->overlapped.time.step);
    cli_json_number(j, "bytes", x->alone.bytes);
    cli_json_end(j);
}

static void put_setting(cli_json *j, const cli_plan *p, const cli_plan_facts *f)
{
    const cli_setting *s = &p->setting;
    cli_json_text(j, "model", f->model);
    cli_json_count(j, "params", s->n);
    cli_json_count(j, "tensors", s->tensor_n);
    cli_json_count(j, "workers", s->workers);
    cli_json_count(j, "hosts", s->hosts);
    cli_json_number(j, "rate_gbps", 8e-9 * s->rate);
    cli_json_number(j, "latency_ms", 1e3 * s->latency);
    cli_json_bool(j, "link_measured", s->is_measured);
    cli_json_number(j, "compute_ms", 1e3 * s->compute);
    cli_json_number(j, "backward_ms", 1e3 * s->backward);
    cli_json_text(j, "compute_on", s->computes_on_device ? "device" : "host");
    cli_json_text(j, "device", s->encodes_on_device ? "cuda" : "cpu");
    cli_json_text(j, "gpu", s->encodes_on_device ? s->probe->gpu.kind : NULL);
    cli_json_number(j, "cores", s->cores);
    cli_json_count(j, "threads", s->threads);
    cli_json_count(j, "group_size", s->group_len);
    cli_json_count(j, "local_steps", p->local_steps);
    cli_json_text(j, "machine", s->probe->machine.kind);
    cli_json_text(j, "costs", f->from);
}

static void put_all(cli_json *j, const cli_plan *p, const cli_plan_facts *f)
{
    put_setting(j, p, f);
    cli_json_text(j, "recommendation", p->recommendation);
    cli_json_text(j, "recommended", p->recommended != NULL ? p->recommended->recipe : NULL);
    put_plain(j, "fp32", &p->fp32);
    put_plain(j, "bf16", &p->bf16);
    cli_json_array(j, "recipes");
    for (size_t i = 0; i < p->row_n; i++) {
        if (p->rows[i].reason.text[0] == '\0') {
            put_row(j, p, &p->rows[i]);
        }
    }
    cli_json_end(j);
    cli_json_array(j, "not_predicted");
    for (size_t i = 0; i < p->row_n; i++) {
        if (p->rows[i].reason.text[0] != '\0') {
            cli_json_object(j, NULL);
            cli_json_text(j, "recipe", p->rows[i].recipe);
            cli_json_text(j, "reason", p->rows[i].reason.text);
            cli_json_end(j);
        }
    }
    cli_json_end(j);
}

int cli_plan_json(FILE *out, const cli_args *args, const cli_plan *p, const cli_plan_facts *f)
{
    cli_json j;
    cli_json_begin_as(&j, out, args->csv, "recipes");
    put_all(&j, p, f);
    return cli_json_finish(&j);
}

/* ---- page ---------------------------------------------------------------------------------------------------------- */

/* Best steps of one series at all points of an axis. */
typedef struct axis {
    const char *key;
    size_t n;
    double x[16];
    cli_setting at[16];
} axis;

static int put_series(cli_json *j, const cli_plan *p, const axis *a, const char *name, const char *canonical,
                      tg_dtype dtype)
{
    int code = CLI_OK;
    cli_json_object(j, NULL);
    cli_json_text(j, "name", name);
    cli_json_array(j, "points");
    for (size_t i = 0; i < a->n && code == CLI_OK; i++) {
        double seconds = 0;
        code = canonical != NULL ? cli_plan_best(&seconds, p, &a->at[i], canonical)
                                 : cli_plan_plain_best(&seconds, &a->at[i], dtype);
        if (isfinite(seconds)) {
            cli_json_array(j, NULL);
            cli_json_number(j, NULL, a->x[i]);
            cli_json_number(j, NULL, 1e3 * seconds);
            cli_json_end(j);
        }
    }
    cli_json_end(j);
    cli_json_end(j);
    return code;
}

static int put_axis(cli_json *j, const cli_plan *p, const axis *a)
{
    cli_json_array(j, a->key);
    int code = put_series(j, p, a, "fp32 all-reduce", NULL, TG_FP32);
    code = code == CLI_OK ? put_series(j, p, a, "bf16 all-reduce", NULL, TG_BF16) : code;
    for (size_t i = 0; i < p->row_n && code == CLI_OK; i++) {
        cli_progress_show(a->key, (double)i, (double)p->row_n);
        if (p->rows[i].reason.text[0] == '\0') {
            code = put_series(j, p, a, p->rows[i].recipe, p->rows[i].canonical, TG_FP32);
        }
    }
    cli_json_end(j);
    return code;
}

/* From a hundredth of a gigabit to a hundred. */
static axis rates_of(const cli_plan *p)
{
    axis a = {.key = "by_rate", .n = 13};
    for (size_t i = 0; i < a.n; i++) {
        a.x[i] = 0.01 * pow(10, (double)i / 3);
        a.at[i] = p->setting;
        a.at[i].rate = a.x[i] * 1e9 / 8;
        a.at[i].is_measured = 0;
    }
    return a;
}

/* Powers of two, with as many workers on a host. */
static axis workers_of(const cli_plan *p)
{
    axis a = {.key = "by_workers"};
    uint32_t size = p->setting.workers / p->setting.hosts;
    for (uint32_t hosts = 1; hosts * size <= 1024 && a.n < 16; hosts *= 2) {
        if (hosts * size >= 2) {
            a.x[a.n] = hosts * size;
            a.at[a.n] = p->setting;
            a.at[a.n].workers = hosts * size;
            a.at[a.n].hosts = hosts;
            a.at[a.n++].is_measured = 0;
        }
    }
    return a;
}

int cli_plan_page(const cli_args *args, const cli_plan *p, const cli_plan_facts *f)
{
    cli_page page;
    int code = cli_page_open(&page, CLI_PAGE_PLAN);
    if (code != CLI_OK) {
        return code;
    }
    cli_json j;
    axis rates = rates_of(p), workers = workers_of(p);
    cli_json_begin(&j, page.data);
    cli_json_text(&j, "version", tg_version());
    put_all(&j, p, f);
    code = put_axis(&j, p, &rates);
    code = code == CLI_OK ? put_axis(&j, p, &workers) : code;
    int finished = cli_json_finish(&j);
    cli_progress_clear();
    int closed = cli_page_close(&page, args->page);
    return code != CLI_OK ? code : finished != CLI_OK ? finished : closed;
}
