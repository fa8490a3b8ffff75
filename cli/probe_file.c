/* The file of `tersegrad probe`; see probe_data.h. One JSON object, whose last member is a hash of all bytes before it. Nothing in a
 * file is taken on trust: what is not exactly as this program writes it is refused. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "file.h"
#include "json.h"
#include "json_read.h"
#include "probe_data.h"

enum { VERSION = 4 };
static const char check_key[] = ",\"check\":\"";

static const char *const pass_names[TG_PASS_N] = {"encode",   "check", "sum",    "check_sum", "copy",
                                                  "multiply", "lead",  "follow", "decode"};

/* Numbers of an object, which are written and read in the same way. */
typedef struct field {
    const char *key;
    size_t at; /* in the struct */
    double least, most;
} field;

enum { MACHINE_N = 7, GPU_N = 5, NETWORK_N = 3 };
static const field machine_fields[MACHINE_N] = {
    {"copy", offsetof(cli_machine, copy), 0, 1},        {"tcp", offsetof(cli_machine, tcp), 0, 1},
    {"message", offsetof(cli_machine, message), 0, 10}, {"op", offsetof(cli_machine, op), 0, 10},
    {"add", offsetof(cli_machine, add), 0, 1},          {"add_bf16", offsetof(cli_machine, add_bf16), 0, 1},
    {"convert", offsetof(cli_machine, convert), 0, 1},
};
static const field gpu_fields[GPU_N] = {
    {"copy", offsetof(cli_gpu, copy), 0, 1},
    {"down", offsetof(cli_gpu, down), 0, 1},
    {"up", offsetof(cli_gpu, up), 0, 1},
    {"begin_down", offsetof(cli_gpu, begin_down), 0, 10},
    {"begin_up", offsetof(cli_gpu, begin_up), 0, 10},
};
static const field network_fields[NETWORK_N] = {
    {"latency", offsetof(cli_network, latency), 0, 100},
    {"message", offsetof(cli_network, message), 0, 100},
    {"rate", offsetof(cli_network, rate), 1, 1e15},
};

static uint64_t hash_of(const char *bytes, size_t len) /* FNV-1a */
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < len; i++) {
        h = (h ^ (unsigned char)bytes[i]) * UINT64_C(1099511628211);
    }
    return h;
}

/* ---- writing ------------------------------------------------------------------------------------------------------- */

static void put_fields(cli_json *j, const void *of, const field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double value;
        memcpy(&value, (const char *)of + fields[i].at, sizeof value);
        cli_json_number(j, fields[i].key, value);
    }
}

static void put_column(cli_json *j, const char *key, const double *values)
{
    cli_json_array(j, key);
    for (size_t i = 0; i < CLI_SIZE_N; i++) {
        cli_json_number(j, NULL, values[i]);
    }
    cli_json_end(j);
}

static void put_costs(cli_json *j, const cli_costs *c)
{
    cli_json_array(j, "recipes");
    for (size_t i = 0; i < c->n; i++) {
        const cli_recipe_cost *r = &c->rows[i];
        cli_json_object(j, NULL);
        cli_json_text(j, "recipe", r->recipe);
        cli_json_count(j, "threads", r->threads);
        cli_json_count(j, "n", r->n);
        cli_json_number(j, "bits", r->bits);
        cli_json_number(j, "conv_bits", r->conv_bits);
        for (int p = 0; p < TG_PASS_N; p++) {
            cli_json_array(j, pass_names[p]);
            cli_json_number(j, NULL, r->passes[p].element);
            cli_json_number(j, NULL, r->passes[p].chunk);
            cli_json_number(j, NULL, r->passes[p].call);
            cli_json_end(j);
        }
        cli_json_end(j);
    }
    cli_json_end(j);
}

static void put_machine(cli_json *j, const cli_machine *m)
{
    cli_json_object(j, "machine");
    cli_json_text(j, "kind", m->kind);
    cli_json_count(j, "cores", m->cores);
    put_fields(j, m, machine_fields, MACHINE_N);
    cli_json_end(j);
    put_costs(j, &m->costs);
}

static void put_gpu(cli_json *j, const cli_gpu *g)
{
    if (g->kind[0] == '\0') {
        cli_json_null(j, "gpu");
        return;
    }
    cli_json_object(j, "gpu");
    cli_json_text(j, "kind", g->kind);
    put_fields(j, g, gpu_fields, GPU_N);
    put_costs(j, &g->costs);
    cli_json_end(j);
}

enum { COLUMN_N = 3 }; /* of a talk */

/* "local", "local_busy", "local_load" */
static const char *column_name(char out[32], int talk, int column)
{
    static const char *const talks[CLI_TALK_N] = {"group", "leaders", "local", "fp32", "bf16"};
    static const char *const columns[COLUMN_N] = {"", "_busy", "_load"};
    snprintf(out, 32, "%s%s", talks[talk], columns[column]);
    return out;
}

