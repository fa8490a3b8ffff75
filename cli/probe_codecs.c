/* Costs of recipes; see probe_codecs.h. Every pass is timed on two sets of tensors, few long ones and many short ones. Two equations
 * then give what an element costs and what a chunk costs. On a GPU, a third set, which is hardly there, gives what a pass costs that
 * has nothing to do. Medians of rounds count. What one thread of a CPU does is timed by its own clock, which stands still while others
 * have its core. */
#include "probe_codecs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "fail.h"
#include "probe_learned.h"
#include "probe_parts.h"
#include "progress.h"

enum { ROUND_MAX = 200, ROUND_MIN = 3, WARM = 3 };

/* ---- frames -------------------------------------------------------------------------------------------------------- */

enum { ENCODE, CHECK, CHECK_AND_SUM, SUM_UNCHECKED, OP_N };

typedef struct timing {
    double of[OP_N][ROUND_MAX];
    size_t round_n;
    double bits[2]; /* of tensors 0 and 1, means over rounds */
} timing;

static tg_status time_round(timing *t, tg_codec *c, const cli_tensors *s, cli_workspace *w, uint64_t step,
                            uint32_t threads, tg_detail *why)
{
    size_t len = 0, i = t->round_n < ROUND_MAX ? t->round_n : ROUND_MAX - 1;
    void *grads[CLI_TENSOR_MAX], *sums[CLI_TENSOR_MAX];
    float *const *sum_of = (float *const *)(void *)sums;
    tg_frame_info info;
    cli_tensors_place(grads, s, cli_workspace_gradients(w, s, step));
    cli_tensors_place(sums, s, w->sums[0]);
    cli_workspace_evict_caches(w);
    double at[OP_N + 1] = {cli_workspace_now(w, threads)};
    tg_status status = tg_encode(&len, c, w->frame, w->frame_cap, step, (const void *const *)grads, why);
    at[1] = cli_workspace_now(w, threads);
    status = status == TG_OK ? tg_frame_inspect(&info, c, w->frame, len, why) : status;
    at[2] = cli_workspace_now(w, threads);
    status = status == TG_OK ? tg_decode_add(c, sum_of, 0.5F, w->frame, len, why) : status;
    at[3] = cli_workspace_now(w, threads);
    status = status == TG_OK ? tg_decode_add_private(c, sum_of, -0.5F, w->frame, len, why) : status;
    at[4] = cli_workspace_now(w, threads);
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
static int time_codec(timing *t, tg_status *refused, const cli_recipe_cost *row, const cli_tensors *s, cli_workspace *w,
                      double seconds)
{
    tg_codec *c = NULL;
    tg_detail why = {""};
    tg_options opt = TG_OPTIONS_INIT;
    opt.threads = row->threads;
    opt.has_seed = 1;
    opt.device = w->device->gpu;
    *t = (timing){.round_n = 0};
    *refused = tg_codec_new(&c, row->recipe, s->of, s->tensor_n, &opt, &why);
    if (*refused != TG_OK) {
        return *refused == TG_E_RECIPE ? CLI_OK : cli_fail_status(row->recipe, *refused, &why);
    }
    int code = cli_workspace_reserve(w, tg_encode_bound(c));
    double begin = cli_clock_now();
    for (uint64_t step = 0; code == CLI_OK && t->round_n < ROUND_MAX; step++) {
        if (step == WARM) {
            t->round_n = 0;
            t->bits[0] = t->bits[1] = 0;
        }
        if (step >= WARM + ROUND_MIN && cli_clock_now() - begin > seconds) {
            break;
        }
        tg_status status = time_round(t, c, s, w, step, row->threads, &why);
        code = status == TG_OK ? w->code : cli_fail_status(row->recipe, status, &why);
        t->round_n++;
    }
    t->bits[0] /= (double)t->round_n;
    t->bits[1] /= (double)t->round_n;
    tg_codec_free(c);
    return code;
}

/* Seconds of each pass on a set of tensors. */
static int time_passes(double out[TG_PASS_N], double bits[2], tg_status *refused, const cli_recipe_cost *row,
                       const cli_tensors *s, cli_workspace *w, double seconds)
{
    static timing t;
    int code = time_codec(&t, refused, row, s, w, seconds);
    if (code != CLI_OK || *refused != TG_OK) {
        return code;
    }
    double check = cli_median(t.of[CHECK], t.round_n);
    out[TG_PASS_ENCODE] = cli_median(t.of[ENCODE], t.round_n);
    out[TG_PASS_CHECK] = check;
    out[TG_PASS_SUM] = fmax(0, cli_median(t.of[CHECK_AND_SUM], t.round_n) - check);
    out[TG_PASS_CHECK_SUM] = cli_median(t.of[SUM_UNCHECKED], t.round_n);
    bits[0] = t.bits[0];
    bits[1] = t.bits[1];
    return CLI_OK;
}

/* ---- PowerSGD ------------------------------------------------------------------------------------------------------ */

/* What lowrank multiplies: an exchange of one rank does all products of a step. */
static int time_products(double *seconds, const cli_recipe_cost *row, const cli_tensors *s, cli_workspace *w,
                         double limit)
{
    double rounds[ROUND_MAX];
    void *grads[CLI_TENSOR_MAX];
    size_t n = 0;
    double begin = cli_clock_now();
    cli_solo solo;
    int code = cli_solo_open(&solo, row->recipe, s->of, s->tensor_n, row->threads, w->device->gpu);
    cli_tensors_place(grads, s, w->sums[1]);
    for (uint64_t step = 0; code == CLI_OK && n < ROUND_MAX; step++) {
        if (step >= 2 + ROUND_MIN && cli_clock_now() - begin > limit) {
            break;
        }
        code = cli_device_copy(w->device, w->sums[1], cli_workspace_gradients(w, s, step), s->n * sizeof(float));
        double from = cli_workspace_now(w, row->threads);
        code = code == CLI_OK ? cli_solo_step(&solo, step, grads) : code;
        rounds[n] = cli_workspace_now(w, row->threads) - from;
        code = code == CLI_OK ? w->code : code;
        n += step >= 2;
    }
    cli_solo_close(&solo);
    *seconds = code == CLI_OK ? cli_median(rounds, n) / cli_solo_products(&solo) : 0;
    return code;
}

/* ---- all ----------------------------------------------------------------------------------------------------------- */

/* Three sets of tensors; the last for GPUs alone. */
typedef struct sets {
    cli_tensors of[3];
    size_t n;
} sets;

static const double shares[] = {0.7, 0.3, 0.1}; /* of the time */

static cli_pass_cost solve(const double seconds[3], const sets *s)
{
    return cli_pass_cost_solve((cli_size){(double)s->of[0].n, s->of[0].chunks, seconds[0]},
                               (cli_size){(double)s->of[1].n, s->of[1].chunks, seconds[1]}, seconds[2]);
}

static int measure_lowrank(cli_recipe_cost *row, const cli_costs *known, const sets *s, cli_workspace *w,
                           double seconds)
{
    double of[3] = {0};
    int code = CLI_OK;
    for (size_t i = 0; i < s->n && code == CLI_OK; i++) {
        code = time_products(&of[i], row, &s->of[i], w, shares[i] * seconds);
    }
    cli_recipe_cost dense;
    if (code == CLI_OK && cli_costs_find(&dense, known, "fp32", row->threads, row->n)) {
        memcpy(row->passes, dense.passes, sizeof row->passes); /* factors are sent as they are */
    }
    row->passes[TG_PASS_MULTIPLY] = solve(of, s);
    return code;
}

static int measure_recipe(cli_recipe_cost *row, const cli_costs *known, double copy, cli_workspace *w, double seconds)
{
    static sets s;
    double of[3][TG_PASS_N] = {{0}}, bits[3][2] = {{0}};
    int code = CLI_OK;
    if (strstr(row->recipe, "autoencoder") != NULL) {
        return cli_learned_measure(row, w, seconds);
    }
    s.n = w->device->gpu != NULL ? 3 : 2;
    cli_tensors_long(&s.of[0], row->n, 0);
    cli_tensors_short(&s.of[1]);
    cli_tensors_tiny(&s.of[2]);
    for (size_t i = 0; i < s.n && code == CLI_OK; i++) {
        tg_status refused = TG_OK;
        code = time_passes(of[i], bits[i], &refused, row, &s.of[i], w, shares[i] * seconds);
        if (code == CLI_OK && refused == TG_E_RECIPE) {
            return measure_lowrank(row, known, &s, w, seconds);
        }
    }
    for (int p = 0; p < TG_PASS_COPY && code == CLI_OK; p++) {
        row->passes[p] = solve((const double[]){of[0][p], of[1][p], of[2][p]}, &s);
    }
    row->passes[TG_PASS_COPY] = (cli_pass_cost){.element = sizeof(float) * copy}; /* at memory's speed */
    row->conv_bits = bits[0][0];
    row->bits = bits[0][1];
    return code;
}

int cli_costs_measure(cli_costs *out, const cli_measuring *how, double copy, cli_workspace *w)
{
    size_t done = 0, all = how->recipe_n * how->thread_n * how->size_n;
    int code = CLI_OK;
    for (size_t k = 0; k < how->size_n; k++) {
        for (size_t t = 0; t < how->thread_n; t++) {
            for (size_t i = 0; i < how->recipe_n && code == CLI_OK; i++) {
                cli_recipe_cost row = {.threads = how->threads[t], .n = how->sizes[k]};
                snprintf(row.recipe, sizeof row.recipe, "%s", how->recipes[i]);
                cli_progress_show(row.recipe, (double)done++, (double)all);
                code = measure_recipe(&row, out, copy, w, how->seconds);
                code = code == CLI_OK ? cli_costs_add(out, &row) : code;
            }
        }
    }
    return code;
}
