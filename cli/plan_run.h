/* What `tersegrad plan` finds out: a step of every recipe and of plain all-reduces, where they break even, and a recommendation. */
#ifndef CLI_PLAN_RUN_H
#define CLI_PLAN_RUN_H

#include "plan_step.h"

/* What kept trainings show (scripts/make-risks). */
typedef struct cli_risk {
    const char *recipe; /* canonical */
    uint32_t local_steps;
    double points; /* test accuracy above that of dense */
    uint32_t seeds, epochs;
    const char *trained;
} cli_risk;

/* That of the recipe, or of the same parts with other values, which `recipe` of the result tells. NULL: nothing is known. */
const cli_risk *cli_risk_find(const char *recipe, uint32_t local_steps);

typedef struct cli_plan_row {
    const char *recipe; /* as it was given */
    char canonical[TG_RECIPE_CAP];
    tg_detail reason;                        /* why it is not predicted; empty: it is */
    cli_prediction alone, overlapped, hosts; /* after the backward pass, during it, and with hosts that sum first */
    double step, step_overlapped,
        step_hosts;    /* seconds of a step, with local steps the mean; step_hosts NAN: no such hosts */
    double best;       /* of these */
    double bytes;      /* of a step */
    double break_even; /* bits a second below which it is faster than bf16; 0: at no rate, infinite: at every rate */
    const cli_risk *risk;
} cli_plan_row;

typedef struct cli_plan_plain {
    cli_prediction alone, overlapped;
    double best;
} cli_plan_plain;

typedef struct cli_plan {
    cli_setting setting;  /* with group_len as for overlapped steps */
    uint32_t local_steps; /* between exchanges of recipes; plain all-reduces are in every step */
    cli_plan_row *rows;
    size_t row_n;
    cli_plan_plain fp32, bf16;
    char recommendation[512];
    const cli_plan_row *recommended; /* NULL: do not compress */
} cli_plan;

/* Predicts all rows, whose `recipe` is set, and what follows from them. */
int cli_plan_run(cli_plan *p);

/* Seconds of the best step of a row, and of plain all-reduces, in another setting. INFINITY where a recipe is not predicted. */
int cli_plan_best(double *out, const cli_plan *p, const cli_setting *s, const char *canonical);
int cli_plan_plain_best(double *out, const cli_setting *s, tg_dtype dtype);

/* Whether a recipe with these points of accuracy may be recommended. */
int cli_risk_is_small(const cli_risk *r);

#endif
