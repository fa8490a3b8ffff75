/* The runs of a comparison; see compare_run.h. */
#include "compare_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"
#include "progress.h"
#include "train_settings.h"

/* The run in progress: its progress line, and what it leaves for the page. */
typedef struct watch {
    tr_settings settings; /* of this run */
    cli_run *run;
    int keeps;           /* it is of the first seed */
    double spent, later; /* seconds since the first run began; and those that runs to come are expected to take */
    double test_seconds; /* that a test took; 0: there was none yet */
    double started;      /* when the run began */
    double last_step;    /* when the last step was done */
    uint64_t tests_left; /* of this run */
    double sent;         /* bytes of one worker so far */
    double seconds;      /* of training so far, tests left out */
    double loss;         /* summed over the stretch of steps that makes a point */
    uint64_t stretch_n;
} watch;

/* What is left of this run goes on as it has gone, and runs to come as they were tried out. */
static void show(watch *w, const tr_step *step)
{
    char text[160];
    double now = cli_clock_now(), steps = (double)(w->settings.steps - step->step - 1);
    double left = w->seconds / (double)(step->step + 1) * steps + (double)w->tests_left * w->test_seconds + w->later;
    double spent = w->spent + now - w->started;
    w->last_step = now;
    snprintf(text, sizeof text, "%s, step %" PRIu64 "/%" PRIu64 ", loss %.4f", w->run->recipe, step->step + 1,
             w->settings.steps, step->loss);
    cli_progress_show_left(text, spent / (spent + left), left);
}

static int start_layers(cli_run *r, const tr_step *step)
{
    r->layer_n = tr_model_param_n(step->model);
    r->layers = calloc(r->layer_n + 1, sizeof *r->layers);
    if (r->layers == NULL) {
        return -1;
    }
    for (size_t p = 0; p < r->layer_n; p++) {
        const tr_param *param = tr_model_param(step->model, p);
        snprintf(r->layers[p].name, sizeof r->layers[p].name, "%s", param->name);
        r->layers[p].elements = param->n;
    }
    return 0;
}

/* What each layer took in the step that makes a point, and what was learned. */
static void keep_layers(cli_run *r, const tr_step *step)
{
    bool known = step->learning.phase > 0 && step->learning.error >= 0;
    r->learned[r->curve_n] = known ? step->learning.error : NAN;
    for (size_t p = 0; p < r->layer_n; p++) {
        const tg_traffic *t = &step->traffic[p];
        r->layers[p].len = t->len;
        r->layers[p].rates[r->curve_n] = t->bins > 0 ? (double)t->entries / (double)t->bins : NAN;
    }
}

/* Steps make a point of the curve together, so that there are at most CLI_CURVE_MAX. */
static int keep_step(watch *w, const tr_step *step)
{
    uint64_t stretch = (w->settings.steps + CLI_CURVE_MAX - 1) / CLI_CURVE_MAX;
    cli_run *r = w->run;
    if (r->layers == NULL && start_layers(r, step) != 0) {
        return -1;
    }
    w->loss += step->loss * (double)step->steps;
    w->stretch_n += step->steps;
    if (w->stretch_n >= stretch && r->curve_n < CLI_CURVE_MAX) {
        keep_layers(r, step);
        r->curve[r->curve_n++] =
            (cli_point){(double)step->step + 1, w->loss / (double)w->stretch_n, w->sent, w->seconds};
        w->loss = 0;
        w->stretch_n = 0;
    }
    return 0;
}

static int on_step(void *context, const tr_step *step, char why[TR_WHY])
{
    watch *w = context;
    w->seconds += cli_run_step(&step->times);
    w->sent += (double)(step->bytes.payload + step->bytes.header) / w->settings.workers;
    show(w, step);
    if (w->keeps && keep_step(w, step) != 0) {
        snprintf(why, TR_WHY, "there is not enough memory");
        return -1;
    }
    return 0;
}