static void put_network(cli_json *j, const cli_network *n)
{
    if (n->ranks == 0) {
        cli_json_null(j, "network");
        return;
    }
    cli_json_object(j, "network");
    cli_json_count(j, "ranks", n->ranks);
    cli_json_count(j, "hosts", n->hosts);
    put_fields(j, n, network_fields, NETWORK_N);
    put_column(j, "sizes", n->sizes);
    put_column(j, "exchange", n->exchange);
    for (int t = 0; t < CLI_TALK_N; t++) {
        const double *columns[] = {n->talks[t].idle, n->talks[t].busy, n->talks[t].load};
        for (int k = 0; k < COLUMN_N; k++) {
            char name[32];
            put_column(j, column_name(name, t, k), columns[k]);
        }
    }
    cli_json_end(j);
}

int cli_probe_write(const cli_probe_data *p, const char *path)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (out == NULL) {
        return cli_fail_memory();
    }
    cli_json j;
    cli_json_begin(&j, out);
    cli_json_count(&j, "tersegrad_probe", VERSION);
    cli_json_text(&j, "version", tg_version());
    put_machine(&j, &p->machine);
    put_gpu(&j, &p->gpu);
    put_network(&j, &p->network);
    int code = cli_json_finish(&j), sound = ferror(out) == 0;
    sound = fclose(out) == 0 && sound && len > 2;
    if (code == CLI_OK && sound) {
        char end[64];
        len -= 2; /* the closing brace and the line feed */
        snprintf(end, sizeof end, "%s%016" PRIx64 "\"}\n", check_key, hash_of(text, len));
        const cli_piece pieces[] = {{text, len}, {end, strlen(end)}};
        code = cli_file_write(path, pieces, 2);
    } else if (code == CLI_OK) {
        code = cli_fail_memory();
    }
    free(text);
    return code;
}

/* ---- reading ------------------------------------------------------------------------------------------------------- */

typedef struct source {
    const cli_document *d;
    int is_sound;
} source;

static double take_number(source *s, const cli_node *of, const char *key, double least, double most)
{
    const cli_node *m = cli_node_member(s->d, of, key);
    if (m == NULL || m->type != CLI_NUMBER || !(m->number >= least) || !(m->number <= most)) {
        s->is_sound = 0;
        return least;
    }
    return m->number;
}

static void take_fields(void *out, source *s, const cli_node *of, const field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double value = take_number(s, of, fields[i].key, fields[i].least, fields[i].most);
        memcpy((char *)out + fields[i].at, &value, sizeof value);
    }
}

static uint64_t take_count(source *s, const cli_node *of, const char *key, double least, double most)
{
    double value = take_number(s, of, key, least, most);
    s->is_sound = s->is_sound && value == floor(value);
    return (uint64_t)value;
}

static void take_text(char *out, size_t cap, source *s, const cli_node *of, const char *key)
{
    const cli_node *m = cli_node_member(s->d, of, key);
    if (m == NULL || m->type != CLI_STRING || strlen(m->text) >= cap) {
        s->is_sound = 0;
        out[0] = '\0';
        return;
    }
    snprintf(out, cap, "%s", m->text);
}

static void take_column(double *out, size_t n, source *s, const cli_node *of, const char *key)
{
    const cli_node *list = cli_node_member(s->d, of, key), *at = cli_node_first(s->d, list);
    s->is_sound = s->is_sound && list != NULL && list->type == CLI_ARRAY && list->count == n;
    for (size_t i = 0; i < n && s->is_sound; i++, at = cli_node_next(s->d, at)) {
        s->is_sound = at->type == CLI_NUMBER && at->number >= 0;
        out[i] = at->number;
    }
}

static void take_members(source *s, const cli_node *of, size_t count)
{
    s->is_sound = s->is_sound && of != NULL && of->type == CLI_OBJECT && of->count == count;
}

static int take_costs(cli_costs *c, source *s, const cli_node *list)
{
    s->is_sound = s->is_sound && list != NULL && list->type == CLI_ARRAY && list->count > 0;
    for (const cli_node *at = cli_node_first(s->d, list); at != NULL && s->is_sound; at = cli_node_next(s->d, at)) {
        cli_recipe_cost row = {.threads = 0};
        take_members(s, at, 5 + TG_PASS_N);
        take_text(row.recipe, sizeof row.recipe, s, at, "recipe");
        row.threads = (uint32_t)take_count(s, at, "threads", 1, 256);
        row.n = take_count(s, at, "n", 1, 1e12);
        row.bits = take_number(s, at, "bits", 0, 1000);
        row.conv_bits = take_number(s, at, "conv_bits", 0, 1000);
        for (int p = 0; p < TG_PASS_N; p++) {
            double cost[3] = {0, 0, 0};
            take_column(cost, 3, s, at, pass_names[p]);
            row.passes[p] = (cli_pass_cost){cost[0], cost[1], cost[2]};
        }
        int code = s->is_sound ? cli_costs_add(c, &row) : CLI_OK;
        if (code != CLI_OK) {
            return code;
        }
    }
    return CLI_OK;
}

static void take_machine(cli_machine *m, source *s, const cli_node *of)
{
    take_members(s, of, 2 + MACHINE_N);
    take_text(m->kind, sizeof m->kind, s, of, "kind");
    m->cores = (uint32_t)take_count(s, of, "cores", 1, 65536);
    take_fields(m, s, of, machine_fields, MACHINE_N);
}

