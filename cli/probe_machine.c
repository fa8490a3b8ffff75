/* Costs of this machine; see probe_machine.h. Every pass is timed on two sets of tensors, few long ones and many short ones. Two
 * equations then give what an element costs and what a chunk costs. Medians of rounds count. What one thread does is timed by its own
 * clock, which stands still while others have its core. */
#include "probe_machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"
#include "probe_parts.h"
#include "progress.h"
#include "synth.h"

enum { ROUND_MAX = 200, ROUND_MIN = 3, WARM = 3, SHIFT = 64, SHORT_N = 128, SHORT_LEN = 1024, TENSOR_MAX = SHORT_N };

uint32_t cli_machine_cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------- */

/* Tensors laid end to end, of kinds conv and dense in turn, and their gradients, which begin further on from step to step. */
typedef struct subject {
    tg_tensor tensors[TENSOR_MAX];
    uint64_t dims[TENSOR_MAX][2];
    char names[TENSOR_MAX][16];
    size_t tensor_n, n;
    const float *values;
    const void *grads[TENSOR_MAX];
    float *sum_of[TENSOR_MAX];
    double chunks; /* of a frame */
} subject;

enum { CHUNK = 262144 }; /* elements (docs/architecture.md) */

static void add_tensor(subject *s, uint64_t rows, uint64_t columns)
{
    size_t t = s->tensor_n++;
    snprintf(s->names[t], sizeof s->names[t], "t%zu", t);
    s->dims[t][0] = rows;
    s->dims[t][1] = columns;
    s->tensors[t] = (tg_tensor){s->names[t], s->dims[t], 2, t % 2 == 0 ? TG_CONV : TG_DENSE, TG_FP32};
    s->n += (size_t)(rows * columns);
    s->chunks += ceil((double)(rows * columns) / CHUNK);
}

static void make_long(subject *s, uint64_t n)
{
    uint64_t columns = n >= UINT64_C(1) << 20 ? 1024 : 128;
    *s = (subject){.n = 0};
    for (int t = 0; t < 2; t++) {
        add_tensor(s, n / 2 / columns > 0 ? n / 2 / columns : 1, columns);
    }
}

static void make_short(subject *s)
{
    *s = (subject){.n = 0};
    for (int t = 0; t < SHORT_N; t++) {
        add_tensor(s, SHORT_LEN / 32, 32);
    }
}

static void place(subject *s, const float *values, size_t value_n, uint64_t step, float *sums)
{
    size_t span = value_n - s->n, at = (size_t)(step * SHIFT) % (span + 1);
    for (size_t t = 0; t < s->tensor_n; t++) {
        s->grads[t] = values + at;
        s->sum_of[t] = sums;
        at += (size_t)(s->dims[t][0] * s->dims[t][1]);
        sums += s->dims[t][0] * s->dims[t][1];
    }
}

/* ---- one recipe ------------------------------------------------------------------------------------------------------ */

enum { ENCODE, CHECK, CHECK_AND_SUM, SUM_UNCHECKED, OP_N };

typedef struct timing {
    double of[OP_N][ROUND_MAX];
    size_t round_n;
    double bits[2]; /* of tensors 0 and 1, means over rounds */
} timing;

/* Buffers that all recipes use in turn. */
typedef struct room {
    const float *values;
    size_t value_n;
    float *made; /* values that are not the caller's */
    float *sums, *copy;
    uint8_t *frame;
    size_t frame_cap;
    uint8_t *other; /* OTHER_LEN, more than caches hold */
} room;

enum { OTHER_LEN = 1 << 25, LINE_LEN = 64 };

static int grow_frame(room *r, size_t len)
{
    if (len > r->frame_cap) {
        free(r->frame);
        r->frame = malloc(len);
        r->frame_cap = r->frame != NULL ? len : 0;
        if (r->frame != NULL) {
            memset(r->frame, 0, len);
        }
    }
    return r->frame != NULL ? CLI_OK : cli_fail_memory();
}

/* Between two steps a rank computes, and has other data in its caches. */
static void cool(room *r)
{
    for (size_t i = 0; i < OTHER_LEN; i += LINE_LEN) {
        r->other[i]++;
    }
}

typedef double (*clock_of)(void);

static clock_of choose_clock(uint32_t threads)
{
    return threads > 1 ? cli_clock_now : cli_clock_thread;
}

