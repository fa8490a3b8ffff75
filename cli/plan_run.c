/* Predictions for all recipes, and what they say; see plan_run.h. */
#include "plan_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fail.h"
#include "text.h"

/* ---- what was trained ---------------------------------------------------------------------------------------------- */

#define RISK(recipe, local_steps, points, seeds, epochs, trained) {recipe, local_steps, points, seeds, epochs, trained},
static const cli_risk risks[] = {
#include "plan_risks.def"
};
#undef RISK

/* Copies the names of parts alone: "ef+topk@0.01+fp32" as "ef+topk+fp32". */
static void strip_values(char out[TG_RECIPE_CAP], const char *recipe)
{
    size_t n = 0;
    for (const char *at = recipe; *at != '\0' && n + 1 < TG_RECIPE_CAP;) {
        at += *at == '@' ? strcspn(at, "+") : 0;
        if (*at != '\0') {
            out[n++] = *at++;
        }
    }
    out[n] = '\0';
}

static const cli_risk *find(const char *recipe, uint32_t local_steps, int by_names)
{
    const cli_risk *found = NULL;
    char want[TG_RECIPE_CAP], have[TG_RECIPE_CAP];
    strip_values(want, recipe);
    for (size_t i = 0; i < sizeof risks / sizeof *risks; i++) {
        const cli_risk *r = &risks[i];
        strip_values(have, r->recipe);
        int fits = strcmp(r->recipe, recipe) == 0 || (by_names && strcmp(have, want) == 0);
        if (fits && r->local_steps == local_steps && (found == NULL || r->epochs > found->epochs)) {
            found = r;
        }
    }
    return found;
}

const cli_risk *cli_risk_find(const char *recipe, uint32_t local_steps)
{
    const cli_risk *found = find(recipe, local_steps, 0);
    return found != NULL ? found : find(recipe, local_steps, 1);
}

/* Half a point is what one seed does not resolve (docs/results.md). */
int cli_risk_is_small(const cli_risk *r)
{
    return r != NULL && r->points >= -0.5;
}

/* ---- steps --------------------------------------------------------------------------------------------------------- */

/* The mean over a round: of several steps, one has an exchange. */
static double over_round(const cli_plan *p, const cli_prediction *x)
{
    double compute = p->setting.compute;
    return compute + fmax(0, x->time.step - compute) / p->local_steps;
}

static cli_setting grouped(const cli_plan *p, const cli_setting *s, int is_overlapped)
{
    cli_setting own = *s;
    own.group_len = is_overlapped && p->local_steps == 1 ? s->group_len : 0;
    return own;
}

static int has_hosts(const cli_setting *s)
{
    return s->hosts > 1 && s->hosts < s->workers;
}

/* Moves of local steps are exchanged when the last step is done, so nothing overlaps. */
static int predict_row(cli_plan_row *r, const cli_plan *p, const cli_setting *at)
{
    cli_setting alone = grouped(p, at, 0), overlapped = grouped(p, at, 1), hosts = overlapped;
    int code = cli_step_predict(&r->alone, &r->reason, &alone, r->canonical);
    code = code == CLI_OK ? cli_step_predict(&r->overlapped, &r->reason, &overlapped, r->canonical) : code;
    if (code != CLI_OK) {
        return code;
    }
    r->step = over_round(p, &r->alone);
    r->step_overlapped = over_round(p, &r->overlapped);
    r->best = fmin(r->step, r->step_overlapped);
    r->bytes = r->alone.bytes / p->local_steps;
    r->step_hosts = (double)NAN;
    hosts.is_hierarchical = 1;
    tg_detail why;
    code = has_hosts(at) ? cli_step_predict(&r->hosts, &why, &hosts, r->canonical) : CLI_NOT_PREDICTED;
    if (code == CLI_OK) {
        r->step_hosts = over_round(p, &r->hosts);
        r->best = fmin(r->best, r->step_hosts);
    }
    return code == CLI_NOT_PREDICTED ? CLI_OK : code;
}

static int predict_plain(cli_plan_plain *out, const cli_setting *at, tg_dtype dtype)
{
    cli_setting alone = *at;
    alone.group_len = 0;
    int code = cli_step_plain(&out->alone, &alone, dtype);
    code = code == CLI_OK ? cli_step_plain(&out->overlapped, at, dtype) : code;
    out->best = fmin(out->alone.time.step, out->overlapped.time.step);
    return code;
}

int cli_plan_best(double *out, const cli_plan *p, const cli_setting *s, const char *canonical)
{
    cli_plan_row row = {.recipe = canonical};
    snprintf(row.canonical, sizeof row.canonical, "%s", canonical);
    int code = predict_row(&row, p, s);
    *out = code == CLI_OK ? row.best : (double)INFINITY;
    return code == CLI_NOT_PREDICTED ? CLI_OK : code;
}

int cli_plan_plain_best(double *out, const cli_setting *s, tg_dtype dtype)
{
    cli_plan_plain plain;
    int code = predict_plain(&plain, s, dtype);
    *out = plain.best;
    return code;
}

/* ---- break-even -------------------------------------------------------------------------------------------------------- */

/* Whether a recipe beats bf16 at a rate. Less than a fiftieth is none: where computing hides all messages, steps differ by that. */
static int wins_at(int *out, const cli_plan *p, const char *canonical, double bits)
{
    cli_setting s = p->setting;
    double own = 0, plain = 0;
    s.rate = bits / 8;
    s.is_measured = 0;
    int code = cli_plan_best(&own, p, &s, canonical);
    code = code == CLI_OK ? cli_plan_plain_best(&plain, &s, TG_BF16) : code;
    *out = own < 0.98 * plain;
    return code;
}