static int on_test(void *context, const tr_test *test, char why[TR_WHY])
{
    watch *w = context;
    (void)why;
    w->test_seconds = cli_clock_now() - w->last_step;
    w->tests_left -= w->tests_left > 0;
    if (w->keeps && w->run->test_n < CLI_TEST_MAX) {
        w->run->tests[w->run->test_n++] = (cli_point){(double)test->step, test->accuracy, w->sent, w->seconds};
    }
    return 0;
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

static void add_result(cli_run *r, const tr_result *one, double share)
{
    r->accuracy += share * one->test.accuracy;
    r->loss += share * one->test.loss;
    r->train_loss += share * one->train_loss;
    r->dense_bytes += share * one->dense_bytes;
    r->wire_bytes += share * one->wire_bytes;
    r->host_bytes += share * one->host_bytes;
    r->busiest_bytes += share * one->busiest_bytes;
    r->times.compute += share * one->times.compute;
    r->times.encode += share * one->times.encode;
    r->times.exchange += share * one->times.exchange;
    r->times.decode += share * one->times.decode;
    r->times.exposed += share * one->times.exposed;
    r->times.update += share * one->times.update;
}

/* Steps between tests of a first seed: tests take longer than steps, but the time to a target is known no better. */
static uint64_t test_interval(const cli_args *args, uint64_t steps)
{
    uint64_t least = (steps + CLI_TEST_MAX - 2) / (CLI_TEST_MAX - 1);
    uint64_t wanted = cli_args_has(args, CLI_FLAG_TEST_EVERY) ? args->test_every
                      : cli_run_aims(args)                    ? steps / 15
                                                              : steps / 5 + 1;
    return wanted == 0 ? steps : wanted > least ? wanted : least;
}

static void run_seed(cli_run *out, tr_result *result, watch *w, const cli_args *args, const tr_data *data, uint32_t k)
{
    tr_settings *settings = &w->settings;
    *settings = cli_train_settings(args, data, out->bare, args->seed + k);
    cli_train_local(settings, args, &out->local);
    settings->test_every = k == 0 ? test_interval(args, settings->steps) : 0;
    w->keeps = k == 0;
    w->tests_left = settings->test_every > 0 ? (settings->steps + settings->test_every - 1) / settings->test_every : 1;
    w->sent = w->loss = w->seconds = 0;
    w->stretch_n = 0;
    tr_hooks hooks = {.context = w, .step = on_step, .test = on_test};
    char why[TR_WHY] = "";
    int code = tr_run(result, settings, data, &hooks, NULL, 0, why);
    if (result->diverged > 0) {
        out->diverged = out->diverged_n == 0 ? result->diverged : out->diverged;
        out->diverged_n++;
        snprintf(out->hint, sizeof out->hint, "%s", cli_train_hint(settings));
    }
    if (code != 0) {
        out->misuse = code == TR_MISUSE;
        snprintf(out->failed, sizeof out->failed, "%s", why);
    }
}

static void run_recipe(cli_run *out, watch *w, const cli_args *args, const tr_data *data)
{
    double lowest = INFINITY, highest = -INFINITY;
    w->run = out;
    w->started = cli_clock_now();
    for (uint32_t k = 0; k < args->seeds; k++) {
        tr_result result = {0};
        run_seed(out, &result, w, args, data, k);
        if (out->failed[0] != '\0') {
            return;
        }
        add_result(out, &result, 1.0 / args->seeds);
        lowest = fmin(lowest, result.test.accuracy);
        highest = fmax(highest, result.test.accuracy);
        snprintf(out->canonical, sizeof out->canonical, "%s", result.recipe);
        snprintf(out->exchange, sizeof out->exchange, "%s", result.exchange);
        out->groups = result.groups;
    }
    out->spread = highest - lowest;
    out->seconds = cli_clock_now() - w->started;
}

/* ---- trying out ------------------------------------------------------------------------------------------------------ */

enum { TRIED_STEPS = 2 };

static int on_tried_step(void *context, const tr_step *step, char why[TR_WHY])
{
    double *seconds = context;
    (void)why;
    *seconds = cli_run_step(&step->times) / (double)step->steps;
    return step->step + 1 >= TRIED_STEPS ? -1 : 0; /* enough: the run ends */
}

static int on_tried_test(void *context, const tr_test *test, char why[TR_WHY])
{
    (void)context;
    (void)test;
    (void)why;
    return 0;
}

/* Seconds that a step of each recipe takes, by two steps of it: a recipe may take ten times as long as another on a slow
 * link, and who waits wants to know. */
static void try_out(double *step_seconds, const cli_run *runs, size_t n, const cli_args *args, const tr_data *data)
{
    for (size_t i = 0; i < n; i++) {
        tr_settings settings = cli_train_settings(args, data, runs[i].bare, args->seed);
        cli_train_local(&settings, args, &runs[i].local);
        tr_hooks hooks = {.context = &step_seconds[i], .step = on_tried_step, .test = on_tried_test};
        tr_result result;
        char why[TR_WHY] = "";
        settings.test_every = 0;
        step_seconds[i] = 0;
        (void)tr_run(&result, &settings, data, &hooks, NULL, 0, why); /* what fails here fails later, too */
    }
}

/* ---- all runs -------------------------------------------------------------------------------------------------------- */

int cli_run_all(cli_run *runs, size_t n, const cli_args *args, const tr_data *data, uint64_t steps)
{
    enum { WORTH_TRYING = 20 };
    uint64_t interval = test_interval(args, steps), tests = (steps + interval - 1) / interval + args->seeds - 1;
    double start = cli_clock_now(), *step_seconds = calloc(n + 1, sizeof *step_seconds);
    if (step_seconds == NULL) {
        return cli_fail_memory();
    }
    watch w = {0};
    cli_progress_start(0);
    if (steps >= WORTH_TRYING && n > 1) {
        try_out(step_seconds, runs, n, args, data);
    }
    for (size_t i = 0; i < n; i++) {
        w.spent = cli_clock_now() - start;
        w.later = 0;
        for (size_t k = i + 1; k < n; k++) {
            w.later += step_seconds[k] * (double)steps * args->seeds + w.test_seconds * (double)tests;
        }
        run_recipe(&runs[i], &w, args, data);
        if (!isatty(STDERR_FILENO) && runs[i].failed[0] == '\0') {
            fprintf(stderr, "%zu of %zu: %s, %.2f%%, %.0f s\n", i + 1, n, runs[i].recipe, 100 * runs[i].accuracy,
                    runs[i].seconds);
        }
    }
    cli_progress_clear();
    free(step_seconds);
    return CLI_OK;
}

/* ---- time to a target ------------------------------------------------------------------------------------------------ */

int cli_run_aims(const cli_args *args)
{
    return args->link.bits > 0 || cli_args_has(args, CLI_FLAG_TARGET);
}

static int is_sound(const cli_run *r)
{
    return r->failed[0] == '\0' && r->diverged == 0;
}

int cli_run_is_on_frontier(const cli_run *runs, size_t n, const cli_run *r)
{
    int is_beaten = 0;
    for (size_t i = 0; i < n; i++) {
        const cli_run *o = &runs[i];
        is_beaten |= is_sound(o) && ((o->accuracy >= r->accuracy && o->wire_bytes < r->wire_bytes) ||
                                     (o->accuracy > r->accuracy && o->wire_bytes <= r->wire_bytes));
    }
    return is_sound(r) && !is_beaten;
}

static const cli_run *find_sound(const cli_run *runs, size_t n, const char *recipe)
{
    for (size_t i = 0; i < n; i++) {
        if (is_sound(&runs[i]) && (recipe == NULL || strcmp(runs[i].recipe, recipe) == 0)) {
            return &runs[i];
        }
    }
    return NULL;
}

const cli_run *cli_run_measure(const cli_run *runs, size_t n)
{
    const cli_run *dense = find_sound(runs, n, "dense");
    return dense != NULL ? dense : find_sound(runs, n, NULL);
}

double cli_run_target(const cli_args *args, const cli_run *runs, size_t n)
{
    const cli_run *measure = cli_run_measure(runs, n);
    if (cli_args_has(args, CLI_FLAG_TARGET)) {
        return args->target / 100;
    }
    return measure != NULL ? floor(0.98 * measure->accuracy * 1000) / 1000 : NAN;
}

const cli_point *cli_run_reach(const cli_run *r, double target)
{
    for (size_t i = 0; i < r->test_n && r->failed[0] == '\0'; i++) {
        if (r->tests[i].value >= target) {
            return &r->tests[i];
        }
    }
    return NULL;
}