static tg_status time_round(timing *t, tg_codec *c, subject *s, room *r, uint64_t step, clock_of now, tg_detail *why)
{
    size_t len = 0, i = t->round_n < ROUND_MAX ? t->round_n : ROUND_MAX - 1;
    tg_frame_info info;
    place(s, r->values, r->value_n, step, r->sums);
    cool(r);
    double at[OP_N + 1] = {now()};
    tg_status status = tg_encode(&len, c, r->frame, r->frame_cap, step, s->grads, why);
    at[1] = now();
    status = status == TG_OK ? tg_frame_inspect(&info, c, r->frame, len, why) : status;
    at[2] = now();
    status = status == TG_OK ? tg_decode_add(c, s->sum_of, 0.5F, r->frame, len, why) : status;
    at[3] = now();
    status = status == TG_OK ? tg_decode_add_private(c, s->sum_of, -0.5F, r->frame, len, why) : status;
    at[4] = now();
    for (int op = 0; op < OP_N; op++) {
        t->of[op][i] = at[op + 1] - at[op];
    }
    for (size_t k = 0; k < 2 && status == TG_OK; k++) {
        tg_traffic traffic;
        status = tg_codec_traffic(&traffic, c, k, why);
        t->bits[k] += 8 * (double)traffic.len / (double)(s->dims[k][0] * s->dims[k][1]);
    }
    return status;
}

/* TG_E_RECIPE is not reported: a codec may not have what an exchange has. */
static int time_codec(timing *t, tg_status *refused, const char *recipe, uint32_t threads, subject *s, room *r,
                      double seconds)
{
    tg_codec *c = NULL;
    tg_detail why = {""};
    tg_options opt = TG_OPTIONS_INIT;
    opt.threads = threads;
    opt.has_seed = 1;
    *refused = tg_codec_new(&c, recipe, s->tensors, s->tensor_n, &opt, &why);
    if (*refused != TG_OK) {
        return *refused == TG_E_RECIPE ? CLI_OK : cli_fail_status(recipe, *refused, &why);
    }
    int code = grow_frame(r, tg_encode_bound(c));
    double begin = cli_clock_now();
    for (uint64_t step = 0; code == CLI_OK && t->round_n < ROUND_MAX; step++) {
        if (step == WARM) {
            t->round_n = 0;
            t->bits[0] = t->bits[1] = 0;
        }
        if (step >= WARM + ROUND_MIN && cli_clock_now() - begin > seconds) {
            break;
        }
        tg_status status = time_round(t, c, s, r, step, choose_clock(threads), &why);
        code = status == TG_OK ? CLI_OK : cli_fail_status(recipe, status, &why);
        t->round_n++;
    }
    t->bits[0] /= (double)t->round_n;
    t->bits[1] /= (double)t->round_n;
    tg_codec_free(c);
    return code;
}

/* What an element and a chunk cost, if a long set takes `a` and a short one `b`. */
static cli_pass_cost solve(double a, const subject *sa, double b, const subject *sb)
{
    double na = (double)sa->n, nb = (double)sb->n, det = na * sb->chunks - nb * sa->chunks;
    double element = (a * sb->chunks - b * sa->chunks) / det, chunk = (na * b - nb * a) / det;
    if (chunk < 0) {
        return (cli_pass_cost){a / na, 0};
    }
    return element < 0 ? (cli_pass_cost){0, b / sb->chunks} : (cli_pass_cost){element, chunk};
}

/* What lowrank multiplies: an exchange of one rank does all products of a step. */
static int time_products(double *seconds, const char *recipe, uint32_t threads, subject *s, room *r, double limit)
{
    double rounds[ROUND_MAX];
    size_t n = 0;
    clock_of now = choose_clock(threads);
    double begin = cli_clock_now();
    cli_solo solo;
    int code = cli_solo_open(&solo, recipe, s->tensors, s->tensor_n, threads);
    for (uint64_t step = 0; code == CLI_OK && n < ROUND_MAX; step++) {
        if (step >= 2 + ROUND_MIN && cli_clock_now() - begin > limit) {
            break;
        }
        place(s, r->values, r->value_n, step, r->copy);
        memcpy(r->copy, s->grads[0], s->n * sizeof(float));
        double from = now();
        code = cli_solo_step(&solo, step, (void *const *)(void *)s->sum_of);
        rounds[n] = now() - from;
        n += step >= 2;
    }
    cli_solo_close(&solo);
    *seconds = code == CLI_OK ? cli_median(rounds, n) / cli_solo_products(&solo) : 0;
    return code;
}

/* Sums are copied to gradients at memory's speed. */
static void set_copy(cli_recipe_cost *row, const cli_machine *m)
{
    row->passes[TG_PASS_COPY] = (cli_pass_cost){sizeof(float) * m->copy, 0};
}

static int measure_lowrank(cli_recipe_cost *row, const cli_machine *m, subject *lo, subject *sh, room *r,
                           double seconds)
{
    double a = 0, b = 0;
    int code = time_products(&a, row->recipe, row->threads, lo, r, 0.7 * seconds);
    code = code == CLI_OK ? time_products(&b, row->recipe, row->threads, sh, r, 0.3 * seconds) : code;
    cli_recipe_cost dense;
    if (code == CLI_OK && cli_machine_find(&dense, m, "fp32", row->threads, row->n)) {
        memcpy(row->passes, dense.passes, sizeof row->passes); /* factors are sent as they are */
    }
    row->passes[TG_PASS_MULTIPLY] = solve(a, lo, b, sh);
    return code;
}