static int find_break_even(double *out, const cli_plan *p, const char *canonical)
{
    double low = 1e5, high = 1e12;
    int wins_low = 0, wins_high = 0;
    int code = wins_at(&wins_low, p, canonical, low);
    code = code == CLI_OK ? wins_at(&wins_high, p, canonical, high) : code;
    if (code != CLI_OK || wins_high || !wins_low) {
        *out = wins_high ? (double)INFINITY : 0;
        return code;
    }
    while (high / low > 1.05 && code == CLI_OK) {
        double middle = sqrt(low * high);
        int wins = 0;
        code = wins_at(&wins, p, canonical, middle);
        *(wins ? &low : &high) = middle;
    }
    *out = sqrt(low * high);
    return code;
}

/* ---- recommendation ------------------------------------------------------------------------------------------------------ */

/* What is known of a recipe's accuracy, and how many times as fast as plain all-reduces it must be for that. */
typedef enum trust { COSTS_LITTLE, NOT_KNOWN, COSTS_SOME, COSTS_MUCH } trust;
static const double worth[] = {1.1, 1.5, 2};

static trust trust_in(const cli_risk *r)
{
    return r == NULL ? NOT_KNOWN : cli_risk_is_small(r) ? COSTS_LITTLE : r->points >= -2 ? COSTS_SOME : COSTS_MUCH;
}

/* The fastest of the rows of one kind; with COSTS_MUCH, of all. */
static const cli_plan_row *fastest(const cli_plan *p, trust t)
{
    const cli_plan_row *best = NULL;
    for (size_t i = 0; i < p->row_n; i++) {
        const cli_plan_row *r = &p->rows[i];
        if (r->reason.text[0] == '\0' && (t == COSTS_MUCH || trust_in(r->risk) == t) &&
            (best == NULL || r->best < best->best)) {
            best = r;
        }
    }
    return best;
}

static const cli_plan_row *choose(const cli_plan *p, double plain)
{
    for (int t = COSTS_LITTLE; t < COSTS_MUCH; t++) {
        const cli_plan_row *r = fastest(p, (trust)t);
        if (r != NULL && r->best < plain / worth[t]) {
            return r;
        }
    }
    return NULL;
}

static const char *manner_of(const cli_plan_row *r)
{
    return r->alone.phase > 0             ? ", once it sends codes"
           : r->best == r->step_hosts     ? ", with hosts that sum first"
           : r->step_overlapped < r->step ? ", while the backward pass computes"
                                          : "";
}

/* "in kept trainings it ended 0.03 points below dense (ResNet-18 on CIFAR-10)" */
static void tell_risk(char out[160], const cli_risk *r)
{
    if (r == NULL) {
        snprintf(out, 160, "no kept training tells what it costs in accuracy");
    } else {
        snprintf(out, 160, "in kept trainings it ended %.2f points %s dense (%s)", fabs(r->points),
                 r->points < 0 ? "below" : "above", r->trained);
    }
}

/* The sentence for none. A recipe that would be faster is named with what speaks against it. */
static void advise_against(cli_plan *p, const cli_plan_plain *plain, const char *dtype)
{
    const cli_plan_row *any = fastest(p, COSTS_MUCH);
    char ms[3][CLI_NUMBER_CAP], risk[160] = "", tail[400] = "";
    if (any != NULL) {
        int is_fast = any->best < plain->best / worth[COSTS_LITTLE];
        tell_risk(risk, any->risk);
        snprintf(tail, sizeof tail, ", and the fastest recipe, %s, would take %s%s%s", any->recipe,
                 cli_text_short(ms[0], 1e3 * any->best), is_fast ? ", but " : "", is_fast ? risk : "");
    }
    snprintf(p->recommendation, sizeof p->recommendation,
             "Do not compress: %s all-reduce takes %s ms a step, of which %s are computing%s.", dtype,
             cli_text_short(ms[1], 1e3 * plain->best), cli_text_short(ms[2], 1e3 * p->setting.compute), tail);
}

static void recommend(cli_plan *p)
{
    const cli_plan_plain *plain = p->bf16.best <= p->fp32.best ? &p->bf16 : &p->fp32;
    const char *dtype = plain == &p->bf16 ? "bf16" : "fp32";
    const cli_plan_row *chosen = choose(p, plain->best);
    char ms[2][CLI_NUMBER_CAP], risk[160];
    p->recommended = chosen;
    if (chosen == NULL) {
        advise_against(p, plain, dtype);
        return;
    }
    tell_risk(risk, chosen->risk);
    snprintf(p->recommendation, sizeof p->recommendation,
             "Use %s%s: %s ms a step, where %s all-reduce takes %s (%.3g times as fast); %s.", chosen->recipe,
             manner_of(chosen), cli_text_short(ms[0], 1e3 * chosen->best), dtype,
             cli_text_short(ms[1], 1e3 * plain->best), plain->best / chosen->best, risk);
}

int cli_plan_run(cli_plan *p)
{
    int code = predict_plain(&p->fp32, &p->setting, TG_FP32);
    code = code == CLI_OK ? predict_plain(&p->bf16, &p->setting, TG_BF16) : code;
    for (size_t i = 0; i < p->row_n && code == CLI_OK; i++) {
        cli_plan_row *r = &p->rows[i];
        r->risk = cli_risk_find(r->canonical, p->local_steps);
        code = predict_row(r, p, &p->setting);
        if (code == CLI_NOT_PREDICTED) {
            code = CLI_OK;
        } else if (code == CLI_OK) {
            code = find_break_even(&r->break_even, p, r->canonical);
        }
    }
    recommend(p);
    return code;
}
