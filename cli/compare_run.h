/* What the runs of one recipe came to, for the table, the JSON object and the page. */
#ifndef CLI_COMPARE_RUN_H
#define CLI_COMPARE_RUN_H

#include <stdio.h>

#include "args.h"
#include "run.h"

enum { CLI_LINK_N = 3, CLI_CURVE_MAX = 200, CLI_TEST_MAX = 64 };

extern const double cli_run_links[CLI_LINK_N]; /* bits a second */

/* A loss or an accuracy. */
typedef struct cli_point {
    double step, value;
    double bytes;   /* that one worker has sent until then, the mean over workers */
    double seconds; /* of training until then, tests left out */
} cli_point;

typedef struct cli_layer {
    char name[64];
    uint64_t elements, len;
    double rates[CLI_CURVE_MAX]; /* entries a bin at each point of the curve; NAN where it has no bins */
} cli_layer;

/* Means over seeds, but for the spread; curves, tests and layers are of the first seed. */
typedef struct cli_run {
    const char *recipe;       /* as the row is called: with its local steps, if it has any */
    char bare[TG_RECIPE_CAP]; /* the recipe alone */
    tg_schedule local;        /* its local steps */
    char name[TG_RECIPE_CAP + 64];
    char failed[TR_WHY]; /* why it failed, which the other recipes need not care about; empty if it did not */
    int misuse;          /* it can never work with these flags */
    uint64_t diverged;   /* steps done when the first seed diverged that did; 0: none has */
    uint32_t diverged_n; /* seeds that have */
    char hint[256];      /* what may help then */
    char canonical[TG_RECIPE_CAP], exchange[16];
    size_t groups;
    double accuracy, spread; /* of the test; spread is the largest less the smallest */
    double loss, train_loss;
    double dense_bytes, wire_bytes, host_bytes, busiest_bytes;
    tr_times times;
    double seconds;
    cli_point curve[CLI_CURVE_MAX]; /* losses */
    double learned[CLI_CURVE_MAX];  /* error of what was learned, at each of its points; NAN where that is not known */
    cli_point tests[CLI_TEST_MAX];  /* accuracies */
    size_t curve_n, test_n;
    cli_layer *layers;
    size_t layer_n;
} cli_run;

/* Runs every recipe with every seed; runs[i].recipe, bare and local are given, and all else 0. What fails is told in the run. Reports. */
int cli_run_all(cli_run *runs, size_t n, const cli_args *args, const tr_data *data, uint64_t steps);

/* Whether the time to a target is asked for, or of interest because a link is emulated. */
int cli_run_aims(const cli_args *args);

/* The test accuracy that all are to reach: that of the flags, or 98% of what cli_run_measure ends with. NAN: there is none. */
double cli_run_target(const cli_args *args, const cli_run *runs, size_t n);

/* The run by which others are measured: dense, or the first that is sound. NULL: none is. */
const cli_run *cli_run_measure(const cli_run *runs, size_t n);

/* The first test of a run that reached the target; NULL: none has. */
const cli_point *cli_run_reach(const cli_run *r, double target);

/* Whether a run is sound, and no sound one is as accurate with fewer bytes, or more accurate with as few. */
int cli_run_is_on_frontier(const cli_run *runs, size_t n, const cli_run *r);

/* A measured step. */
double cli_run_step(const tr_times *t);

/* A step over a link of so many bits a second: all but the threads' own exchange, and the bytes of the worker that sends
 * most on the wire, nothing at the same time as anything else. */
double cli_run_predict(const cli_run *r, double bits);

/* One JSON object and a line feed, or its results as CSV if the flags say so. `whole` adds curves and layers, for the page,
 * which is always JSON. */
int cli_run_json(FILE *out, const cli_args *args, const cli_run *runs, size_t n, const tr_settings *s, int whole);

/* Writes the page to `path`, all of it or nothing. Reports. */
int cli_run_page(const char *path, const cli_args *args, const cli_run *runs, size_t n, const tr_settings *s);

#endif