static int take_gpu(cli_gpu *g, source *s, const cli_node *of)
{
    if (of != NULL && of->type == CLI_NULL) {
        return CLI_OK;
    }
    take_members(s, of, 2 + GPU_N);
    take_text(g->kind, sizeof g->kind, s, of, "kind");
    take_fields(g, s, of, gpu_fields, GPU_N);
    s->is_sound = s->is_sound && g->kind[0] != '\0';
    return take_costs(&g->costs, s, cli_node_member(s->d, of, "recipes"));
}

static void take_network(cli_network *n, source *s, const cli_node *of)
{
    if (of != NULL && of->type == CLI_NULL) {
        return;
    }
    take_members(s, of, 4 + NETWORK_N + COLUMN_N * CLI_TALK_N);
    n->ranks = (uint32_t)take_count(s, of, "ranks", 2, 1e6);
    n->hosts = (uint32_t)take_count(s, of, "hosts", 1, 1e6);
    take_fields(n, s, of, network_fields, NETWORK_N);
    take_column(n->sizes, CLI_SIZE_N, s, of, "sizes");
    take_column(n->exchange, CLI_SIZE_N, s, of, "exchange");
    for (int t = 0; t < CLI_TALK_N; t++) {
        double *columns[] = {n->talks[t].idle, n->talks[t].busy, n->talks[t].load};
        for (int k = 0; k < COLUMN_N; k++) {
            char name[32];
            take_column(columns[k], CLI_SIZE_N, s, of, column_name(name, t, k));
        }
    }
    for (size_t i = 1; i < CLI_SIZE_N; i++) {
        s->is_sound = s->is_sound && n->sizes[i] > n->sizes[i - 1];
    }
}

/* Whether the hash at the end is that of the bytes before it. */
static int is_intact(const char *text, size_t len)
{
    const size_t key_len = strlen(check_key), end_len = key_len + 16 + 3;
    char want[64];
    if (len < end_len || memcmp(text + len - end_len, check_key, key_len) != 0) {
        return 0;
    }
    snprintf(want, sizeof want, "%016" PRIx64 "\"}\n", hash_of(text, len - end_len));
    return memcmp(text + len - end_len + key_len, want, 19) == 0;
}

static int take_all(cli_probe_data *out, const cli_document *d, const char *path, int intact)
{
    const cli_node *root = cli_document_root(d), *version = cli_node_member(d, root, "tersegrad_probe");
    source s = {d, 1};
    if (version == NULL || version->type != CLI_NUMBER) {
        return cli_fail(CLI_MISUSE, "%s is no file of 'tersegrad probe'", path);
    }
    if (version->number != VERSION) {
        return cli_fail(CLI_MISUSE, "%s has version %g; this program reads version %d: measure again", path,
                        version->number, VERSION);
    }
    take_members(&s, root, 7);
    take_machine(&out->machine, &s, cli_node_member(d, root, "machine"));
    int code = take_costs(&out->machine.costs, &s, cli_node_member(d, root, "recipes"));
    code = code == CLI_OK ? take_gpu(&out->gpu, &s, cli_node_member(d, root, "gpu")) : code;
    take_network(&out->network, &s, cli_node_member(d, root, "network"));
    if (code != CLI_OK) {
        return code;
    }
    if (!s.is_sound || !intact) {
        return cli_fail(CLI_MISUSE, "%s is damaged; measure again with 'tersegrad probe'", path);
    }
    char kind[160];
    cli_machine_kind(kind);
    if (strcmp(kind, out->machine.kind) != 0) {
        return cli_fail(CLI_MISUSE, "%s was measured on a machine of another kind (%s; this one is %s)", path,
                        out->machine.kind, kind);
    }
    return CLI_OK;
}

int cli_probe_suits(const cli_probe_data *p, const char *path, const char *gpu)
{
    if (p->gpu.kind[0] == '\0') {
        return cli_fail(CLI_MISUSE, "%s has no costs of a GPU; 'tersegrad probe --device cuda' measures them", path);
    }
    return strcmp(p->gpu.kind, gpu) == 0
               ? CLI_OK
               : cli_fail(CLI_MISUSE, "%s was measured on a GPU of another kind (%s; this one is %s)", path,
                          p->gpu.kind, gpu);
}

int cli_probe_read(cli_probe_data *out, const char *path)
{
    uint8_t *bytes = NULL;
    size_t len = 0;
    *out = (cli_probe_data){0};
    int code = cli_file_read(&bytes, &len, path);
    if (code != CLI_OK) {
        return code;
    }
    cli_document d;
    char why[96];
    if (cli_document_read(&d, why, bytes, len) != 0) {
        code = cli_fail(CLI_MISUSE, "%s is no file of 'tersegrad probe': %s", path, why);
    } else {
        code = take_all(out, &d, path, is_intact((const char *)bytes, len));
    }
    cli_document_free(&d);
    free(bytes);
    return code;
}