static int measure_recipe(cli_recipe_cost *row, const cli_machine *m, room *r, double seconds)
{
    static subject lo, sh;
    static timing a, b;
    tg_status refused = TG_OK;
    a = b = (timing){.round_n = 0};
    make_long(&lo, row->n);
    make_short(&sh);
    int code = time_codec(&a, &refused, row->recipe, row->threads, &lo, r, 0.7 * seconds);
    if (code == CLI_OK && refused == TG_E_RECIPE) {
        return measure_lowrank(row, m, &lo, &sh, r, seconds);
    }
    code = code == CLI_OK ? time_codec(&b, &refused, row->recipe, row->threads, &sh, r, 0.3 * seconds) : code;
    if (code != CLI_OK) {
        return code;
    }
    double la[OP_N], lb[OP_N];
    for (int op = 0; op < OP_N; op++) {
        la[op] = cli_median(a.of[op], a.round_n);
        lb[op] = cli_median(b.of[op], b.round_n);
    }
    row->passes[TG_PASS_ENCODE] = solve(la[ENCODE], &lo, lb[ENCODE], &sh);
    row->passes[TG_PASS_CHECK] = solve(la[CHECK], &lo, lb[CHECK], &sh);
    row->passes[TG_PASS_SUM] =
        solve(fmax(0, la[CHECK_AND_SUM] - la[CHECK]), &lo, fmax(0, lb[CHECK_AND_SUM] - lb[CHECK]), &sh);
    row->passes[TG_PASS_CHECK_SUM] = solve(la[SUM_UNCHECKED], &lo, lb[SUM_UNCHECKED], &sh);
    set_copy(row, m);
    row->conv_bits = a.bits[0];
    row->bits = a.bits[1];
    return CLI_OK;
}

/* ---- all ------------------------------------------------------------------------------------------------------------- */

static uint64_t largest(const cli_measuring *how)
{
    uint64_t n = SHORT_N * SHORT_LEN;
    for (size_t i = 0; i < how->size_n; i++) {
        n = how->sizes[i] > n ? how->sizes[i] : n;
    }
    return n;
}

static int open_room(room *r, const cli_measuring *how)
{
    size_t n = (size_t)largest(how);
    *r = (room){.values = how->values, .value_n = how->value_n};
    if (r->values == NULL) {
        r->value_n = n + 32 * SHIFT;
        r->values = r->made = malloc(r->value_n * sizeof(float));
        if (r->made != NULL) {
            cli_synth_gradient(r->made, r->value_n, 1);
        }
    }
    r->sums = calloc(n, sizeof(float));
    r->copy = calloc(n, sizeof(float));
    r->other = calloc(OTHER_LEN, 1);
    return r->values != NULL && r->sums != NULL && r->copy != NULL && r->other != NULL ? CLI_OK : cli_fail_memory();
}

static void close_room(room *r)
{
    free(r->frame);
    free(r->other);
    free(r->copy);
    free(r->sums);
    free(r->made);
}

static int measure_all(cli_machine *out, const cli_measuring *how, room *r)
{
    size_t done = 0, all = how->recipe_n * how->thread_n * how->size_n;
    int code = CLI_OK;
    for (size_t k = 0; k < how->size_n; k++) {
        for (size_t t = 0; t < how->thread_n; t++) {
            for (size_t i = 0; i < how->recipe_n && code == CLI_OK; i++) {
                cli_recipe_cost row = {.threads = how->threads[t], .n = how->sizes[k]};
                snprintf(row.recipe, sizeof row.recipe, "%s", how->recipes[i]);
                cli_progress_show(row.recipe, (double)done++, (double)all);
                code = measure_recipe(&row, out, r, how->seconds);
                code = code == CLI_OK ? cli_machine_add(out, &row) : code;
            }
        }
    }
    return code;
}

int cli_machine_measure(cli_machine *out, const cli_measuring *how)
{
    room r;
    int code = open_room(&r, how);
    if (code == CLI_OK && r.value_n < largest(how)) {
        code = cli_fail(CLI_MISUSE, "--input has %zu elements; %llu are needed", r.value_n,
                        (unsigned long long)largest(how));
    }
    cli_machine_kind(out->kind);
    out->cores = cli_machine_cores();
    code = code == CLI_OK ? cli_parts_measure(out, r.values, r.copy, (size_t)largest(how)) : code;
    code = code == CLI_OK ? measure_all(out, how, &r) : code;
    cli_progress_clear();
    close_room(&r);
    return code;
}
